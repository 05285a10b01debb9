// The limiters that leapgate's windows are compared with, each as its textbook has it. `limit` requests pass in `windowMs`
// milliseconds; `admit` decides about one at `now`, which never goes back. A refused request is charged nothing.
//
// `spans` tells what a limiter counts at `now`: intervals from the latest, each with the weight of the requests in it.

// Counts from one edge of the clock to the next.
export class FixedWindow {
  #window = 0;
  #count = 0;

  constructor(limit, windowMs) {
    Object.assign(this, { limit, windowMs });
  }

  admit(now) {
    const window = Math.floor(now / this.windowMs);
    if (window > this.#window) [this.#window, this.#count] = [window, 0];
    if (this.#count + 1 > this.limit) return false;
    this.#count += 1;
    return true;
  }

  spans(now) {
    return [{ from: Math.floor(now / this.windowMs) * this.windowMs, to: now, weight: 1 }];
  }
}

// Estimates a sliding window from two fixed ones, as if the requests of the earlier one had come evenly: Cloudflare's "sliding window
// counter", and the `slidingWindow` of @upstash/ratelimit.
export class TwoWindows {
  #window = 0;
  #count = 0;
  #earlier = 0;

  constructor(limit, windowMs) {
    Object.assign(this, { limit, windowMs });
  }

  admit(now) {
    const window = Math.floor(now / this.windowMs);
    if (window > this.#window) {
      this.#earlier = window === this.#window + 1 ? this.#count : 0;
      [this.#window, this.#count] = [window, 0];
    }
    const left = 1 - (now % this.windowMs) / this.windowMs;
    if (this.#earlier * left + this.#count + 1 > this.limit) return false;
    this.#count += 1;
    return true;
  }

  spans(now) {
    const from = Math.floor(now / this.windowMs) * this.windowMs;
    return [
      { from, to: now, weight: 1 },
      { from: from - this.windowMs, to: from, weight: 1 - (now - from) / this.windowMs },
    ];
  }
}

// A bucket of tokens, full at first: a request takes one, and `limit` of them come back in a window, evenly.
export class TokenBucket {
  #tokens;
  #at = 0;

  constructor(limit, windowMs) {
    Object.assign(this, { limit, windowMs });
    this.#tokens = limit;
  }

  admit(now) {
    this.#tokens = this.tokens(now);
    this.#at = now;
    if (this.#tokens < 1) return false;
    this.#tokens -= 1;
    return true;
  }

  tokens(now) {
    return Math.min(this.limit, this.#tokens + ((now - this.#at) * this.limit) / this.windowMs);
  }

  spans() {
    return []; // It counts no interval.
  }
}

// Remembers each request that has passed: exact, with `limit` instants for each key.
export class ExactLog {
  #instants = [];

  constructor(limit, windowMs) {
    Object.assign(this, { limit, windowMs });
  }

  admit(now) {
    while (this.#instants[0] <= now - this.windowMs) this.#instants.shift();
    if (this.#instants.length + 1 > this.limit) return false;
    this.#instants.push(now);
    return true;
  }

  spans(now) {
    return [{ from: now - this.windowMs, to: now, weight: 1 }];
  }
}
