// Browsers, bundlers, Node, Deno, Bun: the module is inlined, as text that is decoded when the first limiter is made.
import text from './leapgate_bg.wasm';
import { link } from './core.js';

// `Buffer` is faster. It is read from the global object: bundlers would add a polyfill to pages otherwise.
function decode() {
  if (globalThis.Buffer) return globalThis.Buffer.from(text(), 'base64');
  const decoded = atob(text());
  const bytes = new Uint8Array(decoded.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = decoded.charCodeAt(i);
  return bytes;
}

link(() => new WebAssembly.Module(decode()), () => performance.now());
export * from './index.js';
