// Shared by the places: projects with the package installed, programs that are stopped, and assertions about their output.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, extname, join } from 'node:path';
import { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import { claimsOf } from './claims.mjs';

const here = fileURLToPath(new URL('.', import.meta.url));
const TOOLS = fileURLToPath(new URL('../../../.tools', import.meta.url));

/** The package, packed; and a folder whose `node_modules` has it and nothing else. See run.mjs. */
export const { LEAPGATE_TARBALL: TARBALL, LEAPGATE_INSTALLED: INSTALLED } = process.env;

/** The folders with the packages of `light` and `heavy`. */
export const toolsOf = (weight) => join(TOOLS, weight);

/** A program of these packages, by its name in npm. */
export const bin = (weight, name) => join(TOOLS, weight, 'node_modules/.bin', name);

/** A package in these folders, or in another folder of .tools. */
export const tool = (name, path) => createRequire(join(TOOLS, name, 'package.json'))(path);

export const NODE20 = join(TOOLS, 'light/node_modules/node20/bin/node');
export const NODE24 = join(TOOLS, 'light/node_modules/node24/bin/node');

export const MANIFEST = JSON.parse(readFileSync(join(INSTALLED, 'node_modules/leapgate/package.json'), 'utf8'));

/** The exports of the package; and its exports for `import` only, which are not code or have to be given the module first. */
export const EXPORTS = Object.keys(MANIFEST.exports);
export const isBare = (path) => /\.(wasm|json)$|\/slim$/.test(path);

/** The exports that can be imported by name, and work at once. */
export const SUBPATHS = EXPORTS.filter((path) => !isBare(path)).map((path) =>
  path.replace('.', 'leapgate'),
);

const { transformSync } = tool('esbuild', 'esbuild');

// A module that exports `claims`, which returns the claims that hold for the subpaths.
function appOf(subpaths) {
  const imports = subpaths.map((path, i) => `import * as module${i} from '${path}';\n`).join('');
  const modules = subpaths.map((path, i) => `'${path}': module${i}`).join(', ');
  return `${imports}import { check, make } from './claims.mjs';
const modules = { ${modules} };
const made = make(modules);
export const claims = () => check(modules, made);
`;
}

/**
 * An empty project with the package installed, an `app.mjs` and `app.cjs` that check the claims, and the given files.
 * It resolves the tools of `within`: light or heavy.
 */
export function project(files = {}, { within, subpaths = SUBPATHS } = {}) {
  const parent = within === undefined ? tmpdir() : toolsOf(within);
  const dir = mkdtempSync(join(parent, 'leapgate-'));
  process.once('exit', () => rmSync(dir, { recursive: true, force: true, maxRetries: 5 }));
  cpSync(join(INSTALLED, 'node_modules'), join(dir, 'node_modules'), { recursive: true });
  const claims = readFileSync(join(here, 'claims.mjs'), 'utf8');
  const app = appOf(subpaths);
  const required = (text) => transformSync(text.replaceAll('claims.mjs', 'claims.cjs'), { format: 'cjs' }).code;
  const all = {
    'package.json': '{ "private": true, "type": "module" }',
    'claims.mjs': claims,
    'claims.cjs': required(claims),
    'app.mjs': app,
    'app.cjs': required(app),
    'main.mjs': "import { claims } from './app.mjs';\nconsole.log(JSON.stringify(await claims()));\n",
    'main.cjs': "require('./app.cjs').claims().then((held) => console.log(JSON.stringify(held)));\n",
    ...files,
  };
  for (const [name, text] of Object.entries(all)) {
    mkdirSync(dirname(join(dir, name)), { recursive: true });
    writeFileSync(join(dir, name), text);
  }
  return dir;
}

/** Asserts that a place has printed, or answered, all claims about the subpaths. */
export function assertHeld(answer, subpaths = SUBPATHS) {
  const held = typeof answer === 'string' ? JSON.parse(answer.trim().split('\n').at(-1)) : answer;
  assert.deepEqual(held, claimsOf(subpaths));
}

/** The lengths of the wasm modules in a folder and its subfolders. */
export const modulesIn = (dir) =>
  readdirSync(dir, { recursive: true })
    .filter((file) => file.endsWith('.wasm'))
    .map((file) => statSync(join(dir, file)).size)
    .sort();

const MODULE_OF_PROGRAM = statSync(join(INSTALLED, 'node_modules/leapgate/dist/cli/leapgate_bg.wasm')).size;

/** The lengths of the modules that the package's subpaths load: that of `npx leapgate` is not among them. */
export const MODULES = modulesIn(join(INSTALLED, 'node_modules/leapgate/dist')).filter((bytes) => bytes !== MODULE_OF_PROGRAM);

// Settings against telemetry, checks for updates, and colours.
const ENV = {
  ...process.env,
  CI: '1',
  NO_COLOR: '1',
  DO_NOT_TRACK: '1',
  DENO_NO_UPDATE_CHECK: '1',
  NEXT_TELEMETRY_DISABLED: '1',
  WRANGLER_SEND_METRICS: 'false',
  PATH: `${dirname(NODE24)}:${process.env.PATH}`,
};
delete ENV.NODE_TEST_CONTEXT; // Else a test runner would report to the tests that started it.

const running = new Set();

// Programs are stopped with their children.
function kill(child) {
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // The program has ended.
  }
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.once(signal, () => {
    running.forEach(kill);
    process.exit(1);
  });
}

/** Starts a program, in a group of its own; it is stopped after the tests. `heard` is its output so far. */
export function start(command, args, { cwd, env } = {}) {
  const child = spawn(command, args, { cwd, env: { ...ENV, ...env }, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const program = { child, heard: '' };
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (data) => (program.heard += data));
  running.add(child);
  program.ended = new Promise((resolve) => {
    const ended = (code) => (running.delete(child), resolve(code ?? -1));
    child.on('error', (error) => ((program.heard += error.message), ended()));
    child.on('close', ended);
  });
  program.stop = async () => {
    if (child.pid !== undefined) kill(child);
    await program.ended;
  };
  after(program.stop);
  return program;
}

// Without minified lines: runtimes show the line that throws.
const shown = ({ heard }) => heard.replace(/^(.{300}).*$/gm, '$1…');

/** Runs a program to its end, and returns its standard output. */
export async function run(command, args, { seconds = 60, ...options } = {}) {
  const program = start(command, args, options);
  let printed = '';
  program.child.stdout.on('data', (data) => (printed += data));
  const timer = setTimeout(program.stop, seconds * 1000);
  const code = await program.ended;
  clearTimeout(timer);
  assert.equal(code, 0, `${command} ${args.join(' ')} in ${seconds} s at most:\n${shown(program)}`);
  return printed;
}

/** Waits for an output of a program. */
export async function until(program, what, seconds = 60) {
  const deadline = Date.now() + seconds * 1000;
  let isOver = false;
  program.ended.then(() => (isOver = true));
  for (;;) {
    const found = what.exec(program.heard);
    if (found) return found;
    assert.ok(!isOver && Date.now() < deadline, `waited for ${what}:\n${shown(program)}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };

/** Serves the files of a folder on 127.0.0.1, and returns the address. */
export async function serve(root) {
  const server = createServer((request, response) => {
    const path = new URL(request.url, 'http://localhost').pathname;
    try {
      const bytes = readFileSync(join(root, path === '/' ? 'index.html' : path));
      response.setHeader('Content-Type', TYPES[extname(path)] ?? 'text/html');
      response.end(bytes);
    } catch {
      response.writeHead(404).end();
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}
