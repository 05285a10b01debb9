// The module is not inlined: the user passes it to `init`.
import { clock } from './clock.js';
import { link } from './core.js';
import { beginAt, fault, wrong } from './errors.js';

let isLoaded = false;

link(() => {
  throw fault('ERR_LEAPGATE_NOT_READY', 'leapgate/slim: nothing is loaded; call `await init(module)` first');
}, clock);

// `fetch` of Node has no files.
function load(url) {
  const files = url.startsWith('file:') && globalThis.process?.getBuiltinModule?.('node:fs');
  return files ? files.readFileSync(new URL(url)) : fetch(url);
}

export async function init(source) {
  let given = await source;
  if (isLoaded) return;
  if (typeof given === 'string' || given instanceof URL) given = await load(String(given));
  if (typeof Response === 'function' && given instanceof Response) given = await given.arrayBuffer();
  const isBytes = given instanceof ArrayBuffer || ArrayBuffer.isView(given);
  if (!isBytes && !(given instanceof WebAssembly.Module)) {
    throw beginAt(init, wrong('module', given, 'is not a module; use a WebAssembly.Module, its bytes, its URL or a Response'));
  }
  const module = isBytes ? await WebAssembly.compile(given) : given;
  link(() => module, clock);
  isLoaded = true;
}
export * from './index.js';
