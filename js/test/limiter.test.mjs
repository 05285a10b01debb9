// Limiters.
import { Limiter } from 'leapgate';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';

// A limiter and its clock.
function at(options, millis = 0) {
  const clock = { millis };
  return [new Limiter({ ...options, now: () => clock.millis }), clock];
}

// How many of `tries` requests pass.
function passes(limiter, key, tries, options) {
  let passed = 0;
  for (let i = 0; i < tries; i++) passed += limiter.limit(key, options).success;
  return passed;
}

// Pseudo-random numbers, the same each time.
function randoms(state) {
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

test('a_decision_has_all_its_fields', () => {
  const [limiter, clock] = at({ limit: 3, windowMs: 1000 }, 10_000);
  assert.deepEqual(limiter.limit('a', { cost: 2 }).toJSON(), {
    success: true,
    limit: 3,
    remaining: 1,
    reset: 11_050,
    retryAfterMs: 0,
    rule: '1s',
    policies: [{ id: '1s', limit: 3, remaining: 1, windowMs: 1000, resetMs: 1050 }],
  });
  clock.millis = 10_500;
  assert.deepEqual(limiter.limit('a', { cost: 2 }).toJSON(), {
    success: false,
    limit: 3,
    remaining: 1,
    reset: 11_050,
    retryAfterMs: 550,
    rule: '1s',
    policies: [{ id: '1s', limit: 3, remaining: 1, windowMs: 1000, resetMs: 550 }],
  });
  assert.equal(limiter.limit('b').remaining, 2);
});

test('a_result_has_four_fields_of_its_own_and_three_getters_and_is_kept', () => {
  const [limiter, clock] = at({ limit: 3, windowMs: 1000 }, 10_000);
  const passed = limiter.limit('a');
  assert.equal(passed.constructor.name, 'LimitResult');
  const all = {
    success: true,
    limit: 3,
    remaining: 2,
    reset: 11_050,
    retryAfterMs: 0,
    rule: '1s',
    policies: [{ id: '1s', limit: 3, remaining: 2, windowMs: 1000, resetMs: 1050 }],
  };
  clock.millis = 10_500;
  const refused = limiter.limit('a', { cost: 3 });
  limiter.block('a', 3000);
  const blocked = limiter.limit('a');
  assert.deepEqual({ ...passed }, { success: true, limit: 3, remaining: 2, retryAfterMs: 0 }, 'spreading leaves the getters out');
  assert.deepEqual(JSON.parse(JSON.stringify(passed)), all, 'what came later changes nothing');
  const line = 'policies: [ { id: \'1s\', limit: 3, remaining: 2, windowMs: 1000, resetMs: 1050 } ]';
  assert.equal(inspect(passed, { breakLength: Infinity }), `LimitResult { success: true, limit: 3, remaining: 2, reset: 11050, retryAfterMs: 0, rule: '1s', ${line} }`);
  assert.deepEqual(refused.toJSON(), { ...all, success: false, retryAfterMs: 550, policies: [{ ...all.policies[0], resetMs: 550 }] });
  assert.deepEqual(blocked.toJSON(), {
    ...{ ...all, success: false, remaining: 0, reset: 13_500, retryAfterMs: 3000, rule: null },
    policies: [{ ...all.policies[0], resetMs: 550 }],
  });
});

test('a_window_without_a_good_divisor_passes_nine_tenths_of_its_limit', () => {
  for (const window of ['strict', 'sentinel', 'weighted']) {
    const [limiter, clock] = at({ limit: 1000, windowMs: 60_013, window });
    let passed = 0;
    const admitted = [];
    // Twice the limit, evenly, for 20 windows.
    for (; clock.millis < 20 * 60_013; clock.millis += 30) {
      const { success, policies } = limiter.limit('key');
      assert.deepEqual([policies[0].windowMs, policies[0].id], [60_013, '60013ms']);
      if (success) admitted[passed++] = clock.millis;
    }
    assert.ok(passed >= 0.9 * 20 * 1000, `${window}: ${passed}`);
    if (window !== 'strict') continue;
    for (let i = 1000; i < passed; i++) assert.ok(admitted[i] - admitted[i - 1000] >= 60_013, `at ${admitted[i]}`);
  }
});

test('never_admits_more_than_the_limit_in_any_window', () => {
  const random = randoms(7);
  for (const limits of [
    [{ limit: 10, windowMs: 1000 }],
    [{ limit: 7, windowMs: 300, sampleCount: 3 }],
    [
      { limit: 5, windowMs: 100 },
      { limit: 20, windowMs: 1000 },
    ],
  ]) {
    const [limiter, clock] = at({ limits });
    const admitted = [];
    let refused = 0;
    for (let i = 0; i < 20_000; i++) {
      clock.millis += random(20) === 0 ? random(900) : random(9);
      const cost = 1 + random(3);
      if (limiter.limit('key', { cost }).success) admitted.push([clock.millis, cost]);
      else refused++;
    }
    assert.ok(admitted.length > 1000 && refused > 1000);
    for (const { limit, windowMs } of limits) {
      for (let first = 0; first < admitted.length; first++) {
        let sum = 0;
        for (let i = first; i < admitted.length && admitted[i][0] - admitted[first][0] < windowMs; i++) sum += admitted[i][1];
        assert.ok(sum <= limit, `${sum} of ${limit} in ${windowMs} ms from ${admitted[first][0]} ms on`);
      }
    }
  }
});

test('the_time_to_try_again_is_exact', () => {
  const random = randoms(3);
  for (const window of ['strict', 'sentinel', 'weighted']) {
    const [limiter, clock] = at({ limit: 10, windowMs: 1000, window });
    for (let i = 0; i < 2000; i++) {
      clock.millis += random(150);
      const cost = 1 + random(5);
      const { success, retryAfterMs, reset } = limiter.limit('key', { cost });
      if (success) continue;
      assert.equal(reset, clock.millis + retryAfterMs);
      clock.millis += retryAfterMs - 1;
      assert.equal(limiter.peek('key', { cost }).success, false, `${window}, ${clock.millis} ms`);
      clock.millis += 1;
      assert.equal(limiter.peek('key', { cost }).success, true, `${window}, ${clock.millis} ms`);
    }
  }
});

test('a_fraction_of_a_millisecond_is_waited_out', () => {
  const [limiter, clock] = at({ limit: 1, windowMs: 1000, sampleCount: 10 }, 100.25);
  limiter.limit('a');
  assert.equal(limiter.limit('a').retryAfterMs, 1100);
  clock.millis = 1199.999;
  assert.equal(limiter.peek('a').success, false);
  clock.millis = 1200;
  assert.equal(limiter.peek('a').success, true);
});

test('whole_milliseconds_of_the_epoch_are_exact', () => {
  const epoch = 1_796_000_000_000;
  for (let i = 0; i < 2000; i++) {
    const [limiter, clock] = at({ limit: 1, windowMs: 10, sampleCount: 10 }, epoch + i);
    limiter.limit('a');
    clock.millis += 10;
    assert.equal(limiter.peek('a').success, false);
    clock.millis += 1;
    assert.equal(limiter.peek('a').success, true);
    limiter.free();
  }
});

test('a_request_that_can_never_pass_has_no_time_to_try_again', () => {
  const [limiter] = at({ limit: 3, windowMs: 1000 });
  const { success, retryAfterMs, reset } = limiter.limit('a', { cost: 4 });
  assert.deepEqual([success, retryAfterMs, reset], [false, Infinity, Infinity]);
  assert.equal(passes(limiter, 'a', 5), 3);
});

test('several_limits_charge_all_or_none', () => {
  const [limiter, clock] = at({
    limits: [
      { limit: 2, windowMs: 1000, id: 'burst' },
      { limit: 3, windowMs: 60_000 },
    ],
  });
  assert.equal(passes(limiter, 'a', 5), 2);
  const refused = limiter.limit('a');
  assert.deepEqual([refused.rule, refused.limit, refused.remaining, refused.retryAfterMs], ['burst', 2, 0, 1050]);
  assert.deepEqual(refused.policies.map(({ id, remaining }) => [id, remaining]), [['burst', 0], ['60s', 1]]);
  clock.millis = 1050;
  assert.equal(passes(limiter, 'a', 5), 1);
  const both = limiter.limit('a', { cost: 2 });
  assert.deepEqual([both.rule, both.remaining, both.retryAfterMs], ['burst', 0, 61_950]);
  assert.equal(limiter.peek('a').policies[0].remaining, 1);
});

test('a_peek_charges_nothing_and_returns_what_limit_would', () => {
  const [limiter] = at({ limit: 3, windowMs: 1000 });
  for (let i = 0; i < 5; i++) {
    assert.equal(limiter.peek('a').remaining, 3);
    assert.equal(limiter.peek('a', { cost: 4 }).success, false);
  }
  assert.equal(passes(limiter, 'a', 5), 3);
  assert.deepEqual(limiter.peek('a').toJSON(), limiter.limit('a').toJSON());
});

test('a_call_may_bring_a_limit_of_its_own', () => {
  const [limiter] = at({ limit: 3, windowMs: 1000 });
  assert.equal(passes(limiter, 'a', 10, { limit: 5 }), 5);
  assert.equal(limiter.limit('a', { limit: 6 }).limit, 6);
  assert.equal(limiter.limit('a').success, false);
  assert.equal(passes(limiter, 'b', 10), 3);
  assert.equal(limiter.limit('c', { limit: 0 }).retryAfterMs, Infinity);
});

test('a_refund_gives_back_the_charge_of_its_instant', () => {
  const [limiter, clock] = at({ limit: 3, windowMs: 1000, sampleCount: 10 });
  limiter.limit('a');
  clock.millis = 900;
  assert.equal(passes(limiter, 'a', 3), 2);
  limiter.refund('a', 1, { at: 0 });
  assert.equal(passes(limiter, 'a', 3), 1, 'there is room for one');
  clock.millis = 1100;
  assert.equal(passes(limiter, 'a', 3), 0, 'what was charged at 900 ms still counts, all of it');
  limiter.refund('a', 1, { at: 0 });
  assert.equal(passes(limiter, 'a', 3), 0, 'a charge that has left is not refunded again');
  limiter.refund('a', 2);
  assert.equal(passes(limiter, 'a', 3), 2);
  limiter.refund('a', 100);
  assert.equal(limiter.peek('a').remaining, 3, 'no more than there was');
  limiter.refund('unknown');
});

test('a_reset_forgets_one_key_only', () => {
  const [limiter] = at({ limit: 1, windowMs: 1000 });
  limiter.limit('a');
  limiter.limit('b');
  limiter.block('c', 1000);
  limiter.reset('a');
  limiter.reset('c');
  assert.deepEqual(['a', 'b', 'c'].map((key) => limiter.limit(key).success), [true, false, true]);
});

test('a_blocked_key_is_refused_until_the_end_of_its_block', () => {
  const [limiter, clock] = at({ limit: 5, windowMs: 1000 });
  limiter.limit('a');
  limiter.block('a', 5000);
  clock.millis = 1000;
  const { success, rule, limit, remaining, retryAfterMs, reset, policies } = limiter.limit('a');
  assert.deepEqual([success, rule, limit, remaining, retryAfterMs, reset], [false, null, 5, 0, 4000, 5000]);
  assert.equal(policies[0].remaining, 4);
  assert.equal(limiter.peek('a').success, false);
  assert.equal(limiter.limit('b').success, true);
  clock.millis = 4999;
  assert.equal(limiter.limit('a').retryAfterMs, 1);
  clock.millis = 5000;
  assert.equal(limiter.limit('a').success, true);
  limiter.block('a', 5000);
  limiter.block('a', 0);
  assert.equal(limiter.limit('a').success, true);
});

test('as_many_keys_can_be_blocked_as_have_a_window_of_their_own', () => {
  const [limiter, clock] = at({ limit: 5, windowMs: 1000, maxKeys: 100 });
  for (let i = 0; i < 100; i++) limiter.block(i, 1000 + i);
  assert.throws(() => limiter.block('one more', 1000), {
    code: 'ERR_LEAPGATE_FULL',
    message: 'limiter: as many keys are blocked as `maxKeys` allows; raise it, or block for less long',
  });
  limiter.block(7, 2000);
  clock.millis = 1000;
  limiter.block('one more', 1000);
  assert.equal(limiter.limit('one more').success, false);
});

test('a_clock_that_steps_back_is_no_amnesty', () => {
  const [limiter, clock] = at({ limit: 2, windowMs: 1000 }, 1_000_000);
  assert.equal(passes(limiter, 'a', 5), 2);
  limiter.block('b', 500);
  clock.millis = 10;
  assert.equal(passes(limiter, 'a', 5), 0);
  assert.equal(limiter.limit('b').retryAfterMs, 500);
  clock.millis = 1100;
  assert.equal(passes(limiter, 'a', 5), 2);
});

test('keys_are_kept_apart_and_found_again', () => {
  const [limiter] = at({ limit: 3, windowMs: 1000 });
  const long = (end) => 'x'.repeat(30_000) + end;
  const keys = [
    '', 'a', 'š', 'é', '🙂', 'b'.repeat(23), 'b'.repeat(24), 'b'.repeat(64), 'b'.repeat(65), 'é'.repeat(400), long('a'), long('b'), -1, 1.5,
    2n ** 70n, ['a', 'bc'], ['ab', 'c'], ['a', 'b', 'c'], ['', 'a'], ['a', ''], ['a,b', 'c'],
  ];
  for (let round = 2; round >= 0; round--) {
    for (const key of keys) assert.equal(limiter.limit(key).remaining, round, String(key).slice(0, 20));
  }
});

test('a_number_is_the_same_key_as_its_text', () => {
  const [limiter] = at({ limit: 6, windowMs: 1000 });
  const left = [7, '7', 7n, [7], ['7'], [7n]].map((key) => limiter.limit(key).remaining);
  assert.deepEqual(left, [5, 4, 3, 2, 1, 0]);
});

// More keys than can have a number, in an order in which keys lose their numbers to others.
test('many_keys_each_have_their_own_window', () => {
  const [limiter] = at({ limit: 4, windowMs: 1000 });
  const random = randoms(5);
  const keys = 9000;
  const counts = new Array(keys).fill(0);
  for (let i = 0; i < 200_000; i++) {
    const key = random(2) ? random(50) : random(keys);
    assert.equal(limiter.limit(`client-${key}`).success, counts[key]++ < 4);
  }
});

test('keys_beyond_the_bound_get_no_amnesty', () => {
  const [limiter] = at({ limit: 5, windowMs: 1000, maxKeys: 10 });
  assert.equal(passes(limiter, 'first', 10), 5);
  for (let i = 0; i < 5000; i++) limiter.limit(`flood-${i}`);
  assert.equal(passes(limiter, 'first', 10), 0);
  assert.ok(passes(limiter, 'late', 10) <= 5);
});

test('of_100_new_clients_99_pass_after_a_flood_of_as_many_keys_as_the_limiter_has', () => {
  const maxKeys = 20_000;
  for (const spread of [0, 59_999]) {
    const [limiter, clock] = at({ limit: 5, windowMs: 60_000, maxKeys }, 600_000 + spread);
    for (let i = 0; i < maxKeys; i++) assert.ok(limiter.limit(`known ${i}`).success);
    for (let i = 0; i < maxKeys; i++) {
      clock.millis = 600_000 + Math.floor((i * spread) / maxKeys);
      limiter.limit(`flood ${i}`);
    }
    clock.millis = 600_000 + spread;
    let passed = 0;
    for (let i = 0; i < 1000; i++) passed += limiter.limit(`new ${i}`).success;
    assert.ok(passed >= 990, `${passed} of 1000 in ${spread} ms`);
  }
});

test('stats_show_how_full_a_limiter_is_and_a_warning_says_once_that_keys_share', async () => {
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  await settled(); // warnings of other tests
  const warnings = [];
  const hear = (warning) => warnings.push(warning);
  process.on('warning', hear);
  const [limiter] = at({ limits: [{ limit: 5, windowMs: 1000 }, { limit: 9, windowMs: 60_000, id: 'login' }], maxKeys: 100 });
  assert.deepEqual(limiter.stats(), { keys: 0, shared: 0, shadowBlocked: 0 });
  for (let i = 0; i < 100; i++) limiter.limit(`known ${i}`);
  assert.deepEqual(limiter.stats(), { keys: 100, shared: 0, shadowBlocked: 0 });
  for (let i = 0; i < 300; i++) limiter.limit(i % 2 ? `further ${i}` : ['further', i]);
  assert.deepEqual(limiter.stats(), { keys: 100, shared: 300, shadowBlocked: 0 });
  await settled();
  process.off('warning', hear);
  assert.deepEqual(
    warnings.map(({ name, code, message }) => [name, code, message]),
    [
      [
        'LeapgateWarning',
        'LEAPGATE_MAX_KEYS',
        'leapgate: limiter `1s`, `login`: more keys count than it keeps apart; some share, which is stricter for them: raise `maxKeys`',
      ],
    ],
  );
});

test('growing_memory_changes_no_result', () => {
  const [limiter] = at({ limit: 2, windowMs: 1000, maxKeys: 300_000 });
  for (let i = 0; i < 150_000; i++) assert.equal(limiter.limit(`key ${i}`).remaining, 1);
  for (let i = 0; i < 150_000; i++) assert.equal(limiter.limit(`key ${i}`).remaining, 0);
  assert.equal(limiter.limit('key 0').success, false);
});

test('limiters_do_not_share_keys', () => {
  const [[one], [other]] = [at({ limit: 1, windowMs: 1000 }), at({ limit: 2, windowMs: 1000 })];
  for (let i = 0; i < 10; i++) one.limit('a');
  assert.equal(passes(other, 'a', 5), 2);
  one.free();
  const [third] = at({ limit: 3, windowMs: 1000 });
  assert.equal(passes(third, 'a', 5), 3);
});

test('a_freed_limiter_cannot_be_used', () => {
  const [limiter] = at({ limit: 1, windowMs: 1000 });
  limiter[Symbol.dispose]();
  limiter.free();
  for (const use of ['limit', 'peek', 'reset', 'refund', 'block']) {
    assert.throws(() => limiter[use]('a', 1), {
      code: 'ERR_LEAPGATE_FREED',
      message: 'limiter: it has been freed; make another one, or free it later',
    });
  }
});

test('without_a_clock_reset_is_in_epoch_milliseconds', () => {
  const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
  limiter.limit('a');
  const { success, reset, retryAfterMs } = limiter.limit('a');
  assert.equal(success, false);
  assert.ok(Math.abs(reset - Date.now() - retryAfterMs) < 1000);
  assert.ok(retryAfterMs > 59_000 && retryAfterMs <= 63_000);
});

test('a_constructor_reads_neither_clock_nor_randomness', (t) => {
  const forbidden = () => assert.fail('it has been read');
  t.mock.method(Date, 'now', forbidden);
  t.mock.method(performance, 'now', forbidden);
  t.mock.method(crypto, 'getRandomValues', forbidden);
  t.mock.method(Math, 'random', forbidden);
  const limiter = new Limiter({ limit: 1, windowMs: 1000 });
  t.mock.restoreAll();
  assert.equal(limiter.limit('a').success, true);
});

test('a_clock_that_is_replaced_later_is_followed', (t) => {
  const limiter = new Limiter({ limit: 1, windowMs: 1000 });
  let millis = 5000;
  t.mock.method(performance, 'now', () => millis);
  assert.equal(passes(limiter, 'a', 3), 1);
  millis = 6050;
  assert.equal(passes(limiter, 'a', 3), 1);
});

test('a_wrong_option_is_refused_with_a_sentence', () => {
  const good = { limit: 1, windowMs: 1000 };
  const rows = [
    [undefined, 'options: `undefined` is not an object; use one, as in `{ limit: 100, windowMs: 60_000 }`'],
    [100, 'options: `100` is not an object; use one, as in `{ limit: 100, windowMs: 60_000 }`'],
    [{}, 'options: `limit` is missing; add it'],
    [{ limit: 1 }, 'options: `windowMs` is missing; add it'],
    [{ ...good, limit: -1 }, 'options.limit: `-1` is not a valid count; use a number from 0 to 9007199254740992'],
    [{ ...good, limit: NaN }, 'options.limit: `NaN` is not a valid count; use a number from 0 to 9007199254740992'],
    [{ ...good, limit: '5' }, 'options.limit: `5` is a string; use a number'],
    [{ ...good, windowMs: 0.5 }, 'options.windowMs: `0.5` is not possible; use a whole number from 1 to 315360000000'],
    [{ ...good, sampleCount: 7 }, 'options.sampleCount: `7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100'],
    [{ ...good, window: 'fast' }, 'options.window: `fast` is not a valid value; use one of `strict`, `sentinel`, `weighted`'],
    [{ ...good, id: 'é' }, 'options.id: `é` is not a valid id; use 1 to 256 characters of printable ASCII'],
    [{ ...good, maxKeys: 0 }, 'options.maxKeys: `0` is not possible; use a whole number from 1 to 16777216'],
    [{ ...good, maxKey: 5 }, 'options.maxKey: `5` means nothing here; use one of `limit`, `windowMs`, `window`, `sampleCount`, `id`, `limits`, `maxKeys`, `mode`, `now`, `clock`'],
    [{ limits: [{ ...good, now: 5 }] }, 'options.limits[0].now: `5` means nothing here; use one of `limit`, `windowMs`, `window`, `sampleCount`, `id`'],
    [{ ...good, limits: [good] }, 'options.limit: `1` stands beside `limits`; put it into one of them'],
    [{ limits: [] }, 'options.limits: `0` limits are not possible; use 1 to 8'],
    [{ limits: [good, good] }, 'options.limits[1].id: `1s` is the id of another limit; use one of its own'],
    [{ limits: [good, { limit: 1 }] }, 'options.limits[1]: `windowMs` is missing; add it'],
    [{ ...good, limit: 5n }, 'options.limit: `5` is a bigint; use a number'],
    [{ ...good, now: 5 }, 'options.now: `5` is not a function; use one that returns milliseconds, or leave it out'],
  ];
  for (const [options, message] of rows) {
    assert.throws(() => new Limiter(options), (error) => {
      assert.equal(error.message, message);
      assert.equal(error.code, 'ERR_LEAPGATE_OPTIONS');
      return error instanceof Error;
    });
  }
});

test('the_error_about_an_option_name_of_another_package_has_ours', () => {
  const [limiter] = at({ limit: 10, windowMs: 1000 });
  const good = { limit: 1, windowMs: 1000 };
  for (const [use, message] of [
    [() => limiter.limit('a', { rate: 5 }), 'options.rate: `5` means nothing here; use `cost`'],
    [() => limiter.peek('a', { points: 5 }), 'options.points: `5` means nothing here; use `cost`'],
    [() => limiter.limit('a', { max: 5 }), 'options.max: `5` means nothing here; use `limit`'],
    [() => limiter.limit('a', { costs: 5 }), 'options.costs: `5` means nothing here; use one of `cost`, `limit`'],
    [() => limiter.refund('a', 1, { time: 5 }), 'options.time: `5` means nothing here; use `at`'],
    [() => new Limiter({ max: 5, windowMs: 1000 }), 'options.max: `5` means nothing here; use `limit`'],
    [() => new Limiter({ points: 5, duration: 1 }), 'options.points: `5` means nothing here; use `limit`'],
    [() => new Limiter({ rate: 5, ...good }), 'options.rate: `5` means nothing here; use `limit`'],
    [() => new Limiter({ limit: 5, duration: 60 }), 'options.duration: `60` means nothing here; use `windowMs`, in milliseconds'],
    [() => new Limiter({ limits: [good, { limit: 5, timeWindow: 60 }] }), 'options.limits[1].timeWindow: `60` means nothing here; use `windowMs`, in milliseconds'],
  ]) {
    assert.throws(use, { name: 'TypeError', code: 'ERR_LEAPGATE_OPTIONS', message });
  }
  assert.equal(limiter.peek('a').remaining, 10, 'nothing was charged');
});

test('an_undefined_or_inherited_option_is_ignored', () => {
  const [limiter] = at({ limit: 10, windowMs: 1000, max: undefined });
  Object.prototype.rate = 5;
  try {
    assert.equal(limiter.limit('a', { cost: 2, points: undefined }).remaining, 8);
  } finally {
    delete Object.prototype.rate;
  }
});

test('a_wrong_argument_is_refused_before_it_counts', () => {
  const [limiter] = at({ limit: 10, windowMs: 1000 });
  const cost = 'options.cost: `%` is not possible; use a whole number from 0 to 4294967295';
  const key = 'key: `%` is not a valid key; use a string, a number, a bigint, or an array of these';
  const rows = [
    [() => limiter.limit(), key.replace('%', 'undefined'), 'KEY'],
    [() => limiter.limit(null), key.replace('%', 'null'), 'KEY'],
    [() => limiter.limit({}), key.replace('%', '{…}'), 'KEY'],
    [() => limiter.limit([]), key.replace('%', '[…]'), 'KEY'],
    [() => limiter.limit(NaN), key.replace('%', 'NaN'), 'KEY'],
    [() => limiter.limit(true), key.replace('%', 'true'), 'KEY'],
    [() => limiter.limit([undefined]), key.replace('%', 'undefined'), 'KEY'],
    [() => limiter.limit(['a', undefined]), 'key[1]: `undefined` is not a valid part of a key; use a string, a number or a bigint', 'KEY'],
    [() => limiter.limit('x'.repeat(65537)), `key: \`${'x'.repeat(64)}…\` has 65537 characters; use at most 65536, or a hash of it`, 'KEY'],
    [() => limiter.limit('a', 2), 'options: `2` is not an object; use one, as in `{ cost: 2 }`, or leave it out', 'OPTIONS'],
    [() => limiter.limit('a', { cost: 1.5 }), cost.replace('%', '1.5'), 'OPTIONS'],
    [() => limiter.limit('a', { cost: -1 }), cost.replace('%', '-1'), 'OPTIONS'],
    [() => limiter.limit('a', { cost: '1' }), cost.replace('%` is not possible', '1` is a string'), 'OPTIONS'],
    [() => limiter.limit('a', { limit: NaN }), 'options.limit: `NaN` is not possible; use a number from 0 to 9007199254740992', 'OPTIONS'],
    [() => limiter.refund('a', 0.5), 'cost: `0.5` is not possible; use a whole number from 0 to 4294967295', 'ARGUMENT'],
    [() => limiter.refund('a', 1, { at: -1 }), /^options\.at: `-1` is not possible/, 'OPTIONS'],
    [() => limiter.block('a'), 'ms: `undefined` is not possible; use a number from 0 to 9007199254740991', 'ARGUMENT'],
    [() => limiter.block('a', NaN), 'ms: `NaN` is not possible; use a number from 0 to 9007199254740991', 'ARGUMENT'],
  ];
  for (const [use, message, code] of rows) assert.throws(use, { message, code: `ERR_LEAPGATE_${code}` });
  assert.equal(limiter.limit('a').remaining, 9);
  const [two] = at({ limits: [{ limit: 1, windowMs: 1000 }, { limit: 1, windowMs: 2000 }] });
  assert.throws(() => two.limit('a', { limit: 5 }), {
    message: 'options.limit: `5` could be that of any of `limits`; leave it out',
    code: 'ERR_LEAPGATE_OPTIONS',
  });
  const broken = new Limiter({ limit: 1, windowMs: 1000, now: () => undefined });
  assert.throws(() => broken.limit('a'), {
    message: 'options.now(): `undefined` is not a valid time; return milliseconds, a number from 0 to 10000000000000',
    code: 'ERR_LEAPGATE_CLOCK',
  });
});

test('a_method_without_its_limiter_is_refused_with_a_sentence', () => {
  const limiter = new Limiter({ limit: 1, windowMs: 1000 });
  const { limit, peek } = limiter;
  const { settle } = limiter.hold('b');
  const proxy = new Proxy(limiter, {});
  for (const [name, call] of [
    ['limit', () => limit('a')],
    ['peek', () => peek.call({}, 'a')],
    ['stats', () => proxy.stats()],
    ['settle', () => settle()],
  ]) {
    const message = `${name}: it was called without its object; call it as a method, or bind it`;
    assert.throws(call, { name: 'TypeError', code: 'ERR_LEAPGATE_ARGUMENT', message });
  }
  assert.equal(limit.call(limiter, 'a').success, true);
  assert.throws(() => limiter.limit(null), { code: 'ERR_LEAPGATE_KEY' });
});

test('types_of_numbers_are_told', () => {
  const limiter = new Limiter({ limit: 1, windowMs: 1000 });
  for (const [call, message] of [
    [() => limiter.limit('a', { cost: '1' }), 'options.cost: `1` is a string; use a whole number from 0 to 4294967295'],
    [() => limiter.limit('a', { cost: 5n }), 'options.cost: `5` is a bigint; use a whole number from 0 to 4294967295'],
    [() => limiter.limit('a', { limit: 5n }), 'options.limit: `5` is a bigint; use a number from 0 to 9007199254740992'],
    [() => new Limiter({ limit: 5n, windowMs: 1000 }), 'options.limit: `5` is a bigint; use a number'],
  ]) {
    assert.throws(call, { name: 'TypeError', code: 'ERR_LEAPGATE_OPTIONS', message });
  }
  for (const now of [Infinity, 1e18]) {
    const message = `options.now(): \`${now}\` is not a valid time; return milliseconds, a number from 0 to 10000000000000`;
    assert.throws(() => new Limiter({ limit: 1, windowMs: 1000, now: () => now }).limit('a'), { code: 'ERR_LEAPGATE_CLOCK', message });
  }
});
