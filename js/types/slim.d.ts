export * from './index.js';

/** Loads `leapgate/leapgate_bg.wasm`, given as a module, its bytes, its URL, also of a file in Node, or a response. Later calls do nothing. */
export function init(
  source: Source | Promise<Source>,
): Promise<void>;
/** The types of runtimes whose libraries lack `WebAssembly`, `Response` or `URL` are described by what is used of them. */
type Source = Module | ArrayBuffer | ArrayBufferView | { arrayBuffer(): Promise<ArrayBuffer> } | { readonly href: string } | string;
type Module = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Module } } } ? Module : object;
