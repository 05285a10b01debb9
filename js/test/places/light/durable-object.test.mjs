// Durable Objects as the store of shared limiters, in Miniflare: the real workerd, with several isolates as nodes.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { tool } from '../place.mjs';
import { bundled, leave, worker } from './workerd.mjs';

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
async function workers() {
  const { Miniflare } = tool('light', 'miniflare');
  const modulesRoot = await bundled(WORKER);
  const of = (name, scriptName) => ({
    name,
    compatibilityDate: '2026-04-01',
    modulesRoot,
    modulesRules: [{ type: 'CompiledWasm', include: ['**/*.wasm'] }],
    modules: true,
    scriptPath: join(modulesRoot, 'worker.js'),
    durableObjects: { LEASES: { className: 'LeaseStore', scriptName, useSQLite: true } },
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
  // A permit is given back when it is sent; soon after that the object knows it.
  for (let [rounds, end] = [0, Date.now() + 20_000]; rounds < 20; rounds++) {
    const { permits, granted } = await ask(0, { stats: 1 });
    if (permits > 0) rounds = 0;
    assert.ok(Date.now() < end, `${permits} of ${granted} permits are left`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  let passed = 0;
  for (let i = 0; i < 2 * LIMIT; i++) passed += (await ask(1, { key })).success;
  assert.ok(passed >= LIMIT - 12, `${passed}`);
});

test('workerd: a request waits for no call of a request whose client has left', async () => {
  const { url, get } = await worker(`
    import { SharedLimiter } from 'leapgate/shared';
    import { MemoryStore } from 'leapgate/shared/memory';
    const memory = new MemoryStore();
    const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    const asked = [];
    // The first call hangs; others take a while.
    const lease = async (key, request) => {
      asked.push(key);
      await wait(asked.length === 1 ? 60_000 : 2);
      return memory.lease(key, request);
    };
    const limiter = new SharedLimiter({ id: 'api', limit: 5, windowMs: 60_000, store: { lease }, timeoutMs: 300, whenDown: 'refuse' });
    export default {
      async fetch(request, env, ctx) {
        const { pathname } = new URL(request.url);
        if (pathname === '/asked') return Response.json(asked.length);
        const { success } = await limiter.limit('a', pathname === '/ctx' ? { ctx } : undefined);
        return Response.json(success);
      },
    };
  `);
  let arrived;
  const early = new Promise((resolve) => (arrived = resolve));
  const left = leave(url, early);
  while ((await get('/asked')) === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  arrived();
  await left;
  const before = Date.now();
  const answers = await Promise.all(Array.from({ length: 10 }, () => get('/ctx')));
  assert.ok(Date.now() - before < 5000, `${Date.now() - before} ms`);
  assert.equal(answers.length, 10);
  let passed = answers.filter(Boolean).length;
  for (const end = Date.now() + 10_000; passed < 5; passed += await get('/ctx')) assert.ok(Date.now() < end, `${passed} of 5`);
  for (let i = 0; i < 10; i++) assert.equal(await get('/ctx'), false);
});
