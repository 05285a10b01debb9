import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import express, { type Request, type RequestHandler } from 'express';
import { Limiter } from 'leapgate';
import { Engine, type EngineResult } from 'leapgate/engine';
import { leapgate, type LeapgateOptions, type Result } from 'leapgate/express';
import { ipKey } from 'leapgate/http';
import { SharedLimiter } from 'leapgate/shared';
import { MemoryStore } from 'leapgate/shared/memory';

const app = express();
const limiter = new Limiter({ limit: 1, windowMs: 1000 });
const engine = new Engine({ flowRules: [{ resource: 'login', count: 1 }] });
const shared = new SharedLimiter({ id: 'api', limit: 1, windowMs: 1000, store: new MemoryStore() });

app.use(leapgate({ limit: 100, windowMs: 60_000 }));
app.use(
  '/api',
  leapgate({
    limits: [
      { limit: 10, windowMs: 1000 },
      { limit: 100, windowMs: 60_000, id: 'minute' },
    ],
    maxKeys: 1000,
  }),
);
app.get(
  '/users/:id',
  leapgate({
    limit: 100,
    windowMs: 60_000,
    window: 'weighted',
    key: (request) => [ipKey(request.ip ?? ''), request.get('x-api-key') ?? 0],
    skip: async (request, response) => request.path === '/health' && !response.headersSent,
    countIf: (request, response) => request.method !== 'OPTIONS' && response.statusCode < 400,
    draft: 'legacy',
    reply: { status: 503, format: 'problem', body: 'later', headers: { 'X-By': 'us' } },
  }),
  (request, response) => {
    response.json({ id: request.params['id'], remaining: request.rateLimit?.remaining });
  },
);
app.use(leapgate({ engine, resource: (request) => request.path, countIf: (request, response) => response.statusCode === 200 }));
app.use(
  leapgate({
    engine,
    resource: (request) => request.path,
    key: (request) => ({ clientIp: request.ip ?? null, 'header:accept': request.accepts() }),
    origin: async (request) => request.get('x-app'),
  }),
);
app.use(
  leapgate({
    limiter,
    draft: false,
    reply: (request, response, result) => void response.json({ path: request.path, rule: result.rule }),
  }),
);

app.use(
  leapgate({
    limit: async (request) => (request.get('x-plan') === 'pro' ? Infinity : 10),
    windowMs: 60_000,
    cost: (request, response) => (request.method === 'POST' && !response.headersSent ? 5 : 1),
    onRefused: ({ key, result, suppressed }) => console.log(key, result.rule, suppressed + 1),
    requestPropertyName: 'perUser',
  }),
);
app.use(leapgate({ limiter, limit: (request) => request.path.length, cost: 2 }));
app.use(leapgate({ limits: [{ limit: 1, windowMs: 1000 }], cost: () => 2 }));
app.use(leapgate({ engine, resource: () => 'a', cost: (request) => ({ tokens: request.path.length }) }));
app.use(leapgate({ limiter: shared, key: () => 'a', cost: async () => 2 }));

export const handler: RequestHandler = leapgate({ limit: 1, windowMs: 1000 });
export const options: LeapgateOptions = { limit: 1, windowMs: 1000, key: (request: Request) => request.ip ?? '' };
export const result = (request: Request): Result | undefined => request.rateLimit;
export const cause = (request: Request): EngineResult['cause'] | undefined => request.rateLimit?.cause;

const limit = leapgate<IncomingMessage, ServerResponse>({
  limit: 1,
  windowMs: 1000,
  key: (request) => request.socket.remoteAddress ?? '',
});
createServer((request, response) => limit(request, response, (error) => response.end(String(error))));

// @ts-expect-error an option that is not there
leapgate({ limit: 1, windowMs: 1000, keyGenerator: () => 'a' });
// @ts-expect-error a text
leapgate({ limit: () => '1', windowMs: 1000 });
// @ts-expect-error perhaps no limit
leapgate({ limit: (request) => (request.ip ? 1 : undefined), windowMs: 1000 });
// @ts-expect-error several limits
leapgate({ limit: () => 1, limits: [{ limit: 1, windowMs: 1000 }] });
// @ts-expect-error a shared limiter has one limit
leapgate({ limiter: shared, limit: () => 1 });
// @ts-expect-error an engine has its rules
leapgate({ engine, resource: () => 'a', limit: () => 1 });
// @ts-expect-error units are for an engine
leapgate({ limit: 1, windowMs: 1000, cost: () => ({ tokens: 1 }) });
// @ts-expect-error no text
leapgate({ limit: 1, windowMs: 1000, requestPropertyName: 1 });
// @ts-expect-error as if it were seconds
leapgate({ limit: 1, window: 60 });
// @ts-expect-error no window
leapgate({ limit: 1 });
// @ts-expect-error nothing
leapgate({});
// @ts-expect-error nothing at all
leapgate();
// @ts-expect-error a text
leapgate({ limit: '1', windowMs: 1000 });
leapgate({ limit: 1, windowMs: 1000, draft: undefined, key: undefined, limits: undefined, engine: undefined, requestPropertyName: undefined });
// @ts-expect-error another draft
leapgate({ limit: 1, windowMs: 1000, draft: 8 });
// @ts-expect-error another mode
leapgate({ limit: 1, windowMs: 1000, window: 'fixed' });
// @ts-expect-error an object is not a key
leapgate({ limit: 1, windowMs: 1000, key: () => ({}) });
// @ts-expect-error no key
leapgate({ limit: 1, windowMs: 1000, key: (request) => request.ip });
// @ts-expect-error another format
leapgate({ limit: 1, windowMs: 1000, reply: { format: 'xml' } });
// @ts-expect-error an option of a reply that is not there
leapgate({ limit: 1, windowMs: 1000, reply: { code: 503 } });
// @ts-expect-error no boolean
leapgate({ limit: 1, windowMs: 1000, countIf: () => 'yes' });
// @ts-expect-error a limiter has its limits
leapgate({ limiter, limit: 1, windowMs: 1000 });
// @ts-expect-error limits, or one
leapgate({ limit: 1, windowMs: 1000, limits: [{ limit: 1, windowMs: 1000 }] });
// @ts-expect-error a resource is for an engine
leapgate({ limit: 1, windowMs: 1000, resource: () => 'a' });
// @ts-expect-error an engine is asked about a resource
leapgate({ engine });
// @ts-expect-error an engine has its rules
leapgate({ engine, resource: () => 'a', limit: 1, windowMs: 1000 });
// @ts-expect-error an origin is for an engine
leapgate({ limit: 1, windowMs: 1000, origin: () => 'a' });
// @ts-expect-error no origin
leapgate({ engine, resource: () => 'a', origin: () => 7 });
// @ts-expect-error a resource is a text
leapgate({ engine, resource: () => 7 });
// @ts-expect-error a limiter or an engine
leapgate({ engine, resource: () => 'a', limiter });
// @ts-expect-error no options of an adapter for fetch
leapgate({ limit: 1, windowMs: 1000, ip: 'cloudflare' });
// @ts-expect-error neither Express nor node:http
leapgate({ limit: 1, windowMs: 1000 })('', '', () => {});
