// Limiters that go on where others stopped, shadow mode, and limits that are infinite.

import { Limiter } from 'leapgate';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';

// A limiter and its clock.
function at(options, millis = 0) {
  const clock = { millis };
  return [new Limiter({ now: () => clock.millis, ...options }), clock];
}

const LIMITS = { limits: [{ limit: 5, windowMs: 1000, sampleCount: 10 }, { limit: 300, windowMs: 60_000 }] };
const KEYS = ['a', 7, ['a', 'b'], ['a', 7, 'c'], 'x'.repeat(100), 'é'];
const remaining = (limiter, key) => limiter.peek(key).policies.map(({ remaining }) => remaining);

// What a program of another process, with another seed, prints.
const run = (program, ...args) =>
  execFileSync(process.execPath, ['--input-type=module', '-e', `import { Limiter } from 'leapgate'; ${program}`, ...args], {
    cwd: import.meta.dirname,
    encoding: 'utf8',
  });

// A snapshot of another process, in which each key has `cost`.
const foreign = (cost, now) =>
  Buffer.from(
    run(`
      const limiter = new Limiter({ ...${JSON.stringify(LIMITS)}, now: () => ${now} });
      for (const key of ${JSON.stringify(KEYS)}) limiter.limit(key, { cost: ${cost} });
      limiter.block('blocked', 2000);
      console.log(Buffer.from(limiter.snapshot()).toString('base64'));
    `),
    'base64',
  );

test('limiters_of_several_processes_are_restored_beside_one_another', () => {
  const own = new Limiter({ limit: 1, windowMs: 1000 });
  own.limit('own');
  const restored = [1, 2, 3].map((cost) => {
    const [limiter, clock] = at(LIMITS, 50);
    limiter.restore(foreign(cost, 1_000_000));
    return [limiter, clock, cost];
  });
  for (const [limiter, clock, cost] of restored) {
    for (const key of KEYS) assert.deepEqual(remaining(limiter, key), [5 - cost, 300 - cost], `${key}`);
    // Among many others, and again.
    for (let i = 0; i < 300; i++) limiter.limit(`other ${i % 100}`);
    for (const key of KEYS) assert.equal(limiter.limit(key, { cost: 5 - cost }).success, true);
    for (const key of KEYS) assert.equal(limiter.limit(key).success, false);
    assert.equal(limiter.limit('blocked').retryAfterMs, 2000);
    clock.millis += 2000;
    assert.equal(limiter.limit('blocked').success, true);
    limiter.reset('a');
    limiter.refund(7, cost);
    assert.deepEqual([remaining(limiter, 'a'), remaining(limiter, 7)[1]], [[5, 300], 300 - 5 + cost]);
  }
  assert.equal(own.limit('own').success, false);
});

test('a_process_goes_on_with_the_snapshot_that_it_begins_with', () => {
  const bytes = foreign(3, 70_000).toString('base64');
  const printed = run(
    `
    const bytes = Buffer.from(process.argv[1], 'base64');
    const made = [0, 400, 1200].map((elapsedMs) => {
      const limiter = new Limiter({ ...${JSON.stringify(LIMITS)}, now: () => 25 });
      limiter.restore(bytes, { elapsedMs });
      return limiter;
    });
    const again = new Limiter({ ...${JSON.stringify(LIMITS)}, now: () => 1e9 });
    again.restore(made[0].snapshot());
    console.log(JSON.stringify([...made, again].map((limiter) => ${JSON.stringify(KEYS)}.map((key) => limiter.peek(key).policies.map(({ remaining }) => remaining)))));
  `,
    bytes,
  );
  const all = (left) => KEYS.map(() => left);
  assert.deepEqual(JSON.parse(printed), [all([2, 297]), all([2, 297]), all([5, 297]), all([2, 297])]);
});

test('what_is_held_is_restored_as_used', () => {
  const [before] = at({ limit: 10, windowMs: 1000 });
  const hold = before.hold('a', 6);
  const [after] = at({ limit: 20, windowMs: 1000 }, 5);
  after.restore(before.snapshot());
  assert.equal(after.peek('a').remaining, 14);
  hold.cancel();
  assert.deepEqual([before.peek('a').remaining, after.peek('a').remaining], [10, 14]);
});

test('snapshots_that_do_not_fit_are_refused_with_a_sentence_and_change_nothing', () => {
  const [before] = at({ limit: 5, windowMs: 1000 });
  before.limit('a');
  const bytes = before.snapshot();
  const part = 'bytes: not a snapshot, or only a part of one; use all that `snapshot` has returned';
  const others = 'bytes: a snapshot of other limits; use one of as many, with the same `windowMs`, `window`, `sampleCount` and `maxKeys`';
  const [target] = at({ limit: 5, windowMs: 1000 });
  const flipped = bytes.map((byte, i) => (i === bytes.length - 12 ? byte ^ 1 : byte));
  for (const wrong of [bytes.subarray(1), bytes.subarray(0, -1), new Uint8Array(), Buffer.from('hello'), flipped]) {
    assert.throws(() => target.restore(wrong), { name: 'RangeError', code: 'ERR_LEAPGATE_ARGUMENT', message: part });
  }
  for (const options of [{ limit: 5, windowMs: 2000 }, { limit: 5, windowMs: 1000, window: 'weighted' }, { limit: 5, windowMs: 1000, maxKeys: 7 }, LIMITS]) {
    assert.throws(() => at(options)[0].restore(bytes), { message: others });
  }
  for (const wrong of ['hello', null, [1, 2], {}]) {
    assert.throws(() => target.restore(wrong), { name: 'TypeError', message: /^bytes: `.*` is not a snapshot; use the Uint8Array that `snapshot` has returned$/ });
  }
  assert.throws(() => target.restore(bytes, { elapsedMs: -1 }), { code: 'ERR_LEAPGATE_OPTIONS' });
  assert.throws(() => target.restore(bytes, { elapsed: 1 }), { message: /^options\.elapsed: `1` means nothing here/ });
  assert.deepEqual(target.stats(), { keys: 0, shared: 0, shadowBlocked: 0 });
  target.restore(bytes);
  assert.throws(() => target.restore(bytes), { message: 'bytes: the limiter has been used; restore before its first request' });
});

test('in_shadow_mode_requests_pass_and_results_tell_which_would_not', () => {
  const [limiter] = at({ limit: 1, windowMs: 1000, mode: 'shadow' });
  const of = ({ success, shadowBlocked, remaining, retryAfterMs }) => [success, shadowBlocked, remaining, retryAfterMs];
  assert.deepEqual(of(limiter.limit('a')), [true, false, 0, 0]);
  assert.deepEqual(of(limiter.limit('a')), [true, true, 0, 1050]);
  assert.deepEqual(of(limiter.peek('a')), [true, true, 0, 1050]);
  const hold = limiter.hold('a', 5);
  assert.deepEqual([...of(hold).slice(0, 2), hold.settle(9)], [true, true, 0]);
  limiter.block('b', 500);
  assert.deepEqual(of(limiter.limit('b')), [true, true, 0, 500]);
  assert.equal(limiter.stats().shadowBlocked, 3);
  assert.equal(at({ limit: 1, windowMs: 1000 })[0].limit('a').shadowBlocked, false);
  const message = "options.mode: `dry` is not a mode; use 'enforce' or 'shadow'";
  assert.throws(() => at({ limit: 1, windowMs: 1000, mode: 'dry' }), { code: 'ERR_LEAPGATE_OPTIONS', message });
});

test('an_infinite_limit_limits_nothing', () => {
  const [limiter, clock] = at({ limit: Infinity, windowMs: 1000 });
  const { success, limit, remaining, retryAfterMs, rule, policies } = limiter.limit('a', { cost: 2 ** 32 - 1 });
  assert.deepEqual([success, limit, remaining, retryAfterMs, rule, policies], [true, Infinity, Infinity, 0, '1s', []]);
  assert.equal(limiter.hold('a', 5).settle(9), 0);
  assert.equal(limiter.stats().keys, 0);
  limiter.block('a', 300);
  const blocked = limiter.limit('a');
  assert.deepEqual([blocked.success, blocked.limit, blocked.remaining, blocked.retryAfterMs, blocked.rule], [false, Infinity, 0, 300, null]);
  clock.millis = 301;
  assert.equal(limiter.limit('a').success, true);
  // A plan of a request's own is a limit all the same.
  assert.deepEqual([1, 2, 3].map(() => limiter.limit('b', { limit: 2 }).success), [true, true, false]);
  assert.throws(() => at({ limit: Infinity, windowMs: -1 }), { message: 'options.windowMs: `-1` is not possible; use a whole number from 1 to 315360000000' });

  const [some] = at({ limits: [{ limit: Infinity, windowMs: 1000 }, { limit: 2, windowMs: 60_000 }] });
  assert.deepEqual(some.limit('a').policies.map(({ id, remaining }) => [id, remaining]), [['60s', 1]]);
  assert.deepEqual([some.limit('a').success, some.limit('a').success], [true, false]);
  const [all] = at({ limits: [{ limit: Infinity, windowMs: 1000 }, { limit: Infinity, windowMs: 60_000 }] });
  assert.deepEqual(all.limit('a').policies, []);

  const [plans] = at({ limit: 1, windowMs: 1000 });
  for (let i = 0; i < 3; i++) assert.deepEqual([plans.limit('a', { limit: Infinity }).remaining, plans.limit('a', { limit: Infinity }).policies], [Infinity, []]);
  assert.deepEqual([plans.limit('a').success, plans.limit('a').success, plans.limit('a', { limit: Infinity }).success], [true, false, true]);
  assert.equal(plans.hold('a', 5, { limit: Infinity }).success, true);
});

test('a_key_can_be_blocked_for_good', () => {
  for (const millis of [0, 1_800_000_000_000]) {
    const [limiter, clock] = at({ limit: 1, windowMs: 1000 }, millis);
    limiter.block('a', Infinity);
    assert.deepEqual([limiter.limit('a').retryAfterMs, limiter.limit('a').reset], [Infinity, Infinity]);
    const [restored] = at({ limit: 1, windowMs: 1000 }, 5);
    restored.restore(limiter.snapshot(), { elapsedMs: 1e9 });
    assert.equal(restored.limit('a').retryAfterMs, Infinity);
    clock.millis += 1e12;
    assert.equal(limiter.limit('a').success, false);
    limiter.block('a', 0);
    assert.equal(limiter.limit('a').success, true);
  }
});
