// Vite: its development server, its build, and its build for servers.
import { join } from 'node:path';
import test, { after } from 'node:test';
import { NODE20, assertHeld, project, run, serve, tool } from '../place.mjs';
import { HTML, PAGE, assertHeldAt } from './browser.mjs';

const FILES = { 'page.mjs': PAGE, 'index.html': HTML };
const options = (root) => ({ root, configFile: false, logLevel: 'error' });

test('Vite: development', async () => {
  const { createServer } = tool('heavy', 'vite');
  const server = await createServer({
    ...options(project(FILES, { within: 'heavy' })),
    server: { host: '127.0.0.1', port: 0 },
  });
  after(() => server.close());
  await server.listen();
  await assertHeldAt(`http://127.0.0.1:${server.httpServer.address().port}`);
});

test('Vite: build', async () => {
  const { build } = tool('heavy', 'vite');
  const dir = project(FILES, { within: 'heavy' });
  await build(options(dir));
  await assertHeldAt(await serve(join(dir, 'dist')));
});

test('Vite: build for a server', async () => {
  const { build } = tool('heavy', 'vite');
  const dir = project({}, { within: 'heavy' });
  await build({ ...options(dir), build: { ssr: 'main.mjs' }, ssr: { noExternal: true } });
  assertHeld(await run(NODE20, [join(dir, 'dist/main.js')]));
});
