// express-rate-limit's own tests, as claims about `leapgate/express` in its place, and about its middleware with `leapgate/store`. Their
// cases are written anew; docs/peers.md has those that are not met.

import assert from 'node:assert/strict';
import http from 'node:http';
import test from 'node:test';
import express from 'express';
import { rateLimit } from 'express-rate-limit';
import { leapgate } from 'leapgate/express';
import { ipKey } from 'leapgate/http';
import { leapgate as storeOf } from 'leapgate/store';
import { statusesOf } from './adapters.mjs';
import { get, listen, until, visitor, warningsOf } from './http.mjs';
import { testMiddleware } from './peers.mjs';

testMiddleware('express-rate-limit', 'express', {
  answer: ([, response], text) => response.end(text),
  read: (request, name) => request[name],
  status: (response) => response.statusCode,
});

const MINUTE = 60_000;
const key = () => 'all';
const serve = (...handlers) => listen(http.createServer(express().use(...handlers)));

test('express-rate-limit: a client that leaves before the answer can be given back', async () => {
  const countIf = (request, response) => response.writableFinished && response.statusCode < 400;
  const reached = [];
  const limit = leapgate({ limit: 1, windowMs: MINUTE, key, countIf });
  const url = await serve(limit, (request, response) => (request.path === '/slow' ? reached.push(response) : response.end()));
  const gone = await visitor(url, '/slow');
  await until(() => reached.length === 1, 'it is in');
  gone.leave();
  await until(() => reached[0].closed, 'the server notices');
  assert.deepEqual([(await get(url)).status, (await get(url)).status], [200, 429]);
});

test('express-rate-limit: nothing is written after the headers have been sent', async () => {
  const send = (request, response, next) => (response.write('hel'), next());
  const url = await serve(send, leapgate({ limit: 1, windowMs: MINUTE, key }), (_, response) => response.end('lo'));
  const { status, headers, body } = await get(url);
  assert.deepEqual([status, headers.ratelimit, body], [200, undefined, 'hello']);
  assert.equal((await get(url)).body, 'heltoo many requests');
});

test('express-rate-limit: a request of a proxy that is not trusted warns, by either header', async () => {
  for (const headers of [{ 'X-Forwarded-For': '192.0.2.1' }, { Forwarded: 'for=192.0.2.1' }]) {
    const url = await serve(leapgate({ limit: 1, windowMs: MINUTE }), (_, response) => response.end());
    const [{ code }] = await warningsOf(() => get(url, { headers }));
    assert.equal(code, 'LEAPGATE_PROXY');
  }
});

test('express-rate-limit: an unknown option is refused', () => {
  assert.throws(() => leapgate({ limit: 1, windowMS: 1000 }), { code: 'ERR_LEAPGATE_OPTIONS' });
});

test('express-rate-limit: the key of an address', () => {
  for (const [address, expected] of [
    ['1.2.3.4', '1.2.3.4'],
    ['::ffff:1.2.3.4', '1.2.3.4'],
    ['::ffff:102:304', '1.2.3.4'],
    ['::1', '::/56'],
    ['0123:4567:89ab:cdef:0123:4567:89ab:cdef', '123:4567:89ab:cd00::/56'],
    ['123:ABC::89', '123:abc::/56'],
  ]) {
    assert.equal(ipKey(address, { v6: 56 }), expected);
  }
  assert.equal(ipKey('0123:4567:89ab:cdef:0123:4567:89ab:cdef', { v6: 128 }), '123:4567:89ab:cdef:123:4567:89ab:cdef');
  assert.throws(() => ipKey('badip'), { code: 'ERR_LEAPGATE_IP' });
});

const opened = (options, theirs) => {
  const store = storeOf(options);
  store.init({ limit: 5, windowMs: 1000, ...theirs });
  return store;
};

test('express-rate-limit: a store counts each key, and tells when its window ends', () => {
  const store = opened();
  const before = Date.now();
  const { totalHits, resetTime } = store.increment('a');
  assert.equal(totalHits, 1);
  assert.ok(resetTime >= before + 1000 && resetTime <= Date.now() + 1000);
  assert.deepEqual([store.increment('a').totalHits, store.increment('b').totalHits, store.get('a').totalHits], [2, 1, 2]);
});

test('express-rate-limit: a store takes back hits, and never below none', () => {
  const store = opened();
  store.increment('a');
  store.increment('a');
  for (let i = 0; i < 3; i++) store.decrement('a');
  assert.equal(store.increment('a').totalHits, 1);
});

test('express-rate-limit: a store resets a key, and all keys', () => {
  const store = opened();
  for (const name of ['a', 'b']) store.increment(name);
  store.resetKey('a');
  assert.deepEqual([store.get('a'), store.get('b').totalHits], [undefined, 1]);
  store.resetAll();
  assert.equal(store.get('b'), undefined);
});

test('express-rate-limit: a store forgets hits when their window has passed, without a timer', () => {
  let ms = 0;
  const store = opened({ now: () => ms });
  store.increment('a');
  ms = 1050;
  assert.equal(store.increment('a').totalHits, 1);
  assert.deepEqual(process.getActiveResourcesInfo().filter((name) => name === 'Timeout'), []);
});

test('express-rate-limit: its middleware with the store counts, refuses, resets and reads keys', async () => {
  const limiter = rateLimit({ limit: 2, windowMs: MINUTE, keyGenerator: key, store: storeOf() });
  const url = await serve(limiter, (_, response) => response.end());
  const statuses = () => statusesOf(() => get(url), [1, 2, 3]);
  assert.deepEqual(await statuses(), [200, 200, 429]);
  assert.equal((await limiter.getKey('all')).totalHits, 3);
  limiter.resetKey('all');
  assert.deepEqual(await statuses(), [200, 200, 429]);
});

test('express-rate-limit: a request that outlives its window is not given back to the next one', async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: 5000 });
  const answers = [];
  const store = storeOf({ now: () => Date.now() });
  const limiter = rateLimit({ limit: 2, windowMs: 1000, keyGenerator: key, store, skipSuccessfulRequests: true });
  const url = await serve(limiter, (_, response) => answers.push(response));
  const slow = get(url);
  await until(() => answers.length === 1, 'it is in');
  t.mock.timers.tick(1050);
  store.increment('all');
  answers[0].end();
  await slow;
  assert.equal(store.get('all')?.totalHits, 1);
});

test('express-rate-limit: a store that two limiters share is refused, and one without a limiter', () => {
  const store = opened();
  assert.throws(() => store.init({ limit: 1, windowMs: 1000 }), { code: 'ERR_LEAPGATE_OPTIONS' });
  assert.throws(() => storeOf().increment('a'), { code: 'ERR_LEAPGATE_NOT_READY' });
});
