// Engines in adapters: an entry ends with its response, however that ends, and a refusal has its reason.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import http2 from 'node:http2';
import { Readable } from 'node:stream';
import test, { after } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { createAdaptorServer } from '@hono/node-server';
import connect from 'connect';
import express5 from 'express';
import express4 from 'express4';
import fastify from 'fastify';
import { Hono } from 'hono';
import { Engine } from 'leapgate/engine';
import { leapgate as forExpress } from 'leapgate/express';
import { leapgate as forFastify } from 'leapgate/fastify';
import { leapgate as forFetch } from 'leapgate/fetch';
import { leapgate as forHono } from 'leapgate/hono';
import { flood, get, listen, until, visitor } from './http.mjs';

// The handlers of the paths. `/hold` and `/stream` go on at `release`, one after another.
class Handlers {
  reached = [];
  waiting = [];

  wait(path) {
    this.reached.push(path);
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  release() {
    this.waiting.shift()();
  }

  async *stream(path) {
    yield 'begun';
    await this.wait(path);
    yield ', ended';
  }

  async *broken() {
    yield 'begun';
    throw new Error('broken');
  }

  node = async (request, response) => {
    const path = request.path ?? request.url;
    if (path === '/hold') await this.wait(path);
    if (path === '/stream') return Readable.from(this.stream(path)).pipe(response);
    if (path === '/broken')
      return Readable.from(this.broken())
        .on('error', () => response.destroy())
        .pipe(response);
    response.statusCode = path === '/fails' ? 500 : path === '/missing' ? 404 : 200;
    response.end(path);
  };

  web = async (request) => {
    const path = new URL(request.url).pathname;
    if (path === '/hold') await this.wait(path);
    if (path === '/throws') throw new Error('thrown');
    if (path === '/stream') return new Response(ReadableStream.from(this.stream(path)).pipeThrough(new TextEncoderStream()));
    if (path === '/broken') return new Response(ReadableStream.from(this.broken()).pipeThrough(new TextEncoderStream()));
    if (path === '/empty') return new Response(null, { status: 204 });
    return new Response(path, { status: path === '/fails' ? 500 : path === '/missing' ? 404 : 200 });
  };
}

const node = (middleware) => listen(http.createServer(middleware));
const quiet = (app) => app.use((error, request, response, next) => response.status(500).end(`${error.message}${next.length}`));

const kinds = {
  'express 5': (options, handlers) => {
    const app = express5().use(forExpress(options));
    app.get('/throws', async () => {
      throw new Error('thrown');
    });
    return node(quiet(app.use(handlers.node)));
  },
  'express 4': (options, handlers) => {
    const app = express4().use(forExpress(options));
    app.get('/throws', () => {
      throw new Error('thrown');
    });
    return node(quiet(app.use(handlers.node)));
  },
  connect: (options, handlers) => {
    const app = connect().use(forExpress(options));
    app.use('/throws', () => {
      throw new Error('thrown');
    });
    app.use(handlers.node);
    return node(app.use((error, request, response, next) => (response.writeHead(500), response.end(`${next.length}`))));
  },
  'node:http': (options, handlers) => {
    const limit = forExpress(options);
    return node((request, response) =>
      limit(request, response, () => {
        if (request.url === '/throws') return response.writeHead(500).end();
        handlers.node(request, response);
      }),
    );
  },
  fastify: async (options, handlers) => {
    const app = fastify({ forceCloseConnections: true });
    after(() => app.close());
    app.register(forFastify(options));
    app.get('/throws', async () => {
      throw new Error('thrown');
    });
    app.get('/hold', async () => (await handlers.wait('/hold'), 'held'));
    app.get('/stream', () => Readable.from(handlers.stream('/stream')));
    app.get('/broken', () => Readable.from(handlers.broken()));
    app.get('/fails', (request, reply) => reply.code(500).send(request.url));
    app.get('/', async () => '/');
    return app.listen({ host: '127.0.0.1', port: 0 });
  },
  'hono on Node': (options, handlers) => {
    const app = new Hono().use(forHono(options)).all('*', (c) => handlers.web(c.req.raw));
    app.onError((error, c) => c.text(error.message, 500));
    return listen(createAdaptorServer({ fetch: app.fetch }));
  },
  'hono elsewhere': (options, handlers) => {
    const app = new Hono().use(forHono(options)).all('*', (c) => handlers.web(c.req.raw));
    app.onError((error, c) => c.text(error.message, 500));
    return listen(createAdaptorServer({ fetch: (request) => app.fetch(request, {}) }));
  },
  fetch: (options, handlers) => {
    const fetch = forFetch(options)((request) => handlers.web(request));
    return listen(createAdaptorServer({ fetch: (request) => fetch(request).catch(() => new Response('', { status: 500 })) }));
  },
};

// An engine with a clock that only tests move; `ends` has the outcomes of its entries.
function engineOf(rules) {
  const clock = { ms: 0 };
  const engine = new Engine(rules, { now: () => clock.ms });
  const [ends, asked] = [[], []];
  const enter = engine.enter.bind(engine);
  engine.enter = (...args) => {
    const entry = enter(...args);
    const exit = entry.exit.bind(entry);
    let isOver = !entry.success;
    asked.push(args);
    entry.exit = (outcome) => {
      assert.ok(!isOver, 'an entry is ended once, and a refusal never');
      isOver = true;
      ends.push(outcome);
      exit(outcome);
    };
    return entry;
  };
  const isFree = () => {
    const entry = enter('all');
    entry.cancel();
    return entry.success;
  };
  return { engine, clock, ends, asked, isFree };
}

// An engine that admits one call at a time.
const oneAtATime = () => engineOf({ flowRules: [{ resource: 'all', grade: 'concurrency', count: 1, id: 'one' }] });

async function serve(kind, more = {}, made = oneAtATime()) {
  const handlers = new Handlers();
  const url = await kinds[kind]({ engine: made.engine, resource: () => 'all', ...more }, handlers);
  const reached = (path) => until(() => handlers.reached.includes(path), `${path} is reached`);
  return { url, handlers, reached, ...made };
}

for (const kind of Object.keys(kinds)) {
  test(`${kind}: a call is in flight until it is answered`, async () => {
    const { url, handlers, ends, isFree, reached } = await serve(kind);
    const first = get(`${url}/hold`);
    await reached('/hold');
    const refused = await get(url);
    assert.deepEqual(
      [refused.status, refused.headers['ratelimit-policy'], refused.headers['retry-after']],
      [429, '"one";q=1;qu="concurrent-requests"', '1'],
    );
    handlers.release();
    const { status, headers } = await first;
    assert.deepEqual([status, headers.ratelimit], [200, '"one";r=0;t=1']);
    await until(isFree, 'it has ended');
    assert.equal((await get(url)).status, 200);
    await until(() => ends.length === 2, 'both have ended');
    assert.deepEqual(ends, [{}, {}]);
  });

  test(`${kind}: many calls at once, never more in flight than the limit`, async () => {
    const atOnce = 3;
    const { engine } = engineOf({ flowRules: [{ resource: 'all', grade: 'concurrency', count: atOnce }] });
    let [inside, most, passed] = [0, 0, 0];
    const handlers = new Handlers();
    const counted = async (then) => {
      most = Math.max(most, ++inside);
      passed++;
      await new Promise(setImmediate);
      inside--;
      return then;
    };
    handlers.web = () => counted(new Response('hello'));
    handlers.node = async (request, response) => response.end(await counted('hello'));
    const options = { engine, resource: () => 'all' };
    const url = kind === 'fastify' ? await serveFastify(options, () => counted('hello')) : await kinds[kind](options, handlers);
    const statuses = await flood(() => get(url), 300);
    assert.deepEqual([most, passed], [atOnce, statuses.filter((status) => status === 200).length]);
    assert.ok(passed > 10 && passed < 300, `${passed} have passed`);
    // No entry is open any more.
    const isFree = () => {
      const entries = Array.from({ length: atOnce }, () => engine.enter('all'));
      entries.forEach((entry) => entry.cancel());
      return entries.every(({ success }) => success);
    };
    await until(isFree, 'all have ended');
  });

  test(`${kind}: a handler that throws ends the entry with an error`, async () => {
    const { url, ends, isFree } = await serve(kind);
    assert.equal((await get(`${url}/throws`)).status, 500);
    await until(() => ends.length === 1, 'it has ended');
    assert.ok(ends[0].error);
    assert.ok(isFree());
  });

  test(`${kind}: an answer of 500 is an error`, async () => {
    const { url, ends } = await serve(kind);
    assert.equal((await get(`${url}/fails`)).status, 500);
    await until(() => ends.length === 1, 'it has ended');
    assert.ok(ends[0].error);
  });

  test(`${kind}: a client that hangs up while its handler runs ends the entry`, async () => {
    const { url, ends, isFree, reached } = await serve(kind);
    const client = await visitor(url, '/hold');
    await reached('/hold');
    assert.ok(!isFree());
    client.leave();
    await until(isFree, 'it has ended');
    assert.deepEqual(ends, [{ unanswered: true }]);
    assert.equal((await get(url)).status, 200);
  });

  test(`${kind}: a call with a streamed body is in flight until its end`, async () => {
    const { url, handlers, ends, isFree, reached } = await serve(kind);
    const answer = get(`${url}/stream`);
    await reached('/stream');
    assert.equal((await get(url)).status, 429);
    handlers.release();
    assert.equal((await answer).body, 'begun, ended');
    await until(isFree, 'it has ended');
    assert.deepEqual(ends, [{}]);
  });

  test(`${kind}: a client that hangs up in a streamed body ends the entry`, async () => {
    const { url, ends, isFree, reached } = await serve(kind);
    const client = await visitor(url, '/stream');
    await client.responded;
    await reached('/stream');
    assert.ok(!isFree());
    client.leave();
    await until(isFree, 'it has ended');
    assert.deepEqual(ends, [{ unanswered: true }]);
  });

  test(`${kind}: a body that breaks ends the entry`, async () => {
    const { url, ends, isFree } = await serve(kind);
    const { status } = await get(`${url}/broken`).catch(() => ({ status: 'none' }));
    assert.notEqual(status, 200);
    await until(isFree, 'it has ended');
    assert.equal(ends.length, 1);
  });

  test(`${kind}: HEAD ends the entry`, async () => {
    const { url, ends, isFree } = await serve(kind);
    assert.equal((await get(url, { method: 'HEAD' })).status, 200);
    await until(isFree, 'it has ended');
    assert.deepEqual(ends, [{}]);
  });

  test(`${kind}: a call that does not count is refunded when it ends`, async () => {
    const { url, ends } = await serve(kind, { countIf: (request, response) => (response.statusCode ?? response.status) !== 404 });
    await get(`${url}/missing`);
    await until(() => ends.length === 1, 'it has ended');
    await get(url);
    await until(() => ends.length === 2, 'it has ended');
    assert.deepEqual(ends, [{ refund: true }, {}]);
  });

  test(`${kind}: a breaker opens on failing handlers, and its refusals name it`, async () => {
    const degradeRules = [{ resource: 'all', grade: 'errorCount', count: 2, timeWindow: 10, minRequestAmount: 1, id: 'errors' }];
    const { url, ends, clock } = await serve(kind, { reply: { format: 'problem' } }, engineOf({ degradeRules }));
    const ask = async (path, many) => {
      const { status, headers, body } = await get(url + path);
      if (many !== undefined) await until(() => ends.length === many, 'it has ended');
      return { status, headers, body };
    };
    assert.equal((await ask('/throws', 1)).status, 500);
    assert.equal((await ask('/', 2)).status, 200);
    assert.equal((await ask('/fails', 3)).status, 500);
    assert.equal((await ask('/fails', 4)).status, 500);
    const { status, headers, body } = await ask('/');
    const seen = [status, headers['content-type'].split(';')[0], headers['retry-after'], headers['cache-control']];
    assert.deepEqual(seen, [503, 'application/problem+json', '10', 'no-store']);
    assert.deepEqual(JSON.parse(body), {
      type: 'https://iana.org/assignments/http-problem-types#temporary-reduced-capacity',
      title: 'Temporary reduced capacity',
      status: 503,
      detail: 'service unavailable',
    });
    clock.ms += 10_000;
    assert.equal((await ask('/', 5)).status, 200);
    assert.equal((await ask('/fails', 6)).status, 500);
    assert.equal((await ask('/', 7)).status, 200, 'it is closed');
  });

  test(`${kind}: a client that hangs up is not an error of the server`, async () => {
    const degradeRules = [{ resource: 'all', grade: 'errorCount', count: 0, timeWindow: 10, minRequestAmount: 1 }];
    const { url, ends, clock, reached } = await serve(kind, {}, engineOf({ degradeRules }));
    await get(`${url}/fails`);
    await until(() => ends.length === 1, 'it has ended');
    assert.equal((await get(url)).status, 503);
    clock.ms += 10_000;
    const probe = await visitor(url, '/hold');
    await reached('/hold');
    assert.equal((await get(url)).status, 503, 'there is a probe');
    probe.leave();
    await until(() => ends.length === 2, 'it has ended');
    assert.equal((await get(url)).status, 503, 'it is as open as before');
    clock.ms += 10_000;
    assert.equal((await get(url)).status, 200);
  });

  if (!['hono on Node', 'hono elsewhere', 'fetch'].includes(kind)) continue;
  test(`${kind}: countIf is not called for a request without a response`, async () => {
    let asked = 0;
    const { url, ends, isFree, reached } = await serve(kind, { countIf: () => ++asked > 0 });
    const client = await visitor(url, '/hold');
    await reached('/hold');
    client.leave();
    await until(isFree, 'it has ended');
    await new Promise(setImmediate);
    assert.deepEqual([ends, asked], [[{ unanswered: true }], 0]);
  });
}

async function serveFastify(options, handler) {
  const app = fastify({ forceCloseConnections: true });
  after(() => app.close());
  app.register(forFastify(options));
  app.get('/', handler);
  return app.listen({ host: '127.0.0.1', port: 0 });
}

test('fastify over HTTP/2: an entry ends with its stream', async () => {
  const { engine, ends, isFree } = oneAtATime();
  const handlers = new Handlers();
  const app = fastify({ http2: true });
  app.register(forFastify({ engine, resource: () => 'all' }));
  app.get('/', async () => 'hello');
  app.get('/hold', () => handlers.wait('/hold'));
  await app.listen({ host: '127.0.0.1', port: 0 });
  const client = http2.connect(`http://127.0.0.1:${app.server.address().port}`);
  after(() => (client.destroy(), app.close()));
  const ask = (path) => {
    const stream = client.request({ ':path': path });
    stream.on('error', () => {}).resume();
    return stream;
  };
  const [answer] = await once(ask('/'), 'response');
  assert.deepEqual([answer[':status'], answer.ratelimit], [200, '"one";r=0;t=1']);
  await until(isFree, 'it has ended');
  const held = ask('/hold');
  await until(() => handlers.reached.length === 1, 'it is reached');
  const [refused] = await once(ask('/'), 'response');
  assert.equal(refused[':status'], 429);
  held.close(http2.constants.NGHTTP2_CANCEL);
  await until(isFree, 'it has ended');
  assert.deepEqual(ends, [{}, { unanswered: true }]);
});

test('an engine gets the resource, the key and the origin of a request, which is inbound', async () => {
  const { engine, asked } = engineOf({ flowRules: [{ resource: 'login', count: 1, key: ['path', 'method'] }] });
  const request = () => new Request('http://localhost', { headers: { x: 'login', app: 'shop' } });
  const options = { engine, resource: (request) => request.headers.get('x') };
  const origin = async (request) => request.headers.get('app');
  await forFetch({ ...options, key: async () => ['a', 1], origin })(() => new Response())(request());
  await forFetch({ ...options, key: () => ({ path: '/', method: null }), origin: () => null })(() => new Response())(request());
  await forFetch({ engine, resource: () => 'pay' })(() => new Response())(request());
  await new Hono().use(forHono({ engine, resource: (c) => c.req.path, origin: () => undefined })).request('/c');
  assert.deepEqual(asked, [
    ['login', { inbound: true, key: ['a', 1], origin: 'shop' }],
    ['login', { inbound: true, key: { path: '/', method: null } }],
    ['pay', { inbound: true }],
    ['/c', { inbound: true }],
  ]);
});

// The response to a refusal, in each format.
async function refusals(rules, more = {}) {
  const answers = [];
  for (const format of ['text', 'json', 'problem']) {
    const { engine } = engineOf(rules);
    const limited = forFetch({ engine, resource: () => 'all', reply: { format, status: 420, body: 'slowly' }, ...more });
    const ask = () => limited(() => new Response('hello'))(new Request('http://localhost'));
    let response;
    for (let i = 0; i < 3; i++) response = await ask();
    const body = await response.text();
    answers.push([response.status, response.headers.get('retry-after'), format === 'text' ? body : JSON.parse(body)]);
  }
  return answers;
}

test('a limit, a system rule and an authority rule are refused with', async () => {
  const problems = 'https://iana.org/assignments/http-problem-types';
  const [title, id] = ['Temporary reduced capacity', 'rule'];
  assert.deepEqual(await refusals({ flowRules: [{ resource: 'all', count: 1, intervalMs: 60_000, id }] }), [
    [420, '61', 'slowly'],
    [420, '61', { status: 420, error: 'slowly', rule: id, retryAfterSeconds: 61 }],
    [
      420,
      '61',
      { type: `${problems}#quota-exceeded`, title: 'Quota exceeded', status: 420, detail: 'slowly', 'violated-policies': [id] },
    ],
  ]);
  assert.deepEqual((await refusals({ systemRules: [{ qps: 1, id }] }))[0], [420, '1', 'slowly']);
  assert.deepEqual(await refusals({ systemRules: [{ maxThread: 0, id }] }), [
    [503, '1', 'service unavailable'],
    [503, '1', { status: 503, error: 'service unavailable', rule: id, retryAfterSeconds: 1 }],
    [503, '1', { type: `${problems}#temporary-reduced-capacity`, title, status: 503, detail: 'service unavailable' }],
  ]);
  const authorityRules = [{ resource: 'all', limitApp: 'shop', strategy: 'black', id }];
  assert.deepEqual(await refusals({ authorityRules }, { origin: () => 'shop' }), [
    [403, null, 'forbidden'],
    [403, null, { status: 403, error: 'forbidden', rule: id }],
    [403, null, { title: 'Forbidden', status: 403, detail: 'forbidden' }],
  ]);
});

// An engine's decision to refuse a request for 'all', and the response of an adapter to it.
async function refusal(rules) {
  const { engine } = engineOf(rules);
  engine.setGauges({ load: 9, cpu: 1 });
  const open = [1, 2, 3].map(() => engine.enter('all', { inbound: true })).filter(({ success }) => success);
  if (open.length > 1) open.pop().exit({ error: 'it failed' });
  const options = { engine, resource: () => 'all', origin: () => 'shop', reply: { format: 'problem' } };
  const { cause, status } = engine.enter('all', { inbound: true, origin: 'shop' });
  const answer = await forFetch(options)(() => new Response('hello'))(new Request('http://localhost'));
  for (const entry of open) entry.exit();
  return { cause, status, answer: { status: answer.status, ...(await answer.json()) } };
}

const table = JSON.parse(readFileSync(new URL('refusals.json', import.meta.url)));

// The status decides, also for kinds of rules that are not known here.
test('each refusal of the table for all shells is answered as it says, by its status', async () => {
  for (const { cause, status, text: detail, title, type } of table) {
    const refused = { success: false, cause, status, rule: 'r', limit: 1, remaining: 0, reset: 0, retryAfterMs: 1000, policies: [] };
    const options = { engine: { enter: () => refused }, resource: () => 'all', reply: { format: 'problem' } };
    const answer = await forFetch(options)(() => new Response('hello'))(new Request('http://localhost'));
    assert.equal(answer.status, status, cause);
    const { 'violated-policies': violated, ...problem } = await answer.json();
    assert.deepEqual(problem, { ...(type && { type }), title, status, detail }, cause);
    assert.deepEqual(violated, status === 429 ? ['r'] : undefined, cause);
  }
});

test('each refusal is answered as the table for all shells says', async () => {
  const system = { qps: { qps: 1 }, thread: { maxThread: 1 }, load: { highestSystemLoad: 0 }, cpu: { highestCpuUsage: 0 } };
  const rules = {
    flow: () => ({ flowRules: [{ resource: 'all', count: 1 }] }),
    degrade: () => ({ degradeRules: [{ resource: 'all', grade: 'errorCount', count: 0, minRequestAmount: 1, timeWindow: 5 }] }),
    authority: () => ({ authorityRules: [{ resource: 'all', limitApp: 'shop', strategy: 'black' }] }),
    system: (limit) => ({ systemRules: [system[limit]] }),
  };
  const seen = [];
  for (const { cause, limits, status, text: detail, title, type } of table.filter(({ cause }) => cause in rules)) {
    for (const limit of limits.filter((limit) => limit === null || limit in system)) {
      const { answer, ...decision } = await refusal(rules[cause](limit));
      assert.deepEqual(decision, { cause, status }, `${cause} ${limit}`);
      delete answer['violated-policies'];
      assert.deepEqual(answer, { ...(type && { type }), title, status, detail }, `${cause} ${limit}`);
      seen.push(limit ?? cause);
    }
  }
  assert.deepEqual(seen.sort(), ['authority', 'cpu', 'degrade', 'flow', 'load', 'qps', 'thread']);
});

test('a request that would have to wait is refused, with the time to its turn', async () => {
  const rule = { resource: 'all', count: 1, controlBehavior: 'throttle', maxQueueingTimeMs: 10_000, intervalMs: 3000 };
  const { engine } = engineOf({ flowRules: [rule] });
  const limited = forFetch({ engine, resource: () => 'all' })(() => new Response('hello'));
  const answers = [];
  for (let i = 0; i < 3; i++) {
    const { status, headers } = await limited(new Request('http://localhost'));
    answers.push([status, headers.get('retry-after')]);
  }
  assert.deepEqual(answers, [
    [200, null],
    [429, '3'],
    [429, '3'],
  ]);
});

test('the headers have several rules, and limits on calls in flight without a window', async () => {
  const flowRules = [
    { resource: 'all', count: 100, intervalMs: 60_000 },
    { resource: 'all', grade: 'concurrency', count: 10 },
  ];
  const { engine } = engineOf({ flowRules });
  const limited = (draft) => forFetch({ engine, resource: () => 'all', draft })(() => new Response('hello'));
  const headersOf = async (draft) => Object.fromEntries((await limited(draft)(new Request('http://localhost'))).headers);
  const { ratelimit, 'ratelimit-policy': policy } = await headersOf(11);
  assert.deepEqual(
    [policy, ratelimit],
    ['"all/60s";q=100;w=60, "all/concurrency";q=10;qu="concurrent-requests"', '"all/60s";r=99;t=61, "all/concurrency";r=9'],
  );
  assert.equal((await headersOf(7))['ratelimit-policy'], '100;w=60');
});

test('fetch: a client that leaves before its key is known holds no entry', async () => {
  const { engine, ends, isFree } = oneAtATime();
  const controller = new AbortController();
  const request = new Request('http://localhost', { signal: controller.signal });
  const key = async () => (controller.abort(), 'a');
  await forFetch({ engine, resource: () => 'all', key })(() => new Response('hello'))(request);
  assert.ok(isFree());
  assert.deepEqual(ends, [{ unanswered: true }]);
});

test('fetch: a client that cancels a body ends the entry, and the body is cancelled', async () => {
  const { engine, ends, isFree } = oneAtATime();
  let reason;
  const body = new ReadableStream({ cancel: (why) => void (reason = why) });
  const response = await forFetch({ engine, resource: () => 'all' })(() => new Response(body))(new Request('http://localhost'));
  assert.ok(!isFree());
  await response.body.cancel('enough');
  assert.deepEqual([isFree(), ends, reason], [true, [{ unanswered: true }], 'enough']);
});

test('hono: an error thrown past its error handler ends the entry', async () => {
  const { engine, ends, isFree } = oneAtATime();
  const app = new Hono().use(forHono({ engine, resource: () => 'all' }));
  app.get('/', () => {
    throw 'no error';
  });
  await assert.rejects(
    async () => app.request('/'),
    (thrown) => thrown === 'no error',
  );
  assert.deepEqual([isFree(), ends], [true, [{ error: 'no error' }]]);
});

test('fetch: any value that a handler throws is an error', async () => {
  for (const thrown of [undefined, null, 0]) {
    const { engine, ends } = oneAtATime();
    const limited = forFetch({ engine, resource: () => 'all' })(() => {
      throw thrown;
    });
    const outcome = await limited(new Request('http://localhost')).catch((error) => ({ error }));
    assert.deepEqual([outcome, ends], [{ error: thrown }, [{ error: true }]]);
  }
});

test('fetch: a response without a readable body ends the entry at once', async () => {
  for (const response of [new Response(null, { status: 204 }), new Response()]) {
    const { engine, isFree } = oneAtATime();
    const answer = await forFetch({ engine, resource: () => 'all' })(() => response)(new Request('http://localhost'));
    assert.equal(answer, response);
    assert.ok(isFree());
  }
});

test('fetch: an aborted request ends even if its body is neither read nor cancelled', async () => {
  const { engine, isFree } = oneAtATime();
  const controller = new AbortController();
  const request = new Request('http://localhost', { signal: controller.signal });
  await forFetch({ engine, resource: () => 'all' })(() => new Response('hello'))(request);
  assert.ok(!isFree());
  controller.abort();
  await until(isFree, 'it has ended');
});

test('fetch: a response that is dropped unread ends when it is garbage-collected', async () => {
  v8.setFlagsFromString('--expose-gc');
  const collect = vm.runInNewContext('gc');
  const { engine, isFree } = oneAtATime();
  await forFetch({ engine, resource: () => 'all' })(() => new Response('hello'))(new Request('http://localhost'));
  assert.ok(!isFree());
  await until(() => (collect(), isFree()), 'it has ended');
});

test('fetch: a response is read only on demand', async () => {
  const { engine } = oneAtATime();
  let pulled = 0;
  const body = new ReadableStream(
    { pull: (controller) => (pulled++, controller.enqueue(new Uint8Array(1))) },
    { highWaterMark: 0 },
  );
  const response = await forFetch({ engine, resource: () => 'all' })(() => new Response(body))(new Request('http://localhost'));
  const reader = response.body.getReader();
  await reader.read();
  await reader.read();
  await new Promise(setImmediate);
  assert.equal(pulled, 2);
});
