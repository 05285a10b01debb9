// What all adapters share: limits and costs of each request, reports of refusals, and several limits on one request.

import assert from 'node:assert/strict';
import http from 'node:http';
import { createRequire } from 'node:module';
import test, { after } from 'node:test';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { leapgate as forExpress } from 'leapgate/express';
import { leapgate as forFastify } from 'leapgate/fastify';
import { leapgate as forFetch } from 'leapgate/fetch';
import { leapgate as forHono } from 'leapgate/hono';
import { ipKey } from 'leapgate/http';
import { SharedLimiter } from 'leapgate/shared';
import { MemoryStore } from 'leapgate/shared/memory';
import { ADAPTERS, statusesOf } from './adapters.mjs';
import { get, listen, until, warningsOf } from './http.mjs';

const MINUTE = 60_000;
const ONE = { limit: 1, windowMs: MINUTE, now: () => 0 };

const key = () => 'all';
const times = (n, value) => new Array(n).fill(value);

for (const [name, { serve, header }] of Object.entries(ADAPTERS)) {
  for (const [how, plan] of [
    ['a function', (...args) => Number(header(args[0], 'plan'))],
    ['a function that returns a promise', async (...args) => Number(header(args[0], 'plan'))],
  ]) {
    test(`${name}: \`limit\` is ${how} of the request`, async () => {
      const ask = await serve([{ ...ONE, limit: plan, key: (...args) => header(args[0], 'client') }]);
      const answer = await ask({ client: 'a', plan: '3' });
      assert.deepEqual([answer.headers['ratelimit-policy'], answer.headers.ratelimit], ['"60s";q=3;w=60', '"60s";r=2;t=63']);
      assert.deepEqual(await statusesOf(ask, times(3, { client: 'a', plan: '3' })), [200, 200, 429]);
      assert.deepEqual(await statusesOf(ask, times(3, { client: 'a', plan: '5' })), [200, 200, 429], 'more for another plan');
      assert.deepEqual(await statusesOf(ask, [{ client: 'b', plan: '0' }, { client: 'b', plan: '1' }]), [429, 200]);
    });

    test(`${name}: \`cost\` is ${how} of the request`, async () => {
      const ask = await serve([{ ...ONE, limit: 10, key, cost: plan }]);
      const { headers } = await ask({ plan: '4' });
      assert.equal(headers.ratelimit, '"60s";r=6;t=63');
      assert.deepEqual(await statusesOf(ask, ['7', '6', '1', '0'].map((plan) => ({ plan }))), [429, 200, 429, 200]);
    });
  }

  for (const wrong of [undefined, null, NaN, -1, '5', 2 ** 53 + 2, 5n]) {
    test(`${name}: a \`limit\` that returns ${typeof wrong} ${wrong} is an error of the request`, async () => {
      const ask = await serve([{ ...ONE, key, limit: () => wrong }], () => assert.fail('reached'));
      const message = `options.limit(): \`${wrong}\` is not a valid limit; return a number from 0 to 9007199254740992, or Infinity for no limit`;
      const { status, body } = await ask({});
      assert.deepEqual([status, body], [500, message]);
    });
  }

  for (const wrong of [undefined, NaN, -1, 0.5, '5', 2 ** 32, { tokens: 1 }]) {
    const shown = typeof wrong === 'object' ? '{…}' : wrong;
    test(`${name}: a \`cost\` that returns ${typeof wrong} ${shown} is an error of the request`, async () => {
      const ask = await serve([{ ...ONE, key, cost: async () => wrong }], () => assert.fail('reached'));
      const { status, body } = await ask({});
      assert.deepEqual(
        [status, body],
        [500, `options.cost(): \`${shown}\` is not a valid cost; return a whole number from 0 to 4294967295`],
      );
    });
  }

  for (const [what, fail] of [
    ['throws', () => { throw new Error('no plan'); }],
    ['rejects', async () => { throw new Error('no plan'); }],
  ]) {
    test(`${name}: a \`limit\` or a \`cost\` that ${what} is an error of the request`, async () => {
      for (const option of ['limit', 'cost']) {
        const ask = await serve([{ ...ONE, key, [option]: fail }], () => assert.fail('reached'));
        const { status, body } = await ask({});
        assert.deepEqual([status, body], [500, 'no plan']);
      }
    });
  }

  test(`${name}: \`cost\` may be a number, and \`countIf\` refunds the cost of its request`, async () => {
    const limiter = new Limiter({ limit: 10, windowMs: MINUTE });
    const countIf = (_, response) => (response.statusCode ?? response.status) < 400;
    const fixed = await serve([{ limiter, key: () => 'fixed', cost: 5, countIf }]);
    assert.equal((await fixed({}, '404')).status, 404);
    await until(() => limiter.peek('fixed').remaining === 10, 'the refund');
    assert.deepEqual(await statusesOf(fixed, times(3, {})), [200, 200, 429]);
    const cost = (...args) => Number(header(args[0], 'cost'));
    const asked = await serve([{ limiter, key: () => 'asked', cost, countIf }]);
    await asked({ cost: '3' });
    await asked({ cost: '7' }, '404');
    await until(() => limiter.peek('asked').remaining === 7, 'the refund of 7');
  });

  test(`${name}: a limiter of one's own may have a limit for each request`, async () => {
    const limiter = new Limiter({ limit: 1, windowMs: MINUTE, now: () => 0 });
    const plan = (...args) => Number(header(args[0], 'plan'));
    const ask = await serve([{ limiter, key, limit: plan }]);
    assert.deepEqual(await statusesOf(ask, [...times(3, { plan: '2' }), { plan: '3' }]), [200, 200, 429, 200]);
    assert.equal(limiter.peek('all').remaining, 0);
    assert.deepEqual(await statusesOf(await serve([{ limiter, key: () => 'b', limit: 2 }]), times(3, {})), [200, 200, 429]);
  });

  test(`${name}: a shared limiter has costs, and gives back the same`, async () => {
    const limiter = new SharedLimiter({ id: 'api', limit: 100, windowMs: MINUTE, store: new MemoryStore() });
    const cost = (...args) => Number(header(args[0], 'cost'));
    const refunds = [];
    limiter.refund = (...args) => refunds.push(args.slice(0, 2));
    const ask = await serve([{ limiter, key, cost, countIf: () => false }]);
    const costs = ['4', '6', '101'].map((cost) => ({ cost }));
    assert.deepEqual(await statusesOf(ask, costs), [200, 200, 429]);
    await until(() => refunds.length === 2, 'the refunds');
    assert.deepEqual(refunds, [['all', 4], ['all', 6]]);
    await limiter.close();
  });

  test(`${name}: an engine has costs by unit, and \`countIf\` refunds the same`, async () => {
    const rule = (unit, count) => ({ resource: 'chat', unit, count, intervalMs: MINUTE, key: ['clientIp'] });
    const engine = new Engine({ flowRules: [rule('requests', 9), rule('tokens', 100)] });
    const cost = async (...args) => ({ tokens: Number(header(args[0], 'tokens')) });
    const countIf = (_, response) => (response.statusCode ?? response.status) < 400;
    const ask = await serve([{ engine, resource: () => 'chat', key: () => ({ clientIp: 'a' }), cost, countIf }]);
    const left = () => engine.policies('chat', { key: { clientIp: 'a' } }).map(({ remaining }) => remaining);
    assert.deepEqual(await statusesOf(ask, ['60', '60', '30'].map((tokens) => ({ tokens }))), [200, 429, 200]);
    assert.deepEqual(left(), [7, 10]);
    assert.equal((await ask({ tokens: '10' }, '404')).status, 404);
    await until(() => left()[0] === 7, 'the refund');
    assert.deepEqual(left(), [7, 10]);
  });

  test(`${name}: an engine refuses a wrong cost of a request`, async () => {
    const engine = new Engine({ flowRules: [{ resource: 'chat', count: 1 }] });
    for (const [wrong, message] of [
      [undefined, 'options.cost(): `undefined` is not a valid cost; return a whole number from 0 to 4294967295, or an object with one for each unit'],
      [{ requests: -1 }, 'request.cost.requests: `-1` is not possible; use a whole number from 0 to 4294967295'],
    ]) {
      const ask = await serve([{ engine, resource: () => 'chat', key: () => ({}), cost: () => wrong }]);
      const { status, body } = await ask({});
      assert.deepEqual([status, body], [500, message]);
    }
  });

  test(`${name}: a limit of Infinity lets a request pass, charges nothing, gives nothing back, and is not told`, async () => {
    const limiter = new Limiter({ limit: 2, windowMs: MINUTE, now: () => 0 });
    const plan = (...args) => Number(header(args[0], 'plan'));
    const ask = await serve([{ limiter, key, limit: plan, countIf: () => false }]);
    limiter.limit('all');
    for (let i = 0; i < 5; i++) {
      const { status, headers } = await ask({ plan: 'Infinity' });
      assert.deepEqual([status, headers['ratelimit-policy'], headers.ratelimit], [200, undefined, undefined]);
    }
    await new Promise(setImmediate);
    assert.equal(limiter.peek('all').remaining, 1);
    limiter.block('all', 5000);
    assert.equal((await ask({ plan: 'Infinity' })).status, 429, 'a blocked key stays blocked');
    const free = await serve([{ limit: Infinity, windowMs: MINUTE, key, countIf: () => false }]);
    assert.deepEqual(await statusesOf(free, times(3, {})), [200, 200, 200]);
  });

  test(`${name}: a refusal that a limiter in shadow mode lets pass is reported, and not given back`, async () => {
    const limiter = new Limiter({ limit: 1, windowMs: MINUTE, mode: 'shadow' });
    const [reports, refunds] = [[], []];
    limiter.refund = (key) => refunds.push(key);
    const ask = await serve([{ limiter, key, countIf: async () => reports.length === 0, onRefused: ({ result }) => reports.push(result.shadowBlocked) }]);
    assert.deepEqual(await statusesOf(ask, times(2, {})), [200, 200]);
    await new Promise(setImmediate);
    assert.deepEqual([reports, refunds], [[true], []]);
  });

  test(`${name}: requests are decided as their limits become known`, async () => {
    const known = [];
    const limit = () => new Promise((resolve) => known.push(resolve));
    const ask = await serve([{ ...ONE, key, limit }]);
    const [first, second] = [ask({}), ask({})];
    await until(() => known.length === 2, 'both are asked about');
    known[1](1);
    assert.equal((await second).status, 200);
    known[0](1);
    assert.equal((await first).status, 429);
  });

  test(`${name}: refusals are reported, at most one of a key and ten in all in any second`, async (t) => {
    let ms = 5000;
    t.mock.method(performance, 'now', () => ms);
    const reports = [];
    const onRefused = ({ key, result, suppressed }) => void reports.push([key, result.success, result.rule, suppressed]);
    const ask = await serve([{ ...ONE, limit: 0, key: (...args) => header(args[0], 'client'), onRefused }]);
    const refuse = (client) => ask({ client });
    for (let i = 0; i < 3; i++) await refuse('a');
    assert.deepEqual(reports.splice(0), [['a', false, '60s', 0]]);
    ms += 999;
    await refuse('a');
    assert.deepEqual(reports, []);
    ms += 1;
    await refuse('a');
    assert.deepEqual(reports.splice(0), [['a', false, '60s', 3]]);
    for (let client = 0; client < 30; client++) await refuse(`${client}`);
    assert.deepEqual(reports.splice(0).map(([key]) => key), ['0', '1', '2', '3', '4', '5', '6', '7', '8'], 'ten with that of a');
    ms += 1000;
    await refuse('b');
    assert.deepEqual(reports.splice(0), [['b', false, '60s', 21]]);
    ms = 0;
    await refuse('b');
    assert.deepEqual(reports, [['b', false, '60s', 0]], 'a clock that goes back hides nothing');
  });

  test(`${name}: a request that passes is not reported`, async () => {
    const ask = await serve([{ ...ONE, key, onRefused: () => assert.fail('reported') }]);
    assert.equal((await ask({})).status, 200);
  });

  test(`${name}: what \`onRefused\` throws or rejects with is a warning, and no error of the request`, async () => {
    for (const fail of [() => { throw new Error('no log'); }, async () => { throw new Error('no log'); }]) {
      const ask = await serve([{ ...ONE, limit: 0, key, onRefused: fail }]);
      const warnings = await warningsOf(async () => assert.equal((await ask({})).status, 429));
      assert.deepEqual(warnings, [{ code: 'LEAPGATE_ON_REFUSED', message: 'leapgate: `onRefused` has thrown: no log' }]);
    }
  });
}

const { 'fastify, for a route': _, ...SEVERAL } = ADAPTERS;
const SECOND = { limit: 5, windowMs: 1000, now: () => 0 };

for (const [name, { serve }] of Object.entries(SEVERAL)) {
  const policies = ({ headers }) => [headers['ratelimit-policy'], headers.ratelimit];

  test(`${name}: the headers tell all limits of a request`, async () => {
    const ask = await serve([{ limit: 3, windowMs: MINUTE, now: () => 0, key }, { ...SECOND, key }]);
    assert.deepEqual(policies(await ask({})), ['"60s";q=3;w=60, "1s";q=5;w=1', '"60s";r=2;t=63, "1s";r=4;t=2']);
  });

  test(`${name}: a refusal by a later limit tells the earlier ones, and what it waits for`, async () => {
    const ask = await serve([{ limit: 3, windowMs: MINUTE, now: () => 0, key }, { ...SECOND, limit: 1, key, reply: { format: 'json' } }]);
    await ask({});
    const refused = await ask({});
    assert.equal(refused.status, 429);
    assert.deepEqual(policies(refused), ['"60s";q=3;w=60, "1s";q=1;w=1', '"60s";r=1, "1s";r=0;t=2']);
    assert.equal(refused.headers['retry-after'], '2');
    assert.deepEqual(JSON.parse(refused.body), { status: 429, error: 'too many requests', rule: '1s', retryAfterSeconds: 2 });
  });

  test(`${name}: limits of one name are told apart, also by a refusal`, async () => {
    const ask = await serve([{ ...ONE, limit: 3, key }, { ...ONE, key, reply: { format: 'problem' } }]);
    assert.deepEqual(policies(await ask({})), ['"60s";q=3;w=60, "60s-2";q=1;w=60', '"60s";r=2;t=63, "60s-2";r=0;t=63']);
    assert.deepEqual(JSON.parse((await ask({})).body)['violated-policies'], ['60s-2']);
  });

  test(`${name}: in the older forms, the headers tell the strictest of all limits`, async () => {
    for (const [draft, header, first, second] of [
      [7, 'ratelimit', 'limit=3, remaining=2, reset=63', 'limit=2, remaining=1, reset=2'],
      [6, 'ratelimit-remaining', '2', '1'],
      ['legacy', 'x-ratelimit-limit', '3', '2'],
    ]) {
      const minute = { limit: 3, windowMs: MINUTE, now: () => 0, key, draft };
      for (const [limit, expected] of [[5, first], [2, second]]) {
        const ask = await serve([minute, { ...SECOND, limit, key, draft }]);
        assert.equal((await ask({})).headers[header], expected);
      }
    }
  });

  test(`${name}: beside a limit of Infinity, the other limits of a request are told`, async () => {
    const ask = await serve([{ limit: Infinity, windowMs: MINUTE, key }, { ...ONE, key }]);
    assert.equal((await ask({})).headers['ratelimit-policy'], '"60s";q=1;w=60');
  });

  test(`${name}: a limit without headers is not told`, async () => {
    for (const [outer, inner, told] of [[false, 11, '"1s";r=4;t=2'], [11, false, '"60s";r=2;t=63'], [false, false, undefined]]) {
      const ask = await serve([{ limit: 3, windowMs: MINUTE, now: () => 0, key, draft: outer }, { ...SECOND, key, draft: inner }]);
      assert.equal((await ask({})).headers.ratelimit, told);
    }
  });
}

test('limits of several adapters on one request are told together', async () => {
  const app = new Hono().use(forHono({ ...SECOND, key })).get('/', (c) => c.text('hello'));
  const { headers } = await forFetch({ ...ONE, key })(app.fetch)(new Request('http://localhost/'));
  assert.equal(headers.get('ratelimit-policy'), '"60s";q=1;w=60, "1s";q=5;w=1');
  const both = createRequire(import.meta.url)('leapgate/express').leapgate;
  const url = await listen(http.createServer(express().use(forExpress({ ...ONE, key }), both({ ...SECOND, key }), (_, response) => response.end())));
  assert.equal((await get(url)).headers['ratelimit-policy'], '"60s";q=1;w=60, "1s";q=5;w=1');
});

test('two requests tell nothing of each other', async () => {
  const ask = await ADAPTERS.express.serve([{ ...ONE, limit: 5, key }, { ...SECOND, key }]);
  const answers = await Promise.all(times(3, {}).map(ask));
  assert.deepEqual(answers.map(({ headers }) => headers.ratelimit.match(/r=/g).length), [2, 2, 2]);
});

test('a middleware that a request meets twice tells its limit once', async () => {
  const limit = forExpress({ ...ONE, limit: 5, key });
  const url = await listen(http.createServer(express().use(limit, limit, (_, response) => response.end())));
  assert.equal((await get(url)).headers.ratelimit, '"60s";r=3;t=63');
});

for (const [name, read] of [
  ['express', (request, property) => request[property]],
  ['fastify', (request, property) => request[property]],
  ['hono', (c, property) => c.get(property)],
]) {
  test(`${name}: handlers find each decision by its name, the latest if several have one`, async () => {
    const seen = [];
    const minute = { limit: 3, windowMs: MINUTE, key };
    const look = (request) => seen.push(['rateLimit', 'perClient', 'perUser'].map((property) => read(request, property)?.rule));
    await (await SEVERAL[name].serve([{ ...minute, requestPropertyName: 'perClient' }, { ...SECOND, key, requestPropertyName: 'perUser' }], look))({});
    await (await SEVERAL[name].serve([minute, { ...SECOND, key }], look))({});
    assert.deepEqual(seen[0].slice(1), ['60s', '1s']);
    assert.ok(seen[0][0] === undefined);
    assert.deepEqual(seen[1], ['1s', undefined, undefined]);
  });
}

test('fastify: a request that is not limited has null under the name', async () => {
  const seen = [];
  const ask = await ADAPTERS.fastify.serve([{ ...ONE, key, skip: () => true, requestPropertyName: 'perUser' }], ({ perUser }) => seen.push(perUser));
  await ask({});
  assert.deepEqual(seen, [null]);
});

test('fastify: routes without limits of their own count together with all others', async () => {
  const app = Fastify();
  after(() => app.close());
  await app.register(forFastify, { ...ONE, limit: 10, key });
  app.get('/', async () => '');
  app.get('/report', { config: { rateLimit: { cost: 4 } } }, async () => '');
  app.get('/json', { config: { rateLimit: { reply: { format: 'json' } } } }, async () => '');
  const left = [];
  for (const path of ['/', '/report', '/json', '/report', '/report']) left.push((await app.inject(path)).headers.ratelimit);
  assert.deepEqual(left, [9, 5, 4, 0, 0].map((remaining) => `"60s";r=${remaining};t=63`));
});

test('in Workers, a report that takes time keeps its request alive', async () => {
  const kept = [];
  const ctx = { waitUntil: (promise) => kept.push(promise) };
  const limited = forFetch({ ...ONE, limit: 0, key, onRefused: async () => 'logged' })(() => assert.fail('reached'));
  assert.equal((await limited(new Request('http://localhost'), {}, ctx)).status, 429);
  assert.deepEqual(await Promise.all(kept), ['logged']);
});

test('the memory of reports is bounded', () => {
  const before = process.memoryUsage().heapUsed;
  const limited = forExpress({ ...ONE, limit: 0, key: (request) => request.key, onRefused() {}, draft: false });
  const response = { setHeader() {}, end() {} };
  for (let i = 0; i < 20_000; i++) limited({ key: `${i}`.padStart(1000) }, response);
  assert.ok(process.memoryUsage().heapUsed - before < 60e6);
});

const engine = new Engine({});
const limiter = new Limiter(ONE);
const shared = new SharedLimiter({ id: 'api', limit: 1, windowMs: 1000, store: new MemoryStore() });
for (const [options, message] of [
  [
    { limits: [ONE], limit: () => 5 },
    'options.limit: `a function` stands beside `limits`; leave one of them out',
  ],
  [{ limit: () => 5 }, 'options: `windowMs` is missing; add it'],
  [
    { engine, resource: () => 'a', limit: () => 5 },
    'options.limit: `a function` stands beside `engine`, which has its own; leave it out, or have rules read their `count` from metadata',
  ],
  [
    { limiter: shared, limit: 5 },
    'options.limit: `5` stands beside a shared limiter, whose limit all processes share; leave it out',
  ],
  [{ limiter, windowMs: 5 }, 'options.windowMs: `5` stands beside `limiter`, which has its own; leave it out'],
  [
    { limiter, limit: '5' },
    'options.limit: `5` is not a valid limit; use a number from 0 to 9007199254740992, or Infinity for no limit',
  ],
  [{ ...ONE, cost: '5' }, 'options.cost: `5` is not a valid cost; use a whole number from 0 to 4294967295'],
  [{ ...ONE, cost: {} }, 'options.cost: `{…}` is not a valid cost; use a whole number from 0 to 4294967295'],
  [
    { engine, resource: () => 'a', cost: -1 },
    'options.cost: `-1` is not a valid cost; use a whole number from 0 to 4294967295, or an object with one for each unit',
  ],
  [
    { ...ONE, onRefused: 'log' },
    'options.onRefused: `log` is not a function; use one that reports a refusal, as in `({ key, result, suppressed }) => …`',
  ],
  [{ ...ONE, requestPropertyName: '' }, "options.requestPropertyName: `` is not a valid name; use one as in 'rateLimit'"],
  [{ ...ONE, points: 5 }, 'options.points: `5` means nothing here; use `limit`'],
  [{ ...ONE, weight: 5 }, 'options.weight: `5` means nothing here; use `cost`'],
  [{ ...ONE, onLimitReached() {} }, 'options.onLimitReached: `a function` means nothing here; use `onRefused`'],
]) {
  test(`options: ${message}`, () => assert.throws(() => forExpress(options), { code: 'ERR_LEAPGATE_OPTIONS', message }));
}

test('options: a wrong number is a RangeError, anything else a TypeError', () => {
  for (const [name, value, error] of [
    ['cost', -1, RangeError],
    ['cost', '1', TypeError],
    ['reply', { status: 200 }, RangeError],
    ['reply', { status: '429' }, TypeError],
    ['key', 5, TypeError],
  ]) {
    assert.throws(() => forExpress({ ...ONE, [name]: value }), error);
  }
});

test('a client is let in again by its address', async () => {
  const limiter = new Limiter(ONE);
  const url = await listen(http.createServer(express().use(forExpress({ limiter }), (_, response) => response.end())));
  assert.deepEqual([(await get(url)).status, (await get(url)).status], [200, 429]);
  limiter.reset(ipKey('::ffff:127.0.0.1'));
  assert.equal((await get(url)).status, 200);
});
