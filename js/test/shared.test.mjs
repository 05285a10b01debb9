// Shared limiters: what they answer, when they ask, and what they do while the store does not answer.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crash } from './traps.mjs';
import { warningsOf } from './http.mjs';

const { SharedLimiter } = await import('leapgate/shared');
const { MemoryStore } = await import('leapgate/shared/memory');

// A clock that stands still until it is moved; both clocks of the package read it.
let millis = 1_000_000;
performance.now = () => millis;
Date.now = () => 1_800_000_000_000 + millis;

const settled = () => new Promise(setImmediate);

// A store whose answers come when they are let go; `calls` has those that have not.
function heldStore(store = new MemoryStore()) {
  const held = { calls: [], asked: 0 };
  held.lease = (key, request) => {
    held.asked++;
    return new Promise((resolve, reject) => held.calls.push({ key, answer: () => resolve(store.lease(key, request)), fail: reject }));
  };
  // Lets all go, and what they lead to.
  held.flow = async () => {
    while (held.calls.length > 0) {
      held.calls.splice(0).forEach(({ answer }) => answer());
      await settled();
    }
  };
  return held;
}

const made = (store, more) => new SharedLimiter({ id: 'api', limit: 10, windowMs: 1000, store, ...more });

// How many of so many requests pass at once.
function passing(limiter, requests, key = 'a') {
  let passed = 0;
  for (let i = 0; i < requests; i++) passed += limiter.limitNow(key)?.success ?? 0;
  return passed;
}

test('all_limiters_of_a_store_admit_the_limit_together_and_never_more_in_any_window', () => {
  const store = new MemoryStore();
  const limiters = [1, 2, 3].map(() => made(store));
  const admitted = [];
  for (let i = 0; i < 6000; i++) {
    millis += i % 7;
    if (limiters[i % 3].limitNow('a').success) admitted.push(millis);
  }
  let first = 0;
  admitted.forEach((at, last) => {
    while (admitted[first] <= at - 1000) first++;
    assert.ok(last - first < 10, `${last - first + 1} until ${at}`);
  });
  const windows = (6000 * 3) / 1050;
  assert.ok(admitted.length >= 8.5 * windows, `${admitted.length} in ${windows} windows`);
});

test('a_result_has_the_fields_of_a_result_of_a_limiter', async () => {
  const { Limiter } = await import('leapgate');
  const limiter = made(new MemoryStore());
  const [ours, theirs] = [await limiter.limit('a'), new Limiter({ limit: 10, windowMs: 1000 }).limit('a').toJSON()];
  assert.deepEqual(Object.keys(ours), Object.keys(theirs));
  assert.deepEqual(Object.keys(ours.policies[0]), Object.keys(theirs.policies[0]));
  assert.deepEqual(ours, {
    success: true,
    limit: 10,
    remaining: 9,
    reset: Date.now() + 1050,
    retryAfterMs: 0,
    rule: 'api',
    policies: [{ id: 'api', limit: 10, remaining: 9, windowMs: 1000, resetMs: 1050 }],
  });
  assert.equal(passing(limiter, 20), 9);
  const refused = await limiter.limit('a');
  assert.deepEqual([refused.success, refused.remaining, refused.reset - Date.now()], [false, 0, refused.retryAfterMs]);
  assert.ok(refused.retryAfterMs > 900 && refused.retryAfterMs <= 1050, `${refused.retryAfterMs}`);
  const never = await limiter.limit('a', { cost: 11 });
  assert.deepEqual([never.success, never.retryAfterMs, never.reset], [false, Infinity, Infinity]);
});

test('a_known_refusal_reaches_no_store', () => {
  const store = new MemoryStore();
  let asked = 0;
  const limiter = made({ lease: (key, request) => (asked++, store.lease(key, request)) });
  assert.equal(passing(limiter, 20), 10);
  const before = asked;
  assert.equal(passing(limiter, 10_000), 0);
  assert.equal(asked, before);
});

test('limitNow_is_null_where_the_store_has_to_be_asked_and_asks_it', async () => {
  const store = heldStore();
  const limiter = made(store);
  assert.equal(limiter.limitNow('a'), null);
  assert.equal(limiter.limitNow('a'), null);
  assert.equal(store.asked, 1, 'one call for each key');
  assert.equal(limiter.limitNow('b'), null);
  assert.deepEqual([store.asked, limiter.stats().waiting], [2, 0]);
  await store.flow();
  assert.equal(limiter.limitNow('a').success, true);
});

test('requests_that_wait_for_a_key_come_first_come_first_served', async () => {
  const store = heldStore();
  const limiter = made(store, { limit: 5 });
  const log = [];
  const asked = [3, 1, 1, 1].map((cost, i) => limiter.limit('a', { cost }).then(({ success }) => log.push([i, success])));
  assert.equal(limiter.stats().waiting, 4);
  assert.equal(limiter.limitNow('a'), null, 'it comes behind them');
  await store.flow();
  await Promise.all(asked);
  assert.deepEqual(log, [[0, true], [1, true], [2, true], [3, false]]);
  assert.equal(limiter.stats().waiting, 0);
});

test('while_there_are_permits_a_promise_is_resolved_already', async () => {
  const store = heldStore();
  const limiter = made(store, { limit: 1000 });
  const all = Promise.all(Array.from({ length: 200 }, () => limiter.limit('a')));
  await store.flow();
  await all;
  let isLate = true;
  queueMicrotask(() => queueMicrotask(() => queueMicrotask(() => (isLate = false))));
  const { success } = await limiter.limit('a');
  assert.deepEqual([success, isLate], [true, true]);
});

test('a_burst_of_a_new_key_takes_few_calls', async () => {
  const store = heldStore();
  const limiter = made(store, { limit: 1000 });
  const all = Promise.all(Array.from({ length: 100 }, () => limiter.limit('a')));
  await store.flow();
  assert.ok((await all).every(({ success }) => success));
  assert.ok(store.asked <= 4, `${store.asked} calls for 100 requests`);
});

test('keys_are_apart_whatever_their_parts', async () => {
  const store = new MemoryStore();
  const limiter = made(store, { limit: 1 });
  const keys = ['a:b', ['a', 'b'], ['a:b', ''], 'a%3Ab', ['a', '', 'b'], 'é', 'e\u0301', '', 7, ['7', 'x']];
  for (const key of keys) assert.equal((await limiter.limit(key)).success, true, String(key));
  for (const key of keys) assert.equal((await limiter.limit(key)).success, false, String(key));
  assert.equal((await limiter.limit('7')).success, false, 'a number is the same key as its text');
  assert.equal((await limiter.limit(['a:b'])).success, false, 'an array of one is the same key as that');
});

test('what_is_not_used_is_given_back_by_close_and_before_the_lease_ends', async () => {
  const store = new MemoryStore();
  const lazy = { lease: async (key, request) => store.lease(key, request) };
  const [one, other] = [made(lazy, { limit: 100 }), made(lazy, { limit: 100 })];
  await Promise.all(Array.from({ length: 30 }, () => one.limit('a')));
  const { permits } = one.stats();
  assert.ok(permits > 0, 'it has asked ahead');
  await one.close();
  let passed = 0;
  for (let i = 0; i < 100; i++) passed += (await other.limit('a')).success;
  assert.equal(passed, 70);
  for (const call of [() => one.limitNow('a'), () => one.stats(), () => one.refund('a')]) {
    assert.throws(call, { code: 'ERR_LEAPGATE_FREED', message: 'limiter: it has been closed; make another one, or close it later' });
  }
  await assert.rejects(one.limit('a'), { code: 'ERR_LEAPGATE_FREED' });
  await one.close();
});

test('a_refund_gives_back_a_permit', async () => {
  const store = new MemoryStore();
  const limiter = made({ lease: async (key, request) => store.lease(key, request) }, { limit: 100 });
  await Promise.all(Array.from({ length: 30 }, () => limiter.limit('a')));
  const { permits } = limiter.stats();
  assert.equal((await limiter.limit('a')).success, true);
  assert.equal(limiter.stats().permits, permits - 1);
  limiter.refund('a');
  assert.equal(limiter.stats().permits, permits);
});

const DOWN = {
  local: [10, 'until it does, this process decides by its part of the limit'],
  refuse: [0, 'until it does, requests are refused'],
  pass: [50, 'until it does, requests pass'],
};

for (const [whenDown, [passes, decides]] of Object.entries(DOWN)) {
  test(`while the store fails, \`whenDown\` decides, with one warning each way: ${whenDown}`, async () => {
    const memory = new MemoryStore();
    const store = { fails: true, asked: 0 };
    store.lease = async (key, request) => {
      store.asked++;
      if (store.fails) throw new Error('connect ECONNREFUSED\n127.0.0.1:6379');
      return memory.lease(key, request);
    };
    const limiter = made(store, { whenDown });
    const warnings = await warningsOf(async () => {
      let passed = 0;
      for (let i = 0; i < 50; i++) passed += (await limiter.limit('a')).success;
      assert.equal(passed, passes);
      assert.ok(store.asked <= 3, `${store.asked} calls: it does not spin`);
      assert.equal(limiter.stats().isDown, true);
      store.fails = false;
      millis += 5000;
      await limiter.limit('b');
      await settled();
      assert.equal(limiter.stats().isDown, false);
      assert.ok(limiter.stats().downMs >= 5000);
      millis += 5000;
      passed = 0;
      for (let i = 0; i < 50; i++) passed += (await limiter.limit('c')).success;
      assert.equal(passed, 10);
    });
    const what = 'leapgate: limiter `api`: the store';
    assert.deepEqual(warnings, [
      { code: 'LEAPGATE_STORE_DOWN', message: `${what} does not answer: connect ECONNREFUSED 127.0.0.1:6379; ${decides}` },
      { code: 'LEAPGATE_STORE_UP', message: `${what} answers again` },
    ]);
  });
}

test('a_window_without_a_good_divisor_is_warned_of', async () => {
  const warnings = await warningsOf(() => {
    made(new MemoryStore(), { windowMs: 60_013 });
    for (const geometry of [{ windowMs: 60_013, sampleCount: 1 }, { windowMs: 60_000 }, { windowMs: 7 }]) made(new MemoryStore(), geometry);
  });
  const message = 'leapgate: options.windowMs: `60013` has no divisor from 10 to 20, so may pass only 1/2 of the limit; use `60020`';
  assert.deepEqual(warnings, [{ code: 'LEAPGATE_BUCKETS', message }]);
});

test('a_store_that_answers_nonsense_is_warned_of_once_for_each_cause', async () => {
  for (const [answer, cause] of [
    ['OK', "`OK` is not an answer of leapgate's store; check which store it is, and its script"],
    [undefined, "`undefined` is not an answer of leapgate's store; check which store it is, and its script"],
    ['2-1-1-1-0-0-1', "`2-1-1-1-0-0-1` is not an answer of leapgate's store; check which store it is, and its script"],
    ['1-5-1-1-0-0-1', '`1-5-1-1-0-0-1` answers another request; look at what is between here and the store'],
  ]) {
    const limiter = made({ lease: async () => answer });
    const warnings = await warningsOf(async () => {
      for (let i = 0; i < 20; i++) {
        await limiter.limit('a');
        millis += 300;
      }
    });
    const decides = 'until it does, this process decides by its part of the limit';
    assert.deepEqual(warnings.map(({ message }) => message), [`leapgate: limiter \`api\`: the store does not answer: ${cause}; ${decides}`]);
  }
});

test('an_error_without_a_message_is_told_by_its_code', async () => {
  const limiter = made({ lease: () => Promise.reject(Object.assign(new AggregateError([]), { code: 'ECONNREFUSED' })) });
  const [{ message }] = await warningsOf(() => limiter.limit('a'));
  assert.match(message, /: the store does not answer: ECONNREFUSED; /);
});

test('a_store_that_does_not_answer_in_time_counts_as_lost_and_a_late_answer_changes_nothing', async () => {
  const store = heldStore();
  const limiter = made(store, { timeoutMs: 20, whenDown: 'refuse' });
  const warnings = await warningsOf(async () => {
    const { success } = await limiter.limit('a');
    assert.equal(success, false);
  });
  assert.match(warnings[0].message, /: the store does not answer: no answer within 20 ms; until it does, requests are refused$/);
  const { lost, granted } = limiter.stats();
  assert.ok(lost >= 1);
  await store.flow();
  assert.equal(limiter.stats().granted <= 1 && granted === 0, true, 'only the latest call was in time');
});

test('after_a_trap_what_was_leased_counts_as_used', async () => {
  const memory = new MemoryStore();
  const store = { lease: async (key, request) => memory.lease(key, request) };
  const limiter = made(store, { limit: 100 });
  await Promise.all(Array.from({ length: 30 }, () => limiter.limit('a')));
  crash('shared_take', () => limiter.limitNow('a'));
  let passed = 30;
  for (let i = 0; i < 100; i++) passed += (await limiter.limit('a')).success;
  assert.ok(passed > 50 && passed <= 100, `${passed}`);
});

test('after_a_trap_a_store_in_memory_counts_as_full_until_nothing_it_knew_can_count', async () => {
  const store = new MemoryStore();
  const limiter = made(store, { id: 'other' });
  assert.equal(passing(limiter, 5), 5);
  crash('store_lease', () => store.lease('other:1000:20:a', '1-3-7-0-10-1000-20-50-1-1'));
  const [full] = [store.lease('other:1000:20:a', '1-3-7-0-10-1000-20-50-1-1')];
  assert.match(full, /^1-10-0-0-\d+-0-/);
  millis += 1300;
  assert.match(store.lease('other:1000:20:a', '1-3-7-0-10-1000-20-50-1-1'), /^1-10-\d+-1-0-/);
});

test('no_random_number_is_drawn_before_the_first_decision', () => {
  const { getRandomValues } = crypto;
  let drawn = 0;
  crypto.getRandomValues = (words) => (drawn++, getRandomValues.call(crypto, words));
  const limiter = made(new MemoryStore());
  assert.equal(drawn, 0);
  limiter.limitNow('a');
  assert.ok(drawn > 0);
  crypto.getRandomValues = getRandomValues;
});

test('a_wrong_option_is_refused_with_one_sentence', () => {
  const store = new MemoryStore();
  const right = { id: 'a', limit: 1, windowMs: 1000, store };
  for (const [more, message] of [
    [{ id: undefined }, 'options: `id` is missing; add it'],
    [{ id: 'é' }, 'options.id: `é` is not a valid id; use 1 to 256 characters of printable ASCII'],
    [{ limit: undefined }, 'options: `limit` is missing; add it'],
    [{ limit: 1.5 }, 'options.limit: `1.5` is not possible; use a whole number from 0 to 9007199254740992'],
    [{ windowMs: 0 }, 'options.windowMs: `0` is not possible; use a whole number from 1 to 315360000000'],
    [{ sampleCount: 3 }, 'options.sampleCount: `3` does not divide the 1000 ms of the window; use a divisor of it'],
    [{ store: undefined }, 'options: `store` is missing; add it'],
    [{ store: {} }, 'options.store: `{…}` is not a store; use one, as in `redis(client)` of leapgate/shared/redis'],
    [{ whenDown: 'open' }, "options.whenDown: `open` is not a way to decide; use 'local', 'refuse' or 'pass'"],
    [{ timeoutMs: 0 }, 'options.timeoutMs: `0` is not possible; use a whole number from 1 to 60000'],
    [{ maxKeys: 0 }, 'options.maxKeys: `0` is not possible; use a whole number from 1 to 16777216'],
    [{ max: 5 }, 'options.max: `5` means nothing here; use `limit`'],
  ]) {
    assert.throws(() => new SharedLimiter({ ...right, ...more }), { code: 'ERR_LEAPGATE_OPTIONS', message });
  }
  const limiter = new SharedLimiter(right);
  const long = 'is too long for a store; use at most 1024 characters, or a hash of it';
  assert.throws(() => limiter.limitNow('a'.repeat(1025)), { code: 'ERR_LEAPGATE_KEY', message: `key: \`${'a'.repeat(64)}…\` ${long}` });
  assert.throws(() => limiter.limitNow('a', { ctx: 5 }), {
    message: 'options.ctx: `5` is not a context; use the one that the runtime hands to `fetch`, or leave it out',
  });
});

test('a_busy_key_hardly_ever_asks_the_store', () => {
  const limiter = made(new MemoryStore(), { limit: 1_000_000, windowMs: 60_000 });
  for (let i = 0; i < 20_000; i++) {
    millis += i % 2;
    assert.equal(limiter.limitNow('a').success, true);
  }
  const { asks } = limiter.stats();
  assert.ok(asks < 0.05 * 20_000, `${asks} calls`);
});

test('a_key_without_parts_is_that_of_all_requests_and_waits_in_a_line_of_its_own', async () => {
  const store = heldStore();
  const limiter = made(store);
  const both = [limiter.limit([]), limiter.limit('')];
  assert.deepEqual(
    store.calls.map(({ key }) => key),
    ['api:1000:20', 'api:1000:20:'],
  );
  await store.flow();
  assert.deepEqual((await Promise.all(both)).map(({ success }) => success), [true, true]);
  await assert.rejects(limiter.limit(undefined), { code: 'ERR_LEAPGATE_KEY' });
});
