// One limit for the processes of a cluster, for child processes and for threads: real ones, some of which are killed.

import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { SharedLimiter } from 'leapgate/shared';
import { serve } from 'leapgate/shared/cluster';
import { mostWithinAny } from './http.mjs';

const [LIMIT, WINDOW_MS] = [100, 300];
const file = (name, text) => {
  const url = new URL(name, import.meta.url);
  writeFileSync(url, text);
  return url;
};

// Floods for so long, and tells between when and when it admitted requests: by the clock that all processes of a machine share.
const FLOOD = `
import { SharedLimiter } from 'leapgate/shared';
export async function flood(store, ms, admitted) {
  const limiter = new SharedLimiter({ id: 'all', limit: ${LIMIT}, windowMs: ${WINDOW_MS}, store, whenDown: 'refuse', timeoutMs: 2000 });
  const now = () => Number(process.hrtime.bigint()) / 1e6;
  for (const end = now() + ms; now() < end; ) {
    const from = now();
    const { success } = await limiter.limit('a');
    if (success) admitted([from, now()]);
    else await new Promise(setImmediate);
  }
  await limiter.close();
}
`;

file('flood.mjs', FLOOD);
const child = file(
  'flood-child.mjs',
  `
import { cluster } from 'leapgate/shared/cluster';
import { flood } from './flood.mjs';
process.on('message', () => {});
await flood(cluster(), Number(process.argv[2]), (at) => process.send({ at }));
process.disconnect();
`,
);
const thread = file(
  'flood-thread.mjs',
  `
import { parentPort, workerData } from 'node:worker_threads';
import { cluster } from 'leapgate/shared/cluster';
import { flood } from './flood.mjs';
await flood(cluster(parentPort), workerData, (at) => parentPort.postMessage({ at }));
`,
);
const primary = file(
  'flood-primary.mjs',
  `
import cluster from 'node:cluster';
import { cluster as store, serve } from 'leapgate/shared/cluster';
import { flood } from './flood.mjs';
if (cluster.isPrimary) {
  serve(cluster);
  const admitted = [];
  cluster.on('message', (worker, { at }) => at !== undefined && admitted.push(at));
  const workers = [1, 2, 3].map(() => cluster.fork());
  let left = workers.length;
  cluster.on('exit', () => --left === 0 && process.send({ admitted }));
  setTimeout(() => workers[0].process.kill('SIGKILL'), 700);
} else {
  await flood(store(), 1500, (at) => process.send({ at }));
  process.disconnect();
}
`,
);

// No window has more than the limit, and whole windows have much of that.
function assertHeld(admitted, ms) {
  const most = mostWithinAny(WINDOW_MS, admitted);
  assert.ok(most <= LIMIT, `${most} in ${WINDOW_MS} ms`);
  const least = 0.5 * LIMIT * (ms / (1.05 * WINDOW_MS));
  assert.ok(admitted.length >= least, `${admitted.length} in ${ms} ms, and at least ${least} have to pass`);
  console.log(`${admitted.length} passed in ${ms} ms, at most ${most} in any ${WINDOW_MS} ms (limit ${LIMIT})`);
}

const ended = (process) => new Promise((resolve) => process.once('exit', resolve));

test('a_cluster_holds_one_limit_while_a_worker_is_killed', async () => {
  const process = fork(primary);
  const admitted = await new Promise((resolve) => process.on('message', ({ admitted }) => resolve(admitted)));
  process.kill();
  assertHeld(admitted, 1500);
});

test('child_processes_hold_one_limit_with_their_parent_while_one_is_killed', async () => {
  const admitted = [];
  const children = [1, 2, 3].map(() => fork(child, ['1200']));
  const store = children.map((child) => serve(child))[0];
  children.forEach((child) => child.on('message', ({ at }) => at !== undefined && admitted.push(at)));
  setTimeout(() => children[1].kill('SIGKILL'), 600);
  // The parent answers itself at once.
  const own = new SharedLimiter({ id: 'all', limit: LIMIT, windowMs: WINDOW_MS, store });
  let isOver = false;
  const all = Promise.all(children.map(ended)).then(() => (isOver = true));
  while (!isOver) {
    const now = Number(process.hrtime.bigint()) / 1e6;
    if (own.limitNow('a').success) admitted.push([now, now]);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await all;
  assertHeld(admitted, 1200);
});

test('threads_hold_one_limit_while_one_is_stopped_and_keep_nothing_alive', async () => {
  const admitted = [];
  const threads = [1, 2].map(() => new Worker(thread, { workerData: 1000 }));
  threads.forEach((thread) => {
    serve(thread);
    thread.on('message', ({ at }) => at !== undefined && admitted.push(at));
  });
  setTimeout(() => threads[0].terminate(), 500);
  await Promise.all(threads.map(ended));
  assertHeld(admitted, 1000);
});

test('a_parent_may_serve_another_store_and_its_errors_reach_the_worker', async () => {
  const sent = [];
  const workers = { send: (message) => sent.push(message), on: (_, hear) => (workers.hear = hear) };
  serve(workers, { lease: () => Promise.reject(new Error('down')) });
  workers.hear({ 'leapgate:lease': [7, 1, 'key', 'request'] });
  workers.hear({ any: 'message of the user' });
  workers.hear(undefined);
  await new Promise(setImmediate);
  assert.deepEqual(sent, [{ 'leapgate:lease': [7, 1, null, 'down'] }]);
});

test('wrong_arguments_are_refused_with_one_sentence', async () => {
  const cure = 'use `cluster` of node:cluster, a child process, or a Worker of node:worker_threads';
  assert.throws(() => serve(5), { code: 'ERR_LEAPGATE_ARGUMENT', message: `workers: \`5\` are not workers; ${cure}` });
  assert.throws(() => serve({ on() {} }), { message: `workers: \`{…}\` are not workers; ${cure}` });
  assert.throws(() => serve({ on() {}, send() {} }, {}), { message: 'store: `{…}` is not a store; use one, or leave it out' });
  const { cluster } = await import('leapgate/shared/cluster');
  assert.throws(() => cluster(5), { message: 'port: `5` is not a port; use `parentPort` of node:worker_threads' });
});
