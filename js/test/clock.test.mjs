// The default clock: it follows what tests make of `Date`, and no step of the system's clock.

import { Limiter } from 'leapgate';
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mock, test } from 'node:test';
import sinon from 'sinon';
import { assertFollowed } from './clocks.mjs';

const START = Date.now();

const nodes = (apis) => ({
  install: () => mock.timers.enable({ apis, now: START }),
  advance: (ms) => mock.timers.tick(ms),
  set: apis.length === 1 ? (to) => mock.timers.setTime(to) : undefined,
  uninstall: () => mock.timers.reset(),
});

let made;
const sinons = (options) => ({
  install: () => (made = sinon.useFakeTimers({ now: START, ...options })),
  advance: (ms) => made.tick(ms),
  set: (to) => made.setSystemTime(to),
  uninstall: () => made.restore(),
});

let spied;
let time = 0;
const FAKES = {
  'node:test, timers and Date': nodes(['setTimeout', 'Date']),
  'node:test, Date': nodes(['Date']),
  'node:test, a method': {
    install: () => (spied = mock.method(Date, 'now', () => START + time)),
    advance: (ms) => (time += ms),
    set: (to) => (time = to - START),
    uninstall: () => spied.mock.restore(),
  },
  'Sinon, all': sinons({}),
  'Sinon, Date': sinons({ toFake: ['Date'] }),
  'Sinon, at the epoch': sinons({ now: 0 }),
};

for (const [name, fake] of Object.entries(FAKES)) {
  test(`the_default_clock_follows: ${name}`, () => {
    try {
      assertFollowed(Limiter, fake);
    } finally {
      fake.uninstall();
    }
  });
}

for (const name of ['node:test, Date', 'Sinon, all', 'Sinon, at the epoch']) {
  test(`what_a_fake_is_moved_before_it_is_first_read_counts: ${name}`, () => {
    const { install, advance, uninstall } = FAKES[name];
    const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
    assert.deepEqual([limiter.limit('a').success, limiter.limit('a').success], [true, false]);
    install();
    advance(70_000);
    assert.deepEqual([limiter.limit('a').success, limiter.limit('a').success], [true, false]);
    uninstall();
    assert.equal(limiter.limit('a').success, false);
  });
}

test('engines_and_shared_limiters_follow_too', async () => {
  const { Engine } = await import('leapgate/engine');
  const { SharedLimiter } = await import('leapgate/shared');
  const { MemoryStore } = await import('leapgate/shared/memory');
  mock.timers.enable({ apis: ['Date'], now: START });
  const engine = new Engine({ flowRules: [{ resource: 'api', count: 1, intervalMs: 60_000 }] });
  const shared = new SharedLimiter({ id: 'api', limit: 1, windowMs: 60_000, store: new MemoryStore() });
  mock.timers.tick(70_000); // A store that is younger than a window counts as full.
  const ask = async () => [engine.limit('api').success, (await shared.limit('a')).success];
  const passed = [await ask(), await ask()];
  mock.timers.tick(64_000);
  passed.push(await ask());
  mock.timers.reset();
  assert.deepEqual(passed, [[true, true], [false, false], [true, true]]);
});

// Runs a program after a fake was installed.
const run = (program) => execFileSync(process.execPath, ['--input-type=module', '-e', program], { cwd: import.meta.dirname, encoding: 'utf8' });

test('a_fake_that_is_there_before_the_package_is_followed', () => {
  const printed = run(`
    import sinon from 'sinon';
    import { mock } from 'node:test';
    const clock = sinon.useFakeTimers({ now: 1_800_000_000_000 });
    const { Limiter } = await import('leapgate');
    const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
    const passed = [];
    const ask = () => passed.push(limiter.limit('a').success);
    ask(), ask(), clock.tick(64_000), ask();
    clock.restore();
    ask();
    mock.timers.enable({ apis: ['Date'], now: 0 });
    ask(), mock.timers.tick(64_000), ask();
    console.log(JSON.stringify([passed, limiter.now() < 1_800_000_200_000]));
  `);
  assert.deepEqual(JSON.parse(printed), [[true, false, true, false, false, true], true]);
});

test('a_step_of_the_systems_clock_moves_no_window', () => {
  // A bound function counts as real.
  const printed = run(`
    let step = 0;
    const { now } = Date;
    Date.now = (() => now() + step).bind(null);
    const { Limiter } = await import('leapgate');
    const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
    const asked = [];
    const ask = () => {
      const { success, reset } = limiter.limit('a');
      const ahead = reset - Date.now();
      asked.push([success, ahead > 50_000 && ahead <= 63_001]);
    };
    ask();
    for (step of [86_400_000, -86_400_000, 3_600_000]) {
      // The time of day is compared once a second.
      await new Promise((resolve) => setTimeout(resolve, 1010));
      asked.push(limiter.now() < 10_000);
      ask();
    }
    console.log(JSON.stringify(asked));
  `);
  const [first, ...others] = JSON.parse(printed);
  assert.deepEqual(first, [true, true]);
  for (let i = 0; i < 3; i++) assert.deepEqual(others.slice(2 * i, 2 * i + 2), [true, [false, true]]);
});

test('the_reset_of_a_window_does_not_flicker', () => {
  const limiter = new Limiter({ limit: 1, windowMs: 60_000 });
  const resets = new Set();
  limiter.limit('a');
  for (const end = performance.now() + 30; performance.now() < end; ) {
    resets.add(limiter.limit('a').reset);
    resets.add(limiter.peek('a').reset);
  }
  assert.equal(resets.size, 1);
});
