// The frame of the page, in Chromium: links, themes, sizes, other origins, and places where it cannot run.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { serve } from '../serve.mjs';
import { DIST, open, require, shoot, still } from './page.mjs';

test('whatever is in the link, the page opens, with one sentence about it', async () => {
  const wrong = (...names) => `This link is not as the page writes it, at ${names.map((name) => `“${name}”`).join(', ')}: the defaults are used there.`;
  for (const [hash, sentence] of [
    ['#ring', ''],
    ['#ring?limit=5', ''],
    ['#ring?', ''],
    ['#ring?limit=0', wrong('limit')],
    ['#ring?limit=1e9&window=6001&buckets=7', wrong('limit', 'window', 'buckets')],
    ['#ring?limit=-1&window=&buckets=x&play=all&ring=&seed=-1&speed=0', wrong('limit', 'window', 'buckets')],
    ['#ring?play=constructor', wrong('play')],
    ['#ring?__proto__=1&toString=2', wrong('__proto__', 'toString')],
    ['#ring?trace=%E0%A4%A', wrong('trace')],
    ['#ring?play=own', wrong('trace')],
    ['#ring?play=own&trace=x', wrong('trace')],
    [`#ring?trace=${'1+'.repeat(5000)}`, wrong('trace')],
    [`#ring?${'x'.repeat(3000)}`, wrong(`${'x'.repeat(20)}…`)],
    ['#<script>alert(1)</script>', 'There is no figure “%3Cscript%3Ealert(1)” here: this is The ring.'],
    ['#nothing?limit=5', 'There is no figure “nothing” here: this is The ring.'],
  ]) {
    const { page, notice, close } = await open(hash);
    assert.equal(await notice(), sentence, hash);
    assert.equal(await page.locator('.bars tbody tr').count(), 7);
    await close();
  }
});

test('a link that is pasted into the page opens, and Back goes back', async () => {
  const { page, close } = await open('#ring?limit=5', still);
  const heading = (limit) => page.locator(`h1:has-text("${limit} requests in 6 s")`).waitFor();
  await heading(5);
  await page.evaluate(() => (location.hash = '#ring?limit=9'));
  await heading(9);
  await page.goBack();
  await heading(5);
  await close();
});

test('it works below any folder', async () => {
  const server = await serve(DIST, 0, '/some/folder/');
  const { page, close } = await open('', { url: `http://127.0.0.1:${server.address().port}/some/folder/` });
  await page.waitForFunction(() => window.playground.figure.numbers().fixed.worst === 40);
  await close();
  server.close();
});

test('nothing leaves the origin: the browser is told to forbid it', async () => {
  const faults = [];
  const { page, close } = await open('', { faults });
  const failed = await page.evaluate(() => fetch('http://127.0.0.1:9/').then(() => 'sent', (error) => error.message));
  assert.equal(failed, 'Failed to fetch');
  assert.match(faults.join(), /Content Security Policy directive: "connect-src 'self'"/);
  await close();
});

test('light and dark, by the system and by the button, which is remembered', async () => {
  const paper = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  for (const colorScheme of ['light', 'dark']) {
    const { page, close } = await open('#ring?play=edge&ring=fixed', { colorScheme });
    const [light, dark] = ['rgb(251, 250, 247)', 'rgb(20, 22, 26)'];
    const [own, other] = colorScheme === 'light' ? [light, dark] : [dark, light];
    assert.equal(await paper(page), own);
    await page.waitForTimeout(1000);
    await shoot(page, `ring-${colorScheme}`);
    await page.locator('.theme').click();
    assert.equal(await paper(page), other);
    await page.reload();
    await page.waitForFunction(() => window.playground?.ready);
    assert.equal(await paper(page), other);
    await close();
  }
});

test('axe finds nothing, in light and in dark, wide and narrow', async () => {
  for (const [colorScheme, width] of [['light', 1180], ['dark', 1180], ['light', 360]]) {
    const { page, to, close } = await open('#ring?play=bucket&limit=20', { colorScheme, viewport: { width, height: 800 }, ...still });
    await to(13_000);
    await page.getByText('The ring in numbers').click();
    await page.evaluate(require('axe-core').source);
    const found = await page.evaluate(() => window.axe.run());
    assert.deepEqual(found.violations.map(({ id, nodes }) => [id, ...nodes.map(({ html }) => html)]), []);
    assert.ok(found.passes.length > 20);
    await close();
  }
});

test('it fits a phone of 360 pixels, where a tap is a request', async () => {
  const { page, numbers, close } = await open('#ring?play=clicks', { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  await page.locator('.stage').tap();
  assert.equal((await numbers()).strict.passed, 1);
  await shoot(page, 'ring-phone', { fullPage: true });
  await close();
});

test('with less motion wished for, nothing moves until it is asked to', async () => {
  const { page, numbers, close } = await open('', still);
  const now = () => page.evaluate(() => window.playground.clock.now);
  const before = await now();
  await page.waitForTimeout(300);
  assert.equal(await now(), before);
  assert.equal((await numbers()).fixed.worst, 40); // It shows what an adversary has done.
  await page.getByRole('button', { name: 'Play', exact: true }).click();
  await page.waitForFunction((before) => window.playground.clock.now > before, before);
  await close();
});

test('the clock stands, steps and runs at up to 100 times the speed', async () => {
  const { page, close } = await open('#ring?play=clicks');
  const now = () => page.evaluate(() => window.playground.clock.now);
  await page.getByRole('button', { name: 'Pause' }).click();
  const before = await now();
  await page.getByRole('button', { name: 'Step' }).click();
  assert.equal(await now(), before + 300);
  await page.getByLabel('Speed').fill('6');
  assert.equal(await page.getByLabel('Speed').getAttribute('aria-valuetext'), '100 times as fast');
  await page.waitForFunction(() => location.hash === '#ring?play=clicks&speed=100');
  const time = Date.now();
  await page.getByRole('button', { name: 'Play', exact: true }).click();
  await page.waitForFunction((before) => window.playground.clock.now > before + 50_000, before);
  assert.ok(Date.now() - time < 10_000);
  await close();
});

const WITHOUT_WASM =
  "This page decides by leapgate's own WebAssembly module, which this browser does not run: allow WebAssembly here, or use another browser.";

test('without WebAssembly there is one sentence', async () => {
  for (const before of [
    (page) => page.addInitScript(() => delete window.WebAssembly),
    // As where a policy forbids it.
    (page) => page.addInitScript(() => (WebAssembly.compile = async () => Promise.reject(new WebAssembly.CompileError('forbidden')))),
  ]) {
    const { page, notice, close } = await open('', { ready: false, before, faults: [] });
    await page.locator('#notice').waitFor();
    assert.equal(await notice(), WITHOUT_WASM);
    assert.equal(await page.locator('main').innerText(), WITHOUT_WASM);
    await close();
  }
});

test('without its module there is one sentence', async () => {
  for (const [handle, why] of [
    [(route) => route.fulfill({ status: 404 }), '404'],
    [(route) => route.abort(), 'no connection'],
  ]) {
    const { page, notice, close } = await open('', { ready: false, before: (page) => page.route('**/*.wasm', handle), faults: [] });
    await page.locator('#notice').waitFor();
    assert.equal(await notice(), `The ring could not be opened: its module has not arrived (${why}); load the page again.`);
    await close();
  }
});

test('without JavaScript there is one sentence', async () => {
  const { page, close } = await open('', { ready: false, javaScriptEnabled: false });
  await page.waitForTimeout(4500); // By then a page whose scripts have not arrived says so.
  assert.equal(
    (await page.locator('main').innerText()).trim(),
    'This page decides in your browser, by JavaScript and WebAssembly: switch JavaScript on to see it move.',
  );
  await close();
});

test('from a file, where browsers load no modules, there is one sentence', async () => {
  const { page, close } = await open('', { ready: false, url: new URL('index.html', `file://${DIST}`).href, faults: [] });
  await page.locator('.late').waitFor({ state: 'visible', timeout: 8000 });
  assert.equal(
    (await page.locator('main').innerText()).trim(),
    "The page's scripts have not arrived: open it from a web server, as ./build.sh site --serve does, in a current browser.",
  );
  await close();
});

test('the server serves the folder and nothing else', async () => {
  const server = await serve(DIST);
  const url = `http://127.0.0.1:${server.address().port}`;
  const status = async (path, options) => (await fetch(url + path, options)).status;
  assert.deepEqual(
    await Promise.all(['/', '/index.html', '/none', '/%2e%2e/npm/package.json', '/..%2fnpm/package.json', '/%', '/%00', '/figures/'].map((path) => status(path))),
    [200, 200, 404, 404, 404, 400, 400, 404],
  );
  assert.equal(await status('/', { method: 'POST' }), 405);
  assert.equal((await fetch(`${url}/main.js`, { method: 'HEAD' })).headers.get('content-type'), 'text/javascript; charset=utf-8');
  server.close();
});

test('the page names no other server', () => {
  const folder = fileURLToPath(new URL('..', import.meta.url));
  const page = readFileSync(`${folder}index.html`, 'utf8');
  assert.deepEqual(page.match(/https?:[^ '"]*/g), ['http://www.w3.org/2000/svg']); // The name of SVG, in the icon.
});
