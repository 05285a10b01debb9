// The types of the adapters, for a strict compiler: `types/` has the valid uses, and the errors.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import test from 'node:test';

const require = createRequire(import.meta.url);
const ENTRIES = [
  ['engine', ['ArrayMetric', 'Engine', 'LeapArray', 'StatisticNode']],
  ['flow', ['Engine']],
  ['shared', ['SharedLimiter']],
  ['shared/redis', ['redis']],
  ['shared/durable-object', ['LeaseStore', 'durableObject']],
  ['shared/cluster', ['cluster', 'serve']],
  ['shared/memory', ['MemoryStore']],
  ['stats', ['ArrayMetric', 'LeapArray', 'StatisticNode']],
  ['client', ['limitedFetch']],
  ['http', ['ipKey', 'rateLimitHeaders']],
  ['fastify', ['default', 'leapgate']],
  ...['express', 'fetch', 'hono', 'store', 'nestjs'].map((name) => [name, ['leapgate']]),
];

test('types: valid options compile, and mistyped ones do not', async () => {
  const tsc = require.resolve('typescript/bin/tsc');
  const project = fileURLToPath(new URL('types', import.meta.url));
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', project]).catch((error) => error);
  assert.equal(stdout, '');
});

test('types: `leapgate/slim` needs no types of browsers', async () => {
  const tsc = require.resolve('typescript/bin/tsc');
  const file = fileURLToPath(new URL('slim.mts', import.meta.url));
  writeFileSync(file, "import { init } from 'leapgate/slim';\nawait init(new Uint8Array(8));\nawait init({ href: 'file:///a' });\n// @ts-expect-error\nawait init(5);\n");
  const options = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022', '--lib', 'es2022,esnext.disposable', '--types', 'leapgate'];
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, ...options, file]).catch((error) => error);
  assert.equal(stdout, '');
});

for (const [name, exported] of ENTRIES) {
  test(`leapgate/${name}: works with \`import\` and \`require\``, async () => {
    const [imported, required] = [await import(`leapgate/${name}`), require(`leapgate/${name}`)];
    assert.deepEqual([Object.keys(imported).sort(), Object.keys(required).sort()], [exported, exported]);
  });
}

test('leapgate/fetch: limiters count together by `import` and `require`', async () => {
  const { Limiter } = await import('leapgate');
  const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
  const options = { limiter, key: () => 'a' };
  const [imported, required] = [await import('leapgate/fetch'), require('leapgate/fetch')];
  const ask = ({ leapgate }) => leapgate(options)(() => new Response())(new Request('http://localhost'));
  assert.deepEqual([(await ask(imported)).status, (await ask(required)).status], [200, 429]);
});
