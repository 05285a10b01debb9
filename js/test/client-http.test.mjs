// `limitedFetch` over `fetch` of the runtime, before a server of node:http.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createServer } from 'node:http';
import test from 'node:test';
import { limitedFetch } from 'leapgate/client';
import { listen } from './http.mjs';
import { virtualTime } from './time.mjs';

// A server in virtual time; `answer` gets the request, the response and how many requests came before.
async function serverOf(t, answer) {
  const time = virtualTime(t);
  t.mock.method(Math, 'random', () => 0);
  const seen = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    seen.push({ at: time.ms, method: request.method, path: request.url, body });
    answer(request, response, seen.length - 1);
  });
  return { time, seen, origin: await listen(server), limited: (options) => limitedFetch(fetch, { now: time.now, ...options }) };
}

test('a refused request is sent again with its body, and the response is that of fetch', async (t) => {
  const { time, seen, origin, limited } = await serverOf(t, (_, response, n) => {
    if (n === 0) response.writeHead(429, { 'Retry-After': '20' }).end('slow down');
    else response.writeHead(200, { 'x-answer': n }).end('done');
  });
  const response = await time.until(limited()(`${origin}/a`, { method: 'PUT', body: new URLSearchParams('a=b') }));
  assert.ok(response instanceof Response);
  assert.deepEqual([response.url, response.headers.get('x-answer'), await response.text()], [`${origin}/a`, '1', 'done']);
  assert.deepEqual(seen.map(({ method, body }) => [method, body]), [['PUT', 'a=b'], ['PUT', 'a=b']]);
  assert.ok(seen[1].at - seen[0].at >= 19_000);
});

test('a Request with a body is sent once, and its refusal is returned', async (t) => {
  const { seen, origin, limited } = await serverOf(t, (_, response) => response.writeHead(429, { 'Retry-After': '20' }).end());
  const request = new Request(origin, { method: 'PUT', body: 'x' });
  assert.equal((await limited()(request)).status, 429);
  assert.deepEqual([seen.length, request.bodyUsed], [1, true]);
});

test('connections that are reset are tried again, and the last error is that of fetch', async (t) => {
  const { time, seen, origin, limited } = await serverOf(t, (request, response, n) => (n < 5 ? request.socket.destroy() : response.end('up')));
  const fetch = limited({ retries: 2 });
  await assert.rejects(time.until(fetch(origin)), { name: 'TypeError', message: 'fetch failed' });
  assert.equal(seen.length, 3);
  assert.equal(await (await time.until(fetch(origin))).text(), 'up');
});

test('headers of a megabyte are an error of fetch', async (t) => {
  const { time, origin, limited } = await serverOf(t, (_, response) => response.writeHead(200, { RateLimit: 'a'.repeat(1e6) }).end());
  await assert.rejects(time.until(limited({ retries: 1 })(origin)), { message: 'fetch failed' });
});

test('bodies that are never read hold up nothing', async (t) => {
  const { time, seen, origin, limited } = await serverOf(t, (_, response) => response.end('x'.repeat(100_000)));
  const fetch = limited({ concurrency: 1 });
  await time.until(Promise.all(Array.from({ length: 10 }, () => fetch(origin))));
  assert.equal(seen.length, 10);
});

test('a refusal whose body never ends is thrown away', async (t) => {
  let closed = 0;
  const { time, origin, limited } = await serverOf(t, (request, response, n) => {
    if (n > 0) return response.end('done');
    request.socket.once('close', () => closed++);
    response.writeHead(429, { 'Retry-After': '1' }).write('slow');
  });
  assert.equal(await (await time.until(limited()(origin))).text(), 'done');
  while (closed === 0) await time.pass(1);
});

test('after a redirect, what the last server says holds for the first', async (t) => {
  const { time, seen, origin, limited } = await serverOf(t, (request, response, n) => {
    if (request.url === '/from') response.writeHead(302, { Location: '/to' }).end();
    else response.writeHead(200, n < 2 ? { 'RateLimit-Remaining': '0', 'RateLimit-Reset': '30' } : {}).end('there');
  });
  const fetch = limited({ limit: 2, windowMs: 1000 });
  const first = await time.until(fetch(`${origin}/from`));
  assert.deepEqual([first.redirected, await first.text()], [true, 'there']);
  await time.until(fetch(`${origin}/from`));
  assert.deepEqual(seen.map(({ path }) => path), ['/from', '/to', '/from', '/to']);
  assert.ok(seen[2].at - seen[1].at >= 29_000);
});

test('paths of an upstream with limits of their own are told apart by `key`', async (t) => {
  const { time, seen, origin, limited } = await serverOf(t, (request, response) => {
    const left = request.url === '/search' ? 0 : 50;
    response.writeHead(200, { RateLimit: `"${request.url.slice(1)}";r=${left};t=30` }).end();
  });
  const fetch = limited({ key: ({ url }) => new URL(url).pathname });
  for (const path of ['/search', '/list', '/list', '/search', '/list']) await time.until(fetch(origin + path));
  assert.ok(seen[2].at < 1000 && seen[3].at >= 30_000);
});

test('an abort while the upstream is slow is an error of fetch, and ends the request', async (t) => {
  const { time, seen, origin, limited } = await serverOf(t, (_, response, n) => n > 0 && response.end());
  const fetch = limited({ concurrency: 1 });
  const controller = new AbortController();
  const slow = fetch(origin, { signal: controller.signal });
  const next = fetch(origin);
  while (seen.length === 0) await time.pass(1);
  controller.abort();
  await assert.rejects(slow, { name: 'AbortError' });
  assert.equal((await time.until(next)).status, 200);
});

test('a process with a limited fetch ends by itself, and rejects nothing unhandled', () => {
  const program = `
    import { createServer } from 'node:http';
    import { limitedFetch } from 'leapgate/client';
    const server = createServer((request, response) => response.writeHead(429, { 'Retry-After': '600', Connection: 'close' }).end());
    server.listen(0, '127.0.0.1', async () => {
      const url = 'http://127.0.0.1:' + server.address().port;
      const limited = limitedFetch(fetch, { maxWaitMs: 50, concurrency: 1, retries: 3 });
      const settled = await Promise.allSettled([limited(url), limited(url), limited(url, { signal: AbortSignal.timeout(10) })]);
      server.close();
      console.log(settled.map(({ status }) => status).join());
    });`;
  const { stdout, stderr, status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8', timeout: 20_000, cwd: import.meta.dirname });
  assert.deepEqual([stdout, stderr, status], ['fulfilled,rejected,rejected\n', '', 0]);
});
