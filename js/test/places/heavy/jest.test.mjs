// Jest: its Node environment, with `require` and with `import`, and jsdom, which imitates a browser.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { SUBPATHS, assertHeld, bin, project, run } from '../place.mjs';

const body = "test('the claims hold', async () => writeFileSync('held.json', JSON.stringify(await claims())));\n";
const TESTS = {
  cjs: `const { writeFileSync } = require('node:fs');\nconst { claims } = require('./app.cjs');\n${body}`,
  mjs: `import { writeFileSync } from 'node:fs';\nimport { claims } from './app.mjs';\n${body}`,
};

for (const [environment, format] of [
  ['node', 'cjs'],
  ['node', 'mjs'],
  ['jsdom', 'cjs'],
]) {
  test(`Jest: ${environment}, ${format === 'cjs' ? 'require' : 'import'}`, async () => {
    // jsdom has no Response.
    const needResponse = ['leapgate/client', 'leapgate/fetch', 'leapgate/shared/durable-object'];
    const subpaths = SUBPATHS.filter((path) => environment === 'node' || !needResponse.includes(path));
    const config = {
      testEnvironment: environment,
      transform: {},
      testMatch: [`**/*.test.${format}`],
      moduleFileExtensions: ['js', 'mjs', 'cjs', 'json'],
    };
    const files = { [`claims.test.${format}`]: TESTS[format], 'jest.config.json': JSON.stringify(config) };
    const cwd = project(files, { within: 'heavy', subpaths });
    const env = { NODE_OPTIONS: format === 'mjs' ? '--experimental-vm-modules' : '' };
    await run(bin('heavy', 'jest'), ['--rootDir', cwd, '--no-cache'], { cwd, env });
    assertHeld(readFileSync(join(cwd, 'held.json'), 'utf8'), subpaths);
  });
}

test('Jest: the default clock follows its fakes', async () => {
  const program = `
import { Limiter } from 'leapgate';
import { jest } from '@jest/globals';
import { assertFollowed } from './clocks.mjs';
const [advance, set, uninstall] = [(ms) => jest.advanceTimersByTime(ms), (to) => jest.setSystemTime(to), () => jest.useRealTimers()];
let time = Date.now();
let spied;
const FAKES = {
  all: { install: () => jest.useFakeTimers(), advance, set, uninstall },
  'without performance': { install: () => jest.useFakeTimers({ doNotFake: ['performance'] }), advance, set, uninstall },
  setSystemTime: { install: () => jest.useFakeTimers(), advance: (ms) => jest.setSystemTime(Date.now() + ms), set, uninstall },
  spyOn: {
    install: () => (spied = jest.spyOn(Date, 'now').mockImplementation(() => time)),
    advance: (ms) => (time += ms),
    set: (to) => (time = to),
    uninstall: () => spied.mockRestore(),
  },
};
test.each(Object.keys(FAKES))('%s', (name) => assertFollowed(Limiter, FAKES[name]));
`;
  const config = { testEnvironment: 'node', transform: {}, testMatch: ['**/*.test.mjs'], moduleFileExtensions: ['js', 'mjs', 'cjs', 'json'] };
  const clocks = readFileSync(new URL('../../clocks.mjs', import.meta.url), 'utf8');
  const files = { 'clocks.mjs': clocks, 'clock.test.mjs': program, 'jest.config.json': JSON.stringify(config) };
  const cwd = project(files, { within: 'heavy' });
  const env = { NODE_OPTIONS: '--experimental-vm-modules' };
  await run(bin('heavy', 'jest'), ['--rootDir', cwd, '--no-cache'], { cwd, env });
});
