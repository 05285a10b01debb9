// Workers, as Wrangler deploys them.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { MODULES, assertHeld, bin, modulesIn, project, run } from '../place.mjs';
import { serveWorker } from '../light/workerd.mjs';

const FILES = {
  'wrangler.json': '{ "name": "leapgate", "main": "worker.mjs", "compatibility_date": "2026-04-01" }',
  'worker.mjs':
    "import { claims } from './app.mjs';\nexport default { fetch: async () => Response.json(await claims()) };\n",
};

test('Wrangler: the deployed Worker has the module as a file of its own, and runs', async () => {
  const cwd = project(FILES, { within: 'heavy' });
  await run(bin('heavy', 'wrangler'), ['deploy', '--dry-run', '--outdir', 'out'], { cwd, env: { HOME: cwd } });
  const out = join(cwd, 'out');
  assert.deepEqual(modulesIn(out), MODULES);
  assert.ok(!/\S{50000}/.test(readFileSync(join(out, 'worker.js'), 'utf8')), 'no module is inlined');
  assertHeld(await (await fetch(await serveWorker(out, 'worker.js'))).json());
});
