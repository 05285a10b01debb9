// Makes the package of what wasm-bindgen has left in `work` (its `bundler` target): one module, and a few lines around it for
// each place where it runs. usage: node js/build.mjs WORK OUT
import { cpSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { gzipSync } from 'node:zlib';

// Bytes; gzipped, what a first import brings along.
const BUDGETS = { wasm: 72_000, 'default import, gzipped': 48_000, 'in Workers, gzipped': 36_000 };

const [work, out] = process.argv.slice(2).map((path) => resolve(path));
const { build } = createRequire(resolve('.tools/esbuild/package.json'))('esbuild');
const dist = `${out}/dist`;

const version = /^version = "(.*)"$/m.exec(readFileSync('Cargo.toml', 'utf8'))[1];
const { version: npm } = JSON.parse(readFileSync('js/package.json', 'utf8'));
if (npm !== version) throw new Error(`js/package.json has version ${npm}, Cargo.toml ${version}: make them the same.`);

rmSync(out, { recursive: true, force: true });
mkdirSync(dist, { recursive: true });
for (const file of ['js/package.json', 'LICENSE', 'js/README.md']) cpSync(file, `${out}/${file.split('/').pop()}`);

// The parts lie side by side, so that they find the module.
for (const dir of ['js/lib', 'js/entry']) cpSync(dir, work, { recursive: true });
const bundle = async (entry, options) => {
  const { outputFiles } = await build({
    entryPoints: [`${work}/${entry}.js`],
    bundle: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    write: false,
    logLevel: 'warning',
    ...options,
  });
  return outputFiles[0].text;
};
// As text, which is decoded when the first limiter is made.
const inlined = {
  name: 'inlined',
  setup: (build) =>
    build.onLoad({ filter: /\.wasm$/ }, ({ path }) => ({
      contents: `export default () => Uint8Array.from(atob("${readFileSync(path, 'base64')}"), (c) => c.charCodeAt(0));`,
    })),
};
const inline = await bundle('inline', { plugins: [inlined] });
const external = { external: ['./leapgate_bg.wasm', './leapgate_bg.wasm?module'] };
writeFileSync(`${dist}/default.js`, inline);
for (const entry of ['workerd', 'edge-light', 'slim']) writeFileSync(`${dist}/${entry}.js`, await bundle(entry, external));

// One instance for `import` and `require`: two would count apart. Each export is an assignment that Node's lexer sees.
const [exported, list] = /export ?\{([^}]*)\};?\s*$/.exec(inline);
const pairs = list.split(',').map((name) => name.trim().split(/ as /));
const names = pairs.map(([local, name = local]) => name);
const assigned = pairs.map(([local, name = local]) => `exports.${name} = ${local};\n`).join('');
writeFileSync(`${dist}/node.cjs`, `"use strict";\n${inline.slice(0, -exported.length)}\n${assigned}`);
writeFileSync(`${dist}/node.js`, `export { ${names.join(', ')} } from "./node.cjs";\n`);

// What imports `leapgate` does so by its name: so its `exports` choose where the module comes from, and there is one of it.
const around = ['http', 'express', 'fastify', 'fetch', 'hono', 'store'];
for (const name of around) {
  for (const [format, extension] of [['esm', 'js'], ['cjs', 'cjs']]) {
    writeFileSync(`${dist}/${name}.${extension}`, await bundle(name, { format, external: ['leapgate'] }));
  }
}

cpSync(`${work}/leapgate_bg.wasm`, `${dist}/leapgate_bg.wasm`);
for (const file of readdirSync('js/types')) cpSync(`js/types/${file}`, `${dist}/${file}`);
// Else TypeScript would take what `require` gives for an ES module.
cpSync('js/types/index.d.ts', `${dist}/node.d.cts`);
for (const name of ['adapter', ...around]) {
  const types = readFileSync(`js/types/${name}.d.ts`, 'utf8');
  writeFileSync(`${dist}/${name}.d.cts`, types.replace(/'\.\/(\w+)\.js'/g, "'./$1.cjs'"));
}

const [wasm, workerd] = ['leapgate_bg.wasm', 'workerd.js'].map((file) => readFileSync(`${dist}/${file}`));
const gzipped = (...files) => files.reduce((sum, file) => sum + gzipSync(file, { level: 9 }).length, 0);
const sizes = { wasm: wasm.length, 'default import, gzipped': gzipped(inline), 'in Workers, gzipped': gzipped(wasm, workerd) };
for (const [what, bytes] of Object.entries(sizes)) {
  console.log(`${what}: ${bytes} bytes of at most ${BUDGETS[what]}`);
  if (bytes > BUDGETS[what]) process.exitCode = 1;
}
