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

const CLOCKS = `
import { Limiter } from 'leapgate';
import { expect, test, vi } from 'vitest';
import { assertFollowed } from './clocks.mjs';
const [advance, set, uninstall] = [(ms) => vi.advanceTimersByTime(ms), (to) => vi.setSystemTime(to), () => vi.useRealTimers()];
let time = Date.now();
let spied;
const FAKES = {
  all: { install: () => vi.useFakeTimers(), advance, set, uninstall },
  Date: { install: () => vi.useFakeTimers({ toFake: ['Date'] }), advance, set, uninstall },
  'setSystemTime alone': { install: () => vi.setSystemTime(time), advance: (ms) => vi.setSystemTime(Date.now() + ms), set, uninstall },
  spyOn: {
    install: () => (spied = vi.spyOn(Date, 'now').mockImplementation(() => time)),
    advance: (ms) => (time += ms),
    set: (to) => (time = to),
    uninstall: () => spied.mockRestore(),
  },
};
test.each(Object.keys(FAKES))('%s', (name) => assertFollowed(Limiter, FAKES[name]));
`;

test('Vitest: the default clock follows its fakes', async () => {
  const clocks = readFileSync(new URL('../../clocks.mjs', import.meta.url), 'utf8');
  const cwd = project({ 'clocks.mjs': clocks, 'clock.test.mjs': CLOCKS }, { within: 'heavy' });
  await run(bin('heavy', 'vitest'), ['run', '--root', cwd], { cwd });
});
