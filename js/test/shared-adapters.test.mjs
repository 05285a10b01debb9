// Shared limiters before servers, and the Durable Object without its runtime.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { test } from 'node:test';
import { serve } from '@hono/node-server';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { leapgate as forExpress } from 'leapgate/express';
import { leapgate as forFastify } from 'leapgate/fastify';
import { leapgate as forFetch } from 'leapgate/fetch';
import { leapgate as forHono } from 'leapgate/hono';
import { SharedLimiter } from 'leapgate/shared';
import { LeaseStore, durableObject } from 'leapgate/shared/durable-object';
import { MemoryStore } from 'leapgate/shared/memory';
import { get, listen } from './http.mjs';

const LIMIT = 5;
const key = () => 'all';

// Two limiters of one store, which answers later.
function two(limit = LIMIT) {
  const memory = new MemoryStore();
  const store = { lease: async (key, request) => memory.lease(key, request) };
  return [1, 2].map(() => new SharedLimiter({ id: 'api', limit, windowMs: 60_000, store }));
}

const SERVERS = {
  'node:http': (options) => {
    const limited = forExpress(options);
    return createServer((request, response) => limited(request, response, () => response.end('hello')));
  },
  Express: (options) => createServer(express().use(forExpress(options), (request, response) => response.send('hello'))),
  Fastify: async (options) => {
    const app = Fastify();
    await app.register(forFastify, options);
    app.get('/', async () => 'hello');
    await app.ready();
    return app.server;
  },
  Hono: (options) => serve({ fetch: new Hono().use(forHono(options)).get('/', (c) => c.text('hello')).fetch, port: 0, hostname: '127.0.0.1' }),
};

for (const [name, make] of Object.entries(SERVERS)) {
  test(`${name}: two servers hold one limit`, async () => {
    const urls = await Promise.all(two().map(async (limiter) => listen(await make({ limiter, key }))));
    const answers = [];
    for (let i = 0; i < 12; i++) answers.push(await get(urls[i % 2]));
    const statuses = answers.map(({ status }) => status);
    assert.deepEqual([statuses.filter((status) => status === 200).length, statuses.at(-1)], [LIMIT, 429]);
    const { headers } = answers.at(-1);
    assert.ok(headers['retry-after'] > 0 && headers['retry-after'] <= 63, headers['retry-after']);
    assert.equal(headers['ratelimit-policy'], '"api";q=5;w=60');
  });
}

test('fetch: two handlers hold one limit, and calls outlive the response where the runtime has a context', async () => {
  const limited = two().map((limiter) => forFetch({ limiter, key })(() => new Response('hello')));
  const kept = [];
  const ctx = { waitUntil: (promise) => kept.push(promise) };
  const statuses = [];
  for (let i = 0; i < 12; i++) statuses.push((await limited[i % 2](new Request('http://localhost/'), {}, ctx)).status);
  assert.equal(statuses.filter((status) => status === 200).length, LIMIT);
  assert.ok(kept.length > 0 && kept.every((promise) => promise instanceof Promise));
});

test('countIf: a request that does not count gives its permit back, unless the store has heard of it', async () => {
  const [limiter] = two(50);
  const limited = forFetch({ limiter, key, countIf: (request, response) => response.status < 400 });
  const handler = limited(() => new Response('no', { status: 404 }));
  let answered = 0;
  for (let i = 0; i < 500; i++) answered += (await handler(new Request('http://localhost/'))).status === 404;
  assert.ok(answered > 3 * 50, `${answered} of 500`);
});

// The storage of an object, and its alarm.
function storage() {
  const stored = new Map();
  return {
    stored,
    get: async (name) => structuredClone(stored.get(name)),
    put: async (name, value) => void stored.set(name, structuredClone(value)),
    getAlarm: async () => stored.get('alarm') ?? null,
    setAlarm: async (at) => void stored.set('alarm', at),
    deleteAll: async () => stored.clear(),
  };
}

test('Durable Object: another instance of an object knows what the first has leased', async () => {
  const state = { storage: storage() };
  let object = new LeaseStore(state);
  const namespace = { idFromName: (name) => name, get: () => ({ fetch: (url, init) => object.fetch(new Request(url, init)) }) };
  const of = { id: 'api', limit: LIMIT, windowMs: 60_000, store: durableObject(namespace) };
  let passed = 0;
  for (let i = 0; i < 2 * LIMIT; i++) {
    object = new LeaseStore(state);
    passed += (await new SharedLimiter(of).limit('a')).success;
  }
  assert.equal(passed, LIMIT);
});

test('Durable Object: an alarm deletes what is stored when nothing of it counts any more', async (t) => {
  const state = { storage: storage() };
  const object = new LeaseStore(state);
  const ask = async () => (await object.fetch(new Request('http://localhost/', { method: 'POST', body: '1-3-7-0-5-1000-20-50-1-1' }))).text();
  t.mock.timers.enable({ apis: ['Date'], now: 1_800_000_000_000 });
  assert.match(await ask(), /^1-10-\d+-1-0-/);
  const { stored } = state.storage;
  const first = stored.get('alarm');
  assert.ok(first > Date.now() + 1000 && first < Date.now() + 2000, `${first - Date.now()}`);
  t.mock.timers.setTime(first - 500);
  assert.match(await ask(), /^1-10-\d+-1-0-/);
  assert.equal(stored.get('alarm'), first, 'it is set once');
  t.mock.timers.setTime(first);
  await object.alarm();
  assert.ok(stored.has('leases') && stored.get('alarm') > first, 'the second lease counts');
  t.mock.timers.setTime(stored.get('alarm'));
  await object.alarm();
  assert.equal(stored.size, 0);
  assert.match(await ask(), /^1-10-\d+-1-0-/, 'it begins again');
});

test('Durable Object: what is not a request is refused, and is the cause of a warning', async () => {
  const object = new LeaseStore({ storage: storage() });
  const response = await object.fetch(new Request('http://localhost/', { method: 'POST', body: 'nonsense' }));
  assert.deepEqual([response.status, (await response.text()).slice(0, 20)], [400, 'request: `nonsense` ']);
  const store = durableObject({ idFromName: (name) => name, get: () => ({ fetch: async () => new Response('no such class', { status: 500 }) }) });
  await assert.rejects(store.lease('a', 'b'), { message: '500 no such class' });
  assert.throws(() => durableObject(undefined), {
    message: 'namespace: `undefined` is not a namespace of Durable Objects; use the binding of `LeaseStore`, as in `env.LEASES`',
  });
});
