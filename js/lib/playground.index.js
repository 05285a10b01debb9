// All that the playground has beside `Limiter`: one module is smaller than three.
export { Engine } from './engine.js';
export { MemoryStore } from './memory.js';
export { Replay } from './replay.js';
export { SharedLimiter } from './shared.js';
