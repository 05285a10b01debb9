// Times the cases of the study in V8, for tests/bench/src/study: node run.mjs MODULE, with the work as JSON on standard input:
// {"cases": [numbers], "held": [numbers], "rounds": …}. Prints nanoseconds by case and round, and the bytes of a window.

import { readFileSync } from 'node:fs';

const NANOS_PER_BATCH = 1e5;
const WARM_UP_MS = 20;
const PAGE = 65536;

const module = new WebAssembly.Module(readFileSync(process.argv[2]));
const instantiate = () => new WebAssembly.Instance(module).exports;
const { cases, held, rounds } = JSON.parse(readFileSync(0, 'utf8'));

// Nanoseconds of a decision.
function nanos({ wasm, run, name }, times) {
  wasm.prepare(run);
  const begin = performance.now();
  const asMeant = wasm.run(run, times);
  const end = performance.now();
  if (asMeant !== times) throw new Error(`case ${name}: ${asMeant} of ${times} decisions were as meant`);
  return ((end - begin) * 1e6) / times;
}

function make(name) {
  const wasm = instantiate();
  const made = { wasm, name, run: wasm.make(name) };
  if (made.run < 0) throw new Error(`there is no case ${name}`);
  const batch = wasm.batch(made.run);
  // V8 compiles what runs often once more, better: until then nothing is measured.
  for (const end = performance.now() + WARM_UP_MS; performance.now() < end; ) nanos(made, batch || 1000);
  made.times = batch || Math.max(100, Math.floor(NANOS_PER_BATCH / nanos(made, 1000)));
  return made;
}

// The memory grows by pages: so many windows that a page is little.
function bytes(name) {
  for (let count = 256; ; count *= 4) {
    const wasm = instantiate();
    wasm.hold(name, 1);
    const before = wasm.memory.buffer.byteLength;
    wasm.hold(name, count);
    const grown = wasm.memory.buffer.byteLength - before;
    if (grown >= 32 * PAGE) return grown / count;
  }
}

const made = cases.map(make);
const times = made.map(() => []);
for (let round = 0; round < rounds; round++) made.forEach((one, i) => times[i].push(nanos(one, one.times)));
console.log(JSON.stringify({ version: process.versions, times, bytes: held.map(bytes) }));
