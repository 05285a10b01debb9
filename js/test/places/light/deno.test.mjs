// Deno, with no permission at all.
import assert from 'node:assert/strict';
import test from 'node:test';
import { join } from 'node:path';
import { assertHeld, bin, project, run } from '../place.mjs';
import { SHOWN, assertShown } from './shown.mjs';
import { EXPECTED, SERVER, answersOf } from './websocket.mjs';

const ARGS = ['run', '--no-prompt', '--no-remote', '--no-lock', '--node-modules-dir=manual'];
const deno = (cwd, ...args) => run(bin('light', 'deno'), [...ARGS, ...args], { cwd, env: { DENO_DIR: join(cwd, '.deno') } });

for (const main of ['main.mjs', 'main.cjs']) {
  test(`Deno: ${main === 'main.mjs' ? 'import' : 'require'}`, async () => {
    const permissions = main === 'main.mjs' ? [] : ['--allow-read'];
    assertHeld(await deno(project(), ...permissions, main));
  });
}

test('Deno: a console shows the name and the limits of an object', async () => {
  assertShown(await deno(project({ 'shown.mjs': SHOWN }), 'shown.mjs'));
});

test('Deno: a WebSocket behind leapgate/fetch', async () => {
  const server = `
    import { handle } from './handle.mjs';
    const answer = (request) => {
      if (request.headers.get('upgrade') !== 'websocket') return new Response('hello');
      const { socket, response } = Deno.upgradeWebSocket(request);
      socket.onmessage = ({ data }) => socket.send(\`echo \${data}\`);
      return response;
    };
    const server = Deno.serve({ hostname: '127.0.0.1', port: 0, onListen() {} }, handle(answer));
    ${answersOf}
    console.log(JSON.stringify(await answersOf(\`http://127.0.0.1:\${server.addr.port}\`)));
    Deno.exit();
  `;
  const cwd = project({ 'handle.mjs': SERVER, 'server.mjs': server });
  assert.deepEqual(JSON.parse(await deno(cwd, '--allow-net=127.0.0.1', 'server.mjs')), EXPECTED);
});
