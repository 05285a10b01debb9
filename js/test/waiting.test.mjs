// Requests that wait for an engine: `run` and `acquire`. Time is mocked, unless a test says otherwise.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { getEventListeners } from 'node:events';
import test from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';
import { Engine } from 'leapgate/engine';
import { mostInAny, until } from './http.mjs';

const inFlight = (count, more = {}) => ({ resource: 'pay', grade: 'concurrency', count, id: 'in flight', ...more });
const perWindow = (count, intervalMs, more = {}) => ({ resource: 'pay', count, intervalMs, id: 'window', ...more });
const throttled = (count, maxQueueingTimeMs) => ({
  ...perWindow(count, 1000, { id: 'turns' }),
  controlBehavior: 'throttle',
  maxQueueingTimeMs,
});

const settled = () => new Promise(setImmediate);

// Mocked time, for the engine and for setTimeout: it moves only by `pass`.
function timeOf(t) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const time = {
    ms: 0,
    timers: 0,
    now: () => time.ms,
    async pass(ms) {
      await settled();
      for (const end = time.ms + ms; time.ms < end; ) {
        time.ms++;
        t.mock.timers.tick(1);
        await settled();
      }
    },
  };
  // How many timers are set, and have neither run nor been cleared.
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  const alive = new Set();
  globalThis.setTimeout = (then, ms) => {
    const timer = set(() => (alive.delete(timer), then()), ms);
    alive.add(timer);
    return timer;
  };
  globalThis.clearTimeout = (timer) => (alive.delete(timer), clear(timer));
  t.after(() => Object.assign(globalThis, { setTimeout: set, clearTimeout: clear }));
  Object.defineProperty(time, 'timers', { get: () => alive.size });
  return time;
}

// An engine in that time. It is freed afterwards, so that no request waits while another test counts timers.
function engineOfRules(t, rules, settings = {}) {
  const time = timeOf(t);
  const engine = new Engine(rules, { now: time.now, ...settings });
  t.after(() => engine.free());
  return { engine, time };
}

const engineOf = (t, flowRules, settings) => engineOfRules(t, { flowRules }, settings);

// Logs promises in the order in which they settle: `name`, or `name: code`.
function logOf(time) {
  const log = [];
  const note = (name, promise) => {
    promise.then(
      () => log.push(time === undefined ? name : `${name} at ${time.ms}`),
      (error) => log.push(`${name}: ${error?.code ?? error}`),
    );
    return promise;
  };
  return { log, note };
}

const isBlocked = (promise, message, more = {}) =>
  assert.rejects(promise, (error) => {
    const { success, cause, rule } = error.result;
    assert.deepEqual([error.code, error.message, success, cause], ['ERR_LEAPGATE_BLOCKED', message, false, 'flow']);
    for (const [name, value] of Object.entries(more)) assert.equal(error.result[name], value, name);
    assert.ok(error instanceof Error && rule !== null);
    return true;
  });

const isWrong = (promise, code, message) =>
  assert.rejects(promise, (error) => {
    assert.deepEqual([error.code, error.message], [code, message]);
    return true;
  });

test('run returns the result of its function, and ends the entry', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  for (const give of [() => 7, async () => 7, () => Promise.resolve(7)]) {
    let seen;
    assert.equal(await engine.run('pay', {}, (entry) => ((seen = entry.success), give())), 7);
    assert.equal(seen, true);
  }
  assert.equal(await engine.run('pay', () => 8), 8);
  assert.equal(engine.enter('pay').success, true);
});

test('run rethrows any thrown value, and ends the entry', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  for (const thrown of [new Error('broken'), 'text', undefined, null, 0]) {
    const sync = engine.run('pay', {}, () => {
      throw thrown;
    });
    await assert.rejects(sync, (error) => error === thrown || thrown === undefined);
    await assert.rejects(
      engine.run('pay', () => Promise.reject(thrown)),
      (error) => error === thrown || thrown === undefined,
    );
  }
  assert.equal(engine.enter('pay').success, true);
});

test('run leaves alone an entry that its function has ended', async (t) => {
  const { engine } = engineOf(t, [inFlight(2)]);
  engine.enter('pay');
  await engine.run('pay', (entry) => entry.exit());
  assert.deepEqual([engine.enter('pay').success, engine.enter('pay').success], [true, false]);
});

test('run rejects a refused call, and does not make it', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 60_000, { sampleCount: 60 })]);
  await engine.run('pay', () => {});
  const call = () => assert.fail('it is called');
  await isBlocked(engine.run('pay', call), 'pay: `window` refuses; try again in 61000 ms', { retryAfterMs: 61_000 });
  const never = engine.run('pay', { cost: 2 }, call);
  await isBlocked(never, 'pay: `window` refuses; it never lets this request pass', { retryAfterMs: Infinity });
  assert.equal(time.timers, 0);
});

test('run waits for its turn', async (t) => {
  const { engine, time } = engineOf(t, [throttled(10, 500)]);
  const { log, note } = logOf(time);
  for (const name of ['a', 'b', 'c']) note(name, engine.run('pay', () => log.push(`${name} begins at ${time.ms}`)));
  await time.pass(300);
  assert.deepEqual(log, ['a begins at 0', 'a at 0', 'b begins at 100', 'b at 100', 'c begins at 200', 'c at 200']);
  assert.equal(time.timers, 0);
});

test('run, aborted while it waits, releases its turn', async (t) => {
  const { engine, time } = engineOf(t, [throttled(10, 500)]);
  const { log, note } = logOf(time);
  const controller = new AbortController();
  note('a', engine.run('pay', () => {}));
  note('b', engine.run('pay', { signal: controller.signal }, () => assert.fail('it is called')));
  await time.pass(50);
  controller.abort('enough');
  await settled();
  note('c', engine.run('pay', () => {}));
  await time.pass(60);
  assert.deepEqual(log, ['a at 0', 'b: enough', 'c at 100']);
  assert.deepEqual([time.timers, getEventListeners(controller.signal, 'abort').length], [0, 0]);
});

test('acquire resolves at once if there is room, and the entry is open', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1)]);
  const entry = await engine.acquire('pay');
  assert.deepEqual([entry.success, entry.waitMs, engine.enter('pay').success, time.timers], [true, 0, false, 0]);
  entry.exit();
  assert.equal((await engine.acquire('pay', { maxWaitMs: 0 })).success, true);
});

test('acquire does not wait without a rule', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  assert.equal((await engine.acquire('other')).rule, null);
});

test('requests that wait for a window are admitted at their `retryAfterMs`, in order', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(2, 100, { sampleCount: 10 })]);
  const { log, note } = logOf(time);
  for (const name of 'abcdef') note(name, engine.acquire('pay'));
  await settled();
  assert.equal(time.timers, 1, 'only the first request of the queue retries');
  await time.pass(300);
  assert.deepEqual(log, ['a at 0', 'b at 0', 'c at 110', 'd at 110', 'e at 220', 'f at 220']);
  assert.equal(time.timers, 0);
});

test('the end of a call wakes a request that waits for it, and no timer is set', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(2)]);
  const { log, note } = logOf(time);
  const entries = [engine.enter('pay'), engine.enter('pay')];
  for (const name of 'abc') note(name, engine.acquire('pay')).then((entry) => entries.push(entry));
  await settled();
  assert.deepEqual([log, time.timers], [[], 0]);
  entries.shift().exit();
  await settled();
  assert.deepEqual(log, ['a at 0']);
  entries.shift().cancel();
  await settled();
  assert.deepEqual(log, ['a at 0', 'b at 0']);
  entries.shift().exit({ error: new Error('broken') });
  await settled();
  assert.deepEqual([log, time.timers], [['a at 0', 'b at 0', 'c at 0'], 0]);
});

test('when a call ends, a waiting request comes before a new one', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  const { log, note } = logOf();
  const first = engine.enter('pay');
  note('a', engine.acquire('pay'));
  first.exit();
  assert.equal(engine.enter('pay').success, false);
  await settled();
  assert.deepEqual(log, ['a']);
});

test('acquire waits for its turn, also longer than `maxQueueingTimeMs`', async (t) => {
  const { engine, time } = engineOf(t, [throttled(10, 200)]);
  const { log, note } = logOf(time);
  for (const name of 'abcdef') note(name, engine.acquire('pay'));
  await time.pass(600);
  assert.deepEqual(log, ['a at 0', 'b at 100', 'c at 200', 'd at 300', 'e at 400', 'f at 500']);
  assert.equal(time.timers, 0);
});

test('a turn that is too far off is not taken', async (t) => {
  const { engine, time } = engineOf(t, [throttled(10, 1000)]);
  await engine.acquire('pay');
  await isBlocked(engine.acquire('pay', { maxWaitMs: 99 }), 'pay: `turns` refuses; try again in 100 ms');
  const { log, note } = logOf(time);
  note('a', engine.acquire('pay', { maxWaitMs: 100 }));
  await time.pass(100);
  assert.deepEqual([log, time.timers], [['a at 100'], 0]);
});

test('a request that would wait for too long is refused at once', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 100, { sampleCount: 10 })]);
  await engine.acquire('pay');
  await isBlocked(engine.acquire('pay', { maxWaitMs: 109 }), 'pay: `window` refuses; try again in 110 ms', { retryAfterMs: 110 });
  await isBlocked(engine.acquire('pay', { maxWaitMs: 0 }), 'pay: `window` refuses; try again in 110 ms');
  await isBlocked(engine.acquire('pay', { cost: 2 }), 'pay: `window` refuses; it never lets this request pass');
  assert.equal(time.timers, 0);
  const { log, note } = logOf(time);
  note('a', engine.acquire('pay', { maxWaitMs: 110 }));
  note('behind a', engine.acquire('pay', { maxWaitMs: 109 })).catch(() => {});
  await settled();
  assert.deepEqual(log, ['behind a: ERR_LEAPGATE_BLOCKED']);
  await time.pass(110);
  assert.deepEqual(log.slice(1), ['a at 110']);
  assert.equal(time.timers, 0);
});

test('a request that may wait exactly long enough is admitted', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 100, { sampleCount: 10 })]);
  const { log, note } = logOf(time);
  await engine.acquire('pay');
  note('a', engine.acquire('pay'));
  note('b', engine.acquire('pay', { maxWaitMs: 220 }));
  note('c', engine.acquire('pay', { maxWaitMs: 329 })).catch(() => {});
  await time.pass(330);
  assert.deepEqual(log, ['a at 110', 'b at 220', 'c: ERR_LEAPGATE_BLOCKED']);
  assert.equal(time.timers, 0);
});

test('a request is refused after its longest wait, with the reason', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1)]);
  const entry = engine.enter('pay');
  const { log, note } = logOf(time);
  const refused = ['a', 'b'].map((name, i) => note(name, engine.acquire('pay', { maxWaitMs: 50 + 10 * i })));
  for (const one of refused) one.catch(() => {});
  note('c', engine.acquire('pay'));
  await time.pass(49);
  assert.deepEqual(log, []);
  await time.pass(1);
  assert.deepEqual(log, ['a: ERR_LEAPGATE_BLOCKED']);
  await time.pass(10);
  for (const one of refused) await isBlocked(one, 'pay: `in flight` refuses; try again in 1 ms', { rule: 'in flight' });
  entry.exit();
  await settled();
  assert.deepEqual(log.slice(2), ['c at 60']);
  assert.equal(time.timers, 0);
});

test('at most maxWaiting requests wait, for any reason', async (t) => {
  const rules = [inFlight(1), { ...throttled(10, 1000), resource: 'slow' }];
  const { engine, time } = engineOf(t, rules, { maxWaiting: 3 });
  const full = 'engine: 3 wait already, as many as `maxWaiting` allows; raise it, or ask again later';
  const entry = await engine.acquire('pay');
  await engine.acquire('slow');
  const controller = new AbortController();
  const waiting = [engine.acquire('pay'), engine.acquire('slow'), engine.acquire('pay', { signal: controller.signal })];
  await isWrong(engine.acquire('pay'), 'ERR_LEAPGATE_FULL', full);
  await isWrong(engine.acquire('slow'), 'ERR_LEAPGATE_FULL', full);
  await isWrong(engine.run('slow', () => assert.fail('it is called')), 'ERR_LEAPGATE_FULL', full);
  // The rejected requests took no turn.
  await time.pass(100);
  await waiting[1];
  const [turn, log] = [engine.acquire('slow'), []];
  turn.then(() => log.push(time.ms));
  await isWrong(engine.acquire('slow'), 'ERR_LEAPGATE_FULL', full);
  controller.abort();
  await assert.rejects(waiting[2], { name: 'AbortError' });
  const last = engine.acquire('slow');
  await time.pass(200);
  assert.deepEqual(log, [200]);
  await last;
  entry.exit();
  await waiting[0];
  assert.equal(time.timers, 0);
});

test('an aborted request leaves the queue, at any place', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1)]);
  const { log, note } = logOf();
  const controllers = {};
  let entry = engine.enter('pay');
  for (const name of 'abcde') {
    controllers[name] = new AbortController();
    const { signal } = controllers[name];
    note(name, engine.acquire('pay', { signal })).then(
      (given) => (entry = given),
      () => {},
    );
  }
  controllers.c.abort('c leaves');
  controllers.a.abort('a leaves');
  await settled();
  assert.deepEqual(log, ['c: c leaves', 'a: a leaves']);
  for (let i = 0; i < 3; i++) {
    entry.exit();
    await settled();
  }
  assert.deepEqual(log.slice(2), ['b', 'd', 'e']);
  entry.exit();
  assert.equal(engine.enter('pay').success, true);
  for (const { signal } of Object.values(controllers)) assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.equal(time.timers, 0);
});

test('when the first request leaves, the next one may fit', async (t) => {
  const { engine } = engineOf(t, [perWindow(3, 1000)]);
  const { log, note } = logOf();
  const controller = new AbortController();
  await engine.acquire('pay', { cost: 2 });
  note('large', engine.acquire('pay', { cost: 3, signal: controller.signal })).catch(() => {});
  note('small', engine.acquire('pay'));
  await settled();
  assert.deepEqual(log, [], 'no request is overtaken');
  controller.abort('enough');
  await settled();
  assert.deepEqual(log, ['large: enough', 'small']);
});

test('a request that is aborted before it begins takes nothing', async (t) => {
  const { engine } = engineOf(t, [perWindow(1, 1000)]);
  const reason = new Error('too late');
  await assert.rejects(engine.acquire('pay', { signal: AbortSignal.abort(reason) }), (error) => error === reason);
  await assert.rejects(
    engine.run('pay', { signal: AbortSignal.abort(reason) }, () => assert.fail('it is called')),
    (error) => error === reason,
  );
  assert.equal(engine.enter('pay').success, true);
});

test('an abort after the answer changes nothing', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  const controller = new AbortController();
  const first = engine.enter('pay');
  const waiting = engine.acquire('pay', { signal: controller.signal });
  first.exit();
  controller.abort();
  assert.equal((await waiting).success, true);
  assert.equal(engine.enter('pay').success, false);
});

test('a refund admits a waiting request', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 60_000)]);
  const { log, note } = logOf(time);
  const [first, controller] = [engine.enter('pay'), new AbortController()];
  note('a', engine.acquire('pay'));
  first.exit({ refund: true });
  await settled();
  assert.deepEqual([log, time.timers], [['a at 0'], 0]);
  controller.abort();
});

// At most 100 tokens a minute, of which each request holds 60.
const tokens = (more) => ({ ...perWindow(100, 60_000, { unit: 'tokens', cost: { estimate: { default: 60, atMost: '100%' } }, id: 'tokens' }), ...more });

test('the end of a hold wakes a request that waits for it at once', async (t) => {
  const { engine, time } = engineOf(t, [tokens()]);
  const { log, note } = logOf(time);
  const held = engine.enter('pay');
  const waiting = ['a', 'b'].map((name) => note(name, engine.acquire('pay', { cost: { tokens: 45 } })));
  await time.pass(300);
  held.exit({ cost: { tokens: 10 } });
  await time.pass(50);
  assert.deepEqual(log, ['a at 300', 'b at 300']);
  for (const entry of await Promise.all(waiting)) entry.exit({ cost: { tokens: 0 } });
});

test('the end of a hold wakes the requests of its key', async (t) => {
  const { engine, time } = engineOf(t, [tokens({ key: ['clientIp'] })]);
  const { log, note } = logOf(time);
  const [one, other] = ['10.0.0.1', '10.0.0.2'].map((key) => engine.enter('pay', { key }));
  for (const key of ['10.0.0.1', '10.0.0.2']) note(key, engine.acquire('pay', { key }));
  await time.pass(100);
  other.exit({ cost: { tokens: 40 } });
  await time.pass(100);
  one.exit({ cost: { tokens: 40 } });
  await settled();
  assert.deepEqual(log, ['10.0.0.2 at 100', '10.0.0.1 at 200']);
});

test('a request that only holds keep out waits to its deadline, not only as long as its `retryAfterMs` allows', async (t) => {
  const { engine, time } = engineOf(t, [tokens()]);
  const { log, note } = logOf(time);
  const held = engine.enter('pay');
  assert.equal(engine.enter('pay').retryAfterMs, 1000);
  note('never', engine.acquire('pay', { maxWaitMs: 0 }));
  for (const [name, maxWaitMs] of [['short', 200], ['second', 200], ['long', 900]]) note(name, engine.acquire('pay', { maxWaitMs }));
  await time.pass(250);
  held.exit({ cost: { tokens: 40 } });
  await settled();
  assert.deepEqual(log, ['never: ERR_LEAPGATE_BLOCKED', 'short: ERR_LEAPGATE_BLOCKED', 'second: ERR_LEAPGATE_BLOCKED', 'long at 250']);
});

test('a request that the ring keeps out longer than any hold is refused at once', async (t) => {
  const { engine } = engineOf(t, [tokens()]);
  engine.enter('pay').exit();
  const soon = engine.acquire('pay', { maxWaitMs: 5000 });
  await isBlocked(soon, 'pay: `tokens` refuses; try again in 60600 ms', { retryAfterMs: 60_600 });
});

test('requests with one key form one queue', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 100, { key: ['clientIp'], sampleCount: 10 })]);
  const { log, note } = logOf(time);
  for (const key of ['1', '2', '3']) await engine.acquire('pay', { key });
  const ask = (name, key) => note(name, engine.acquire('pay', { key }));
  ask('1', '1');
  ask('2', '2');
  ask('1 again', 1);
  ask('1 once more', 1n);
  ask('3', ['3']);
  await settled();
  assert.equal(time.timers, 3, 'one for each key');
  await time.pass(330);
  assert.deepEqual(log, ['1 at 110', '2 at 110', '3 at 110', '1 again at 220', '1 once more at 330']);
  assert.equal(time.timers, 0);
});

test('keys by part are the same in any order', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 100, { key: ['path', 'method'], sampleCount: 10 })]);
  const keys = [
    { path: '/a', method: 'GET' },
    { method: 'GET', path: '/a' },
    { path: '/b', method: 'GET' },
  ];
  const all = [...keys, ...keys].map((key) => engine.acquire('pay', { key }));
  await settled();
  assert.equal(time.timers, 2);
  await time.pass(330);
  await Promise.all(all);
});

test('the end of a call admits a request that waits for its key', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1, { key: ['clientIp'] })]);
  const { log, note } = logOf();
  const open = Object.fromEntries(['a', 'b', 'c'].map((key) => [key, engine.enter('pay', { key })]));
  for (const key of 'abc') note(key, engine.acquire('pay', { key }));
  for (const key of 'cab') {
    open[key].exit();
    await settled();
  }
  assert.deepEqual(log, ['c', 'a', 'b']);
  assert.equal(time.timers, 0);
});

test('keys that wait for one limit take turns', async (t) => {
  const { engine } = engineOf(t, [inFlight(1), perWindow(1000, 1000, { key: ['clientIp'] })]);
  const { log, note } = logOf();
  let entry = engine.enter('pay', { key: 'a' });
  const ask = (name, key) => note(name, engine.acquire('pay', { key })).then((given) => (entry = given));
  for (const name of ['a1', 'a2', 'a3', 'b1', 'b2', 'c1']) ask(name, name[0]);
  for (let i = 0; i < 6; i++) {
    entry.exit();
    await settled();
  }
  assert.deepEqual(log, ['a1', 'b1', 'c1', 'a2', 'b2', 'a3']);
});

test('a call that ends costs little, however many keys wait', async (t) => {
  const { engine } = engineOf(t, [inFlight(1), perWindow(1, 60_000, { key: ['clientIp'], resource: 'window' })]);
  let entry = engine.enter('pay');
  const other = engine.enter('window', { key: 'a' });
  const keys = Array.from({ length: 400 }, (_, i) => String(i));
  for (const key of keys) engine.enter('window', { key });
  const waiting = keys.map((key) => engine.acquire('pay', { key: `${key}`, origin: key }).then((given) => (entry = given)));
  for (const key of keys) engine.acquire('window', { key }).catch(() => {});
  let asked = 0;
  const { enter } = engine;
  engine.enter = (...args) => (asked++, enter.apply(engine, args));
  entry.exit();
  await settled();
  assert.equal(asked, 2, 'one comes in, and another is refused');
  other.exit();
  assert.equal(asked, 2, 'windows are as full as before');
  entry.exit();
  await settled();
  assert.equal(asked, 4);
  await waiting[1];
  for (const one of waiting) one.catch(() => {});
});

test('a request that waits for another resource retries soon after a call has ended', async (t) => {
  const rules = [inFlight(1), { ...inFlight(1), resource: 'refund', id: 'by pay', strategy: 'relate', refResource: 'pay' }];
  const { engine, time } = engineOf(t, rules);
  const { log, note } = logOf(time);
  const first = engine.enter('pay');
  note('refund', engine.acquire('refund'));
  await time.pass(200);
  assert.deepEqual(log, []);
  first.exit();
  await time.pass(50);
  assert.equal(log.length, 1);
  assert.equal(time.timers, 0);
});

test('a request that may borrow waits for less long than others', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 400, { sampleCount: 4 })]);
  const { log, note } = logOf(time);
  await engine.acquire('pay');
  note('other', engine.acquire('pay'));
  note('prioritized', engine.acquire('pay', { prioritized: true }));
  await time.pass(1000);
  assert.deepEqual(log, ['prioritized at 500', 'other at 1000']);
  assert.equal(time.timers, 0);
});

const breaker = { resource: 'pay', grade: 'errorCount', count: 0, minRequestAmount: 1, timeWindow: 1, id: 'errors' };

test('a call that throws a falsy value has failed, too', async (t) => {
  for (const thrown of [undefined, null, false, 0]) {
    const engine = new Engine({ degradeRules: [breaker] });
    t.after(() => engine.free());
    await engine.run('pay', () => Promise.reject(thrown)).catch((error) => assert.equal(error, thrown));
    assert.equal(engine.enter('pay').cause, 'degrade');
  }
});

test('the first request that waits for a breaker is its probe, and the others go on when it succeeds', async (t) => {
  const { engine, time } = engineOfRules(t, { degradeRules: [breaker] });
  const { log, note } = logOf(time);
  await assert.rejects(engine.run('pay', () => Promise.reject(new Error('broken'))), { message: 'broken' });
  let probe;
  note('a', engine.acquire('pay')).then((entry) => (probe = entry));
  for (const name of 'bc') note(name, engine.acquire('pay'));
  await time.pass(999);
  assert.deepEqual(log, []);
  await time.pass(101);
  assert.deepEqual(log, ['a at 1000']);
  probe.exit();
  await settled();
  assert.deepEqual([log.slice(1), time.timers], [['b at 1100', 'c at 1100'], 0]);
});

test('a request that waits for a system rule retries now and then', async (t) => {
  const { engine, time } = engineOfRules(t, { systemRules: [{ qps: 1, id: 'qps' }] });
  const { log, note } = logOf(time);
  await engine.acquire('pay', { inbound: true });
  note('a', engine.acquire('pay', { inbound: true }));
  note('not from outside', engine.acquire('pay'));
  await time.pass(900);
  assert.deepEqual(log, ['not from outside at 0']);
  await time.pass(200);
  assert.equal(log.length, 2);
  assert.equal(time.timers, 0);
});

test('a request that waits for a limit on calls in flight of one origin retries now and then, and when a call ends', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1, { limitApp: 'shop' })]);
  const { log, note } = logOf(time);
  const request = { origin: 'shop' };
  const first = engine.enter('pay', request);
  note('a', engine.acquire('pay', request));
  note('elsewhere', engine.acquire('pay', { origin: 'app' }));
  await time.pass(500);
  assert.deepEqual(log, ['elsewhere at 0']);
  first.exit();
  await settled();
  assert.deepEqual([log[1], time.timers], ['a at 500', 0]);
});

test('a garbage-collected entry admits a waiting request', async (t) => {
  v8.setFlagsFromString('--expose-gc');
  const collect = vm.runInNewContext('gc');
  const engine = new Engine({ flowRules: [inFlight(1)] });
  assert.equal(engine.enter('pay').success, true);
  const { log, note } = logOf();
  note('a', engine.acquire('pay'));
  await until(() => (collect(), log.length === 1), 'it is collected');
  assert.deepEqual(log, ['a']);
});

test('a wait longer than a timer allows is split into parts', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const parts = [];
  const { setTimeout } = globalThis;
  globalThis.setTimeout = (then, ms) => (parts.push(ms), setTimeout(then, ms));
  t.after(() => (globalThis.setTimeout = setTimeout));
  let ms = 0;
  const year = 365 * 86_400_000;
  const engine = new Engine({ flowRules: [perWindow(1, year, { sampleCount: 1 })] }, { now: () => ms });
  await engine.acquire('pay');
  const waiting = engine.acquire('pay');
  const most = 2 ** 31 - 1;
  for (let rest = engine.enter('pay').retryAfterMs; rest > 0; rest -= most) {
    ms += Math.min(rest, most);
    assert.equal(parts.pop(), Math.min(rest, most));
    t.mock.timers.tick(Math.min(rest, most));
  }
  assert.equal((await waiting).success, true);
});

test('after an early timer a request retries', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 100, { sampleCount: 10 }), { ...throttled(10, 500), resource: 'slow' }]);
  const { log, note } = logOf(time);
  await engine.acquire('pay');
  await engine.acquire('slow');
  note('window', engine.acquire('pay'));
  note('turn', engine.acquire('slow'));
  time.ms -= 0.5;
  await time.pass(110);
  assert.deepEqual(log, ['turn at 100.5']);
  await time.pass(1);
  assert.deepEqual(log, ['turn at 100.5', 'window at 110.5']);
});

test('an overdue retry is made by the next request', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 100, { sampleCount: 10 })]);
  const { log, note } = logOf();
  await engine.acquire('pay');
  note('a', engine.acquire('pay'));
  time.ms += 500; // and no timer fires
  note('b', engine.acquire('pay'));
  await settled();
  assert.deepEqual(log, ['a']);
  await time.pass(200);
  assert.deepEqual([log, time.timers], [['a', 'b'], 0]);
});

test('replaced rules are tried at once', async (t) => {
  const { engine, time } = engineOf(t, [perWindow(1, 60_000)]);
  const { log, note } = logOf(time);
  await engine.acquire('pay');
  for (const name of 'abc') note(name, engine.acquire('pay'));
  engine.replace({ flowRules: [perWindow(3, 60_000)] });
  await settled();
  assert.deepEqual(log, ['a at 0', 'b at 0']);
  engine.replace({ flowRules: [] });
  await settled();
  assert.deepEqual([log, time.timers], [['a at 0', 'b at 0', 'c at 0'], 0]);
});

test('freeing an engine rejects its waiting requests', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1), { ...throttled(10, 500), resource: 'slow' }]);
  const { log, note } = logOf();
  engine.enter('pay');
  engine.enter('slow');
  note('call', engine.acquire('pay', { maxWaitMs: 1000 })).catch(() => {});
  note('turn', engine.acquire('slow')).catch(() => {});
  engine.free();
  await settled();
  assert.deepEqual(log, ['call: ERR_LEAPGATE_FREED', 'turn: ERR_LEAPGATE_FREED']);
  assert.equal(time.timers, 0);
  await assert.rejects(engine.acquire('pay'), { code: 'ERR_LEAPGATE_FREED' });
});

test('a wrong argument is refused with a sentence', async (t) => {
  const { engine, time } = engineOf(t, [inFlight(1)]);
  const range = 'is not possible; use a number from 0 to 1.7976931348623157e+308';
  const signal = 'is not an AbortSignal; use that of an AbortController, or leave it out';
  const priority = 'is not a valid priority; use a number, a higher one to be admitted earlier';
  const use = 'means nothing here; use one of `key`, `origin`, `cost`, `prioritized`, `context`, `inbound`, `exempt`, `apis`, `within`';
  const rows = [
    [() => engine.acquire('pay', 5), 'request: `5` is not an object; use one, as in `{ cost: 2 }`, or leave it out'],
    [() => engine.acquire('pay', null), 'request: `null` is not an object; use one, as in `{ cost: 2 }`, or leave it out'],
    [() => engine.acquire('pay', { maxWaitMs: NaN }), `request.maxWaitMs: \`NaN\` ${range}`],
    [() => engine.acquire('pay', { maxWaitMs: -1 }), `request.maxWaitMs: \`-1\` ${range}`],
    [() => engine.acquire('pay', { maxWaitMs: '5' }), 'request.maxWaitMs: `5` is a string; use a number from 0 to 1.7976931348623157e+308'],
    [() => engine.acquire('pay', { maxWaitMs: null }), `request.maxWaitMs: \`null\` ${range}`],
    [() => engine.acquire('pay', { signal: {} }), `request.signal: \`{…}\` ${signal}`],
    [() => engine.run('pay', { signal: 'x' }, () => {}), `request.signal: \`x\` ${signal}`],
    [() => engine.acquire('pay', { timeout: 5 }), `request.timeout: \`5\` ${use}, \`signal\`, \`priority\`, \`maxWaitMs\``],
    [
      () => engine.run('pay', { maxWaitMs: 5 }, () => {}),
      `request.maxWaitMs: \`5\` ${use}, \`signal\`, \`priority\`, \`isError\`, \`timeoutMs\``,
    ],
    [() => engine.run('pay', { timeout: 5 }, () => {}), 'request.timeout: `5` means nothing here; use `timeoutMs`, in milliseconds'],
    [() => engine.run('pay', { errorFilter: isNaN }, () => {}), 'request.errorFilter: `a function` means nothing here; use `isError`, which is its opposite'],
    [() => engine.run('pay', { timeoutMs: -1 }, () => {}), `request.timeoutMs: \`-1\` ${range}`],
    [() => engine.run('pay', { timeoutMs: NaN }, () => {}), `request.timeoutMs: \`NaN\` ${range}`],
    [() => engine.run('pay', { isError: true }, () => {}), 'request.isError: `true` is not a function; use one that takes what was thrown, or leave it out'],
    [() => engine.run('pay', { priority: '1' }, () => {}), `request.priority: \`1\` ${priority}`],
    [() => engine.acquire('pay', { priority: Infinity }), `request.priority: \`Infinity\` ${priority}`],
    [() => engine.run('pay', { points: 2 }, () => {}), 'request.points: `2` means nothing here; use `cost`'],
    [() => engine.run('pay', {}), 'fn: `undefined` is not a function; use the one that is to be called'],
    [() => engine.run('pay'), 'fn: `undefined` is not a function; use the one that is to be called'],
    [() => engine.run('pay', 5, () => {}), 'request: `5` is not an object; use one, as in `{ cost: 2 }`, or leave it out'],
  ];
  const codeOf = (message) => (message.startsWith('fn') ? 'ERR_LEAPGATE_ARGUMENT' : 'ERR_LEAPGATE_OPTIONS');
  for (const [ask, message] of rows) await isWrong(ask(), codeOf(message), message);
  engine.enter('pay');
  engine.acquire('pay').catch(() => {});
  for (const [ask, message] of rows) await isWrong(ask(), codeOf(message), message);
  await assert.rejects(engine.acquire('pay', { cost: -1 }), RangeError);
  for (const origin of [7n, {}, Symbol('a')]) {
    await assert.rejects(engine.acquire('pay', { origin }), { code: 'ERR_LEAPGATE_OPTIONS' });
  }
  assert.equal(time.timers, 0);
});

// A fixed sequence of numbers in [0, 1): mulberry32.
function randomOf(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

// Makes requests share an instance, as in Workers: each one retries by itself, and none for another.
function share(t) {
  globalThis.EdgeRuntime = 'edge-runtime';
  t.after(() => delete globalThis.EdgeRuntime);
}

// Requests that come, wait, abort and end at random never break a guarantee.
for (const isShared of [false, true]) {
  test(`many requests at random${isShared ? ', each for itself' : ''}: never too many, in order, each is settled`, (t) => {
    if (isShared) share(t);
    return atRandom(t);
  });
}

async function atRandom(t) {
  const time = timeOf(t);
  const totals = { passed: 0, aborted: 0, blocked: 0 };
  for (let seed = 1; seed <= 30; seed++) {
    const random = randomOf(seed);
    const [limit, windowMs, most] = [1 + Math.floor(random() * 5), 100, 1 + Math.floor(random() * 4)];
    const isKeyed = random() < 0.5;
    const rules = [perWindow(limit, windowMs, { sampleCount: 10, ...(isKeyed ? { key: ['clientIp'] } : {}) }), inFlight(most)];
    const engine = new Engine({ flowRules: rules }, { now: time.now });
    const keys = ['a', 'b', 'c'].map((key) => ({ key, asked: [], charged: [] }));
    let [open, answered] = [0, 0];
    const asked = [];
    for (let step = 0; step < 60; step++) {
      const of = keys[isKeyed ? Math.floor(random() * 3) : 0];
      const controller = new AbortController();
      const maxWaitMs = random() < 0.2 ? Math.floor(random() * 200) : Infinity;
      const name = `${seed}/${step}`;
      const begun = time.ms;
      const one = engine.acquire('pay', { key: of.key, signal: controller.signal, maxWaitMs });
      asked.push(one);
      one.then(
        (entry) => {
          totals.passed++;
          answered++;
          assert.ok(++open <= most, `${name}: ${open} at once`);
          assert.ok(time.ms - begun <= maxWaitMs, name);
          // No earlier request with the same key is still waiting.
          assert.ok(of.asked.every((other) => other >= step), `${name} was admitted before one of ${of.asked}`);
          of.asked.splice(of.asked.indexOf(step), 1);
          of.charged.push(time.ms);
          after(Math.floor(random() * 40)).then(() => (open--, entry.exit()));
        },
        (error) => {
          answered++;
          of.asked.splice(of.asked.indexOf(step), 1);
          if (error === name) totals.aborted++;
          else assert.equal(error.code, (totals.blocked++, 'ERR_LEAPGATE_BLOCKED'));
        },
      );
      of.asked.push(step);
      if (random() < 0.2) after(Math.floor(random() * 100)).then(() => controller.abort(name));
      await time.pass(Math.floor(random() * 20));
    }
    for (let i = 0; answered < asked.length && i < 200; i++) await time.pass(100);
    await time.pass(100);
    assert.equal(answered, asked.length, `seed ${seed}`);
    for (const { key, charged } of keys) {
      const worst = mostInAny(windowMs, charged);
      assert.ok(worst <= limit, `seed ${seed}, ${key}: ${worst} within ${windowMs} ms, at most ${limit}`);
    }
    assert.equal(time.timers, 0, `seed ${seed}`);
  }
  function after(ms) {
    return new Promise((resolve) => (ms === 0 ? resolve() : setTimeout(resolve, ms)));
  }
  console.log(`${totals.passed} were admitted, ${totals.blocked} had waited for too long, ${totals.aborted} were aborted`);
  assert.ok(Object.values(totals).every((count) => count > 50));
}

test('each for itself: no request sets a timer for another, or settles it', async (t) => {
  share(t);
  const { engine, time } = engineOf(t, [inFlight(1), { ...perWindow(2, 100, { sampleCount: 10 }), resource: 'window' }]);
  const { log, note } = logOf(time);
  const entry = engine.enter('pay');
  note('a', engine.acquire('pay')).then((given) => given.exit());
  note('b', engine.acquire('pay')).then((given) => given.exit());
  for (const name of 'cdef') note(name, engine.acquire('window'));
  await time.pass(100);
  assert.equal(time.timers, 4);
  entry.exit();
  await settled();
  assert.deepEqual(log, ['c at 0', 'd at 0'], 'each request finds out by itself');
  await time.pass(100);
  assert.deepEqual(log.slice(2).map((line) => line[0]).sort(), ['a', 'b', 'e', 'f']);
  assert.deepEqual(log.filter((line) => /[ef]/.test(line)), ['e at 110', 'f at 110']);
  assert.equal(time.timers, 0);
});

test('each for itself: a request that has ended does not hold up others, and one that was only late is admitted', async (t) => {
  share(t);
  const { engine, time } = engineOf(t, [inFlight(1)], { maxWaiting: 2 });
  const { log, note } = logOf();
  const entry = engine.enter('pay');
  const { setTimeout } = globalThis;
  const timers = [];
  globalThis.setTimeout = (then) => timers.push(then);
  note('gone', engine.acquire('pay'));
  globalThis.setTimeout = setTimeout;
  note('b', engine.acquire('pay')).then((given) => given.exit());
  entry.exit();
  await time.pass(400);
  assert.deepEqual(log, [], 'it may be late');
  await time.pass(400);
  assert.deepEqual(log, ['b']);
  assert.equal(time.timers, 0);
  // The request goes on after all.
  timers[0]();
  await time.pass(1);
  assert.deepEqual(log, ['b', 'gone']);
});

test('each for itself: the next request follows the end of a call within milliseconds, however many wait', async (t) => {
  share(t);
  const { engine, time } = engineOf(t, [inFlight(1)]);
  const { log, note } = logOf();
  const held = engine.enter('pay');
  const names = Array.from({ length: 40 }, (_, i) => `${i}`);
  for (const name of names) {
    note(name, engine.acquire('pay')).then((entry) => setTimeout(() => entry.exit(), 2));
  }
  await time.pass(200);
  held.exit();
  await time.pass(50);
  assert.deepEqual(log, names.slice(0, log.length), 'in order');
  await time.pass(200);
  assert.deepEqual(log, names);
});

test('each for itself: the first request follows the end of a hold within milliseconds', async (t) => {
  share(t);
  const { engine, time } = engineOf(t, [tokens()]);
  const { log, note } = logOf(time);
  const held = engine.enter('pay');
  note('a', engine.acquire('pay'));
  await time.pass(200);
  held.exit({ cost: { tokens: 40 } });
  await settled();
  assert.deepEqual(log, []);
  await time.pass(50);
  assert.deepEqual(log, ['a at 250']);
});

test('each for itself: only the first request of a queue becomes the probe of a breaker', async (t) => {
  share(t);
  const { engine, time } = engineOfRules(t, { degradeRules: [breaker] });
  const { log, note } = logOf();
  await assert.rejects(engine.run('pay', () => Promise.reject(new Error('broken'))), { message: 'broken' });
  let probe;
  note('a', engine.acquire('pay')).then((entry) => (probe = entry));
  await time.pass(990);
  // A moment before the first request retries.
  time.ms = 1000;
  note('b', engine.acquire('pay'));
  await time.pass(100);
  assert.deepEqual(log, ['a']);
  probe.exit();
  await time.pass(100);
  assert.deepEqual(log, ['a', 'b']);
});

test('a wrong request behind others is rejected at once', async (t) => {
  const { engine } = engineOf(t, [inFlight(1)]);
  engine.enter('pay');
  const first = new AbortController();
  engine.acquire('pay', { signal: first.signal }).catch(() => {});
  await assert.rejects(engine.acquire('pay', { cost: -1 }), { code: 'ERR_LEAPGATE_OPTIONS' });
  await assert.rejects(engine.acquire('pay', { rate: 2 }), { code: 'ERR_LEAPGATE_OPTIONS' });
  first.abort();
});

test('each for itself: aborts, longest waits, replaced rules and a freed engine', async (t) => {
  share(t);
  const { engine, time } = engineOf(t, [inFlight(1)]);
  const { log, note } = logOf(time);
  const controller = new AbortController();
  engine.enter('pay');
  note('aborted', engine.acquire('pay', { signal: controller.signal })).catch(() => {});
  note('late', engine.acquire('pay', { maxWaitMs: 20 })).catch(() => {});
  note('replaced', engine.acquire('pay'));
  await time.pass(5);
  controller.abort('enough');
  await settled();
  assert.deepEqual(log, ['aborted: enough']);
  await time.pass(20);
  assert.deepEqual(log.slice(1), ['late: ERR_LEAPGATE_BLOCKED']);
  engine.replace({ flowRules: [inFlight(2)] });
  await time.pass(50);
  assert.equal(log[2].split(' ')[0], 'replaced');
  note('freed', engine.acquire('pay')).catch(() => {});
  engine.free();
  await time.pass(50);
  assert.deepEqual([log[3], time.timers], ['freed: ERR_LEAPGATE_FREED', 0]);
});

test('200 requests at once, by the real clock: never too many in any window, first come first served', async () => {
  const [limit, windowMs] = [20, 100];
  let now = 0;
  const clock = () => (now = performance.now());
  const engine = new Engine({ flowRules: [perWindow(limit, windowMs)] }, { now: clock });
  // The instants of the engine's admissions.
  const charged = [];
  const enter = engine.enter;
  engine.enter = function (...args) {
    const entry = enter.apply(this, args);
    if (entry.success) charged.push(now);
    return entry;
  };
  const order = [];
  const ask = (i) => engine.acquire('pay').then((entry) => (order.push(i), entry.exit()));
  await Promise.all(Array.from({ length: 200 }, (_, i) => ask(i)));
  assert.deepEqual(order, [...order.keys()]);
  const worst = mostInAny(windowMs, charged);
  const took = charged.at(-1) - charged[0];
  console.log(`200 in ${took.toFixed()} ms, at most ${worst} in any ${windowMs} ms (limit ${limit})`);
  assert.equal(worst, limit);
  assert.ok(took >= 9 * windowMs);
});

test('200 requests at once, by the real clock: never too many in flight', async () => {
  const engine = new Engine({ flowRules: [inFlight(7)] });
  let [open, most] = [0, 0];
  const order = [];
  const ask = async (i) => {
    const entry = await engine.acquire('pay');
    order.push(i);
    most = Math.max(most, ++open);
    await (i % 3 === 0 ? new Promise(setImmediate) : i % 3 === 1 ? Promise.resolve() : new Promise((done) => setTimeout(done, 1)));
    open--;
    entry.exit();
  };
  await Promise.all(Array.from({ length: 200 }, (_, i) => ask(i)));
  assert.deepEqual([most, order], [7, [...order.keys()]]);
});

test('a process ends when no request waits any more, and no rejection is left unhandled', () => {
  const script = `
    import { Engine } from 'leapgate/engine';
    const rules = [
      { resource: 'window', count: 1, intervalMs: 50 },
      { resource: 'turns', count: 20, controlBehavior: 'throttle', maxQueueingTimeMs: 1000 },
      { resource: 'calls', count: 1, grade: 'concurrency' },
    ];
    const engine = new Engine({ flowRules: rules });
    const names = ['window', 'turns', 'calls'];
    const entries = await Promise.all(names.map((name) => engine.acquire(name)));
    const hour = 3_600_000;
    const second = names.map((name) => engine.acquire(name, { maxWaitMs: hour }));
    const controller = new AbortController();
    const third = names.map((name) => engine.acquire(name, { maxWaitMs: hour, signal: controller.signal }));
    setImmediate(() => entries.forEach((entry) => entry.exit()));
    controller.abort();
    const settled = await Promise.allSettled([...second, ...third]);
    console.log(settled.map(({ status }) => status).join(' '));
    console.log(process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length);
  `;
  const args = ['--unhandled-rejections=strict', '--input-type=module', '-e', script];
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8', timeout: 30_000 });
  const all = `${'fulfilled '.repeat(3)}${'rejected '.repeat(3)}`.trim();
  assert.deepEqual([status, stdout, stderr], [0, `${all}\n0\n`, '']);
});
