// Makes the package from the output of wasm-bindgen (its `bundler` target) in WORK, which has a folder for each of its modules, with
// an entry around each module for each place where it runs. usage: node js/build.mjs WORK OUT
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { gzipSync } from 'node:zlib';

// For each module, the entries beside the inlined one, and the budgets in bytes; gzipped, for all that a first import loads.
const MODULES = [
  {
    name: 'limiter',
    path: '',
    entries: ['workerd', 'edge-light', 'slim'],
    // 36,000 in Workers is wanted: holds, snapshots and hot keys came later.
    budgets: { wasm: 68_000, 'default import, gzipped': 48_000, 'in Workers, gzipped': 40_200 },
  },
  {
    name: 'engine',
    path: 'engine/',
    entries: ['workerd', 'edge-light'],
    // 12 kB of it are the short ways of an entry and exit, and of what is asked before flow rules.
    budgets: { wasm: 392_000, 'default import, gzipped': 195_000, 'in Workers, gzipped': 193_000 },
  },
  {
    name: 'flow',
    path: 'flow/',
    entries: ['workerd', 'edge-light'],
    budgets: { wasm: 91_000, 'default import, gzipped': 60_000, 'in Workers, gzipped': 58_000 },
  },
  {
    name: 'shared',
    path: 'shared/',
    entries: ['workerd', 'edge-light'],
    budgets: { wasm: 30_500, 'default import, gzipped': 23_500, 'in Workers, gzipped': 22_200 },
  },
  {
    name: 'memory',
    path: 'memory/',
    entries: ['workerd', 'edge-light'],
    budgets: { wasm: 25_500, 'default import, gzipped': 15_200, 'in Workers, gzipped': 14_200 },
  },
];

const [work, out] = process.argv.slice(2).map((path) => resolve(path));
const { build } = createRequire(resolve('.tools/esbuild/package.json'))('esbuild');
const dist = `${out}/dist`;

const version = /^version = "(.*)"$/m.exec(readFileSync('Cargo.toml', 'utf8'))[1];
const { version: npm } = JSON.parse(readFileSync('js/package.json', 'utf8'));
if (npm !== version) throw new Error(`js/package.json has version ${npm}, Cargo.toml ${version}: make them the same.`);

rmSync(out, { recursive: true, force: true });
mkdirSync(dist, { recursive: true });
for (const file of ['js/package.json', 'LICENSE', 'js/README.md', 'config.schema.json']) cpSync(file, `${out}/${file.split('/').pop()}`);

// The longest line: Node and Bun print the source line of an uncaught error. Edge runtimes do not, and every byte counts there.
const LINE = 160;

const bundle = async (entry, options) => {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    lineLimit: LINE,
    write: false,
    logLevel: 'warning',
    ...options,
  });
  return outputFiles[0].text;
};
// The module as text: a common byte is one character, a rare one two; entry/inline.js reads it. The text begins with the common
// bytes, in hexadecimal. Base64 is longer, and compresses badly, since it splits bytes.
function textOf(bytes) {
  const counts = new Array(256).fill(0);
  for (const byte of bytes) counts[byte]++;
  const all = [...counts.keys()];
  const common = all.toSorted((one, other) => counts[other] - counts[one]).slice(0, 90);
  const rare = all.filter((byte) => !common.includes(byte));
  // From `$` to `~` without the backslash; the earlier `!` and `#` begin pairs of characters.
  const character = (index) => String.fromCharCode(index < 56 ? index + 36 : index + 37);
  const written = [];
  common.forEach((byte, i) => (written[byte] = character(i)));
  rare.forEach((byte, i) => (written[byte] = (i < 90 ? '!' : '#') + character(i % 90)));
  return Buffer.from(common).toString('hex') + Array.from(bytes, (byte) => written[byte]).join('');
}

// The text has a line of its own, which cannot throw, and is inserted last: the bundler would break that line, too.
const TEXT = '"the module"';
const inlined = {
  name: 'inlined',
  setup: (build) => build.onLoad({ filter: /\.wasm$/ }, () => ({ contents: `export default () => ${TEXT};` })),
};
const external = { external: ['./leapgate_bg.wasm', './leapgate_bg.wasm?module'] };

function within(name, budgets, sizes) {
  for (const [what, bytes] of Object.entries(sizes)) {
    console.log(`${name}, ${what}: ${bytes} bytes of at most ${budgets[what]}`);
    if (bytes > budgets[what]) process.exitCode = 1;
  }
}

for (const { name, path, entries, budgets } of MODULES) {
  const parts = `${work}/${name}`;
  const to = `${dist}/${path}`;
  mkdirSync(to, { recursive: true });
  // All parts go into one folder, so that their imports of the module resolve.
  for (const dir of ['js/lib', 'js/entry']) cpSync(dir, parts, { recursive: true });
  cpSync(`js/lib/${name}.index.js`, `${parts}/index.js`);
  const bare = await bundle(`${parts}/inline.js`, { plugins: [inlined], inject: [`${parts}/text.js`] });
  const inline = bare.replace(TEXT, () => `(\n"${textOf(readFileSync(`${parts}/leapgate_bg.wasm`))}"\n)`);
  writeFileSync(`${to}default.js`, inline);
  for (const entry of entries) {
    const lineLimit = entry === 'slim' ? LINE : 0;
    writeFileSync(`${to}${entry}.js`, await bundle(`${parts}/${entry}.js`, { ...external, lineLimit }));
  }

  // One instance for `import` and `require`: two would count separately. Each export is an assignment that Node's lexer sees.
  const [exported, list] = /export ?\{([^}]*)\};?\s*$/.exec(inline);
  const pairs = list.split(',').map((name) => name.trim().split(/ as /));
  const names = pairs.map(([local, name = local]) => name);
  const assigned = pairs.map(([local, name = local]) => `exports.${name} = ${local};\n`).join('');
  writeFileSync(`${to}node.cjs`, `"use strict";\n${inline.slice(0, -exported.length)}\n${assigned}`);
  writeFileSync(`${to}node.js`, `export { ${names.join(', ')} } from "./node.cjs";\n`);
  cpSync(`${parts}/leapgate_bg.wasm`, `${to}leapgate_bg.wasm`);

  const [wasm, workerd] = ['leapgate_bg.wasm', 'workerd.js'].map((file) => readFileSync(`${to}${file}`));
  const gzipped = (...files) => files.reduce((sum, file) => sum + gzipSync(file, { level: 9 }).length, 0);
  const sizes = { wasm: wasm.length, 'default import, gzipped': gzipped(inline), 'in Workers, gzipped': gzipped(wasm, workerd) };
  within(name, budgets, sizes);
}

// The command line: one program for Node, with its module beside it.
const CLI_BUDGETS = { wasm: 2_000_000, 'gzipped, with its script': 700_000 };
{
  const [parts, to] = [`${work}/cli`, `${dist}/cli`];
  mkdirSync(to, { recursive: true });
  for (const dir of ['js/lib', 'js/bin']) cpSync(dir, parts, { recursive: true });
  writeFileSync(`${to}/leapgate.js`, await bundle(`${parts}/leapgate.mjs`, { platform: 'node', lineLimit: LINE }));
  cpSync(`${parts}/leapgate_bg.wasm`, `${to}/leapgate_bg.wasm`);
  const [wasm, script] = ['leapgate_bg.wasm', 'leapgate.js'].map((file) => readFileSync(`${to}/${file}`));
  const gzipped = [wasm, script].reduce((sum, file) => sum + gzipSync(file, { level: 9 }).length, 0);
  within('cli', CLI_BUDGETS, { wasm: wasm.length, 'gzipped, with its script': gzipped });
}

// The playground's module is no part of the package: engines, and the replay of a log.
{
  const [parts, to] = [`${work}/playground`, resolve(out, '../playground')];
  rmSync(to, { recursive: true, force: true });
  mkdirSync(to, { recursive: true });
  for (const dir of ['js/lib', 'js/entry']) cpSync(dir, parts, { recursive: true });
  cpSync('js/lib/playground.index.js', `${parts}/index.js`);
  writeFileSync(`${to}/workerd.js`, await bundle(`${parts}/workerd.js`, external));
  cpSync(`${parts}/leapgate_bg.wasm`, `${to}/leapgate_bg.wasm`);
  const gzipped = ['leapgate_bg.wasm', 'workerd.js'].reduce((sum, file) => sum + gzipSync(readFileSync(`${to}/${file}`), { level: 9 }).length, 0);
  within('playground', { gzipped: 292_000 }, { gzipped });
}

// These import `leapgate` by name: its `exports` choose the source of the module, and there is one instance.
const around = ['stats', 'http', 'express', 'fastify', 'fetch', 'hono', 'store', 'nestjs', 'shared-redis', 'shared-durable-object', 'shared-cluster', 'client', 'metrics'];
// The script for Redis as the core has it: without comments and indentation.
const script = readFileSync('src/lease/redis.lua', 'utf8').replace(/^ *(--.*)?\n|^ +/gm, '');
const sha1 = createHash('sha1').update(script).digest('hex');
if (!readFileSync('src/lease/script.rs', 'utf8').includes(sha1)) throw new Error(`src/lease/script.rs does not have the SHA-1 of the script, ${sha1}.`);
const options = { external: ['leapgate'], define: { REDIS_SCRIPT: JSON.stringify(script), REDIS_SCRIPT_SHA1: `"${sha1}"`, VERSION: `"${version}"` } };
for (const name of around) {
  for (const [format, extension] of [['esm', 'js'], ['cjs', 'cjs']]) {
    writeFileSync(`${dist}/${name}.${extension}`, await bundle(`js/lib/${name}.js`, { format, ...options }));
  }
}

for (const file of readdirSync('js/types')) cpSync(`js/types/${file}`, `${dist}/${file}`);
// Else TypeScript would take the result of `require` for an ES module.
cpSync('js/types/index.d.ts', `${dist}/node.d.cts`);
for (const name of ['adapter', 'engine', 'flow', 'shared', 'shared-memory', ...around]) {
  const types = readFileSync(`js/types/${name}.d.ts`, 'utf8');
  writeFileSync(`${dist}/${name}.d.cts`, types.replace(/'\.\/([\w-]+)\.js'/g, "'./$1.cjs'"));
}
