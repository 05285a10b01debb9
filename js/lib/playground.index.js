export * from './engine.index.js';
export { Replay } from './replay.js';
