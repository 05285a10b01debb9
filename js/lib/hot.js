// The hot keys of a limiter: what is left of them until the end of the bucket, so that most of their requests need no call of the
// module.
//
// In strict and Sentinel windows nothing leaves within a bucket: until its end, only calls for the key change what is left. The module says
// so when it decides (LIMIT_STEADY), and a line notes it. Requests then take from the line, and the module is told how many those were
// before it is next asked about the key (flush). Each was charged in its bucket, so that all decisions are the same as without lines.
// An expired window may be reused for another key, and what is not yet told of it is forgotten with it; if the clock steps back, it would
// count again: all lines are flushed first.
//
// With a sparse clock, some requests take from a line without a look at the clock. They are charged when it is read the next time: later
// than they came, never earlier, so that no interval has more than the limit.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import * as layout from './layout.js';
import { LimitResult } from './result.js';

// Of each line: until when it holds; what was left when it was noted, and what is left; when quota comes back; the hash of the key; with a
// sparse clock, how many requests have passed since it was last read, and when that was.
const UNTIL = 0;
const NOTED = 1;
const LEFT = 2;
const RESET = 3;
const LOW = 4;
const HIGH = 5;
const UNTIMED = 6;
const READ = 7;
const LINE = 8;

// The most lines of a limiter.
const MAX_LINES = 4096;

export class HotKeys {
  // The limiter in the module, and its clock.
  at = { number: -1, generation: 0 };
  clock;
  // How often the clock is not read.
  skips = 0;
  // The only limit.
  #rule;
  #count = 0;
  // The lines, and where the line of a key is: as many as there are keys of which something is left, and at most MAX_LINES.
  #lines = new Float64Array(0);
  #byKey = new Map();
  // The time of the latest decision in the module.
  #latest = 0;

  // Begins anew, for a limiter that has been made in the module.
  begin(number, rule) {
    this.at.number = number;
    this.at.generation = wasm.generation;
    this.#rule = rule;
    this.#lines = new Float64Array(0);
    this.#byKey.clear();
    this.#latest = 0;
  }

  // The line of a key of which something is left, or undefined.
  find(key) {
    if (this.at.generation !== wasm.generation) return undefined;
    const line = this.#byKey.get(key);
    return line !== undefined && this.#lines[line + LEFT] > 0 ? line : undefined;
  }

  // Takes one; undefined if the line has ended.
  take(line, now) {
    const lines = this.#lines;
    if (!(now >= this.#latest && now < lines[line + UNTIL])) return undefined;
    this.#read(line, now);
    return this.#taken(line, now);
  }

  // The same without the clock; undefined if it is time to read it.
  skip(line) {
    const lines = this.#lines;
    if (lines[line + UNTIMED] >= this.skips) return undefined;
    lines[line + UNTIMED]++;
    return this.#taken(line, lines[line + READ]);
  }

  #read(line, now) {
    this.#lines[line + UNTIMED] = 0;
    this.#lines[line + READ] = now;
  }

  #taken(line, now) {
    const left = --this.#lines[line + LEFT];
    const resetAt = this.#lines[line + RESET];
    return new LimitResult(true, this.#count, left, 0, resetAt, resetAt - Math.floor(now), this.#rule);
  }

  // Notes what is left after the decision about a key.
  note(key, now) {
    const results = wasm.results();
    const left = results[layout.VERDICT_LEN + layout.LIMIT_REMAINING];
    const until = results[layout.VERDICT_LEN + layout.LIMIT_STEADY];
    const resetMs = results[layout.VERDICT_LEN + layout.LIMIT_RESET];
    // If nothing is used yet, the next request changes when quota comes back.
    if (!(until > 0 && left > 0 && resetMs > 0)) return;
    let line = this.#byKey.get(key);
    if (line === undefined) {
      if (this.#byKey.size === MAX_LINES) this.flushAll(now);
      line = LINE * this.#byKey.size;
      this.#byKey.set(key, line);
    }
    if (line === this.#lines.length) {
      const longer = new Float64Array(2 * line || LINE);
      longer.set(this.#lines);
      this.#lines = longer;
    }
    const lines = this.#lines;
    lines[line + UNTIL] = until;
    lines[line + NOTED] = lines[line + LEFT] = left;
    lines[line + RESET] = Math.floor(now) + resetMs;
    this.#read(line, now);
    lines[line + LOW] = results[layout.VERDICT_KEY_LOW];
    lines[line + HIGH] = results[layout.VERDICT_KEY_HIGH];
    this.#count = results[layout.VERDICT_LEN + layout.LIMIT_COUNT];
  }

  // Tells the module what has been taken from a line, and ends it.
  #flush(line, now) {
    const lines = this.#lines;
    const late = lines[line + UNTIMED];
    const taken = lines[line + NOTED] - lines[line + LEFT] - late;
    const tell = (cost, at) => core.limiter_catch_up(this.at.number, lines[line + LOW], lines[line + HIGH], cost, at);
    if (taken > 0) tell(taken, -1);
    if (late > 0) tell(late, now ?? this.clock());
    lines[line + NOTED] = lines[line + LEFT] = lines[line + UNTIMED] = 0;
  }

  // The same before a call for a key.
  flush(key, now) {
    const line = this.#byKey.get(typeof key === 'string' ? key : String(key));
    if (line !== undefined) this.#flush(line, now);
  }

  flushAll(now) {
    for (const line of this.#byKey.values()) this.#flush(line, now);
    this.#byKey.clear();
  }

  // Before each call that may open a window.
  follow(now) {
    if (now < this.#latest) this.flushAll(now);
    this.#latest = now;
  }
}
