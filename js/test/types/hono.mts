import { getConnInfo } from '@hono/node-server/conninfo';
import { Hono } from 'hono';
import { getConnInfo as cloudflare } from 'hono/cloudflare-workers';
import { leapgate } from 'leapgate/hono';
import { Engine } from 'leapgate/engine';

type Env = { Bindings: { NAME: string }; Variables: { user: string } };
const app = new Hono<Env>();
app.use(leapgate({ limit: 100, windowMs: 60_000, getConnInfo }));
app.use('/a/*', leapgate({ limit: 100, windowMs: 60_000, getConnInfo: cloudflare }));
app.use(leapgate<Env>({ limit: 100, windowMs: 60_000, key: (c) => c.get('user') + c.env.NAME }));
app.get(
  '/',
  leapgate({
    limits: [{ limit: 1, windowMs: 1000 }],
    key: async (c) => [c.req.path, 1n],
    skip: (c) => c.req.path === '/health',
    countIf: (c, response) => c.req.method === 'GET' && response.ok,
    reply: (c, result) => c.json({ rule: result.rule }, 429),
  }),
  (c) => c.text(`${c.get('rateLimit').remaining}`),
);
app.get(
  '/named',
  leapgate({ limit: (c) => c.req.path.length, windowMs: 1000, cost: async () => 2, getConnInfo, requestPropertyName: 'perUser' }),
  leapgate<Env, 'perKey'>({ limit: 1, windowMs: 1000, key: (c) => c.get('user'), requestPropertyName: 'perKey' }),
  (c) => c.text(`${c.get('perUser').remaining} ${c.get('perKey').remaining}`),
);
// @ts-expect-error no variable of that name
app.get('/', leapgate({ limit: 1, windowMs: 1000, getConnInfo, requestPropertyName: 'a' }), (c) => c.text(c.get('rateLimit').rule));
// @ts-expect-error a text
leapgate({ limit: () => '1', windowMs: 1000, getConnInfo });

const engine = new Engine({ flowRules: [] });
app.use(leapgate({ engine, resource: (c) => c.req.path }));
app.use(leapgate({ engine, resource: () => 'a', getConnInfo }));
app.use(leapgate({ engine, resource: () => 'a', key: (c) => ({ path: c.req.path }), origin: (c) => c.req.header('x-app') }));
// @ts-expect-error an engine is asked about a resource
leapgate({ engine, getConnInfo });

// @ts-expect-error neither `getConnInfo` nor `key`
leapgate({ limit: 1, windowMs: 1000 });
// @ts-expect-error both do
leapgate({ limit: 1, windowMs: 1000, getConnInfo, key: () => 'a' });
// @ts-expect-error an option that is not there
leapgate({ limit: 1, windowMs: 1000, getConnInfo, keyGenerator: () => 'a' });
// @ts-expect-error no window
leapgate({ limit: 1, getConnInfo });
leapgate({ limit: 1, windowMs: 1000, key: () => 'a', skip: undefined, getConnInfo: undefined, requestPropertyName: undefined });
// @ts-expect-error no variable of that name
leapgate<Env>({ limit: 1, windowMs: 1000, key: (c) => c.get('users') });
// @ts-expect-error no response
leapgate({ limit: 1, windowMs: 1000, getConnInfo, reply: () => 'no' });
