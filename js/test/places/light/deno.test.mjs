// Deno, with no permission at all.
import test from 'node:test';
import { join } from 'node:path';
import { assertHeld, bin, project, run } from '../place.mjs';

for (const main of ['main.mjs', 'main.cjs']) {
  test(`Deno: ${main === 'main.mjs' ? 'import' : 'require'}`, async () => {
    const cwd = project();
    const permissions = main === 'main.mjs' ? [] : ['--allow-read'];
    const args = ['run', '--no-prompt', '--no-remote', '--no-lock', '--node-modules-dir=manual', ...permissions, main];
    assertHeld(await run(bin('light', 'deno'), args, { cwd, env: { DENO_DIR: join(cwd, '.deno') } }));
  });
}
