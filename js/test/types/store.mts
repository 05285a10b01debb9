import { rateLimit } from 'express-rate-limit';
import { slowDown } from 'express-slow-down';
import { rateLimiter } from 'hono-rate-limiter';
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { ipKey, rateLimitHeaders } from 'leapgate/http';
import { leapgate } from 'leapgate/store';

rateLimit({ limit: 100, windowMs: 60_000, store: leapgate() });
slowDown({ windowMs: 60_000, delayAfter: 1, delayMs: (used) => used * 100, store: leapgate() });
rateLimiter({ limit: 100, windowMs: 60_000, keyGenerator: () => 'a', store: leapgate({ window: 'sentinel', maxKeys: 1000 }) });
// @ts-expect-error the middleware says it
leapgate({ limit: 100 });
leapgate({ window: undefined, sampleCount: undefined });

const result = new Limiter({ limit: 1, windowMs: 1000 }).limit('a');
new Headers(rateLimitHeaders(result, { draft: 6 })).append('X-Key', ipKey('::1', { v4: 24, v6: 56 }));
rateLimitHeaders(new Engine({}).enter('a'), { draft: undefined });
ipKey('::1', { v4: undefined });
// @ts-expect-error a text
rateLimitHeaders(result, { draft: '11' });
// @ts-expect-error no options of that name
ipKey('::1', { ipv6: 56 });
// @ts-expect-error perhaps no address
ipKey(({} as { ip?: string }).ip);
