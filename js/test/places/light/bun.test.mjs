// Bun.
import test from 'node:test';
import { assertHeld, bin, project, run } from '../place.mjs';

for (const main of ['main.mjs', 'main.cjs']) {
  test(`Bun: ${main === 'main.mjs' ? 'import' : 'require'}`, async () => {
    assertHeld(await run(bin('light', 'bun'), ['--no-install', main], { cwd: project() }));
  });
}
