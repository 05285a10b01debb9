// Shared by the tests of the adapters: servers on 127.0.0.1, clients, a clock, and the instants of admitted requests.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import http from 'node:http';
import { after } from 'node:test';

// A clock that each request moves by one step: no test waits for the real clock.
export function stepClock(stepMs = 1) {
  const clock = { ms: 0, admitted: [] };
  clock.now = () => clock.ms;
  clock.step = () => (clock.ms += stepMs);
  clock.admit = () => clock.admitted.push(clock.ms);
  return clock;
}

// Starts a server and returns its address; it is closed after the tests.
export async function listen(server) {
  server.listen?.(0, '127.0.0.1');
  if (!server.listening) await once(server, 'listening');
  after(() => {
    server.close();
    server.closeAllConnections?.();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

const agent = new http.Agent({ keepAlive: true, maxSockets: 64 });
after(() => agent.destroy());

// Sends a request and reads the whole response.
export function get(url, { headers = {}, method = 'GET' } = {}) {
  return new Promise((resolve, reject) => {
    const request = http.request(url, { agent, headers, method }, async (response) => {
      let body = '';
      try {
        for await (const chunk of response) body += chunk;
        resolve({ status: response.statusCode, headers: response.headers, body });
      } catch (error) {
        reject(error);
      }
    });
    request.on('error', reject);
    request.end();
  });
}

// Sends so many requests by so many clients at once, and returns the statuses.
export async function flood(ask, requests, clients = 32) {
  const statuses = [];
  let left = requests;
  const client = async () => {
    while (left-- > 0) statuses.push((await ask()).status);
  };
  await Promise.all(Array.from({ length: clients }, client));
  return statuses;
}

// The most instants in any interval of this length, at any alignment.
export function mostInAny(windowMs, instants) {
  let [most, first] = [0, 0];
  instants.forEach((instant, last) => {
    while (instants[first] <= instant - windowMs) first++;
    most = Math.max(most, last - first + 1);
  });
  return most;
}

// The same, of admissions that have each happened at some time from the one to the other: one counts in an interval that has both.
export function mostWithinAny(windowMs, spans) {
  const within = ([start]) => spans.filter(([from, to]) => from >= start && to < start + windowMs).length;
  return Math.max(...spans.map(within));
}

// Asserts that a flood was held to the limit, and not below it: after each window as much passes again.
export function assertHeld(clock, statuses, { limit, windowMs }) {
  const { admitted, ms } = clock;
  const count = (status) => statuses.filter((other) => other === status).length;
  const most = mostInAny(windowMs, admitted);
  assert.ok(most <= limit, `${most} in ${windowMs} ms, and the limit is ${limit}`);
  const least = limit * Math.floor(ms / (windowMs * 1.1));
  assert.ok(admitted.length >= least, `${admitted.length} in ${ms} ms, and at least ${least} have to pass`);
  assert.deepEqual(
    { passed: count(200), refused: count(429) },
    { passed: admitted.length, refused: statuses.length - admitted.length },
  );
  console.log(
    `${admitted.length} of ${statuses.length} passed in ${ms} ms, at most ${most} in any ${windowMs} ms (limit ${limit})`,
  );
}

// A connection whose client hangs up on `leave`, which returns when the server has noticed.
export async function visitor(url, path) {
  const { port } = new URL(url);
  const request = http.get({ host: '127.0.0.1', port, path, agent: false });
  request.on('error', () => {});
  const responded = new Promise((resolve) => request.on('response', resolve));
  return { responded, leave: () => request.destroy() };
}

// Waits until a condition holds: each turn of the loop gives the server's sockets a turn.
export async function until(isSo, what) {
  for (let turns = 0; !isSo(); turns++) {
    assert.ok(turns < 100_000, `waited for: ${what}`);
    await new Promise(setImmediate);
  }
}

// The warnings of this process during an action.
export async function warningsOf(what) {
  const warnings = [];
  const listener = ({ name, code, message }) => name === 'LeapgateWarning' && warnings.push({ code, message });
  process.on('warning', listener);
  try {
    await what();
    await new Promise(setImmediate);
  } finally {
    process.off('warning', listener);
  }
  return warnings;
}
