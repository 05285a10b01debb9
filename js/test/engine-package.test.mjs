// The module of engines: its imports, and its restart after a trap.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { crash, trap } from './traps.mjs';

const require = createRequire(import.meta.url);

const { Engine } = await import('leapgate/engine');

const rules = {
  flowRules: [
    { resource: 'api', count: 5, key: ['path'], id: 'keyed' },
    { resource: 'slow', count: 5, intervalMs: 60_000 },
    { resource: 'report', count: 1, grade: 'concurrency' },
    { resource: 'stock', count: 0, grade: 'concurrency', strategy: 'chain', refResource: 'web' },
  ],
  degradeRules: [{ resource: 'pay', grade: 'errorCount', count: 0, minRequestAmount: 1, timeWindow: 100 }],
};

test('import_and_require_share_one_instance', () => {
  const required = require('leapgate/engine');
  assert.equal(required.Engine, Engine);
});

test('after_a_trap_all_windows_are_full_until_they_have_passed', () => {
  let millis = 5000;
  const made = () => new Engine(rules, { now: () => millis });
  const [one, other] = [made(), made()];
  const api = (engine) => engine.limit('api', { key: 'a' });
  for (let i = 0; i < 50; i++) api(other);
  const replaced = made();
  replaced.replace({ flowRules: [{ resource: 'api', count: 7, id: 'another' }] });
  crash('engine_enter', () => api(one));
  for (const engine of [one, other]) {
    const { success, limit, remaining, rule, cause, retryAfterMs, policies } = api(engine);
    assert.deepEqual([success, limit, remaining, rule, cause, retryAfterMs], [false, 5, 0, null, null, 1050]);
    assert.deepEqual(policies, [{ id: 'keyed', limit: 5, remaining: 0, unit: 'requests', windowMs: 1000, resetMs: 1050 }]);
    assert.equal(engine.limit('any').success, true, 'it has no rules');
  }
  assert.equal(api(made()).success, true, 'an engine made afterwards has lost nothing');
  assert.equal(replaced.limit('api').limit, 7, 'the latest rules are in force');
  millis = 6049;
  assert.equal(api(one).retryAfterMs, 1);
  millis = 6050;
  for (const engine of [one, other]) {
    assert.equal(api(engine).remaining, 4);
    assert.equal(engine.limit('slow').retryAfterMs, 59_550);
  }
  millis = 4000;
  assert.equal(one.limit('slow').retryAfterMs, 60_600, 'a clock that steps back waits no longer than the window');
});

test('rules_made_after_a_trap_have_lost_nothing', () => {
  let millis = 5000;
  const engine = new Engine({ flowRules: [{ resource: 'login', count: 1 }] }, { now: () => millis });
  crash('engine_enter', () => engine.limit('login'));
  engine.replace({ flowRules: [{ resource: 'login', count: 1, intervalMs: 3_600_000 }] });
  assert.equal(engine.limit('login').retryAfterMs, 1010);
  millis = 6010;
  assert.equal(engine.limit('login').success, true);
});

test('after_a_trap_older_calls_have_ended', () => {
  const engine = new Engine(rules, { now: () => 5000 });
  const [before, outer] = [engine.enter('report'), engine.enter('any')];
  crash('engine_resource', () => engine.limit('new'));
  const now = engine.enter('report');
  assert.equal(now.success, true, 'a limit on calls in flight has no window');
  before.exit();
  before.exit({ refund: true });
  assert.equal(engine.enter('report').success, false, 'the new one is in flight');
  engine.enter('any', { context: 'web' });
  assert.equal(engine.enter('stock', { within: outer }).success, true, 'another call has its number');
  assert.equal(engine.enter('stock', { context: 'web' }).success, false);
  outer.cancel();
  now.exit();
  crash('engine_exit', () => engine.enter('report').exit());
  assert.equal(engine.enter('report').success, true);
});

test('an_error_of_the_caller_is_not_a_trap', () => {
  const mine = new Error('mine');
  const throws = () => {
    throw mine;
  };
  const engine = new Engine({ flowRules: [{ resource: 'api', count: 5, key: ['path'] }] }, { now: () => 5000 });
  const thrown = (request) => assert.throws(() => engine.limit('api', request), mine);
  assert.equal(engine.limit('api', { key: 'a' }).remaining, 4);
  thrown({ get key() { return throws(); } });
  thrown({ key: { get path() { return throws(); } } });
  thrown({ key: 'a', get origin() { return throws(); } });
  const clockless = new Engine({}, { now: throws });
  assert.throws(() => clockless.limit('api'), mine);
  assert.equal(engine.limit('api', { key: 'a' }).remaining, 3);
});

test('after_any_trap_the_next_call_works', () => {
  const engine = new Engine(rules, { now: () => 5000 });
  const key = { path: ['a', 'b'] };
  for (const [name, act] of [
    ['engine_replace', () => engine.replace(rules)],
    ['engine_new', () => new Engine(rules)],
    ['engine_rule', () => engine.limit('slow')],
    ['engine_part', () => engine.limit('api', { key })],
    ['key_lists', () => engine.limit('api', { key })],
    ['engine_refund', () => engine.enter('any').exit({ refund: true })],
  ]) {
    crash(name, act);
    assert.equal(engine.limit('any').success, true, name);
    assert.equal(engine.enter('pay').success, true, name);
  }
});

test('after_a_trap_waiting_requests_go_on', async () => {
  const engine = new Engine(rules, { now: () => 5000 });
  const log = [];
  const ask = (name) => engine.acquire('report').then((entry) => (log.push(name), entry));
  const before = await ask('before');
  const waiting = ['a', 'b', 'c'].map(ask);
  crash('engine_resource', () => engine.limit('new'));
  before.exit();
  (await waiting[0]).exit();
  const second = await waiting[1];
  crash('engine_exit', () => second.exit());
  (await waiting[2]).exit();
  assert.deepEqual(log, ['before', 'a', 'b', 'c']);
  trap('engine_enter');
  await assert.rejects(ask('d'), { code: 'ERR_LEAPGATE_CRASHED' });
  trap('engine_exit');
  await assert.rejects(
    engine.run('report', () => Promise.reject(new Error('broken'))),
    { message: 'broken' },
    'the first error is reported',
  );
  assert.equal(await engine.run('report', () => 7), 7);
});

test('after_a_trap_gauges_are_as_before', () => {
  const engine = new Engine({ systemRules: [{ highestCpuUsage: 0.5, id: 'cpu' }] }, { now: () => 5000 });
  engine.setGauges({ cpu: 0.6 });
  crash('engine_resource', () => engine.enter('new'));
  assert.equal(engine.enter('new', { inbound: true }).rule, 'cpu');
  crash('engine_gauges', () => engine.setGauges({ cpu: 0.7 }));
  assert.equal(engine.enter('new', { inbound: true }).rule, 'cpu');
});
