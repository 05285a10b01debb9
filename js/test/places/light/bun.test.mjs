// Bun.
import assert from 'node:assert/strict';
import test from 'node:test';
import { assertHeld, bin, project, run, start, until } from '../place.mjs';
import { SHOWN, assertShown } from './shown.mjs';
import { EXPECTED, SERVER, answersOf } from './websocket.mjs';

for (const main of ['main.mjs', 'main.cjs']) {
  test(`Bun: ${main === 'main.mjs' ? 'import' : 'require'}`, async () => {
    assertHeld(await run(bin('light', 'bun'), ['--no-install', main], { cwd: project() }));
  });
}

test('Bun: a console shows the name and the limits of an object', async () => {
  assertShown(await run(bin('light', 'bun'), ['--no-install', 'shown.mjs'], { cwd: project({ 'shown.mjs': SHOWN }) }));
});

// In Bun a request that becomes a WebSocket has no response. An error then ends the server a moment later.
test('Bun: a WebSocket behind leapgate/fetch', async () => {
  const server = `
    import { handle } from './handle.mjs';
    const fetch = handle((request, server) => (server.upgrade(request) ? undefined : new Response('hello')));
    const websocket = { message: (socket, text) => void socket.send(\`echo \${text}\`) };
    console.log(\`port \${Bun.serve({ hostname: '127.0.0.1', port: 0, fetch, websocket }).port}\`);
  `;
  const cwd = project({ 'handle.mjs': SERVER, 'server.mjs': server });
  const program = start(bin('light', 'bun'), ['--no-install', 'server.mjs'], { cwd });
  const [said, port] = await until(program, /port (\d+)\n/);
  assert.deepEqual(await answersOf(`http://127.0.0.1:${port}`), EXPECTED);
  assert.equal(program.heard, said, 'no error was printed');
});
