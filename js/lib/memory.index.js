export { MemoryStore } from './memory.js';
