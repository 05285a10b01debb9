// A browser without any tool: modules by name, with an import map.
import test from 'node:test';
import { MANIFEST, project, serve } from '../place.mjs';
import { HTML, PAGE, assertHeldAt } from './browser.mjs';

// The file of a name in a browser, by the package's `exports`.
const find = (entry) => (typeof entry === 'string' ? entry : find(entry.browser ?? entry.import ?? entry.default));
const imports = Object.entries(MANIFEST.exports).map(([path, entry]) => [
  path.replace('.', 'leapgate'),
  find(entry).replace('.', '/node_modules/leapgate'),
]);
const MAP = `<script type="importmap">${JSON.stringify({ imports: Object.fromEntries(imports) })}</script>`;

test('Chromium: a script of type module, with an import map', async () => {
  await assertHeldAt(await serve(project({ 'page.mjs': PAGE, 'index.html': MAP + HTML })));
});

test('Chromium: leapgate/slim, and the module as a file of its own', async () => {
  const page = `
import * as leapgate from 'leapgate/slim';
import { check, make } from './claims.mjs';
await leapgate.init(new URL('leapgate_bg.wasm', import.meta.resolve('leapgate/slim')));
document.title = JSON.stringify(await check({ leapgate }, make({ leapgate })));
`;
  await assertHeldAt(await serve(project({ 'page.mjs': page, 'index.html': MAP + HTML })), ['leapgate']);
});
