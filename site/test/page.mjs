// The page in Chromium, without a window; build.sh has installed what this needs.
import assert from 'node:assert/strict';
import { mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { serve } from '../serve.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
export const require = createRequire(`${root}.tools/site/package.json`);
export const DIST = `${root}dist/site/`;
const SHOTS = `${root}dist/site-shots`;

// Options of a page whose clock stands until the test moves it.
export const still = { reducedMotion: 'reduce' };

let browser;
let server;

after(async () => {
  await (await browser)?.close();
  (await server)?.close();
});

// Opens the page at `hash`, and waits for its figure, unless told not to. Asserts that it asks no other server for anything, and that
// nothing is thrown, except where `faults` is given to gather it.
export async function open(hash = '', { ready = true, faults, before, url, ...options } = {}) {
  assert.ok(process.env.CHROMIUM, 'Chromium is missing: install it (Debian and Ubuntu: apt install chromium), or say where it is in CHROMIUM.');
  // Without a sandbox, which root cannot use.
  browser ??= require('playwright-core').chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
  server ??= serve(DIST);
  const at = url ?? `http://127.0.0.1:${(await server).address().port}/`;
  const context = await (await browser).newContext({ viewport: { width: 1180, height: 820 }, ...options });
  const page = await context.newPage();
  const heard = faults ?? [];
  page.on('pageerror', (error) => heard.push(error.message));
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && heard.push(message.text()));
  const strangers = [];
  page.on('request', (request) => /^(data|blob):/.test(request.url()) || request.url().startsWith(new URL('.', at).href) || strangers.push(request.url()));
  await before?.(page);
  await page.goto(at + hash);
  if (ready) await page.waitForFunction(() => window.playground?.ready === true);
  return {
    page,
    notice: async () => ((await page.locator('#notice').isVisible()) ? page.locator('#notice').textContent() : ''),
    numbers: () => page.evaluate(() => window.playground.figure.numbers()),
    // Moves the clock of a page, which must stand, to a time.
    to: (ms) => page.evaluate((ms) => window.playground.clock.step(ms - window.playground.clock.now), ms),
    close: async () => {
      if (faults === undefined) assert.deepEqual(heard, []);
      assert.deepEqual(strangers, [], 'requests to other origins');
      await context.close();
    },
  };
}

// Writes a picture of the page, and asserts that it is not blank: that it has a few colours, each in many places.
export async function shoot(page, name, options) {
  mkdirSync(SHOTS, { recursive: true });
  const picture = await page.screenshot({ path: `${SHOTS}/${name}.png`, ...options });
  const colours = await page.evaluate(async (url) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    const context = canvas.getContext('2d');
    context.drawImage(image, 0, 0);
    const { data } = context.getImageData(0, 0, image.width, image.height);
    const counts = new Map();
    for (let i = 0; i < data.length; i += 16) {
      const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
      counts.set(colour, (counts.get(colour) ?? 0) + 1);
    }
    return [...counts.values()].filter((count) => count > 100).length;
  }, `data:image/png;base64,${picture.toString('base64')}`);
  assert.ok(colours >= 4, `${name}.png has ${colours} colours`);
  return picture;
}
