// `onRefused`, sampled: a flood of requests must not become a flood of logs.

import { checkFunction } from './errors.js';
import { warn } from './warn.js';

// How many calls any second has, at most; and each of them is for another key.
const MOST = 10;
const SECOND = 1000;

const nameOf = (key) => JSON.stringify(key, (_, part) => (typeof part === 'bigint' ? String(part) : part));

function failed(error) {
  warn('LEAPGATE_ON_REFUSED', `leapgate: \`onRefused\` has thrown: ${error?.message ?? error}`);
}

// Returns a function of decisions, which reports a refusal, or counts it as suppressed; undefined without an `onRefused`. If it reports,
// it returns a promise that never rejects.
export function sampled(onRefused) {
  checkFunction('options.onRefused', onRefused, 'use one that reports a refusal, as in `({ key, result, suppressed }) => …`');
  if (onRefused === undefined) return undefined;
  // The calls of the last second.
  const latest = [];
  let suppressed = 0;
  return (key, result) => {
    // In shadow mode, a request passes that would be refused.
    if (result.success && !result.shadowBlocked) return undefined;
    const now = performance.now();
    // The clock of a test may go back.
    while (latest.length > 0 && Math.abs(now - latest[0].at) >= SECOND) latest.shift();
    const name = latest.length < MOST ? nameOf(key) : undefined;
    if (latest.length === MOST || latest.some((other) => other.name === name)) return void suppressed++;
    latest.push({ at: now, name });
    const report = { key, result, suppressed };
    suppressed = 0;
    return new Promise((resolve) => resolve(onRefused(report))).catch(failed);
  };
}
