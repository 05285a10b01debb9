// A strip of three windows in which a visitor draws requests; the same as text below it.
import { colours, element, say } from '../dom.js';
import { MOST, readMoves, writeMoves } from '../traces.js';

const WINDOWS = 3;
const CELLS = 60;
const HEIGHT = 96;
const NAMES = ['ink', 'soft', 'line', 'track', 'pass'];

export class Strip {
  #moves;
  #change;
  #windowMs = 1;
  #limit = 1;
  #canvas = element('canvas', { class: 'strip', 'aria-hidden': 'true' });
  #input = element('input', { type: 'text', spellcheck: 'false', autocomplete: 'off', placeholder: '5.9x20 6.1x20', 'aria-describedby': 'strip-wrong' });
  #wrong = element('p', { class: 'wrong', id: 'strip-wrong', role: 'status' });
  #colours = colours(NAMES);
  #width = 0;
  #last;

  // Calls `change(moves, text)` when the visitor has changed the trace.
  constructor({ moves, change }) {
    this.#moves = moves;
    this.#change = change;
    this.#input.value = writeMoves(moves);
    this.#input.addEventListener('change', () => this.#read());
    for (const name of ['pointerdown', 'pointermove', 'pointerup', 'pointercancel']) {
      this.#canvas.addEventListener(name, (event) => this.#pointer(event));
    }
    const clear = element('button', { type: 'button', onclick: () => this.#set([]) }, 'Clear');
    this.node = element(
      'div',
      { class: 'drawing' },
      this.#canvas,
      element('div', { class: 'controls' }, element('label', { class: 'wide' }, 'Requests ', this.#input), clear),
      this.#wrong,
    );
  }

  scale(windowMs, limit) {
    [this.#windowMs, this.#limit] = [windowMs, limit];
    this.#draw();
  }

  repaint() {
    this.#colours = colours(NAMES);
    this.#draw();
  }

  fit() {
    if (this.#canvas.clientWidth === this.#width) return;
    this.#width = this.#canvas.clientWidth;
    const scale = Math.min(devicePixelRatio || 1, 2);
    this.#canvas.width = Math.round(this.#width * scale);
    this.#canvas.height = Math.round(HEIGHT * scale);
    this.#canvas.getContext('2d').setTransform(scale, 0, 0, scale, 0, 0);
    this.#draw();
  }

  // The moves of a cell begin in its middle.
  #cellOf = (at) => Math.floor((at * CELLS) / (WINDOWS * this.#windowMs));
  #timeOf = (cell) => Math.round(((cell + 0.5) * WINDOWS * this.#windowMs) / CELLS);

  #read() {
    try {
      const moves = readMoves(this.#input.value);
      this.#input.removeAttribute('aria-invalid');
      this.#set(moves);
    } catch (error) {
      this.#input.setAttribute('aria-invalid', 'true');
      say(this.#wrong, error.message);
    }
  }

  #set(moves) {
    this.#moves = moves;
    this.#input.value = writeMoves(moves);
    say(this.#wrong, '');
    this.#draw();
    this.#change(moves, this.#input.value);
  }

  #pointer(event) {
    if (event.type === 'pointerdown') {
      this.#canvas.setPointerCapture(event.pointerId);
      this.#last = undefined;
    }
    if (event.type === 'pointercancel') this.#last = undefined;
    if ((event.buttons & 1) === 0) return;
    const { left, top, width } = this.#canvas.getBoundingClientRect();
    const cell = Math.min(CELLS - 1, Math.max(0, Math.floor(((event.clientX - left) * CELLS) / width)));
    const part = Math.min(1, Math.max(0, 1 - (event.clientY - top - 6) / (HEIGHT - 24)));
    const count = Math.min(MOST.requests, Math.round(part * this.#limit));
    // A fast stroke skips cells: those between get the same.
    const from = this.#last ?? cell;
    this.#last = cell;
    const [first, last] = [Math.min(from, cell), Math.max(from, cell)];
    const moves = this.#moves.filter(([at]) => this.#cellOf(at) < first || this.#cellOf(at) > last);
    if (count > 0) for (let one = first; one <= last; one++) moves.push([this.#timeOf(one), count]);
    this.#set(moves.toSorted(([one], [other]) => one - other));
  }

  #draw() {
    const context = this.#canvas.getContext('2d');
    const paint = this.#colours;
    const width = this.#width;
    const base = HEIGHT - 18;
    context.clearRect(0, 0, width, HEIGHT);
    context.fillStyle = paint.track;
    context.fillRect(0, 0, width, base);
    context.fillStyle = paint.pass;
    for (const [at, count] of this.#moves) {
      const height = Math.min(1, count / this.#limit) * (base - 6);
      context.fillRect((this.#cellOf(at) * width) / CELLS + 1, base - height, width / CELLS - 2, height);
    }
    context.strokeStyle = paint.soft;
    context.fillStyle = paint.soft;
    context.font = '12px system-ui, sans-serif';
    context.textBaseline = 'bottom';
    context.beginPath();
    for (let i = 0; i <= WINDOWS; i++) {
      const x = Math.min(width - 0.5, Math.max(0.5, (i * width) / WINDOWS));
      context.moveTo(x, 0);
      context.lineTo(x, base);
      context.textAlign = i === 0 ? 'left' : i === WINDOWS ? 'right' : 'center';
      context.fillText(`${(i * this.#windowMs) / 1000} s`, x, HEIGHT);
    }
    context.stroke();
  }
}
