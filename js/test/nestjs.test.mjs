// The storage for @nestjs/throttler: what its guard reads, and a Nest application.

import 'reflect-metadata';
import assert from 'node:assert/strict';
import test, { after } from 'node:test';
import { Controller, Get, Module } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { SkipThrottle, Throttle, ThrottlerGuard, ThrottlerModule } from '@nestjs/throttler';
import { leapgate } from 'leapgate/nestjs';
import { assertHeld, flood, get, stepClock, warningsOf } from './http.mjs';

const MINUTE = 60_000;

// An application with a guard for all routes: `/`, `/login` with a limit of 1, and `/health` without one.
async function serve(options, seen = () => {}) {
  class Cats {
    all() {
      seen();
      return 'hello';
    }
    login() {
      return 'welcome';
    }
    health() {
      return 'fine';
    }
  }
  Controller()(Cats);
  const decorate = (name, ...decorators) =>
    decorators.forEach((decorator) => decorator(Cats.prototype, name, Object.getOwnPropertyDescriptor(Cats.prototype, name)));
  decorate('all', Get('/'));
  decorate('login', Get('/login'), Throttle({ default: { limit: 1, ttl: MINUTE } }));
  decorate('health', Get('/health'), SkipThrottle());
  class App {}
  Module({ imports: [ThrottlerModule.forRoot(options)], controllers: [Cats], providers: [{ provide: APP_GUARD, useClass: ThrottlerGuard }] })(App);
  const app = await NestFactory.create(App, { logger: false });
  app.enableShutdownHooks([]);
  await app.listen(0, '127.0.0.1');
  after(() => app.close());
  return { app, url: `http://127.0.0.1:${app.getHttpServer().address().port}` };
}

test('nestjs: never admits more than the limit in any window, and not less in the long run', async () => {
  const clock = stepClock();
  const limits = { limit: 20, windowMs: 100 };
  const storage = leapgate({ now: clock.now });
  const throttler = { limit: 20, ttl: 100, blockDuration: 0, getTracker: () => String(clock.step() && 'all') };
  const { url } = await serve({ throttlers: [throttler], storage }, () => clock.admit());
  assertHeld(clock, await flood(() => get(url), 600), limits);
});

test('nestjs: the guard tells the limit, what is left of it, and when to try again', async () => {
  const { url } = await serve({ throttlers: [{ limit: 2, ttl: MINUTE }], storage: leapgate({ now: () => 0 }) });
  const seen = [];
  for (let i = 0; i < 3; i++) {
    const { status, headers } = await get(url);
    seen.push([status, ...['limit', 'remaining', 'reset'].map((name) => headers[`x-ratelimit-${name}`]), headers['retry-after']]);
  }
  assert.deepEqual(seen, [
    [200, '2', '1', '63', undefined],
    [200, '2', '0', '63', undefined],
    [429, undefined, undefined, undefined, '63'],
  ]);
});

test('nestjs: a route may have a limit of its own, or none', async () => {
  const { url } = await serve({ throttlers: [{ limit: 2, ttl: MINUTE }], storage: leapgate() });
  const statuses = [];
  for (const path of ['', 'login', 'login', '', '', 'health']) statuses.push((await get(`${url}/${path}`)).status);
  assert.deepEqual(statuses, [200, 200, 429, 200, 429, 200]);
});

test('nestjs: several throttlers count separately', async () => {
  let ms = 0;
  const throttlers = [
    { name: 'short', limit: 1, ttl: 1000, blockDuration: 0 },
    { name: 'long', limit: 3, ttl: MINUTE, blockDuration: 0 },
  ];
  const { url } = await serve({ throttlers, storage: leapgate({ now: () => ms }) });
  const seen = [];
  for (ms of [0, 0, 2000, 4000, 6000]) {
    const { status, headers } = await get(url);
    seen.push([status, headers['retry-after-short'], headers['retry-after-long']]);
  }
  const passed = [200, undefined, undefined];
  assert.deepEqual(seen, [passed, [429, '2', undefined], passed, passed, [429, undefined, '57']]);
});

test('nestjs: an application that shuts down frees the storage', async () => {
  const storage = leapgate();
  const { app, url } = await serve({ throttlers: [{ limit: 2, ttl: MINUTE }], storage });
  await get(url);
  await app.close();
  await assert.rejects(storage.increment('a', MINUTE, 1, 0, 'default'), {
    code: 'ERR_LEAPGATE_FREED',
    message: 'storage: it has been shut down; make another one, or shut it down later',
  });
});

// A storage on a clock, and what it answers for a key at an instant.
function at(options) {
  const clock = { ms: 0 };
  const storage = leapgate({ now: () => clock.ms, ...options });
  const ask = async (ms, { key = 'a', ttl = 1000, limit = 2, block = 0, name = 'default' } = {}) => {
    clock.ms = ms;
    const { totalHits, timeToExpire, isBlocked, timeToBlockExpire } = await storage.increment(key, ttl, limit, block, name);
    return [totalHits, timeToExpire, isBlocked, timeToBlockExpire];
  };
  return { storage, ask };
}

test('nestjs: without a block, a key passes as soon as its window has room', async () => {
  const { ask } = at();
  assert.deepEqual(await ask(0), [1, 2, false, 0]);
  assert.deepEqual(await ask(500), [2, 1, false, 0]);
  assert.deepEqual(await ask(501), [3, 1, true, 1]);
  assert.deepEqual(await ask(1049), [3, 1, true, 1]);
  assert.deepEqual(await ask(1050), [2, 1, false, 0], 'the first has left the window');
});

test('nestjs: a refusal blocks a key for `blockDuration`, which further refusals do not extend', async () => {
  const { ask } = at();
  const block = 10_000;
  for (const ms of [0, 0]) await ask(ms, { block });
  assert.deepEqual(await ask(500, { block }), [3, 10, true, 10]);
  assert.deepEqual(await ask(5000, { block }), [3, 6, true, 6]);
  assert.deepEqual(await ask(10_499, { block }), [3, 1, true, 1]);
  assert.deepEqual(await ask(10_500, { block }), [1, 2, false, 0]);
  assert.deepEqual(await ask(10_500, { block, key: 'b' }), [1, 2, false, 0]);
});

test('nestjs: a block that is shorter than its window lets no more than the limit into it', async () => {
  const { ask } = at();
  const block = 100;
  for (const ms of [0, 0]) await ask(ms, { block });
  assert.deepEqual(await ask(500, { block }), [3, 1, true, 1]);
  for (const ms of [600, 700, 1049]) assert.equal((await ask(ms, { block }))[2], true, `${ms}`);
  assert.equal((await ask(1050, { block }))[2], false);
});

test('nestjs: who waits as long as a refusal says passes, whatever the block', async () => {
  for (const block of [0, 100, 1000, 3000]) {
    const { ask } = at();
    for (const ms of [900, 940]) await ask(ms, { block });
    const [, , isBlocked, seconds] = await ask(990, { block });
    assert.equal(isBlocked, true);
    assert.equal((await ask(990 + seconds * 1000, { block }))[2], false, `${block}`);
  }
});

test('nestjs: the limit of a key may change, and its hits stay', async () => {
  const { ask } = at();
  for (const ms of [0, 0]) await ask(ms);
  assert.deepEqual((await ask(0))[2], true);
  assert.deepEqual(await ask(0, { limit: 5 }), [3, 2, false, 0]);
});

test('nestjs: throttlers and windows count separately', async () => {
  const { ask } = at();
  for (const other of [{}, { name: 'other' }, { ttl: 2000 }]) {
    assert.deepEqual([(await ask(0, { limit: 1, ...other }))[2], (await ask(0, { limit: 1, ...other }))[2]], [false, true]);
  }
});

test('nestjs: a limit of 0 refuses all, and says the length of the window', async () => {
  assert.deepEqual(await at().ask(0, { limit: 0 }), [1, 1, true, 1]);
  assert.deepEqual(await at().ask(0, { limit: 0, block: 5000 }), [1, 5, true, 5]);
});

test('nestjs: in shadow mode, refusals pass and are reported', async () => {
  const reports = [];
  const { ask } = at({ mode: 'shadow', onRefused: ({ result }) => void reports.push(result.shadowBlocked) });
  for (const hits of [1, 2, 2]) assert.deepEqual((await ask(0, { block: 9000 })).slice(0, 3), [hits, 2, false]);
  assert.deepEqual(reports, [true]);
});

test('nestjs: a limit of Infinity counts nothing', async () => {
  const { ask } = at();
  for (let i = 0; i < 3; i++) assert.deepEqual(await ask(0, { limit: Infinity }), [0, 0, false, 0]);
  assert.deepEqual(await ask(0, { limit: 2 }), [1, 2, false, 0]);
});

test('nestjs: there are at most 64 windows', async () => {
  const { ask } = at();
  for (let ttl = 1000; ttl < 1064; ttl++) await ask(0, { ttl });
  await assert.rejects(ask(0, { ttl: 2000 }), {
    code: 'ERR_LEAPGATE_FULL',
    message: 'storage: `ttl` has had 64 values, and each is a window of its own; use fewer, or a `limit` that varies instead',
  });
  assert.equal((await ask(0, { ttl: 1063 }))[0], 2, 'those that are there stay');
});

test('nestjs: where too many keys are blocked, their windows still refuse them', async () => {
  const { ask } = at({ maxKeys: 2 });
  for (const key of ['a', 'b', 'c']) {
    assert.equal((await ask(0, { key, limit: 1, block: 9000 }))[2], false);
    assert.equal((await ask(0, { key, limit: 1, block: 9000 }))[2], true);
  }
  assert.deepEqual(await ask(0, { key: 'c', limit: 1, block: 9000 }), [2, 2, true, 2]);
});

test('nestjs: refusals are reported, sampled; a failing report is a warning', async () => {
  const reports = [];
  const { ask } = at({ onRefused: ({ key, result, suppressed }) => void reports.push([key, result.rule, suppressed]) });
  for (const key of ['a', 'b']) for (let i = 0; i < 5; i++) await ask(0, { key });
  assert.deepEqual(reports, [['a', '1s', 0], ['b', '1s', 2]]);
  const failing = at({ onRefused: () => Promise.reject(new Error('no log')) });
  const warnings = await warningsOf(() => failing.ask(0, { limit: 0 }));
  assert.deepEqual(warnings, [{ code: 'LEAPGATE_ON_REFUSED', message: 'leapgate: `onRefused` has thrown: no log' }]);
});

for (const [what, call, error] of [
  [
    'an option',
    () => leapgate({ limit: 5 }),
    { code: 'ERR_LEAPGATE_OPTIONS', message: 'options.limit: `5` means nothing here; use one of `window`, `maxKeys`, `onRefused`, `mode`, `clock`, `now`' },
  ],
  ['no options', () => leapgate(5), { message: 'options: `5` is not an object; use one, as in `{ maxKeys: 10_000 }`, or leave it out' }],
  ['a setting', () => leapgate({ maxKeys: 0 }), { code: 'ERR_LEAPGATE_OPTIONS' }],
]) {
  test(`nestjs: ${what} is wrong`, () => assert.throws(call, error));
}

test('nestjs: a wrong throttler is an error of its requests', async () => {
  for (const ttl of [0, -1, 0.5, Infinity, '1000']) {
    const message = `ttl: \`${ttl}\` is not a valid window; use whole milliseconds from 1`;
    await assert.rejects(at().ask(0, { ttl }), { message });
  }
  await assert.rejects(at().ask(0, { limit: -1 }), {
    message: 'options.limit: `-1` is not a valid count; use a number from 0 to 9007199254740992',
  });
});
