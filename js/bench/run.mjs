// The figures of the npm package beside other packages: ./build.sh bench npm [RUNS [SUBJECT…]], medians of RUNS runs, 3 unless given.
import { execFileSync } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { table } from './table.mjs';

const KEYS = [1, 1000, 1_000_000];
const [runs = 3, ...wanted] = process.argv.slice(2);

// Beside the packages that build.sh has installed: there they are imported by name, as users do.
const root = fileURLToPath(new URL('../..', import.meta.url));
const dir = mkdtempSync(join(tmpdir(), 'leapgate-'));
process.on('exit', () => rmSync(dir, { recursive: true }));
cpSync(join(root, '.tools/peers'), dir, { recursive: true });
cpSync(join(root, 'dist/npm'), join(dir, 'node_modules/leapgate'), { recursive: true });
for (const part of ['bench', 'test']) cpSync(join(root, 'js', part), join(dir, part), { recursive: true });
const node = (...args) => execFileSync(process.execPath, args, { cwd: join(dir, 'bench'), encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

const subjects = node('--input-type=module', '-e', "console.log(Object.keys((await import('./subjects.mjs')).SUBJECTS).join('\\n')); process.exit()");
const names = subjects.trim().split('\n').filter((name) => wanted.length === 0 || wanted.some((part) => name.includes(part)));
const median = (values) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)];

console.log(`Node ${process.version} on ${cpus()[0].model.trim()} (${cpus().length} cores), medians of ${runs} runs, each in a process of its own`);
// In turn, so that a slow minute of the machine affects all subjects.
const results = new Map();
for (let run = 0; run < runs; run++) {
  for (const name of names) {
    for (const keys of KEYS) {
      const id = `${name} ${keys}`;
      results.set(id, [...(results.get(id) ?? []), JSON.parse(node('--expose-gc', 'speed.mjs', name, `${keys}`))]);
    }
  }
}
const rows = names.map((name) => {
  const figures = (of, digits = 2) => KEYS.map((keys) => median(results.get(`${name} ${keys}`).map(of)).toFixed(digits));
  return [
    name,
    ...figures(({ hot }) => hot / 1e6),
    ...figures(({ fresh }) => fresh / 1e6),
    ...figures(({ p99 }) => p99),
    figures(({ perKey }) => perKey, 0).at(-1),
  ];
});
const counts = ['1', '1,000', '1,000,000'];
const head = [
  'million decisions per second',
  ...counts.map((keys) => `${keys} key${keys === '1' ? '' : 's'}`),
  ...counts.map((keys) => `${keys}, new strings`),
  ...counts.map((keys) => `p99 µs, ${keys}`),
  'bytes per key',
];
console.log(`\n${table(head, rows)}\n`);
const times = (of, than) => {
  const [one, other] = [of, than].map((name) => KEYS.map((keys) => results.get(`${name} ${keys}`)));
  if (one[0] === undefined || other[0] === undefined) return undefined;
  return KEYS.map((_, i) => median(one[i].map(({ hot }, run) => hot / other[i][run].hot)).toFixed(2)).join(', ');
};
for (const name of names.filter((name) => name.startsWith('leapgate'))) {
  const faster = times(name, 'hono-rate-limiter');
  if (faster !== undefined) console.log(`${name}: ${faster} times the decisions of hono-rate-limiter, with ${counts.join(', ')} keys.`);
}
const longer = times("leapgate, window: 'weighted'", 'leapgate, hold and settle');
if (longer !== undefined) console.log(`A hold and its settle take ${longer} times as long as a limit in the module, with ${counts.join(', ')} keys.`);

// From the import to the first decision, in processes of their own, and of a process that imports nothing of it.
const starts = {
  'an empty module': "await import('data:text/javascript,');",
  leapgate: "const { Limiter } = await import('leapgate'); new Limiter({ limit: 1, windowMs: 1000 }).limit('a');",
  'leapgate/engine': "const { Engine } = await import('leapgate/engine'); new Engine({ flowRules: [{ resource: 'a', count: 1 }] }).limit('a');",
};
for (const [name, code] of Object.entries(starts)) {
  const timed = `const start = performance.now(); ${code} console.log(performance.now() - start);`;
  const all = Array.from({ length: 9 }, () => Number(node('--input-type=module', '-e', timed)));
  console.log(`${name}: ${median(all).toFixed(1)} ms from the import to the first decision`);
}
console.log();
console.log(node('--no-warnings', 'accuracy.mjs'));
