// The subjects of the comparison: each is made from a limit, a window and the number of keys, and returns whether a request with a
// key passes, at once or as a promise.
import { Ratelimit } from '@upstash/ratelimit';
import { MemoryStore as ExpressStore } from 'express-rate-limit';
import { MemoryStore as HonoStore } from 'hono-rate-limiter';
import { RateLimiter, TokenBucket } from 'limiter';
import { RateLimiterMemory } from 'rate-limiter-flexible';
import { Limiter } from 'leapgate';

const leapgate = (window, clock) => (limit, windowMs, maxKeys) => {
  // A sparse clock needs a limit of 200, and is as sparse with the limits of the benchmarks as with 10,000.
  const limiter = new Limiter({ limit, windowMs, maxKeys, window, clock: limit < 200 ? undefined : clock });
  return (key) => limiter.limit(key).success;
};

// The way of a cost that is known only at the end: twice a decision, if it were two of them.
const holding = (limit, windowMs, maxKeys) => {
  const limiter = new Limiter({ limit, windowMs, maxKeys });
  return (key) => {
    const hold = limiter.hold(key, 1);
    hold.settle(1);
    return hold.success;
  };
};

const perKey = (make) => {
  const limiters = new Map();
  return (key) => {
    let limiter = limiters.get(key);
    if (limiter === undefined) limiters.set(key, (limiter = make()));
    return limiter.tryRemoveTokens(1);
  };
};

// A Redis in this process, with just enough for the scripts of @upstash/ratelimit.
class Redis {
  #counts = new Map();

  async evalsha(_hash, [key, previousKey], args) {
    const count = this.#counts.get(key) ?? 0;
    if (previousKey === undefined) {
      this.#counts.set(key, count + args[1]);
      return count + args[1];
    }
    const [limit, now, windowMs, cost] = args;
    const before = Math.floor((1 - (now % windowMs) / windowMs) * (this.#counts.get(previousKey) ?? 0));
    if (before + count >= limit) return [-1, limit];
    this.#counts.set(key, count + cost);
    return [limit - count - cost - before, limit];
  }
}

const upstash = (redis, limiter, options) => {
  const ratelimit = new Ratelimit({ redis, limiter, timeout: 0, ...options });
  return async (key) => (await ratelimit.limit(key)).success;
};

const store = (Store, limit, windowMs) => {
  const made = new Store();
  made.init({ windowMs });
  return made;
};

export const SUBJECTS = {
  leapgate: leapgate('strict'),
  "leapgate, clock: 'sparse'": leapgate('strict', 'sparse'),
  "leapgate, window: 'weighted'": leapgate('weighted'),
  'leapgate, hold and settle': holding,
  'rate-limiter-flexible': (points, windowMs) => {
    const limiter = new RateLimiterMemory({ points, duration: windowMs / 1000 });
    return (key) => limiter.consume(key).then(() => true, () => false);
  },
  'express-rate-limit': (limit, windowMs) => {
    const made = store(ExpressStore, limit, windowMs);
    return async (key) => (await made.increment(key)).totalHits <= limit;
  },
  'hono-rate-limiter': (limit, windowMs) => {
    const made = store(HonoStore, limit, windowMs);
    return (key) => made.increment(key).totalHits <= limit;
  },
  'limiter, RateLimiter': (tokensPerInterval, interval) => perKey(() => new RateLimiter({ tokensPerInterval, interval })),
  'limiter, TokenBucket': (limit, interval) =>
    perKey(() => {
      const bucket = new TokenBucket({ bucketSize: limit, tokensPerInterval: limit, interval });
      bucket.content = limit;
      return bucket;
    }),
  // The local path: the store is updated later, and no request waits for it. Here the store forgets all updates.
  '@upstash/ratelimit, cached': (limit, windowMs) =>
    upstash({ evalsha: async (_hash, _keys, [, cost]) => cost }, Ratelimit.cachedFixedWindow(limit, `${windowMs} ms`)),
};

// Subjects that decide otherwise, for the accuracy only.
export const MORE = {
  "leapgate, window: 'sentinel'": leapgate('sentinel'),
  '@upstash/ratelimit, sliding': (limit, windowMs) => upstash(new Redis(), Ratelimit.slidingWindow(limit, `${windowMs} ms`)),
  '@upstash/ratelimit, sliding, no cache': (limit, windowMs) =>
    upstash(new Redis(), Ratelimit.slidingWindow(limit, `${windowMs} ms`), { ephemeralCache: false }),
};

// Whether a subject refuses at all: one that does not is fast, and does not limit.
export async function check(name, make) {
  const ask = make(5, 60_000, 100);
  const answers = [];
  for (let i = 0; i < 7; i++) answers.push(await ask('a'));
  answers.push(await ask('b'));
  const wanted = [true, true, true, true, true, false, false, true];
  if (`${answers}` !== `${wanted}`) throw new Error(`${name} with a limit of 5 answers ${answers}, not ${wanted}.`);
}
