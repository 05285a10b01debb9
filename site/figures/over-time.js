// What one limiter has let through in the last window, over time, beside its limit.
import { element } from '../dom.js';

// How often it is drawn at most, in real milliseconds, and how many windows it shows.
const DRAW_MS = 50;
const WINDOWS = 4;

export class OverTime {
  #plot;
  #isInView = false;
  #isDirty = true;
  #drawn = -Infinity;
  #range = { x: [0, 1], y: [0, 1] };
  #observer;

  constructor(label) {
    this.node = element('div', { class: 'over-time', role: 'img', 'aria-label': label });
    this.#observer = new IntersectionObserver(([{ isIntersecting }]) => {
      this.#isInView = isIntersecting;
      if (isIntersecting) this.#load();
    });
    this.#observer.observe(this.node);
  }

  changed() {
    this.#isDirty = true;
  }

  draw(time, contest, contestant, now) {
    if (!this.#plot || !this.#isInView || !this.#isDirty || time - this.#drawn < DRAW_MS) return;
    [this.#isDirty, this.#drawn] = [false, time];
    const { limit, windowMs } = contest.settings;
    const end = Math.max(now, WINDOWS * windowMs) / 1000;
    this.#range = { x: [end - (WINDOWS * windowMs) / 1000, end], y: [0, 2.1 * limit] };
    const { peaks } = contestant;
    const over = peaks.map((count, i) => (Math.max(count, peaks[i - 1] ?? 0) > limit ? count : null));
    this.#plot.set([contest.peakTimes().map((at) => at / 1000), peaks, over, peaks.map(() => limit)]);
  }

  async #load() {
    if (this.#plot !== undefined) return;
    this.#plot = null; // It is on its way.
    const { plot } = await import('../plot.js');
    if (!this.node.isConnected) return;
    this.#plot = plot(this.node, {
      series: [
        { label: 'passed in the last window', colour: 'pass', isStepped: true },
        { label: 'over the limit', colour: 'over', width: 3, isStepped: true },
        { label: 'limit', colour: 'ink', width: 1.5, dash: [6, 4] },
      ],
      x: () => this.#range.x,
      y: () => this.#range.y,
    });
    this.changed();
  }

  destroy() {
    this.#observer.disconnect();
    this.#plot?.destroy();
  }
}
