// Requests that wait for the same thing, in order: the highest `priority` first, and first come, first served within one. None
// starves: after so many in a row that were admitted ahead of one that had come before them, the one that came first is next.

const MOST_AHEAD = 7;

export class Line {
  #byArrival = new Set();
  // The same by priority, the highest first: `{ priority, waiters }`.
  #levels = [];
  #ahead = 0;

  get size() {
    return this.#byArrival.size;
  }

  has(waiter) {
    return this.#byArrival.has(waiter);
  }

  // The one that is next, if any.
  get first() {
    const [level] = this.#levels;
    const [first] = this.#ahead < MOST_AHEAD && level !== undefined ? level.waiters : this.#byArrival;
    return first;
  }

  // Whether a request of that priority would be next.
  wouldBeFirst(priority) {
    return this.size === 0 || (this.#ahead < MOST_AHEAD && priority > this.#levels[0].priority);
  }

  add(waiter) {
    const { priority } = waiter;
    const at = this.#placeOf(priority);
    if (this.#levels[at]?.priority !== priority) this.#levels.splice(at, 0, { priority, waiters: new Set() });
    this.#levels[at].waiters.add(waiter);
    this.#byArrival.add(waiter);
  }

  delete(waiter) {
    if (!this.#byArrival.delete(waiter)) return;
    const at = this.#placeOf(waiter.priority);
    const { waiters } = this.#levels[at];
    waiters.delete(waiter);
    if (waiters.size === 0) this.#levels.splice(at, 1);
    if (this.size === 0) this.#ahead = 0;
  }

  // Notes that a request is admitted, which may still be in the line.
  admit(waiter) {
    const [earliest] = this.#byArrival;
    this.#ahead = earliest === undefined || earliest === waiter ? 0 : this.#ahead + 1;
  }

  // In order of arrival.
  [Symbol.iterator]() {
    return this.#byArrival.values();
  }

  // The place of a priority among the levels, or where it would be.
  #placeOf(priority) {
    let [from, to] = [0, this.#levels.length];
    while (from < to) {
      const middle = (from + to) >> 1;
      if (this.#levels[middle].priority > priority) from = middle + 1;
      else to = middle;
    }
    return from;
  }
}
