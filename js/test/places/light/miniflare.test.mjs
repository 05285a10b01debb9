// Workers, as Miniflare runs them: the real workerd, with the module beside the bundle, and the limiter at module scope.
import { join } from 'node:path';
import test, { after } from 'node:test';
import { assertHeld, project, tool } from '../place.mjs';

const WORKER = `
import { claims } from './app.mjs';
export default { fetch: async () => Response.json(await claims()) };
`;

test('Miniflare: a Worker', async () => {
  const { build } = tool('esbuild', 'esbuild');
  const { Miniflare } = tool('light', 'miniflare');
  const dir = project({ 'worker.mjs': WORKER });
  const outfile = join(dir, 'out/worker.js');
  const conditions = ['workerd', 'worker', 'browser'];
  const loader = { '.wasm': 'copy' };
  await build({ absWorkingDir: dir, entryPoints: ['worker.mjs'], bundle: true, format: 'esm', conditions, loader, outfile });
  const miniflare = new Miniflare({
    host: '127.0.0.1',
    port: 0,
    cf: false,
    compatibilityDate: '2026-04-01',
    modulesRoot: join(dir, 'out'),
    modulesRules: [{ type: 'CompiledWasm', include: ['**/*.wasm'] }],
    modules: true,
    scriptPath: outfile,
  });
  after(() => miniflare.dispose());
  const response = await miniflare.dispatchFetch('http://localhost/');
  assertHeld(await response.json());
});
