import assert from 'node:assert/strict';
import test from 'node:test';
import { createAdaptorServer } from '@hono/node-server';
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { leapgate } from 'leapgate/fetch';
import { assertHeld, flood, get, listen, stepClock, until, warningsOf } from './http.mjs';

const MINUTE = 60_000;
const request = (headers, path = '/') => new Request(`http://localhost${path}`, { headers });

async function statusesOf(limited, requests) {
  const statuses = [];
  for (const request of requests) statuses.push((await limited(request)).status);
  return statuses;
}

const hello = () => new Response('hello');

test('fetch: never admits more than the limit in any window', async () => {
  const clock = stepClock();
  const limits = { limit: 20, windowMs: 100 };
  const limited = leapgate({ ...limits, key: () => (clock.step(), 'all'), now: clock.now });
  const fetch = limited(() => {
    clock.admit();
    return new Response('hello');
  });
  const url = await listen(createAdaptorServer({ fetch }));
  assertHeld(clock, await flood(() => get(url), 600), limits);
});

test('fetch: a passed response has the limit, and a refusal the time to try again', async () => {
  let calls = 0;
  const limited = leapgate({ limit: 1, windowMs: MINUTE, now: () => 0, key: () => 'all', reply: { format: 'problem' } });
  const fetch = limited(async () => {
    calls++;
    return new Response('hello', { headers: { 'X-Mine': 'kept' } });
  });
  const passed = await fetch(request());
  assert.deepEqual([passed.status, await passed.text(), passed.headers.get('x-mine')], [200, 'hello', 'kept']);
  assert.equal(passed.headers.get('ratelimit'), '"60s";r=0;t=63');
  const refused = await fetch(request());
  assert.deepEqual([refused.status, refused.headers.get('retry-after')], [429, '63']);
  assert.equal(refused.headers.get('content-type'), 'application/problem+json');
  assert.deepEqual((await refused.json())['violated-policies'], ['60s']);
  assert.equal(calls, 1, 'a refused request reaches no handler');
});

test('fetch: passes on the arguments of the runtime, and `this`', async () => {
  const limited = leapgate({ limit: 1, windowMs: MINUTE, key: (request, env, context) => env.user + context.id });
  const worker = {
    name: 'worker',
    fetch: limited(function (request, env, context) {
      return Response.json([this.name, env.user, context.id]);
    }),
  };
  const response = await worker.fetch(request(), { user: 'a' }, { id: 1 });
  assert.deepEqual(await response.json(), ['worker', 'a', 1]);
  assert.equal((await worker.fetch(request(), { user: 'a' }, { id: 1 })).status, 429);
  assert.equal((await worker.fetch(request(), { user: 'a' }, { id: 2 })).status, 200);
});

test('fetch: handlers of one limit share it', async () => {
  const limited = leapgate({ limit: 1, windowMs: MINUTE, key: () => 'all' });
  const [GET, POST] = [limited(hello), limited(hello)];
  assert.deepEqual([(await GET(request())).status, (await POST(request())).status], [200, 429]);
});

const sources = [
  [
    'cloudflare',
    [
      ['cf-connecting-ip', '192.0.2.1'],
      ['cf-connecting-ip', '192.0.2.2'],
      ['cf-connecting-ip', '192.0.2.1'],
    ],
    [200, 200, 429],
  ],
  [
    { header: 'x-real-ip' },
    [
      ['x-real-ip', '192.0.2.1'],
      ['x-real-ip', '192.0.2.2'],
      ['x-real-ip', '192.0.2.1'],
    ],
    [200, 200, 429],
  ],
  // A forged address comes before the addresses that proxies append.
  [
    { header: 'x-forwarded-for' },
    [
      ['x-forwarded-for', '6.6.6.6, 192.0.2.1'],
      ['x-forwarded-for', '6.6.6.7,192.0.2.1'],
      ['x-forwarded-for', '192.0.2.2'],
    ],
    [200, 429, 200],
  ],
  [
    { header: 'x-forwarded-for', hops: 2 },
    [
      ['x-forwarded-for', '6.6.6.6, 192.0.2.1, 10.0.0.1'],
      ['x-forwarded-for', '192.0.2.1, 10.0.0.2'],
      ['x-forwarded-for', '192.0.2.2, 10.0.0.1'],
    ],
    [200, 429, 200],
  ],
  [
    { header: 'x-forwarded-for', hops: 3 },
    [
      ['x-forwarded-for', '192.0.2.1, 10.0.0.1'],
      ['x-forwarded-for', '192.0.2.1'],
    ],
    [200, 429],
  ],
  [
    (request) => request.headers.get('client'),
    [
      ['client', '2001:db8::1'],
      ['client', '2001:db8::2'],
      ['client', '192.0.2.1'],
    ],
    [200, 429, 200],
  ],
];
for (const [ip, headers, statuses] of sources) {
  test(`fetch: the address of ${typeof ip === 'function' ? 'a function' : JSON.stringify(ip)}`, async () => {
    const fetch = leapgate({ limit: 1, windowMs: MINUTE, ip })(hello);
    assert.deepEqual(
      await statusesOf(
        fetch,
        headers.map((header) => request([header])),
      ),
      statuses,
    );
  });
}

test('fetch: clients without an address share one limit, and it warns once', async () => {
  const fetch = leapgate({ limit: 1, windowMs: MINUTE, ip: 'cloudflare' })(hello);
  const warnings = await warningsOf(async () => assert.deepEqual(await statusesOf(fetch, [request(), request()]), [200, 429]));
  const message =
    "leapgate: `undefined` is not a client's address, and all clients without one share their limit; look at `ip`, or pass `key`";
  assert.deepEqual(warnings, [{ code: 'LEAPGATE_ADDRESS', message }]);
});

test('fetch: skips requests, and refunds requests that do not count', async () => {
  const limited = leapgate({
    limit: 1,
    windowMs: MINUTE,
    key: () => 'all',
    skip: (request) => request.url.endsWith('/health'),
    countIf: async (request, { status }) => status < 400,
  });
  const fetch = limited((request) => new Response('', { status: request.url.endsWith('/missing') ? 404 : 200 }));
  const paths = ['/health', '/missing', '/missing', '/', '/missing', '/', '/health'];
  assert.deepEqual(
    await statusesOf(
      fetch,
      paths.map((path) => request({}, path)),
    ),
    [200, 404, 404, 200, 429, 429, 200],
  );
});

test('fetch: a refund gives back the charge of its request, not a later one', async () => {
  let [ms, answer] = [0, undefined];
  const limiter = new Limiter({ limit: 2, windowMs: 1000, now: () => ms });
  const countIf = (request) => request.url.endsWith('/counts');
  const fetch = leapgate({ limiter, key: () => 'all', countIf })((request) =>
    countIf(request) ? new Response() : new Promise((resolve) => (answer = () => resolve(new Response()))),
  );
  const slow = fetch(request({}, '/slow'));
  await until(() => answer !== undefined, 'the slow one is in');
  ms = 850;
  assert.equal((await fetch(request({}, '/counts'))).status, 200);
  ms = 900;
  answer();
  await slow;
  // Any second around 850 has that charge.
  for (const [at, remaining] of [
    [900, 1],
    [1049, 1],
    [1050, 1],
    [1899, 1],
    [1900, 2],
  ]) {
    ms = at;
    assert.equal(limiter.peek('all').remaining, remaining, `at ${at}`);
  }
});

test('fetch: a response that switches protocols is left as it is', async () => {
  const headers = {
    set() {
      throw new TypeError('immutable');
    },
  };
  const upgrade = { status: 101, headers, body: null };
  const options = { key: () => 'all', limit: 5, windowMs: MINUTE };
  assert.equal(await leapgate(options)(() => upgrade)(request()), upgrade);
});

test('fetch: the error of a handler is rethrown, and the request counts', async () => {
  const fetch = leapgate({ limit: 1, windowMs: MINUTE, key: () => 'all', countIf: () => false })(() => {
    throw new Error('fails');
  });
  await assert.rejects(fetch(request()), { message: 'fails' });
  assert.equal((await fetch(request())).status, 429);
});

test('fetch: an immutable response gets the headers in a copy', async () => {
  const frozen = await fetch('data:text/plain,hello');
  const response = await leapgate({ limit: 5, windowMs: MINUTE, now: () => 0, key: () => 'all' })(() => frozen)(request());
  assert.deepEqual([response.status, await response.text(), response.headers.get('ratelimit')], [200, 'hello', '"60s";r=4;t=63']);
});

test('fetch: a function may answer instead', async () => {
  const reply = (request, result) => new Response(`${request.method} ${result.rule}`, { status: 420 });
  const refused = await leapgate({ limit: 0, windowMs: MINUTE, key: () => 'all', reply })(hello)(request());
  assert.deepEqual(
    [refused.status, await refused.text(), refused.headers.get('ratelimit-policy')],
    [420, 'GET 60s', '"60s";q=0;w=60'],
  );
});

const LIMITS = { limit: 1, windowMs: 1000 };
for (const [options, message] of [
  [LIMITS, "options.ip: nothing says whom to limit; use 'cloudflare', `{ header, hops }` or a function, or pass `key`"],
  [
    { ...LIMITS, ip: 'aws' },
    "options.ip: `aws` is not a valid source of addresses; use 'cloudflare', `{ header: 'x-forwarded-for', hops: 1 }` or a function",
  ],
  [
    { ...LIMITS, ip: { header: 'a b' } },
    "options.ip.header: `a b` is not a valid header; use the one that your proxy sets, as in 'x-forwarded-for'",
  ],
  [
    { ...LIMITS, ip: { header: 'a', hops: 0 } },
    'options.ip.hops: `0` is not a valid number of proxies; use a whole number from 1, how many of yours a request passes',
  ],
  [{ ...LIMITS, ip: { header: 'a', hop: 1 } }, 'options.ip.hop: `1` means nothing here; use one of `header`, `hops`'],
  [{ ...LIMITS, ip: 'cloudflare', key: () => 'a' }, 'options.ip: `cloudflare` stands beside `key`; leave one of them out'],
]) {
  test(`options: ${message}`, () => assert.throws(() => leapgate(options), { message }));
}

test('options: no handler', () => {
  const message = 'handler: `null` is not a function; use the one that answers requests';
  assert.throws(() => leapgate({ ...LIMITS, key: () => 'a' })(), { message });
});

test('fetch: a result other than a response is passed on unchanged, and ends the entry', async () => {
  for (const answer of [undefined, null, 'hello', { status: 101 }, { headers: new Headers() }]) {
    const asked = [];
    const countIf = (_, response) => (asked.push(response), true);
    const limited = leapgate({ ...LIMITS, key: () => 'all', countIf })(() => answer);
    assert.equal(await limited(request()), answer);
    assert.equal((await limited(request())).status, 429, 'it was charged');
    assert.deepEqual(asked, [], 'there is no response to ask about');

    const engine = new Engine({ flowRules: [{ resource: 'all', count: 1, grade: 'concurrency' }] });
    const entered = leapgate({ engine, resource: () => 'all', countIf })(async () => answer);
    for (let i = 0; i < 3; i++) assert.equal(await entered(request()), answer);
    assert.equal(engine.nodes.cluster('all').totalSuccess(), 3, 'each has ended');
  }
});

test('fetch: a response of another library counts as a response', async () => {
  const headers = new Headers();
  const response = { status: 200, headers, body: null };
  assert.equal(await leapgate({ ...LIMITS, key: () => 'all' })(() => response)(request()), response);
  assert.equal(headers.get('ratelimit-policy'), '"1s";q=1;w=1');
});
