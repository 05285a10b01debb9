// webpack, for browsers and for Node.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test from 'node:test';
import { promisify } from 'node:util';
import { NODE20, assertHeld, project, run, serve, tool } from '../place.mjs';
import { HTML, PAGE, assertHeldAt } from './browser.mjs';

async function bundle(context, options) {
  const webpack = tool('heavy', 'webpack');
  const stats = await promisify(webpack)({ context, mode: 'production', ...options });
  assert.deepEqual(stats.toJson({ all: false, errors: true }).errors, []);
}

test('webpack: for browsers', async () => {
  const dir = project({ 'page.mjs': PAGE, 'dist/index.html': HTML }, { within: 'heavy' });
  await bundle(dir, { target: 'web', entry: './page.mjs', output: { path: join(dir, 'dist'), filename: 'page.mjs' } });
  await assertHeldAt(await serve(join(dir, 'dist')));
});

for (const main of ['main.mjs', 'main.cjs']) {
  test(`webpack: for Node, of ${main}`, async () => {
    const dir = project({}, { within: 'heavy' });
    await bundle(dir, { target: 'node20', entry: `./${main}`, output: { path: join(dir, 'dist'), filename: 'main.cjs' } });
    assertHeld(await run(NODE20, [join(dir, 'dist/main.cjs')]));
  });
}
