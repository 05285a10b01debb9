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
    const needResponse = ['leapgate/fetch', 'leapgate/shared/durable-object'];
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
