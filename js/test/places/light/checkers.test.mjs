// Checkers of packages: each file exists in its declared format, and TypeScript finds its types.
import assert from 'node:assert/strict';
import test from 'node:test';
import { EXPORTS, TARBALL, bin, isBare, run } from '../place.mjs';

test('publint finds nothing wrong', async () => {
  assert.match(await run(bin('light', 'publint'), ['run', TARBALL, '--strict']), /All good!/);
});

// `slim`, which has to be given the module first, and the module: for `import` only.
const IGNORED = { strict: [], 'esm-only': ['node10', 'node16-cjs'] };

for (const [entries, profile] of [
  [EXPORTS.filter((path) => !isBare(path)), 'strict'],
  [EXPORTS.filter(isBare), 'esm-only'],
]) {
  test(`attw finds the types of ${entries.join(', ')} (${profile})`, async () => {
    const args = ['--format', 'json', '--profile', profile, '--entrypoints', ...entries];
    const { problems, analysis } = JSON.parse(await run(bin('light', 'attw'), [TARBALL, ...args]));
    const left = Object.values(problems).flat();
    assert.deepEqual(
      left.filter(({ resolutionKind }) => !IGNORED[profile].includes(resolutionKind)),
      [],
    );
    assert.equal(Object.keys(analysis.entrypoints).length, entries.length);
  });
}
