// The default clock: `performance.now()`, which no step of the system's clock moves. Tests fake `Date`, and many fakes leave
// `performance` alone: while `Date.now` is faked, the clock follows it by its differences. It never goes back.

import { forgetTimeOfDay } from './core.js';

// Fakes have a source, or are proxies, which have no name in theirs. Next.js wraps the real function in a bound one.
const isReal = (call) => /^function now\(.*\[native code\]/s.test(Function.prototype.toString.call(call)) || /^bound /.test(call.name);

// The real `Date.now` and `performance.now`, once this has found `Date` without a fake.
let dateNow;
let timerNow;
function look() {
  if (!isReal(Date.now)) return;
  dateNow = Date.now;
  timerNow = performance.now.bind(performance);
}
look();

let offset = 0; // of this clock to `performance.now()`
let latest = 0; // what it has read while `Date.now` was faked
let followed; // the latest time of the fake

export const clock = () => (Date.now === dateNow ? performance.now() + offset : follow());

function follow() {
  if (isReal(Date.now)) {
    if (followed !== undefined) offset = Math.max(offset, latest - performance.now());
    followed = undefined;
    forgetTimeOfDay();
    look();
    return performance.now() + offset;
  }
  const now = Date.now();
  if (followed === undefined) {
    // The fake may have come with one of `performance`.
    const real = timerNow === undefined ? now : Math.max(timerNow(), performance.now()) + offset;
    latest = Math.max(latest, real);
    dateNow = undefined;
  } else latest += Math.max(0, now - followed);
  if (!(now >= followed)) forgetTimeOfDay();
  followed = now;
  return latest;
}
