// Requests for which `key` returns nothing, in each adapter: a client must neither evade a limit nor cause an error by omitting a
// header.
import assert from 'node:assert/strict';
import http from 'node:http';
import test, { after } from 'node:test';
import fastify from 'fastify';
import { Hono } from 'hono';
import { Engine } from 'leapgate/engine';
import { leapgate as express } from 'leapgate/express';
import { leapgate as plugin } from 'leapgate/fastify';
import { leapgate as fetched } from 'leapgate/fetch';
import { leapgate as hono } from 'leapgate/hono';
import { get, listen, warningsOf } from './http.mjs';

const headersOf = (user) => (user === undefined ? {} : { user });

// For each adapter, a function that sends a request with or without the header `user`, and returns the status. `options` gets the
// function that reads the header.
const adapters = {
  express: async (options) => {
    const limit = express(options((request) => request.headers.user));
    const url = await listen(http.createServer((request, response) => limit(request, response, (error) => response.writeHead(error ? 500 : 200).end())));
    return async (user) => (await get(url, { headers: headersOf(user) })).status;
  },
  fastify: async (options) => {
    const app = fastify();
    after(() => app.close());
    await app.register(plugin, options((request) => request.headers.user));
    app.get('/', async () => '');
    return async (user) => (await app.inject({ url: '/', headers: headersOf(user) })).statusCode;
  },
  hono: async (options) => {
    const app = new Hono();
    app.use(hono(options((c) => c.req.header('user'))));
    app.get('/', (c) => c.text(''));
    return async (user) => (await app.request('/', { headers: headersOf(user) })).status;
  },
  fetch: async (options) => {
    const handler = fetched(options((request) => request.headers.get('user') ?? undefined))(() => new Response());
    return async (user) => (await handler(new Request('http://localhost', { headers: headersOf(user) }))).status;
  },
};

const LIMIT = { limit: 1, windowMs: 60_000 };
const engine = (...key) => ({
  engine: new Engine({ flowRules: [{ resource: 'all', count: 1, intervalMs: 60_000, key }] }),
  resource: () => 'all',
});
const user = { header: 'user' };

for (const [name, serve] of Object.entries(adapters)) {
  for (const [what, options, found] of [
    ['a limit', (header) => ({ ...LIMIT, key: header }), 'undefined'],
    ['a limit, later', (header) => ({ ...LIMIT, key: async (...request) => header(...request) }), 'undefined'],
    ['a limit and null', (header) => ({ ...LIMIT, key: (...request) => header(...request) ?? null }), 'null'],
    ['a limit and a part', (header) => ({ ...LIMIT, key: (...request) => [header(...request), 'x'] }), '[…]'],
    ['an engine', (header) => ({ ...engine(user), key: header }), 'undefined'],
    ['an engine of two parts', (header) => ({ ...engine(user, 'path'), key: (...request) => header(...request) && [header(...request), '/'] }), 'undefined'],
    // In rules, a missing part is a value of its own.
    ['an engine and a part', (header) => ({ ...engine(user, 'path'), key: (...request) => [header(...request), '/'] })],
    ['an engine and a record', (header) => ({ ...engine(user, 'path'), key: (...request) => ({ 'header:user': header(...request), path: '/' }) })],
    ['an engine and null', (header) => ({ ...engine(user), key: (...request) => header(...request) ?? null })],
  ]) {
    test(`${name}: of ${what}, requests without a key share one limit`, async () => {
      const ask = await serve(options);
      const warnings = await warningsOf(async () => {
        const statuses = [];
        for (const client of [undefined, undefined, 'a', 'a', 'b', undefined]) statuses.push(await ask(client));
        assert.deepEqual(statuses, [200, 429, 200, 429, 200, 429]);
      });
      const all = 'and all requests without a key share one limit; return a key for them, or `skip` them';
      const message = `leapgate: \`key\` has returned \`${found}\`, ${all}`;
      assert.deepEqual(warnings, found === undefined ? [] : [{ code: 'LEAPGATE_KEY', message }]);
    });
  }
}
