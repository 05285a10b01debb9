import assert from 'node:assert/strict';
import http from 'node:http';
import test from 'node:test';
import connect from 'connect';
import express5 from 'express';
import express4 from 'express4';
import { Limiter } from 'leapgate';
import { leapgate } from 'leapgate/express';
import { assertHeld, flood, get, listen, stepClock, until, visitor, warningsOf } from './http.mjs';

const LIMITS = { limit: 20, windowMs: 100 };

// A server of each kind, with a middleware and a handler behind it.
const servers = {
  'express 5': (limit, handler) => express5().use(limit).use(handler),
  'express 4': (limit, handler) => express4().use(limit).use(handler),
  connect: (limit, handler) => connect().use(limit).use(handler),
  'node:http': (limit, handler) => (request, response) =>
    limit(request, response, (error) => {
      if (error === undefined) return handler(request, response);
      response.statusCode = 500;
      response.end(error.message);
    }),
};

const serve = (kind, options, handler = (request, response) => response.end('hello')) =>
  listen(http.createServer(servers[kind](leapgate(options), handler)));

for (const kind of Object.keys(servers)) {
  test(`${kind}: never admits more than the limit in any window`, async () => {
    const clock = stepClock();
    const key = () => String(clock.step() && 'all');
    const url = await serve(kind, { ...LIMITS, key, now: clock.now }, (request, response) => {
      clock.admit();
      response.end('hello');
    });
    assertHeld(clock, await flood(() => get(url), 600), LIMITS);
  });

  test(`${kind}: a passed response has the limit, and a refusal the time to try again`, async () => {
    const seen = [];
    const url = await serve(kind, { limit: 1, windowMs: 60_000, now: () => 0 }, (request, response) => {
      seen.push(request.rateLimit.remaining);
      response.end('hello');
    });
    const passed = await get(url);
    assert.deepEqual([passed.status, passed.body], [200, 'hello']);
    assert.equal(passed.headers['ratelimit-policy'], '"60s";q=1;w=60');
    assert.equal(passed.headers.ratelimit, '"60s";r=0;t=63');
    assert.equal(passed.headers['retry-after'], undefined);
    const refused = await get(url);
    assert.deepEqual([refused.status, refused.body], [429, 'too many requests']);
    assert.equal(refused.headers['ratelimit-policy'], '"60s";q=1;w=60');
    assert.equal(refused.headers.ratelimit, '"60s";r=0;t=63');
    assert.equal(refused.headers['retry-after'], '63');
    assert.equal(refused.headers['cache-control'], 'no-store');
    assert.equal(refused.headers['content-type'], 'text/plain; charset=utf-8');
    assert.deepEqual(seen, [0], 'a refused request reaches no handler');
  });

  test(`${kind}: limits by the client's address, unless a key is given`, async () => {
    const address = await serve(kind, { limit: 1, windowMs: 60_000 });
    assert.deepEqual([(await get(address)).status, (await get(address)).status], [200, 429]);
    const key = await serve(kind, { limit: 1, windowMs: 60_000, key: async (request) => request.headers['x-key'] });
    const statuses = [];
    for (const client of ['a', 'b', 'a']) statuses.push((await get(key, { headers: { 'x-key': client } })).status);
    assert.deepEqual(statuses, [200, 200, 429]);
  });

  test(`${kind}: does not count a skipped request`, async () => {
    const skip = (request) => request.url === '/health';
    const url = await serve(kind, { limit: 1, windowMs: 60_000, skip });
    const statuses = [];
    for (const path of ['/health', '/', '/health', '/']) statuses.push((await get(url + path)).status);
    assert.deepEqual(statuses, [200, 200, 200, 429]);
  });

  test(`${kind}: refunds requests that do not count`, async () => {
    const countIf = (request, response) => response.statusCode < 400;
    const url = await serve(kind, { limit: 2, windowMs: 60_000, countIf }, (request, response) => {
      response.statusCode = request.url === '/missing' ? 404 : 200;
      response.end();
    });
    const statuses = [];
    for (const path of ['/missing', '/missing', '/missing', '/', '/missing', '/', '/missing'])
      statuses.push((await get(url + path)).status);
    assert.deepEqual(statuses, [404, 404, 404, 200, 404, 200, 429]);
  });

  test(`${kind}: a request counts if \`countIf\` throws, and it warns`, async () => {
    const countIf = () => {
      throw new Error('no idea');
    };
    const url = await serve(kind, { limit: 1, windowMs: 60_000, countIf });
    const warnings = await warningsOf(async () => {
      assert.deepEqual([(await get(url)).status, (await get(url)).status], [200, 429]);
    });
    assert.deepEqual(warnings, [
      { code: 'LEAPGATE_COUNT_IF', message: 'leapgate: `countIf` has thrown, and the request counts: no idea' },
    ]);
  });

  for (const [how, key] of [
    [
      'throws',
      () => {
        throw new Error('no key');
      },
    ],
    [
      'rejects',
      async () => {
        throw new Error('no key');
      },
    ],
  ]) {
    test(`${kind}: a key that ${how} is an error of the request`, async () => {
      const url = await serve(kind, { limit: 1, windowMs: 60_000, key }, () => assert.fail('reached'));
      assert.equal((await get(url)).status, 500);
    });
  }

  test(`${kind}: a function that fails to answer is an error of the request`, async () => {
    const fail = () => {
      throw new Error('no answer');
    };
    for (const reply of [fail, async () => fail()]) {
      const key = async () => 'a';
      const url = await serve(kind, { limit: 0, windowMs: 60_000, key, reply });
      assert.match((await get(url)).body, /no answer/);
    }
  });

  test(`${kind}: a client that leaves before its key is known is refunded`, async () => {
    let reached;
    const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
    const refunded = [];
    limiter.refund = (key) => refunded.push(key);
    const asked = new Promise((resolve) => (reached = resolve));
    let known;
    const key = () => (reached(), new Promise((resolve) => (known = resolve)));
    let closed = 0;
    const app = servers[kind](leapgate({ limiter, key, countIf: () => false }), () => {});
    const url = await listen(
      http.createServer((request, response) => {
        response.on('close', () => closed++);
        app(request, response);
      }),
    );
    const gone = await visitor(url, '/');
    await asked;
    gone.leave();
    await until(() => closed === 1, 'the server notices');
    known('a');
    await until(() => refunded[0] === 'a', 'the charge is refunded');
  });
}

for (const kind of ['express 5', 'express 4']) {
  const app = kind === 'express 5' ? express5 : express4;

  test(`${kind}: behind a trusted proxy, each client has a limit of its own`, async () => {
    const server = app()
      .set('trust proxy', 1)
      .use(leapgate({ limit: 1, windowMs: 60_000 }))
      .use((_, response) => response.end());
    const url = await listen(http.createServer(server));
    const warnings = await warningsOf(async () => {
      const statuses = [];
      for (const client of ['192.0.2.1', '192.0.2.2', '6.6.6.6, 192.0.2.1', '2001:db8::1', '2001:db8::2', '::ffff:192.0.2.2']) {
        statuses.push((await get(url, { headers: { 'X-Forwarded-For': client } })).status);
      }
      assert.deepEqual(statuses, [200, 200, 429, 200, 429, 429]);
    });
    assert.deepEqual(warnings, []);
  });

  test(`${kind}: behind an untrusted proxy, all clients share one limit, and it warns once`, async () => {
    const server = app()
      .use(leapgate({ limit: 1, windowMs: 60_000 }))
      .use((_, response) => response.end());
    const url = await listen(http.createServer(server));
    const warnings = await warningsOf(async () => {
      const statuses = [];
      for (const client of ['192.0.2.1', '192.0.2.2']) {
        statuses.push((await get(url, { headers: { 'X-Forwarded-For': client } })).status);
      }
      assert.deepEqual(statuses, [200, 429]);
    });
    const message =
      'leapgate: a request has a header of a proxy, which is not trusted: behind a proxy, all of its clients share one limit; ' +
      "tell Express with `app.set('trust proxy', 1)`, or pass `key`";
    assert.deepEqual(warnings, [{ code: 'LEAPGATE_PROXY', message }]);
  });

  test(`${kind}: where all addresses are trusted as proxies, it warns once, with or without a header of one`, async () => {
    for (const headers of [{}, { 'X-Forwarded-For': '192.0.2.1' }]) {
      const server = app()
        .set('trust proxy', true)
        .use(leapgate({ limit: 5, windowMs: 60_000 }))
        .use((_, response) => response.end());
      const url = await listen(http.createServer(server));
      const warnings = await warningsOf(async () => {
        for (let i = 0; i < 2; i++) assert.equal((await get(url, { headers })).status, 200);
      });
      const message =
        'leapgate: Express trusts all addresses as proxies, so that a client can evade its limit by a header with another address; ' +
        "say how many proxies of yours a request passes, as in `app.set('trust proxy', 1)`, or pass `key`";
      assert.deepEqual(warnings, [{ code: 'LEAPGATE_TRUST_PROXY', message }]);
    }
  });

  test(`${kind}: with a key of its own, it does not warn of proxies`, async () => {
    for (const trust of [true, false]) {
      const server = app()
        .set('trust proxy', trust)
        .use(leapgate({ limit: 5, windowMs: 60_000, key: () => 'all' }))
        .use((_, response) => response.end());
      const url = await listen(http.createServer(server));
      assert.deepEqual(await warningsOf(() => get(url, { headers: { 'X-Forwarded-For': '192.0.2.1' } })), []);
    }
  });

  test(`${kind}: clients without a valid address share one limit, and it warns once`, async () => {
    const server = app()
      .set('trust proxy', 1)
      .use(leapgate({ limit: 1, windowMs: 60_000 }))
      .use((_, response) => response.end());
    const url = await listen(http.createServer(server));
    const warnings = await warningsOf(async () => {
      const statuses = [];
      for (const client of ['nobody', 'noone'])
        statuses.push((await get(url, { headers: { 'X-Forwarded-For': client } })).status);
      assert.deepEqual(statuses, [200, 429]);
    });
    const message = "leapgate: `nobody` is not a client's address, and all clients without one share their limit; pass `key`";
    assert.deepEqual(warnings, [{ code: 'LEAPGATE_ADDRESS', message }]);
  });

  test(`${kind}: limits of two routes are two limits`, async () => {
    const server = app();
    const hello = (_, response) => response.end();
    server.get('/a', leapgate({ limit: 1, windowMs: 60_000 }), hello);
    server.get('/b', leapgate({ limit: 1, windowMs: 60_000 }), hello);
    const url = await listen(http.createServer(server));
    const statuses = [];
    for (const path of ['/a', '/b', '/a', '/b']) statuses.push((await get(url + path)).status);
    assert.deepEqual(statuses, [200, 200, 429, 429]);
  });
}

const replies = [
  [{ format: 'json' }, 429, 'application/json', { status: 429, error: 'too many requests', rule: '60s', retryAfterSeconds: 63 }],
  [
    { format: 'json', status: 503, body: 'later' },
    503,
    'application/json',
    { status: 503, error: 'later', rule: '60s', retryAfterSeconds: 63 },
  ],
  [
    { format: 'problem' },
    429,
    'application/problem+json',
    {
      type: 'https://iana.org/assignments/http-problem-types#quota-exceeded',
      title: 'Quota exceeded',
      status: 429,
      detail: 'too many requests',
      'violated-policies': ['60s'],
    },
  ],
];
for (const [reply, status, type, body] of replies) {
  test(`reply: ${JSON.stringify(reply)}`, async () => {
    const url = await serve('express 5', { limit: 1, windowMs: 60_000, now: () => 0, reply });
    await get(url);
    const refused = await get(url);
    assert.deepEqual([refused.status, refused.headers['content-type'], JSON.parse(refused.body)], [status, type, body]);
    assert.equal(refused.headers['retry-after'], '63');
  });
}

test('reply: the refusal of a blocked key names no rule', async () => {
  const limiter = new Limiter({ limit: 1, windowMs: 60_000, now: () => 0 });
  limiter.block('a', 5000);
  for (const [format, body] of [
    ['json', { status: 429, error: 'too many requests', rule: null, retryAfterSeconds: 5 }],
    ['problem', { ...replies[2][3], 'violated-policies': undefined }],
  ]) {
    const url = await serve('express 5', { limiter, key: () => 'a', reply: { format } });
    const refused = await get(url);
    assert.deepEqual([refused.headers['retry-after'], JSON.parse(refused.body)], ['5', JSON.parse(JSON.stringify(body))]);
  }
});

test('reply: its own headers', async () => {
  const url = await serve('express 5', {
    limit: 0,
    windowMs: 1000,
    reply: { headers: { 'X-By': 'us', 'Cache-Control': 'private' } },
  });
  const { headers } = await get(url);
  assert.deepEqual([headers['x-by'], headers['cache-control'], headers['retry-after']], ['us', 'private', undefined]);
});

test('reply: a function answers after status and headers are set', async () => {
  const reply = (request, response, result) => response.json(`${request.path} ${result.rule} ${response.statusCode}`);
  const url = await serve('express 5', { limit: 1, windowMs: 60_000, reply });
  await get(url);
  const refused = await get(`${url}/x`);
  assert.deepEqual(
    [refused.status, refused.body, refused.headers['content-type']],
    [429, '"/x 60s 429"', 'application/json; charset=utf-8'],
  );
  assert.notEqual(refused.headers['retry-after'], undefined);
});

for (const [draft, names] of [
  [11, ['ratelimit', 'ratelimit-policy']],
  [7, ['ratelimit', 'ratelimit-policy']],
  [6, ['ratelimit-limit', 'ratelimit-policy', 'ratelimit-remaining', 'ratelimit-reset']],
  ['legacy', ['x-ratelimit-limit', 'x-ratelimit-remaining', 'x-ratelimit-reset']],
  [false, []],
]) {
  test(`draft: ${draft}`, async () => {
    const url = await serve('express 5', { limit: 1, windowMs: 60_000, draft });
    for (const [status, more] of [
      [200, []],
      [429, ['retry-after']],
    ]) {
      const answer = await get(url);
      const limits = Object.keys(answer.headers).filter((name) => name.includes('ratelimit') || name === 'retry-after');
      assert.deepEqual([answer.status, limits.sort()], [status, [...names, ...more].sort()]);
    }
  });
}

const engine = { enter() {} };
for (const [options, message] of [
  [undefined, 'options: `undefined` is not an object; use one, as in `{ limit: 100, windowMs: 60_000 }`'],
  [
    { limit: 1, windowMs: 1000, skipp: true },
    'options.skipp: `true` means nothing here; use one of `key`, `cost`, `skip`, `countIf`, `onRefused`, `draft`, `reply`, `engine`, `resource`, `origin`, `limiter`, `requestPropertyName`, `limit`, `windowMs`, `window`, `sampleCount`, `id`, `limits`, `maxKeys`, `mode`, `clock`, `now`',
  ],
  [
    { limit: 1, windowMs: 1000, key: 'ip' },
    'options.key: `ip` is not a function; use one that returns whom to limit, as in `(request) => ipKey(address)`',
  ],
  [
    { limit: 1, windowMs: 1000, skip: true },
    'options.skip: `true` is not a function; use one that returns whether a request is not to be limited',
  ],
  [
    { limit: 1, windowMs: 1000, countIf: 404 },
    'options.countIf: `404` is not a function; use one that returns whether a request counts',
  ],
  [
    { limit: 1, windowMs: 1000, draft: 8 },
    "options.draft: `8` is not a valid form of these headers; use 11, 7, 6, 'legacy', or false for none",
  ],
  [
    { limit: 1, windowMs: 1000, reply: 'no' },
    "options.reply: `no` is not a valid reply; use a function, or an object as in `{ format: 'json' }`",
  ],
  ...[
    ['max', 'limit'],
    ['points', 'limit'],
    ['duration', 'windowMs', ', in milliseconds'],
    ['timeWindow', 'windowMs', ', in milliseconds'],
    ['keyGenerator', 'key'],
    ['allowList', 'skip'],
    ['skipFailedRequests', 'countIf'],
    ['standardHeaders', 'draft'],
    ['handler', 'reply'],
    ['statusCode', 'reply'],
  ].map(([theirs, ours, unit = '']) => [
    { limit: 1, windowMs: 1000, [theirs]: 'x' },
    `options.${theirs}: \`x\` means nothing here; use \`${ours}\`${unit}`,
  ]),
  [
    { limit: 1, windowMs: 1000, reply: { code: 429 } },
    'options.reply.code: `429` means nothing here; use `status`',
  ],
  [
    { limit: 1, windowMs: 1000, reply: { status: 200 } },
    'options.reply.status: `200` is not a valid status of a refusal; use 429, or another from 400 to 599',
  ],
  [
    { limit: 1, windowMs: 1000, reply: { format: 'xml' } },
    "options.reply.format: `xml` is not a valid format; use one of 'text', 'json', 'problem'",
  ],
  [{ limit: 1, windowMs: 1000, reply: { body: {} } }, 'options.reply.body: `{…}` is not a string; use one'],
  [
    { limit: 1, windowMs: 1000, reply: { headers: 'a' } },
    "options.reply.headers: `a` is not an object; use one, as in `{ 'X-Limited-By': 'leapgate' }`",
  ],
  [
    { limit: 1, windowMs: 1000, resource: () => 'a' },
    'options.resource: `a function` is for the rules of an engine; add `engine`, or leave it out',
  ],
  [{ engine }, "options.resource: `undefined` is not a function; use one that names what is limited, as in `() => 'login'`"],
  [{ engine: {}, resource: () => 'a' }, 'options.engine: `{…}` is not an Engine; use one, or the limits themselves'],
  [
    { engine, resource: () => 'a', limit: 1 },
    'options.limit: `1` stands beside `engine`, which has its own; leave it out, or have rules read their `count` from metadata',
  ],
  [{ engine, resource: () => 'a', windowMs: 1 }, 'options.windowMs: `1` stands beside `engine`, which has its own; leave it out'],
  [{ engine, resource: () => 'a', limiter: {} }, 'options.limiter: `{…}` stands beside `engine`; leave one of them out'],
  [{ limiter: { limit() {} } }, 'options.limiter: `{…}` is not a Limiter; use one, or the limits themselves'],
]) {
  test(`options: ${message}`, () => assert.throws(() => leapgate(options), { message }));
}
