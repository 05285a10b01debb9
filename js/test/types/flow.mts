import { Engine, type FlowDocument, type FlowRule, type KeyPart, type RequestOptions } from 'leapgate/flow';

const parts: KeyPart[] = ['path', 'method', 'host', { header: 'x-user' }, { query: 'q' }, { cookie: 'sid' }, { arg: -1 }];
const rule: FlowRule = { resource: 'a', count: 0.5, intervalMs: 60_000, key: parts, maxKeys: 10, burst: 2, window: 'weighted', unit: 'tokens' };
const rules: FlowDocument = { $schema: './config.schema.json', flowRules: [rule, { resource: 'b', count: 1, grade: 'concurrency', id: 7 }] };
const engine = new Engine(rules, { now: () => 0, maxWaiting: Infinity });
const request: RequestOptions = { key: ['a', 'b'], cost: { tokens: 5 } };

const { success, retryAfterMs, policies } = engine.limit('a', request);
const left: [boolean, number, string[]] = [success, retryAfterMs, policies.map(({ id }) => id)];
engine.enter('a', { canWait: true }).exit({ refund: true });
const text: string = await engine.run('b', async () => 'text');
await engine.run('b', { timeoutMs: 5, priority: 1 }, (entry, signal) => signal.aborted || entry.waitMs);
using entry = await engine.acquire('b', { maxWaitMs: 5, signal: AbortSignal.timeout(5), priority: 2 });
engine.on('refused', ({ resource, result }) => [resource, result.rule]);
const waiting: number = engine.stats('a').waiting + engine.stats().concurrency;
engine.replace({});
await engine.drain();
engine.free();
export { entry, left, text, waiting };

// @ts-expect-error: for other rules there is leapgate/engine
new Engine({ degradeRules: [] });
// @ts-expect-error: an address is text
new Engine({ $schema: 5 });
// @ts-expect-error: no address is cut to a network
new Engine({ flowRules: [{ resource: 'a', count: 1, key: ['clientIp'] }] });
// @ts-expect-error: no origins
new Engine({ flowRules: [{ resource: 'a', count: 1, limitApp: 'ann' }] });
// @ts-expect-error: a part has one name
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ header: 'a', query: 'b' }] }] });
// @ts-expect-error: no origin
engine.limit('a', { origin: 'ann' });
// @ts-expect-error: no calls within calls
engine.enter('a', { within: entry });
// @ts-expect-error: no breakers
engine.on('breaker', () => {});
// @ts-expect-error: no statistics
engine.counters();
