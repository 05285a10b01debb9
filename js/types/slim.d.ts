export * from './index.js';

/** Loads the module: `leapgate/leapgate_bg.wasm` as a module, its bytes, its URL, or a response. Once; later calls do nothing. */
export function init(
  source: Source | Promise<Source>,
): Promise<void>;
type Source = WebAssembly.Module | BufferSource | Response | URL | string;
