// Chromium, without a window.
import assert from 'node:assert/strict';
import { after } from 'node:test';
import { assertHeld, tool } from '../place.mjs';

let browser;

function launched() {
  const { chromium } = tool('heavy', 'playwright-core');
  // Without a sandbox, which root cannot use.
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
}

after(async () => (await browser?.catch(() => undefined))?.close());

/** Asserts that the claims hold in the page at this address, which reports them in `document.title`. */
export async function assertHeldAt(url, subpaths) {
  browser ??= launched();
  const page = await (await browser).newPage();
  const heard = [];
  page.on('pageerror', (error) => heard.push(error.stack));
  page.on('console', (message) => heard.push(message.text()));
  page.on('requestfailed', (request) => heard.push(`${request.url()}: ${request.failure()?.errorText}`));
  await page.goto(url);
  await page
    .waitForFunction(() => document.title.startsWith('['), null, { timeout: 30_000 })
    .catch((error) => assert.fail([error.message, ...heard].join('\n')));
  assertHeld(await page.title(), subpaths);
  await page.close();
}

/** The script of a page: it reports the claims that hold. */
export const PAGE =
  "import { claims } from './app.mjs';\nclaims().then((held) => (document.title = JSON.stringify(held)));\n";
export const HTML = '<!doctype html><title>…</title><script type="module" src="./page.mjs"></script>';
