// All that the playground has beside `Limiter`: one module is smaller than three.
export * from './engine.index.js';
export * from './memory.index.js';
export { Replay } from './replay.js';
export * from './shared.index.js';
