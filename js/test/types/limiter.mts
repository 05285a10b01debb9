import { Limiter } from 'leapgate';

new Limiter({ limit: 1000, windowMs: 60_000, clock: 'sparse' });
// @ts-expect-error: there is no other clock
new Limiter({ limit: 1000, windowMs: 60_000, clock: 'fast' });
// @ts-expect-error: not for several limits
new Limiter({ limits: [{ limit: 1000, windowMs: 60_000 }], clock: 'sparse' });
const result = new Limiter({ limit: 1, windowMs: 1000 }).limit('a');
// @ts-expect-error: a getter
result.reset = 5;
