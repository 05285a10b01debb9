// The tables of docs/migration.md: each row runs as printed, with the real peer beside an engine, in the same virtual time.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import test from 'node:test';
import Bottleneck from 'bottleneck';
import { Engine } from 'leapgate/engine';
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

// The two logs tell the same.
function assertAlike(theirs, ours) {
  const shown = JSON.stringify({ theirs, ours });
  assert.deepEqual(ours.map(([i]) => i), theirs.map(([i]) => i), shown);
  ours.forEach(([, at], n) => {
    const other = theirs[n][1];
    assert.ok(at === other || Math.abs(at - other) <= TOLERANCE_MS, shown);
  });
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

const CASES = {
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
  assert.equal(log.length, 6);
  assert.equal(log.at(-1)[1] > 0, ours !== '[]', 'the limit limits');
}

for (const row of rows) {
  test(`${row.peer}: ${row.cells[0].join(', ')}`, (t) => (CASES[row.cells[0][0]] ?? startsAlike)(t, row));
}

test('each case has a row', () => {
  assert.ok(rows.length > 20);
  const told = rows.map(({ cells: [[code]] }) => code);
  assert.deepEqual(Object.keys(CASES).filter((code) => !told.includes(code)), []);
});
