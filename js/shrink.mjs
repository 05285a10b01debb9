// Makes each panic function of a module, found by name, trap at once: its message has no output, and formatting it takes two
// kilobytes. So does each function that formats for debugging, as only such messages do. Also removes the source locations of
// panics. usage: node js/shrink.mjs MODULE
//
// The names are those of rustc in the filter's module, and as wasm-bindgen demangles them in those of npm.
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

const { default: binaryen } = await import(resolve('.tools/binaryen/node_modules/binaryen/index.js'));
const PANICS = [
  /^_R[INvt]+Cs[0-9A-Za-z]+_4core(9panicking|6option13expect_failed|6result13unwrap_failed|5slice5index16slice_index_fail|3str16slice_error_fail|4cell\d+panic_)/,
  /^_R[INvt]+Cs[0-9A-Za-z]+_(5alloc(7raw_vec12handle_error|5alloc18handle_alloc_error)|7___rustc17rust_begin_unwind|3std9panicking11begin_panic)/,
  /^_R.*(13assert_failed|5Debug3fmt)(Cs[0-9A-Za-z]+_\w+)?(\.\d+)?$/,
  /^_R.*3fmt8builders10PadAdapter/,
  /^core\[\w+\]::(panicking::panic|option::expect_failed|result::unwrap_failed|slice::index::slice_index_fail|str::slice_error_fail|cell::panic_)/,
  /^alloc\[\w+\]::(raw_vec::handle_error|alloc::handle_alloc_error)/,
  /^__rustc\[\w+\]::rust_begin_unwind/,
  /^<.* as core(\[\w+\])?::fmt::Debug>::fmt/,
  /fmt::builders::PadAdapter as core/,
];

const [file] = process.argv.slice(2);
const module = binaryen.readBinary(readFileSync(file));
let found = 0;
for (let i = 0; i < module.getNumFunctions(); i++) {
  const panic = module.getFunctionByIndex(i);
  const { name } = binaryen.getFunctionInfo(panic);
  if (!PANICS.some((pattern) => pattern.test(name))) continue;
  binaryen.Function.setBody(panic, module.unreachable());
  found++;
}
if (found < 10) throw new Error(`${file} has only ${found} ways to panic: has rustc renamed them?`);
binaryen.setDebugInfo(true);
const binary = Buffer.from(module.emitBinary());

// The locations (address of the path, its length, line, column) remain in the data, which wasm-opt cannot split, but it drops zeros.
// A location stays if the code still names an address in it after unused arguments are removed.
module.runPasses(['dae-optimizing', 'simplify-locals', 'vacuum', 'dae-optimizing', 'remove-unused-module-elements']);
const named = Array.from(module.emitText().matchAll(/i32\.const (-?\d+)|offset=(\d+)/g), (match) => match[1] ?? match[2]);
const { name, offset, data } = module.getDataSegmentInfo(module.getDataSegmentByIndex(0));
const start = binary.indexOf(Buffer.from(data));
if (name !== '.rodata' || start < 0) throw new Error(`${file} does not begin its data with .rodata: has rustc renamed it?`);
const bytes = binary.subarray(start, start + data.byteLength);
const wordsAt = (at, count) => Array.from({ length: count }, (_, i) => bytes.readUInt32LE(at + 4 * i));
const isNamed = (at, length) => {
  const pointers = [...named, ...wordsAt(0, bytes.length >> 2)];
  return pointers.some((pointer) => pointer - offset >= at && pointer - offset < at + length);
};
const paths = new Map();
for (let at = 0; at + 16 <= bytes.length; at += 4) {
  const [pointer, length, line, column] = wordsAt(at, 4);
  const path = pointer - offset;
  if (path < 0 || path + length > bytes.length || line * column === 0) continue;
  if (!/^[\x20-\x7e]{1,200}\.rs$/.test(bytes.toString('latin1', path, path + length)) || isNamed(at, 16)) continue;
  bytes.fill(0, at, at + 16);
  paths.set(path, length);
}
for (const [path, length] of paths) if (!isNamed(path, length)) bytes.fill(0, path, path + length);
if (paths.size < 10) throw new Error(`${file} has only ${paths.size} paths of panics: has rustc laid them out otherwise?`);
writeFileSync(file, binary);
