import fastify, { type FastifyContextConfig } from 'fastify';
import plugin, { leapgate, type RouteOptions } from 'leapgate/fastify';
import { Engine } from 'leapgate/engine';

const app = fastify();
await app.register(leapgate({ limit: 100, windowMs: 60_000 }));
app.register(leapgate());
await app.register(leapgate, { limit: 100, windowMs: 60_000 });
await app.register(leapgate, { limit: 100, windowMs: 60_000, reply: { format: 'error', status: 420 } });
app.register(leapgate);
app.register(plugin, { limits: [{ limit: 1, windowMs: 1000 }], key: (request) => request.ip });
app.register(import('leapgate/fastify'), { limit: 100, windowMs: 60_000 });
// @ts-expect-error an option that is not there
app.register(leapgate, { limit: 1, windowMs: 1000, max: 1 });
// @ts-expect-error no window
app.register(leapgate, { limit: 1 });
// @ts-expect-error no format
leapgate({ limit: 1, windowMs: 1000, reply: { format: 'xml' } });
app.register(leapgate({ key: (request) => request.ip, draft: 7 }));
app.register(
  leapgate({
    limits: [{ limit: 1, windowMs: 1000 }],
    key: async (request, reply) => [request.hostname, reply.statusCode],
    skip: (request) => request.url === '/health',
    countIf: async (request, reply) => request.method === 'GET' && reply.statusCode < 400,
    reply: (request, reply, result) => reply.send({ url: request.url, rule: result.rule }),
  }),
);
app.get('/own', { config: { rateLimit: { limit: 5, windowMs: 1000 } } }, (request) => request.rateLimit?.remaining ?? null);
app.get('/none', { config: { rateLimit: false } }, () => '');
app.get('/reply', { config: { rateLimit: { reply: { status: 503 } } } }, () => '');
app.get('/report', { config: { rateLimit: { cost: (request) => request.url.length } } }, () => '');
app.get('/plan', { config: { rateLimit: { limit: async (request, reply) => request.url.length + reply.statusCode, windowMs: 1000 } } }, () => '');
app.register(leapgate, { limit: 1, windowMs: 1000, requestPropertyName: 'perUser', onRefused: ({ result }) => console.log(result.rule) });
// @ts-expect-error a name is for the plugin
export const named: RouteOptions = { requestPropertyName: 'perUser' };
// @ts-expect-error a text
leapgate({ limit: () => '1', windowMs: 1000 });

const engine = new Engine({ flowRules: [] });
app.register(leapgate({ engine, resource: (request) => request.url }));
// @ts-expect-error an engine is asked about a resource
leapgate({ engine });

// @ts-expect-error an option that is not there
leapgate({ limit: 1, windowMs: 1000, max: 1 });
// @ts-expect-error no window
leapgate({ limit: 1 });
leapgate({ limit: 1, windowMs: 1000, key: undefined, reply: { format: undefined } });
// @ts-expect-error no reply of Express
leapgate({ limit: 1, windowMs: 1000, countIf: (request, reply) => reply.headersSent });
// @ts-expect-error an option that is not there
app.get('/', { config: { rateLimit: { limit: 1, windowMs: 1000, max: 1 } satisfies RouteOptions } }, () => '');
// @ts-expect-error only false
export const config: FastifyContextConfig = { rateLimit: true };
