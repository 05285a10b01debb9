// The ring, in Chromium.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Limiter } from '../../dist/npm/dist/node.js';
import { Contest } from '../contest.js';
import { Feed, readMoves, startOf, traceOf } from '../traces.js';
import { open, shoot } from './page.mjs';

// A page with a clock that stands until the test moves it.
const paused = (page) => page.emulateMedia({ reducedMotion: 'reduce' });

// What Node says about a trace up to a time.
function numbersInNode(play, { limit = 20, windowMs = 6000, buckets = 20 }, to, options) {
  const contest = new Contest(Limiter, { limit, windowMs, buckets });
  new Feed(traceOf(play, contest.settings, options)).until(to, (at) => contest.request(at));
  return contest.numbers();
}

test('the first thing a visitor sees moves, and breaks a fixed window within seconds', async () => {
  const { page, numbers, close } = await open();
  await page.waitForFunction(() => window.playground.figure.numbers().fixed.worst === 40, null, { timeout: 5000 });
  assert.equal((await numbers()).strict.worst, 20);
  await shoot(page, 'ring');
  await close();
});

test('the numbers of the page are those of Node, for each trace', async () => {
  for (const [play, query, settings, options] of [
    ['edge', '', {}],
    ['late', '&limit=50&buckets=60', { limit: 50, buckets: 60 }],
    ['full', '&window=12000', { windowMs: 12_000 }],
    ['bucket', '&buckets=600', { buckets: 600 }],
    ['noise', '&seed=7', {}, { seed: 7 }],
    ['own', '&trace=5.9x20+6.1x30+7', {}, { moves: readMoves('5.9x20 6.1x30 7') }],
  ]) {
    const { page, numbers, to, close } = await open(`#ring?play=${play}${query}`, { before: paused });
    const { windowMs = 6000 } = settings;
    const end = 5 * windowMs;
    // In steps that are not those of a browser's frames, nor the same.
    for (let at = startOf(play, { windowMs }), step = 1; at < end; at += step++ * 37) await to(Math.min(at, end));
    await to(end);
    assert.deepEqual(await numbers(), numbersInNode(play, settings, end, options), play);
    assert.equal(await page.evaluate(() => window.playground.clock.isPlaying), false);
    await close();
  }
});
