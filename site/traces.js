// Traces: requests in the order of time, as [time in milliseconds, number of requests at once]. All are endless. An adversary knows the
// limit, the window, whose edges are at its multiples, and its buckets.

// Numbers from 0 to 1 that depend on the seed alone (Mulberry32).
export function random(seed) {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

// So many single requests, evenly from one time to another.
const evenly = (count, from, to) => Array.from({ length: count }, (_, i) => [Math.ceil(from + (i * (to - from)) / count), 1]);

// In how many windows an adversary repeats itself: by then all limiters have forgotten it.
export const WINDOWS = 3;

// `n` is the limit, `w` the window, `b` a bucket.
export const ADVERSARIES = {
  // A full limit on each side of an edge.
  edge: (n, w) => [[0.96 * w, n], [1.04 * w, n]],
  // A full limit just before an edge: an estimate takes it for requests of the whole window before, which leave one by one.
  late: (n, w) => [[0.97 * w, n], ...evenly(2 * n, w, 1.97 * w)],
  // The full bucket, and then what flows in.
  full: (n, w) => [[w, n], ...evenly(n, w, 2 * w)],
  // A full limit at the end of a bucket. It leaves with its bucket, nearly a bucket too early: at once in Sentinel's window, and bit by
  // bit in a weighted one.
  bucket: (n, w, b) => [[w + b - 1, n], [2 * w, n], [2 * w + b - 2, n]],
};

// Runs begin shortly before the first move of an adversary.
export const startOf = (play, { windowMs }) => (Object.hasOwn(ADVERSARIES, play) ? 0.85 * windowMs : 0);

// What an adversary or one's own trace does, and after how long again; undefined for other names, and for an empty trace.
export function planOf(play, { limit, windowMs, buckets }, own = []) {
  if (play === 'own' && own.length > 0) return { moves: own, periodMs: Math.max(WINDOWS, Math.floor(own.at(-1)[0] / windowMs) + 2) * windowMs };
  const adversary = Object.hasOwn(ADVERSARIES, play) ? ADVERSARIES[play] : undefined;
  return adversary && { moves: adversary(limit, windowMs, windowMs / buckets), periodMs: WINDOWS * windowMs };
}

function* repeated({ moves, periodMs }) {
  for (let from = 0; ; from += periodMs) for (const [at, count] of moves) yield [from + at, count];
}

// Twice the limit, at random.
function* noise({ limit, windowMs }, seed) {
  const next = random(seed);
  for (let at = 0; ; ) {
    at -= Math.log(1 - next()) * (windowMs / (2 * limit));
    yield [at, 1];
  }
}

// The trace of a name: of an adversary, `noise` or `own`, whose moves are given; undefined for others.
export function traceOf(play, settings, { seed = 1, moves } = {}) {
  if (play === 'noise') return noise(settings, seed);
  const plan = planOf(play, settings, moves);
  return plan && repeated(plan);
}

// Sends what of a trace is due.
export class Feed {
  #trace;
  #next;

  constructor(trace) {
    this.#trace = trace;
    this.#next = trace?.next().value;
  }

  // Calls `send(at)` for each request up to `now`.
  until(now, send) {
    while (this.#next !== undefined && this.#next[0] <= now) {
      const [at, count] = this.#next;
      for (let i = 0; i < count; i++) send(at);
      this.#next = this.#trace.next().value;
    }
  }
}

const MOVE = /^(\d{1,4}(?:\.\d{1,3})?)(?:[x×](\d{1,4}))?$/i;

// What a trace of one's own has at most: moves, requests in one of them and in all, and seconds.
export const MOST = { moves: 500, requests: 1000, all: 20_000, seconds: 600 };

// Reads moves: times in seconds, each with a number of requests after an `x`: `5.9x20 6.1x20`. Throws one sentence.
export function readMoves(text) {
  const words = text.split(/[\s,;]+/).filter((word) => word !== '');
  if (words.length > MOST.moves) throw new Error(`Your trace has ${words.length} moves; use at most ${MOST.moves}.`);
  const moves = words.map((word) => {
    const [, seconds, count = '1'] = MOVE.exec(word) ?? [];
    if (seconds === undefined || seconds > MOST.seconds || count > MOST.requests) {
      const shown = word.length > 20 ? `${word.slice(0, 20)}…` : word;
      throw new Error(`“${shown}” is not a move; use seconds up to ${MOST.seconds} and a number of requests up to ${MOST.requests}, as in 5.9x20.`);
    }
    return [Math.round(seconds * 1000), Number(count)];
  });
  const all = moves.reduce((sum, [, count]) => sum + count, 0);
  if (all > MOST.all) throw new Error(`Your trace has ${all} requests; use at most ${MOST.all}.`);
  return moves.toSorted(([one], [other]) => one - other);
}

export const writeMoves = (moves) => moves.map(([at, count]) => `${at / 1000}${count === 1 ? '' : `x${count}`}`).join(' ');
