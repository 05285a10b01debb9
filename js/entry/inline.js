// Browsers, bundlers, Node, Deno, Bun: the module is inlined, as text that is decoded when the first limiter or engine is made.
import text from './leapgate_bg.wasm';
import { clock } from './clock.js';
import { link } from './core.js';

// Decodes the text, which build.mjs has written.
function decode() {
  const written = text();
  const common = written.slice(0, 180).match(/../g).map((pair) => parseInt(pair, 16));
  const rare = [...Array(256).keys()].filter((byte) => !common.includes(byte));
  const order = Uint8Array.from([...common, ...rare]);
  const bytes = new Uint8Array(written.length);
  let [length, from] = [0, 0];
  for (let i = 180; i < written.length; i++) {
    const character = written.charCodeAt(i);
    if (character < 36) from = character === 33 ? 90 : 180;
    else {
      bytes[length++] = order[from + character - (character < 92 ? 36 : 37)];
      from = 0;
    }
  }
  return bytes.subarray(0, length);
}

link(() => new WebAssembly.Module(decode()), clock);
export * from './index.js';
