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
const [limits, holds] = ['leapgate', 'leapgate, hold and settle'].map((name) => KEYS.map((keys) => results.get(`${name} ${keys}`)));
if (limits[0] !== undefined && holds[0] !== undefined) {
  const times = KEYS.map((_, i) => median(limits[i].map(({ hot }, run) => hot / holds[i][run].hot)).toFixed(2));
  console.log(`A hold and its settle take ${times.join(', ')} times as long as a limit, with ${counts.join(', ')} keys.\n`);
}
console.log(node('--no-warnings', 'accuracy.mjs'));
