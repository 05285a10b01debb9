import assert from 'node:assert/strict';
import test from 'node:test';
import { createAdaptorServer } from '@hono/node-server';
import { getConnInfo } from '@hono/node-server/conninfo';
import { Hono } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { Limiter } from 'leapgate';
import { leapgate } from 'leapgate/hono';
import { assertHeld, flood, get, listen, stepClock, warningsOf } from './http.mjs';

const MINUTE = 60_000;
const serve = (app) => listen(createAdaptorServer({ fetch: app.fetch }));

async function statusesOf(app, paths, init) {
  const statuses = [];
  for (const path of paths) statuses.push((await app.request(path, init)).status);
  return statuses;
}

test('hono: never admits more than the limit in any window', async () => {
  const clock = stepClock();
  const limits = { limit: 20, windowMs: 100 };
  const app = new Hono();
  app.use(leapgate({ ...limits, key: () => (clock.step(), 'all'), now: clock.now }));
  app.get('/', (c) => {
    clock.admit();
    return c.text('hello');
  });
  const url = await serve(app);
  assertHeld(clock, await flood(() => get(url), 600), limits);
});

test('hono: a passed response has the limit, and a refusal the time to try again', async () => {
  const seen = [];
  const app = new Hono();
  app.use(leapgate({ limit: 1, windowMs: MINUTE, now: () => 0, getConnInfo, reply: { format: 'json' } }));
  app.get('/', (c) => {
    seen.push(c.get('rateLimit').remaining);
    c.header('X-Mine', 'kept');
    return c.text('hello');
  });
  const url = await serve(app);
  const passed = await get(url);
  assert.deepEqual(
    [passed.status, passed.body, passed.headers.ratelimit, passed.headers['x-mine']],
    [200, 'hello', '"60s";r=0;t=63', 'kept'],
  );
  const refused = await get(url);
  assert.deepEqual([refused.status, refused.headers.ratelimit, refused.headers['retry-after']], [429, '"60s";r=0;t=63', '63']);
  assert.equal(refused.headers['content-type'], 'application/json');
  assert.deepEqual(JSON.parse(refused.body), { status: 429, error: 'too many requests', rule: '60s', retryAfterSeconds: 63 });
  assert.deepEqual(seen, [0], 'a refused request reaches no handler');
});

test('hono: limits by the address from getConnInfo', async () => {
  const client = (address) => ({ remote: { address } });
  const app = new Hono();
  const addresses = ['192.0.2.1', '2001:db8::1', '192.0.2.1', '2001:db8::2', undefined, undefined];
  app.use(leapgate({ limit: 1, windowMs: MINUTE, getConnInfo: () => client(addresses.shift()) }));
  const warnings = await warningsOf(async () => {
    assert.deepEqual(await statusesOf(app, Array(6).fill('/')), [404, 404, 429, 429, 404, 429]);
  });
  const message =
    "leapgate: `undefined` is not a client's address, and all clients without one share their limit; look at `getConnInfo`, or pass `key`";
  assert.deepEqual(warnings, [{ code: 'LEAPGATE_ADDRESS', message }]);
});

test('hono: a path may have a limit of its own', async () => {
  const app = new Hono();
  const limit = () => leapgate({ limit: 1, windowMs: MINUTE, key: () => 'all' });
  app.use('/a/*', limit());
  app.get('/b', limit(), (c) => c.text('b'));
  app.get('/a/1', (c) => c.text('a'));
  assert.deepEqual(await statusesOf(app, ['/a/1', '/b', '/a/2', '/b', '/c', '/c']), [200, 200, 429, 429, 404, 404]);
});

test('hono: skips requests, and refunds requests that do not count', async () => {
  const app = new Hono();
  app.use(
    leapgate({
      limit: 1,
      windowMs: MINUTE,
      key: async () => 'all',
      skip: (c) => c.req.path === '/health',
      countIf: (c, response) => response.status < 400,
    }),
  );
  app.get('/', (c) => c.text('hello'));
  app.get('/health', (c) => c.text('fine'));
  app.get('/fails', () => {
    throw new HTTPException(401);
  });
  const paths = ['/health', '/missing', '/fails', '/missing', '/', '/missing', '/', '/health'];
  assert.deepEqual(await statusesOf(app, paths), [200, 404, 401, 404, 200, 429, 429, 200]);
});

test('hono: an immutable response gets the headers in a copy', async () => {
  const app = new Hono();
  const limiter = new Limiter({ limit: 5, windowMs: MINUTE, now: () => 0 });
  app.use(leapgate({ limiter, key: () => 'all' }));
  const frozen = await fetch('data:text/plain,hello');
  assert.throws(() => frozen.headers.set('a', 'b'));
  app.get('/', () => frozen);
  const response = await app.request('/');
  assert.deepEqual([response.status, await response.text(), response.headers.get('ratelimit')], [200, 'hello', '"60s";r=4;t=63']);
  assert.equal(response.headers.get('content-type'), 'text/plain');
});

test('hono: a function may answer instead', async () => {
  const app = new Hono();
  app.use(
    leapgate({
      limit: 0,
      windowMs: MINUTE,
      key: () => 'all',
      reply: (c, result) => c.json({ path: c.req.path, rule: result.rule }, 420),
    }),
  );
  const refused = await app.request('/x');
  assert.deepEqual([refused.status, await refused.json()], [420, { path: '/x', rule: '60s' }]);
  assert.equal(refused.headers.get('content-type'), 'application/json');
  assert.equal(refused.headers.get('ratelimit-policy'), '"60s";q=0;w=60');
});

test('hono: a key that fails is an error of the request', async () => {
  const app = new Hono();
  app.onError((error, c) => c.text(error.message, 500));
  app.use(
    leapgate({
      limit: 1,
      windowMs: MINUTE,
      key: () => {
        throw new Error('no key');
      },
    }),
  );
  const response = await app.request('/');
  assert.deepEqual([response.status, await response.text()], [500, 'no key']);
});

for (const [options, message] of [
  [
    { limit: 1, windowMs: 1000 },
    "options.getConnInfo: nothing says whom to limit; use that of your runtime, as from 'hono/cloudflare-workers', or pass `key`",
  ],
  [
    { limit: 1, windowMs: 1000, getConnInfo: {} },
    "options.getConnInfo: `{…}` is not a function; use that of your runtime, as from '@hono/node-server/conninfo'",
  ],
  [
    { limit: 1, windowMs: 1000, getConnInfo, key: () => 'a' },
    'options.getConnInfo: `a function` stands beside `key`; leave one of them out',
  ],
]) {
  test(`options: ${message}`, () => assert.throws(() => leapgate(options), { message }));
}
