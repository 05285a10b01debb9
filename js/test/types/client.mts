import { limitedFetch, type LimitedFetchOptions } from 'leapgate/client';

const limited: typeof fetch = limitedFetch(fetch, { limit: 10, windowMs: 1000, concurrency: 5, id: 'a', window: 'weighted', sampleCount: 10 });
export const response: Promise<Response> = limited(new URL('http://localhost'), { method: 'PUT', body: 'x' });
limitedFetch(fetch);
limitedFetch(fetch, {});
limitedFetch(fetch, { limits: [{ limit: Infinity, windowMs: 1000 }], retries: 0, maxWaitMs: 5, maxWaiting: 5, maxPauseMs: 5, maxKeys: 5, now: () => 5 });
limitedFetch(fetch, { key: ({ url, method, headers }) => headers.get('user') ?? `${method} ${url}` });
export const options: LimitedFetchOptions = { key: () => null, concurrency: Infinity };

// What is like fetch keeps its own types.
const own = async (url: string, init?: { dispatcher: object }): Promise<{ status: number }> => ({ status: url.length + Object.keys(init ?? {}).length });
export const answer: Promise<{ status: number }> = limitedFetch(own)('http://localhost', { dispatcher: {} });

// @ts-expect-error no function
limitedFetch(5);
// @ts-expect-error a limit without its window
limitedFetch(fetch, { limit: 5 });
// @ts-expect-error one limit beside several
limitedFetch(fetch, { limit: 5, windowMs: 1000, limits: [] });
// @ts-expect-error an option that is not there
limitedFetch(fetch, { maxConcurrent: 5 });
// @ts-expect-error a key of several parts
limitedFetch(fetch, { key: () => ['a'] });
// @ts-expect-error not a URL
limited(5);
