// The clock of all figures. Its time is virtual, in milliseconds since a run began: it moves only by `frame` and `step`, so that what a
// figure shows depends on its trace, and not on the machine.

export const SPEEDS = [1, 2, 5, 10, 20, 50, 100];

// The most real time that one frame takes up: after a pause, as of a hidden tab, the clock goes on where it was.
const MAX_FRAME_MS = 100;

export class Clock {
  #now = 0;
  #isPlaying = false;
  #speed = 1;
  #listeners = new Set();

  // How far `step` goes, unless it is told.
  stepMs = 100;

  get now() {
    return this.#now;
  }

  get isPlaying() {
    return this.#isPlaying;
  }

  get speed() {
    return this.#speed;
  }

  // From 1 to 100 times real time.
  set speed(speed) {
    this.#speed = Math.min(Math.max(Number(speed) || 1, SPEEDS[0]), SPEEDS.at(-1));
    this.#tell();
  }

  // So many of the speeds above or below the next one.
  accelerate(by) {
    const at = SPEEDS.findLastIndex((speed) => speed <= this.#speed);
    this.speed = SPEEDS[Math.min(Math.max(at + by, 0), SPEEDS.length - 1)];
  }

  play() {
    this.#isPlaying = true;
    this.#tell();
  }

  pause() {
    this.#isPlaying = false;
    this.#tell();
  }

  // Moves by so much while paused, else pauses first.
  step(ms = this.stepMs) {
    this.#isPlaying = false;
    this.#move(ms);
  }

  // A new run begins at this time.
  reset(now = 0) {
    this.#now = now;
    this.#tell();
  }

  // The time that has passed since the last frame, in real milliseconds.
  frame(elapsed) {
    if (this.#isPlaying) this.#move(Math.min(elapsed, MAX_FRAME_MS) * this.#speed);
  }

  // Calls `listener` after each change of the clock; returns a function that ends this.
  follow(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #move(ms) {
    this.#now += Math.max(ms, 0); // It never goes back, but for a new run.
    this.#tell();
  }

  #tell() {
    for (const listener of this.#listeners) listener(this);
  }
}
