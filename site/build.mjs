// Makes the page from this folder and the npm package in dist/npm. usage: node site/build.mjs OUT
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { join, resolve } from 'node:path';
import { gzipSync } from 'node:zlib';
import { aliasOf, inVirtualTime } from './modules.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = resolve(here, '..');
const out = resolve(process.argv[2]);
const { build } = createRequire(`${root}/.tools/esbuild/package.json`)('esbuild');
const npm = `${root}/dist/npm/dist`;

// In bytes, gzipped: all of the page, and what is loaded before its first figure moves. 350,000 in all is wanted: the replay of a log, which
// is loaded with its tab, came later, and 6,000 of it are the short ways of an entry.
const BUDGETS = { all: 381_000, first: 100_000 };
const FIRST = ['index.html', 'style.css', 'main.js', 'figures/ring.js'];

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: ['main.js', 'style.css'],
  outdir: out,
  bundle: true,
  splitting: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  metafile: true,
  legalComments: 'eof',
  logLevel: 'warning',
  loader: { '.wasm': 'file' },
  nodePaths: [`${root}/.tools/site/node_modules`],
  alias: aliasOf(npm),
  plugins: [inVirtualTime(here)],
});
cpSync(join(here, 'index.html'), join(out, 'index.html'));

// The files that a page loads with this source, and with what that imports at once.
const files = Object.entries(metafile.outputs).map(([path, output]) => ({ name: resolve(here, path), ...output }));
function closure(entry, found = new Set()) {
  const file = files.find(({ name, entryPoint, inputs }) => name === entry || entryPoint === entry || (entryPoint === undefined && Object.hasOwn(inputs, entry)));
  if (file === undefined || found.has(file.name)) return found;
  found.add(file.name);
  for (const { path, kind } of file.imports) if (kind !== 'dynamic-import') closure(resolve(here, path), found);
  return found;
}

const sizeOf = (file) => gzipSync(readFileSync(file), { level: 9 }).length;
const all = readdirSync(out).map((name) => join(out, name));
const first = new Set([join(out, 'index.html')]);
for (const name of FIRST) for (const file of closure(name)) first.add(file);
for (const file of all) console.log(`${file.slice(out.length + 1)}: ${sizeOf(file)} bytes, gzipped${first.has(file) ? '; before the first figure moves' : ''}`);
for (const [what, found] of Object.entries({ all, first: [...first] })) {
  const bytes = found.reduce((sum, file) => sum + sizeOf(file), 0);
  const name = what === 'all' ? 'the page' : 'before its first figure moves';
  console.log(`${name}: ${bytes} bytes, gzipped, of at most ${BUDGETS[what]}`);
  if (bytes > BUDGETS[what]) process.exitCode = 1;
}
