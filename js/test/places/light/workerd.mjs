// A Worker in workerd, the runtime of Workers, and clients that leave it.
import { readdirSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { join } from 'node:path';
import { project, start, tool, toolsOf, until } from '../place.mjs';

const { default: workerd } = tool('light', 'workerd');

const module = (file) => `(name = "${file}", ${file.endsWith('.wasm') ? 'wasm' : 'esModule'} = embed "${file}")`;

/** Runs the Worker in a folder, its `main` and all wasm modules, and returns its address. */
export async function serveWorker(dir, main, flags = []) {
  const files = [main, ...readdirSync(dir).filter((file) => file.endsWith('.wasm'))];
  const config = `using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  v8Flags = ["--expose-gc"],
  services = [(name = "main", worker = .worker)],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "main")],
);
const worker :Workerd.Worker = (
  modules = [${files.map(module).join(', ')}],
  compatibilityDate = "2026-04-01",
  compatibilityFlags = ${JSON.stringify(flags)},
);
`;
  writeFileSync(join(dir, 'config.capnp'), config);
  const program = start(workerd, ['serve', 'config.capnp', '--control-fd=1'], { cwd: dir });
  const [, port] = await until(program, /"port":(\d+)/);
  return `http://127.0.0.1:${port}`;
}

/** Bundles a Worker with this source, and other modules. Returns the folder of `worker.js` and of the wasm modules. */
export async function bundled(text, files = {}) {
  const { build } = tool('esbuild', 'esbuild');
  const dir = project({ 'worker.mjs': text, ...files });
  await build({
    absWorkingDir: dir,
    entryPoints: ['worker.mjs'],
    outdir: 'out',
    bundle: true,
    format: 'esm',
    conditions: ['workerd', 'worker', 'browser'],
    loader: { '.wasm': 'copy' },
    nodePaths: [join(toolsOf('frameworks'), 'node_modules')],
  });
  return join(dir, 'out');
}

/** Runs a Worker with this source, other modules and flags: `{ url, get }`, where `get` reads JSON. */
export async function worker(text, { files, flags } = {}) {
  const url = await serveWorker(await bundled(text, files), 'worker.js', flags);
  return { url, get: async (path) => (await fetch(url + path)).json() };
}

/** A client that resets its connection when it has an answer, or when `early` resolves before. */
export function leave(url, early) {
  return new Promise((resolve, reject) => {
    const request = http.get(url, { agent: false });
    const go = () => {
      request.socket.resetAndDestroy();
      resolve();
    };
    request.on('error', reject);
    request.on('response', (response) => response.on('error', () => {}).once('data', go));
    early?.then(go, reject);
  });
}
