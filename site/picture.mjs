// Makes the picture of the README from the page. usage: node site/picture.mjs FOLDER PICTURE
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { statSync } from 'node:fs';
import { serve } from './serve.mjs';

// What is to be seen: after the late burst, three rivals are over the limit, and their requests are still in the ring.
const HASH = '#ring?play=late';
const UNTIL_MS = 11_650;
const MAX_BYTES = 150_000;

const [folder, picture] = process.argv.slice(2);
const { chromium } = createRequire(fileURLToPath(new URL('../.tools/site/package.json', import.meta.url)))('playwright-core');
const server = await serve(folder);
// Without a sandbox, which root cannot use.
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1040, height: 900 }, deviceScaleFactor: 1.1, reducedMotion: 'reduce', colorScheme: 'light' });
await page.goto(`http://127.0.0.1:${server.address().port}/${HASH}`);
await page.waitForFunction(() => window.playground?.ready);
await page.evaluate((ms) => window.playground.clock.step(ms - window.playground.clock.now), UNTIL_MS);
await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
const { y, height } = await page.locator('.ring').boundingBox();
await page.screenshot({ path: picture, clip: { x: 0, y: 62, width: 1040, height: y + height + 16 - 62 } });
await browser.close();
server.close();
const { size } = statSync(picture);
console.log(`${picture}: ${size} bytes of at most ${MAX_BYTES}`);
if (size > MAX_BYTES) process.exitCode = 1;
