// Limits that several processes share, over one Redis: each is made from where the store is and a limit in a window, and returns
// whether a request with a key passes.
import { Ratelimit } from '@upstash/ratelimit';
import { Redis as Upstash } from '@upstash/redis';
import Redis from 'ioredis';
import { RedisStore } from 'rate-limit-redis';
import { RateLimiterRedis } from 'rate-limiter-flexible';
import { SharedLimiter } from 'leapgate/shared';
import { redis } from 'leapgate/shared/redis';

const connect = ({ redisPort }) => new Redis({ host: '127.0.0.1', port: redisPort });

const flexible = (more) => (at, limit, windowMs) => {
  const limiter = new RateLimiterRedis({ storeClient: connect(at), points: limit, duration: windowMs / 1000, ...more?.(limit, windowMs) });
  return (key) =>
    limiter.consume(key).then(
      () => true,
      (refusal) => {
        if (refusal instanceof Error) throw refusal;
        return false;
      },
    );
};

export const SUBJECTS = {
  leapgate: (at, limit, windowMs, sampleCount) => {
    const limiter = new SharedLimiter({ id: 'bench', limit, windowMs, sampleCount, whenDown: 'refuse', store: redis(connect(at)) });
    return async (key) => (await limiter.limit(key)).success;
  },
  'rate-limiter-flexible': flexible(),
  'rate-limiter-flexible, with its cache of refusals': flexible((limit) => ({ inMemoryBlockOnConsumed: limit })),
  'rate-limit-redis': (at, limit, windowMs) => {
    const client = connect(at);
    const store = new RedisStore({ sendCommand: (command, ...args) => client.call(command, ...args) });
    store.init({ windowMs });
    return async (key) => (await store.increment(key)).totalHits <= limit;
  },
  '@upstash/ratelimit, sliding': (at, limit, windowMs) => {
    const redis = new Upstash({ url: `http://127.0.0.1:${at.restPort}`, token: 'bench', responseEncoding: false });
    const ratelimit = new Ratelimit({ redis, limiter: Ratelimit.slidingWindow(limit, `${windowMs} ms`), timeout: 0, analytics: false });
    return async (key) => {
      const { success, pending } = await ratelimit.limit(key);
      await pending;
      return success;
    };
  },
};
