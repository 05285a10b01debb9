// Node, the oldest supported version and the newest: `import`, `require`, and both at once.
import assert from 'node:assert/strict';
import test from 'node:test';
import { MANIFEST, NODE20, NODE24, SUBPATHS, assertHeld, project, run } from '../place.mjs';

// Exports with the module: two instances would count separately.
const paths = SUBPATHS.filter((path) => MANIFEST.exports[path.replace('leapgate', '.')].workerd !== undefined);
const BOTH = `
import { createRequire } from 'node:module';
const require = createRequire(import.meta.url);
const same = [];
for (const path of ${JSON.stringify(paths)}) {
  const [imported, required] = [await import(path), require(path)];
  for (const name of Object.keys(required)) same.push([path, name, imported[name] === required[name]]);
}
const [{ Limiter }, required] = [await import('leapgate'), require('leapgate')];
const own = new Limiter({ limit: 3, windowMs: 1000, now: () => 0 });
const passed = [Limiter, required.Limiter, Limiter, required.Limiter].map((of) => of.prototype.limit.call(own, 'a').success);
console.log(JSON.stringify({ same, passed }));
`;

for (const [name, node] of Object.entries({ 'Node 20': NODE20, 'Node 24': NODE24 })) {
  test(`${name}: has the pinned version`, async () => {
    assert.match(await run(node, ['--version']), new RegExp(`^v${name.slice(5)}\\.`));
  });

  test(`${name}: import`, async () => {
    assertHeld(await run(node, ['main.mjs'], { cwd: project() }));
  });

  test(`${name}: require`, async () => {
    assertHeld(await run(node, ['main.cjs'], { cwd: project() }));
  });

  test(`${name}: both at once are one instance`, async () => {
    const { same, passed } = JSON.parse(await run(node, ['both.mjs'], { cwd: project({ 'both.mjs': BOTH }) }));
    assert.deepEqual(passed, [true, true, true, false]);
    assert.ok(same.length >= paths.length);
    for (const [path, name, isSame] of same) assert.ok(isSame, `${path}: ${name}`);
  });
}
