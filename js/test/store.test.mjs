import assert from 'node:assert/strict';
import http from 'node:http';
import test from 'node:test';
import { createAdaptorServer } from '@hono/node-server';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { slowDown } from 'express-slow-down';
import { Hono } from 'hono';
import { rateLimiter } from 'hono-rate-limiter';
import { leapgate } from 'leapgate/store';
import { assertHeld, flood, get, listen, mostInAny, stepClock } from './http.mjs';

// Each middleware, with `options`, before a handler that answers with the status in the path, or 200.
const middlewares = {
  'express-rate-limit': (options, seen = () => {}) => {
    const app = express();
    app.use(rateLimit({ legacyHeaders: false, standardHeaders: 'draft-7', keyGenerator: () => 'all', ...options }));
    app.use((request, response) => {
      seen();
      response.status(Number(request.path.slice(1)) || 200).end();
    });
    return listen(http.createServer(app));
  },
  'hono-rate-limiter': (options, seen = () => {}) => {
    const app = new Hono();
    app.use(rateLimiter({ standardHeaders: 'draft-7', keyGenerator: () => 'all', ...options }));
    app.get('*', (c) => {
      seen();
      return c.body(null, Number(c.req.path.slice(1)) || 200);
    });
    return listen(createAdaptorServer({ fetch: app.fetch }));
  },
};

async function statusesOf(url, paths) {
  const statuses = [];
  for (const path of paths) statuses.push((await get(url + path)).status);
  return statuses;
}

for (const [name, serve] of Object.entries(middlewares)) {
  test(`${name}: never admits more than the limit in any window`, async () => {
    const clock = stepClock();
    const limits = { limit: 20, windowMs: 100 };
    const store = leapgate({ now: clock.now });
    const url = await serve({ ...limits, store, keyGenerator: () => (clock.step(), 'all') }, clock.admit);
    assertHeld(clock, await flood(() => get(url), 600), limits);
  });

  test(`${name}: a refused request is not charged`, async () => {
    // Two requests for each one that may pass: a client that is charged for refusals never passes again.
    const clock = stepClock(25);
    const url = await serve(
      { limit: 2, windowMs: 100, store: leapgate({ now: clock.now }), keyGenerator: () => (clock.step(), 'all') },
      clock.admit,
    );
    await flood(() => get(url), 200, 1);
    assert.ok(mostInAny(100, clock.admitted) <= 2);
    assert.ok(clock.admitted.length >= 2 * Math.floor(clock.ms / 125), `${clock.admitted.length}`);
  });

  test(`${name}: the headers have the passes left`, async () => {
    const url = await serve({ limit: 2, windowMs: 60_000, store: leapgate({ now: () => 0 }) });
    const seen = [];
    for (let i = 0; i < 3; i++) {
      const { status, headers } = await get(url);
      seen.push([status, headers.ratelimit.replace(/, reset=.*/, ''), headers['retry-after'] !== undefined]);
    }
    assert.deepEqual(seen, [
      [200, 'limit=2, remaining=1', false],
      [200, 'limit=2, remaining=0', false],
      [429, 'limit=2, remaining=0', true],
    ]);
  });

  for (const [skips, path, charged] of [
    ['skipFailedRequests', '/404', '/200'],
    ['skipSuccessfulRequests', '/200', '/404'],
  ]) {
    const asked = Number(charged.slice(1));
    test(`${name}: ${skips} refunds a passed request`, async () => {
      const url = await serve({ limit: 2, windowMs: 60_000, store: leapgate(), [skips]: true });
      const statuses = await statusesOf(url, [path, path, path, charged, path, path, charged, path]);
      const passed = Number(path.slice(1));
      assert.deepEqual(statuses, [passed, passed, passed, asked, passed, passed, asked, 429]);
    });

    test(`${name}: ${skips} refunds nothing for a refused request`, async () => {
      const url = await serve({ limit: 2, windowMs: 60_000, store: leapgate(), [skips]: true });
      const statuses = await statusesOf(url, Array(8).fill(charged));
      assert.deepEqual(statuses, [asked, asked, ...Array(6).fill(429)]);
    });

    test(`${name}: ${skips} still refunds after a refusal`, async () => {
      const clock = stepClock(0);
      const url = await serve({ limit: 2, windowMs: 60_000, store: leapgate({ now: clock.now }), [skips]: true });
      await statusesOf(url, [charged, charged, charged, charged, charged]);
      clock.ms = 70_000;
      const passed = Number(path.slice(1));
      assert.deepEqual(await statusesOf(url, [path, path, path, path, charged, path]), [
        passed,
        passed,
        passed,
        passed,
        asked,
        passed,
      ]);
    });
  }

  test(`${name}: a limit of 0 refuses all requests`, async () => {
    const url = await serve({ limit: 0, windowMs: 60_000, store: leapgate() });
    assert.deepEqual(await statusesOf(url, ['/', '/']), [429, 429]);
  });
}

test('express-slow-down: all hits are counted, and each further delayed one waits longer', async () => {
  const clock = stepClock(0);
  const delays = [];
  const app = express();
  const delayMs = (used) => (delays.push(used), 0);
  const store = leapgate({ now: clock.now });
  app.use(slowDown({ windowMs: 60_000, delayAfter: 1, delayMs, store, keyGenerator: (request) => request.path }));
  app.use((request, response) => response.json([request.slowDown.used, request.slowDown.remaining]));
  const url = await listen(http.createServer(app));
  const hits = [];
  for (const path of ['/a', '/a', '/a', '/a', '/b']) hits.push(JSON.parse((await get(url + path)).body));
  assert.deepEqual(hits, [[1, 0], [2, 0], [3, 0], [4, 0], [1, 0]]);
  assert.deepEqual(delays, [2, 3, 4], 'the first hit of each is not delayed');
  clock.ms = 70_000;
  assert.deepEqual(JSON.parse((await get(`${url}/a`)).body), [1, 0], 'when its window has passed');
});

test('express-slow-down: skipFailedRequests refunds a hit', async () => {
  const app = express();
  const used = [];
  app.use(slowDown({ windowMs: 60_000, delayAfter: 1, delayMs: 0, store: leapgate(), skipFailedRequests: true }));
  app.use((request, response) => {
    used.push(request.slowDown.used);
    response.status(Number(request.path.slice(1))).end();
  });
  const url = await listen(http.createServer(app));
  await statusesOf(url, ['/200', '/404', '/404', '/200', '/200']);
  assert.deepEqual(used, [1, 2, 2, 2, 3]);
});

const opened = (options) => {
  const store = leapgate(options);
  store.init({ limit: 3, windowMs: 1000 });
  return store;
};

test('store: the oldest charge is refunded, so that never more pass', () => {
  for (const window of ['strict', 'sentinel', 'weighted']) {
    let ms = 0;
    const store = opened({ window, now: () => ms });
    for (ms of [0, 300, 600]) store.increment('a');
    ms = 700;
    store.decrement('a');
    assert.equal(store.get('a').totalHits, 2, window);
    // The charges at 300 and 600 count.
    ms = 1200;
    assert.equal(store.get('a').totalHits, 2, window);
    ms = 1400;
    assert.equal(store.get('a').totalHits, 1, window);
    store.decrement('a');
    store.decrement('a');
    assert.equal(store.get('a'), undefined, window);
  }
});

test('store: of two neighbouring buckets, the older is refunded', () => {
  for (const [window, left] of [
    ['strict', 1100],
    ['sentinel', 1050],
  ]) {
    let ms = 0;
    const store = opened({ window, now: () => ms });
    for (ms of [0, 50]) store.increment('a');
    ms = 60;
    store.decrement('a');
    ms = left - 1;
    assert.equal(store.get('a')?.totalHits, 1, window);
    ms = left;
    assert.equal(store.get('a'), undefined, window);
  }
});

test('store: keys are read, reset, and all reset at once', () => {
  const store = opened();
  assert.equal(store.get('a'), undefined);
  for (const key of ['a', 'a', 'b', 'c']) store.increment(key);
  assert.deepEqual(
    ['a', 'b', 'c'].map((key) => store.get(key)?.totalHits),
    [2, 1, 1],
  );
  store.resetKey('a');
  assert.deepEqual(
    ['a', 'b', 'c'].map((key) => store.get(key)?.totalHits),
    [undefined, 1, 1],
  );
  store.resetAll();
  assert.deepEqual(
    ['a', 'b', 'c'].map((key) => store.get(key)?.totalHits),
    [undefined, undefined, undefined],
  );
});

test('store: a refusal has one hit more than the limit', () => {
  const store = opened();
  assert.deepEqual(
    [1, 2, 3, 4, 5].map(() => store.increment('a').totalHits),
    [1, 2, 3, 4, 4],
  );
});

test('store: with a limit of 0 each hit is counted, and exceeds it', () => {
  const store = leapgate();
  store.init({ limit: 0, windowMs: 1000 });
  assert.deepEqual(
    [1, 2, 3].map(() => store.increment('a').totalHits),
    [1, 2, 3],
  );
  store.decrement('a');
  assert.deepEqual([store.get('a').totalHits, store.get('b')], [2, undefined]);
});

test('store: after shutdown its memory is freed, and a call is an error', () => {
  const store = opened();
  store.increment('a');
  store.shutdown();
  store.shutdown();
  const message = 'store: it has been shut down; make another one, or shut it down later';
  for (const use of [() => store.increment('a'), () => store.get('a'), () => store.resetAll()]) {
    assert.throws(use, { code: 'ERR_LEAPGATE_FREED', message });
  }
  const unused = leapgate();
  unused.shutdown();
  assert.throws(() => unused.increment('a'), { message });
});

test('store: `resetTime` is of today, whatever its clock: middlewares compare it with `Date.now()`', (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 5_000_000 });
  const store = opened({ now: () => 0 });
  assert.deepEqual(store.increment('a').resetTime, new Date(5_001_000));
  for (let i = 0; i < 3; i++) store.increment('a');
  assert.deepEqual([store.increment('a').resetTime, store.get('a').resetTime], [new Date(5_001_000), new Date(5_001_000)]);
});

test('store: refusals are reported, sampled', () => {
  const reports = [];
  const store = opened({ onRefused: ({ key, result, suppressed }) => void reports.push([key, result.retryAfterMs > 0, suppressed]) });
  for (const key of ['a', 'b']) for (let i = 0; i < 5; i++) store.increment(key);
  assert.deepEqual(reports, [['a', true, 0], ['b', true, 1]]);
  assert.throws(() => leapgate({ onRefused: 'log' }), {
    code: 'ERR_LEAPGATE_OPTIONS',
    message: 'options.onRefused: `log` is not a function; use one that reports a refusal, as in `({ key, result, suppressed }) => …`',
  });
});

test('store: refusals that are never decremented take bounded memory', () => {
  const store = leapgate();
  store.init({ limit: 1, windowMs: 60_000, skipFailedRequests: true });
  const refuse = (key) => [store.increment(key), store.increment(key)];
  refuse('first');
  for (let key = 0; key < 10_000; key++) refuse(`${key}`);
  // The store has forgotten the refusal of this key, and remembers the latest ones.
  store.decrement('first');
  store.decrement('9999');
  assert.deepEqual([store.get('first'), store.get('9999').totalHits], [undefined, 2]);
});

for (const [name, call, message] of [
  ['the limit', () => leapgate({ limit: 5 }), 'options.limit: `5` is for the middleware to say; move it there'],
  [
    'an option',
    () => leapgate({ windows: 'strict' }),
    'options.windows: `strict` means nothing here; use one of `window`, `sampleCount`, `maxKeys`, `onRefused`, `mode`, `clock`, `now`',
  ],
  ['no options', () => leapgate(5), "options: `5` is not an object; use one, as in `{ window: 'weighted' }`, or leave it out"],
  [
    'no middleware',
    () => leapgate().increment('a'),
    'store: no middleware has said its limit; pass the store to one, as in `rateLimit({ store })`',
  ],
  [
    'two middlewares',
    () => opened().init({ limit: 1, windowMs: 1000 }),
    'store: it has a middleware already, whose windows it keeps; give each middleware a store of its own',
  ],
  [
    'a limit that is a function',
    () => leapgate().init({ limit: () => 5, windowMs: 1000 }),
    'limit: `a function` is asked for each request, and a store does not hear the answer; use a number, or the middleware of leapgate/express or leapgate/hono',
  ],
]) {
  test(`store: ${name} is wrong`, () => assert.throws(call, { message }));
}

test('store: with a wrong limit all requests fail', async () => {
  const logger = { error() {}, warn() {} };
  const url = await middlewares['express-rate-limit']({ limit: () => 5, windowMs: 1000, store: leapgate(), logger });
  assert.deepEqual(await statusesOf(url, ['/']), [500]);
});
