export { Limiter } from './limiter.js';
