import { Engine, type BlockedError, type Entry } from 'leapgate/engine';

const engine = new Engine({ flowRules: [{ resource: 'pay', count: 1, grade: 'concurrency' }] }, { maxWaiting: 10 });
const { signal } = new AbortController();

export const sum: Promise<number> = engine.run('pay', { key: 'a', cost: 2, signal }, async (entry) => entry.remaining);
export const text: Promise<string> = engine.run('pay', () => 'sync');
export const nothing: Promise<void> = engine.run('pay', {}, () => {});
const entry: Entry = await engine.acquire('pay');
entry.exit({ error: new Error('broken') });
entry.exit({ unanswered: true });
export const timed: Promise<Response> = engine.run('pay', { timeoutMs: 500 }, (entry, signal) => fetch(`http://localhost/${entry.limit}`, { signal }));
engine.run('pay', { isError: (error) => error instanceof TypeError, priority: -1, signal }, (entry, signal) => signal?.aborted);
engine.acquire('pay', { priority: 0.5 });
const remove: () => void = engine.on('breaker', ({ resource, rule, from, to }) => `${resource ?? ''} ${rule} ${from}` && to === 'halfOpen');
engine.on('refused', async ({ resource, result }) => resource === 'pay' && result.retryAfterMs);
remove();
const { concurrency, waiting } = engine.stats();
export const all: number = concurrency + waiting + engine.stats('pay').passQps + engine.stats('pay').waiting;
export const states: string[] = engine.stats('pay').breakers.map(({ rule, state }) => (state === 'open' ? rule : state));
export const drained: Promise<void> = engine.drain();
new Engine({}, { maxWaiting: Infinity });
using other = await engine.acquire('pay', { key: { clientIp: '::1' }, maxWaitMs: Infinity, signal, prioritized: true });
export const within = engine.acquire('pay', { within: other, origin: 'shop', context: 'web', inbound: true });
engine.setGauges({ load: 1 });
engine.run('pay', () => {}).catch((error: BlockedError) => error.result.retryAfterMs > 10 && error.result.cause === 'flow');

// @ts-expect-error no call
engine.run('pay', {});
// @ts-expect-error no function
engine.run('pay', {}, 5);
// @ts-expect-error a text
engine.acquire('pay', { maxWaitMs: '5' });
// @ts-expect-error an option that is not there
engine.acquire('pay', { timeout: 5 });
engine.acquire('pay', { signal: undefined });
// @ts-expect-error run waits only where a rule says so
engine.run('pay', { maxWaitMs: 5 }, () => {});
// @ts-expect-error acquire calls nothing
engine.acquire('pay', { timeoutMs: 5 });
// @ts-expect-error no event
engine.on('open', () => {});
// @ts-expect-error no state
engine.on('breaker', ({ to }) => to === 'half-open');
// @ts-expect-error a text
engine.run('pay', { priority: 'high' }, () => {});
// @ts-expect-error only with a resource
engine.stats().breakers;
// @ts-expect-error no gauge
engine.setGauges({ memory: 1 });
// @ts-expect-error a text
export const wrong: Promise<string> = engine.run('pay', () => 7);
