// Helpers for servers of any kind, without the module.

export { rateLimitHeaders } from './headers.js';
export { ipKey } from './ip.js';
