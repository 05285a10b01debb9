// Requests for which `key` returns nothing, in each adapter: a client must neither avoid a limit nor cause an error by leaving out a
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

const headersOf = (who) => (who === undefined ? {} : { who });

// For each, a function that sends a request with the header `who`, or without it, and returns the status. `options` gets what reads
// the header of a request.
const adapters = {
  express: async (options) => {
    const limit = express(options((request) => request.headers.who));
    const url = await listen(http.createServer((request, response) => limit(request, response, (error) => response.writeHead(error ? 500 : 200).end())));
    return async (who) => (await get(url, { headers: headersOf(who) })).status;
  },
  fastify: async (options) => {
    const app = fastify();
    after(() => app.close());
    await app.register(plugin, options((request) => request.headers.who));
    app.get('/', async () => '');
    return async (who) => (await app.inject({ url: '/', headers: headersOf(who) })).statusCode;
  },
  hono: async (options) => {
    const app = new Hono();
    app.use(hono(options((c) => c.req.header('who'))));
    app.get('/', (c) => c.text(''));
    return async (who) => (await app.request('/', { headers: headersOf(who) })).status;
  },
  fetch: async (options) => {
    const handler = fetched(options((request) => request.headers.get('who') ?? undefined))(() => new Response());
    return async (who) => (await handler(new Request('http://localhost', { headers: headersOf(who) }))).status;
  },
};

const LIMIT = { limit: 1, windowMs: 60_000 };
const engine = (...key) => ({
  engine: new Engine({ flowRules: [{ resource: 'all', count: 1, intervalMs: 60_000, key }] }),
  resource: () => 'all',
});
const who = { header: 'who' };

for (const [name, serve] of Object.entries(adapters)) {
  for (const [what, options, told] of [
    ['a limit', (header) => ({ ...LIMIT, key: header }), 'undefined'],
    ['a limit, later', (header) => ({ ...LIMIT, key: async (...request) => header(...request) }), 'undefined'],
    ['a limit and null', (header) => ({ ...LIMIT, key: (...request) => header(...request) ?? null }), 'null'],
    ['a limit and a part', (header) => ({ ...LIMIT, key: (...request) => [header(...request), 'x'] }), '[…]'],
    ['an engine', (header) => ({ ...engine(who), key: header }), 'undefined'],
    ['an engine of two parts', (header) => ({ ...engine(who, 'path'), key: (...request) => header(...request) && [header(...request), '/'] }), 'undefined'],
    // In rules, a missing part is a value of its own.
    ['an engine and a part', (header) => ({ ...engine(who, 'path'), key: (...request) => [header(...request), '/'] })],
    ['an engine and a record', (header) => ({ ...engine(who, 'path'), key: (...request) => ({ 'header:who': header(...request), path: '/' }) })],
    ['an engine and null', (header) => ({ ...engine(who), key: (...request) => header(...request) ?? null })],
  ]) {
    test(`${name}: of ${what}, requests without a key share one limit`, async () => {
      const ask = await serve(options);
      const warnings = await warningsOf(async () => {
        const statuses = [];
        for (const client of [undefined, undefined, 'a', 'a', 'b', undefined]) statuses.push(await ask(client));
        assert.deepEqual(statuses, [200, 429, 200, 429, 200, 429]);
      });
      const all = 'and all requests without a key share one limit; return a key for them, or `skip` them';
      const message = `leapgate: \`key\` has returned \`${told}\`, ${all}`;
      assert.deepEqual(warnings, told === undefined ? [] : [{ code: 'LEAPGATE_KEY', message }]);
    });
  }
}
