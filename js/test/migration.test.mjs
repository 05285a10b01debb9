// The tables of docs/migration.md: each row runs as printed, with the real peer beside an engine, in the same virtual time.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import Bottleneck from 'bottleneck';
import { Engine } from 'leapgate/flow';
import pLimit from 'p-limit';
import PQueue from 'p-queue';
import pThrottle from 'p-throttle';
import { mostInAny } from './http.mjs';
import { virtualTime } from './time.mjs';

const text = readFileSync(new URL('docs/migration.md', import.meta.url), 'utf8');
const [, printed] = /(async function schedule[^]*?\n\})\n```/.exec(text);
const TOLERANCE_MS = 20;

// How work is handed to a peer, unless a row says otherwise.
const CALLS = { bottleneck: 'limiter.schedule(call)', 'p-limit': 'limiter(call)', 'p-throttle': 'limiter(call)()', 'p-queue': 'limiter.add(call)' };

// The cells of a row, as the pieces of code in them.
const rows = text.split('\n## ').slice(1).flatMap((section) => {
  const [peer] = section.split('\n', 1);
  const lines = section.split('\n').filter((line) => /^\| `/.test(line));
  return lines.map((line) => ({ peer, line, cells: line.split(' | ').map((cell) => Array.from(cell.matchAll(/`([^`]+)`/g), ([, code]) => code)) }));
});

const evaluated = (code, scope) => new Function(...Object.keys(scope), `return (${code});`)(...Object.values(scope));

// Both sides in one virtual time. `start` begins a piece of work that takes so long; `log` has when each began, or that it was refused.
function sidesOf(t, peer, peerCode, rulesCode, settings = {}) {
  const time = virtualTime(t, ['setTimeout', 'setInterval', 'Date'], 1_800_000_000_000);
  const controller = new AbortController();
  const limiter = evaluated(peerCode, { Bottleneck, pLimit, pThrottle, PQueue, controller });
  const flowRules = [evaluated(rulesCode, {})].flat().map((rule) => ({ resource: 'api', ...rule }));
  const engine = new Engine({ flowRules }, { now: time.now, ...settings });
  t.after(() => engine.free());
  const schedule = evaluated(printed, { engine });
  const scope = { limiter, engine, schedule, controller };
  const side = (code) => {
    const log = [];
    const start = (i, ms = 100) => {
      const call = () => {
        log.push([i, time.ms]);
        return new Promise((resolve) => setTimeout(resolve, ms, i));
      };
      return Promise.resolve(evaluated(code, { ...scope, call, i })).catch((error) => log.push([i, 'refused', error]));
    };
    return { log, start };
  };
  return { time, scope, theirs: (code = CALLS[peer]) => side(code), ours: (code = 'schedule(call)') => side(code) };
}

// Both have started the same at the same times, and refused the same.
function assertAlike(theirs, ours) {
  const shown = JSON.stringify({ theirs, ours });
  const [started, other] = [theirs, ours].map((log) => log.filter(([, at]) => at !== 'refused'));
  const [refused, otherRefused] = [theirs, ours].map((log) => log.filter(([, at]) => at === 'refused').map(([i]) => i).sort());
  assert.deepEqual(other.map(([i]) => i), started.map(([i]) => i), shown);
  assert.deepEqual(otherRefused, refused, shown);
  started.forEach(([, at], n) => assert.ok(Math.abs(at - other[n][1]) <= TOLERANCE_MS, shown));
}

// Starts so many at once on both sides, does something meanwhile, and compares after so long.
async function compared(sides, [theirs, ours], { jobs = 6, ms, meanwhile = () => {}, passMs = 5000 } = {}) {
  for (let i = 0; i < jobs; i++) for (const side of [theirs, ours]) side.start(i, ms);
  await sides.time.pass(50);
  await meanwhile(sides.scope);
  await sides.time.pass(passMs);
  assertAlike(theirs.log, ours.log);
  return theirs.log;
}

// The rows that change or ask something later, by what the peer is told: the settings of both sides, and what is done.
const CONCURRENCY = { bottleneck: 'new Bottleneck({ maxConcurrent: 1 })', 'p-limit': 'pLimit(1)', 'p-queue': 'new PQueue({ concurrency: 1 })' };
const ONE = "{ grade: 'concurrency', count: 1 }";

// A row whose two cells are done meanwhile, to work that waits for one place.
async function changesAlike(t, { peer, cells: [[theirs], [ours]] }) {
  const sides = sidesOf(t, peer, CONCURRENCY[peer], ONE);
  const meanwhile = (scope) => [theirs, ours].forEach((code) => evaluated(code, scope));
  const log = await compared(sides, [sides.theirs(), sides.ours()], { meanwhile });
  assert.equal(log.filter(([, at]) => at > 45 && at < 60).length, 2, 'at once');
}

// A row whose cells are asked for the same meanwhile; a promise also when it resolves.
async function asksAlike(t, { peer, cells: [[theirs], [ours]] }) {
  const isOfThrottle = peer === 'p-throttle';
  const sides = sidesOf(t, peer, isOfThrottle ? 'pThrottle({ limit: 1, interval: 1000 })' : CONCURRENCY[peer], isOfThrottle ? "{ count: 1, window: 'sentinel', sampleCount: 1 }" : ONE);
  if (isOfThrottle) sides.scope.throttled = sides.scope.limiter((call) => call());
  const answers = [];
  const ask = (scope) =>
    [theirs, ours].map(async (code, i) => {
      const answer = await evaluated(code, scope);
      answers[i] = answer ?? sides.time.ms;
    });
  const logs = [sides.theirs(isOfThrottle ? 'throttled(call)' : undefined), sides.ours()];
  let asked;
  await compared(sides, logs, { meanwhile: (scope) => void (asked = ask(scope)) });
  await Promise.all(asked);
  assert.ok(answers[0] === answers[1] || (answers[0] > 600 && Math.abs(answers[0] - answers[1]) <= TOLERANCE_MS), JSON.stringify(answers));
}

const CASES = {
  ...Object.fromEntries(
    ['queued()', 'counts().EXECUTING', 'activeCount', 'pendingCount', 'size', 'pending', 'onIdle()', 'stop({ dropWaitingJobs: false })'].map((code) => [`limiter.${code}`, asksAlike]),
  ),
  'throttled.queueSize': asksAlike,
  'limiter.stop()': async (t, { peer, cells: [[theirs], [ours]] }) => {
    const sides = sidesOf(t, peer, CONCURRENCY[peer], ONE);
    const logs = [sides.theirs(), sides.ours()];
    await compared(sides, logs, { meanwhile: (scope) => [theirs, ours].forEach((code) => void evaluated(code, scope)) });
    for (const { log } of logs) assert.deepEqual(log.map(([, at]) => typeof at), ['number', ...Array(5).fill('string')]);
  },
  'limiter.updateSettings({ maxConcurrent: 3 })': changesAlike,
  'limiter.concurrency = 3': changesAlike,
  // It also spaces its calls.
  'pThrottle({ limit: 3, interval: 1000, strict: true })': async (t, { peer, cells: [[theirs], [ours]] }) => {
    const sides = sidesOf(t, peer, theirs, ours);
    for (const { log, start } of [sides.theirs(), sides.ours()]) {
      for (let i = 0; i < 9; i++) start(i);
      await sides.time.pass(5000);
      const times = log.map(([, at]) => at - log[0][1]);
      assert.equal(mostInAny(1000, times), 3);
      assert.deepEqual([times.length, times.at(-1) < 2700], [9, true]);
    }
  },
  'limiter.clearQueue()': async (t, { peer, cells: [[theirs], [ours, call]] }) => {
    const sides = sidesOf(t, peer, 'pLimit({ concurrency: 1, rejectOnClear: true })', ONE);
    const logs = [sides.theirs(), sides.ours(call)];
    await compared(sides, logs, { meanwhile: (scope) => [theirs, ours].forEach((code) => evaluated(code, scope)) });
    for (const { log } of logs) assert.deepEqual(log.map(([, at]) => at), [0, ...Array(5).fill('refused')]);
    assert.ok(logs.every(({ log }) => log.slice(1).every(([, , { name }]) => name === 'AbortError')));
  },
  'pThrottle({ limit: 1, interval: 1000, signal: controller.signal })': async (t, { peer, cells: [[theirs], [ours, call]] }) => {
    const sides = sidesOf(t, peer, theirs, ours);
    const logs = [sides.theirs(), sides.ours(call)];
    await compared(sides, logs, { jobs: 3, meanwhile: ({ controller }) => controller.abort('mine') });
    for (const { log } of logs) assert.deepEqual(log, [[0, 0], [1, 'refused', 'mine'], [2, 'refused', 'mine']]);
  },
  'limiter.add(call, { signal: controller.signal })': async (t, { peer, cells: [[theirs, add], [ours, call]] }) => {
    const sides = sidesOf(t, peer, theirs, ours);
    for (const [plain, signalled] of [[sides.theirs(), sides.theirs(add)], [sides.ours(), sides.ours(call)]]) {
      const running = plain.start(0);
      for (let i = 1; i < 5; i++) signalled.start(i);
      await sides.time.pass(50);
      sides.scope.controller.abort('mine');
      assert.equal(await sides.time.until(running), 0);
      assert.deepEqual(signalled.log, [1, 2, 3, 4].map((i) => [i, 'refused', 'mine']));
    }
  },
  'throttled.isEnabled = false': async (t, { peer, cells: [[theirs], [ours]] }) => {
    const sides = sidesOf(t, peer, 'pThrottle({ limit: 1, interval: 1000 })', '{ count: 1 }');
    const disabled = `(() => { const throttled = limiter(call); ${theirs}; return throttled(); })()`;
    const log = await compared(sides, [sides.theirs(disabled), sides.ours(ours)]);
    assert.deepEqual(log.map(([, at]) => at), Array(6).fill(0));
  },
  'new Bottleneck({ maxConcurrent: 1, highWater: 2, strategy: Bottleneck.strategy.OVERFLOW })': async (t, { peer, cells: [[theirs], [ours, engine]] }) => {
    const [, settings] = /new Engine\(rules, (.*)\)/.exec(engine);
    const sides = sidesOf(t, peer, theirs, ours, evaluated(settings, {}));
    const logs = [sides.theirs(), sides.ours()];
    await compared(sides, logs, {});
    assert.deepEqual(logs[1].log.filter(([, at]) => at === 'refused').map(([i, , { code }]) => [i, code]), [3, 4, 5].map((i) => [i, 'ERR_LEAPGATE_FULL']));
  },
};

// Any other row has settings, and may have a way to call: work that is started at once begins at the same times.
async function startsAlike(t, { peer, cells: [[theirs, theirCall], [ours, ourCall]] }) {
  const sides = sidesOf(t, peer, theirs, ours);
  const log = await compared(sides, [sides.theirs(theirCall), sides.ours(ourCall)]);
  assert.equal(log.filter(([, at]) => at !== 'refused').length, 6);
  assert.equal(log.at(-1)[1] !== 0, ours !== '[]', 'the limit limits');
}

for (const row of rows) {
  test(`${row.peer}: ${row.cells[0].join(', ')}`, (t) => (CASES[row.cells[0].at(-1)] ?? startsAlike)(t, row));
}

test('each case has a row', () => {
  assert.ok(rows.length > 20);
  const told = rows.map(({ cells: [codes] }) => codes.at(-1));
  assert.deepEqual(Object.keys(CASES).filter((code) => !told.includes(code)), []);
});
