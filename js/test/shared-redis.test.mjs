// Shared limiters over a real Redis, with each client that they take.

import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, test } from 'node:test';
import { Redis as Upstash } from '@upstash/redis';
import IoRedis from 'ioredis';
import IoValkey from 'iovalkey';
import { createClient } from 'redis';
import { createClient as createClient4 } from 'redis4';
import { SharedLimiter } from 'leapgate/shared';
import { redis } from 'leapgate/shared/redis';
import { until, warningsOf } from './http.mjs';
import { redisServer, restBefore } from './redis.mjs';

const server = await redisServer();
const { port } = server;
const plain = new IoRedis({ port, host: '127.0.0.1' });

async function connected(create) {
  const client = create({ socket: { host: '127.0.0.1', port } });
  client.on('error', () => {});
  await client.connect();
  return [client, () => client.disconnect()];
}

const CLIENTS = {
  ioredis: async () => {
    const client = new IoRedis({ port, host: '127.0.0.1' });
    return [client, () => client.disconnect()];
  },
  iovalkey: async () => {
    const client = new IoValkey({ port, host: '127.0.0.1' });
    return [client, () => client.disconnect()];
  },
  'node-redis': () => connected(createClient),
  'node-redis 4': () => connected(createClient4),
  '@upstash/redis': async () => {
    const url = await restBefore(([name, ...args]) => plain.call(name, ...args));
    return [new Upstash({ url, token: 'any', enableTelemetry: false }), () => {}];
  },
  'an object with `eval`': async () => [{ eval: (script, keys, args) => plain.eval(script, keys.length, ...keys, ...args) }, () => {}],
  'a function': async () => [(script, keys, args) => plain.eval(script, keys.length, ...keys, ...args), () => {}],
};

const [LIMIT, WINDOW_MS] = [20, 2000];
const options = (store, more) => ({ id: 'api', limit: LIMIT, windowMs: WINDOW_MS, store, timeoutMs: 5000, ...more });

// A key that is missing in a young server counts as full: it may have been restarted.
async function isOld() {
  for (;;) {
    const [, seconds] = /uptime_in_seconds:(\d+)/.exec(await plain.info('server'));
    if (seconds * 1000 > 1.5 * WINDOW_MS) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
await isOld();

for (const [name, make] of Object.entries(CLIENTS)) {
  test(`${name}: limiters share one count, also when the server does not know the script`, async () => {
    const [client, end] = await make();
    await plain.script('FLUSH');
    const key = `${name} %:é`;
    const limiters = [1, 2, 3].map(() => new SharedLimiter(options(redis(client))));
    const before = performance.now();
    let passed = 0;
    for (let i = 0; i < 3 * LIMIT; i++) {
      const { success, retryAfterMs } = await limiters[i % 3].limit(key);
      passed += success;
      assert.ok(success || retryAfterMs > 0, `${retryAfterMs}`);
    }
    assert.ok(performance.now() - before < WINDOW_MS, 'all of it is in one window');
    // A permit may stay with one of them until its lease ends.
    assert.ok(passed <= LIMIT && passed >= 0.8 * LIMIT, `${passed} of ${LIMIT}`);
    for (const limiter of limiters) assert.deepEqual([limiter.stats().lost, limiter.stats().isDown], [0, false]);
    await Promise.all(limiters.map((limiter) => limiter.close()));
    await end();
  });
}

test('a_key_at_the_server_has_the_prefix_and_ends', async () => {
  await plain.flushall();
  const limiter = new SharedLimiter(options(redis(plain, { keyPrefix: 'limits:' })));
  assert.equal((await limiter.limit(['a:b', 7])).success, true);
  assert.deepEqual(await plain.keys('*'), ['limits:api:2000:20:a%3Ab:7']);
  const left = await plain.pttl('limits:api:2000:20:a%3Ab:7');
  assert.ok(left > 0 && left <= 2 * WINDOW_MS, `${left} ms`);
  await limiter.close();
});

// What an answer repeats of its request.
const echoOf = (request) => {
  const [, seq, node] = request.split('-').map(BigInt);
  return (seq + node) % 2n ** 53n;
};

test('the_hash_of_the_script_is_that_of_the_script', async () => {
  const sent = [];
  const client = {
    defineCommand() {},
    evalsha: async (sha1) => (sent.push(sha1), Promise.reject(new Error('NOSCRIPT No matching script. Please use EVAL.'))),
    eval: async (script, keys, key, request) => (sent.push(createHash('sha1').update(script).digest('hex')), `1-${echoOf(request)}-0-0-5-0-1`),
  };
  const limiter = new SharedLimiter(options(redis(client)));
  assert.equal((await limiter.limit('a')).success, false);
  assert.equal(sent[0], sent[1]);
});

test('what_is_not_a_client_is_refused_with_one_sentence', () => {
  const cure = 'use a client of ioredis, iovalkey, node-redis or @upstash/redis, or a function of the script, its keys and its arguments';
  assert.throws(() => redis({}), { code: 'ERR_LEAPGATE_ARGUMENT', message: `client: \`{…}\` is not a client of Redis; ${cure}` });
  assert.throws(() => redis(undefined), { message: `client: \`undefined\` is not a client of Redis; ${cure}` });
  assert.throws(() => redis(plain, { prefix: 'a' }), { message: 'options.prefix: `a` means nothing here; use `keyPrefix`' });
  assert.throws(() => redis(plain, { keyPrefix: 5 }), { message: 'options.keyPrefix: `5` is not a string; use one' });
});

test('a_server_that_stops_is_warned_of_once_and_used_again_when_it_is_back', async () => {
  const client = new IoRedis({ port, host: '127.0.0.1', maxRetriesPerRequest: 0, retryStrategy: () => 20 });
  client.on('error', () => {});
  const limiter = new SharedLimiter(options(redis(client), { whenDown: 'refuse', timeoutMs: 200 }));
  assert.equal((await limiter.limit('a')).success, true);
  const warnings = await warningsOf(async () => {
    await server.stop();
    for (let i = 0; i < 50; i++) assert.equal((await limiter.limit(`down ${i}`)).success, false);
    assert.equal(limiter.stats().isDown, true);
    await server.start();
    for (const before = Date.now(); limiter.stats().isDown; assert.ok(Date.now() < before + 10_000)) {
      await limiter.limit('back');
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  });
  assert.deepEqual([...new Set(warnings.map(({ code }) => code))], ['LEAPGATE_STORE_DOWN', 'LEAPGATE_STORE_UP']);
  const down = warnings.filter(({ code }) => code === 'LEAPGATE_STORE_DOWN').map(({ message }) => message);
  assert.equal(new Set(down).size, down.length, 'once for each cause');
  assert.match(down[0], /^leapgate: limiter `api`: the store does not answer: .+; until it does, requests are refused$/);
  assert.equal(warnings.at(-1).message, 'leapgate: limiter `api`: the store answers again');
  const { success, retryAfterMs } = await limiter.limit('forgotten');
  assert.deepEqual([success, retryAfterMs > 0 && retryAfterMs < 1.5 * WINDOW_MS], [false, true], 'a server that has forgotten counts as full');
  await limiter.close();
  client.disconnect();
  await isOld();
});

test('a_server_that_hangs_delays_no_request_by_more_than_the_time_out_and_one_count_holds_again_after_it', async () => {
  const limiter = new SharedLimiter(options(redis(plain), { whenDown: 'local', timeoutMs: 100 }));
  assert.equal((await limiter.limit('hang')).success, true);
  server.pause();
  const before = performance.now();
  const results = await Promise.all(Array.from({ length: 50 }, () => limiter.limit('hang')));
  const took = performance.now() - before;
  server.goOn();
  assert.ok(took < 1500, `${took} ms`);
  const passed = results.filter(({ success }) => success).length;
  assert.ok(passed + 1 <= LIMIT && passed > 0, `${passed}`);
  await until(() => (limiter.limitNow('other'), !limiter.stats().isDown), 'the store to be back');
  await limiter.close();
});

after(() => plain.disconnect());
