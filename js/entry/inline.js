// Browsers, bundlers, Node, Deno, Bun: the module is inlined, and ready at once.
import decode from './leapgate_bg.wasm';
import { link } from './core.js';

link(() => new WebAssembly.Module(decode()), () => performance.now());
export * from './index.js';
