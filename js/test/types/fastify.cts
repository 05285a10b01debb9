import fastify = require('fastify');
import { leapgate } from 'leapgate/fastify';

const app = fastify();
app.register(leapgate({ limit: 100, windowMs: 60_000 }));
app.register(leapgate, { limit: 100, windowMs: 60_000 });
app.get('/', { config: { rateLimit: { limit: 1, windowMs: 1000 } } }, async (request) => request.rateLimit?.success ?? null);
// @ts-expect-error an option that is not there
leapgate({ limit: 1, windowMs: 1000, max: 1 });
