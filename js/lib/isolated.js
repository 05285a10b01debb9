// Whether requests share an instance but must not wait for each other, as in Workers: a timer ends with the request that has set it,
// and settling a promise of another request may have no effect. There each request retries by itself.
export const isIsolated = () => typeof WebSocketPair === 'function' || typeof EdgeRuntime === 'string';
