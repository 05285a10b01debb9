// What the suites of p-throttle, p-limit, p-queue and bottleneck ask of their packages, asked of both engines, in virtual time. docs/peers.md has
// what an engine does not do.

import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { spawnSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import test from 'node:test';
import { Engine } from 'leapgate/engine';
import { Engine as FlowEngine } from 'leapgate/flow';
import { mostInAny } from './http.mjs';
import { settled, virtualTime } from './time.mjs';

const ENGINES = [['leapgate/flow', FlowEngine], ['leapgate/engine', Engine]];

// The engine of each test.
const engines = new WeakMap();

// A test of each engine.
function claim(name, body, of = ENGINES) {
  for (const [from, Engine] of of) {
    test(`${name}: ${from}`, (t) => {
      engines.set(t, Engine);
      return body(t, from);
    });
  }
}

const inFlight = (count) => ({ grade: 'concurrency', count });
const fixed = (count, intervalMs) => ({ count, intervalMs, window: 'sentinel', sampleCount: 1 });

// An engine with these rules of `api`; `schedule` calls a function when it is its turn, and `work` returns one that takes so long and
// logs when it began. `running` is how many are, and were at most.
function queueOf(t, rules, settings = {}) {
  const time = virtualTime(t);
  const documentOf = (rules) => ({ flowRules: [rules].flat().map((rule) => ({ resource: 'api', ...rule })) });
  const engine = new (engines.get(t))(documentOf(rules), { now: time.now, ...settings });
  t.after(() => engine.free());
  const queue = { time, engine, log: [], running: 0, most: 0, replace: (rules) => engine.replace(documentOf(rules)) };
  queue.schedule = async (call, request) => {
    const entry = await engine.acquire('api', request);
    try {
      return await call();
    } finally {
      entry.exit();
    }
  };
  queue.work = (name, ms = 0) => async () => {
    queue.log.push([name, time.ms]);
    queue.most = Math.max(queue.most, ++queue.running);
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    queue.running--;
    return name;
  };
  queue.times = () => queue.log.map(([, at]) => at);
  // Schedules so many pieces of work at once.
  queue.all = (many, ms, request) => Array.from({ length: many }, (_, i) => queue.schedule(queue.work(i, ms), request));
  return queue;
}

const upTo = (many) => Array.from({ length: many }, (_, i) => i);

// p-throttle.

for (const [limit, intervalMs, calls] of [[1, 100, 10], [5, 100, 100], [10, 100, 50], [100, 1000, 300], [3, 10, 30], [1, 5, 20]]) {
  claim(`p-throttle: ${calls} calls of ${limit} in ${intervalMs} ms are spread over the intervals, in order`, async (t) => {
    const strict = queueOf(t, { count: limit, intervalMs });
    await strict.time.until(Promise.all(strict.all(calls)));
    assert.deepEqual(strict.log.map(([name]) => name), upTo(calls));
    assert.equal(mostInAny(intervalMs, strict.times()), limit);
    const intervals = Math.ceil(calls / limit) - 1;
    const last = strict.times().at(-1);
    assert.ok(last >= intervals * intervalMs && last <= intervals * (intervalMs + Math.max(1, intervalMs / 20)), `the last call at ${last}`);
  });
}

claim('p-throttle: after a pause the whole limit is there again, and no more', async (t) => {
  const queue = queueOf(t, { count: 3 });
  await queue.time.until(Promise.all(queue.all(4)));
  await queue.time.pass(5000);
  const from = queue.time.ms;
  await queue.time.until(Promise.all(queue.all(4)));
  const [first, second, third, fourth] = queue.times().slice(4).map((at) => at - from);
  assert.deepEqual([first, second, third, fourth >= 1000 && fourth <= 1010], [0, 0, 0, true]);
});

claim('p-throttle: calls keep their arguments, results and errors', async (t) => {
  const { schedule } = queueOf(t, { count: 9 });
  const throttled = (...args) => schedule(() => args.join());
  assert.equal(await throttled(1, 2, 3), '1,2,3');
  await assert.rejects(schedule(() => Promise.reject(new Error('late'))), { message: 'late' });
  await assert.rejects(schedule(() => { throw new Error('at once'); }), { message: 'at once' });
});

claim('p-throttle: an abort rejects what waits with its reason, once, and nothing else', async (t) => {
  const [one, other] = [queueOf(t, { count: 1 }), new (engines.get(t))({ flowRules: [{ resource: 'api', count: 1 }] }, { now: () => 0 })];
  t.after(() => other.free());
  const [shared, own] = [new AbortController(), new AbortController()];
  const reason = { complex: true };
  await one.schedule(one.work('first'));
  await other.acquire('api');
  const lost = [...one.all(3, 0, { signal: shared.signal }), other.acquire('api', { signal: shared.signal })];
  const kept = one.schedule(one.work('kept'), { signal: own.signal });
  shared.abort(reason);
  shared.abort('again');
  for (const { reason: given } of await Promise.allSettled(lost)) assert.equal(given, reason);
  await one.time.until(kept);
  own.abort();
  // What was aborted while it waited has cost nothing; what was sent before stays counted.
  assert.deepEqual(one.log, [['first', 0], ['kept', 1010]]);
  for (const { signal } of [shared, own]) assert.equal(getEventListeners(signal, 'abort').length, 0);
  await assert.rejects(one.schedule(one.work('late'), { signal: shared.signal }), (error) => error === reason);
});

claim('p-throttle: exempt calls start at once, are not counted, and leave those that wait in line', async (t) => {
  const queue = queueOf(t, { count: 1 });
  const waiting = queue.all(2);
  await settled();
  await Promise.all(queue.all(3, 0, { exempt: true }));
  await queue.time.until(Promise.all(waiting));
  assert.deepEqual(queue.times(), [0, 0, 0, 0, 1010]);
}, ENGINES.slice(1));

claim('p-throttle: a thousand calls at once', async (t) => {
  const queue = queueOf(t, { count: 100, intervalMs: 100 });
  await queue.time.until(Promise.all(queue.all(1000)));
  assert.equal(mostInAny(100, queue.times()), 100);
  assert.deepEqual(queue.log.map(([name]) => name), upTo(1000));
});

claim('p-throttle: weights together never exceed the limit, and the order stays', async (t) => {
  const queue = queueOf(t, { count: 5 });
  const weights = [5, 1, 4, 2, 3, 0, 5, 2, 2, 1, 1, 3, 0, 4];
  await queue.time.until(Promise.all(weights.map((cost, i) => queue.schedule(queue.work(i), { cost }))));
  assert.deepEqual(queue.log.map(([name]) => name), upTo(weights.length));
  const units = queue.log.flatMap(([i, at]) => Array(weights[i]).fill(at));
  assert.equal(mostInAny(1000, units), 5);
  assert.deepEqual(queue.times().slice(0, 3), [0, 1010, 1010], 'weights that fill a window exactly pass together');
});

claim('p-throttle: a weight above the limit, or a limit of 0, is refused at once; a weight of 0 passes', async (t) => {
  const queue = queueOf(t, { count: 5, id: 'five' });
  await assert.rejects(queue.schedule(queue.work(), { cost: 6 }), { code: 'ERR_LEAPGATE_BLOCKED', message: 'api: `five` refuses; it never lets this request pass' });
  queue.replace({ count: 0, id: 'none' });
  await assert.rejects(queue.schedule(queue.work()), { message: 'api: `none` refuses; it never lets this request pass' });
  assert.equal(await queue.schedule(queue.work('free'), { cost: 0 }), 'free');
});

for (const [cost, message] of [[NaN, '`NaN`'], [-1, '`-1`'], [0.5, '`0.5`']]) {
  claim(`p-throttle: a weight of ${cost} is refused with a sentence`, async (t) => {
    const queue = queueOf(t, { count: 5 });
    await assert.rejects(queue.schedule(queue.work(), { cost }), { message: `request.cost: ${message} is not possible; use a whole number from 0 to 4294967295` });
  });
}

claim('p-throttle: a call that is refused by `enter` tells the delay, and then waits in line', async (t) => {
  const queue = queueOf(t, { count: 1 });
  await queue.schedule(queue.work());
  const delayed = [];
  const { success, retryAfterMs } = queue.engine.enter('api');
  if (!success) delayed.push(retryAfterMs);
  await queue.time.until(queue.schedule(queue.work()));
  assert.deepEqual([delayed, queue.times()], [[1010], [0, 1010]]);
});

// p-limit.

for (const [count, most] of [[1, 1], [4, 4], [5, 5]]) {
  claim(`p-limit: with a concurrency of ${count} never more run, and all places are used`, async (t) => {
    const queue = queueOf(t, inFlight(count));
    const durations = [30, 20, 10, 50, 40, 5, 60, 25, 15, 35];
    const all = durations.map((ms, i) => queue.schedule(queue.work(i, ms)));
    assert.deepEqual(await queue.time.until(Promise.all(all)), upTo(10));
    assert.deepEqual([queue.most, queue.log.map(([name]) => name)], [most, upTo(10)]);
  });
}

claim('p-limit: 600 ms of work, one at a time, take 600 ms', async (t) => {
  const queue = queueOf(t, inFlight(1));
  await queue.time.until(Promise.all([300, 200, 100].map((ms) => queue.schedule(queue.work(ms, ms)))));
  assert.deepEqual(queue.log, [[300, 0], [200, 300], [100, 500]]);
  assert.ok(queue.time.ms <= 601);
});

claim('p-limit: a call sees the async context of its caller', async (t) => {
  const queue = queueOf(t, inFlight(1));
  const store = new AsyncLocalStorage();
  const seen = [1, 2, 3].map((id) => store.run(id, () => queue.schedule(async () => (await queue.work(id, 5)(), store.getStore()))));
  assert.deepEqual(await queue.time.until(Promise.all(seen)), [1, 2, 3]);
});

claim('p-limit: calls start later than they are scheduled, and values of any kind come back', async (t) => {
  const queue = queueOf(t, inFlight(2));
  let isCalled = false;
  const value = queue.schedule(() => ((isCalled = true), null));
  assert.equal(isCalled, false);
  assert.equal(await value, null);
  assert.equal(await queue.schedule(() => undefined), undefined);
});

claim('p-limit: after a throw, the next runs', async (t) => {
  const queue = queueOf(t, inFlight(1));
  const all = [
    queue.schedule(() => { throw new Error('sync'); }),
    queue.schedule(() => Promise.reject(new Error('async'))),
    queue.schedule(queue.work('third')),
  ];
  const [first, second, third] = await Promise.allSettled(all);
  assert.deepEqual([first.reason.message, second.reason.message, third.value], ['sync', 'async', 'third']);
});

claim('p-limit: a higher limit starts more at once, and a lower one lets what runs end', async (t) => {
  const queue = queueOf(t, inFlight(2));
  const all = queue.all(12, 100);
  await queue.time.pass(50);
  queue.replace(inFlight(4));
  await settled();
  assert.equal(queue.running, 4);
  queue.replace(inFlight(1));
  await queue.time.pass(120);
  assert.equal(queue.running, 1);
  await queue.time.until(Promise.all(all));
  assert.equal(queue.most, 4);
});

claim('p-limit: a concurrency that is none is refused with a sentence', (t) => {
  const made = (count) => () => new (engines.get(t))({ flowRules: [{ resource: 'api', grade: 'concurrency', count }] });
  for (const count of [-1, NaN]) assert.throws(made(count), { message: `flowRules[0].count: \`${count}\` is not a valid count; use a number from 0 to 9007199254740992` });
  assert.throws(made('5'), { message: 'flowRules[0].count: `5` is a string; use a number' });
});

claim('p-limit: without a rule all start at once', async (t) => {
  const queue = queueOf(t, []);
  await queue.time.until(Promise.all(queue.all(50, 10)));
  assert.equal(queue.most, 50);
});

// p-queue.

claim('p-queue: a cap of an interval holds whatever the concurrency', async (t) => {
  const queue = queueOf(t, [fixed(5, 1000), inFlight(50)]);
  await queue.time.until(Promise.all(queue.all(23, 300)));
  assert.deepEqual(queue.times(), upTo(23).map((i) => 1000 * Math.floor(i / 5)));
});

claim('p-queue: what an interval has used stays used while nothing waits, and the next one is fresh', async (t) => {
  const queue = queueOf(t, fixed(2, 1000));
  await Promise.all(queue.all(2));
  await queue.time.pass(600);
  await queue.time.until(queue.schedule(queue.work('third')));
  await queue.time.pass(1700);
  await queue.time.until(Promise.all(queue.all(3)));
  assert.deepEqual(queue.times(), [0, 0, 1000, queue.times()[3], queue.times()[3], 3000]);
  assert.ok(queue.times()[3] >= 2700 && queue.times()[3] < 3000);
});

claim('p-queue: in a strict window a place is free as soon as the oldest call has left it', async (t) => {
  const queue = queueOf(t, { count: 3 });
  for (const ms of [0, 300, 300]) {
    await queue.time.pass(ms);
    await queue.schedule(queue.work());
  }
  await queue.time.until(Promise.all(queue.all(3)));
  assert.deepEqual(queue.times(), [0, 300, 600, 1010, 1310, 1610]);
});

claim('p-queue: aborted calls that wait use up nothing, and the next ones move up at once', async (t) => {
  const queue = queueOf(t, [inFlight(1), fixed(3, 60_000)]);
  const controller = new AbortController();
  const first = queue.schedule(queue.work('first', 100));
  const lost = queue.all(5, 100, { signal: controller.signal });
  const last = ['second', 'third'].map((name) => queue.schedule(queue.work(name, 100)));
  await queue.time.pass(10);
  controller.abort('mine');
  assert.deepEqual((await Promise.allSettled(lost)).map(({ reason }) => reason), Array(5).fill('mine'));
  await queue.time.until(Promise.all([first, ...last]));
  assert.deepEqual(queue.log, [['first', 0], ['second', 100], ['third', 200]]);
});

claim('p-queue: ten thousand aborted calls overflow no stack', async (t) => {
  const queue = queueOf(t, inFlight(1), { maxWaiting: 20_000 });
  const running = queue.schedule(queue.work('first', 100));
  await settled();
  const signals = upTo(10_000).map(() => new AbortController());
  const lost = signals.map(({ signal }) => queue.schedule(queue.work('lost'), { signal }).catch((error) => error));
  const last = queue.schedule(queue.work('last'));
  for (const controller of signals) controller.abort('mine');
  assert.ok((await Promise.all(lost)).every((error) => error === 'mine'));
  await queue.time.until(Promise.all([running, last]));
  assert.deepEqual(queue.log, [['first', 0], ['last', 100]]);
});

claim('p-queue: a call may be added by a call that runs', async (t) => {
  const queue = queueOf(t, fixed(2, 1000));
  const nested = queue.schedule(async () => (await queue.work('outer')(), Promise.all(queue.all(2))));
  await queue.time.until(nested);
  assert.deepEqual(queue.times(), [0, 0, 1000]);
});

claim('p-queue and bottleneck: a process stays while calls wait, and ends after the last', (_, from) => {
  const program = `
    import { Engine } from '${from}';
import { Engine as FlowEngine } from 'leapgate/flow';
    const engine = new Engine({ flowRules: [{ resource: 'api', count: 1, intervalMs: 50 }] });
    for (let i = 0; i < 3; i++) engine.acquire('api').then((entry) => (entry.exit(), console.log(i)));`;
  const { stdout, stderr, status } = spawnSync(process.execPath, ['--input-type=module', '-e', program], { encoding: 'utf8', timeout: 20_000, cwd: import.meta.dirname });
  assert.deepEqual([stdout, stderr, status], ['0\n1\n2\n', '', 0]);
});

claim('p-queue: the queue is idle when nothing waits and nothing runs', async (t) => {
  const queue = queueOf(t, inFlight(2));
  const states = () => Object.values(queue.engine.stats()).join();
  assert.equal(states(), '0,0');
  await queue.engine.drain();
  const all = queue.all(5, 100);
  await settled();
  assert.equal(states(), '2,3');
  await queue.time.until(queue.engine.drain());
  assert.ok(queue.time.ms >= 300 && queue.time.ms <= 302);
  assert.equal(states(), '0,0');
  await Promise.all(all);
});

claim('p-queue: priorities hold across an interval, and first come is first served within one', async (t) => {
  const queue = queueOf(t, fixed(1, 1000));
  const priorities = [0, 1, 0, 2, 1, 0];
  await queue.time.until(Promise.all(priorities.map((priority, i) => queue.schedule(queue.work(i), { priority }))));
  assert.deepEqual(queue.log, [[0, 0], [3, 1000], [1, 2000], [4, 3000], [2, 4000], [5, 5000]]);
});

claim('p-queue: a call that takes too long is rejected, and the next one starts', async (t) => {
  const queue = queueOf(t, inFlight(1));
  const timed = (name, ms) => queue.schedule(() => queue.engine.run('any', { timeoutMs: 50 }, queue.work(name, ms)));
  const [slow, quick] = [timed('slow', 500), timed('quick', 30)];
  await assert.rejects(queue.time.until(slow), { code: 'ERR_LEAPGATE_TIMEOUT' });
  assert.equal(await queue.time.until(quick), 'quick');
  assert.deepEqual(queue.log, [['slow', 0], ['quick', 50]]);
});

// bottleneck.

claim('bottleneck: weights of what runs together never exceed the limit, and a weight above it is refused at once', async (t) => {
  const queue = queueOf(t, { ...inFlight(5), id: 'five' });
  const weights = [3, 2, 4, 1, 5, 0, 2];
  let [load, most] = [0, 0];
  const job = (cost, i) => async () => {
    most = Math.max(most, (load += cost));
    await queue.work(i, 100)();
    load -= cost;
  };
  await queue.time.until(Promise.all(weights.map((cost, i) => queue.schedule(job(cost, i), { cost }))));
  assert.deepEqual([most, queue.log.map(([name]) => name)], [5, upTo(weights.length)]);
  await assert.rejects(queue.schedule(queue.work(), { cost: 6 }), { message: 'api: `five` refuses; it never lets this request pass' });
});

for (const [maxWaiting, refused] of [[0, 2], [1, 1]]) {
  claim(`bottleneck: while ${maxWaiting} may wait, ${refused} of 3 calls for one place are refused`, async (t) => {
    const queue = queueOf(t, inFlight(1), { maxWaiting });
    const ends = await queue.time.until(Promise.allSettled(queue.all(3, 10)));
    const codes = ends.map(({ reason }) => reason?.code).filter((code) => code !== undefined);
    assert.deepEqual([codes, queue.log.length], [Array(refused).fill('ERR_LEAPGATE_FULL'), 3 - refused]);
  });
}

claim('bottleneck: keys have limits and lines of their own, and a change of rules is for all of them', async (t) => {
  const queue = queueOf(t, { ...inFlight(1), key: [{ arg: 0 }] });
  const all = ['a', 'b', 'a', 'b', 'a'].map((key) => queue.schedule(queue.work(key, 100), { key }));
  await queue.time.pass(50);
  assert.equal(queue.running, 2);
  queue.replace({ ...inFlight(2), key: [{ arg: 0 }] });
  await settled();
  assert.equal(queue.running, 4);
  await queue.time.until(Promise.all(all));
});

claim('bottleneck: so many in an interval, staggered by a minimum time', async (t) => {
  const queue = queueOf(t, [fixed(3, 1000), { controlBehavior: 'throttle', count: 10 }]);
  await queue.time.until(Promise.all(queue.all(7)));
  assert.deepEqual(queue.times(), [0, 100, 200, 1000, 1100, 1200, 2000]);
});

claim('bottleneck: `policies` tells whether a call would start at once', async (t) => {
  const queue = queueOf(t, inFlight(1));
  const isFree = () => queue.engine.policies('api').every(({ remaining }) => remaining > 0);
  assert.equal(isFree(), true);
  const running = queue.schedule(queue.work('first', 100));
  await settled();
  assert.equal(isFree(), false);
  await queue.time.until(running);
  assert.equal(isFree(), true);
});

claim('bottleneck: to stop at once is to free the engine: what waits is rejected, and what runs ends', async (t) => {
  const queue = queueOf(t, inFlight(1));
  const [running, ...waiting] = queue.all(3, 100);
  await queue.time.pass(10);
  queue.engine.free();
  for (const { reason } of await Promise.allSettled(waiting)) assert.equal(reason.code, 'ERR_LEAPGATE_FREED');
  assert.equal(await queue.time.until(running), 0);
  await assert.rejects(queue.schedule(queue.work()), { code: 'ERR_LEAPGATE_FREED' });
});
