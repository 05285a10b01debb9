export * from './index.js';

/** Loads `leapgate/leapgate_bg.wasm`, given as a module, its bytes, its URL, or a response. Later calls do nothing. */
export function init(
  source: Source | Promise<Source>,
): Promise<void>;
type Source = WebAssembly.Module | BufferSource | Response | URL | string;
