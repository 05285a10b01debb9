// Each adapter before a server: `gates.test.mjs` has the claims about all of them, `peers-*.test.mjs` those of other packages.

import http from 'node:http';
import { after } from 'node:test';
import express from 'express';
import Fastify from 'fastify';
import { Hono } from 'hono';
import { leapgate as forExpress } from 'leapgate/express';
import { leapgate as forFastify } from 'leapgate/fastify';
import { leapgate as forFetch } from 'leapgate/fetch';
import { leapgate as forHono } from 'leapgate/hono';
import { get, listen } from './http.mjs';

// The status that a path asks for, or an error.
function statusOf(path) {
  if (path.endsWith('throw')) throw new Error('thrown');
  return Number(path.replace('/', '')) || 200;
}

// `limit` puts limits before a server, and returns the `config` of its route.
function fastifyOf(limit) {
  const serve = async (all, seen = () => {}) => {
    const app = Fastify();
    after(() => app.close());
    const config = limit(all, app) ?? {};
    app.setErrorHandler((error, request, reply) => reply.code(500).send(error.message));
    // Routes see plugins that are registered before.
    app.register(async (routes) => {
      routes.get('/*', { config }, (request, reply) => (seen(request), reply.code(statusOf(request.params['*'])).send('hello')));
    });
    return async (headers, path = '') => {
      const { statusCode: status, headers: theirs, body } = await app.inject({ url: `/${path}`, headers });
      return { status, headers: theirs, body };
    };
  };
  return { header: (request, name) => request.headers[name], serve };
}

// For each adapter: a function that asks a server with these limits, one within the other; `header` reads a header of its requests.
export const ADAPTERS = {
  express: {
    header: (request, name) => request.headers[name],
    serve: async (all, seen = () => {}) => {
      const app = express();
      for (const options of all) app.use(forExpress(options));
      app.use((request, response) => (seen(request), response.status(statusOf(request.path)).end('hello')));
      app.use((error, request, response, next) => response.status(500).end(error.message));
      const url = await listen(http.createServer(app));
      return (headers, path = '') => get(`${url}/${path}`, { headers });
    },
  },
  fastify: fastifyOf((all, app) => all.forEach((options) => app.register(forFastify, options))),
  'fastify, for a route': fastifyOf(([rateLimit], app) => (app.register(forFastify), { rateLimit })),
  hono: {
    header: (c, name) => c.req.header(name),
    serve: async (all, seen = () => {}) => {
      const app = new Hono();
      for (const options of all) app.use(forHono(options));
      app.onError((error, c) => c.text(error.message, 500));
      app.get('/*', (c) => (seen(c), c.text('hello', statusOf(c.req.path))));
      return async (headers, path = '') => told(await app.request(`/${path}`, { headers }));
    },
  },
  fetch: {
    header: (request, name) => request.headers.get(name),
    serve: async (all, seen = () => {}) => {
      const handler = (request) => (seen(request), new Response('hello', { status: statusOf(new URL(request.url).pathname) }));
      const limited = all.reduceRight((inner, options) => forFetch(options)(inner), handler);
      return async (headers, path = '') => {
        try {
          return await told(await limited(new Request(`http://localhost/${path}`, { headers })));
        } catch (error) {
          return { status: 500, body: error.message };
        }
      };
    },
  },
};

const told = async (response) => ({
  status: response.status,
  headers: Object.fromEntries(response.headers),
  body: await response.text(),
});

export async function statusesOf(ask, requests) {
  const statuses = [];
  for (const headers of requests) statuses.push((await ask(headers)).status);
  return statuses;
}
