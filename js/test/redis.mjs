// A real redis-server on 127.0.0.1, and what stands before it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after } from 'node:test';

// A port that is free now.
async function freePort() {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts a server that keeps nothing on disk: `{ port, stop, start, pause, goOn }`; it is stopped after the tests. */
export async function redisServer() {
  assert.ok(process.env.LEAPGATE_REDIS, 'LEAPGATE_REDIS is the path of redis-server: ./build.sh test npm installs it and sets this');
  const port = await freePort();
  const dir = mkdtempSync(join(tmpdir(), 'leapgate-redis-'));
  const server = { port, child: undefined };
  server.start = async () => {
    const args = ['--port', String(port), '--bind', '127.0.0.1', '--save', '', '--dir', dir];
    server.child = spawn(process.env.LEAPGATE_REDIS, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    await new Promise((resolve, reject) => {
      let printed = '';
      server.child.stdout.on('data', (data) => /[Rr]eady to accept/.test((printed += data)) && resolve());
      server.child.once('exit', () => reject(new Error(printed)));
    });
  };
  server.stop = async () => {
    if (server.child.exitCode !== null || server.child.signalCode !== null) return;
    const ended = new Promise((resolve) => server.child.once('exit', resolve));
    server.child.kill('SIGKILL');
    await ended;
  };
  server.pause = () => server.child.kill('SIGSTOP');
  server.goOn = () => server.child.kill('SIGCONT');
  await server.start();
  after(async () => {
    await server.stop();
    rmSync(dir, { recursive: true, force: true });
  });
  return server;
}

/** Serves the REST form of Upstash before a server of Redis, to which `call` sends a command. Returns the address. */
export async function restBefore(call) {
  const server = http.createServer(async (request, response) => {
    let body = '';
    for await (const data of request) body += data;
    const encoded = (text) => (request.headers['upstash-encoding'] === 'base64' ? Buffer.from(text).toString('base64') : text);
    const run = (command) =>
      call(command).then(
        (result) => ({ result: encoded(result) }),
        (error) => ({ error: error.message }),
      );
    // Commands of one turn of the event loop come together.
    const commands = JSON.parse(body);
    const answer = await (Array.isArray(commands[0]) ? Promise.all(commands.map(run)) : run(commands));
    response.writeHead(answer.error === undefined ? 200 : 400, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${server.address().port}`;
}
