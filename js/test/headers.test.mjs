import assert from 'node:assert/strict';
import test from 'node:test';
import { Limiter } from 'leapgate';
import { rateLimitHeaders } from 'leapgate/http';

const policy = (id, limit, windowMs, remaining, resetMs) => ({ id, limit, windowMs, remaining, resetMs });
const passed = (...policies) => ({ success: true, retryAfterMs: 0, policies });
const refused = (retryAfterMs, ...policies) => ({ success: false, retryAfterMs, policies });

const BURST = policy('burst', 10, 1000, 4, 250);
const DAILY = policy('daily', 1000, 86_400_000, 2, 3_600_001);
const SPENT = policy('60s', 100, 60_000, 0, 11_001);

const rows = [
  ['draft 11: one limit', passed(BURST), 11, { 'RateLimit-Policy': '"burst";q=10;w=1', RateLimit: '"burst";r=4;t=1' }],
  ['draft 11: several limits', passed(BURST, DAILY), 11, { 'RateLimit-Policy': '"burst";q=10;w=1, "daily";q=1000;w=86400', RateLimit: '"burst";r=4;t=1, "daily";r=2;t=3601' }],
  ['draft 11: nothing is used', passed(policy('1s', 5, 1000, 5, 0)), 11, { 'RateLimit-Policy': '"1s";q=5;w=1', RateLimit: '"1s";r=5' }],
  ['draft 11: a refusal has `t` if nothing is left', refused(11_001, BURST, SPENT), 11, { 'RateLimit-Policy': '"burst";q=10;w=1, "60s";q=100;w=60', RateLimit: '"burst";r=4, "60s";r=0;t=12', 'Retry-After': '12' }],
  ['draft 11: a window with a fraction of a second has no `w`', passed(policy('250ms', 5, 250, 5, 0)), 11, { 'RateLimit-Policy': '"250ms";q=5', RateLimit: '"250ms";r=5' }],
  ['draft 11: a limit of requests in flight', passed(policy('in flight', 8, null, 7, 0)), 11, { 'RateLimit-Policy': '"in flight";q=8;qu="concurrent-requests"', RateLimit: '"in flight";r=7' }],
  ['draft 11: an id is quoted', passed(policy('a"b\\c', 1, 1000, 1, 0)), 11, { 'RateLimit-Policy': '"a\\"b\\\\c";q=1;w=1', RateLimit: '"a\\"b\\\\c";r=1' }],
  ['draft 11: integers have 15 digits, and no fractions', passed(policy('1s', 2 ** 53, 1000, 2.5, 0)), 11, { 'RateLimit-Policy': '"1s";q=999999999999999;w=1', RateLimit: '"1s";r=2' }],
  ['draft 7: the limit with the fewest passes left', passed(BURST, DAILY), 7, { 'RateLimit-Policy': '10;w=1, 1000;w=86400', RateLimit: 'limit=1000, remaining=2, reset=3601' }],
  ['draft 7: a window is rounded up, for `w` is required', passed(policy('250ms', 5, 250, 5, 0)), 7, { 'RateLimit-Policy': '5;w=1', RateLimit: 'limit=5, remaining=5, reset=0' }],
  ['draft 7: of two spent limits, the one with the later reset', refused(11_001, policy('1s', 10, 1000, 0, 400), SPENT), 7, { 'RateLimit-Policy': '10;w=1, 100;w=60', RateLimit: 'limit=100, remaining=0, reset=12', 'Retry-After': '12' }],
  ['draft 6', passed(BURST, DAILY), 6, { 'RateLimit-Policy': '10;w=1, 1000;w=86400', 'RateLimit-Limit': '1000', 'RateLimit-Remaining': '2', 'RateLimit-Reset': '3601' }],
  ['legacy', passed(BURST, DAILY), 'legacy', { 'X-RateLimit-Limit': '1000', 'X-RateLimit-Remaining': '2', 'X-RateLimit-Reset': '3601' }],
  ['legacy: a limit on requests in flight is left out', passed(policy('in flight', 8, null, 7, 0)), 'legacy', {}],
  ['no limits', passed(), 11, {}],
  ['Retry-After is at least 1', refused(0, SPENT), 'legacy', { 'X-RateLimit-Limit': '100', 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '12', 'Retry-After': '1' }],
  ['Retry-After is rounded up', refused(1001), 11, { 'Retry-After': '2' }],
  ['Retry-After is absent where waiting does not help', refused(Infinity, SPENT), 11, { 'RateLimit-Policy': '"60s";q=100;w=60', RateLimit: '"60s";r=0;t=12' }],
];

for (const [name, result, draft, expected] of rows) {
  test(`headers: ${name}`, () => assert.deepEqual(rateLimitHeaders(result, { draft }), expected));
}

test('headers: draft 11 is the default', () => {
  assert.deepEqual(rateLimitHeaders(passed(BURST)), rateLimitHeaders(passed(BURST), { draft: 11 }));
});

test('headers: at the time in `Retry-After` a request passes, and a second earlier none does', () => {
  let ms = 0;
  const limiter = new Limiter({ limits: [{ limit: 2, windowMs: 1000 }, { limit: 5, windowMs: 60_000 }], now: () => ms });
  for (; limiter.limit('a').success; ms += 600);
  const refusal = limiter.limit('a');
  const wait = Number(rateLimitHeaders(refusal)['Retry-After']);
  assert.equal(rateLimitHeaders(refusal).RateLimit, `"1s";r=1, "60s";r=0;t=${wait}`);
  assert.equal(limiter.peek('a').success, false);
  ms += 1000 * (wait - 1);
  assert.equal(limiter.peek('a').success, false);
  ms += 1000;
  assert.equal(limiter.peek('a').success, true);
});

for (const [name, call, message] of [
  ['another draft', () => rateLimitHeaders(passed(BURST), { draft: 8 }), "options.draft: `8` is not a valid form of these headers; use 11, 7, 6 or 'legacy'"],
  ['a draft as text', () => rateLimitHeaders(passed(BURST), { draft: '11' }), "options.draft: `11` is not a valid form of these headers; use 11, 7, 6 or 'legacy'"],
  ['no options', () => rateLimitHeaders(passed(BURST), 7), 'options: `7` is not an object; use one, as in `{ draft: 7 }`, or leave it out'],
  ['an option', () => rateLimitHeaders(passed(BURST), { version: 7 }), 'options.version: `7` means nothing here; use `draft`'],
  ['no result', () => rateLimitHeaders(true), 'result: `true` is not a result; use what `limit` has answered'],
]) {
  const code = message.startsWith('options') ? 'ERR_LEAPGATE_OPTIONS' : 'ERR_LEAPGATE_ARGUMENT';
  test(`headers: ${name} is wrong`, () => assert.throws(call, { name: 'TypeError', code, message }));
}
