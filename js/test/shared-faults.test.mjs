// Node.js processes and one Redis: the limit holds through faults of both.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import net from 'node:net';
import { after, test } from 'node:test';
import { mostWithinAny } from './http.mjs';
import { redisServer } from './redis.mjs';

const [LIMIT, WINDOW_MS] = [50, 500];
const node = new URL('faults-node.mjs', import.meta.url);
writeFileSync(
  node,
  `
import { Redis } from 'ioredis';
import { SharedLimiter } from 'leapgate/shared';
import { redis } from 'leapgate/shared/redis';
const [port, ms] = process.argv.slice(2).map(Number);
const client = new Redis({ port, host: '127.0.0.1', maxRetriesPerRequest: 0, retryStrategy: () => 20 });
client.on('error', () => {});
const of = { limit: ${LIMIT}, windowMs: ${WINDOW_MS}, whenDown: 'refuse', timeoutMs: 100 };
const limiter = new SharedLimiter({ id: 'all', store: redis(client), ...of });
const now = () => Number(process.hrtime.bigint()) / 1e6;
const admitted = [];
for (const end = now() + ms; now() < end; ) {
  const from = now();
  const { success } = await limiter.limit('a');
  if (success) admitted.push([from, now()]);
  else await new Promise((resolve) => setTimeout(resolve, 2));
}
process.send({ admitted, stats: limiter.stats() });
await limiter.close();
client.disconnect();
process.disconnect();
`,
);

// A proxy before the server that can drop all connections, and delay answers.
async function proxyBefore(port) {
  const sockets = new Set();
  const proxy = { delayMs: 0 };
  const server = net.createServer((near) => {
    const far = net.connect(port, '127.0.0.1');
    for (const [from, to] of [[near, far], [far, near]]) {
      sockets.add(from);
      from.on('error', () => to.destroy()).on('close', () => (sockets.delete(from), to.destroy()));
      from.on('data', (data) => setTimeout(() => to.destroyed || to.write(data), from === far ? proxy.delayMs : 0));
    }
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  proxy.port = server.address().port;
  proxy.drop = () => sockets.forEach((socket) => socket.destroy());
  after(() => (proxy.drop(), server.close()));
  return proxy;
}

const MS = 5000;

// What happens while the processes flood: at these milliseconds.
const FAULTS = {
  'a process that is killed': [[1500, ({ nodes }) => nodes[0].kill('SIGKILL')]],
  'a process that stands still': [[1000, ({ nodes }) => nodes[0].kill('SIGSTOP')], [1800, ({ nodes }) => nodes[0].kill('SIGCONT')]],
  'a server that stands still': [[1500, ({ server }) => server.pause()], [2500, ({ server }) => server.goOn()]],
  'a server that is killed and comes back empty': [[1500, ({ server }) => server.stop()], [1800, ({ server }) => server.start()]],
  'a network that drops connections and delays answers': [
    [1000, ({ proxy }) => proxy.drop()],
    [1500, ({ proxy }) => (proxy.delayMs = 30)],
    [2000, ({ proxy }) => proxy.drop()],
    [2500, ({ proxy }) => (proxy.delayMs = 150)],
    [3000, ({ proxy }) => (proxy.delayMs = 0)],
  ],
};

for (const [name, faults] of Object.entries(FAULTS)) {
  test(`${name}: no window has more than the limit, and it goes on by itself`, async () => {
    const server = await redisServer();
    const proxy = await proxyBefore(server.port);
    const nodes = [1, 2, 3].map(() => fork(node, [proxy.port, MS]));
    const reports = [];
    nodes.forEach((node) => node.on('message', (report) => reports.push(report)));
    for (const [at, act] of faults) setTimeout(() => act({ server, proxy, nodes }), at);
    await Promise.all(nodes.map((node) => new Promise((resolve) => node.once('exit', resolve))));
    const admitted = reports.flatMap(({ admitted }) => admitted);
    const most = mostWithinAny(WINDOW_MS, admitted);
    const end = Math.max(...admitted.map(([, at]) => at));
    const last = admitted.filter(([, at]) => at > end - 2 * WINDOW_MS).length;
    console.log(`${name}: ${admitted.length} passed, at most ${most} in any ${WINDOW_MS} ms (limit ${LIMIT}), ${last} in the last two windows`);
    assert.ok(most <= LIMIT, `${most} in ${WINDOW_MS} ms`);
    assert.ok(last >= LIMIT, `${last} in the last two windows`);
    for (const { stats } of reports) assert.equal(stats.isDown, false);
  });
}
