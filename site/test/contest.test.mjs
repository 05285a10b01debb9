// The limiters of the page and its traces, without a page.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Limiter } from '../../dist/npm/dist/node.js';
import { CONTESTANTS, Contest, Worst } from '../contest.js';
import { ExactLog, FixedWindow, TokenBucket, TwoWindows } from '../rivals.js';
import { ADVERSARIES, Feed, planOf, random, readMoves, startOf, traceOf, writeMoves } from '../traces.js';

// A window and a limit in powers of two: sums of tokens are exact.
const [LIMIT, WINDOW_MS] = [16, 1024];

// Each rival as its definition has it, by all instants that have passed before.
const within = (passed, from, to) => passed.filter((at) => from <= at && at <= to).length;
const NAIVE = {
  fixed: (passed, now) => passed.filter((at) => Math.floor(at / WINDOW_MS) === Math.floor(now / WINDOW_MS)).length < LIMIT,
  two: (passed, now) => {
    const edge = now - (now % WINDOW_MS);
    const estimate = within(passed, edge - WINDOW_MS, edge - 1) * (1 - (now - edge) / WINDOW_MS) + within(passed, edge, now);
    return estimate + 1 <= LIMIT;
  },
  // No interval has more than a full bucket and what flows in.
  tokens: (passed, now) => [...passed, now].every((from) => within(passed, from, now) + 1 <= LIMIT + ((now - from) * LIMIT) / WINDOW_MS),
  log: (passed, now) => within(passed, now - WINDOW_MS + 1, now) < LIMIT,
};
const RIVALS = { fixed: FixedWindow, two: TwoWindows, tokens: TokenBucket, log: ExactLog };

// Instants in bursts and pauses.
function instants(seed, count) {
  const next = random(seed);
  const times = [];
  for (let at = 0; times.length < count; at += Math.floor(next() ** 6 * 3 * WINDOW_MS)) {
    for (let burst = Math.floor(next() * 6); burst >= 0; burst--) times.push(at);
  }
  return times.slice(0, count);
}

for (const [id, Rival] of Object.entries(RIVALS)) {
  test(`${id} decides as its definition`, () => {
    for (let seed = 1; seed <= 20; seed++) {
      const rival = new Rival(LIMIT, WINDOW_MS);
      const passed = [];
      for (const now of instants(seed, 300)) {
        const expected = NAIVE[id](passed, now);
        assert.equal(rival.admit(now), expected, `seed ${seed}, at ${now} ms, after ${passed}`);
        if (expected) passed.push(now);
      }
    }
  });
}

test('the worst interval is the most in any interval of one window', () => {
  for (let seed = 1; seed <= 10; seed++) {
    const worst = new Worst(WINDOW_MS);
    const times = instants(seed, 300);
    for (const at of times) worst.add(at);
    assert.equal(worst.most, Math.max(...times.map((from) => within(times, from, from + WINDOW_MS - 1))));
    assert.equal(worst.count(times.at(-1) + WINDOW_MS), 0);
  }
});

test('peaks are the most in any interval that ends in a sixtieth of a window, however time is cut', () => {
  const times = instants(3, 200);
  const end = times.at(-1) + 100;
  const cut = (step) => {
    const contest = contestOf({ windowMs: 3000 });
    const passed = [];
    for (let now = 0, i = 0; i < times.length; now += step) {
      for (; times[i] <= now; i++) if (contest.request(times[i]).fixed) passed.push(times[i]);
      contest.advance(Math.min(now, end));
    }
    contest.advance(end);
    return { peaks: contest.contestants.find(({ id }) => id === 'fixed').peaks, times: contest.peakTimes(), passed };
  };
  const { peaks, times: ends, passed } = cut(16);
  assert.deepEqual([peaks.length, ends.length, ends.at(-1)], [240, 240, Math.floor(end / 50) * 50]);
  const count = (at) => within(passed, at - 2999, at);
  const expected = ends.map((to) => Math.max(...Array.from({ length: 51 }, (_, i) => count(to - 51 + i))));
  assert.deepEqual(peaks, expected);
  assert.ok(Math.max(...peaks) > 20);
  for (const step of [1, 700]) assert.deepEqual(cut(step).peaks, peaks, `${step} ms`);
  // A leap of time: nothing has passed in any of them.
  const contest = contestOf({});
  for (const at of [0, 1, 2]) contest.request(at);
  contest.advance(1e9);
  assert.deepEqual(contest.contestants[0].peaks, new Array(240).fill(0));
});

const contestOf = (settings) => new Contest(Limiter, { limit: 20, windowMs: 6000, buckets: 20, ...settings });

test('what the ring shows in the windows of leapgate is what the module counts', () => {
  for (const buckets of [2, 5, 20, 600]) {
    const contest = contestOf({ buckets });
    const next = random(buckets);
    for (let now = 0, i = 0; i < 500; i++, now += Math.floor(next() ** 3 * 2000)) {
      contest.request(now);
      for (const { id, buckets: ring, limiter } of contest.contestants.slice(0, 3)) {
        let counted = 0;
        for (const { from, weight, to } of limiter.spans(now)) {
          for (let number = Math.max(0, ring.numberAt(from)); number <= ring.numberAt(to === now ? now : to - 1); number++) {
            counted += ring.passed(number) * weight;
          }
        }
        assert.equal(limiter.remaining(now), Math.max(0, Math.floor(20 - counted + 1e-9)), `${id}, ${buckets} buckets, at ${now} ms`);
      }
    }
    contest.free();
  }
});

// Plays a trace for so many windows.
function played(play, settings, windows, options) {
  const contest = contestOf(settings);
  const feed = new Feed(traceOf(play, contest.settings, options));
  feed.until(startOf(play, contest.settings) + windows * contest.settings.windowMs, (at) => contest.request(at));
  const numbers = contest.numbers();
  contest.free();
  return numbers;
}

test('each adversary beats those that it is made for, whatever the settings, and never strict or the exact log', () => {
  const beaten = { edge: ['fixed'], late: ['fixed', 'two', 'tokens'], full: ['tokens'], bucket: ['fixed', 'sentinel', 'weighted', 'tokens'] };
  assert.deepEqual(Object.keys(beaten), Object.keys(ADVERSARIES));
  for (const limit of [7, 20, 200]) {
    for (const windowMs of [3000, 6000, 60_000]) {
      for (const buckets of [2, 20, 600]) {
        for (const [play, ids] of Object.entries(beaten)) {
          const numbers = played(play, { limit, windowMs, buckets }, 9);
          const what = JSON.stringify({ play, limit, windowMs, buckets, numbers });
          for (const id of ['strict', 'log']) assert.equal(numbers[id].worst, limit, what);
          // With two buckets a bucket is half a window: by then half of what leaves an estimate or a token bucket is back anyway.
          if (play === 'bucket' && buckets === 2) continue;
          for (const id of ids) assert.ok(numbers[id].worst > 1.5 * limit, `${id}: ${what}`);
        }
      }
    }
  }
});

test('of twice the limit at random, strict lets n parts of n + 1 through, and sentinel and the exact log all', () => {
  for (const buckets of [5, 20, 600]) {
    const windows = 200;
    const numbers = played('noise', { limit: 100, buckets }, windows);
    const share = ({ passed }) => passed / (100 * windows);
    assert.ok(Math.abs(share(numbers.strict) - buckets / (buckets + 1)) < 0.02, `${buckets} buckets: ${share(numbers.strict)}`);
    assert.ok(share(numbers.log) > 0.98);
    assert.equal(numbers.strict.worst, 100);
  }
});

test('the same seed is the same trace, another is another', () => {
  const numbers = (seed) => played('noise', {}, 50, { seed });
  assert.deepEqual(numbers(7), numbers(7));
  assert.notDeepEqual(numbers(7), numbers(8));
});

test('a trace is read and written', () => {
  assert.deepEqual(readMoves('6.1x20, 5.9X20;0 1×3'), [[0, 1], [1000, 3], [5900, 20], [6100, 20]]);
  assert.equal(writeMoves(readMoves('5.9x20 0.123 6')), '0.123 5.9x20 6');
  assert.deepEqual(readMoves('  '), []);
});

test('what an adversary does can be written and read, so that a visitor can change it', () => {
  for (const play of Object.keys(ADVERSARIES)) {
    const { moves } = planOf(play, { limit: 200, windowMs: 3000, buckets: 600 });
    assert.deepEqual(readMoves(writeMoves(moves)), moves);
  }
});

test('a wrong trace is told in one sentence', () => {
  const wrong = (word) => `“${word}” is not a move; use seconds up to 600 and a number of requests up to 1000, as in 5.9x20.`;
  const message = (text) => {
    try {
      readMoves(text);
    } catch (error) {
      return error.message;
    }
  };
  for (const word of ['soon', '-1', '1x', '601', '1x1001', '1e3', '1.2345', '__proto__']) assert.equal(message(`1 ${word} 2`), wrong(word));
  assert.equal(message('9'.repeat(50)), wrong(`${'9'.repeat(20)}…`));
  assert.equal(message('1 '.repeat(501)), 'Your trace has 501 moves; use at most 500.');
  assert.equal(message('1x1000 '.repeat(21)), 'Your trace has 21000 requests; use at most 20000.');
});

test('all contestants have a name of their own', () => {
  assert.equal(new Set(CONTESTANTS.map(({ id }) => id)).size, 7);
});
