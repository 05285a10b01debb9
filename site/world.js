// Virtual time for what sets timers of its own: requests that wait in an engine, and calls to a store. The modules of the package get
// the names below in place of the browser's (see modules.mjs), and the tests put them in place of Node's. So a run depends on its seed
// and its settings, and not on the machine.
import { random } from './traces.js';

// Where `Date` begins. It is a multiple of all windows, so that windows begin with the run.
const EPOCH = 1_800_000_000_000;

// So many turns of the microtask queue settle all that one timer has caused, such as an answer that admits a request that waits for it.
const TURNS = 12;

// The latest one that was made or went on.
let world;

export class World {
  // In milliseconds since the run began.
  now = 0;
  // A binary heap, the earliest timer first.
  #timers = [];
  #set = 0;
  #target = 0;
  #isRunning = false;
  #random;

  constructor(seed) {
    this.#random = random(seed);
    world = this;
  }

  // Calls `then` after so many milliseconds. Returns a timer, which `cancel` cancels.
  after(ms, then) {
    const timer = { at: this.now + Math.max(ms, 0), number: this.#set++, then };
    let i = this.#timers.push(timer) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!isBefore(timer, this.#timers[parent])) break;
      this.#timers[i] = this.#timers[parent];
      i = parent;
    }
    this.#timers[i] = timer;
    return timer;
  }

  // Goes on to a time. Resolves when all that is due by then has happened; it takes microtasks only, so that it is done before the
  // next event or frame of a browser.
  async until(end) {
    this.#target = Math.max(this.#target, end);
    if (this.#isRunning) return;
    this.#isRunning = true;
    while (this.#timers.length > 0 && this.#timers[0].at <= this.#target) {
      world = this;
      const { at, then } = this.#next();
      this.now = at;
      if (then === undefined) continue;
      then();
      for (let i = 0; i < TURNS; i++) await undefined;
    }
    this.#isRunning = false;
    if (this.#target < Infinity) this.now = Math.max(this.now, this.#target);
  }

  // Nothing happens any more.
  end() {
    this.#timers = [];
  }

  word() {
    return Math.floor(this.#random() * 2 ** 32);
  }

  #next() {
    const heap = this.#timers;
    const [first] = heap;
    const last = heap.pop();
    if (heap.length === 0) return first;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child + 1 < heap.length && isBefore(heap[child + 1], heap[child])) child++;
      if (child >= heap.length || !isBefore(heap[child], last)) break;
      heap[i] = heap[child];
      i = child;
    }
    heap[i] = last;
    return first;
  }
}

const isBefore = (one, other) => one.at < other.at || (one.at === other.at && one.number < other.number);

export const cancel = (timer) => {
  if (timer !== undefined) timer.then = undefined;
};

// What modules have in place of the globals of these names. What they warn of, such as a store that does not answer, the page shows itself.
export const Date = { now: () => EPOCH + Math.floor(world.now) };
export const setTimeout = (then, ms = 0) => world.after(Math.max(1, ms), then);
export const clearTimeout = cancel;
export const crypto = { getRandomValues: (words) => words.map((_, i) => (words[i] = world.word())) };
export const console = { warn() {} };
