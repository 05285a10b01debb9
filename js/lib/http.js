// What servers of any kind need beside a limiter: without the module.

export { rateLimitHeaders } from './headers.js';
export { ipKey } from './ip.js';
