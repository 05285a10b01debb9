// The default clock: `performance.now()`, which no step of the system's clock moves. Tests fake `Date`, and many fakes leave
// `performance` alone: while `Date.now` is faked, the clock follows it by its differences. It never goes back.

import { forgetTimeOfDay } from './core.js';

// Fakes have a source, or are proxies, which have no name in theirs. Next.js wraps the real function in a bound one.
const isReal = ({ now }) => /^function now\(.*\[native/s.test(now) || /^bound/.test(now.name);

// The real `Date.now` and `performance`, once this has found `Date` without a fake. Looking `performance` up for each reading would take
// a fifth of it.
let dateNow;
let timer;
function look() {
  if (isReal(Date)) [dateNow, timer] = [Date.now, performance];
}
look();

let offset = 0; // of this clock to `performance.now()`
let latest = 0; // what it has read while `Date.now` was faked
let followed; // the latest time of the fake

export const clock = () => (Date.now === dateNow ? timer.now() + offset : follow());

function follow() {
  forgetTimeOfDay();
  if (isReal(Date)) {
    look();
    if (followed !== undefined) offset = Math.max(offset, latest - timer.now());
    followed = undefined;
    return clock();
  }
  const now = Date.now();
  if (followed === undefined) {
    latest = Math.max(latest, timer === undefined ? now : timer.now() + offset);
    dateNow = undefined;
  } else latest += Math.max(0, now - followed);
  followed = now;
  return latest;
}
