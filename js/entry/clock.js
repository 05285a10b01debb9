// The default clock: `performance.now()`, which no step of the system's clock moves. Tests fake `Date`, and many fakes leave
// `performance` alone: while `Date.now` is faked, the clock follows it by its differences. It never goes back.

import { forgetTimeOfDay } from './core.js';

// Fakes have a source, or are proxies, which have no name in theirs. Next.js wraps the real function in a bound one.
const isReal = ({ now }) => /^function now\(.*\[native/s.test(now) || /^bound/.test(now.name);

// The real `Date.now`, and `performance` with what `now` was then, once this has found `Date` without a fake: a fake of both begins
// `performance` at zero. Looking `performance` up for each reading would take a fifth of it.
let dateNow;
let timer;
let timerNow;
function look() {
  if (isReal(Date)) [dateNow, timer, timerNow] = [Date.now, performance, performance.now];
}
look();

let offset = 0; // of this clock to `performance.now()`
let latest = 0; // what it has read while `Date.now` was faked
let followed; // the latest time of the fake

export const clock = () => (Date.now === dateNow ? timer.now() + offset : follow());

// A fake that begins at zero is taken for that up to here.
const AFTER_ZERO = 1e11;

// How far a fake has been moved before its first reading: it began at the time of day, or at zero.
const movedBy = (ahead, now) => (ahead > 0 ? ahead : now < AFTER_ZERO ? now : 0);

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
    latest = dateNow === undefined ? now : timerNow.call(timer) + offset + movedBy(now - dateNow(), now);
    dateNow = undefined;
  } else latest += Math.max(0, now - followed);
  followed = now;
  return latest;
}
