// How many requests of adversaries pass, by a clock that moves only from request to request. usage: node accuracy.mjs
import { mock } from 'node:test';
import { ADVERSARIES, LIMIT, STEADY, WINDOW_MS, worst } from '../test/adversaries.mjs';
import { table } from './table.mjs';

// On a boundary of windows, at any time of day.
const EPOCH = 1_700_000_000_000;
mock.timers.enable({ apis: ['Date', 'setTimeout', 'setInterval'], now: EPOCH });
performance.now = () => Date.now() - EPOCH;
const { SUBJECTS, MORE } = await import('./subjects.mjs');

async function admitted(make, instants) {
  // One window after all earlier instants.
  mock.timers.tick(3 * WINDOW_MS - (Date.now() % WINDOW_MS));
  const start = Date.now();
  const ask = make(LIMIT, WINDOW_MS, 1000);
  const passed = [];
  for (const instant of instants) {
    mock.timers.tick(start + instant - Date.now());
    if (await ask('a')) passed.push(instant);
  }
  return passed;
}

const rows = [];
for (const [name, make] of Object.entries({ ...SUBJECTS, ...MORE })) {
  const steady = (await admitted(make, STEADY)).length;
  const most = [];
  for (const instants of Object.values(ADVERSARIES)) most.push(worst(await admitted(make, instants)));
  rows.push([name, steady, ...most]);
}
rows.sort(([a], [b]) => b.startsWith('leapgate') - a.startsWith('leapgate'));
const head = [`${LIMIT} per ${WINDOW_MS / 1000} s`, 'steady, of 3000', ...Object.keys(ADVERSARIES).map((name) => `worst window, ${name}`)];
console.log(table(head, rows));
process.exit();
