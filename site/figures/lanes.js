// The states of circuit breakers over time: a lane for each, with the states in words.
import { colours, element, say } from '../dom.js';

const HEIGHT = 26;
const FONT = '12px system-ui, -apple-system, sans-serif';

// The left of a plot has an axis so wide, and its right a margin.
const [LEFT, RIGHT] = [40, 8];

// The most lanes.
const MOST = 4;

export class Lanes {
  #place;
  #names;
  #paint;
  #lanes = [];
  #width = 0;

  constructor(place, names) {
    this.#place = place;
    this.#names = names;
    this.repaint();
  }

  begin(breakers) {
    this.#lanes = breakers.slice(0, MOST).map(({ rule }) => {
      const canvas = element('canvas', { 'aria-hidden': 'true' });
      const state = element('b');
      return { canvas, state, node: element('div', {}, element('p', { class: 'legend' }, `breaker ${rule} is`, state), canvas) };
    });
    this.#place.replaceChildren(...this.#lanes.map(({ node }) => node));
    this.#width = -1;
  }

  repaint() {
    this.#paint = colours(['soft', 'track', 'over', 'over-soft', 'pass', 'pass-soft', 'ink', 'on-accent', 'line', 'card']);
  }

  // Follows the width of its place. Returns whether it has changed.
  fit() {
    const { clientWidth } = this.#place;
    if (clientWidth === 0 || clientWidth === this.#width) return false;
    this.#width = clientWidth;
    for (const { canvas } of this.#lanes) {
      canvas.width = clientWidth * devicePixelRatio;
      canvas.height = HEIGHT * devicePixelRatio;
      canvas.style.width = `${clientWidth}px`;
      canvas.style.height = `${HEIGHT}px`;
    }
    return true;
  }

  // Draws from one time to another, where the present is `now`; all in milliseconds.
  draw(breakers, from, now, to) {
    if (this.#lanes.length !== Math.min(breakers.length, MOST)) {
      this.begin(breakers);
      this.fit();
    }
    const paint = this.#paint;
    const width = this.#width - LEFT - RIGHT;
    const x = (at) => LEFT + ((Math.max(at, from) - from) / (to - from)) * width;
    this.#lanes.forEach(({ canvas, state }, i) => {
      say(state, this.#names[breakers[i].changes.at(-1).state]);
      const context = canvas.getContext('2d');
      context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
      context.clearRect(0, 0, this.#width, HEIGHT);
      context.fillStyle = paint.track;
      context.fillRect(LEFT, 0, width, HEIGHT);
      context.font = FONT;
      context.textBaseline = 'middle';
      const { changes } = breakers[i];
      changes.forEach(({ at, state }, j) => {
        const end = changes[j + 1]?.at ?? now;
        if (end <= from) return;
        const [left, right] = [x(at), x(end)];
        // Open fills the lane; half-open half of it.
        const height = { closed: 4, halfOpen: HEIGHT / 2, open: HEIGHT }[state];
        context.fillStyle = state === 'closed' ? paint.pass : paint.over;
        context.fillRect(left, HEIGHT - height, Math.max(1, right - left), height);
        const name = this.#names[state];
        if (context.measureText(name).width + 10 > right - left) return;
        context.fillStyle = state === 'open' ? paint['on-accent'] : paint.ink;
        context.fillText(name, left + 5, state === 'open' ? HEIGHT / 2 + 1 : HEIGHT / 2 - 3);
      });
    });
  }
}
