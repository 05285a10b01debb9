// The process that has started others as the store of their shared limiters: leases by messages. Its workers end with it, so that it has
// forgotten nothing that they know.

import { MemoryStore } from 'leapgate/shared/memory';
import { outermost, wrong } from './errors.js';

// The messages are objects with this property: all others are left alone.
const TAG = 'leapgate:lease';

// This process's store for its workers.
let memory;

// Tells the callers in a process apart.
const me = () => Math.floor(Math.random() * 2 ** 53);

async function answer(store, message, reply) {
  const asked = message?.[TAG];
  if (!Array.isArray(asked)) return;
  const [caller, number, key, request] = asked;
  try {
    reply({ [TAG]: [caller, number, await store.lease(key, request)] });
  } catch (error) {
    reply({ [TAG]: [caller, number, null, String(error?.message ?? error)] });
  }
}

// A worker may have ended: then its answer is lost.
const nothing = () => {};

export const serve = outermost('serve', (workers, store = (memory ??= new MemoryStore())) => {
  if (typeof store?.lease !== 'function') throw wrong('store', store, 'is not a store; use one, or leave it out');
  const serveOne = (worker, message) => void answer(store, message, (reply) => worker.send(reply, nothing));
  if (typeof workers?.on === 'function' && typeof workers.fork === 'function') workers.on('message', serveOne);
  else if (typeof workers?.on === 'function' && typeof workers.send === 'function') workers.on('message', (message) => serveOne(workers, message));
  else if (typeof workers?.on === 'function' && typeof workers.postMessage === 'function') {
    // A thread sends a port of its own, so that the user's messages and ours do not meet.
    workers.on('message', (message) => {
      const port = message?.[TAG];
      if (typeof port?.postMessage !== 'function') return;
      port.on('message', (message) => void answer(store, message, (reply) => port.postMessage(reply)));
      port.unref();
    });
  } else {
    throw wrong('workers', workers, 'are not workers; use `cluster` of node:cluster, a child process, or a Worker of node:worker_threads');
  }
  return store;
});

// What calls over a channel have in common: `send` sends a message, and calls back with an error if it cannot.
function storeOver(send, receive) {
  const [caller, calls] = [me(), new Map()];
  let last = 0;
  receive((message) => {
    const answered = message?.[TAG];
    if (!Array.isArray(answered) || answered[0] !== caller) return;
    const [, number, text, error] = answered;
    const call = calls.get(number);
    calls.delete(number);
    if (error === undefined) call?.resolve(text);
    else call?.reject(new Error(error));
  });
  return {
    lease: (key, request) =>
      new Promise((resolve, reject) => {
        const number = ++last;
        calls.set(number, { resolve, reject });
        send({ [TAG]: [caller, number, key, request] }, (error) => {
          if (error && calls.delete(number)) reject(error);
        });
      }),
  };
}

export const cluster = outermost('cluster', (port = undefined) => {
  if (port === undefined) {
    const { process } = globalThis;
    if (typeof process?.send !== 'function') {
      throw wrong('port', port, 'says where to send; call this in a worker of node:cluster or a child process, or pass `parentPort` in a thread');
    }
    return storeOver(
      (message, failed) => process.send(message, failed),
      (hear) => process.on('message', hear),
    );
  }
  if (typeof port?.postMessage !== 'function') throw wrong('port', port, 'is not a port; use `parentPort` of node:worker_threads');
  const { port1, port2 } = new MessageChannel();
  port.postMessage({ [TAG]: port2 }, [port2]);
  return storeOver(
    (message) => port1.postMessage(message),
    (hear) => {
      port1.on('message', hear);
      // An answer alone keeps no thread alive.
      port1.unref();
    },
  );
});
