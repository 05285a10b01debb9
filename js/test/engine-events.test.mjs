// What an engine knows of a resource, and what it tells listeners.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Engine } from 'leapgate/engine';

const breaker = { resource: 'pay', id: 'breaker', grade: 'errorRatio', count: 0.5, minRequestAmount: 2, timeWindow: 2 };
const error = new Error('broken');

// An engine with the time of `clock`.
function at(rules, settings) {
  const clock = { millis: 10_000 };
  return [new Engine(rules, { now: () => clock.millis, ...settings }), clock];
}

function failTwice(engine, resource = 'pay') {
  const calls = [engine.enter(resource), engine.enter(resource)];
  calls.forEach((call) => call.exit({ error }));
}

// All events of an engine, in order.
function eventsOf(engine, events = ['breaker', 'refused']) {
  const all = [];
  const removers = events.map((event) => engine.on(event, (what) => all.push([event, what])));
  return { all, remove: () => removers.forEach((remove) => remove()) };
}

const settled = () => new Promise(setImmediate);

test('stats_of_a_resource_gather_its_rates_its_rules_its_breakers_and_what_waits', async () => {
  const [engine, clock] = at({
    flowRules: [
      { resource: 'pay', id: 'in flight', count: 2, grade: 'concurrency' },
      { resource: '*', id: 'each', count: 9 },
      { resource: 'mail', id: 'other', count: 1 },
    ],
    degradeRules: [breaker, { ...breaker, id: 'second', count: 1 }],
  });
  const idle = { passQps: 0, blockQps: 0, successQps: 0, exceptionQps: 0, avgRt: 0, concurrency: 0, waiting: 0 };
  const closed = [
    { rule: 'breaker', state: 'closed' },
    { rule: 'second', state: 'closed' },
  ];
  const before = engine.stats('pay');
  assert.deepEqual({ ...before, rules: before.rules.map(({ rule }) => rule) }, { ...idle, rules: ['breaker', 'in flight', 'second'], breakers: closed });

  const calls = [engine.enter('pay'), engine.enter('pay')];
  assert.equal(engine.enter('pay').success, false);
  const waiting = engine.acquire('pay');
  const third = engine.acquire('pay');
  assert.deepEqual([engine.stats('pay').waiting, engine.stats('mail').waiting, engine.stats()], [2, 0, { concurrency: 2, waiting: 2 }]);
  clock.millis += 40;
  calls[0].exit();
  const busy = engine.stats('pay');
  const flow = busy.rules.find(({ rule }) => rule === 'in flight');
  // The second and the third refusal are the attempts of requests that wait.
  assert.deepEqual([busy.passQps, busy.blockQps, busy.successQps, busy.avgRt, busy.concurrency, busy.waiting], [3, 3, 1, 40, 2, 1]);
  assert.deepEqual([flow.passed, flow.blocked, flow.resource], [3, 3, null]);
  calls[1].exit({ error });
  for (const entry of [await waiting, await third]) entry.exit({ error });
  assert.deepEqual([engine.stats('pay').breakers, engine.stats('pay').exceptionQps], [[{ rule: 'breaker', state: 'open' }, closed[1]], 3]);
  assert.deepEqual(engine.stats(), { concurrency: 0, waiting: 0 });

  engine.enter('any').exit();
  assert.deepEqual(engine.stats('any').rules.map(({ rule, resource, passed }) => [rule, resource, passed]), [['each', 'any', 1]]);
});

test('stats_make_nothing_and_move_nothing', () => {
  const rules = { flowRules: [{ resource: '*', count: 3 }], degradeRules: [{ ...breaker, resource: '*' }] };
  const [engine, clock] = at(rules);
  const [other, otherClock] = at(rules);
  for (let i = 0; i < 3000; i++) assert.deepEqual(engine.stats(`made up ${i}`).breakers, []);
  assert.deepEqual([engine.nodes.clusters(), engine.counters().length], [[], other.counters().length]);
  const decided = (engine) => {
    const entry = engine.enter('pay');
    const { success, rule, retryAfterMs, policies } = entry;
    entry.exit({ error });
    return { success, rule, retryAfterMs, policies };
  };
  for (let i = 0; i < 400; i++) {
    clock.millis = otherClock.millis += i % 7 ? 110 : 900;
    for (let j = 0; j < 3; j++) engine.stats('pay');
    assert.deepEqual(decided(engine), decided(other), `call ${i}`);
    assert.deepEqual(engine.counters(), other.counters());
  }
  failTwice(engine);
  clock.millis += 60_000;
  const states = () => engine.stats('pay').breakers.map(({ state }) => state);
  const [open] = states();
  assert.equal(open, 'open', 'it is open until a request comes');
  assert.throws(() => engine.stats(''), { message: 'resource: `` is not a valid resource; use a name, as rules do' });
  assert.throws(() => engine.stats(5), { message: 'resource: `5` is not a string; use one' });
});

test('each_change_of_a_breaker_is_told_in_order_wherever_it_is_found', () => {
  const [engine, clock] = at({ degradeRules: [breaker] });
  const { all, remove } = eventsOf(engine, ['breaker']);
  const told = () => all.splice(0).map(([, { resource, rule, from, to }]) => `${resource}/${rule}: ${from} → ${to}`);
  failTwice(engine);
  assert.deepEqual(told(), ['pay/breaker: closed → open']);
  clock.millis += 2000;
  const probe = engine.enter('pay');
  assert.deepEqual(told(), ['pay/breaker: open → halfOpen']);
  assert.equal(engine.stats('pay').breakers[0].state, 'halfOpen');
  probe.exit({ error });
  assert.deepEqual(told(), ['pay/breaker: halfOpen → open']);
  clock.millis += 2000;
  engine.enter('pay').cancel();
  assert.deepEqual(told(), ['pay/breaker: open → halfOpen', 'pay/breaker: halfOpen → open']);
  clock.millis += 2000;
  engine.enter('pay').exit();
  assert.deepEqual(told(), ['pay/breaker: open → halfOpen', 'pay/breaker: halfOpen → closed']);
  remove();
  failTwice(engine);
  assert.deepEqual(told(), []);
  eventsOf(engine, ['breaker']);
  assert.deepEqual(told(), [], 'what came before a listener is not told');
});

test('a_probe_that_a_flow_rule_refuses_is_no_change', () => {
  const flowRules = [{ resource: 'pay', id: 'in flight', count: 2, grade: 'concurrency' }];
  const [engine, clock] = at({ flowRules, degradeRules: [breaker, { ...breaker, id: 'second' }] });
  const { all } = eventsOf(engine);
  failTwice(engine);
  assert.deepEqual(all.splice(0).map(([, { rule, to }]) => [rule, to]), [['breaker', 'open'], ['second', 'open']]);
  clock.millis += 2000;
  const probe = engine.enter('pay', { cost: 3 });
  assert.deepEqual([probe.rule, all.map(([event]) => event)], ['in flight', ['refused']]);
});

test('breakers_of_many_resources_are_told_apart', () => {
  const [engine] = at({ degradeRules: [{ ...breaker, resource: '*' }] });
  const { all } = eventsOf(engine, ['breaker']);
  failTwice(engine, 'mail');
  failTwice(engine, 'pay');
  assert.deepEqual(all.map(([, what]) => what), ['mail', 'pay'].map((resource) => ({ resource, rule: 'breaker', from: 'closed', to: 'open' })));
});

test('each_refusal_is_told_once', async () => {
  const [engine, clock] = at({ flowRules: [{ resource: 'pay', count: 1, intervalMs: 1000 }] });
  const { all, remove } = eventsOf(engine, ['refused']);
  assert.equal(engine.limit('pay').success, true);
  const results = [engine.limit('pay'), engine.enter('pay')];
  await engine.run('pay', () => {}).catch((error) => results.push(error.result));
  await engine.acquire('pay', { maxWaitMs: 0 }).catch((error) => results.push(error.result));
  engine.policies('pay');
  assert.deepEqual(all.map(([, { resource, result }]) => [resource, results.indexOf(result)]), [0, 1, 2, 3].map((place) => ['pay', place]));
  // A request that waits is refused only when it gives up.
  all.length = 0;
  const given = engine.acquire('pay', { maxWaitMs: 20_000 });
  await settled();
  assert.deepEqual(all, []);
  clock.millis += 1200;
  (await given).exit();
  assert.deepEqual(all, []);
  remove();
  remove();
  engine.limit('pay');
  assert.deepEqual(all, []);
});

test('no_listener_can_break_a_decision', async (t) => {
  const warnings = [];
  t.mock.method(process, 'emitWarning', (message, { code }) => warnings.push(`${code}: ${message}`));
  const [engine] = at({ flowRules: [{ resource: 'pay', count: 0 }] });
  const seen = [];
  engine.on('refused', () => {
    throw new Error('first');
  });
  engine.on('refused', async () => Promise.reject(new Error('second')));
  engine.on('refused', ({ result }) => seen.push(result.success));
  assert.equal(engine.limit('pay').success, false);
  assert.equal(engine.enter('pay').success, false);
  await settled();
  assert.deepEqual(seen, [false, false]);
  assert.deepEqual(warnings, [
    'LEAPGATE_LISTENER: leapgate: a listener of `refused` has thrown: first',
    'LEAPGATE_LISTENER: leapgate: a listener of `refused` has thrown: second',
  ]);
});

test('listeners_may_use_the_engine_and_see_events_in_order', () => {
  const [engine, clock] = at({ flowRules: [{ resource: 'log', count: 0 }], degradeRules: [breaker] });
  const seen = [];
  engine.on('breaker', ({ to }) => {
    if (to === 'open') seen.push(`asked: ${engine.enter('log').success}`);
    seen.push(to);
  });
  engine.on('refused', ({ resource }) => seen.push(`refused ${resource}`));
  failTwice(engine);
  clock.millis += 2000;
  engine.enter('pay');
  assert.deepEqual(seen, ['asked: false', 'open', 'refused log', 'halfOpen']);
  // One that refuses for ever is cut off.
  engine.on('refused', () => engine.limit('log'));
  assert.equal(engine.limit('log').success, false);
  assert.ok(seen.length > 100 && seen.length < 10_000, seen.length);
});

test('without_listeners_nothing_more_is_called', () => {
  const [engine, clock] = at({ degradeRules: [breaker] });
  const remove = engine.on('breaker', () => assert.fail('it was removed'));
  remove();
  failTwice(engine);
  clock.millis += 2000;
  const told = [];
  engine.on('breaker', ({ to }) => told.push(to));
  engine.enter('pay').exit();
  assert.deepEqual(told, ['halfOpen', 'closed']);
  const open = engine.enter('pay');
  engine.free();
  open.exit();
  assert.deepEqual(told, ['halfOpen', 'closed']);
});

test('wrong_listeners_are_refused_with_a_sentence', () => {
  const [engine] = at({});
  assert.throws(() => engine.on('open', () => {}), {
    code: 'ERR_LEAPGATE_ARGUMENT',
    message: 'event: `open` is not a valid event; use `refused`, `breaker`',
  });
  assert.throws(() => engine.on('breaker'), { message: 'listener: `undefined` is not a function; use one' });
});

test('the_time_window_of_a_breaker_may_be_a_part_of_a_second', () => {
  const [engine, clock] = at({ degradeRules: [{ ...breaker, timeWindow: 0.5 }] });
  failTwice(engine);
  clock.millis += 499;
  assert.deepEqual([engine.enter('pay').success, engine.enter('pay').retryAfterMs], [false, 1]);
  clock.millis += 1;
  assert.equal(engine.enter('pay').success, true);
  const cure = 'is not possible; use a number of seconds from 0.001 to 315360000';
  for (const timeWindow of [0, -1, 0.0001]) {
    assert.throws(() => at({ degradeRules: [{ ...breaker, timeWindow }] }), { message: `degradeRules[0].timeWindow: \`${timeWindow}\` ${cure}` });
  }
});
