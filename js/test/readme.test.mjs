// The examples of the README, exactly as printed.
import assert from 'node:assert/strict';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { serve } from '@hono/node-server';
import express from 'express';
import { redisServer } from './redis.mjs';

const readme = readFileSync(new URL('node_modules/leapgate/README.md', import.meta.url), 'utf8');
const examples = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, code]) => code).filter((code) => code.startsWith('import'));
let made = 0;

// The names that an example declares: the only example that imports `from`.
const example = (from, ...names) => edited((code) => code, from, ...names);

// The same with another text.
async function edited(edit, from, ...names) {
  const declares = (code) => names.every((name) => new RegExp(`\\b(const|import) [^=;]*\\b${name}\\b`).test(code));
  const found = examples.filter((code) => code.includes(`from '${from}'`) && declares(code));
  assert.equal(found.length, 1, `the README has ${found.length} examples that import ${from} and declare ${names}`);
  const file = new URL(`readme-${++made}.mjs`, import.meta.url);
  writeFileSync(file, `${edit(found[0])}\nexport { ${names.join(', ')} };\n`);
  return { code: found[0], ...(await import(file)) };
}

// How many of so many requests pass, one after another.
async function passing(requests, ask) {
  let passed = 0;
  for (let i = 0; i < requests; i++) {
    const status = await ask();
    if (status === 429) continue;
    assert.ok(status < 500, `status ${status}`);
    passed++;
  }
  return passed;
}

async function overHttp(server, requests, path = '/', method = 'GET') {
  const { port } = server.address();
  return passing(requests, async () => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`, { method });
    await response.text();
    return response.status;
  });
}

async function listening(server) {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return server;
}

function closed(server) {
  server.close();
  server.closeAllConnections();
}

test('the first example limits a key', async () => {
  const first = examples.find((code) => code.startsWith("import { Limiter } from 'leapgate';"));
  const file = new URL('readme-first.mjs', import.meta.url);
  writeFileSync(file, `${first}\nexport { limiter, success, remaining, retryAfterMs };\n`);
  const { limiter, success, remaining, retryAfterMs } = await import(file);
  assert.deepEqual([success, remaining, retryAfterMs], [true, 99, 0]);
  assert.equal(await passing(200, () => (limiter.limit('203.0.113.7').success ? 200 : 429)), 99);
});

test('the example of a hold charges what a call has cost', async () => {
  const { tokens, answer } = await example('leapgate', 'tokens', 'answer');
  const left = () => tokens.peek('ann').remaining;
  const generate = (totalTokens) => async ({ prompt }) => (assert.equal(left(), 18_000), { text: `re: ${prompt}`, usage: { totalTokens } });
  assert.equal(await answer('ann', 'hello', generate(412)), 're: hello');
  assert.equal(left(), 20_000 - 412);
  tokens.reset('ann');
  await answer('ann', 'hello', generate(undefined));
  assert.equal(left(), 18_000, 'its estimate');
  tokens.reset('ann');
  await assert.rejects(answer('ann', 'hello', () => Promise.reject(new Error('broken'))), { message: 'broken' });
  assert.equal(left(), 18_000, 'its estimate');
  tokens.block('ann', 5000);
  await assert.rejects(answer('ann', 'hello', generate(412)), { message: /^too many tokens; again in (5000|4\d\d\d) ms$/ });
});

test('the example of costs settles what calls have cost', async () => {
  const { engine, call, login } = await example('leapgate/engine', 'engine', 'call', 'login');
  assert.deepEqual([call.success, login.success], [true, true]);
  assert.deepEqual(engine.policies('chat', { key: 'ann' }).map(({ unit, remaining }) => [unit, remaining]), [['requests', 59], ['tokens', 19_588]]);
  assert.equal(engine.policies('login', { key: '203.0.113.7' })[0].remaining, 5);
});

test('the printed result has the fields of a result', async () => {
  const [, shown] = /```js\n(\{ success.*?)```/s.exec(readme);
  const { Limiter } = await import('leapgate');
  const result = new Limiter({ limit: 100, windowMs: 60_000 }).limit('a').toJSON();
  const object = new Function(`return ${shown}`)();
  assert.deepEqual(Object.keys(object), Object.keys(result));
  assert.deepEqual({ ...object, reset: 0, policies: [] }, { ...result, reset: 0, policies: [] });
  assert.deepEqual(Object.keys(object.policies[0]), Object.keys(result.policies[0]));
});

test('the example for Redis leases from it', async () => {
  const server = await redisServer();
  process.env.REDIS_URL = `redis://127.0.0.1:${server.port}`;
  // With a window of a second, since a server that is younger than a window counts as full.
  const shorter = (code) => code.replace('60_000', '1000');
  const { client, limiter, success, retryAfterMs } = await edited(shorter, 'leapgate/shared/redis', 'client', 'limiter', 'success', 'retryAfterMs');
  assert.deepEqual([success, retryAfterMs > 0, limiter.stats().isDown], [false, true, false]);
  while (!(await limiter.limit('a')).success) await new Promise((resolve) => setTimeout(resolve, 50));
  assert.ok((await passing(300, async () => ((await limiter.limit('a')).success ? 200 : 429))) < 200);
  await limiter.close();
  client.disconnect();
});

test('the example for Workers admits its limit', async () => {
  const { default: worker, LeaseStore } = await example('leapgate/shared/durable-object', 'durableObject');
  const stored = new Map();
  const storage = { get: async () => undefined, put: async (...of) => stored.set(...of), getAlarm: async () => null, setAlarm: async () => {} };
  const object = new LeaseStore({ storage });
  const env = { LEASES: { idFromName: (name) => name, get: () => ({ fetch: (url, init) => object.fetch(new Request(url, init)) }) } };
  const ctx = { waitUntil() {} };
  const request = () => new Request('http://127.0.0.1/', { headers: { 'cf-connecting-ip': '203.0.113.7' } });
  assert.equal(await passing(150, async () => (await worker.fetch(request(), env, ctx)).status), 100);
});

test('the example for Express admits its limit', async () => {
  const { app } = await example('leapgate/express', 'app');
  const server = await listening(createServer(app));
  try {
    assert.equal(await overHttp(server, 110), 100);
  } finally {
    closed(server);
  }
});

test('the example for Fastify admits its limits', async () => {
  const { app } = await example('leapgate/fastify', 'app');
  await app.listen({ port: 0, host: '127.0.0.1' });
  try {
    assert.equal(await overHttp(app.server, 7, '/login', 'POST'), 5);
    assert.equal(await overHttp(app.server, 110, '/nothing'), 100);
  } finally {
    await app.close();
  }
});

test('the example for Hono admits its limit', async () => {
  const { app } = await example('leapgate/hono', 'app');
  const server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' });
  await once(server, 'listening');
  try {
    assert.equal(await overHttp(server, 110), 100);
  } finally {
    closed(server);
  }
});

test('the example for fetch handlers admits its limit', async () => {
  const { default: worker } = await example('leapgate/fetch', 'limited');
  const request = () => new Request('http://127.0.0.1/', { headers: { 'cf-connecting-ip': '203.0.113.7' } });
  assert.equal(await passing(110, async () => (await worker.fetch(request())).status), 100);
});

test('the example of a store admits its limit', async () => {
  const { middleware } = await example('leapgate/store', 'middleware');
  const server = await listening(createServer(express().use(middleware)));
  try {
    assert.equal(await overHttp(server, 110), 100);
  } finally {
    closed(server);
  }
});

test('the example of the parts makes the printed headers', async () => {
  const { code, rateLimitHeaders, answer } = await example('leapgate/http', 'rateLimitHeaders', 'answer');
  const [, shown] = /; \/\/ (\{.*\})\n/.exec(code);
  // `t` depends on where in its bucket the example has run.
  const masked = (headers) => JSON.stringify(headers).replace(/t=6[0-3]/, 't=…');
  assert.equal(masked(rateLimitHeaders(answer, { draft: 11 })), masked(new Function(`return ${shown}`)()));
});

test('the example of rules runs to its end', async () => {
  const { success, paid, entry } = await example('leapgate/engine', 'success', 'paid', 'entry');
  assert.deepEqual([success, paid, entry.success], [true, 'paid', true]);
});

test('the example of an engine before a server admits its limit', async () => {
  const { server } = await example('leapgate/express', 'engine', 'server');
  await listening(server);
  try {
    assert.equal(await overHttp(server, 110), 100);
  } finally {
    closed(server);
  }
});

test('the example of a fake clock passes as printed', async () => {
  const { code, passed } = await example('node:test', 'passed');
  const [first, second] = [...code.matchAll(/ \/\/ (\[.*\]|true)$/gm)].map(([, shown]) => JSON.parse(shown));
  assert.deepEqual(passed, [...first, second]);
});

test('the example of a restart goes on from what it has saved', async () => {
  process.env.LEAPGATE_STATE = fileURLToPath(new URL('state.json', import.meta.url));
  const first = await example('node:fs', 'logins', 'save');
  for (let i = 0; i < 3; i++) first.logins.limit('ann');
  first.save();
  const second = await example('node:fs', 'logins', 'save');
  assert.equal(second.logins.peek('ann').remaining, 2);
  process.removeAllListeners('SIGTERM');
});

test('no document keeps the real Date.now as a clock', () => {
  const dist = new URL('node_modules/leapgate/dist/', import.meta.url);
  const types = readdirSync(dist).filter((name) => name.endsWith('.d.ts'));
  for (const text of [readme, ...types.map((name) => readFileSync(new URL(name, dist), 'utf8'))]) {
    assert.doesNotMatch(text, /\bnow: ?Date\.now\b/);
  }
});

test('the example of metrics tells the series that is printed', async () => {
  const { server, engine } = await example('leapgate/metrics', 'server', 'engine');
  for (let i = 0; i < 6; i++) engine.limit('login', { key: { clientIp: '203.0.113.7' } });
  await listening(server);
  try {
    const response = await fetch(`http://127.0.0.1:${server.address().port}/`);
    assert.equal(response.headers.get('content-type'), 'text/plain; version=0.0.4; charset=utf-8');
    const shown = /`(leapgate_passed\{.*?\} \d+)`/.exec(readme)[1];
    assert((await response.text()).includes(`\n${shown}\n`), shown);
  } finally {
    closed(server);
  }
});

test('the example of statistics has the printed counts', async () => {
  const { code, seen } = await example('leapgate/stats', 'seen');
  assert.deepEqual(seen, JSON.parse(/ \/\/ (\[.*\])\n/.exec(code)[1]));
});

test('the example of flow rules alone runs to its end', async () => {
  const { engine, entry } = await example('leapgate/flow', 'engine', 'entry');
  assert.deepEqual([entry.success, engine.stats()], [true, { concurrency: 0, waiting: 0 }]);
});

test('the example of a limited fetch sends its limit', async (t) => {
  const sent = [];
  t.mock.method(globalThis, 'fetch', async (url) => (sent.push(url), new Response('items')));
  const { api, response } = await example('leapgate/client', 'api', 'response');
  assert.equal(await response.text(), 'items');
  const controller = new AbortController();
  const more = Array.from({ length: 20 }, () => api('https://api.example.com/items', { signal: controller.signal }));
  await new Promise(setImmediate);
  controller.abort();
  await Promise.allSettled(more);
  assert.equal(sent.length, 10);
});
