import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { leapgate as forFetch } from 'leapgate/fetch';
import { leapgate as forHono } from 'leapgate/hono';
import { leapgate as forStore } from 'leapgate/store';

const limiter = new Limiter({ limit: 1, windowMs: 1000 });
forFetch({ limiter, ip: 'cloudflare' })((request: Request) => new Response(request.url));
forHono({ limiter, key: (c) => c.req.path });
forStore({ maxKeys: 10 }).increment('a');
// @ts-expect-error an option that is not there
forFetch({ limiter, ip: 'cloudflare', max: 1 });
// @ts-expect-error an option that is not there
forHono({ limiter, key: () => 'a', max: 1 });
// @ts-expect-error an option that is not there
forStore({ max: 1 });
// @ts-expect-error no count
new Engine({ flowRules: [{ resource: 'a' }] });
new Engine({ flowRules: [{ resource: 'a', count: 1 }] }).limit('a').policies.map(({ id }) => id);
