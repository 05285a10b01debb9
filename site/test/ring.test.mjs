// The ring, in Chromium.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Limiter } from '../../dist/npm/dist/node.js';
import { Contest } from '../contest.js';
import { Feed, readMoves, startOf, traceOf, writeMoves } from '../traces.js';
import { open, shoot, still } from './page.mjs';

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
  assert.equal(await page.locator('.bars tr.over th label').first().textContent(), 'Fixed window');
  assert.equal(await page.locator('.bars tr.over .number').first().textContent(), '40 ▲ 20 over');
  await shoot(page, 'ring');
  await close();
});

test('each adversary has its turn until the visitor does something', async () => {
  const { page, numbers, close } = await open();
  await page.evaluate(() => (window.playground.clock.speed = 100));
  for (const title of ['Late burst', 'Full bucket', 'Bucket edge', 'Edge burst']) {
    await page.locator(`.plays button[aria-pressed=true]:text-is("${title}")`).waitFor();
  }
  await page.locator('.stage').click();
  await page.waitForTimeout(100);
  assert.equal(await page.locator('.plays button[aria-pressed=true]').count(), 0);
  assert.equal((await numbers()).strict.passed, 1);
  assert.equal(await page.evaluate(() => window.playground.clock.speed), 1);
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
    const { page, numbers, to, close } = await open(`#ring?play=${play}${query}`, still);
    const { windowMs = 6000 } = settings;
    const end = 5 * windowMs;
    // In steps that are not those of a browser's frames, nor all the same.
    for (let at = startOf(play, { windowMs }), step = 1; at < end; at += step++ * 37) await to(Math.min(at, end));
    await to(end);
    assert.deepEqual(await numbers(), numbersInNode(play, settings, end, options), play);
    assert.equal(await page.evaluate(() => window.playground.clock.isPlaying), false);
    await close();
  }
});

test('the same trace ends in the same numbers at 100 times the speed', async () => {
  const { page, numbers, close } = await open('#ring?play=noise&seed=3&speed=100');
  await page.waitForFunction(() => window.playground.clock.now > 60_000);
  await page.getByRole('button', { name: 'Pause' }).click();
  const now = await page.evaluate(() => window.playground.clock.now);
  assert.deepEqual(await numbers(), numbersInNode('noise', {}, now, { seed: 3 }));
  await close();
});

test('clicks are requests, of the window that is chosen', async () => {
  const { page, numbers, close } = await open('#ring?play=clicks&limit=3', still);
  for (let i = 0; i < 5; i++) {
    await page.locator('.stage').click();
    await page.evaluate(() => window.playground.clock.pause());
  }
  const { strict, log } = await numbers();
  assert.deepEqual([strict, log], [{ passed: 3, refused: 2, worst: 3 }, { passed: 3, refused: 2, worst: 3 }]);
  await page.getByLabel('Fixed window').check();
  await page.waitForFunction(() => location.hash.includes('ring=fixed'));
  await close();
});

test('600 buckets move at no more than 8 ms of script a frame', async () => {
  const { page, close } = await open('#ring?play=noise&limit=200&buckets=600&speed=10');
  const metrics = await page.context().newCDPSession(page);
  await metrics.send('Performance.enable');
  const script = async () => (await metrics.send('Performance.getMetrics')).metrics.find(({ name }) => name === 'ScriptDuration').value;
  await page.waitForTimeout(500);
  await page.evaluate(() => (window.playground.frames.length = 0));
  const before = await script();
  await page.waitForFunction(() => window.playground.frames.length >= 200);
  const all = 1000 * ((await script()) - before);
  const frames = (await page.evaluate(() => [...window.playground.frames])).toSorted((one, other) => one - other);
  const [median, mean] = [frames[Math.floor(frames.length / 2)], all / frames.length];
  console.log(`600 buckets: ${median.toFixed(1)} ms of script a frame (median), ${mean.toFixed(1)} (mean, by Chromium), of at most 8`);
  assert.ok(median <= 8 && mean <= 8);
  await shoot(page, 'ring-600');
  await close();
});

test('requests are drawn with the mouse, and played at once', async () => {
  const { page, numbers, to, close } = await open('', still);
  const { x, y, width } = await page.locator('.strip').boundingBox();
  // From the top at 5.8 s, along to 6.2 s.
  await page.mouse.move(x + (width * 5.8) / 18, y + 6);
  await page.mouse.down();
  await page.mouse.move(x + (width * 6.2) / 18, y + 6, { steps: 4 });
  assert.equal(await page.getByLabel('Requests', { exact: true }).inputValue(), '5.85x20 6.15x20');
  await page.mouse.up();
  await page.evaluate(() => window.playground.clock.pause());
  await to(18_000);
  const expected = numbersInNode('own', {}, 18_000, { moves: readMoves('5.85x20 6.15x20') });
  assert.deepEqual([await numbers(), expected.fixed.worst, expected.strict.worst], [expected, 40, 20]);
  await page.waitForFunction(() => location.hash === '#ring?play=own&trace=5.85x20+6.15x20');
  // An empty strip is one to be clicked.
  await page.mouse.move(x + 1, y + 80);
  await page.mouse.down();
  await page.mouse.move(x + width - 1, y + 80);
  await page.mouse.up();
  await page.waitForFunction(() => location.hash === '#ring?play=clicks');
  await close();
});

test('requests are written, and what is wrong with them is told beside them', async () => {
  const { page, numbers, to, close } = await open('', still);
  const trace = page.getByLabel('Requests', { exact: true });
  await trace.fill('5.9x20 soon');
  await trace.press('Enter');
  const wrong = '“soon” is not a move; use seconds up to 600 and a number of requests up to 1000, as in 5.9x20.';
  assert.equal(await page.locator('#ring-wrong').textContent(), wrong);
  assert.equal(await trace.getAttribute('aria-invalid'), 'true');
  await trace.fill('5.9x20, 6.1x20');
  await trace.press('Enter');
  assert.equal(await page.locator('#ring-wrong').textContent(), '');
  await page.evaluate(() => window.playground.clock.pause());
  await to(7000);
  assert.equal((await numbers()).fixed.worst, 40);
  await close();
});

test('the longest trace survives its link', async () => {
  const moves = Array.from({ length: 500 }, (_, i) => [500_111 + i * 199, i < 9 ? 1000 : 12]);
  const text = writeMoves(moves);
  const first = await open('', still);
  await first.page.getByLabel('Requests', { exact: true }).fill(text);
  await first.page.getByLabel('Requests', { exact: true }).press('Enter');
  await first.page.waitForFunction(() => location.hash.includes('play=own'));
  const hash = await first.page.evaluate(() => location.hash);
  await first.close();
  const again = await open(hash, still);
  assert.equal(await again.notice(), '');
  assert.equal(await again.page.getByLabel('Requests', { exact: true }).inputValue(), text);
  await again.close();
});

test('settings begin the run again, and are in the link', async () => {
  const { page, notice, numbers, close } = await open('#ring?play=edge', still);
  await page.getByLabel('Limit', { exact: true }).fill('5');
  await page.getByLabel('Limit', { exact: true }).press('Enter');
  await page.getByRole('combobox', { name: 'Window' }).selectOption('3 s');
  await page.getByRole('combobox', { name: 'Buckets' }).selectOption('100');
  await page.waitForFunction(() => location.hash === '#ring?limit=5&window=3000&buckets=100&play=edge');
  await page.evaluate(() => window.playground.clock.step(2000));
  assert.equal((await numbers()).fixed.worst, 10);
  assert.equal(await page.locator('h1').textContent(), '5 requests in 3 s: which limiters hold?');
  await page.getByLabel('Limit', { exact: true }).fill('0');
  await page.getByLabel('Limit', { exact: true }).press('Enter');
  assert.equal(await notice(), 'Limit: “0” is not possible; use a whole number from 1 to 200.');
  await close();
});

test('by the keyboard alone: requests, steps, speed', async () => {
  const { page, numbers, close } = await open('#ring?play=clicks', still);
  await page.keyboard.press('Space'); // Nothing has the focus.
  assert.equal((await numbers()).strict.passed, 1);
  for (let i = 0; i < 20 && !(await page.locator('.stage').evaluate((stage) => stage === document.activeElement)); i++) await page.keyboard.press('Tab');
  assert.notEqual(await page.locator('.stage').evaluate((stage) => getComputedStyle(stage).outlineStyle), 'none');
  await page.keyboard.press('Space');
  await page.keyboard.press('Enter');
  assert.equal((await numbers()).strict.passed, 3);
  await page.evaluate(() => window.playground.clock.pause());
  const before = await page.evaluate(() => window.playground.clock.now);
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.evaluate(() => window.playground.clock.now), before + 300);
  for (const key of ['ArrowUp', 'ArrowUp', 'ArrowUp', 'ArrowDown']) await page.keyboard.press(key);
  assert.equal(await page.evaluate(() => window.playground.clock.speed), 5);
  // In a field, the keys are the field's.
  await page.getByLabel('Requests', { exact: true }).focus();
  await page.keyboard.press('Space');
  await page.keyboard.press('ArrowRight');
  assert.equal((await numbers()).strict.passed, 3);
  await close();
});

test('screen readers are told at most once a second, in words, and nothing of the show', async () => {
  // The browser's time is virtual: how fast a machine draws does not matter.
  const virtual = { before: (page) => page.clock.install() };
  const { page, close } = await open('#ring?play=edge', { ...still, ...virtual });
  await page.clock.pauseAt(Date.now() + 60_000);
  await page.evaluate(() => {
    window.playground.clock.play();
    const live = document.querySelector('[aria-live=polite]');
    window.told = [];
    new MutationObserver(() => window.told.push([performance.now(), live.textContent])).observe(live, { childList: true, characterData: true, subtree: true });
  });
  // Each click changes what would be told.
  for (let i = 0; i < 35; i++) {
    await page.evaluate(() => document.querySelector('.stage').click());
    await page.clock.runFor(100);
  }
  const told = await page.evaluate(() => window.told);
  assert.ok(told.length >= 3, String(told));
  for (let i = 1; i < told.length; i++) assert.ok(told[i][0] - told[i - 1][0] >= 1000, String(told));
  assert.match(told.at(-1)[1], /^leapgate, strict: 20 in the last 6 s\. Over the limit of 20: .*Fixed window 40/);
  await close();

  const show = await open('', virtual);
  await show.page.clock.runFor(2500);
  assert.ok((await show.numbers()).fixed.worst > 0);
  assert.equal(await show.page.locator('[aria-live=polite]').textContent(), '');
  await show.close();
});

test('what passed is drawn over time, once it is in view', async () => {
  const scripts = [];
  const { page, to, close } = await open('#ring?play=edge&ring=fixed', { ...still, before: (page) => page.on('request', (request) => scripts.push(request.url())) });
  assert.ok(!scripts.some((url) => /plot/.test(url)));
  await to(9000);
  await page.locator('.over-time').scrollIntoViewIfNeeded();
  await page.locator('.over-time .u-wrap').waitFor();
  assert.ok(scripts.some((url) => /plot/.test(url)));
  await page.waitForTimeout(200);
  await shoot(page, 'ring-over-time');
  await close();
});

test('the ring is there in numbers', async () => {
  const { page, close } = await open('#ring?play=edge', still);
  await page.getByText('The ring in numbers').click();
  await page.evaluate(() => window.playground.clock.step(1200));
  await page.waitForFunction(() => document.querySelectorAll('.numbers tbody tr').length === 2);
  assert.deepEqual(await page.locator('.numbers tbody tr').allInnerTexts(), ['6 s\t0\t20', '5.7 s\t20\t0']);
  await close();
});
