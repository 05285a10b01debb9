// Snapshots of a limiter: js/src/limiter.rs writes and reads them.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { fault, wrong } from './errors.js';

// The bytes of a limiter whose keys have this seed, or the module's.
export function save(number, seed, now) {
  const bytes = wasm.readBytes(wasm.underSeed(seed, () => core.limiter_snapshot(number, now)));
  shrink();
  return bytes;
}

// Bytes may have made the buffer large, and it moves.
function shrink() {
  core.text_shrink();
  wasm.readBytes(0);
}

// Restores bytes that were saved so many milliseconds ago. Returns the seed of their keys, unless it is the module's.
export function restore(number, bytes, elapsedMs, now) {
  if (!ArrayBuffer.isView(bytes)) {
    throw wrong('bytes', bytes, 'is not a snapshot; use the Uint8Array that `snapshot` has returned');
  }
  const { buffer, byteOffset, byteLength } = bytes;
  const length = core.limiter_restore(number, wasm.put(new Uint8Array(buffer, byteOffset, byteLength)), elapsedMs, now);
  const message = wasm.readText(length);
  shrink();
  if (length > 0) throw fault('ERR_LEAPGATE_ARGUMENT', `bytes: ${message}`, RangeError);
  const view = new DataView(buffer, byteOffset, byteLength);
  const seed = [8, 4, 16, 12].map((at) => view.getUint32(at, true));
  return wasm.adoptSeed(seed) ? undefined : seed;
}
