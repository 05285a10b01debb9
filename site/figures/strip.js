// A strip of three windows with the requests of a trace, in which a visitor draws others.
import { colours, element } from '../dom.js';
import { MOST, WINDOWS } from '../traces.js';

const CELLS = 60;
const HEIGHT = 84;
const BASE = HEIGHT - 18;
const NAMES = ['ink', 'soft', 'line', 'track', 'pass'];

export class Strip {
  #context;
  #drawn;
  #moves = [];
  #windowMs = 1;
  #limit = 1;
  #head;
  #colours = colours(NAMES);
  #width = 0;
  #isDirty = true;
  #last;

  // Calls `drawn(moves, isDone)` while the visitor draws, and when the stroke ends.
  constructor(drawn) {
    this.#drawn = drawn;
    this.node = element('canvas', { class: 'strip', 'aria-hidden': 'true' });
    this.#context = this.node.getContext('2d');
    for (const name of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel']) {
      this.node.addEventListener(name, (event) => this.#pointer(event));
    }
  }

  show({ moves, windowMs, limit }) {
    [this.#moves, this.#windowMs, this.#limit] = [moves, windowMs, limit];
    this.#isDirty = true;
  }

  repaint() {
    this.#colours = colours(NAMES);
    this.#isDirty = true;
  }

  // `head` is the time in the trace, undefined if none plays.
  draw(head) {
    const width = this.node.clientWidth;
    if (width !== this.#width) {
      this.#width = width;
      const scale = Math.min(devicePixelRatio || 1, 2);
      [this.node.width, this.node.height] = [Math.round(width * scale), Math.round(HEIGHT * scale)];
      this.#context.setTransform(scale, 0, 0, scale, 0, 0);
      this.#isDirty = true;
    }
    if (!this.#isDirty && head === this.#head) return;
    this.#isDirty = false;
    this.#head = head;

    const context = this.#context;
    const paint = this.#colours;
    const cell = width / CELLS;
    context.clearRect(0, 0, width, HEIGHT);
    context.fillStyle = paint.track;
    context.fillRect(0, 0, width, BASE);
    const counts = new Array(CELLS).fill(0);
    for (const [at, count] of this.#moves) if (this.#cellOf(at) < CELLS) counts[this.#cellOf(at)] += count;
    context.fillStyle = paint.pass;
    counts.forEach((count, i) => {
      const height = Math.min(1, Math.sqrt(count / this.#limit)) * (BASE - 6);
      context.fillRect(i * cell + 1, BASE - height, cell - 2, height);
    });
    context.fillStyle = context.strokeStyle = paint.soft;
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'bottom';
    context.lineWidth = 1;
    context.beginPath();
    for (let i = 0; i <= WINDOWS; i++) {
      const x = Math.min(width - 0.5, Math.max(0.5, (i * width) / WINDOWS));
      context.moveTo(x, 0);
      context.lineTo(x, BASE);
      context.textAlign = i === 0 ? 'left' : i === WINDOWS ? 'right' : 'center';
      context.fillText(`${(i * this.#windowMs) / 1000} s`, x, HEIGHT);
    }
    context.stroke();
    if (this.#moves.length === 0) {
      context.textAlign = 'center';
      context.textBaseline = 'middle';
      context.fillText('draw here', width / 2, BASE / 2);
    }
    if (head === undefined) return;
    const x = (head * width) / (WINDOWS * this.#windowMs);
    context.fillStyle = paint.ink;
    context.fillRect(x - 1, 0, 2, BASE);
  }

  #cellOf = (at) => Math.floor((at * CELLS) / (WINDOWS * this.#windowMs));
  // The moves of a cell are in its middle.
  #timeOf = (cell) => Math.round(((cell + 0.5) * WINDOWS * this.#windowMs) / CELLS);

  #pointer(event) {
    const isDone = event.type === 'pointerup' || event.type === 'pointercancel';
    if (isDone) {
      if (this.#last !== undefined) this.#drawn(this.#moves, true);
      this.#last = undefined;
      return;
    }
    if (event.type === 'pointerdown' && event.button === 0) this.node.setPointerCapture(event.pointerId);
    else if (this.#last === undefined) return;
    const { left, top, width } = this.node.getBoundingClientRect();
    const cell = Math.min(CELLS - 1, Math.max(0, Math.floor(((event.clientX - left) * CELLS) / width)));
    const part = Math.min(1, Math.max(0, (BASE - (event.clientY - top)) / (BASE - 6)));
    const count = Math.min(MOST.requests, Math.round(part ** 2 * this.#limit));
    // A fast stroke skips cells: those between get the same.
    const from = this.#last ?? cell;
    this.#last = cell;
    const [first, last] = [Math.min(from, cell), Math.max(from, cell)];
    const moves = this.#moves.filter(([at]) => this.#cellOf(at) < first || this.#cellOf(at) > last);
    if (count > 0) for (let one = first; one <= last; one++) moves.push([this.#timeOf(one), count]);
    this.#moves = moves.toSorted(([one], [other]) => one - other);
    this.#isDirty = true;
    this.#drawn(this.#moves, false);
  }
}
