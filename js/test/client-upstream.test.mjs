// What headers of upstreams say: texts as servers send them, and what is known from them.

import assert from 'node:assert/strict';
import test from 'node:test';
import { membersOf, read } from './sources/lib/upstream.js';

const DATE = 'Sun, 22 Nov 2026 12:00:00 GMT';
const NOON = Date.parse(DATE) / 1000;

// Lines of headers, with the upstream's clock.
const said = (...lines) => read(new Headers([['Date', DATE], ...lines.map((line) => line.split(/: (.*)/s).slice(0, 2))]));

const retryAfter = [
  ['Retry-After: 0', 0],
  ['Retry-After: 120', 120_000],
  ['Retry-After: 1.5', 1500],
  ['Retry-After: Sun, 22 Nov 2026 12:00:30 GMT', 30_000],
  ['Retry-After: Sunday, 22-Nov-26 12:00:30 GMT', 30_000],
  ['Retry-After: Sun Nov 22 12:00:30 2026', 30_000],
  ['Retry-After: Tue Dec  1 12:00:00 2026', 9 * 86_400_000],
  ['Retry-After: Sun, 22 Nov 2026 11:59:30 GMT', 0],
  ['Retry-After: 2026-11-22T12:00:30Z', 30_000],
  [`Retry-After: ${NOON + 5}`, 5000],
];

for (const [line, ms] of retryAfter) {
  test(`${line}: ${ms} ms`, () => assert.equal(said(line).retryAfterMs, ms));
}

const nothing = [
  'Retry-After: -5',
  'Retry-After: +5',
  'Retry-After: soon',
  'Retry-After: NaN',
  'Retry-After: Infinity',
  'Retry-After: 0x10',
  'Retry-After: 1e3',
  'Retry-After: 5, 7',
  `Retry-After: ${'9'.repeat(400)}`,
  'Retry-After: Sun, 99 Nov 2026 12:00:30 GMT',
  'Retry-After: Sun, 22 Foo 2026 12:00:30 GMT',
  'Retry-After: Sun, 22 Nov 2026 12:00:30 CET',
  'Retry-After: 22 Nov 2026',
];

for (const line of nothing) {
  test(`${line.slice(0, 60)}: says nothing`, () => assert.equal(said(line).retryAfterMs, undefined));
}

// Header texts, and `id left resetMs` of each limit.
const quotas = [
  // IETF drafts 6 and older.
  [['RateLimit-Limit: 100, 100;w=60', 'RateLimit-Remaining: 5', 'RateLimit-Reset: 7'], ['ratelimit-remaining  5 7000']],
  [['RateLimit-Policy: 100;w=60', 'RateLimit-Remaining: 0', 'RateLimit-Reset: 7'], ['ratelimit-remaining  0 7000']],
  // Draft 7.
  [['RateLimit: limit=100, remaining=50, reset=5', 'RateLimit-Policy: 100;w=60, 1000;w=3600'], [' 50 5000']],
  [['RateLimit: reset=5,remaining=0 ,limit=100'], [' 0 5000']],
  [['RateLimit: limit=100, remaining=50'], []],
  [['RateLimit: limit=100, remaining=-1, reset=5'], []],
  [['RateLimit: limit=100, remaining=1.5, reset=5'], []],
  [['RateLimit: limit=100, remaining="0", reset=5'], []],
  [['RateLimit: limit=100, remaining=0, reset="5"'], []],
  // Drafts 8 to 11; earlier ones name policies by tokens.
  [['RateLimit: "default";r=50;t=30'], ['default 50 30000']],
  [['RateLimit: default;r=50;t=30'], ['default 50 30000']],
  [['RateLimit: "minute";r=0;t=23, "hour";r=399;t=2402'], ['minute 0 23000', 'hour 399 2402000']],
  [['RateLimit: "a";r=1;t=30', 'RateLimit: "b";r=2;t=60'], ['a 1 30000', 'b 2 60000']],
  [['RateLimit: "a;b\\"\\\\,";r=1;t=30'], ['a;b"\\, 1 30000']],
  [['RateLimit: "a";r=1;pk=:cHsdsRa894==:;t=30'], ['a;:cHsdsRa894==: 1 30000']],
  [['RateLimit: "a";r=1;t=30', 'RateLimit-Policy: "a";q=9;w=60;pk=:eA==:'], ['a;:eA==: 1 30000']],
  [['RateLimit: "a";r=0', 'RateLimit-Policy: "a";q=9;w=60'], ['a 0 60000']],
  [['RateLimit: "a";r=0'], []],
  [['RateLimit: "a";t=5'], []],
  [['RateLimit: "a";r=0;t=0'], []],
  [['RateLimit: "a";r=-1;t=5, "b";r=0;t=-5'], []],
  [['RateLimit: "a";r=0;t=5;acme-note="x";flag;on=?1;at=@1700000000'], ['a 0 5000']],
  [[`RateLimit: "${'a'.repeat(128)}";r=0;t=5`], [`${'a'.repeat(128)} 0 5000`]],
  [[`RateLimit: "${'a'.repeat(129)}";r=0;t=5`], []],
  // Of what is not requests only the end is known.
  [['RateLimit: "a";r=1;t=5', 'RateLimit-Policy: "a";q=9;qu="content-bytes";w=60'], []],
  [['RateLimit: "a";r=0;t=5', 'RateLimit-Policy: "a";q=9;qu="content-bytes";w=60'], ['a 0 5000']],
  [['RateLimit: "a";r=1;t=5', 'RateLimit-Policy: "a";q=9;qu="requests";w=60'], ['a 1 5000']],
  [['RateLimit: "a";r=1;t=5', 'RateLimit-Policy: this is "malformed'], ['a 1 5000']],
  // X-RateLimit: delta seconds, epoch seconds, epoch milliseconds, fractions.
  [['X-RateLimit-Remaining: 5', 'X-RateLimit-Reset: 60'], ['x-ratelimit-remaining  5 60000']],
  [['X-RateLimit-Remaining: 5', `X-RateLimit-Reset: ${NOON + 60}`], ['x-ratelimit-remaining  5 60000']],
  [['X-RateLimit-Remaining: 5', `X-RateLimit-Reset: ${NOON + 60}000`], ['x-ratelimit-remaining  5 60000']],
  [['X-RateLimit-Remaining: 5', `X-RateLimit-Reset: ${NOON + 60}.25`], ['x-ratelimit-remaining  5 60250']],
  [['X-Rate-Limit-Remaining: 5', `X-Rate-Limit-Reset: ${NOON + 60}`], ['x-rate-limit-remaining  5 60000']],
  [['X-RateLimit-Remaining: 5', `X-RateLimit-Reset: ${NOON - 60}`], []],
  [['X-RateLimit-Remaining: 0'], []],
  [['X-RateLimit-Reset: 5'], []],
  [['X-RateLimit-Remaining: 1000000000', 'X-RateLimit-Reset: 5'], ['x-ratelimit-remaining  1000000000 5000']],
  ...['-1', '+1', 'NaN', 'Infinity', '', '1e3', '0x5', '5 5', '1.0', '9'.repeat(16)].map((left) => [
    [`X-RateLimit-Remaining: ${left}`, 'X-RateLimit-Reset: 5'],
    [],
  ]),
  ...['-1', 'NaN', 'Infinity', '', '1e3', '-1s', '5x', '1s1h', '9'.repeat(400)].map((reset) => [
    ['X-RateLimit-Remaining: 0', `X-RateLimit-Reset: ${reset}`],
    [],
  ]),
  // Repeated headers.
  [['X-RateLimit-Remaining: 5', 'X-RateLimit-Remaining: 7', 'X-RateLimit-Reset: 5'], []],
  [['X-RateLimit-Remaining: 5', 'X-RateLimit-Reset: 5', 'X-RateLimit-Reset: 7'], []],
  // GitHub.
  [
    ['X-RateLimit-Limit: 30', 'X-RateLimit-Remaining: 0', `X-RateLimit-Reset: ${NOON + 60}`, 'X-RateLimit-Resource: search'],
    ['x-ratelimit-remaining search 0 60000'],
  ],
  // OpenAI.
  [
    ['x-ratelimit-limit-requests: 60', 'x-ratelimit-remaining-requests: 59', 'x-ratelimit-reset-requests: 1s'],
    ['x-ratelimit-remaining-requests  59 1000'],
  ],
  [['x-ratelimit-remaining-tokens: 149984', 'x-ratelimit-reset-tokens: 6m0s'], []],
  [['x-ratelimit-remaining-tokens: 0', 'x-ratelimit-reset-tokens: 6m0s'], ['x-ratelimit-remaining-tokens  0 360000']],
  [['x-ratelimit-remaining-requests: 1', 'x-ratelimit-reset-requests: 20ms'], ['x-ratelimit-remaining-requests  1 20']],
  [['x-ratelimit-remaining-requests: 1', 'x-ratelimit-reset-requests: 1h2m3.5s'], ['x-ratelimit-remaining-requests  1 3723500']],
  // Anthropic.
  [
    ['anthropic-ratelimit-requests-remaining: 49', 'anthropic-ratelimit-requests-reset: 2026-11-22T12:00:02Z'],
    ['anthropic-ratelimit-requests-remaining  49 2000'],
  ],
  [
    ['anthropic-ratelimit-output-tokens-remaining: 0', 'anthropic-ratelimit-output-tokens-reset: 2026-11-22T13:00:02.5+01:00'],
    ['anthropic-ratelimit-output-tokens-remaining  0 2500'],
  ],
  // From a cache.
  [['X-RateLimit-Remaining: 0', 'X-RateLimit-Reset: 60', 'Age: 3'], []],
  [['X-RateLimit-Remaining: 0', 'X-RateLimit-Reset: 60', 'Age: 0'], ['x-ratelimit-remaining  0 60000']],
];

for (const [lines, known] of quotas) {
  test(`${lines.join(' | ').slice(0, 150)}: ${known.join(', ') || 'says nothing'}`, () => {
    assert.deepEqual(said(...lines).quotas.map(({ id, left, resetMs }) => `${id} ${left} ${resetMs}`), known);
  });
}

test('a wrong local clock changes nothing where the response has a Date', (t) => {
  t.mock.method(Date, 'now', () => 0);
  assert.equal(said('Retry-After: Sun, 22 Nov 2026 12:00:30 GMT').retryAfterMs, 30_000);
  assert.equal(read(new Headers({ 'Retry-After': 'Thu, 01 Jan 1970 00:00:07 GMT' })).retryAfterMs, 7000, 'without a Date');
  assert.equal(read(new Headers({ Date: 'yesterday', 'Retry-After': 'Thu, 01 Jan 1970 00:00:07 GMT' })).retryAfterMs, 7000);
});

const malformed = ['', ' ', ',', 'a,', ',a', 'a;', 'a;=1', 'a;r=', 'a;r=;t=1', 'a b', '"a', '"a\\"', '"a\\x"', '"é"', 'a;R=1', '1.2345', '--1', '1234567890123456', '(a b);r=1', ':a', '%"a"', 'a;r=1 ;t=2', '?2', 'a=', '=1', 'a;;r=1'];

for (const field of malformed) {
  test(`the structured field ${JSON.stringify(field)} is malformed`, () => assert.deepEqual(membersOf(field), []));
}

test('a header of a megabyte is not read, and none takes long', () => {
  const long = ['"', 'a;r=0;t=5, '.repeat(90_000), 'a'.repeat(1e6), `"${'\\"'.repeat(5e5)}`, ' '.repeat(1e6), ';'.repeat(1e6), `a${';r=1'.repeat(2e5)}`, '1'.repeat(1e6)];
  const started = performance.now();
  for (const text of [...long, ...long.map((text) => text.slice(0, 2048))]) {
    const headers = new Headers();
    for (const name of ['RateLimit', 'RateLimit-Policy', 'Retry-After', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'Date', 'Age']) headers.set(name, text);
    const { quotas } = read(headers);
    assert.ok(quotas.length <= 200, `${quotas.length} limits of ${text.slice(0, 20)}`);
    assert.deepEqual(read(new Headers({ RateLimit: `${text}${'x'.repeat(2048)}` })).quotas, []);
  }
  assert.ok(performance.now() - started < 5000);
});

test('random texts are read without an error, and say nothing that is not a number', () => {
  let seed = 1;
  const random = (n) => (seed = (seed * 48_271) % 2_147_483_647) % n;
  const parts = ['a', '"', ';', '=', ',', ' ', 'r', 't', '0', '9', '-', '.', ':', '?', '\\', '@', 'remaining=', 'reset=', '*', '\t', ';r=0;t=5', '"a"'];
  for (let i = 0; i < 5000; i++) {
    const text = Array.from({ length: random(12) }, () => parts[random(parts.length)]).join('');
    const lines = ['RateLimit', 'RateLimit-Policy', 'Retry-After', 'X-RateLimit-Remaining', 'X-RateLimit-Reset'].map((name) => [name, text]);
    const { retryAfterMs = 0, quotas } = read(new Headers(lines));
    assert.ok(retryAfterMs >= 0 && retryAfterMs < Infinity, text);
    for (const { left, resetMs } of quotas) assert.ok(Number.isInteger(left) && left >= 0 && resetMs > 0 && resetMs < Infinity, text);
  }
});
