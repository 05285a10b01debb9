// Makes each way to panic in a module, known by its name, stop at once: what would be said has nowhere to go, and to say it
// takes two kilobytes. usage: node js/shrink.mjs MODULE
import { readFileSync, writeFileSync } from 'node:fs';
import { resolve } from 'node:path';

const { default: binaryen } = await import(resolve('.tools/binaryen/node_modules/binaryen/index.js'));
const PANICS = [
  /^core\[\w+\]::(panicking::panic|option::expect_failed|result::unwrap_failed|slice::index::slice_index_fail|cell::panic_)/,
  /^alloc\[\w+\]::(raw_vec::handle_error|alloc::handle_alloc_error)/,
  /^__rustc\[\w+\]::rust_begin_unwind/,
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
writeFileSync(file, module.emitBinary());
