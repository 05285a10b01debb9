// Hot keys: what passes without a call of the module is decided as with one.
import { Limiter } from 'leapgate';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';

// SEQUENCES=1000000 tries a million.
const SEQUENCES = Number(process.env.SEQUENCES ?? 4000);

// Pseudo-random numbers, the same each time.
function randoms(state) {
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const pick = (random, values) => values[random(values.length)];

// A limiter, and one that decides each request in the module: options of a call, even without any in it, lead there.
function pair(options) {
  const clock = { millis: 0 };
  const make = () => new Limiter({ ...options, now: () => clock.millis });
  const [hot, plain] = [make(), make()];
  return { clock, hot, plain };
}

function moved(random, millis, windowMs) {
  switch (random(24)) {
    case 0:
      return millis + random(3 * windowMs);
    case 1:
      return millis + 10 * windowMs + random(1000);
    case 2:
      return Math.max(0, millis - random(20));
    case 3:
      return random(4) ? millis : Math.max(0, millis - random(3 * windowMs));
    case 4:
      return millis + random(1_000_000) / 1_000_000;
    case 5:
    case 6:
    case 7:
      return millis + random(Math.max(2, windowMs / 10));
    default:
      return millis;
  }
}

// A call with the same outcome for both.
function call(random, key, at) {
  switch (random(40)) {
    case 0:
      return (limiter) => limiter.peek(key).toJSON();
    case 1: {
      const cost = random(4);
      return (limiter) => limiter.limit(key, { cost }).toJSON();
    }
    case 2: {
      const limit = random(12);
      return (limiter) => limiter.limit(key, { limit }).toJSON();
    }
    case 3: {
      const [cost, options] = [random(4), random(2) ? { at: Math.max(0, at - random(300)) } : {}];
      return (limiter) => limiter.refund(key, cost, options);
    }
    case 4:
      return random(3) ? (limiter) => limiter.reset(key) : (limiter) => limiter.stats();
    case 5: {
      const ms = random(200);
      return (limiter) => {
        try {
          limiter.block(key, ms);
        } catch (error) {
          return error.code;
        }
      };
    }
  }
}

test('requests_of_hot_keys_are_decided_as_in_the_module', async () => {
  const random = randoms(11);
  let taken = 0;
  for (let sequence = 0; sequence < SEQUENCES; sequence++) {
    // Finalizers run between turns.
    if (sequence % 1000 === 0) await new Promise(setImmediate);
    const windowMs = pick(random, [10, 60, 100, 1000, 1000, 60_000]);
    const limit = pick(random, [0, 1, 2.5, 5, 20, 300, 300, 1e6]);
    const window = pick(random, ['strict', 'strict', 'sentinel', 'sentinel', 'weighted']);
    const sampleCount = pick(random, [1, 2, 5, 10, undefined]);
    const { clock, hot, plain } = pair({ limit, windowMs, window, sampleCount, maxKeys: pick(random, [1, 3, 20, 100_000]) });
    clock.millis = pick(random, [0, 12_345, 1_796_000_000_000]) + random(100_000) / pick(random, [1, 1000, 1_000_000]);
    // Keys get numbers when they come again, and all lose them when 4096 have one.
    const keys = Array.from({ length: 1 + random(8) }, () => `key ${random(6000)}`);
    const holds = [];
    for (let i = 30 + random(60); i > 0; i--) {
      clock.millis = moved(random, clock.millis, windowMs);
      const key = random(12) ? keys[0] : random(3) ? pick(random, keys) : `key ${random(6000)}`;
      const agree = (one, other) => {
        if (!isDeepStrictEqual(one, other)) assert.deepEqual(one, other, `sequence ${sequence}, ${i} calls before its end, at ${clock.millis}`);
      };
      if (random(60) === 0) {
        const estimate = random(3);
        const [one, other] = [hot.hold(key, estimate), plain.hold(key, estimate)];
        agree(one.toJSON(), other.toJSON());
        holds.push([one, other]);
      } else if (holds.length > 0 && random(12) === 0) {
        const [[one, other]] = holds.splice(random(holds.length), 1);
        const actual = pick(random, [0, 1, 5, undefined]);
        agree(one.settle(actual), other.settle(actual));
      }
      const same = call(random, key, clock.millis);
      if (same !== undefined) {
        agree(same(hot), same(plain));
        continue;
      }
      const [one, other] = [hot.limit(key), plain.limit(key, {})];
      if (one.success !== other.success || one.remaining !== other.remaining || one.retryAfterMs !== other.retryAfterMs || i % 4 === 0) {
        agree(one.toJSON(), other.toJSON());
      }
      taken += one.success;
    }
    assert.deepEqual(hot.stats(), plain.stats());
    hot.free();
    plain.free();
  }
  assert.ok(taken > 20 * SEQUENCES, `${taken} passed`);
});

test('lines_of_more_keys_than_there_may_be_are_charged_before_they_are_dropped', () => {
  const { hot } = pair({ limit: 10, windowMs: 60_000 });
  for (let round = 0; round < 5; round++) {
    for (let i = 0; i < 5000; i++) for (let j = 0; j < 2; j++) assert.equal(hot.limit(`client ${i}`).remaining, 9 - 2 * round - j);
  }
  for (let i = 0; i < 5000; i++) assert.equal(hot.limit(`client ${i}`).success, false);
});

test('a_hot_key_is_the_same_key_as_a_number_and_in_an_array', () => {
  const { hot } = pair({ limit: 9, windowMs: 60_000 });
  const left = ['7', '7', '7', 7, '7', ['7'], '7', [[7n]], '7'].map((key) => hot.limit(key.flat?.() ?? key).remaining);
  assert.deepEqual(left, [8, 7, 6, 5, 4, 3, 2, 1, 0]);
});

// What passes in all, and the most that passes in any interval of the window, by true time.
function most(passed, windowMs) {
  let [worst, from] = [0, 0];
  for (let to = 0; to < passed.length; to++) {
    while (passed[to] - passed[from] >= windowMs) from++;
    worst = Math.max(worst, to - from + 1);
  }
  return worst;
}

test('a_sparse_clock_never_lets_more_than_the_limit_pass_and_refuses_at_most_a_hundredth', () => {
  const random = randoms(5);
  let [all, sparse] = [0, 0];
  for (const limit of [200, 450, 1700, 2500]) {
    for (const [windowMs, sampleCount] of [[1000, 10], [1000, 20], [60_000, 5]]) {
      const clock = { millis: 1000 };
      const make = (options) => new Limiter({ limit, windowMs, sampleCount, now: () => clock.millis, ...options });
      const [exact, rare] = [make(), make({ clock: 'sparse' })];
      const passed = [];
      const calls = 12 * limit;
      for (let i = 0; i < calls; i++) {
        // Four times what may pass, in bursts and with pauses.
        clock.millis += (random(2000) / 1000) * (windowMs / limit / 4);
        if (random(3 * limit) === 0) clock.millis += random(2 * windowMs);
        all += exact.limit('a').success;
        if (random(200) === 0) rare.peek('a');
        if (random(400) === 0) rare.limit('a', { cost: 0 });
        if (rare.limit('a').success) passed.push(clock.millis);
      }
      sparse += passed.length;
      const worst = most(passed, windowMs);
      assert.ok(worst <= limit, `${worst} of ${limit} in ${windowMs} ms`);
      assert.ok(worst >= 0.99 * limit, `at most ${worst} of ${limit}: the load is too low`);
    }
  }
  assert.ok(sparse >= 0.99 * all, `${sparse} of ${all} passed`);
});

test('a_sparse_clock_is_read_every_few_calls_of_a_hot_key', () => {
  for (const [limit, every] of [[200, 2], [1000, 10], [1e6, 17]]) {
    let reads = 0;
    const limiter = new Limiter({ limit, windowMs: 60_000, clock: 'sparse', now: () => (reads++, 0) });
    // With options, in the module: the second finds a key that has come before.
    for (let i = 0; i < 2; i++) limiter.limit('a', {});
    reads = 0;
    for (let i = 0; i < 6 * every; i++) assert.equal(limiter.limit('a').remaining, limit - 3 - i);
    assert.equal(reads, 6);
    limiter.limit('a');
    assert.equal(limiter.peek('a').remaining, limit - 3 - 6 * every, 'what has passed without a look at the clock is charged');
  }
});

test('what_a_sparse_clock_has_let_pass_is_charged_when_it_is_read_the_next_time', () => {
  const clock = { millis: 0 };
  const limiter = new Limiter({ limit: 200, windowMs: 1000, sampleCount: 10, clock: 'sparse', now: () => clock.millis });
  for (let i = 0; i < 2; i++) limiter.limit('a', {});
  clock.millis = 900;
  assert.equal(limiter.limit('a').reset, 1100, 'as of the latest look at the clock');
  assert.equal(limiter.peek('a').remaining, 197);
  clock.millis = 1999;
  assert.equal(limiter.peek('a').remaining, 199, 'charged at 900 ms');
  clock.millis = 2000;
  assert.equal(limiter.peek('a').remaining, 200);
});

test('a_sparse_clock_is_refused_where_it_would_be_more_than_a_hundredth_off', () => {
  const needs = 'options.clock: `sparse` needs a single `limit` of at least 200, and a window that is not weighted; leave it out';
  for (const [options, message, name = 'RangeError'] of [
    [{ limit: 199 }, needs],
    [{ limit: 1000, window: 'weighted' }, needs],
    [{ limits: [{ limit: 1000, windowMs: 1000 }], windowMs: undefined }, needs],
    [{ limit: 1000, clock: 'fast' }, "options.clock: `fast` means nothing here; use 'sparse', or leave it out", 'TypeError'],
  ]) {
    const make = () => new Limiter({ windowMs: 1000, clock: 'sparse', ...options });
    assert.throws(make, { name, message, code: 'ERR_LEAPGATE_OPTIONS' });
  }
});
