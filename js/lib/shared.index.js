export { SharedLimiter } from './shared.js';
