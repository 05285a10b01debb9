// Rules: the document, the traffic, and what the engine makes of them, without a page and in Chromium.
import assert from 'node:assert/strict';
import test from 'node:test';
import { Engine } from '../../dist/npm/dist/engine/node.js';
import { lineOf, placeOf, readDocument } from '../document.js';
import { READY } from '../ready.js';
import { Workload, arrivals, isOutage, resourcesOf } from '../workload.js';
import { clearTimeout, setTimeout } from '../world.js';
import { open, require, shoot, still } from './page.mjs';

const SETTINGS = { resource: 'api', rate: 30, shape: 'random', clients: 8, waitMs: 0, latencyMs: 50, failPercent: 0, failures: 'always', seed: 1 };

// What Node says about rules and traffic up to a time: with the package's entry for Node, whose timers follow the world meanwhile.
async function numbersInNode(rules, settings, to) {
  const real = { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };
  Object.assign(globalThis, { setTimeout, clearTimeout });
  try {
    const workload = new Workload(Engine, rules, { ...SETTINGS, ...settings });
    await workload.until(to);
    const numbers = workload.numbers();
    workload.free();
    return { ...numbers, bins: workload.bins };
  } finally {
    Object.assign(globalThis, real);
  }
}

const settingsOf = ({ rate, shape, clients, wait, latency, fail, failures }) => ({
  rate,
  shape,
  clients,
  waitMs: wait,
  latencyMs: latency,
  failPercent: fail,
  failures,
});
const readyInNode = (id, to, more) => numbersInNode(JSON.parse(READY[id].document), { ...settingsOf(READY[id].traffic), ...more }, to);

test('a limit passes at most its count in any second', async () => {
  const { passed, refused, sent, byRule, bins } = await readyInNode('limit', 60_000);
  assert.equal(passed + refused, sent);
  assert.deepEqual(byRule, { api: refused });
  for (let i = 1; i < bins.length; i++) assert.ok(bins[i].passed + bins[i - 1].passed <= 20 + 1, `at ${bins[i].at}`);
  assert.ok(refused > 200, `${refused}`);
});

test('a throttle makes an even flow of bursts, and requests wait for it', async () => {
  const { bins, waited, longestMs, refused } = await readyInNode('throttle', 60_000);
  assert.ok(bins.every(({ passed }) => passed <= 6));
  assert.ok(Math.max(...bins.map(({ sent }) => sent)) > 30);
  assert.ok(Math.max(...bins.map(({ waiting }) => waiting)) > 20);
  assert.ok(waited > 400 && refused === 0, `${waited}, ${refused}`);
  assert.ok(longestMs > 3000 && longestMs <= 5000, `${longestMs}`);
});

test('a warm-up climbs from a third to the count', async () => {
  const { bins } = await readyInNode('warmUp', 60_000);
  const passedIn = (from, to) => bins.filter(({ at }) => at >= from && at < to).reduce((sum, { passed }) => sum + passed, 0) / ((to - from) / 1000);
  assert.ok(Math.abs(passedIn(1000, 3000) - 21) <= 2, `${passedIn(1000, 3000)}`);
  assert.ok(passedIn(12_000, 14_000) > passedIn(6000, 8000) && passedIn(6000, 8000) > passedIn(1000, 3000));
  assert.ok(passedIn(30_000, 60_000) > 56, `${passedIn(30_000, 60_000)}`);
});

test('a breaker opens in an outage, probes, and closes after it', async () => {
  const { breakers, byRule, failed } = await readyInNode('breaker', 28_000);
  assert.equal(breakers[0].rule, 'errors');
  assert.equal(breakers[0].state, 'closed');
  assert.ok(breakers[0].changes >= 6, `${breakers[0].changes} changes`);
  assert.ok(byRule.errors > 100 && failed < 60, `${byRule.errors} refused, ${failed} failed`);
  assert.equal((await readyInNode('breaker', 9000)).refused, 0);
});

test('a limit on calls in flight holds, and requests wait for the end of a call', async () => {
  const { bins, waited, longestMs, refused } = await readyInNode('concurrency', 60_000);
  assert.ok(bins.every(({ inFlight }) => inFlight <= 5));
  assert.ok(waited > 500 && refused > 0, `${waited}, ${refused}`);
  assert.ok(longestMs <= 2000);
});

test('the same seed is the same run, another is another', async () => {
  const of = (seed) => readyInNode('client', 20_000, { seed });
  assert.deepEqual(await of(3), await of(3));
  assert.notDeepEqual(await of(3), await of(4));
});

test('requests come in time, at the rate that was asked for, whatever their shape', () => {
  for (const shape of ['random', 'steady', 'bursts', 'ramp']) {
    let [count, last] = [0, 0];
    let turn = 1;
    const next = () => (turn = (turn * 16_807) % 2_147_483_647) / 2_147_483_647;
    for (const at of arrivals(shape, 50, next)) {
      assert.ok(Number.isInteger(at) && at >= last);
      if (at >= 400_000) break;
      [last, count] = [at, count + 1];
    }
    assert.ok(Math.abs(count - 20_000) < 800, `${shape}: ${count}`);
  }
  assert.deepEqual([9999, 10_000, 19_999, 20_000, 40_000].map(isOutage), [false, true, true, false, true]);
});

test('a document is read as JSON.parse reads it, and knows where its values are', () => {
  for (const text of [...Object.values(READY).map(({ document }) => document), ' { "a" : [1, -2.5e3, true, null, "\\u00e9\\"", {}] , "__proto__": [] } ', '[]', '"x"']) {
    assert.deepEqual(readDocument(text).value, JSON.parse(text));
  }
  const text = '{\n  "flowRules": [\n    { "resource": "a", "count": -1, "foo": 2 }\n  ]\n}';
  const read = readDocument(text);
  const at = (sentence) => text.slice(...placeOf(sentence, read));
  assert.equal(at('flowRules[0].count: `-1` is not a valid count; use a number'), '"count": -1');
  assert.equal(at('flowRules[0]: `foo` is not a known key; use one of `id`'), '"foo": 2');
  assert.equal(at('flowRules[0]: `count` is missing; add it'), '{ "resource": "a", "count": -1, "foo": 2 }');
  assert.match(at('document: `flowRules` is not a known key; use …'), /^"flowRules"/);
  assert.equal(placeOf('rules: `null` is not an object', read), undefined);
  assert.equal(lineOf(text, read.places.get('flowRules[0].count')[0]), 3);
});

test('a text that is not JSON is told in one sentence, with its place', () => {
  const wrong = (text) => {
    try {
      readDocument(text);
    } catch ({ message, from, to }) {
      return [message, text.slice(from, to)];
    }
  };
  const value = 'use a value: an object, an array, a text in double quotes, a number, true, false or null';
  assert.deepEqual(wrong(''), [`line 1: the end of the text cannot be here; ${value}`, '']);
  assert.deepEqual(wrong('{"a": 1,}'), ['line 1: `}` cannot be here; use a key in double quotes', '}']);
  assert.deepEqual(wrong('{\n"a": [1 2]}'), ['line 2: `2` cannot be here; use `,` or `]`', '2']);
  assert.deepEqual(wrong("{'a': 1}"), ["line 1: `'` cannot be here; use a key in double quotes", "'"]);
  assert.deepEqual(wrong('{"a" 1}'), ['line 1: `1` cannot be here; use `:` behind a key', '1']);
  assert.deepEqual(wrong('{} 1'), ['line 1: `1` cannot be here; use nothing behind the document', '1']);
  assert.deepEqual(wrong('{"a": 1'), ['line 1: the end of the text cannot be here; use `,` or `}`', '1']);
  assert.equal(wrong('['.repeat(100_000))[0], 'line 1: `[` cannot be here; nest at most 100 deep');
});

test('the resources of a document are found, whatever is in it', () => {
  assert.deepEqual(resourcesOf({ flowRules: [{ resource: 'a' }, { resource: 'b' }, { resource: '*' }, null, 3], degradeRules: [{ resource: 'a' }], mode: 'shadow' }), ['a', 'b']);
  for (const odd of [null, 3, 'x', [], {}]) assert.deepEqual(resourcesOf(odd), []);
});

for (const id of Object.keys(READY)) {
  test(`the numbers of the page are those of Node: ${READY[id].title}`, async () => {
    const { page, numbers, to, close } = await open(`#rules?ready=${id}`, still);
    // It has moved to 20 s by itself. On in steps that are not those of a browser's frames, nor the same.
    for (let at = 20_000, step = 1; at < 45_000; at += step++ * 171) await to(at);
    await to(45_000);
    const { bins, ...expected } = await readyInNode(id, 45_000);
    assert.deepEqual(await numbers(), expected);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
    await close();
  });
}

test('it moves by itself, and the link carries the document and the traffic', async () => {
  const { page, close } = await open('#rules');
  await page.waitForFunction(() => window.playground.figure.numbers().passed > 20);
  await page.getByRole('button', { name: 'Throttle' }).click();
  await page.getByLabel('Requests a second').fill('12');
  await page.getByLabel('Requests a second').press('Tab');
  await page.getByRole('textbox', { name: 'Rules document' }).fill('{"flowRules": [{"resource": "my api", "count": 3}, {"resource": "other", "count": 1}]}');
  await page.getByLabel('Resource').selectOption('other');
  await page.waitForFunction(() => location.hash.includes('other&rate'));
  const hash = await page.evaluate(() => location.hash);
  await close();
  const again = await open(hash, still);
  assert.deepEqual(await again.page.evaluate(() => window.playground.figure.values()), {
    ...READY.throttle.traffic,
    ready: 'throttle',
    rules: '{"flowRules": [{"resource": "my api", "count": 3}, {"resource": "other", "count": 1}]}',
    resource: 'other',
    rate: 12,
    seed: 1,
    speed: 2,
  });
  assert.equal(await again.page.getByRole('heading', { level: 1 }).textContent(), 'Your rules, and what passes');
  await again.close();
});

test('what is wrong with a document is told in the sentence of the engine, in its place, and the rules before it go on', async () => {
  const { page, numbers, to, close } = await open('#rules?ready=throttle', still);
  const before = await numbers();
  const text = page.getByRole('textbox', { name: 'Rules document' });
  await text.fill('{\n  "flowRules": [{ "resource": "api", "count": -1 }]\n}');
  const wrong = page.locator('#rules-wrong');
  await page.waitForFunction(() => document.querySelector('#rules-wrong').textContent !== '');
  assert.equal(await wrong.textContent(), 'flowRules[0].count: `-1` is not a valid count; use a number from 0 to 9007199254740992. The rules before it go on.');
  assert.equal(await page.locator('mark').textContent(), '"count": -1');
  assert.equal(await text.getAttribute('aria-invalid'), 'true');
  await page.getByRole('button', { name: 'Go to line 2' }).click();
  assert.equal(await page.evaluate(() => document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)), '"count": -1');
  assert.deepEqual(await numbers(), before);
  await to(45_000);
  const { bins, ...expected } = await readyInNode('throttle', 45_000);
  assert.deepEqual(await numbers(), expected);
  await shoot(page, 'rules-wrong', { fullPage: true });
  await text.fill('{"flowRules": [{ "resource": "api", "count": 1 }]}');
  await page.waitForFunction(() => document.querySelector('#rules-wrong').textContent === '');
  assert.equal(await text.getAttribute('aria-invalid'), 'false');
  assert.equal((await numbers()).sent, 0, 'a new run');
  await close();
});

test('a link with garbage opens with the defaults, and one sentence says so', async () => {
  const { page, notice, numbers, close } = await open('#rules?ready=constructor&rate=0&shape=%00&rules=%7Bnope&x=1', still);
  assert.equal(await notice(), 'This link is not as the page writes it, at “ready”, “rate”, “shape”: the defaults are used there.');
  assert.match(await page.locator('#rules-wrong').textContent(), /^line 1: `n` cannot be here; use a key in double quotes\. The rules of “A limit” run\.$/);
  assert.ok((await numbers()).passed > 0);
  await close();
});

test('a document that is too long for a link runs, and is told until it is shorter', async () => {
  const { page, notice, close } = await open('#rules', still);
  const text = page.getByRole('textbox', { name: 'Rules document' });
  await text.fill(`{"flowRules": []${' '.repeat(6000)}}`);
  await page.locator('#notice:not([hidden])').waitFor();
  assert.equal(await notice(), 'This document has more than 6000 characters: the link to this page does not have it.');
  assert.equal(await page.locator('#rules-wrong').textContent(), '');
  await text.fill('{"flowRules": []}');
  await page.locator('#notice').waitFor({ state: 'hidden' });
  await page.getByLabel('Clients').fill('0');
  await page.getByLabel('Clients').press('Tab');
  assert.equal(await notice(), 'Clients: “0” is not possible; use a whole number from 1 to 50.');
  await page.getByLabel('Clients').fill('3');
  await page.getByLabel('Clients').press('Tab');
  assert.equal(await notice(), '');
  await close();
});

test('a page without a module says so', async () => {
  const faults = [];
  const { page, notice, close } = await open('', { faults });
  await page.route('**/*.wasm', (route) => route.fulfill({ status: 404, body: '' }));
  for (const title of ['Rules', 'Fleet']) {
    await page.getByRole('tab', { name: title }).click();
    await page.locator('#notice:not([hidden])').waitFor();
    assert.equal(await notice(), `${title} could not be opened: its module has not arrived (404); load the page again.`);
  }
  await close();
});

test('a breaker for all resources, requests that the engine does not take, and hashes of another run are as in Node', async () => {
  const { page, numbers, to, close } = await open('#rules?ready=breaker', still);
  for (const [seed, rules] of [
    [7, { degradeRules: [{ resource: '*', id: 'all', grade: 'errorRatio', count: 0.3, timeWindow: 1 }] }],
    [8, { flowRules: [{ resource: 'a', count: 1, key: ['clientIp', { header: 'x-plan' }], enforcePercent: 50 }] }],
    [9, { flowRules: [{ resource: 'a', count: 1, grade: 'concurrency' }] }],
  ]) {
    await page.getByLabel('Seed').fill(String(seed));
    await page.getByLabel('Seed').press('Tab');
    await page.getByRole('textbox', { name: 'Rules document' }).fill(JSON.stringify(rules));
    await page.waitForFunction((text) => window.playground.figure.values().rules === text, JSON.stringify(rules));
    await to(40_000);
    const { bins, ...expected } = await numbersInNode(rules, { ...settingsOf(READY.breaker.traffic), resource: rules.flowRules?.[0].resource ?? 'api', seed }, 40_000);
    // The hashes of Node have a seed of their own.
    if (seed !== 8) assert.deepEqual(await numbers(), expected);
    assert.ok(expected.refused > 0 && (await numbers()).refused > 0);
  }
  const seen = await numbers();
  await close();
  assert.deepEqual(Object.keys(seen.byRule), ['a/concurrency']);
});

test('axe finds nothing, in light and in dark, wide and narrow', async () => {
  for (const [colorScheme, width] of [['light', 1180], ['dark', 1180], ['light', 360]]) {
    for (const hash of ['#rules?ready=breaker', '#rules?rules=%7B%22a%22%3A+1%7D', '#fleet?acts=20:off:3+30:off:store']) {
      const { page, to, close } = await open(hash, { colorScheme, viewport: { width, height: 800 }, ...still });
      await to(70_000);
      await page.evaluate(require('axe-core').source);
      const found = await page.evaluate(() => window.axe.run());
      assert.deepEqual(found.violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)]), [], hash);
      assert.ok(found.passes.length > 20);
      await close();
    }
  }
});

test('it is seen on a phone, and in the dark', async () => {
  const { page, to, close } = await open('#rules?ready=breaker', { ...still, viewport: { width: 360, height: 780 }, colorScheme: 'dark' });
  await to(40_000);
  await page.waitForFunction(() => document.querySelector('.counts dd').textContent !== '0');
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  await page.waitForFunction(() => /breaker errors is closed\./.test(document.querySelector('[aria-live=polite].unseen').textContent));
  await shoot(page, 'rules', { fullPage: true });
  await close();
});
