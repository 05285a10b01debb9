// Fleet: ten nodes, a store and their plugs, in Node and in Chromium.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { readActs, writeActs } from '../fleet.js';
import { open, shoot, still } from './page.mjs';

const SETTINGS = { limit: 3000, windowMs: 60_000, load: 120, spread: 'even', latencyMs: 20, lossPercent: 0, whenDown: 'refuse', acts: '', seed: 1 };

function numbersInNode(settings, to) {
  const script = fileURLToPath(new URL('fleet-node.mjs', import.meta.url));
  return JSON.parse(execFileSync(process.execPath, [script, JSON.stringify({ ...SETTINGS, ...settings }), String(to)], { encoding: 'utf8' }));
}

const STORE_GONE = '65:off:store 125:on:store';
const BUSY = { acts: STORE_GONE, spread: 'one', load: 1000, whenDown: 'local' };
const ALL_AT_ONCE = '20:off:2 25:off:7 40:off:store 70:on:store 80:on:2 90:off:5 100:on:7 120:on:5';

test('ten nodes have the limit together, with a call for some requests only', () => {
  const { sent, passed, refused, worst, asks, nodes } = numbersInNode({ load: 200 }, 180_000);
  assert.equal(passed + refused, sent);
  assert.ok(worst <= 3000 && worst > 2970, `${worst}`);
  assert.ok(passed > 0.95 * 3 * 3000, `${passed}`);
  assert.ok(asks < 0.1 * sent, `${asks} calls for ${sent} requests`);
  for (const node of nodes) assert.ok(node.passed > 0.07 * passed, `${node.passed}`);
});

test('whatever is unplugged, with lost messages, too, no interval has more than the limit', () => {
  for (const settings of [{ acts: ALL_AT_ONCE }, { acts: ALL_AT_ONCE, lossPercent: 10, latencyMs: 100, load: 1000 }, { acts: STORE_GONE, spread: 'one', windowMs: 10_000, limit: 200 }]) {
    const { worst, lost, passed, isStoreOn, nodes } = numbersInNode(settings, 180_000);
    const { limit } = { ...SETTINGS, ...settings };
    assert.ok(worst <= limit && worst > 0.9 * limit, `${worst} of ${limit}`);
    assert.ok(lost > 0 && passed > limit, `${lost} lost, ${passed} passed`);
    assert.ok(isStoreOn && nodes.every(({ isOn }) => isOn));
  }
});

test('without the store nodes refuse, or take their part, and then an interval may have up to twice the limit', () => {
  const [before, refuse, local] = [
    numbersInNode({ ...BUSY, whenDown: 'refuse' }, 75_000),
    numbersInNode({ ...BUSY, whenDown: 'refuse' }, 124_000),
    numbersInNode(BUSY, 124_000),
  ];
  assert.equal(refuse.passed, before.passed, 'nothing passes');
  assert.ok(refuse.worst <= 3000);
  assert.ok(local.worst > 3000 && local.worst <= 6000, `${local.worst}`);
});

test('a node that dies takes its permits with it, and its requests go to the others', () => {
  const [{ nodes }, later] = [20_000, 50_000].map((to) => numbersInNode({ acts: '20:off:3', load: 50 }, to + 1));
  assert.deepEqual([nodes[2].isOn, later.nodes[2].isOn], [false, false]);
  assert.equal(later.nodes[2].passed, nodes[2].passed);
  assert.ok(later.passed > 0.98 * later.sent, `${later.passed} of ${later.sent}`);
  const none = numbersInNode({ acts: '1:off:1 1:off:2 1:off:3 1:off:4 1:off:5 1:off:6 1:off:7 1:off:8 1:off:9 1:off:10' }, 5000);
  assert.ok(none.refused > 100 && none.permits === 0);
});

test('acts are read and written, and wrong ones told in one sentence', () => {
  assert.deepEqual(readActs('9.5:on:10 4:off:store'), [{ at: 4000, isOn: false, what: 'store' }, { at: 9500, isOn: true, what: 9 }]);
  assert.equal(writeActs(readActs(ALL_AT_ONCE)), ALL_AT_ONCE);
  for (const word of ['4:off:0', '4:off:11', '-1:on:1', '4:of:1', '1.2345:on:1', '__proto__']) {
    assert.throws(() => readActs(word), { message: `“${word}” is not an act; use seconds, on or off, and a node or the store, as in 4:off:3.` });
  }
  assert.throws(() => readActs('1:on:1 '.repeat(101)), { message: 'There are 101 acts; use at most 100.' });
});

test('the numbers of the page are those of Node', async () => {
  for (const [query, settings] of [
    ['', {}],
    ['?acts=20:off:2+25:off:7+40:off:store+70:on:store+80:on:2&loss=10&latency=100&seed=7', { acts: '20:off:2 25:off:7 40:off:store 70:on:store 80:on:2', lossPercent: 10, latencyMs: 100, seed: 7 }],
    ['?acts=65:off:store&down=local&spread=one&load=200', { acts: '65:off:store', whenDown: 'local', spread: 'one', load: 200 }],
  ]) {
    const { page, numbers, to, close } = await open(`#fleet${query}`, still);
    for (let at = 60_000, step = 1; at < 100_000; at += step++ * 271) await to(at);
    await to(100_000);
    assert.deepEqual(await numbers(), numbersInNode(settings, 100_000), query);
    // A second run in the same page is the same run.
    await page.evaluate(() => [...document.querySelectorAll('select')].at(-1).dispatchEvent(new Event('change')));
    await to(100_000);
    assert.deepEqual(await numbers(), numbersInNode(settings, 100_000), query);
    await close();
  }
});

test('what is unplugged by hand is in the link, and the link plays it again', async () => {
  const { page, numbers, to, close } = await open('#fleet?acts=200:off:9', still);
  await page.getByRole('button', { name: 'Unplug node 3' }).press('Enter');
  assert.equal((await numbers()).nodes[2].isOn, false);
  await to(61_234.5);
  await page.getByRole('button', { name: 'Unplug the store' }).click();
  await page.locator('.fleet-map .node').nth(4).click();
  await to(80_000);
  await page.getByRole('button', { name: 'Plug in the store' }).click();
  await page.getByRole('button', { name: 'Plug in node 3' }).click();
  await to(210_000);
  const seen = await numbers();
  assert.deepEqual(seen.nodes.map(({ isOn }) => isOn), [true, true, true, true, false, true, true, true, true, true], 'node 9 stays: it is the turn of the visitor');
  await page.waitForFunction(() => decodeURIComponent(location.hash).endsWith('+80:on:3'));
  const hash = await page.evaluate(() => location.hash);
  assert.match(decodeURIComponent(hash), /acts=60:off:3\+61\.234:off:store\+61\.234:off:5\+80:on:store\+80:on:3$/);
  await close();
  const again = await open(hash, still);
  await again.to(210_000);
  assert.deepEqual(await again.numbers(), seen);
  await again.close();
});

test('it moves by itself, with permits on their way', async () => {
  const { page, numbers, close } = await open('#fleet');
  await page.waitForFunction(() => window.playground.figure.numbers().passed > 100);
  await page.waitForFunction(() => document.querySelectorAll('.dots circle').length > 0);
  await page.getByRole('button', { name: 'A node dies' }).click();
  await page.evaluate(() => (window.playground.clock.speed = 100));
  await page.waitForFunction(() => window.playground.figure.numbers().nodes[2].isOn === false);
  assert.ok((await numbers()).worst <= 3000);
  await close();
});

test('a limit that is broken is shown by a sign, and not by colour alone', async () => {
  const { page, numbers, to, close } = await open('#fleet?acts=65:off:store+125:on:store&down=local&spread=one&load=1000', still);
  assert.equal(await page.getByRole('button', { name: 'Gone, and local' }).getAttribute('aria-pressed'), 'true');
  await to(120_000);
  const { worst } = await numbers();
  await page.waitForFunction(() => document.querySelector('.verdict').textContent !== '');
  assert.equal(await page.locator('.fleet-worst .number').textContent(), `${worst.toLocaleString('en')} ▲ ${worst - 3000} over`);
  assert.equal(await page.locator('.fleet-nodes .state').first().textContent(), 'takes its part');
  await shoot(page, 'fleet-over', { fullPage: true });
  await close();
});

test('a link with garbage opens with the defaults, and one sentence says so', async () => {
  const { notice, numbers, close } = await open('#fleet?limit=9&window=1&acts=soon', still);
  assert.equal(await notice(), 'This link is not as the page writes it, at “limit”, “window”, “acts”: the defaults are used there.');
  assert.ok((await numbers()).passed > 0);
  await close();
});

test('it is seen on a phone, and in the dark', async () => {
  const { page, close } = await open('#fleet?acts=20:off:3', { ...still, viewport: { width: 360, height: 780 }, colorScheme: 'dark' });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  await page.waitForFunction(() => /^60 s, 9 nodes, the store answers: /.test(document.querySelector('[aria-live=polite].unseen').textContent));
  assert.equal(await page.locator('.fleet-nodes .state').nth(2).textContent(), 'unplugged');
  await shoot(page, 'fleet', { fullPage: true });
  await close();
});
