// Keeps the page responsive where a run is more than its machine can do at the speed of the clock: the clock slows down.

// In real milliseconds, so many times in a row.
const SLOW_MS = 80;
const TIMES = 4;

export class Pace {
  #clock;
  #slow = 0;

  constructor(clock) {
    this.#clock = clock;
  }

  // Measures how long the work of a frame takes, until its promise resolves.
  async during(work) {
    const from = performance.now();
    await work;
    this.#slow = performance.now() - from > SLOW_MS ? this.#slow + 1 : 0;
    if (this.#slow < TIMES || !this.#clock.isPlaying) return;
    this.#slow = 0;
    this.#clock.speed /= 2;
  }
}
