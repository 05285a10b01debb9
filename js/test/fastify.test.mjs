import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import test, { after } from 'node:test';
import fastify from 'fastify';
import { Engine } from 'leapgate/engine';
import plugin, { leapgate } from 'leapgate/fastify';
import { assertHeld, flood, get, stepClock, warningsOf } from './http.mjs';

// A server with the routes that `add` adds to it.
async function serve(add, options = {}) {
  const app = fastify({ forceCloseConnections: true, ...options });
  after(() => app.close());
  await add(app);
  return app.listen({ host: '127.0.0.1', port: 0 });
}

async function statusesOf(url, paths, init) {
  const statuses = [];
  for (const path of paths) statuses.push((await get(url + path, init)).status);
  return statuses;
}

const MINUTE = 60_000;

test('fastify: never admits more than the limit in any window', async () => {
  const clock = stepClock();
  const limits = { limit: 20, windowMs: 100 };
  const url = await serve(async (app) => {
    await app.register(leapgate({ ...limits, key: () => (clock.step(), 'all'), now: clock.now }));
    app.get('/', async () => {
      clock.admit();
      return 'hello';
    });
  });
  assertHeld(clock, await flood(() => get(url), 600), limits);
});

test('fastify: a passed response has the limit, and a refusal the time to try again', async () => {
  const seen = [];
  const url = await serve(async (app) => {
    await app.register(leapgate({ limit: 1, windowMs: MINUTE, now: () => 0, reply: { format: 'problem' } }));
    app.get('/', async (request) => {
      seen.push(request.rateLimit.remaining);
      return 'hello';
    });
  });
  const passed = await get(url);
  assert.deepEqual([passed.status, passed.body, passed.headers.ratelimit], [200, 'hello', '"60s";r=0;t=63']);
  const refused = await get(url);
  assert.deepEqual([refused.status, refused.headers.ratelimit, refused.headers['retry-after']], [429, '"60s";r=0;t=63', '63']);
  assert.equal(refused.headers['content-type'], 'application/problem+json; charset=utf-8');
  assert.deepEqual(JSON.parse(refused.body)['violated-policies'], ['60s']);
  assert.deepEqual(seen, [0], 'a refused request reaches no handler');
});

test('fastify: one limit for all routes: sibling plugins, nested ones, and requests without a route', async () => {
  for (const paths of [
    ['/a', '/b'],
    ['/b', '/c/d'],
    ['/missing', '/a'],
    ['/c/missing', '/also/missing'],
    ['/c/d', '/missing'],
  ]) {
    const url = await serve(async (app) => {
      app.register(leapgate({ limit: 1, windowMs: MINUTE }));
      app.register(async (sibling) => sibling.get('/a', async () => 'a'));
      app.get('/b', async () => 'b');
      app.register(
        async (sibling) => {
          sibling.setNotFoundHandler((_, reply) => reply.code(404).send('nothing'));
          sibling.register(async (nested) => nested.get('/d', async () => 'd'));
        },
        { prefix: '/c' },
      );
    });
    const first = paths[0].includes('missing') ? 404 : 200;
    assert.deepEqual(await statusesOf(url, paths), [first, 429], paths.join(' '));
  }
});

test('fastify: earlier routes of the same instance are limited', async () => {
  const url = await serve(async (app) => {
    app.get('/a', { config: { rateLimit: { limit: 2, windowMs: MINUTE } } }, async () => 'a');
    app.get('/b', async () => 'b');
    app.register(leapgate({ limit: 1, windowMs: MINUTE }));
  });
  assert.deepEqual(await statusesOf(url, ['/b', '/b', '/a', '/a', '/a']), [200, 429, 200, 200, 429]);
});

test('fastify: a route may have a limit of its own, or none', async () => {
  const own = { limit: 2, windowMs: MINUTE };
  const url = await serve(async (app) => {
    await app.register(leapgate({ limits: [{ limit: 1, windowMs: MINUTE }] }));
    app.get('/all', async () => '');
    app.get('/own', { config: { rateLimit: own } }, async () => '');
    app.get('/other', { config: { rateLimit: own } }, async () => '');
    app.get('/none', { config: { rateLimit: false } }, async () => '');
  });
  const paths = ['/all', '/all', '/own', '/own', '/own', '/other', '/other', '/other', '/none', '/none', '/none'];
  assert.deepEqual(await statusesOf(url, paths), [200, 429, 200, 200, 429, 200, 200, 429, 200, 200, 200]);
});

test('fastify: a route inherits the options that it does not set', async () => {
  const url = await serve(async (app) => {
    await app.register(
      leapgate({ limit: 1, windowMs: MINUTE, key: (request) => request.headers['x-key'] ?? 'none', reply: { status: 503 } }),
    );
    app.get('/own', { config: { rateLimit: { limit: 1, windowMs: MINUTE } } }, async () => '');
    app.get('/reply', { config: { rateLimit: { key: undefined, reply: { status: 420 } } } }, async () => '');
  });
  assert.deepEqual(await statusesOf(url, ['/own', '/own'], { headers: { 'X-Key': 'a' } }), [200, 503]);
  assert.deepEqual(await statusesOf(url, ['/own'], { headers: { 'X-Key': 'b' } }), [200]);
  assert.deepEqual(await statusesOf(url, ['/reply', '/reply'], { headers: { 'X-Key': 'c' } }), [200, 420]);
  assert.deepEqual(await statusesOf(url, ['/reply'], { headers: { 'X-Key': 'd' } }), [200], 'a key that is undefined is inherited');
});

test('fastify: without limits, only routes with limits of their own are limited', async () => {
  const url = await serve(async (app) => {
    await app.register(leapgate());
    app.get('/', async () => '');
    app.get('/own', { config: { rateLimit: { limit: 1, windowMs: MINUTE } } }, async () => '');
  });
  assert.deepEqual(await statusesOf(url, ['/', '/', '/own', '/own', '/missing']), [200, 200, 200, 429, 404]);
});

test('fastify: other methods of a path, and a slash at its end, do not evade its limit', async () => {
  const url = await serve(async (app) => {
    await app.register(leapgate());
    const config = { rateLimit: { limit: 2, windowMs: MINUTE } };
    app.register(async (sub) => sub.get('/', { config, exposeHeadRoute: true, prefixTrailingSlash: 'both' }, async () => ''), {
      prefix: '/sub',
    });
  });
  assert.equal((await get(`${url}/sub`, { method: 'HEAD' })).status, 200);
  assert.deepEqual(await statusesOf(url, ['/sub/', '/sub', '/sub/']), [200, 429, 429]);
});

test('fastify: skips requests, and refunds requests that do not count', async () => {
  const url = await serve(async (app) => {
    const skip = async (request) => request.url === '/health';
    await app.register(leapgate({ limit: 1, windowMs: MINUTE, skip, countIf: async (request, reply) => reply.statusCode < 400 }));
    app.get('/', async () => '');
    app.get('/health', async () => '');
    app.get('/fails', async () => {
      throw new Error('fails');
    });
  });
  const paths = ['/health', '/missing', '/fails', '/missing', '/', '/missing', '/', '/health'];
  assert.deepEqual(await statusesOf(url, paths), [200, 404, 500, 404, 200, 429, 429, 200]);
});

test('fastify: a function may answer instead', async () => {
  for (const reply of [
    async (request, _, result) => ({ path: request.url, rule: result.rule }),
    (request, reply, result) => void reply.send({ path: request.url, rule: result.rule }),
  ]) {
    const url = await serve((app) => app.register(leapgate({ limit: 0, windowMs: MINUTE, reply })));
    const refused = await get(`${url}/x`);
    assert.deepEqual([refused.status, refused.body], [429, '{"path":"/x","rule":"60s"}']);
    assert.equal(refused.headers['content-type'], 'application/json; charset=utf-8');
    assert.equal(refused.headers['ratelimit-policy'], '"60s";q=0;w=60');
  }
});

test('fastify: a function that fails to answer is an error of the request', async () => {
  const fail = () => {
    throw new Error('no answer');
  };
  for (const reply of [fail, async () => fail()]) {
    const url = await serve((app) => app.register(leapgate({ limit: 0, windowMs: MINUTE, reply })));
    const { body } = await get(url);
    assert.equal(JSON.parse(body).message, 'no answer');
  }
});

test('fastify: inject is limited too', async () => {
  const app = fastify();
  after(() => app.close());
  app.register(leapgate({ limit: 1, windowMs: MINUTE, countIf: (_, reply) => reply.statusCode === 200 }));
  app.get('/', async () => 'hello');
  const statuses = [];
  for (const path of ['/missing', '/', '/']) statuses.push((await app.inject(path)).statusCode);
  assert.deepEqual(statuses, [404, 200, 429]);
});

test('fastify: behind a trusted proxy, each client has a limit of its own', async () => {
  const url = await serve((app) => app.register(leapgate({ limit: 1, windowMs: MINUTE })), { trustProxy: '127.0.0.1' });
  const warnings = await warningsOf(async () => {
    const statuses = [];
    for (const client of ['192.0.2.1', '192.0.2.2', '6.6.6.6, 192.0.2.1']) {
      statuses.push((await get(url, { headers: { 'X-Forwarded-For': client } })).status);
    }
    assert.deepEqual(statuses, [404, 404, 429]);
  });
  assert.deepEqual(warnings, []);
});

for (const [trustProxy, isWarned] of [
  [true, true],
  [() => true, true],
  ['10.0.0.0/8, 127.0.0.1', false],
  [(address) => address === '127.0.0.1', false],
]) {
  test(`fastify: trustProxy: ${trustProxy} ${isWarned ? 'warns once that addresses can be forged' : 'does not warn'}`, async () => {
    const url = await serve((app) => app.register(leapgate({ limit: 5, windowMs: MINUTE })), { trustProxy });
    const warnings = await warningsOf(async () => {
      for (let i = 0; i < 2; i++) await get(url, { headers: { 'X-Forwarded-For': '192.0.2.1' } });
    });
    const message =
      'leapgate: Fastify trusts all addresses as proxies, so that a client can evade its limit by a header with another address; ' +
      "tell Fastify those of yours, as in `fastify({ trustProxy: '10.0.0.0/8' })`, or pass `key`";
    assert.deepEqual(warnings, isWarned ? [{ code: 'LEAPGATE_TRUST_PROXY', message }] : []);
  });
}

for (const [what, options] of [
  ['an untrusted proxy', {}],
  ['a number of proxies, of which Fastify trusts none', { trustProxy: 1 }],
]) {
  test(`fastify: behind ${what}, all clients share one limit, and it warns once`, async () => {
    const url = await serve((app) => app.register(leapgate({ limit: 1, windowMs: MINUTE })), options);
    const warnings = await warningsOf(async () => {
      const statuses = [];
      for (const client of ['192.0.2.1', '192.0.2.2'])
        statuses.push((await get(url, { headers: { 'X-Forwarded-For': client } })).status);
      assert.deepEqual(statuses, [404, 429]);
    });
    const message =
      'leapgate: a request has a header of a proxy, which is not trusted: behind a proxy, all of its clients share one limit; ' +
      "tell Fastify its addresses, as in `fastify({ trustProxy: '10.0.0.0/8' })`, or pass `key`";
    assert.deepEqual(warnings, [{ code: 'LEAPGATE_PROXY', message }]);
  });
}

for (const key of [
  () => {
    throw new Error('no key');
  },
  async () => {
    throw new Error('no key');
  },
]) {
  test(`fastify: a key that fails is an error of the request (${key.constructor.name})`, async () => {
    const url = await serve((app) => app.register(leapgate({ limit: 1, windowMs: MINUTE, key })));
    const { status, body } = await get(url);
    assert.deepEqual([status, JSON.parse(body).message], [500, 'no key']);
  });
}

const ONE = { limit: 1, windowMs: MINUTE };
const required = createRequire(import.meta.url)('leapgate/fastify');

for (const [form, register] of [
  ['leapgate(options)', (app) => app.register(leapgate(ONE))],
  ['leapgate, options', (app) => app.register(leapgate, ONE)],
  ['leapgate, a function of options', (app) => app.register(leapgate, () => ONE)],
  ['the default export, options', (app) => app.register(plugin, ONE)],
  ['import(), options', (app) => app.register(import('leapgate/fastify'), ONE)],
  ['require(), options', (app) => app.register(required, ONE)],
  ['leapgate of require(), options', (app) => app.register(required.leapgate, ONE)],
]) {
  test(`fastify: register(${form}) limits the routes of all plugins, and Fastify knows the plugin's name`, async () => {
    const url = await serve(async (app) => {
      await register(app);
      assert.ok(app.hasPlugin('leapgate'));
      app.register(async (sibling) => sibling.get('/a', async (request) => request.rateLimit.remaining));
      app.get('/b', async () => 'b');
    });
    assert.deepEqual(await statusesOf(url, ['/a', '/b', '/missing']), [200, 429, 429]);
  });
}

test('fastify: registered within a plugin, it limits only the routes of that plugin', async () => {
  const url = await serve(async (app) => {
    app.get('/out', async () => '');
    app.register(async (inner) => {
      await inner.register(leapgate, ONE);
      inner.get('/in', async () => '');
    });
  });
  assert.deepEqual(await statusesOf(url, ['/out', '/out', '/in', '/in', '/out']), [200, 200, 200, 429, 200]);
});

test('fastify: register(leapgate) limits only routes with limits of their own', async () => {
  const url = await serve(async (app) => {
    await app.register(leapgate);
    app.get('/', async () => '');
    app.get('/own', { config: { rateLimit: ONE } }, async () => '');
  });
  assert.deepEqual(await statusesOf(url, ['/', '/', '/own', '/own']), [200, 200, 200, 429]);
});

test('fastify: register rejects wrong options', async () => {
  for (const [options, message] of [
    [{ limit: -1, windowMs: MINUTE }, 'options.limit: `-1` is not a valid count; use a number from 0 to 9007199254740992'],
    [{ max: 5, windowMs: MINUTE }, 'options.max: `5` means nothing here; use `limit`'],
    [{ limit: 5, timeWindow: '1 minute' }, 'options.timeWindow: `1 minute` means nothing here; use `windowMs`, in milliseconds'],
  ]) {
    const app = fastify();
    after(() => app.close());
    await assert.rejects(async () => app.register(leapgate, options), { code: 'ERR_LEAPGATE_OPTIONS', message });
    assert.throws(() => leapgate(options), { code: 'ERR_LEAPGATE_OPTIONS', message });
  }
});

test('fastify: a refusal may be an error for the error handler of the route', async () => {
  const seen = [];
  const url = await serve(async (app) => {
    app.setErrorHandler((error, request, reply) => {
      seen.push([error.code, error.statusCode, error.message, error.result.rule]);
      reply.code(error.statusCode).send({ path: request.url, again: error.result.retryAfterMs > 0 });
    });
    await app.register(leapgate, { ...ONE, reply: { format: 'error', body: 'slow down', status: 420 } });
    app.get('/', async () => 'hello');
    app.register(async (inner) => {
      inner.setErrorHandler(async (error, _, reply) => reply.send(`inner: ${error.message}`));
      inner.get('/inner', async () => 'hello');
    });
    app.get('/own', { config: { rateLimit: { ...ONE, reply: { status: 418 } } } }, async () => 'hello');
  });
  assert.equal((await get(url)).status, 200);
  const refused = await get(url);
  assert.deepEqual([refused.status, JSON.parse(refused.body)], [420, { path: '/', again: true }]);
  assert.equal(refused.headers['content-type'], 'application/json; charset=utf-8');
  assert.equal(refused.headers['ratelimit-policy'], '"60s";q=1;w=60');
  assert.deepEqual([refused.headers['cache-control'], refused.headers['retry-after'] > 0], ['no-store', true]);
  const inner = await get(`${url}/inner`);
  assert.deepEqual([inner.status, inner.body], [420, 'inner: slow down']);
  assert.deepEqual(seen, [['ERR_LEAPGATE_BLOCKED', 420, 'slow down', '60s']]);
  assert.deepEqual(await statusesOf(url, ['/own', '/own']), [200, 418], 'a route may have its own reply');
});

test('fastify: without an error handler, Fastify answers a refusal that is an error', async () => {
  const engine = new Engine({ authorityRules: [{ resource: '/', limitApp: 'a' }] });
  for (const [options, status, fields] of [
    [{ limit: 0, windowMs: MINUTE }, 429, { error: 'Too Many Requests', message: 'too many requests' }],
    [{ engine, resource: ({ url }) => url, origin: () => 'b' }, 403, { error: 'Forbidden', message: 'forbidden' }],
  ]) {
    const app = fastify();
    after(() => app.close());
    app.register(leapgate, { ...options, reply: { format: 'error' } });
    const { statusCode, body } = await app.inject('/');
    assert.deepEqual([statusCode, JSON.parse(body)], [status, { statusCode: status, code: 'ERR_LEAPGATE_BLOCKED', ...fields }]);
  }
});

test('fastify: a route with wrong options throws when it is added', async () => {
  const limits = [
    [5, 'config.rateLimit: `5` is not an object; use one, as in `{ limit: 5, windowMs: 60_000 }`, or false for no limit'],
    [{ limit: -1, windowMs: MINUTE }, 'options.limit: `-1` is not a valid count; use a number from 0 to 9007199254740992'],
  ];
  for (const [rateLimit, message] of limits) {
    const app = fastify();
    after(() => app.close());
    await app.register(leapgate());
    assert.throws(() => app.get('/', { config: { rateLimit } }, async () => ''), { message });
  }
});
