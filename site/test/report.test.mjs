// The HTML file of `leapgate replay --html`, opened as a file in Chromium.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { SAMPLE_RULES, sampleLog } from '../sample.js';
import { require, shoot } from './page.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const PROGRAM = join(root, 'dist/npm/dist/cli/leapgate.js');

let dir;
let browser;
before(async () => {
  dir = mkdtempSync(join(tmpdir(), 'leapgate-report-'));
  browser = await require('playwright-core').chromium.launch({ executablePath: process.env.CHROMIUM, args: ['--no-sandbox'] });
});
after(async () => {
  await browser.close();
  rmSync(dir, { recursive: true });
});

// The report of a log, as JSON and as an HTML file.
function replay(rules, log) {
  const [rulesFile, logFile, page] = ['rules.json', 'log', 'report.html'].map((name) => join(dir, name));
  writeFileSync(rulesFile, JSON.stringify(rules));
  writeFileSync(logFile, log);
  const { stdout, stderr, status } = spawnSync(process.execPath, [PROGRAM, 'replay', rulesFile, logFile, '--json', '--html', page], { encoding: 'utf8' });
  assert.equal(status, 0, stderr);
  return { report: JSON.parse(stdout), url: pathToFileURL(page).href };
}

// `bypassCSP`: `shoot` loads its picture in the page, which asks for nothing.
async function open(url, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1100, height: 900 }, ...options });
  const page = await context.newPage();
  const heard = [];
  const asked = [];
  page.on('pageerror', (error) => heard.push(error.message));
  page.on('console', (message) => heard.push(message.text()));
  page.on('dialog', (dialog) => heard.push(dialog.message()) && dialog.dismiss());
  page.on('request', (request) => asked.push(request.url()));
  await page.goto(url);
  await page.waitForSelector('.report');
  return { page, heard, asked, context };
}

const textOf = (page) => page.locator('.report').innerText();

test('the_file_shows_the_numbers_of_the_report', async () => {
  const { report, url } = replay(SAMPLE_RULES, sampleLog());
  const { page, heard, asked, context } = await open(url, { bypassCSP: true });
  const text = (await textOf(page)).replaceAll('\u00a0', ' ');
  const grouped = (n) => n.toLocaleString('en');
  assert.ok(text.includes(`${grouped(report.refused)} of ${grouped(report.requests)} requests (`), text);
  for (const { id, requests, refused } of report.rules) {
    const row = page.locator('tr', { has: page.locator('th', { hasText: id }) }).first();
    const cells = await row.locator('td').allInnerTexts();
    assert.equal(cells[0], grouped(requests));
    assert.equal(cells[1].split('\n')[0], grouped(refused));
  }
  for (const { key } of report.keys) assert.ok(text.includes(key), key);
  assert.ok(text.includes(`${report.clients.refused.count} of ${report.clients.seen.count} clients`), text);
  assert.ok(text.includes(`line ${grouped(report.skipped.first[0].line)}: ${report.skipped.first[0].why}`), text);
  // The table beside the plot is made when it is opened.
  await page.locator('summary').click();
  const rows = await page.locator('details tbody tr').evaluateAll((rows) => rows.map((row) => [...row.cells].slice(1).map((cell) => Number(cell.textContent.replaceAll(',', '')))));
  assert.deepEqual(rows, report.series.requests.map((requests, i) => [requests, report.series.refused[i]]));
  await page.locator('summary').click();
  // Something is drawn: all of the plot's bins have its colours.
  const colours = await page.locator('canvas').evaluate((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const found = new Set();
    for (let i = 0; i < data.length; i += 4) if (data[i + 3] === 255) found.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return [0x0a63ad, 0xc8341a].map((colour) => found.has(colour));
  });
  assert.deepEqual(colours, [true, true]);
  assert.deepEqual(heard, []);
  assert.deepEqual(asked, [url]);
  await shoot(page, 'report', { fullPage: true });
  await context.close();
});

test('the_file_is_read_by_screen_readers_on_phones_and_in_the_dark', async () => {
  const { url } = replay(SAMPLE_RULES, sampleLog());
  for (const [name, options] of [
    ['report-dark', { colorScheme: 'dark', bypassCSP: true }],
    ['report-phone', { viewport: { width: 375, height: 800 }, bypassCSP: true }],
  ]) {
    const { page, heard, context } = await open(url, options);
    await page.evaluate(require('axe-core').source);
    const { violations } = await page.evaluate(() => window.axe.run());
    assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, `${name} is wider than its screen`);
    assert.deepEqual(heard, []);
    await shoot(page, name, { fullPage: true });
    await context.close();
  }
});

test('what_a_log_says_is_never_run', async () => {
  const hostile = [
    '</script><script>alert(1)</script>',
    '<img src=x onerror=alert(2)>',
    '<svg/onload=alert(3)>',
    '--><script>alert(4)</script><!--',
    '\u2028alert(5)//',
    'javascript:alert(6)',
    "'\"`;alert(7)//${alert(8)}",
    '{report}{version}/*{report.js}*/',
  ];
  const rules = { flowRules: [{ id: '<b onclick=alert(9)>rule</b>', resource: '*', count: 1, intervalMs: 60_000, key: [{ header: 'user-agent' }] }] };
  const line = (text, i) =>
    JSON.stringify({ start_time: new Date(1.79e12 + i).toISOString(), method: text, path: `/${text}`, response_code: 200, duration: 1, downstream_remote_address: `${text}:1`, x_forwarded_for: text, user_agent: text, route_name: text, authority: text });
  const lines = Array.from({ length: 6 }, () => hostile).flat().map(line);
  const { report, url } = replay(rules, [...lines, ...hostile].join('\n'));
  assert.ok(report.keys.length >= 5, JSON.stringify(report));
  const { page, heard, asked, context } = await open(url);
  const text = await textOf(page);
  for (const shown of hostile.slice(0, 4)) assert.ok(text.includes(shown), `${shown} is not shown as text: ${text}`);
  assert.ok(text.includes('<b onclick=alert(9)>rule</b>'), text);
  assert.equal(await page.locator('.report script, .report img, .report svg, .report b[onclick]').count(), 0);
  assert.equal(await page.locator('script').count(), 3);
  assert.deepEqual(heard, []);
  assert.deepEqual(asked, [url]);
  await context.close();
});

test('a_log_without_requests_has_a_report', async () => {
  const { url } = replay(SAMPLE_RULES, '');
  const { page, heard, context } = await open(url);
  assert.match(await textOf(page), /^The log has no request that could be decided on\./);
  assert.deepEqual(heard, []);
  await context.close();
});

test('the_library_for_plots_is_that_of_its_package', () => {
  const package_ = join(root, '.tools/site/node_modules/uplot');
  for (const [ours, theirs] of [
    ['uPlot.iife.min.js', 'dist/uPlot.iife.min.js'],
    ['uPlot.min.css', 'dist/uPlot.min.css'],
    ['uPlot.LICENSE', 'LICENSE'],
  ]) {
    assert.deepEqual(readFileSync(join(root, 'cli/report', ours)), readFileSync(join(package_, theirs)), ours);
  }
});
