// Adversaries: instants of requests that try to get more than a limit, and how much passed in the worst window. For the tests of
// Limiter, and for the benchmark, which compares it with other limiters.

export const LIMIT = 100;
export const WINDOW_MS = 10_000;

const burst = (n, at) => new Array(n).fill(at);
const every = (ms, from, to) => Array.from({ length: (to - from) / ms }, (_, i) => from + i * ms);

// By name, the instants in milliseconds.
export const ADVERSARIES = {
  // Opens a window that begins with its first request, and exhausts two such windows around its end.
  A: [0, ...burst(99, 9_900), ...burst(100, 10_100)],
  // A burst, and another one less than a window later.
  B: [...burst(100, 900), ...burst(100, 10_000)],
  // A burst at the end of a window, and twice the limit from then on.
  C: [...every(10, 9_000, 10_000), ...every(50, 10_000, 30_000)],
};

// Twice the limit, for five minutes: half of it should pass.
export const STEADY = every(50, 0, 300_000);

// The most of these ordered instants that lie within less than a window.
export function worst(instants) {
  let [first, most] = [0, 0];
  instants.forEach((instant, i) => {
    while (instants[first] <= instant - WINDOW_MS) first++;
    most = Math.max(most, i - first + 1);
  });
  return most;
}
