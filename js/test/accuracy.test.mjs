// How much passes in the worst window, by a list of the passed requests: of adversaries, and of a steady stream.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Limiter } from 'leapgate';
import { ADVERSARIES, LIMIT, STEADY, WINDOW_MS, worst } from './adversaries.mjs';

function admitted(instants, options) {
  let instant;
  const limiter = new Limiter({ limit: LIMIT, windowMs: WINDOW_MS, ...options, now: () => instant });
  return instants.filter((at) => {
    instant = at;
    return limiter.limit('a').success;
  });
}

for (const [name, instants] of Object.entries(ADVERSARIES)) {
  for (const window of ['strict', 'weighted', 'sentinel']) {
    test(`adversary ${name} gets no more than the limit in any window: ${window}`, () => {
      assert.equal(worst(admitted(instants, { window })), LIMIT);
    });
  }
}

// A strict window counts one bucket more than its length, so that a little less than the limit passes of an endless stream.
for (const [window, passes] of [['strict', 2900], ['weighted', 2981], ['sentinel', 3000]]) {
  test(`of twice the limit for thirty windows, ${passes} of 3000 pass: ${window}`, () => {
    assert.equal(admitted(STEADY, { window }).length, passes);
  });
}

test('bursts at any instants never get more than the limit in any window of a strict limiter', () => {
  let random = 1;
  const next = (n) => (random = (random * 48271) % 0x7fffffff) % n;
  let most = 0;
  for (let round = 0; round < 300; round++) {
    const instants = Array.from({ length: 20 }, () => next(40_000)).sort((a, b) => a - b);
    const asked = instants.flatMap((at) => new Array(1 + next(LIMIT)).fill(at));
    most = Math.max(most, worst(admitted(asked, { sampleCount: [1, 2, 10, 20][round % 4] })));
  }
  assert.equal(most, LIMIT);
});

test('a window of two buckets, as in Sentinel, admits twice the limit', () => {
  assert.equal(worst(admitted(ADVERSARIES.B, { window: 'sentinel', sampleCount: 2 })), 2 * LIMIT);
});
