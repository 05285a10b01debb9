// hono-rate-limiter's own tests, as claims about `leapgate/hono` in its place. Their cases are written anew; docs/peers.md has those that are
// not met. Its store has the cases of express-rate-limit's: see there.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Hono } from 'hono';
import { rateLimiter } from 'hono-rate-limiter';
import { leapgate as storeOf } from 'leapgate/store';
import { statusesOf } from './adapters.mjs';
import { testMiddleware } from './peers.mjs';

testMiddleware('hono-rate-limiter', 'hono', {
  answer: ([c], text) => c.text(text, 429),
  read: (c, name) => c.get(name),
  status: (response) => response.status,
});

const MINUTE = 60_000;
const key = () => 'all';
const asking = (app) => () => app.request('/');

test('hono-rate-limiter: its middleware with the store counts, refuses, resets and reads keys', async () => {
  const store = storeOf();
  const app = new Hono().use(rateLimiter({ limit: 2, windowMs: MINUTE, keyGenerator: key, store })).get('/', (c) => c.text('hello'));
  assert.deepEqual(await statusesOf(asking(app), [1, 2, 3]), [200, 200, 429]);
  assert.equal(store.get('all').totalHits, 3);
  store.resetKey('all');
  assert.deepEqual(await statusesOf(asking(app), [1, 2, 3]), [200, 200, 429]);
});
