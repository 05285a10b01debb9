// `npx leapgate` is the native program: both run the same command lines.

import assert from 'node:assert/strict';
import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

const NATIVE = process.env.LEAPGATE_NATIVE;
const INSTALLED = fileURLToPath(new URL('node_modules/.bin/leapgate', import.meta.url));

let dir;
before(() => {
  dir = mkdtempSync(join(tmpdir(), 'leapgate-cli-'));
  const file = (name, text) => writeFileSync(join(dir, name), text);
  const rules = (extra) => ({ flowRules: [{ id: 'login', resource: '/login', count: 3, intervalMs: 60_000, key: ['clientIp'], ...extra }] });
  file('rules.json', JSON.stringify(rules()));
  file('wrong.json', JSON.stringify(rules({ interval: 1 })));
  file('broken.json', '{"flowRules": [');
  file('yaml.json', 'flowRules:\n- resource: a\n');
  file('empty', '');
  file('other-version.json', JSON.stringify({ $schema: 'https://example.com/leapgate/9.9.9/config.schema.json', ...rules() }));
  const line = (i) => {
    const time = `[10/Oct/2026:${new Date(i * 500).toISOString().slice(11, 19)} +0000]`;
    const agent = i % 3 === 0 ? 'curl/8.5.0' : 'Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0';
    return `10.0.0.${i % 7} - - ${time} "GET /login?n=${i} HTTP/1.1" 200 12 "-" "${agent}"`;
  };
  const lines = Array.from({ length: 20_000 }, (_, i) => line(i));
  lines.splice(100, 0, 'half a line', 'ünïcode \u{1f600}');
  const log = Buffer.from(`${lines.join('\n')}\n`);
  file('access.log', log);
  file('access.log.gz', gzipSync(log));
  // As `cat a.gz b.gz` makes it, and an archive that is broken off.
  file('two.gz', Buffer.concat([gzipSync(log.subarray(0, 500_000)), gzipSync(log.subarray(500_000))]));
  file('trailing.gz', Buffer.concat([gzipSync(log), Buffer.from('this is no archive')]));
  file('cut.gz', gzipSync(log).subarray(0, -20_000));
  file('strange.log', 'these are\nthe words of\na poem\n'.repeat(20));
  file('fields.log', '1760000000.123|/login|10.0.0.1\n'.repeat(30));
  mkdirSync(join(dir, 'folder'));
});
after(() => rmSync(dir, { recursive: true }));

const options = () => ({ cwd: dir, encoding: 'utf8', maxBuffer: 1e8 });
const packed = (args, input) => spawnSync(INSTALLED, args, { ...options(), input });
const native = (args, input) => spawnSync(NATIVE, args, { ...options(), input });

// Both programs on a command line: what they say and their exit status are the same. The HTML file is, too.
function both(args, { input, status }) {
  const page = join(dir, 'report.html');
  const [theirs, ours] = [native, packed].map((run) => {
    rmSync(page, { force: true });
    const { stdout, stderr, status } = run(args, input);
    return { stdout, stderr, status, page: existsSync(page) ? readFileSync(page, 'utf8') : undefined };
  });
  assert.deepEqual(ours, theirs, `leapgate ${args.join(' ')}`);
  assert.equal(ours.status, status, `leapgate ${args.join(' ')}: ${ours.stderr}`);
  return ours;
}

const RIGHT = [
  ['--version'],
  ['--help'],
  ['help', 'replay'],
  ['check', '--help'],
  ['replay', '-h'],
  ['explain', 'rules.json', '--resource', '/login', '--client-ip', '10.0.0.1'],
  ['explain', 'rules.json', '--resource', '/', '--all', '--header', 'X-App: ios'],
  ['check', 'rules.json'],
  ['check', '--target=js', 'rules.json'],
  ['check', '--target', 'rust', 'rules.json'],
  ['check', 'other-version.json'],
  ['replay', 'rules.json', 'access.log', '--route', '/login=/login'],
  ['replay', 'rules.json', 'access.log.gz', '--route=/login=/login', '--json'],
  ['replay', 'rules.json', 'two.gz', '--route', '/login=/login', '--json'],
  ['replay', 'rules.json', 'access.log', '--format', 'combined', '--refuse-less-than', '5'],
  ['replay', 'rules.json', 'access.log', 'access.log.gz', '--html', 'report.html'],
  ['replay', 'rules.json', 'fields.log', '--fields', '$time|$path|$client'],
  ['replay', 'rules.json', 'empty'],
];

test('what_the_native_program_says_the_package_says', () => {
  for (const args of RIGHT) both(args, { status: 0 });
});

const WRONG = [
  [['check'], 2],
  [[], 2],
  [['explode'], 2],
  [['chekc', 'rules.json'], 2],
  [['check', 'rules.json', '--target', 'mars'], 2],
  [['check', 'rules.json', 'more.json'], 2],
  [['replay', 'rules.json'], 2],
  [['replay', 'rules.json', 'access.log', '--refuse-less-than', '0'], 2],
  [['replay', 'rules.json', 'access.log', '--route', 'login'], 2],
  [['replay', 'rules.json', 'access.log', '--format', 'combined', '--fields', 'time=$.t'], 2],
  [['explain', 'rules.json', '--key', 'x'], 2],
  [['explain', 'wrong.json'], 1],
  [['check', 'wrong.json'], 1],
  [['check', 'broken.json'], 1],
  [['check', 'yaml.json'], 1],
  [['check', 'empty'], 1],
  [['check', 'nowhere.json'], 1],
  [['check', 'folder'], 1],
  [['check', 'rules.json/x'], 1],
  [['replay', 'wrong.json', 'access.log'], 1],
  [['replay', 'rules.json', 'nowhere.log'], 1],
  [['replay', 'rules.json', 'folder'], 1],
  [['replay', 'rules.json', 'strange.log'], 1],
  [['replay', '-', '-'], 1],
  [['replay', 'rules.json', 'access.log', '--fields', '$nothing'], 1],
  [['replay', 'rules.json', 'access.log', '--html', 'nowhere/report.html'], 1],
];

test('what_the_native_program_refuses_the_package_refuses', () => {
  for (const [args, status] of WRONG) both(args, { status });
});

test('documents_and_logs_come_by_standard_input', () => {
  const rules = readFileSync(join(dir, 'rules.json'));
  both(['check', '-'], { input: rules, status: 0 });
  both(['check', '-'], { input: '', status: 1 });
  for (const log of ['access.log', 'access.log.gz', 'empty']) {
    both(['replay', 'rules.json', '-'], { input: readFileSync(join(dir, log)), status: 0 });
  }
  both(['replay', '-', 'access.log'], { input: rules, status: 0 });
});

test('an_archive_that_is_broken_off_is_reported_up_to_there', () => {
  const { stdout, stderr } = both(['replay', 'rules.json', 'cut.gz', '--json'], { status: 0 });
  assert.match(stderr, /^leapgate: `cut\.gz` is read up to a fault only \(incomplete deflate stream\)\n$/);
  const { lines } = JSON.parse(stdout);
  assert.ok(lines > 1000 && lines < 20_002, String(lines));
});

test('what_stands_behind_an_archive_is_told_and_loses_at_most_its_last_16_kilobytes', () => {
  const [theirs, ours] = [native, packed].map((run) => run(['replay', 'rules.json', 'trailing.gz', '--json']));
  assert.match(ours.stderr, /^leapgate: `trailing\.gz` is read up to a fault only \(/);
  const [all, some] = [theirs, ours].map(({ stdout }) => JSON.parse(stdout).lines);
  assert.equal(all, 20_002);
  assert.ok(some > 19_800, `${some} of ${all} lines`);
});

test('npx_finds_the_program', () => {
  const printed = execFileSync('npx', ['--no-install', 'leapgate', 'check', join(dir, 'rules.json')], {
    cwd: fileURLToPath(new URL('.', import.meta.url)),
    encoding: 'utf8',
  });
  assert.equal(printed, `${join(dir, 'rules.json')}: 1 flow rule\n`);
});

test('a_reader_that_has_gone_is_no_fault', async () => {
  const child = spawn(INSTALLED, ['replay', 'rules.json', 'access.log', '--json'], { cwd: dir, stdio: ['ignore', 'pipe', 'pipe'] });
  child.stdout.destroy();
  const said = [];
  child.stderr.on('data', (piece) => said.push(piece));
  const status = await new Promise((resolve) => child.on('exit', resolve));
  assert.deepEqual([status, said.join('')], [0, '']);
});
