// esbuild, for browsers and for Node.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test from 'node:test';
import { NODE20, SUBPATHS, assertHeld, project, run, tool } from '../place.mjs';

for (const [platform, format] of [
  ['browser', 'esm'],
  ['browser', 'iife'],
  ['node', 'esm'],
  ['node', 'cjs'],
  ['neutral', 'esm'],
]) {
  test(`esbuild: for ${platform}, ${format}`, async () => {
    const { build } = tool('esbuild', 'esbuild');
    const main = "import { claims } from './app.mjs';\nclaims().then((held) => console.log(JSON.stringify(held)));\n";
    const dir = project({ 'main.mjs': main });
    const outfile = join(dir, `out/main.${format === 'esm' ? 'mjs' : 'cjs'}`);
    await build({ absWorkingDir: dir, entryPoints: ['main.mjs'], bundle: true, minify: true, platform, format, outfile });
    assertHeld(await run(NODE20, [outfile]));
  });
}

test('esbuild: what is not used is left out', async () => {
  const { build } = tool('esbuild', 'esbuild');
  const imports = SUBPATHS.map((path, i) => `import * as unused${i} from '${path}';\n`).join('');
  const dir = project({ 'main.mjs': `${imports}console.log('used');\n` });
  const { outputFiles } = await build({ absWorkingDir: dir, entryPoints: ['main.mjs'], bundle: true, platform: 'neutral', format: 'esm', write: false });
  assert.ok(outputFiles[0].text.length < 200, outputFiles[0].text.slice(0, 300));
});
