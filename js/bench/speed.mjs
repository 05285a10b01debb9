// One subject with so many keys, in a process of its own; prints a line of JSON. usage: node --expose-gc speed.mjs SUBJECT KEYS
const [name, count] = process.argv.slice(2);
const keys = Number(count);

const { SUBJECTS, check } = await import('./subjects.mjs');

const WARM_MS = 250;
const TIMED_MS = 350;
const BATCH = 4096;
const SINGLE = 200_000;

const make = SUBJECTS[name];
await check(name, make);

// External memory includes the memory of wasm.
function bytes() {
  globalThis.gc();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}

// Addresses as strings, and as bytes from which each call makes a new string, as a server does when it reads a header.
const address = (i) => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`;
const ends = new Uint32Array(keys + 1);
for (let i = 0; i < keys; i++) ends[i + 1] = ends[i] + address(i).length;
const text = Buffer.alloc(ends[keys]);
for (let i = 0; i < keys; i++) text.write(address(i), ends[i], 'latin1');
const fresh = (i) => text.latin1Slice(ends[i], ends[i + 1]);
// A pseudo-random order, the same for all subjects.
const order = Uint32Array.from({ length: 1 << 20 }, (_, i) => Math.imul(i, 0x9e3779b1) >>> 0).map((mixed) => mixed % keys);

const before = bytes();
const ask = make(1e9, 60_000, Math.max(keys, 100_000));
for (let i = 0; i < keys; i++) await ask(fresh(i));
const perKey = (bytes() - before) / keys;
const same = Array.from({ length: keys }, (_, i) => fresh(i));

const isPromise = typeof ask(same[0]) === 'object';
let passed = 0;
let asked = 0;

// A loop for each kind of key: the JIT compiles the calls in it for that kind.
const loops = {};
for (const kind of ['hot', 'fresh']) {
  const next = kind === 'hot' ? 'same[order[at++ & 0xfffff]]' : 'fresh(order[at++ & 0xfffff])';
  const call = isPromise ? 'await ask' : 'ask';
  loops[kind] = new Function(
    'same', 'order', 'fresh', 'ask',
    `let at = 0; return ${isPromise ? 'async ' : ''}(n) => { let passed = 0; for (let i = 0; i < n; i++) if (${call}(${next})) passed++; return passed; };`,
  )(same, order, fresh, ask);
}

// Of CPU time: other load on the machine takes none of it. Collecting garbage is included.
const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

async function perSecond(loop) {
  const run = async (ms) => {
    let calls = 0;
    const start = cpuMs();
    let now = start;
    for (; now < start + ms; now = cpuMs()) {
      passed += await loop(BATCH);
      calls += BATCH;
    }
    asked += calls;
    return (calls / (now - start)) * 1000;
  };
  await run(WARM_MS);
  return run(TIMED_MS);
}

const quantile = (values, q) => values.sort()[Math.floor((values.length - 1) * q)];

// Minus the time of reading the clock twice.
async function p99() {
  const [taken, clock] = [new Float64Array(SINGLE), new Float64Array(SINGLE)];
  for (let i = 0; i < SINGLE; i++) {
    const key = same[order[i]];
    const start = performance.now();
    const answer = ask(key);
    passed += Number(isPromise ? await answer : answer);
    taken[i] = performance.now() - start;
  }
  for (let i = 0; i < SINGLE; i++) clock[i] = -(performance.now() - performance.now());
  asked += SINGLE;
  return Math.max(0, quantile(taken, 0.99) - quantile(clock, 0.5)) * 1000;
}

const result = { hot: await perSecond(loops.hot), fresh: await perSecond(loops.fresh), p99: await p99(), perKey };
if (passed !== asked) throw new Error(`${name} refused ${asked - passed} of ${asked} requests that were all within the limit.`);
console.log(JSON.stringify(result));
process.exit(); // some have timers
