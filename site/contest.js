// One trace of requests, decided by leapgate's three windows and by their rivals. Pure: time is an argument, and leapgate's `Limiter`
// is one, too, so that Node and the page run the same.
import { ExactLog, FixedWindow, TokenBucket, TwoWindows } from './rivals.js';

// One of the windows of leapgate's own `Limiter`.
class Leapgate {
  #limiter;
  #now = 0;

  constructor(Limiter, window, { limit, windowMs, buckets }) {
    Object.assign(this, { window, windowMs, buckets });
    this.#limiter = new Limiter({ limit, windowMs, window, sampleCount: buckets, maxKeys: 1, now: () => this.#now });
  }

  admit(now) {
    this.#now = now;
    return this.#limiter.limit('visitor').success;
  }

  // How much is left: what the module says, and not what this page has counted.
  remaining(now) {
    this.#now = now;
    return this.#limiter.peek('visitor').remaining;
  }

  spans(now) {
    const length = this.windowMs / this.buckets;
    const current = Math.floor(now / length) * length;
    const oldest = current - (this.buckets - 1) * length;
    const leaving = { from: oldest - length, to: oldest };
    if (this.window === 'strict') return [{ from: leaving.from, to: now, weight: 1 }];
    const spans = [{ from: oldest, to: now, weight: 1 }];
    return this.window === 'sentinel' ? spans : [...spans, { ...leaving, weight: 1 - (now - current) / length }];
  }

  free() {
    this.#limiter.free();
  }
}

export const CONTESTANTS = [
  { id: 'strict', title: 'leapgate, strict', make: (settings, Limiter) => new Leapgate(Limiter, 'strict', settings) },
  { id: 'weighted', title: 'leapgate, weighted', make: (settings, Limiter) => new Leapgate(Limiter, 'weighted', settings) },
  { id: 'sentinel', title: 'leapgate, as Sentinel', make: (settings, Limiter) => new Leapgate(Limiter, 'sentinel', settings) },
  { id: 'log', title: 'Exact log', make: ({ limit, windowMs }) => new ExactLog(limit, windowMs) },
  { id: 'fixed', title: 'Fixed window', make: ({ limit, windowMs }) => new FixedWindow(limit, windowMs) },
  { id: 'two', title: 'Two-window estimate', make: ({ limit, windowMs }) => new TwoWindows(limit, windowMs) },
  { id: 'tokens', title: 'Token bucket', make: ({ limit, windowMs }) => new TokenBucket(limit, windowMs) },
];

// The most requests that have passed in any interval of one window's length: the instants of the last such interval, of which no
// limiter here has more than twice its limit, and the most that there have been of them.
export class Worst {
  #instants = [];
  #peak = 0;

  constructor(windowMs) {
    Object.assign(this, { windowMs, most: 0 });
  }

  add(now) {
    this.#leave(now);
    this.#instants.push(now);
    this.#peak = Math.max(this.#peak, this.#instants.length);
    this.most = Math.max(this.most, this.#peak);
  }

  // The most since the last call of this, up to `now`.
  peak(now) {
    const peak = this.#peak;
    this.#leave(now);
    this.#peak = this.#instants.length;
    return peak;
  }

  // How many have passed in the interval of one window's length that ends at `now`.
  count(now) {
    this.#leave(now);
    return this.#instants.length;
  }

  #leave(now) {
    while (this.#instants[0] <= now - this.windowMs) this.#instants.shift();
  }
}

// What the buckets of a ring have counted: one more than are in a window, reused in place.
export class Buckets {
  #length;
  #numbers;
  #passed;
  #refused;

  constructor(windowMs, buckets) {
    this.#length = windowMs / buckets;
    this.slots = buckets + 1;
    this.#numbers = new Float64Array(this.slots).fill(-1);
    this.#passed = new Uint32Array(this.slots);
    this.#refused = new Uint32Array(this.slots);
  }

  // The number of the bucket at `now`, counted from the beginning of time.
  numberAt(now) {
    return Math.floor(now / this.#length);
  }

  add(now, passes) {
    const number = this.numberAt(now);
    const slot = number % this.slots;
    if (this.#numbers[slot] !== number) {
      [this.#numbers[slot], this.#passed[slot], this.#refused[slot]] = [number, 0, 0];
    }
    (passes ? this.#passed : this.#refused)[slot] += 1;
  }

  // What bucket `number` has counted, if the ring still has it.
  passed(number) {
    return this.#at(this.#passed, number);
  }

  refused(number) {
    return this.#at(this.#refused, number);
  }

  #at(counts, number) {
    const slot = number % this.slots;
    return number >= 0 && this.#numbers[slot] === number ? counts[slot] : 0;
  }
}

// How many peaks of each contestant are kept, and how many there are in a window.
const PEAKS = { kept: 240, each: 60 };

export class Contest {
  #now = 0;
  #sampled = -1;

  // `settings` has the limit, the window's length in milliseconds and its number of buckets, a divisor of that.
  constructor(Limiter, settings) {
    this.settings = settings;
    this.sent = 0;
    this.contestants = CONTESTANTS.map(({ id, title, make }) => ({
      id,
      title,
      limiter: make(settings, Limiter),
      passed: 0,
      refused: 0,
      worst: new Worst(settings.windowMs),
      peaks: [],
      buckets: new Buckets(settings.windowMs, settings.buckets),
    }));
  }

  // A request, at a time that is not before the last one; in whole milliseconds, the finest that the buckets have. Returns whether
  // each limiter lets it pass, by its id.
  request(at) {
    this.#now = Math.max(this.#now, Math.floor(at));
    const now = this.#now;
    this.advance(now);
    this.sent += 1;
    const decisions = {};
    for (const contestant of this.contestants) {
      const passes = contestant.limiter.admit(now);
      contestant[passes ? 'passed' : 'refused'] += 1;
      if (passes) contestant.worst.add(now);
      contestant.buckets.add(now, passes);
      decisions[contestant.id] = passes;
    }
    return decisions;
  }

  // Time goes on: each contestant's `peaks` has the most that had passed in one window's length, for each sixtieth of a window that has
  // ended, the latest last. Their times are `peakTimes()`.
  advance(now) {
    const length = this.settings.windowMs / PEAKS.each;
    const ended = Math.floor(now / length) - 1;
    while (this.#sampled < ended) {
      this.#sampled += 1;
      // After a leap of time: what is not kept is not taken.
      const isKept = ended - this.#sampled < PEAKS.kept;
      if (!isKept) this.#sampled = ended - PEAKS.kept;
      for (const { worst, peaks } of this.contestants) {
        const peak = worst.peak((this.#sampled + 1) * length - 1);
        if (isKept) peaks.push(peak);
        else peaks.length = 0;
        if (peaks.length > PEAKS.kept) peaks.shift();
      }
    }
  }

  peakTimes() {
    const { peaks } = this.contestants[0];
    return peaks.map((_, i) => ((this.#sampled - peaks.length + 2 + i) * this.settings.windowMs) / PEAKS.each);
  }

  // The numbers that the page shows.
  numbers() {
    return Object.fromEntries(this.contestants.map(({ id, passed, refused, worst }) => [id, { passed, refused, worst: worst.most }]));
  }

  free() {
    for (const { limiter } of this.contestants) limiter.free?.();
  }
}
