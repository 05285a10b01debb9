// Installs the package in dist/npm as users would, and runs the tests beside this file on it. Arguments are passed on to node's test
// runner.
import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = join(here, '../..');
const dir = mkdtempSync(join(tmpdir(), 'leapgate-'));
process.on('exit', () => rmSync(dir, { recursive: true }));
const npm = (...args) => execFileSync('npm', args, { cwd: dir, encoding: 'utf8', stdio: ['ignore', 'pipe', 'inherit'] });

// Frameworks and clients, at the versions of package.json beside this file: build.sh has installed them.
cpSync(join(root, '.tools/frameworks'), dir, { recursive: true });
const [{ filename }] = JSON.parse(npm('pack', join(root, 'dist/npm'), '--json', '--loglevel=error'));
npm('install', '--prefix', dir, '--offline', '--no-audit', '--no-fund', '--loglevel=error', join(dir, filename));
cpSync(here, dir, { recursive: true });
for (const name of ['scenarios', 'vectors', 'refusals.json']) cpSync(join(root, 'tests', name), join(dir, name), { recursive: true });
cpSync(join(root, 'docs'), join(dir, 'docs'), { recursive: true });
for (const name of ['src', 'lib']) cpSync(join(here, '..', name), join(dir, 'sources', name), { recursive: true });
const tests = readdirSync(dir).filter((file) => file.endsWith('.test.mjs'));
const env = { ...process.env, LEAPGATE_REDIS: join(root, '.tools/redis/redis-server'), LEAPGATE_NATIVE: join(root, 'dist/leapgate') };
const { status } = spawnSync(process.execPath, ['--test', ...process.argv.slice(2), ...tests], { cwd: dir, stdio: 'inherit', env });
process.exitCode = status ?? 1;
