// The replay of a log on the page: the report of the command line, here.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { SAMPLE_RULES, sampleLog } from '../sample.js';
import { open, require, shoot } from './page.mjs';

const PROGRAM = fileURLToPath(new URL('../../dist/npm/dist/cli/leapgate.js', import.meta.url));

let dir;
before(() => (dir = mkdtempSync(join(tmpdir(), 'leapgate-replay-'))));
after(() => rmSync(dir, { recursive: true }));

// The report of the command line.
function commandLine(rules, log, ...more) {
  const [rulesFile, logFile] = ['rules.json', 'access.log'].map((name) => join(dir, name));
  writeFileSync(rulesFile, JSON.stringify(rules));
  writeFileSync(logFile, log);
  const { stdout, stderr, status } = spawnSync(process.execPath, [PROGRAM, 'replay', rulesFile, logFile, '--json', ...more], { encoding: 'utf8', maxBuffer: 1e8 });
  assert.equal(status, 0, stderr);
  return JSON.parse(stdout);
}

const said = (page, text) => page.locator('.progress .said', { hasText: text }).waitFor({ timeout: 60_000 });
const give = (page, name, buffer) => page.locator('#replay-file').setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from(buffer) });

// Combined lines of two clients, as many as asked.
const combined = (count) =>
  Array.from({ length: count }, (_, i) => {
    const time = `[02/Nov/2026:${new Date(i * 40).toISOString().slice(11, 19)} +0000]`;
    return `10.0.${i % 3}.${i % 40} - - ${time} "GET /${i % 2 ? 'login' : 'shop'}?n=${i} HTTP/1.1" 200 12 "-" "curl/8.5.0"`;
  }).join('\n');

test('the_sample_has_the_report_of_the_command_line', async () => {
  const { page, numbers, close } = await open('#replay');
  await said(page, 'This is the report of the sample.');
  assert.deepEqual(await numbers(), commandLine(SAMPLE_RULES, sampleLog()));
  const text = (await page.locator('.report').innerText()).replaceAll('\u00a0', ' ');
  assert.match(text, /^907 of 5,818 requests \(15\.6 %\) would have been refused\./);
  await page.evaluate(require('axe-core').source);
  const { violations } = await page.evaluate(() => window.axe.run());
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
  await shoot(page, 'replay', { fullPage: true });
  await close();
});

test('a_log_that_is_chosen_has_the_report_of_the_command_line_packed_or_not', async () => {
  const log = combined(30_000);
  const rules = { flowRules: [{ id: 'l', resource: 'login', count: 5, intervalMs: 60_000, key: ['clientIp'] }] };
  const expected = commandLine(rules, log, '--route', '/login=login');
  const { page, numbers, close } = await open('#replay');
  await page.locator('#replay-rules').fill(JSON.stringify(rules));
  await page.locator('.more summary').click();
  await page.locator('#replay-routes').fill('/login=login');
  for (const [name, bytes] of [['access.log', log], ['access.log.gz', gzipSync(log)]]) {
    await give(page, name, bytes);
    await said(page, `This is the report of ${name}.`);
    assert.deepEqual(await numbers(), expected);
  }
  assert.ok(expected.refused > 100, JSON.stringify(expected));
  await close();
});

test('other_rules_are_replayed_at_once_and_what_is_wrong_is_said_in_place', async () => {
  const { page, numbers, close } = await open('#replay');
  await said(page, 'This is the report of the sample.');
  const wrong = page.locator('.wrong');
  const other = { flowRules: [{ id: 'x', resource: 'login', count: 1, intervalMs: 60_000 }] };
  await page.locator('#replay-rules').fill(JSON.stringify(other));
  await page.waitForFunction(() => window.playground.figure.numbers().rules[0].id === 'x');
  assert.deepEqual(await numbers(), commandLine(other, sampleLog()));
  await page.locator('#replay-rules').fill('{"flowRules": [{"resource": "a", "count": -1}]}');
  await wrong.filter({ hasText: 'flowRules[0].count: ' }).waitFor();
  await page.locator('#replay-rules').fill('{');
  await wrong.filter({ hasText: 'The rules are not JSON: ' }).waitFor();
  await page.locator('#replay-rules').fill(JSON.stringify(other));
  await page.waitForFunction(() => document.querySelector('.wrong').textContent === '');
  await give(page, 'poem.txt', 'these are\nthe words of\na poem\n'.repeat(30));
  await wrong.filter({ hasText: 'poem.txt: the log has none of the formats that are known (its first line begins `these are`)' }).waitFor();
  await give(page, 'cut.gz', gzipSync(sampleLog()).subarray(0, -9000));
  await said(page, 'cut.gz is read up to a fault only (');
  await close();
});

test('a_large_log_leaves_the_page_alive_and_can_be_cancelled', async () => {
  const { page, close } = await open('#replay');
  await said(page, 'This is the report of the sample.');
  // 60 MB, made in the page.
  await page.evaluate((lines) => {
    const file = new File(Array(40).fill(`${lines}\n`), 'large.log');
    const transfer = new DataTransfer();
    transfer.items.add(file);
    window.longest = 0;
    let last = performance.now();
    const tick = () => {
      const now = performance.now();
      window.longest = Math.max(window.longest, now - last);
      last = now;
      window.ticking = requestAnimationFrame(tick);
    };
    tick();
    document.querySelector('.place').dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, bubbles: true }));
  }, combined(20_000));
  const progress = page.locator('progress');
  await progress.waitFor({ state: 'visible' });
  await page.locator('.progress button').click();
  await said(page, 'Cancelled: the report is that of before.');
  assert.equal(await progress.isVisible(), false);
  assert.ok((await page.evaluate(() => window.longest)) < 1000);
  await close();
});

test('a_link_carries_the_rules_and_not_the_log', async () => {
  const rules = JSON.stringify({ flowRules: [{ id: 'x', resource: 'login', count: 1, intervalMs: 1000 }] });
  const { page, numbers, close } = await open(`#replay?rules=${encodeURIComponent(rules)}&log=own`);
  assert.equal(await page.locator('#replay-rules').inputValue(), rules);
  assert.equal(await page.locator('.progress .said').textContent(), 'This link has the rules of a replay, and not its log: choose one.');
  await page.locator('.paste summary').click();
  await page.locator('#replay-paste').fill(sampleLog().split('\n').slice(0, 400).join('\n'));
  await page.locator('.paste button').click();
  await said(page, 'This is the report of what you pasted.');
  assert.equal((await numbers()).requests, 400);
  await close();
});

test('a_phone_has_room_for_it_in_the_dark', async () => {
  const { page, close } = await open('#replay', { viewport: { width: 375, height: 800 }, colorScheme: 'dark' });
  await said(page, 'This is the report of the sample.');
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true);
  await shoot(page, 'replay-phone', { fullPage: true });
  await close();
});
