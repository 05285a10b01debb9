// Workers, as Miniflare runs them: the real workerd, with the module beside the bundle, and the limiter at module scope.
import { join } from 'node:path';
import test, { after } from 'node:test';
import { assertHeld, tool } from '../place.mjs';
import { bundled } from './workerd.mjs';

const WORKER = `
import { claims } from './app.mjs';
export default { fetch: async () => Response.json(await claims()) };
`;

test('Miniflare: a Worker', async () => {
  const { Miniflare } = tool('light', 'miniflare');
  const modulesRoot = await bundled(WORKER);
  const miniflare = new Miniflare({
    host: '127.0.0.1',
    port: 0,
    cf: false,
    compatibilityDate: '2026-04-01',
    modulesRoot,
    modulesRules: [{ type: 'CompiledWasm', include: ['**/*.wasm'] }],
    modules: true,
    scriptPath: join(modulesRoot, 'worker.js'),
  });
  after(() => miniflare.dispose());
  const response = await miniflare.dispatchFetch('http://localhost/');
  assertHeld(await response.json());
});
