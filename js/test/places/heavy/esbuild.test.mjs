// esbuild's bundle in a browser; the bundles for Node are tested in `light`.
import { join } from 'node:path';
import test from 'node:test';
import { project, serve, tool } from '../place.mjs';
import { HTML, PAGE, assertHeldAt } from './browser.mjs';

test('esbuild: for browsers', async () => {
  const { build } = tool('esbuild', 'esbuild');
  const dir = project({ 'page.mjs': PAGE, 'out/index.html': HTML });
  const outfile = join(dir, 'out/page.mjs');
  await build({ absWorkingDir: dir, entryPoints: ['page.mjs'], bundle: true, minify: true, format: 'esm', outfile });
  await assertHeldAt(await serve(join(dir, 'out')));
});
