// Engines: rules of all kinds.
import { Engine } from 'leapgate/engine';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';

// An engine and its clock.
function at(rules, millis = 10_000) {
  const clock = { millis };
  return [new Engine(rules, { now: () => clock.millis }), clock];
}

// How many of `tries` requests pass.
function passes(engine, resource, tries, request) {
  let passed = 0;
  for (let i = 0; i < tries; i++) passed += engine.limit(resource, request).success;
  return passed;
}

const flow = (...flowRules) => ({ flowRules });
const login = { resource: 'login', count: 3, sampleCount: 20, id: 'login' };

test('a_decision_has_all_its_fields', () => {
  const [engine, clock] = at(flow(login, { resource: 'login', count: 10, intervalMs: 60_000, id: 'all' }));
  const policies = (left, all, resetMs) => [
    { id: 'login', limit: 3, remaining: left, unit: 'requests', windowMs: 1000, resetMs },
    { id: 'all', limit: 10, remaining: all, unit: 'requests', windowMs: 60_000, resetMs: 60_200 - 1050 + resetMs },
  ];
  assert.deepEqual(engine.limit('login', { cost: 2 }), {
    success: true,
    limit: 3,
    remaining: 1,
    reset: 11_050,
    retryAfterMs: 0,
    rule: 'login',
    cause: null,
    status: null,
    policies: policies(1, 8, 1050),
  });
  clock.millis = 10_500;
  const refused = {
    success: false,
    limit: 3,
    remaining: 1,
    retryAfterMs: 550,
    reset: 11_050,
    rule: 'login',
    cause: 'flow',
    status: 429,
    policies: policies(1, 8, 550),
  };
  assert.deepEqual(engine.limit('login', { cost: 2 }), refused);
  assert.deepEqual({ ...engine.enter('login', { cost: 2 }) }, { ...refused, waitMs: 0 });
  assert.deepEqual(engine.policies('login'), refused.policies);
});

test('a_rule_that_asks_for_a_store_limits_by_itself_and_a_warning_says_so', () => {
  const clusterConfig = { thresholdType: 1, flowId: 7 };
  const global = { ...login, clusterMode: true, clusterConfig };
  const [engine] = at(flow({ resource: 'pay', count: 1 }, global));
  const sentence =
    '.clusterMode: `true` needs a store, which `Engine` does not have, so each node limits by itself; use `SharedLimiter` of ' +
    '`leapgate/shared`, or leave it out';
  assert.deepEqual(engine.warnings, [`flowRules[1]${sentence}`]);
  assert.equal(passes(engine, 'login', 9), 3);
  engine.replace({ paramFlowRules: [{ ...global, id: 'param', sampleCount: undefined, paramIdx: 0 }], flowRules: [{ ...global, grade: 'concurrency', sampleCount: undefined }] });
  assert.deepEqual(engine.warnings, [
    `paramFlowRules[0]${sentence}`,
    'flowRules[0].clusterMode: `true` does not go with a limit on concurrency, so each node limits by itself; leave one of the two out',
  ]);
  engine.replace(flow({ ...global, clusterMode: false }));
  assert.deepEqual(engine.warnings, []);
});

test('a_resource_without_rules_passes', () => {
  const [engine] = at({});
  const expected = { success: true, limit: Infinity, remaining: Infinity, reset: 10_000, retryAfterMs: 0 };
  assert.deepEqual(engine.limit('any'), { ...expected, rule: null, cause: null, status: null, policies: [] });
  assert.equal(engine.enter('any', { key: { a: 'b' }, canWait: true }).success, true);
});

test('a_cost_above_the_limit_never_passes', () => {
  const [engine] = at(flow(login));
  const { retryAfterMs, reset } = engine.limit('login', { cost: 4 });
  assert.deepEqual([retryAfterMs, reset], [Infinity, Infinity]);
});

test('a_refusal_names_the_kind_of_rule', () => {
  const [engine, clock] = at({
    flowRules: [{ resource: 'app', count: 1, limitApp: 'shop', id: 'of shop' }, { resource: 'admin', count: 9 }],
    authorityRules: [{ resource: 'admin', limitApp: 'ops', id: 'admins' }],
    degradeRules: [{ resource: 'pay', grade: 'errorCount', count: 1, minRequestAmount: 1, timeWindow: 5, id: 'pay' }],
    systemRules: [{ qps: 2, id: 'all' }],
  });
  const said = ({ success, rule, cause, limit, remaining, retryAfterMs }) => [success, rule, cause, limit, remaining, retryAfterMs];
  assert.deepEqual(said(engine.limit('admin', { origin: 'guest' })), [false, 'admins', 'authority', 9, 0, Infinity]);
  assert.equal(engine.limit('admin', { origin: 'ops' }).success, true);
  assert.equal(engine.limit('app', { origin: 'shop' }).success, true);
  assert.deepEqual(said(engine.limit('app', { origin: 'shop' })), [false, 'of shop', 'flow', 1, 0, 1010]);
  assert.equal(engine.limit('app', { origin: 'other' }).success, true);
  for (let i = 0; i < 2; i++) engine.enter('pay').exit({ error: new Error('broken') });
  assert.deepEqual(said(engine.enter('pay')), [false, 'pay', 'degrade', Infinity, 0, 5000]);
  clock.millis += 5000;
  engine.enter('pay').exit();
  assert.equal(engine.enter('pay').success, true, 'a probe that succeeds closes it');
  assert.equal(passes(engine, 'any', 5, { inbound: true }), 2);
  const { rule, cause } = engine.limit('any', { inbound: true });
  assert.deepEqual([rule, cause], ['all', 'system']);
  assert.equal(engine.limit('any').success, true, 'a system rule ignores requests that are not inbound');
});

test('a_key_is_a_value_an_array_or_a_record', () => {
  const key = ['clientIp', { header: 'X-Api-Key' }];
  const [engine] = at(flow({ resource: 'api', count: 7, key }, { resource: 'one', count: 7, key: [{ arg: 0 }] }));
  const left = (resource, key) => engine.limit(resource, { key }).remaining;
  assert.equal(left('api', ['10.0.0.1', 'é✓']), 6);
  assert.equal(left('api', { clientIp: '10.0.0.1:4711', 'header:x-api-key': 'é✓', more: {} }), 5);
  assert.equal(left('api', ['10.0.0.1', '']), 6, 'an empty value');
  assert.equal(left('api', ['10.0.0.1', null]), 6, 'none');
  assert.equal(left('api', { clientIp: '10.0.0.1', 'header:x-api-key': null }), 5);
  assert.equal(left('api', { clientIp: '10.0.0.1', 'header:x-api-key': [] }), 4);
  assert.equal(left('api', { clientIp: '10.0.0.1', 'header:x-api-key': ['é✓', 'b', 'b'] }), 4);
  assert.equal(left('api', ['10.0.0.1', 'b']), 5);
  for (const [i, key] of [7, '7', 7n, [7], { 'arg:0': 7 }, { 'arg:0': ['7'] }].entries()) assert.equal(left('one', key), 6 - i);
  assert.equal(left('one', null), 6);
  assert.equal(left('one', { 'arg:0': null }), 5);
});

test('keys_that_are_written_alike_are_distinct', () => {
  const [engine] = at(flow({ resource: 'api', count: 1, key: [{ arg: 0 }, { arg: 1 }] }));
  for (const key of [['ab', 'c'], ['a', 'bc'], ['abc', ''], ['', 'abc']]) assert.equal(engine.limit('api', { key }).success, true);
  assert.equal(engine.limit('api', { key: ['a', 'bc'] }).success, false);
});

test('a_count_of_its_own_is_the_limit_of_a_key', () => {
  const rule = { resource: 'api', count: 2, key: ['host'], burst: 1, keyItems: [{ value: 'gold', count: 10 }], id: 'hosts' };
  const [engine] = at(flow(rule));
  assert.equal(engine.limit('api', { key: 'gold' }).limit, 11);
  assert.equal(engine.limit('api', { key: 'other' }).limit, 3);
  assert.equal(engine.limit('api', { key: 'gold', cost: 11 }).limit, 11);
});

test('never_admits_more_than_the_limit_in_any_window', () => {
  let state = 7;
  const random = (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const [engine, clock] = at(flow({ resource: 'api', count: 5, key: ['host'] }, { resource: 'api', count: 12, intervalMs: 1500 }));
  const passed = [];
  for (let i = 0; i < 20_000; i++) {
    clock.millis += random(2) * random(60);
    const [host, cost] = [`host ${random(4)}`, 1 + random(3)];
    if (engine.limit('api', { key: host, cost }).success) passed.push({ at: clock.millis, host, cost });
  }
  const within = (last, ms, counts) =>
    passed.filter((one) => one.at > last.at - ms && one.at <= last.at && counts(one)).reduce((sum, { cost }) => sum + cost, 0);
  assert(passed.length > 1000);
  for (const last of passed.slice(-2000)) {
    assert(within(last, 1000, ({ host }) => host === last.host) <= 5);
    assert(within(last, 1500, () => true) <= 12);
  }
});

test('a_thousand_resources_without_rules_of_their_own_are_kept_apart_and_further_ones_share', () => {
  const [engine] = at(flow({ resource: '*', count: 2 }, { resource: 'own', count: 2 }));
  const names = Array.from({ length: 5000 }, (_, i) => `resource ${i}`);
  const passed = () => names.map((name) => engine.limit(name).success);
  assert.deepEqual([passed(), passed(), passed()].map((passed) => passed.lastIndexOf(true)), [1001, 999, -1]);
  assert.equal(passes(engine, 'own', 3), 2);
});

test('more_keys_than_can_have_a_number_are_kept_apart', () => {
  const [engine] = at(flow({ resource: 'api', count: 2, key: ['path'] }));
  for (const remaining of [1, 0, 0]) {
    for (let key = 0; key < 30_000; key++) assert.equal(engine.limit('api', { key }).remaining, remaining);
  }
});

test('a_chain_rule_uses_the_context_of_the_request_or_of_its_outer_call', () => {
  const [engine] = at(flow({ resource: 'stock', count: 1, strategy: 'chain', refResource: 'web' }));
  const outer = engine.enter('orders', { context: 'web' });
  assert.equal(engine.enter('stock', { within: outer }).success, true);
  assert.equal(engine.enter('stock', { within: outer }).success, false);
  assert.equal(engine.enter('stock', { context: 'web' }).success, false);
  assert.equal(engine.enter('stock', { context: 'jöb', origin: 'ärger' }).success, true);
  assert.equal(engine.enter('stock').success, true);
});

test('a_call_that_can_wait_gets_its_wait_and_one_that_cannot_is_refused', () => {
  const rule = { resource: 'mail', count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 500 };
  const [engine, clock] = at(flow(rule));
  assert.equal(engine.limit('mail').success, true);
  const { success, retryAfterMs, cause } = engine.limit('mail');
  assert.deepEqual([success, retryAfterMs, cause], [false, 100, 'flow']);
  const waits = () => engine.enter('mail', { canWait: true });
  const [first, second] = [waits(), waits()];
  assert.deepEqual([first, second].map(({ success, waitMs, retryAfterMs }) => [success, waitMs, retryAfterMs]), [
    [true, 100, 0],
    [true, 200, 0],
  ]);
  const { success: enters, waitMs } = engine.enter('mail');
  assert.deepEqual([enters, waitMs], [false, 0]);
  second.cancel();
  assert.equal(waits().waitMs, 200, 'the turn is free again');
  clock.millis += 1000;
  assert.equal(engine.enter('mail').waitMs, 0);
});

test('a_prioritized_call_borrows_from_a_later_bucket', () => {
  const [engine, clock] = at(flow({ resource: 'api', count: 1 }));
  engine.limit('api');
  clock.millis += 900;
  assert.equal(engine.enter('api', { canWait: true }).success, false);
  const { success, waitMs } = engine.enter('api', { canWait: true, prioritized: true });
  assert.deepEqual([success, waitMs], [true, 110]);
  assert.equal(engine.enter('api', { prioritized: true }).success, false);
});

test('a_call_is_in_flight_until_its_first_exit', () => {
  const [engine] = at(flow({ resource: 'report', count: 1, grade: 'concurrency' }));
  const first = engine.enter('report');
  assert.deepEqual(first.policies, [{ id: 'report/concurrency', limit: 1, remaining: 0, unit: 'requests', windowMs: null, resetMs: 1 }]);
  const refused = engine.enter('report');
  assert.equal(refused.success, false);
  refused.exit();
  refused.cancel();
  assert.equal(engine.enter('report').success, false, 'a refusal holds nothing');
  first.exit();
  const second = engine.enter('report');
  first.exit({ error: true });
  first.cancel();
  assert.equal(engine.enter('report').success, false, 'the second one is in flight');
  second.cancel();
  assert.equal(engine.enter('report').success, true);
});

test('an_entry_ends_with_its_block', () => {
  const [engine] = at(flow({ resource: 'report', count: 1, grade: 'concurrency' }));
  const dispose = Symbol.dispose ?? Symbol.for('Symbol.dispose');
  if (Symbol.dispose) engine.enter('report')[dispose]();
  else engine.enter('report').exit();
  assert.equal(engine.enter('report').success, true);
});

test('only_undefined_null_and_false_mean_success', () => {
  for (const [error, opens] of [[undefined, false], [null, false], [false, false], [0, true], ['', true], [new Error(), true]]) {
    const [engine] = at({ degradeRules: [{ resource: 'pay', grade: 'errorCount', count: 0, minRequestAmount: 1, timeWindow: 1 }] });
    engine.enter('pay').exit({ error });
    assert.equal(engine.enter('pay').success, !opens, String(error));
  }
});

test('a_call_that_does_not_count_is_refunded', () => {
  const [engine] = at(flow({ resource: 'api', count: 3 }, { resource: 'api', count: 2, key: ['host', { arg: 0 }], id: 'keyed' }));
  const enter = (key, cost = 1) => engine.enter('api', { key, cost });
  const left = (key) => engine.policies('api', { key }).map(({ remaining }) => remaining);
  enter(['a', 1]).exit();
  const record = { host: ['a', 'b'], 'arg:0': 1 };
  const both = enter(record);
  record.host = 'c';
  assert.deepEqual([left(['a', 1]), left(['b', 1])], [[1, 0], [1, 1]]);
  both.exit({ refund: true });
  both.exit({ refund: true });
  assert.deepEqual([left(['a', 1]), left(['b', 1])], [[2, 1], [2, 2]]);
  const list = ['b', null];
  const last = enter(list, 2);
  list[0] = 'c';
  last.exit({ refund: true, error: new Error() });
  assert.deepEqual(left(['b', null]), [2, 2]);
});

test('an_unanswered_call_counts_for_a_breaker_only_if_it_was_slow', () => {
  const breaker = { resource: 'pay', minRequestAmount: 1, timeWindow: 10 };
  const [engine, clock] = at({
    degradeRules: [
      { ...breaker, grade: 'errorCount', count: 0, id: 'errors' },
      { ...breaker, grade: 'slowRatio', count: 100, slowRatioThreshold: 0.5, id: 'slow' },
    ],
  });
  const unanswered = (millis) => {
    const entry = engine.enter('pay');
    clock.millis += millis;
    entry.exit({ error: true, unanswered: true });
    return engine.enter('pay').rule;
  };
  assert.equal(unanswered(100), null);
  assert.equal(unanswered(101), 'slow');
});

test('system_rules_use_the_gauges_that_are_set', () => {
  const [engine] = at({ systemRules: [{ highestCpuUsage: 0.5, id: 'cpu' }, { highestSystemLoad: 1, id: 'load' }] });
  const ask = () => engine.enter('any', { inbound: true }).rule;
  assert.equal(ask(), null, 'no gauge is set');
  engine.setGauges({ cpu: 0.6 });
  assert.equal(ask(), 'cpu');
  engine.setGauges({ cpu: 0.5 });
  assert.equal(ask(), null);
  engine.setGauges({ load: 3 });
  assert.equal(ask(), null, 'the calls in flight are within the capacity');
  engine.setGauges({});
  assert.equal(ask(), null);
  const most = 'is not possible; use a number from 0 to 1.7976931348623157e+308';
  for (const [given, message] of [
    [{ cpu: NaN }, `gauges.cpu: \`NaN\` ${most}`],
    [{ load: '1' }, `gauges.load: \`1\` ${most.replace('not possible', 'a string')}`],
    [{ loadavg: 3 }, 'gauges.loadavg: `3` means nothing here; use one of `load`, `cpu`'],
    [5, 'gauges: `5` is not an object; use one, as in `{ load: os.loadavg()[0] }`'],
  ]) {
    assert.throws(() => engine.setGauges(given), { code: 'ERR_LEAPGATE_OPTIONS', message });
  }
});

test('limit_leaves_nothing_open', () => {
  const [engine] = at({
    flowRules: [{ resource: 'report', count: 9, grade: 'concurrency' }],
    paramFlowRules: [{ resource: 'user', count: 9, grade: 0, paramIdx: 0 }],
    degradeRules: [{ resource: 'pay', count: 200, timeWindow: 1 }],
  });
  for (const resource of ['report', 'user', 'pay']) {
    assert.throws(() => engine.limit(resource, { key: 'a' }), {
      code: 'ERR_LEAPGATE_OPEN',
      message: `resource: \`${resource}\` has rules that look at how calls end; use \`enter\` or \`run\``,
    });
  }
  const [limited] = at({ systemRules: [{ maxThread: 1 }] });
  assert.equal(passes(limited, 'any', 5, { inbound: true }), 5);
});

test('rules_are_replaced_all_or_none', () => {
  const [engine] = at(flow({ resource: 'login', count: 3 }, { resource: 'report', count: 1, grade: 'concurrency' }));
  const entry = engine.enter('report');
  assert.equal(passes(engine, 'login', 2), 2);
  const wrong = { ...flow({ resource: 'login', count: 9 }), systemRules: [{ qps: '5' }] };
  assert.throws(() => engine.replace(wrong), {
    name: 'RangeError',
    code: 'ERR_LEAPGATE_RULES',
    message: 'systemRules[0].qps: `5` is a string; use a number',
  });
  assert.equal(engine.limit('login').limit, 3);
  engine.replace(flow({ resource: 'login', count: 5 }, { resource: 'free', count: 1, key: ['path'] }));
  assert.equal(passes(engine, 'login', 5), 2, 'what was counted counts');
  assert.equal(engine.limit('report').success, true, 'it has no rule any more');
  entry.exit();
  assert.throws(() => engine.limit('free'), { code: 'ERR_LEAPGATE_KEY' });
});

test('rules_may_be_replaced_before_the_first_decision', () => {
  const [engine] = at(flow({ resource: 'login', count: 3 }));
  assert.throws(() => engine.replace(flow({ resource: 'a', count: 1 }, { resource: 'a', count: 2 })), {
    message: 'flowRules[1].id: `a` is the id of an earlier rule; give one of them another `id`',
  });
  engine.replace(flow({ resource: 'login', count: 1 }));
  assert.equal(passes(engine, 'login', 5), 1);
});

/** The keys of a rules document, as its type lists them. */
function documentKeys() {
  const types = readFileSync(new URL('../engine.d.ts', import.meta.resolve('leapgate/engine')), 'utf8');
  const [, fields] = /interface RulesDocument \{(.*?)\n\}/s.exec(types);
  return [...fields.matchAll(/^  ([$\w]+)\?:/gm)].map(([, key]) => `\`${key}\``).join(', ');
}

test('a_wrong_document_is_refused_with_a_sentence', () => {
  for (const [rules, message, name = 'RangeError'] of [
    [{ rules: [] }, 'document: `rules` is not a known key; use one of ' + documentKeys()],
    [[], 'document: `[…]` is an array; put it in an object, under `flowRules`'],
    [flow({ resource: 'a', count: -1 }), 'flowRules[0].count: `-1` is not a valid count; use a number from 0 to 9007199254740992'],
    [flow({ resource: 'a', count: NaN }), 'flowRules[0].count: `NaN` is not a valid count; use a number from 0 to 9007199254740992'],
    [flow({ resource: 'a', count: 1, sampleCount: 7 }), 'flowRules[0].sampleCount: `7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100'],
    [flow({ resource: 'a', count: () => 1 }), 'document.flowRules[0].count: `a function` means nothing here; use a value that JSON has', 'TypeError'],
    [undefined, "rules: `undefined` is not an object; use a rules document, as in `{ flowRules: [{ resource: 'login', count: 5 }] }`", 'TypeError'],
    ['{}', "rules: `{}` is not an object; use a rules document, as in `{ flowRules: [{ resource: 'login', count: 5 }] }`", 'TypeError'],
  ]) {
    const expected = { name, message, code: 'ERR_LEAPGATE_RULES' };
    assert.throws(() => new Engine(rules), expected);
    const [engine] = at({});
    assert.throws(() => engine.replace(rules), expected);
  }
  // Sentinel's dashboard writes a number, and gateways have patterns.
  const paramItem = { parseStrategy: 2, fieldName: 'a', pattern: 'a+', matchStrategy: 2 };
  const [engine] = at({ gatewayFlowRules: [{ resource: 'a', count: 1, id: 17, paramItem }] });
  assert.equal(passes(engine, 'a', 3, { key: 'aa' }), 1);
  assert.equal(passes(engine, 'a', 3, { key: 'ab' }), 3);
});

test('a_wrong_argument_is_refused_with_a_sentence', () => {
  const key = ['clientIp', { header: 'X-Api-Key' }];
  const [engine] = at(flow({ resource: 'api', count: 100, key }, { resource: 'one', count: 100, key: ['path'] }));
  const [other] = at({});
  const [open, ended, refused] = [engine.enter('any'), engine.enter('any'), other.enter('any')];
  ended.exit();
  const long = 'x'.repeat(1025);
  const ARGUMENT = 'ERR_LEAPGATE_ARGUMENT';
  const OPTIONS = 'ERR_LEAPGATE_OPTIONS';
  const KEY = 'ERR_LEAPGATE_KEY';
  for (const [act, name, code, message] of [
    [() => new Engine({}, 5), 'TypeError', OPTIONS, 'settings: `5` is not an object; use one, as in `{ now: () => Date.now() }`, or leave it out'],
    [() => new Engine({}, { now: 5 }), 'TypeError', OPTIONS, 'settings.now: `5` is not a function; use one that returns milliseconds, or leave it out'],
    [() => new Engine({}, { now: () => -1 }).limit('a'), 'TypeError', 'ERR_LEAPGATE_CLOCK', 'settings.now(): `-1` is not a valid time; return milliseconds, a number from 0 to 10000000000000'],
    [() => engine.limit(), 'TypeError', ARGUMENT, 'resource: `undefined` is not a string; use one'],
    [() => engine.limit(5), 'TypeError', ARGUMENT, 'resource: `5` is not a string; use one'],
    [() => engine.enter(''), 'RangeError', ARGUMENT, 'resource: `` is not a valid resource; use a name, as rules do'],
    [() => engine.policies(long), 'RangeError', ARGUMENT, `resource: \`${'x'.repeat(64)}…\` has 1025 characters; use at most 1024`],
    [() => engine.limit('any', 5), 'TypeError', OPTIONS, 'request: `5` is not an object; use one, as in `{ cost: 2 }`, or leave it out'],
    [() => engine.enter('any', null), 'TypeError', OPTIONS, 'request: `null` is not an object; use one, as in `{ cost: 2 }`, or leave it out'],
    [() => engine.limit('any', { cost: 1.5 }), 'RangeError', OPTIONS, 'request.cost: `1.5` is not possible; use a whole number from 0 to 4294967295'],
    [() => engine.limit('any', { origin: 5 }), 'TypeError', OPTIONS, 'request.origin: `5` is not a string; use one'],
    [() => engine.limit('any', { context: long }), 'RangeError', OPTIONS, `request.context: \`${'x'.repeat(64)}…\` has 1025 characters; use at most 1024`],
    [() => engine.limit('any', { inbound: 1 }), 'TypeError', OPTIONS, 'request.inbound: `1` is neither true nor false; use one of them, or leave it out'],
    [() => engine.limit('any', { prioritized: 'no' }), 'TypeError', OPTIONS, 'request.prioritized: `no` is neither true nor false; use one of them, or leave it out'],
    [() => engine.enter('any', { canWait: 0 }), 'TypeError', OPTIONS, 'request.canWait: `0` is neither true nor false; use one of them, or leave it out'],
    [() => engine.enter('any', { within: {} }), 'TypeError', OPTIONS, 'request.within: `{…}` is not an entry of this engine; use what its `enter` returned'],
    [() => engine.enter('any', { within: null }), 'TypeError', OPTIONS, 'request.within: `null` is not an entry of this engine; use what its `enter` returned'],
    [() => engine.enter('any', { within: refused }), 'TypeError', OPTIONS, 'request.within: `{…}` is not an entry of this engine; use what its `enter` returned'],
    [() => engine.enter('any', { within: ended }), 'TypeError', OPTIONS, 'request.within: `{…}` is not open; use one that was let in and has not ended'],
    [() => open.exit(new Error('x').message), 'TypeError', OPTIONS, 'outcome: `x` is not an object; use one, as in `{ error }`, or leave it out'],
    [() => new Engine({}, { maxWaiters: 5 }), 'TypeError', OPTIONS, 'settings.maxWaiters: `5` means nothing here; use one of `now`, `maxWaiting`'],
    [() => engine.limit('any', { costt: 5 }), 'TypeError', OPTIONS, 'request.costt: `5` means nothing here; use one of `key`, `origin`, `cost`, `prioritized`, `context`, `inbound`, `exempt`, `apis`'],
    [() => engine.limit('any', { canWait: true }), 'TypeError', OPTIONS, 'request.canWait: `true` means nothing here; use one of `key`, `origin`, `cost`, `prioritized`, `context`, `inbound`, `exempt`, `apis`'],
    [() => engine.enter('any', { weight: 2 }), 'TypeError', OPTIONS, 'request.weight: `2` means nothing here; use `cost`'],
    [() => engine.enter('any', { signal: 5 }), 'TypeError', OPTIONS, 'request.signal: `5` means nothing here; use one of `key`, `origin`, `cost`, `prioritized`, `context`, `inbound`, `exempt`, `apis`, `canWait`, `within`'],
    [() => engine.policies('any', { keys: 'a' }), 'TypeError', OPTIONS, 'request.keys: `a` means nothing here; use `key`'],
    [() => open.exit({ err: true }), 'TypeError', OPTIONS, 'outcome.err: `true` means nothing here; use one of `error`, `cost`, `refund`, `unanswered`'],
    [() => engine.limit('api'), 'TypeError', KEY, 'request.key: `undefined` does not say `clientIp`; add it, or null if there is none'],
    [() => engine.limit('api', { key: 'a' }), 'TypeError', KEY, 'request.key: `a` does not say `header:x-api-key`; add it, or null if there is none'],
    [() => engine.limit('api', { key: ['a'] }), 'TypeError', KEY, 'request.key: `[…]` does not say `header:x-api-key`; add it, or null if there is none'],
    [() => engine.limit('api', { key: { clientIp: 'a', 'header:X-Api-Key': 'b' } }), 'TypeError', KEY, 'request.key: `{…}` does not say `header:x-api-key`; add it, or null if there is none'],
    [() => engine.limit('api', { key: ['a', 'b', 'c'] }), 'TypeError', KEY, 'request.key: `[…]` has 3 values; use one for each of `clientIp`, `header:x-api-key`'],
    [() => engine.limit('one', { key: ['a', 'b'] }), 'TypeError', KEY, 'request.key: `[…]` has 2 values; use one for each of `path`'],
    [() => engine.limit('one', { key: true }), 'TypeError', KEY, "request.key['path']: `true` is not a valid value; use a string, a number, a bigint, several of these in an array, or null"],
    [() => engine.limit('one', { key: { path: NaN } }), 'TypeError', KEY, "request.key['path']: `NaN` is not a valid value; use a string, a number, a bigint, several of these in an array, or null"],
    [() => engine.limit('one', { key: { path: ['a', null] } }), 'TypeError', KEY, "request.key['path']: `[…]` is not a valid value; use a string, a number, a bigint, several of these in an array, or null"],
    [() => engine.limit('one', { key: 'x'.repeat(65537) }), 'RangeError', KEY, `key: \`${'x'.repeat(64)}…\` has 65537 characters; use at most 65536, or a hash of it`],
    [() => engine.limit('one', { key: { path: ['x'.repeat(200_000)] } }), 'RangeError', KEY, 'request.key: `[…]` has 200008 bytes; use at most 196608, or a hash of it'],
  ]) {
    assert.throws(act, { name, code, message });
  }
  assert.equal(engine.limit('api', { key: ['a', 'b'] }).remaining, 99, 'no refused call was charged');
});

test('a_freed_engine_says_so_and_its_calls_may_end', () => {
  const [engine] = at(flow({ resource: 'report', count: 1, grade: 'concurrency' }));
  const entry = engine.enter('report');
  engine.free();
  engine.free();
  for (const act of [() => engine.limit('a'), () => engine.enter('a'), () => engine.policies('a'), () => engine.replace({})]) {
    assert.throws(act, { code: 'ERR_LEAPGATE_FREED', message: 'engine: it has been freed; make another one, or free it later' });
  }
  entry.exit();
  const [another] = at(flow({ resource: 'report', count: 2 }));
  assert.equal(passes(another, 'report', 5), 2);
});

test('many_calls_in_flight_are_kept_apart', () => {
  const [engine] = at(flow({ resource: 'report', count: 50_000, grade: 'concurrency' }));
  const open = Array.from({ length: 50_000 }, () => engine.enter('report'));
  assert(open.every(({ success }, i) => success && open[i].remaining === 49_999 - i));
  assert.equal(engine.enter('report').success, false);
  for (const entry of open.splice(0, 20_000)) entry.exit();
  assert.equal(engine.policies('report')[0].remaining, 20_000);
});

test('neither_clock_nor_randomness_is_read_before_the_first_decision', () => {
  const { getRandomValues } = crypto;
  const { now } = performance;
  let read = 0;
  crypto.getRandomValues = (words) => (read++, getRandomValues.call(crypto, words));
  performance.now = () => (read++, now.call(performance));
  try {
    const engine = new Engine(flow({ resource: 'api', count: 1, key: ['path'] }));
    engine.replace(flow({ resource: 'api', count: 2, key: ['path'] }));
    assert.equal(read, 0);
    engine.limit('api', { key: 'a' });
    assert(read > 0);
  } finally {
    crypto.getRandomValues = getRandomValues;
    performance.now = now;
  }
});

test('without_a_clock_of_its_own_an_engine_uses_the_hosts', () => {
  const engine = new Engine(flow({ resource: 'api', count: 1, intervalMs: 60_000 }));
  const [before, { reset }, after] = [Date.now(), engine.limit('api'), Date.now()];
  assert(Math.abs(engine.now() - performance.now()) < 5000);
  assert(reset >= before + 60_000 && reset <= after + 60_601);
});

test('garbage_collected_engines_and_entries_are_freed', async () => {
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  const [engine] = at(flow({ resource: 'report', count: 3, grade: 'concurrency' }));
  (() => {
    for (let i = 0; i < 3; i++) engine.enter('report');
  })();
  assert.equal(engine.enter('report').success, false);
  for (let i = 0; i < 50 && engine.policies('report')[0].remaining < 3; i++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  assert.equal(engine.policies('report')[0].remaining, 3);
});

// ---- from shadow to enforce ----

for (const key of [undefined, ['clientIp']]) {
  const rule = (count, more) => ({ resource: 'login', count, ...(key && { key }), ...more });
  const request = key && { key: '203.0.113.7' };
  const id = key ? 'login/key=clientIp' : 'login';
  const counters = (engine) =>
    Object.fromEntries(engine.counters().map(({ rule, passed, blocked, shadowBlocked }) => [rule, [passed, blocked, shadowBlocked]]));

  test(`a_roll_out_from_shadow_to_enforce_and_to_another_window_goes_on (${id})`, () => {
    const [engine] = at(flow(rule(4, { mode: 'shadow' })));
    assert.equal(passes(engine, 'login', 3, request), 3);
    engine.replace(flow(rule(4)));
    assert.equal(passes(engine, 'login', 3, request), 1);
    for (const window of ['sentinel', 'weighted', 'strict']) {
      engine.replace(flow(rule(4, { window })));
      assert.equal(passes(engine, 'login', 1, request), 0, window);
    }
    assert.deepEqual(counters(engine), { [id]: [4, 5, 0] });
  });

  test(`a_shadow_rule_beside_an_equal_rule_in_force_charges_nothing (${id})`, () => {
    const [engine] = at(flow(rule(2, { mode: 'shadow', window: 'weighted' }), rule(4)));
    assert.equal(passes(engine, 'login', 6, request), 4);
    assert.deepEqual(counters(engine), { [id]: [4, 2, 0], [`${id}/shadow`]: [2, 0, 4] });
    assert.deepEqual(
      engine.policies('login', request).map(({ id, limit, remaining }) => [id, limit, remaining]),
      [[`${id}/shadow`, 2, 0], [id, 4, 0]],
    );
  });
}
