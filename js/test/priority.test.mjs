// Priorities of requests that wait, how many there are, and `drain`. Time is mocked.

import assert from 'node:assert/strict';
import { EventEmitter } from 'node:events';
import test from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { Engine } from 'leapgate/engine';
import { until } from './http.mjs';

const inFlight = (count) => ({ resource: 'pay', id: 'in flight', count, grade: 'concurrency' });
const throttled = { resource: 'pay', id: 'turns', count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 60_000 };
const settled = () => new Promise(setImmediate);

// How many requests of a higher priority are admitted in a row before one that came earlier.
const MOST_AHEAD = 7;

function engineOf(t, flowRules, settings) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const time = { ms: 0 };
  time.pass = async (ms) => {
    await settled();
    for (const end = time.ms + ms; time.ms < end; ) {
      time.ms++;
      t.mock.timers.tick(1);
      await settled();
    }
  };
  const engine = new Engine({ flowRules }, { now: () => time.ms, ...settings });
  t.after(() => engine.free());
  return { engine, time };
}

// The names of requests in the order in which they are admitted.
function orderOf(engine) {
  const order = [];
  const ask = (name, priority, more) => {
    const asked = engine.acquire('pay', { priority, ...more });
    asked.then((entry) => order.push([name, entry]), (error) => order.push([`${name}: ${error.code ?? error}`]));
    return asked;
  };
  return { order, ask, names: () => order.map(([name]) => name) };
}

// Ends calls until none waits. Returns the names in order.
async function admitAll(engine, { order, names }, ...open) {
  for (let i = 0; ; i++) {
    const entry = open.shift() ?? order[i - 1]?.[1];
    if (entry === undefined) return names();
    entry.exit();
    await settled();
  }
}

test('the highest priority is first, and within one priority the first that came', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  const line = orderOf(engine);
  const open = engine.enter('pay');
  for (const [name, priority] of [['a', 0], ['b', undefined], ['c', 2], ['d', -1], ['e', 2], ['f', 0.5], ['g', 0]]) line.ask(name, priority);
  await settled();
  assert.deepEqual(await admitAll(engine, line, open), ['c', 'e', 'f', 'a', 'b', 'g', 'd']);
});

test('a request of a higher priority passes at once where those that wait may not', async (t) => {
  const { engine } = engineOf(t, [inFlight(3)]);
  const line = orderOf(engine);
  const open = engine.enter('pay', { cost: 2 });
  line.ask('large', 0, { cost: 2 });
  line.ask('small', 0);
  line.ask('urgent', 1);
  await settled();
  assert.deepEqual(line.names(), ['urgent']);
  line.ask('more urgent', 2);
  await settled();
  assert.deepEqual(await admitAll(engine, line, open), ['urgent', 'more urgent', 'large', 'small']);
});

test('none starves: after so many that were admitted ahead, the one that has waited longest is next', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  const line = orderOf(engine);
  const open = engine.enter('pay');
  for (const name of ['x', 'y', 'z']) line.ask(name, 0);
  for (let i = 0; i < 30; i++) line.ask(i, 9);
  const order = await admitAll(engine, line, open);
  const ahead = (from) => Array.from({ length: MOST_AHEAD }, (_, i) => from + i);
  assert.deepEqual(order, [...ahead(0), 'x', ...ahead(7), 'y', ...ahead(14), 'z', ...Array.from({ length: 9 }, (_, i) => 21 + i)]);
});

// A naive restatement: all that wait, in order of arrival.
class Naive {
  waiting = [];
  ahead = 0;

  next() {
    if (this.ahead >= MOST_AHEAD) return this.waiting[0];
    return this.waiting.reduce((best, one) => (one.priority > best.priority ? one : best), this.waiting[0]);
  }

  admit() {
    const next = this.next();
    this.ahead = next === this.waiting[0] ? 0 : this.ahead + 1;
    this.leave(next.name);
    return next.name;
  }

  leave(name) {
    this.waiting = this.waiting.filter((one) => one.name !== name);
    if (this.waiting.length === 0) this.ahead = 0;
  }
}

test('random requests are admitted in the order of a naive restatement, and each within a bound', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)], { maxWaiting: Infinity });
  let seed = 7;
  const random = (below) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % below;
  const [naive, line] = [new Naive(), orderOf(engine)];
  let open = engine.enter('pay');
  const aborts = new Map();
  const bounds = new Map();
  let admitted = 0;
  for (let i = 0; i < 3000; i++) {
    const what = random(10);
    if (what < 5) {
      const controller = new AbortController();
      const priority = [0, 0, 0, 1, 5, -3][random(6)];
      bounds.set(i, admitted + (naive.waiting.length + 1) * (MOST_AHEAD + 1));
      naive.waiting.push({ name: i, priority });
      aborts.set(i, controller);
      line.ask(i, priority, { signal: controller.signal }).catch(() => {});
    } else if (what < 6 && naive.waiting.length > 0) {
      const { name } = naive.waiting[random(naive.waiting.length)];
      naive.leave(name);
      aborts.get(name).abort('gone');
    } else if (naive.waiting.length > 0) {
      const expected = naive.admit();
      const before = line.order.length;
      open.exit();
      await settled();
      const [name, entry] = line.order.at(-1);
      assert.deepEqual([name, line.order.length > before], [expected, true], `step ${i}`);
      assert.ok(++admitted <= bounds.get(name), `${name} waited for too long`);
      open = entry;
    }
    if (i % 100 === 0) await settled();
    assert.equal(engine.stats().waiting, naive.waiting.length);
  }
  assert.ok(admitted > 1000, admitted);
});

test('turns go to the highest priority, and those behind a request that gives up move up', async (t) => {
  const { engine, time } = engineOf(t, [throttled]);
  const line = orderOf(engine);
  const at = [];
  const note = (name, promise) => promise.then(() => at.push(`${name} at ${time.ms}`), (error) => at.push(`${name}: ${error}`));
  const controller = new AbortController();
  note('a', line.ask('a', 0));
  note('b', line.ask('b', 0));
  note('c', line.ask('c', 0, { signal: controller.signal }));
  note('d', line.ask('d', 0));
  note('e', engine.run('pay', { priority: 3 }, () => {}));
  await time.pass(50);
  controller.abort('enough');
  await time.pass(500);
  assert.deepEqual(at, ['a at 0', 'c: enough', 'e at 100', 'b at 200', 'd at 300']);
  assert.deepEqual(engine.stats(), { concurrency: 3, waiting: 0 });
});

test('turns are exchanged only between requests that are alike', async (t) => {
  const { engine, time } = engineOf(t, [throttled]);
  const line = orderOf(engine);
  for (const [name, priority, more] of [['a', 0], ['b', 0, { cost: 2 }], ['c', 0], ['d', 5], ['e', 9, { cost: 3 }]]) line.ask(name, priority, more);
  await time.pass(1000);
  assert.deepEqual(line.names(), ['a', 'b', 'd', 'c', 'e']);
});

test('a request that is overtaken waits no longer than it may', async (t) => {
  const { engine, time } = engineOf(t, [throttled]);
  const line = orderOf(engine);
  line.ask('a', 0);
  line.ask('b', 0, { maxWaitMs: 150 });
  line.ask('c', 1);
  line.ask('d', 0);
  await time.pass(149);
  assert.deepEqual(line.names(), ['a', 'c']);
  await time.pass(1);
  assert.deepEqual(line.names(), ['a', 'c', 'b: ERR_LEAPGATE_BLOCKED']);
  await time.pass(50);
  assert.deepEqual(line.names(), ['a', 'c', 'b: ERR_LEAPGATE_BLOCKED', 'd']);
  assert.equal(engine.stats().waiting, 0);
});

test('drain resolves when no call is in flight and none waits, and new calls are admitted', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(2), { ...throttled, resource: 'mail' }]);
  await engine.drain();
  const open = [engine.enter('pay'), engine.enter('pay'), engine.enter('other')];
  const waiting = engine.acquire('pay');
  const turns = [engine.run('mail', () => {}), engine.run('mail', () => {})];
  let isDrained = false;
  const drained = [engine.drain(), engine.drain()];
  Promise.all(drained).then(() => (isDrained = true));
  const expect = async (concurrency, waiting, state) => {
    await settled();
    assert.deepEqual([engine.stats(), isDrained], [{ concurrency, waiting }, state]);
  };
  await expect(4, 2, false);
  open[0].exit();
  await expect(4, 1, false);
  open[1].cancel();
  engine.enter('pay').exit({ refund: true });
  await time.pass(100);
  await expect(2, 0, false);
  open[2].exit({ unanswered: true });
  await expect(1, 0, false);
  (await waiting).exit();
  await Promise.all(turns);
  await expect(0, 0, true);
  const late = engine.enter('pay');
  assert.equal(late.success, true);
});

test('drain waits for no call that was refused, and for requests that give up only until they do', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  const open = engine.enter('pay');
  engine.enter('pay').exit();
  const controller = new AbortController();
  const waiting = engine.acquire('pay', { signal: controller.signal }).catch(() => {});
  let isDrained = false;
  engine.drain().then(() => (isDrained = true));
  engine.free();
  open.exit();
  await waiting;
  await settled();
  assert.equal(isDrained, true, 'of an engine that has been freed, too');
});

test('drain waits for no call that was forgotten', async () => {
  const engine = new Engine({ flowRules: [inFlight(1)] });
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  (() => void engine.enter('pay'))();
  const drained = engine.drain();
  let isDrained = false;
  drained.then(() => (isDrained = true));
  await until(() => (gc(), isDrained), 'a garbage collection');
  assert.equal(engine.stats().concurrency, 0);
});

test('any number may wait where maxWaiting is Infinity', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)], { maxWaiting: Infinity });
  const open = engine.enter('pay');
  const all = Array.from({ length: 5000 }, () => engine.acquire('pay', { maxWaitMs: Infinity }));
  assert.equal(engine.stats('pay').waiting, 5000);
  open.exit();
  for (const one of all) (await one).exit();
  assert.throws(() => new Engine({}, { maxWaiting: NaN }), { code: 'ERR_LEAPGATE_OPTIONS' });
});

test('a rules document has no Infinity', () => {
  const cure = 'means nothing here; use a number that is finite, or leave out what is not to be limited';
  for (const [rule, path] of [[{ ...inFlight(Infinity) }, 'count'], [{ ...throttled, maxQueueingTimeMs: Infinity }, 'maxQueueingTimeMs']]) {
    assert.throws(() => new Engine({ flowRules: [rule] }), { code: 'ERR_LEAPGATE_RULES', message: `document.flowRules[0].${path}: \`Infinity\` ${cure}` });
  }
});

test('a signal that many requests wait for has one listener', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  const warnings = [];
  t.mock.method(process, 'emitWarning', (warning) => warnings.push(warning));
  const open = engine.enter('pay');
  const controller = new AbortController();
  const { signal } = controller;
  const all = Array.from({ length: 40 }, () => engine.acquire('pay', { signal }).catch((error) => error));
  const { getEventListeners } = await import('node:events');
  assert.deepEqual([getEventListeners(signal, 'abort').length, warnings], [1, []]);
  controller.abort('stop');
  assert.deepEqual(new Set(await Promise.all(all)), new Set(['stop']));
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.ok(EventEmitter.defaultMaxListeners < 40);
  open.exit();
  assert.equal((await engine.acquire('pay')).success, true);
});

test('in Workers, where no request wakes another, the highest priority is first, and turns are not exchanged', async (t) => {
  globalThis.EdgeRuntime = 'edge-runtime';
  t.after(() => delete globalThis.EdgeRuntime);
  const { engine, time } = engineOf(t, [inFlight(1), { ...throttled, resource: 'mail' }]);
  const line = orderOf(engine);
  const open = engine.enter('pay');
  for (const [name, priority] of [['a', 0], ['b', 2], ['c', 1]]) line.ask(name, priority);
  await time.pass(60);
  open.exit();
  for (let i = 0; i < 3; i++) {
    await time.pass(120);
    line.order[i][1].exit();
  }
  assert.deepEqual(line.names(), ['b', 'c', 'a']);
  const turns = [];
  for (const priority of [0, 0, 9]) engine.acquire('mail', { priority }).then((entry) => turns.push([priority, entry.waitMs]));
  await time.pass(400);
  assert.deepEqual(turns, [[0, 0], [0, 100], [9, 200]]);
});

test('drain resolves when the last request that waits gives up', async (t) => {
  const { engine } = engineOf(t, [{ resource: 'pay', count: 1, intervalMs: 60_000 }]);
  engine.limit('pay');
  const controller = new AbortController();
  const waiting = engine.acquire('pay', { signal: controller.signal }).catch((reason) => reason);
  let isDrained = false;
  engine.drain().then(() => (isDrained = true));
  await settled();
  assert.equal(isDrained, false);
  controller.abort('gone');
  await settled();
  assert.deepEqual([await waiting, isDrained], ['gone', true]);
});
