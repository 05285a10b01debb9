import cluster from 'node:cluster';
import { parentPort, Worker } from 'node:worker_threads';
import { Redis as Upstash } from '@upstash/redis';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import type { LimitResult } from 'leapgate';
import { leapgate } from 'leapgate/fetch';
import { SharedLimiter, type LeaseStore } from 'leapgate/shared';
import { cluster as primary, serve } from 'leapgate/shared/cluster';
import { LeaseStore as DurableStore, durableObject } from 'leapgate/shared/durable-object';
import { MemoryStore } from 'leapgate/shared/memory';
import { redis } from 'leapgate/shared/redis';

const ioredis = new Redis();
const stores: LeaseStore[] = [
  redis(ioredis),
  redis(createClient(), { keyPrefix: 'limits:' }),
  redis(new Upstash({ url: 'http://localhost', token: 'a' })),
  redis((script, keys, args) => ioredis.eval(script, keys.length, ...keys, ...args)),
  new MemoryStore(),
  primary(),
  primary(parentPort),
  serve(cluster),
  serve(new Worker('a.mjs'), new MemoryStore()),
  durableObject({ idFromName: (name: string) => name, get: () => new DurableStore({ storage: {} }) }),
  { lease: async (key: string, request: string) => key + request },
];

const limiter = new SharedLimiter({ id: 'api', limit: 100, windowMs: 60_000, store: stores[0]!, whenDown: 'refuse', timeoutMs: 100 });
const result: LimitResult = await limiter.limit('a', { cost: 2, ctx: { waitUntil: (promise: Promise<unknown>) => void promise } });
const now: LimitResult | null = limiter.limitNow(['a', 1]);
limiter.refund('a');
const { permits, isDown }: { permits: number; isDown: boolean } = limiter.stats();
leapgate({ limiter, ip: 'cloudflare' });
await limiter.close();
void [result, now, permits, isDown];

// @ts-expect-error no store
new SharedLimiter({ id: 'api', limit: 100, windowMs: 60_000 });
// @ts-expect-error no such way
new SharedLimiter({ id: 'api', limit: 100, windowMs: 60_000, store: stores[0]!, whenDown: 'open' });
// @ts-expect-error a shared limiter keeps nothing to look at
limiter.peek('a');
// @ts-expect-error not a client
redis(5);
