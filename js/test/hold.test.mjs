// Costs that are known only when a request ends: the holds of a limiter, and the costs of an engine's calls.
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
import { rateLimitHeaders } from 'leapgate/http';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import v8 from 'node:v8';
import vm from 'node:vm';

// A limiter of 100 in 10 buckets of 100 ms, and its clock.
function limiterAt(millis = 0, options = { limit: 100, windowMs: 1000, sampleCount: 10 }) {
  const clock = { millis };
  return [new Limiter({ ...options, now: () => clock.millis }), clock];
}

// At most 100 tokens in 10 buckets of 100 ms, of which a request holds its estimate.
const tokens = { resource: 'chat', unit: 'tokens', count: 100, sampleCount: 10, cost: { estimate: { default: 60, atMost: '100%' } }, id: 'tokens' };
const requests = { resource: 'chat', count: 3, sampleCount: 10, id: 'requests' };

function engineAt(flowRules, millis = 0) {
  const clock = { millis };
  return [new Engine({ flowRules }, { now: () => clock.millis }), clock];
}

const remaining = (engine, request) => engine.policies('chat', request).map(({ remaining }) => remaining);

const randoms = (state) => (below) => {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * below);
};

async function collected(condition) {
  v8.setFlagsFromString('--expose-gc');
  const gc = vm.runInNewContext('gc');
  for (let i = 0; i < 100 && !condition(); i++) {
    gc();
    await new Promise(setImmediate);
  }
}

test('a_hold_answers_like_a_limit_and_counts_in_full_until_it_is_settled', () => {
  const [limiter, clock] = limiterAt(5000);
  const [other] = limiterAt(5000);
  const hold = limiter.hold('a', 60);
  assert.deepEqual(hold.toJSON(), other.hold('b', 60).toJSON());
  const { success, limit, remaining, retryAfterMs, rule } = hold;
  assert.deepEqual([success, limit, remaining, retryAfterMs, rule], [true, 100, 40, 0, '1s']);
  assert.equal(hold.constructor.name, 'Hold');
  for (const millis of [5000, 6100, 3_600_000]) {
    clock.millis = millis;
    assert.equal(limiter.peek('a').remaining, 40, `at ${millis} ms`);
  }
  assert.equal(hold.settle(50), 0);
  assert.equal(limiter.peek('a').remaining, 50, 'the actual cost counts from now on');
  clock.millis += 1099;
  assert.equal(limiter.peek('a').remaining, 50);
  clock.millis += 1;
  assert.equal(limiter.peek('a').remaining, 100);
});

test('a_refused_hold_holds_nothing_and_does_nothing', () => {
  const [limiter, clock] = limiterAt();
  const hold = limiter.hold('a', 60);
  const refused = limiter.hold('a', 60);
  const { success, remaining, retryAfterMs, rule } = refused;
  assert.deepEqual([success, remaining, retryAfterMs, rule], [false, 40, 1000, '1s'], 'a hold may end at any moment');
  assert.equal(refused.settle(1000), 0);
  refused.cancel();
  assert.equal(limiter.peek('a').remaining, 40);
  clock.millis = 500;
  hold.settle(60);
  clock.millis = 700;
  assert.equal(limiter.hold('a', 60).retryAfterMs, 900, 'no hold is left: the ring says exactly when');
  assert.equal(limiter.hold('a', 101).retryAfterMs, Infinity);
});

test('more_than_was_held_is_charged_over_the_limit_and_told', () => {
  const [limiter, clock] = limiterAt();
  const hold = limiter.hold('a', 60);
  clock.millis = 50;
  assert.equal(hold.settle(250), 190);
  clock.millis = 1099;
  assert.equal(limiter.limit('a').success, false);
  clock.millis = 1100;
  assert.equal(limiter.limit('a', { cost: 100 }).success, true);
});

test('a_hold_ends_once', () => {
  const [limiter] = limiterAt();
  for (const ends of [(hold) => hold.settle(7), (hold) => hold.cancel(), (hold) => hold.settle(), (hold) => hold[Symbol.dispose]()]) {
    limiter.reset('a');
    const hold = limiter.hold('a', 60);
    ends(hold);
    const { remaining } = limiter.peek('a');
    hold.settle(90);
    hold.cancel();
    hold[Symbol.dispose]();
    assert.equal(limiter.peek('a').remaining, remaining, `${ends}`);
  }
});

test('a_hold_is_settled_at_its_estimate_where_its_cost_is_unknown', () => {
  const [limiter] = limiterAt();
  const left = (key) => limiter.peek(key).remaining;
  assert.equal(limiter.hold('a', 60).settle(), 0);
  limiter.hold('b', 60).settle(undefined);
  limiter.hold('c', 60)[Symbol.dispose]();
  limiter.hold('d', 60).cancel();
  limiter.hold('e').settle(0);
  assert.deepEqual(['a', 'b', 'c', 'd', 'e'].map(left), [40, 40, 40, 100, 100]);
});

test('a_forgotten_hold_is_settled_at_its_estimate_once_it_and_its_neighbours_are_garbage_collected', async () => {
  const [limiter, clock] = limiterAt();
  const left = (key) => limiter.peek(key).remaining;
  limiter.hold('ended', 60).settle(10);
  limiter.hold('forgotten', 60);
  clock.millis = 5000;
  // A hold that is refused because of a forgotten one helps to find it.
  await collected(() => limiter.hold('forgotten', 60).retryAfterMs !== 1000);
  assert.deepEqual([left('ended'), left('forgotten')], [100, 40]);
  clock.millis = 6099;
  assert.equal(left('forgotten'), 40, 'charged when it was collected');
  clock.millis = 6100;
  assert.equal(left('forgotten'), 100);
  const kept = limiter.hold('kept', 60);
  let i = 0;
  await collected(() => (limiter.hold(`key ${i}`, 60), ++i === 100));
  await collected(() => false);
  assert.equal(left('kept'), 40);
  clock.millis = 9000;
  assert.equal(left('kept'), 40, 'it is not forgotten');
  assert.equal(kept.settle(7), 0);
});

test('a_request_holds_of_all_limits_or_of_none', () => {
  const limits = [{ limit: 3, windowMs: 1000 }, { limit: 5, windowMs: 60_000, id: 'minute' }];
  const [limiter] = limiterAt(0, { limits });
  const left = () => limiter.peek('a').policies.map(({ remaining }) => remaining);
  const hold = limiter.hold('a', 3);
  assert.equal(limiter.hold('a', 1).rule, '1s');
  assert.deepEqual(left(), [0, 2]);
  hold.settle(1);
  assert.deepEqual(left(), [2, 4]);
});

test('a_hold_takes_a_limit_of_its_own', () => {
  const [limiter] = limiterAt();
  assert.equal(limiter.hold('a', 60, { limit: 50 }).success, false);
  assert.equal(limiter.hold('a', 200, { limit: 200 }).remaining, 0);
});

test('a_block_and_a_reset_leave_what_is_held', () => {
  const [limiter] = limiterAt();
  const hold = limiter.hold('a', 60);
  limiter.limit('a', { cost: 40 });
  limiter.reset('a');
  assert.equal(limiter.peek('a').remaining, 40);
  limiter.block('a', 1000);
  assert.equal(limiter.hold('a', 1).success, false);
  hold.cancel();
});

test('a_hold_of_a_freed_limiter_ends_without_effect', () => {
  const [limiter] = limiterAt();
  const hold = limiter.hold('a', 60);
  limiter.free();
  const [next] = limiterAt();
  next.hold('a', 60);
  assert.equal(hold.settle(10), 0);
  assert.equal(next.peek('a').remaining, 40);
  assert.throws(() => limiter.hold('a', 1), { code: 'ERR_LEAPGATE_FREED' });
});

// If no estimate is too low, what ran in an interval cost at most the limit: here a request is counted at each instant it ran in.
test('no_interval_has_more_than_the_limit_of_what_ran_in_it', () => {
  const random = randoms(7);
  const [limiter, clock] = limiterAt();
  const [open, ran] = [[], []];
  let refused = 0;
  for (let i = 0; i < 20_000; i++) {
    clock.millis += random(20) === 0 ? random(1200) : random(9);
    if (open.length > 0 && random(2) === 0) {
      const [one] = open.splice(random(open.length), 1);
      one.cost = random(one.estimate + 1);
      one.hold.settle(one.cost);
      one.last = clock.millis;
      ran.push(one);
    }
    const estimate = 1 + random(40);
    const hold = limiter.hold('key', estimate);
    if (hold.success) open.push({ hold, estimate, first: clock.millis });
    else refused++;
  }
  assert.ok(ran.length > 1000 && refused > 1000, `${ran.length} and ${refused}`);
  for (const { last: end } of ran) {
    const sum = ran.reduce((sum, one) => sum + (one.first <= end && one.last > end - 1000 ? one.cost : 0), 0);
    assert.ok(sum <= 100, `${sum} in the second up to ${end} ms`);
  }
});

test('a_wrong_hold_is_refused_with_a_sentence', () => {
  const [limiter] = limiterAt();
  const hold = limiter.hold('a', 60);
  const whole = 'is not possible; use a whole number from 0 to 4294967295';
  for (const [call, message, code] of [
    [() => limiter.hold('a', -1), `estimate: \`-1\` ${whole}`, 'ARGUMENT'],
    [() => limiter.hold('a', 1.5), `estimate: \`1.5\` ${whole}`, 'ARGUMENT'],
    [() => limiter.hold('a', '1'), `estimate: \`1\` ${whole.replace('not possible', 'a string')}`, 'ARGUMENT'],
    [() => limiter.hold('a', 1, { cost: 2 }), 'options.cost: `2` means nothing here; use `limit`', 'OPTIONS'],
    [() => hold.settle(NaN), `actual: \`NaN\` ${whole}`, 'ARGUMENT'],
    [() => hold.settle(Infinity), `actual: \`Infinity\` ${whole}`, 'ARGUMENT'],
    [() => hold.settle(-1), `actual: \`-1\` ${whole}`, 'ARGUMENT'],
    [() => hold.settle(null), `actual: \`null\` ${whole}`, 'ARGUMENT'],
  ]) {
    assert.throws(call, { message, code: `ERR_LEAPGATE_${code}` });
  }
  assert.equal(limiter.peek('a').remaining, 40, 'a wrong cost does not end a hold');
  hold.settle(10);
  assert.equal(limiter.peek('a').remaining, 90);
});

test('a_call_holds_its_estimate_and_settles_what_it_has_cost', () => {
  const [engine, clock] = engineAt([requests, tokens]);
  const first = engine.enter('chat', { cost: { tokens: 90 } });
  assert.deepEqual(
    first.policies.map(({ id, unit, remaining }) => [id, unit, remaining]),
    [
      ['requests', 'requests', 2],
      ['tokens', 'tokens', 10],
    ],
  );
  const second = engine.enter('chat');
  assert.deepEqual([second.success, second.rule, second.retryAfterMs], [false, 'tokens', 1000]);
  clock.millis = 3_600_000;
  assert.deepEqual(remaining(engine), [3, 10]);
  first.exit({ cost: { tokens: 12 } });
  assert.deepEqual(remaining(engine), [3, 88]);
  second.exit({ cost: { tokens: 12 } });
  first.exit({ cost: { tokens: 12 } });
  assert.deepEqual(remaining(engine), [3, 88], 'only an open call costs anything');
  engine.enter('chat', { cost: { requests: 2, tokens: 5 } }).exit({ cost: { tokens: 120 } });
  assert.deepEqual(remaining(engine), [1, 0], 'debt');
  assert.equal(engine.counters().find(({ rule }) => rule === 'tokens').debt, 115);
  assert.equal(engine.counters().find(({ rule }) => rule === 'requests').debt, 0);
});

test('a_call_settles_at_its_estimate_unless_it_says_what_it_has_cost', async () => {
  const left = (end) => {
    const [engine] = engineAt([tokens]);
    end(engine.enter('chat'), engine);
    return remaining(engine)[0];
  };
  assert.equal(left((entry) => entry.exit()), 40);
  assert.equal(left((entry) => entry.exit({ cost: {} })), 40);
  assert.equal(left((entry) => entry.exit({ cost: { tokens: undefined } })), 40, 'as an SDK says that it does not know');
  assert.equal(left((entry) => entry.exit({ cost: 7 })), 40, 'a number is one of requests');
  assert.equal(left((entry) => entry.exit({ cost: { images: 7 } })), 40, 'a unit that no rule counts');
  assert.equal(left((entry) => entry[Symbol.dispose]()), 40);
  assert.equal(left((entry) => entry.cancel()), 40, 'it has begun');
  assert.equal(left((entry) => entry.exit({ error: new Error('broken') })), 40);
  assert.equal(left((entry) => entry.exit({ error: new Error('broken'), cost: { tokens: 7 } })), 93);
  assert.equal(left((entry) => entry.exit({ unanswered: true, cost: { tokens: 7 } })), 93);
  assert.equal(left((entry) => entry.exit({ refund: true, cost: { tokens: 7 } })), 100, 'it does not count');
  assert.equal(left((entry) => entry.exit({ cost: { tokens: 0 } })), 100);
  const [engine, clock] = engineAt([tokens]);
  engine.enter('chat');
  await collected(() => engine.enter('chat').retryAfterMs !== 1000);
  assert.equal(engine.enter('chat').retryAfterMs, 1100, 'a forgotten call is charged by the next one');
  clock.millis = 1100;
  engine.enter('chat').cancel();
});

test('failed_logins_cost_one_and_others_nothing', () => {
  const [engine] = engineAt([{ resource: 'login', count: 2, intervalMs: 60_000, key: ['clientIp'], cost: {}, id: 'failures' }]);
  const key = '203.0.113.7';
  const login = (isRight) => {
    const entry = engine.enter('login', { key });
    entry.exit({ cost: isRight ? 0 : 1 });
    return entry.success;
  };
  for (let i = 0; i < 10; i++) assert.equal(login(true), true);
  assert.deepEqual([login(false), login(true), login(false), login(true)], [true, true, true, false]);
  assert.equal(engine.enter('login', { key: '203.0.113.8' }).success, true);
});

test('the_keys_of_a_rule_hold_each_for_itself_and_estimates_are_read_from_requests', () => {
  const cost = { estimate: { header: 'x-max-tokens', default: 20, atMost: '50%' } };
  const [engine] = engineAt([{ ...tokens, cost, key: [{ header: 'x-user' }] }]);
  const request = (user, most = null) => ({ key: { 'header:x-user': user, 'header:x-max-tokens': most } });
  const left = (user) => remaining(engine, request(user))[0];
  const [ann, bob, eve] = [request('ann', '30'), request('bob'), request('eve', '9000')].map((one) => engine.enter('chat', one));
  assert.deepEqual(['ann', 'bob', 'eve'].map(left), [70, 80, 50]);
  ann.exit({ cost: { tokens: 1 } });
  bob.exit({ cost: { tokens: 1 } });
  eve.exit({ cost: { tokens: 130 } });
  assert.deepEqual(['ann', 'bob', 'eve'].map(left), [99, 99, 0]);
});

test('a_limit_ends_at_once_and_costs_what_it_says_or_its_estimate', () => {
  const [engine] = engineAt([{ ...tokens, cost: { estimate: { default: 20, atMost: 30 } } }]);
  assert.deepEqual(engine.limit('chat').policies[0].remaining, 80);
  assert.deepEqual(engine.limit('chat', { cost: { tokens: 5 } }).remaining, 75);
  assert.deepEqual(engine.limit('chat', { cost: { tokens: 60 } }).remaining, 15, 'also beyond what a call would hold');
  assert.equal(engine.limit('chat').success, false);
});

test('a_unit_whose_cost_is_known_is_charged_when_a_request_begins', () => {
  const [engine] = engineAt([{ resource: 'chat', unit: 'bytes', count: 1000, id: 'bytes' }]);
  const entry = engine.enter('chat', { cost: { bytes: 900 } });
  assert.deepEqual(remaining(engine), [100]);
  entry.exit({ cost: { bytes: 5 } });
  assert.deepEqual(remaining(engine), [100]);
  const refused = engine.limit('chat', { cost: { bytes: 101 } });
  assert.deepEqual([refused.success, refused.rule], [false, 'bytes']);
  assert.equal(engine.limit('chat').remaining, 99, 'a cost that is not said is 1');
});

test('a_request_takes_of_all_units_or_of_none', () => {
  const [engine] = engineAt([requests, tokens]);
  const calls = [30, 30, 30].map((n) => engine.enter('chat', { cost: { tokens: n } }));
  assert.deepEqual(remaining(engine), [0, 10]);
  assert.deepEqual([engine.enter('chat').rule, engine.enter('chat', { cost: { tokens: 5 } }).rule], ['requests', 'requests']);
  assert.deepEqual(remaining(engine), [0, 10]);
  for (const call of calls) call.exit({ cost: { tokens: 30 } });
  assert.deepEqual(remaining(engine), [0, 10]);
});

test('calls_settle_under_the_rules_under_which_they_began', () => {
  const [engine] = engineAt([requests, tokens]);
  const entry = engine.enter('chat', { cost: { tokens: 90 } });
  engine.replace({ flowRules: [{ ...tokens, id: 'more', unit: 'images' }, tokens] });
  assert.deepEqual(remaining(engine), [100, 10]);
  entry.exit({ cost: { images: 5, tokens: 20 } });
  assert.deepEqual(remaining(engine), [100, 80]);
});

test('run_and_its_function_say_what_a_call_costs', async () => {
  const [engine] = engineAt([tokens]);
  let held;
  await engine.run('chat', { cost: { tokens: 90 } }, (entry) => {
    held = remaining(engine);
    entry.exit({ cost: { tokens: 12 } });
  });
  assert.deepEqual([held, remaining(engine)], [[10], [88]]);
  await assert.rejects(engine.run('chat', { cost: { tokens: 80 } }, () => Promise.reject(new Error('broken'))), { message: 'broken' });
  assert.deepEqual(remaining(engine), [8], 'its estimate');
});

test('headers_tell_what_is_left_of_each_unit', () => {
  const minute = { intervalMs: 60_000, sampleCount: 60 };
  const [engine] = engineAt([
    { ...requests, ...minute },
    { ...tokens, ...minute },
    { resource: 'chat', unit: 'bytes', count: 5000, ...minute, id: 'bytes' },
    { resource: 'chat', unit: 'a"b', count: 7, ...minute, id: 'odd' },
    { resource: 'chat', grade: 'concurrency', count: 2, id: 'in flight' },
  ]);
  const headers = (draft) => rateLimitHeaders(engine.enter('chat', { cost: { tokens: 20, bytes: 500 } }), { draft });
  assert.deepEqual(headers(11), {
    'RateLimit-Policy':
      '"requests";q=3;w=60, "tokens";q=100;qu="tokens";w=60, "bytes";q=5000;qu="content-bytes";w=60, "odd";q=7;qu="a\\"b";w=60, "in flight";q=2;qu="concurrent-requests"',
    RateLimit: '"requests";r=2;t=61, "tokens";r=80, "bytes";r=4500;t=61, "odd";r=6;t=61, "in flight";r=1',
  });
  assert.deepEqual(headers(7), { 'RateLimit-Policy': '3;w=60', RateLimit: 'limit=3, remaining=1, reset=61' });
});

test('a_wrong_cost_is_refused_with_a_sentence_and_leaves_its_call_open', () => {
  const [engine] = engineAt([tokens]);
  const entry = engine.enter('chat');
  const whole = 'is not possible; use a whole number from 0 to 9007199254740992';
  const shape = 'is not a valid cost; use a whole number of requests, or an object with one for each unit, as in `{ tokens: 900 }`';
  for (const [cost, message, name = 'RangeError'] of [
    [{ tokens: -1 }, `.tokens: \`-1\` ${whole}`],
    [{ tokens: NaN }, `.tokens: \`NaN\` ${whole}`],
    [{ tokens: Infinity }, `.tokens: \`Infinity\` ${whole}`],
    [{ tokens: 1.5 }, `.tokens: \`1.5\` ${whole}`],
    [{ images: -1 }, `.images: \`-1\` ${whole}`],
    [{ tokens: '5' }, `.tokens: \`5\` ${whole.replace('not possible', 'a string')}`, 'TypeError'],
    [{ tokens: null }, `.tokens: \`null\` ${whole}`, 'TypeError'],
    [{ requests: 2 ** 32 }, '.requests: `4294967296` is not possible; use a whole number from 0 to 4294967295'],
    [-1, ': `-1` is not possible; use a whole number from 0 to 4294967295'],
    ['900 tokens', `: \`900 tokens\` ${shape}`, 'TypeError'],
    [[900], `: \`[…]\` ${shape}`, 'TypeError'],
    [null, `: \`null\` ${shape}`, 'TypeError'],
    [{ 'ünits': 1 }, ': `ünits` is not a valid unit; use 1 to 256 characters of printable ASCII', 'TypeError'],
    [{ '': 1 }, ': `` is not a valid unit; use 1 to 256 characters of printable ASCII', 'TypeError'],
  ]) {
    const code = 'ERR_LEAPGATE_OPTIONS';
    assert.throws(() => entry.exit({ cost }), { name, message: `outcome.cost${message}`, code });
    assert.throws(() => engine.enter('chat', { cost }), { name, message: `request.cost${message}`, code });
    assert.throws(() => engine.limit('any', { cost }), { name, message: `request.cost${message}`, code });
  }
  entry.exit({ cost: { tokens: 2 ** 53 } });
  assert.deepEqual(remaining(engine), [0]);
});

test('a_wrong_rule_with_a_cost_is_refused_with_a_sentence', () => {
  const wrong = (rule, message) =>
    assert.throws(() => new Engine({ flowRules: [{ resource: 'chat', count: 1, ...rule }] }), { code: 'ERR_LEAPGATE_RULES', message });
  wrong({ unit: '' }, 'flowRules[0].unit: `` is not a valid unit; use 1 to 256 characters of printable ASCII');
  wrong({ cost: { estimate: { default: 5, atMost: '0%' } } }, 'flowRules[0].cost.estimate.atMost: `0%` is not a share of the count; use one such as `50%`, above 0 and at most `100%`');
});
