// Vitest.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { assertHeld, bin, project, run } from '../place.mjs';

const TEST = `
import { writeFileSync } from 'node:fs';
import { test } from 'vitest';
import { claims } from './app.mjs';
test('the claims hold', async () => writeFileSync('held.json', JSON.stringify(await claims())));
`;

test('Vitest', async () => {
  const cwd = project({ 'claims.test.mjs': TEST }, { within: 'heavy' });
  await run(bin('heavy', 'vitest'), ['run', '--root', cwd], { cwd });
  assertHeld(readFileSync(join(cwd, 'held.json'), 'utf8'));
});
