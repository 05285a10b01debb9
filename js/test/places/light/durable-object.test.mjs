// Durable Objects as the store of shared limiters, in Miniflare: the real workerd, with several isolates as nodes.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { project, tool } from '../place.mjs';

const LIMIT = 30;

const WORKER = `
import { SharedLimiter } from 'leapgate/shared';
import { durableObject } from 'leapgate/shared/durable-object';
export { LeaseStore } from 'leapgate/shared/durable-object';

let limiter;
export default {
  async fetch(request, env, ctx) {
    const { searchParams } = new URL(request.url);
    const windowMs = Number(searchParams.get('windowMs') ?? 60_000);
    const of = { limit: ${LIMIT}, store: durableObject(env.LEASES), whenDown: 'refuse', timeoutMs: 5000 };
    limiter ??= new SharedLimiter({ id: 'api', windowMs, ...of });
    if (searchParams.has('stats')) return Response.json(limiter.stats());
    const { success, retryAfterMs } = await limiter.limit(searchParams.get('key'), { ctx });
    return Response.json({ success, retryAfterMs });
  },
};
`;

// The Worker twice: each is a node, with isolates of its own, and both have the objects of the first.
async function workers(more = {}) {
  const { build } = tool('esbuild', 'esbuild');
  const { Miniflare } = tool('light', 'miniflare');
  const dir = project({ 'worker.mjs': WORKER });
  const outfile = join(dir, 'out/worker.js');
  const conditions = ['workerd', 'worker', 'browser'];
  const loader = { '.wasm': 'copy' };
  await build({ absWorkingDir: dir, entryPoints: ['worker.mjs'], bundle: true, format: 'esm', conditions, loader, outfile });
  const of = (name, scriptName) => ({
    name,
    compatibilityDate: '2026-04-01',
    modulesRoot: join(dir, 'out'),
    modulesRules: [{ type: 'CompiledWasm', include: ['**/*.wasm'] }],
    modules: true,
    scriptPath: outfile,
    durableObjects: { LEASES: { className: 'LeaseStore', scriptName, useSQLite: true } },
    ...more,
  });
  const miniflare = new Miniflare({ host: '127.0.0.1', port: 0, cf: false, workers: [of('one'), of('two', 'one')] });
  after(() => miniflare.dispose());
  const nodes = await Promise.all(['one', 'two'].map((name) => miniflare.getWorker(name)));
  const ask = async (node, query) => (await nodes[node].fetch(`http://localhost/?${new URLSearchParams(query)}`)).json();
  return { miniflare, ask };
}

test('Durable Objects: isolates hold one limit for each key, at once and later', async () => {
  const { ask } = await workers();
  for (const key of ['a', 'Zoë %:', 'k'.repeat(900)]) {
    const results = await Promise.all(Array.from({ length: 3 * LIMIT }, (_, i) => ask(i % 2, { key })));
    const passed = results.filter(({ success }) => success).length;
    assert.ok(passed <= LIMIT && passed >= 0.7 * LIMIT, `${passed} of ${LIMIT} with the key ${key}`);
    for (const { success, retryAfterMs } of results) assert.equal(success, retryAfterMs === 0);
    let later = 0;
    for (let i = 0; i < 2 * LIMIT; i++) later += (await ask(i % 2, { key })).success;
    assert.ok(passed + later <= LIMIT, `${passed} and ${later}`);
  }
  for (const node of [0, 1]) {
    const { lost, isDown, waiting } = await ask(node, { stats: 1 });
    assert.deepEqual([lost, isDown, waiting], [0, false, 0]);
  }
});

test('Durable Objects: what is not used is given back while the request keeps the isolate', async () => {
  const { ask } = await workers();
  const key = 'idle';
  await Promise.all(Array.from({ length: 12 }, () => ask(0, { key })));
  const { permits, granted } = await ask(0, { stats: 1 });
  for (let left = permits, end = Date.now() + 20_000; left > 0; { permits: left } = await ask(0, { stats: 1 })) {
    assert.ok(Date.now() < end, `${left} of ${granted} permits are left`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  let passed = 0;
  for (let i = 0; i < 2 * LIMIT; i++) passed += (await ask(1, { key })).success;
  assert.ok(passed >= LIMIT - 12, `${passed}`);
});
