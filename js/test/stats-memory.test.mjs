// Statistics that are freed, and all statistics after a trap.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { crash, memory } from './traps.mjs';

const { Engine } = await import('leapgate/engine');
const { ArrayMetric, LeapArray, StatisticNode } = await import('leapgate/stats');

// The memory in use after many calls of `act`.
async function memoryAfter(times, act) {
  act();
  const before = memory.buffer.byteLength;
  for (let i = 0; i < times; i++) await act(i);
  return memory.buffer.byteLength - before;
}

const MANY = { intervalMs: 1000, sampleCount: 1000 };
const BYTES = 100_000; // at least, of one that has so many buckets

test('free_returns_the_memory', async () => {
  const kept = [];
  assert.ok((await memoryAfter(100, () => kept.push(new LeapArray(MANY)))) > 100 * BYTES);
  assert.ok((await memoryAfter(100, () => new LeapArray(MANY).free())) < 10 * BYTES);
  assert.ok((await memoryAfter(100, () => new ArrayMetric(MANY).free())) < 10 * BYTES);
});

test('garbage_collection_returns_the_memory', async () => {
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  const used = await memoryAfter(300, async (i) => {
    const { second } = { second: new ArrayMetric(MANY).view({ intervalMs: 1000, sampleCount: 1 }) };
    second.pass();
    if (i % 10 !== 0) return;
    gc();
    await new Promise((resolve) => setImmediate(resolve));
  });
  assert.ok(used < 100 * BYTES, `${used} bytes more`);
});

const SECOND = { intervalMs: 1000, sampleCount: 2, now: () => 5000 };

test('statistics_begin_anew_after_a_trap', () => {
  const [array, metric, node, freed] = [new LeapArray(SECOND), new ArrayMetric(SECOND), new StatisticNode({ now: () => 5000 }), new LeapArray(SECOND)];
  const [view, second] = [metric.view({ intervalMs: 500, sampleCount: 1 }), node.second()];
  array.addPass(3);
  metric.addPass(3);
  node.addPassRequest(3);
  freed.free();
  crash('metric_sum', () => metric.pass());
  assert.deepEqual([array.list(), metric.pass(), view.pass(), node.passQps(), second.pass()], [[], 0, 0, 0, 0]);
  array.addPass(1);
  metric.addPass(2);
  node.addPassRequest(4);
  assert.deepEqual([array.list()[0].value.pass, metric.pass(), view.pass(), node.passQps(), second.pass()], [1, 2, 2, 4, 4]);
  assert.deepEqual([array.sampleCount, view.intervalMs], [2, 500]);
  assert.throws(() => freed.list(), { code: 'ERR_LEAPGATE_FREED' });
});

test('nodes_that_were_not_entered_since_a_trap_are_an_error', () => {
  const engine = new Engine({}, { now: () => 5000 });
  engine.limit('a', { context: 'web' });
  const { nodes } = engine;
  const [root, a] = [nodes.root, nodes.cluster('a')];
  crash('node_value', () => a.passQps());
  assert.equal(nodes.cluster('a'), null);
  assert.throws(() => a.passQps(), {
    code: 'ERR_LEAPGATE_CRASHED',
    message: 'node: nothing has been counted here since the wasm module was started again; ask `engine.nodes` for it',
  });
  assert.equal(root.passQps(), 0);
  engine.limit('a');
  assert.deepEqual([root.passQps(), a.passQps(), nodes.cluster('a').passQps()], [1, 1, 1]);
  assert.deepEqual(engine.counters(), []);
});
