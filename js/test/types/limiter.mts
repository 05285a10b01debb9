// Limiters.
import { Limiter } from 'leapgate';
import { Engine, type RulesDocument } from 'leapgate/engine';

// Options may be undefined.
declare const some: { number: number | undefined; text: string | undefined; now: (() => number) | undefined };
const limiter = new Limiter({ limit: 1, windowMs: 1000, maxKeys: some.number, sampleCount: some.number, id: some.text, now: some.now, mode: undefined });
limiter.limit('a', { cost: some.number, limit: some.number });
limiter.refund('a', 1, { at: some.number });
new Engine({ flowRules: [{ resource: 'a', count: 1, intervalMs: some.number, id: some.text }] }, { now: some.now, maxWaiting: some.number });
// @ts-expect-error: a limit is needed.
new Limiter({ limit: some.number, windowMs: 1000 });

limiter.block('a', Infinity);
const bytes: Uint8Array = limiter.snapshot();
limiter.restore(bytes);
limiter.restore(Buffer.from(bytes), { elapsedMs: some.number });
// @ts-expect-error: bytes.
limiter.restore('bytes');

new Limiter({ limit: Infinity, windowMs: 1000, mode: 'shadow' }).limit('a').shadowBlocked;
// @ts-expect-error: not a mode.
new Limiter({ limit: 1, windowMs: 1000, mode: 'dry' });

// As of a JSON import.
declare const json: { flowRules: { resource: string; count: number; grade: string }[] };
new Engine(json as RulesDocument);

new Limiter({ limit: 1000, windowMs: 60_000, clock: 'sparse' });
// @ts-expect-error: there is no other clock
new Limiter({ limit: 1000, windowMs: 60_000, clock: 'fast' });
// @ts-expect-error: not for several limits
new Limiter({ limits: [{ limit: 1000, windowMs: 60_000 }], clock: 'sparse' });
const result = new Limiter({ limit: 1, windowMs: 1000 }).limit('a');
// @ts-expect-error: a getter
result.reset = 5;
