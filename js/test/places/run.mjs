// Installs the package in dist/npm into an empty folder, as users would, and tests it in each place of the named folders (light,
// heavy), which have a file for each. Other arguments are passed on to node's test runner.
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../../..');
const isWeight = (arg) => arg === 'light' || arg === 'heavy';
const [weights, args] = [isWeight, (arg) => !isWeight(arg)].map((is) => process.argv.slice(2).filter(is));

if (weights.includes('heavy') && !process.env.CHROMIUM) {
  console.error(
    'Chromium is missing: install it (Debian and Ubuntu: apt install chromium), or say where it is in CHROMIUM.',
  );
  process.exit(1);
}

const dir = mkdtempSync(join(tmpdir(), 'leapgate-'));
process.on('exit', () => rmSync(dir, { recursive: true }));
const npm = (...args) => execFileSync('npm', args, { cwd: dir, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });
const [{ filename }] = JSON.parse(npm('pack', join(root, 'dist/npm'), '--json', '--loglevel=error'));
writeFileSync(join(dir, 'package.json'), '{ "private": true }');
npm('install', '--offline', '--no-audit', '--no-fund', '--loglevel=error', join(dir, filename));

// The same version of Node for all, regardless of the machine's: some of the tools need a newer one than the package.
const node = join(root, '.tools/light/node_modules/node24/bin/node');
const tests = weights.flatMap((weight) =>
  readdirSync(join(here, weight))
    .filter((file) => file.endsWith('.test.mjs'))
    .map((file) => join(here, weight, file)),
);
const { status } = spawnSync(node, ['--test', '--test-concurrency=2', '--test-timeout=900000', ...args, ...tests], {
  stdio: 'inherit',
  env: { ...process.env, LEAPGATE_TARBALL: join(dir, filename), LEAPGATE_INSTALLED: dir },
});
process.exitCode = status ?? 1;
