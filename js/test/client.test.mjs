// `limitedFetch` before a function that stands for `fetch`, in virtual time.

import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import test from 'node:test';
import { limitedFetch } from 'leapgate/client';
import { mostInAny } from './http.mjs';
import { settled, virtualTime } from './time.mjs';

const URL_A = 'https://a.example/';
const SECOND = 1000;

// What stands for `fetch`: `answer` returns the response to the n-th request, from 0 on. `sent` has what was sent, and when.
function upstreamOf(t, answer = () => new Response('hello')) {
  const time = virtualTime(t);
  t.mock.method(Math, 'random', () => 0);
  const sent = [];
  const fetch = async (input, init) => {
    const n = sent.length;
    sent.push({ at: time.ms, input, init });
    return answer(n, input, init);
  };
  const limited = (options) => limitedFetch(fetch, { now: time.now, ...options });
  return { time, sent, fetch, limited, sentAt: () => sent.map(({ at }) => at) };
}

const reply = (status, headers = {}, body = 'hello') => new Response(body, { status, headers });
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// So many requests at once; what becomes of each.
const ask = (limited, times, input = URL_A, init = undefined) => Array.from({ length: times }, () => limited(input, init));

test('a request and its response are passed on unchanged', async (t) => {
  const response = reply(200);
  const { sent, limited } = upstreamOf(t, () => response);
  const [input, init] = [new URL(URL_A), { method: 'POST', body: 'x', duplex: 'half', cf: {} }];
  assert.equal(await limited()(input, init), response);
  assert.ok(sent[0].input === input && sent[0].init === init);
});

test('requests wait in line: never more than the limit in any window, in the order of their arrival', async (t) => {
  const { time, sent, limited, sentAt } = upstreamOf(t);
  const fetch = limited({ limit: 3, windowMs: SECOND });
  const all = Array.from({ length: 10 }, (_, i) => fetch(`${URL_A}${i}`));
  await time.until(Promise.all(all));
  assert.deepEqual(sent.map(({ input }) => input), Array.from({ length: 10 }, (_, i) => `${URL_A}${i}`));
  assert.equal(mostInAny(SECOND, sentAt()), 3);
  assert.deepEqual(sentAt(), [0, 0, 0, 1050, 1050, 1050, 2100, 2100, 2100, 3150]);
});

test('several limits hold together', async (t) => {
  const { time, limited, sentAt } = upstreamOf(t);
  const fetch = limited({ limits: [{ limit: 2, windowMs: 100 }, { limit: 5, windowMs: SECOND, id: 'second' }] });
  await time.until(Promise.all(ask(fetch, 10)));
  assert.ok(mostInAny(100, sentAt()) <= 2 && mostInAny(SECOND, sentAt()) <= 5);
  assert.ok(sentAt().at(-1) < 1400);
});

test('concurrency counts requests until their headers arrive, whether bodies are read or not', async (t) => {
  let [inFlight, most] = [0, 0];
  const upstream = upstreamOf(t, async () => {
    most = Math.max(most, ++inFlight);
    await sleep(100);
    inFlight--;
    return reply(200);
  });
  const fetch = upstream.limited({ concurrency: 2 });
  await upstream.time.until(Promise.all(ask(fetch, 6)));
  assert.deepEqual([most, upstream.sentAt()], [2, [0, 0, 100, 100, 200, 200]]);
});

test('a failed request is no longer in flight', async (t) => {
  const { time, limited } = upstreamOf(t, (n) => (n === 0 ? Promise.reject(new TypeError('broken')) : reply(200)));
  const fetch = limited({ concurrency: 1, retries: 0 });
  const [first, second] = ask(fetch, 2);
  await assert.rejects(time.until(first), { message: 'broken' });
  assert.equal((await time.until(second)).status, 200);
});

test('each origin has limits of its own; `key` tells requests apart by other things', async (t) => {
  const { sentAt, limited } = upstreamOf(t);
  const origins = limited({ limit: 1, windowMs: SECOND });
  ask(origins, 2, `${URL_A}x?y`);
  ask(origins, 2, new URL('https://b.example'));
  ask(origins, 2, new Request('https://a.example:444'));
  await settled();
  assert.equal(sentAt().length, 3);
  const seen = [];
  const byUser = limited({
    limit: 1,
    windowMs: SECOND,
    key: ({ url, method, headers }) => (seen.push([url, method]), headers.get('user')),
  });
  ask(byUser, 2, URL_A, { headers: { user: 'ann' }, method: 'post' });
  ask(byUser, 2, new Request(URL_A, { headers: { user: 'bob' } }));
  ask(byUser, 5, URL_A); // null: no limit
  await settled();
  assert.equal(sentAt().length, 3 + 2 + 5);
  assert.deepEqual([seen[0], seen[2]], [[URL_A, 'POST'], [URL_A, 'GET']]);
});

test('a number and a bigint are keys, too, and others are refused with a sentence', async (t) => {
  const { limited } = upstreamOf(t);
  for (const key of ['', 5, 5n]) await limited({ key: () => key })(URL_A);
  const cure = 'is not a valid key; return a string, a number, a bigint, or null for no limit';
  const error = (message) => ({ code: 'ERR_LEAPGATE_KEY', message });
  await assert.rejects(limited({ key: () => undefined })(URL_A), error(`options.key(): \`undefined\` ${cure}`));
  await assert.rejects(limited({ key: () => NaN })(URL_A), error(`options.key(): \`NaN\` ${cure}`));
  await assert.rejects(limited({ key: async () => 'a' })(URL_A), error(`options.key(): \`{…}\` ${cure}`));
  const long = `options.key(): \`${'a'.repeat(64)}…\` has 1025 characters; use at most 1024, or a hash of it`;
  await assert.rejects(limited({ key: () => 'a'.repeat(1025) })(URL_A), error(long));
  await assert.rejects(limited({ key: () => { throw new Error('mine'); } })(URL_A), { message: 'mine' });
});

test('a URL without an origin is passed on: requests with such URLs share a limit', async (t) => {
  const { time, sent, limited } = upstreamOf(t);
  const fetch = limited({ limit: 1, windowMs: SECOND });
  await time.until(Promise.all([fetch('/a'), fetch('/b')]));
  assert.deepEqual(sent.map(({ at, input }) => [at, input]), [[0, '/a'], [1050, '/b']]);
});

test('a request that would wait longer than `maxWaitMs` is refused at once, and the message says when to try again', async (t) => {
  const { limited, sent } = upstreamOf(t);
  const fetch = limited({ limit: 1, windowMs: 60_000, maxWaitMs: SECOND });
  await fetch(URL_A);
  await assert.rejects(fetch(URL_A), (error) => {
    assert.deepEqual([error.code, error.message], ['ERR_LEAPGATE_BLOCKED', 'fetch: `60s` refuses; try again in 63000 ms']);
    assert.deepEqual([error.result.rule, error.result.retryAfterMs], ['60s', 63_000]);
    return true;
  });
  assert.equal(sent.length, 1);
});

test('no more than `maxWaiting` wait', async (t) => {
  const { time, limited } = upstreamOf(t);
  const fetch = limited({ limit: 1, windowMs: SECOND, maxWaiting: 2 });
  const all = ask(fetch, 4);
  await assert.rejects(all[3], { code: 'ERR_LEAPGATE_FULL' });
  await time.until(Promise.all(all.slice(0, 3)));
});

test('`Infinity` is no limit', async (t) => {
  const { limited, sent } = upstreamOf(t);
  ask(limited({ limit: Infinity, windowMs: SECOND, concurrency: Infinity, maxWaitMs: Infinity }), 50);
  await settled();
  assert.equal(sent.length, 50);
});

test('where requests must not wake each other, as in Workers, each finds its turn by itself', async (t) => {
  globalThis.WebSocketPair = class {};
  t.after(() => delete globalThis.WebSocketPair);
  let [inFlight, most] = [0, 0];
  const { time, sent, limited } = upstreamOf(t, async (n) => {
    most = Math.max(most, ++inFlight);
    await sleep(100);
    inFlight--;
    return n === 1 ? reply(429, { 'Retry-After': '3' }) : reply(200);
  });
  const fetch = limited({ concurrency: 1, limit: 4, windowMs: SECOND });
  const answers = await time.until(Promise.all(ask(fetch, 6)));
  assert.ok(answers.every(({ status }) => status === 200));
  assert.deepEqual([sent.length, most], [7, 1]);
  assert.ok(sent[2].at - sent[1].at >= 3100 && mostInAny(SECOND, sent.map(({ at }) => at)) <= 4);
});

// Signals.

test('an aborted signal ends each stage, and the next in line takes the place', async (t) => {
  const { time, sent, limited } = upstreamOf(t, (n) => (n === 0 ? reply(429, { 'Retry-After': '5' }) : reply(200)));
  const fetch = limited({ limit: 2, windowMs: SECOND, retries: 5 });
  const aborted = (signal, reason) => {
    const promise = fetch(URL_A, { signal });
    return assert.rejects(promise, (error) => error === reason);
  };
  const [early, line, upstream] = [1, 2, 3].map(() => new AbortController());
  early.abort('early');
  await aborted(early.signal, 'early');
  assert.equal(sent.length, 0, 'nothing is charged');
  const retried = aborted(upstream.signal, 'upstream');
  await settled();
  const waiting = aborted(line.signal, 'line');
  const last = fetch(new Request(URL_A));
  await time.pass(10);
  line.abort('line');
  await waiting;
  await time.pass(10);
  upstream.abort('upstream');
  await retried;
  assert.equal((await time.until(last)).status, 200);
  assert.deepEqual(sent.map(({ at }) => at), [0, 5000]);
  for (const { signal } of [early, line, upstream]) assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.equal(time.timers, 0);
});

test('an abort in the pause before a retry ends it, and what fetch throws for an abort is not retried', async (t) => {
  const controller = new AbortController();
  const { time, sent, limited } = upstreamOf(t, (n) => {
    if (n === 0) return reply(429);
    controller.abort('mine');
    throw new Error('of fetch');
  });
  const fetch = limited();
  const first = new AbortController();
  const paused = fetch(URL_A, { signal: first.signal });
  await time.pass(100);
  first.abort('paused');
  await assert.rejects(paused, (error) => error === 'paused');
  assert.equal(time.timers, 0);
  await assert.rejects(fetch(URL_A, { signal: controller.signal }), { message: 'of fetch' });
  await time.pass(5000);
  assert.equal(sent.length, 2);
});

test('an abort that `fetch` has not seen ends the pause before a retry at once', async (t) => {
  const controller = new AbortController();
  const { time, sent, limited } = upstreamOf(t, () => (controller.abort('mine'), reply(429)));
  await assert.rejects(limited()(URL_A, { signal: controller.signal }), (error) => error === 'mine');
  assert.deepEqual([sent.length, time.timers], [1, 0]);
});

test('the signal of a Request counts unless `init` has another, or null', async (t) => {
  const { limited } = upstreamOf(t);
  const fetch = limited();
  const input = new Request(URL_A, { signal: AbortSignal.abort('its own') });
  await assert.rejects(fetch(input), (error) => error === 'its own');
  await assert.rejects(fetch(URL_A, { signal: AbortSignal.abort('of init') }), (error) => error === 'of init');
  assert.equal((await fetch(input, { signal: new AbortController().signal })).status, 200);
  assert.equal((await fetch(input, { signal: null })).status, 200);
});

// What upstreams say.

test('a key pauses while its upstream has nothing left, and others do not', async (t) => {
  const { time, sent, limited } = upstreamOf(t, (n) => reply(200, n === 0 ? { 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '7' } : {}));
  const fetch = limited();
  await fetch(URL_A);
  const next = fetch(URL_A);
  await fetch('https://b.example');
  await time.until(next);
  assert.deepEqual(sent.map(({ at }) => at), [0, 0, 7000]);
});

test('a pause counts for `maxWaitMs`, and its refusal names the upstream', async (t) => {
  const { limited } = upstreamOf(t, () => reply(200, { RateLimit: '"day";r=0;t=600' }));
  const fetch = limited({ limit: 5, windowMs: SECOND, maxWaitMs: 5000 });
  await fetch(URL_A);
  await assert.rejects(fetch(URL_A), (error) => {
    assert.deepEqual([error.code, error.message], ['ERR_LEAPGATE_BLOCKED', 'fetch: `upstream` refuses; try again in 600000 ms']);
    return error.result.rule === 'upstream' && error.result.reset === 600_000;
  });
});

test('no more requests are in flight than are left', async (t) => {
  let [left, inFlight, most] = [4, 0, 0];
  const upstream = upstreamOf(t, async () => {
    left--;
    most = Math.max(most, ++inFlight);
    await sleep(100);
    inFlight--;
    return reply(left < 0 ? 429 : 200, { 'RateLimit-Remaining': String(Math.max(0, left)), 'RateLimit-Reset': '60' });
  });
  const fetch = upstream.limited({ retries: 0 });
  await upstream.time.until(fetch(URL_A));
  const all = ask(fetch, 20);
  await upstream.time.until(Promise.all(all.slice(0, 3)));
  await upstream.time.pass(SECOND);
  assert.deepEqual([left, upstream.sent.length, most], [0, 4, 3]);
  left = 1000;
  const answers = await upstream.time.until(Promise.all(all));
  assert.ok(answers.every(({ status }) => status === 200));
});

test('after a pause one request goes first, and the others when it is answered', async (t) => {
  let most = 0;
  const upstream = upstreamOf(t, async (n) => {
    if (n === 0) return reply(429, { 'Retry-After': '3' });
    most = n;
    await sleep(100);
    return reply(200);
  });
  const fetch = upstream.limited();
  const all = [fetch(URL_A)];
  await settled();
  all.push(...ask(fetch, 5));
  await upstream.time.pass(3050);
  assert.equal(most, 1);
  await upstream.time.until(Promise.all(all));
  assert.deepEqual(upstream.sentAt(), [0, 3000, 3100, 3100, 3100, 3100, 3100]);
});

test('a first request that is never answered keeps the others back for 5 s', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, (n) => (n === 0 ? reply(503, { 'Retry-After': '1' }) : n === 1 ? new Promise(() => {}) : reply(200)));
  const fetch = limited({ retries: 0 });
  await fetch(URL_A);
  const [, second] = ask(fetch, 2);
  await time.until(second);
  assert.deepEqual([sentAt()[1], sentAt()[2] >= 6000, sentAt()[2] <= 6050], [1000, true, true]);
});

test('a lying upstream loosens nothing', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, () =>
    reply(200, { 'X-RateLimit-Remaining': '1000000000', 'X-RateLimit-Reset': '1', RateLimit: '"a";r=999999999999999;t=1' }),
  );
  const fetch = limited({ limit: 2, windowMs: SECOND });
  await time.until(Promise.all(ask(fetch, 6)));
  assert.equal(mostInAny(SECOND, sentAt()), 2);
});

test('a pause of ten years is as long as `maxPauseMs`, an hour by default; 0 ignores the upstream', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, () => reply(200, { 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '315360000' }));
  const fetch = limited({ maxPauseMs: 20_000 });
  await fetch(URL_A);
  await time.until(fetch(URL_A));
  assert.deepEqual(sentAt(), [0, 20_000]);
  const patient = limited({ maxWaitMs: 3_599_999 });
  await patient(URL_A);
  await assert.rejects(patient(URL_A), { message: 'fetch: `upstream` refuses; try again in 3600000 ms' });
});

test('with `maxPauseMs: 0` what upstreams say is ignored, and a retry has the pause of one that was told nothing', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, async (n) => {
    if (n > 0) await sleep(100);
    return reply(n < 4 ? 200 : 429, { 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '60', 'Retry-After': '60' });
  });
  const deaf = limited({ maxPauseMs: 0, retries: 1 });
  await deaf(URL_A);
  await time.until(Promise.all(ask(deaf, 3)));
  assert.equal((await time.until(deaf(URL_A))).status, 429);
  const [, ...times] = sentAt();
  assert.deepEqual(times.map((at) => at - times[3]), [-101, -101, -101, 0, 600]);
});

test('what is said later shortens no pause', async (t) => {
  const headers = [{ 'Retry-After': '30' }, { 'Retry-After': '1' }, { RateLimit: 'limit=100, remaining=99, reset=100' }];
  const answers = [];
  const { time, sentAt, limited } = upstreamOf(t, (n) => (n > 2 ? reply(200) : new Promise((resolve) => (answers[n] = () => resolve(reply(n < 2 ? 429 : 200, headers[n]))))));
  const fetch = limited({ retries: 0 });
  const all = ask(fetch, 3);
  await settled();
  for (const answer of answers) answer();
  await Promise.all(all);
  await time.until(fetch(URL_A));
  assert.equal(sentAt()[3], 30_000);
});

test('an answer that comes late does not raise what is left', async (t) => {
  const answers = [];
  const { sent, limited } = upstreamOf(t, (n) => new Promise((resolve) => (answers[n] = (left) => resolve(reply(200, { RateLimit: `"a";r=${left};t=60` })))));
  const fetch = limited();
  ask(fetch, 2);
  await settled();
  answers[1](1);
  await settled();
  answers[0](2);
  await settled();
  ask(fetch, 5);
  await settled();
  assert.equal(sent.length, 3);
});

test('GitHub: a secondary limit pauses, and one resource does not hide what is left of another', async (t) => {
  const github = (resource, left) => ({ 'X-RateLimit-Resource': resource, 'X-RateLimit-Remaining': left, 'X-RateLimit-Reset': '60' });
  const answers = [reply(200, github('search', '0')), reply(200, github('core', '4999'))];
  let open;
  const { time, sentAt, limited } = upstreamOf(t, async (n) => (n === 1 ? (await new Promise((resolve) => (open = resolve)), answers[1]) : (answers[n] ?? reply(200))));
  const fetch = limited();
  const both = ask(fetch, 2);
  await settled();
  open();
  await Promise.all(both);
  await time.until(fetch(URL_A));
  assert.equal(sentAt()[2], 60_000);
  const secondary = upstreamOfGitHub(time);
  await time.until(secondary.fetch(URL_A));
  assert.deepEqual(secondary.sent.map((at) => at - secondary.sent[0]), [0, 9000]);
});

// Answers 403 once, as GitHub does for a secondary limit.
function upstreamOfGitHub(time) {
  const sent = [];
  const fetch = async () => (sent.push(time.ms) === 1 ? reply(403, { 'Retry-After': '9' }) : reply(200));
  return { sent, fetch: limitedFetch(fetch, { now: time.now }) };
}

test('a response that is not one, or has no headers, says nothing', async (t) => {
  const answers = [undefined, null, 5, {}, { status: 200, headers: {} }, { status: 429, headers: new Map([['retry-after', '0']]), body: {} }];
  const { limited } = upstreamOf(t, (n) => answers[n]);
  const fetch = limited({ retries: 0 });
  for (const answer of answers) assert.equal(await fetch(URL_A), answer);
});

test('what is known of upstreams is bounded, and of the latest it is kept', async (t) => {
  const { time, sent, limited } = upstreamOf(t, (n) => reply(200, n < 10_000 ? { 'Retry-After': '1', RateLimit: '"a";r=0;t=50' } : {}));
  const fetch = limited({ maxKeys: 100 });
  const host = (i) => `https://${i}.example/`;
  for (let i = 0; i < 10_000; i++) await fetch(host(i));
  const [first, last] = [fetch(host(0)), fetch(host(9999))];
  await time.until(first);
  assert.deepEqual([sent.length, time.ms], [10_001, 0], 'the first is forgotten');
  await time.until(last);
  assert.equal(sent.at(-1).at, 50_000);
});

test('what is forgotten is of the key that was asked least recently', async (t) => {
  const { sent, limited } = upstreamOf(t, (n) => (n < 4 ? reply(200, { RateLimit: '"a";r=2;t=50' }) : new Promise(() => {})));
  const fetch = limited({ maxKeys: 2 });
  for (const host of ['a', 'b', 'a', 'c']) await fetch(`https://${host}.example`);
  for (const host of ['a', 'b']) ask(fetch, 5, `https://${host}.example`);
  await settled();
  const sentTo = (host) => sent.slice(4).filter(({ input }) => input === `https://${host}.example`).length;
  assert.deepEqual([sentTo('a'), sentTo('b')], [2, 5]);
});

test('an upstream that names a new limit in each answer fills no memory', async (t) => {
  const item = (n, i) => `"${n}-${i}";r=${n === 0 ? 9 : 0};t=60`;
  let answer = (n) => reply(200, { RateLimit: Array.from({ length: 50 }, (_, i) => item(n, i)).join(', ') });
  const { time, sent, limited } = upstreamOf(t, (n) => answer(n));
  const fetch = limited();
  for (let i = 0; i < 20; i++) await fetch(URL_A);
  assert.deepEqual([sent.length, time.ms], [20, 0], 'the first 16 limits have 9 left');
  answer = () => reply(429, { 'Retry-After': '5' });
  await fetch(URL_A, { method: 'POST' });
  answer = () => reply(200);
  await time.until(fetch(URL_A));
  assert.equal(sent.at(-1).at, 5000, 'and `Retry-After` counts beside them');
});

// Retries.

test('429 for ever: as often as `retries` says, with pauses that grow, and the last answer is returned', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, (n) => reply(429, {}, `answer ${n}`));
  const response = await time.until(limited({ retries: 8 })(URL_A));
  const pauses = sentAt().slice(1).map((at, i) => at - sentAt()[i]);
  assert.deepEqual([response.status, await response.text()], [429, 'answer 8']);
  assert.deepEqual(pauses, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
  assert.equal((await limited({ retries: 0 })(URL_A)).status, 429);
});

test('pauses before retries are random, and longer ones of an upstream up to a tenth', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, (n) => reply(429, n === 1 ? { 'Retry-After': '2' } : n === 2 ? { 'Retry-After': '100' } : {}));
  t.mock.method(Math, 'random', () => 0.5);
  await time.until(limited({ retries: 3 })(URL_A));
  assert.deepEqual(sentAt(), [0, 750, 750 + 2100, 750 + 2100 + 100_500]);
});

const repeated = {
  'GET by default': [URL_A],
  HEAD: [URL_A, { method: 'head' }],
  OPTIONS: [URL_A, { method: 'OPTIONS' }],
  'PUT with a text': [URL_A, { method: 'PUT', body: 'x' }],
  'DELETE with bytes': [URL_A, { method: 'DELETE', body: new Uint8Array(3) }],
  'PUT with a buffer': [URL_A, { method: 'PUT', body: new ArrayBuffer(3) }],
  'PUT with a Blob': [URL_A, { method: 'PUT', body: new Blob(['x']) }],
  'PUT with a form': [URL_A, { method: 'PUT', body: new FormData() }],
  'PUT with parameters': [URL_A, { method: 'PUT', body: new URLSearchParams('a=b') }],
  'a Request without a body': [() => new Request(URL_A, { method: 'DELETE' })],
  'POST with an Idempotency-Key': [URL_A, { method: 'POST', body: 'x', headers: { 'Idempotency-Key': '5' } }],
  'a Request with an Idempotency-Key': [() => new Request(URL_A, { method: 'POST', headers: [['idempotency-key', '5']] })],
};
const unrepeated = {
  POST: [URL_A, { method: 'POST', body: 'x' }],
  PATCH: [URL_A, { method: 'PATCH' }],
  'PUT with a stream': [URL_A, { method: 'PUT', body: new ReadableStream(), duplex: 'half' }],
  'PUT with a generator': [URL_A, { method: 'PUT', body: (async function* () {})(), duplex: 'half' }],
  'POST with an Idempotency-Key and a stream': [URL_A, { method: 'POST', body: new ReadableStream(), headers: { 'Idempotency-Key': '5' } }],
  'a Request with a body': [() => new Request(URL_A, { method: 'PUT', body: 'x' })],
  'a Request with a body that the browser does not show': [() => ({ url: URL_A, method: 'PUT', headers: {}, bodyUsed: true })],
};

for (const [rows, times] of [[repeated, 2], [unrepeated, 1]]) {
  for (const [name, [input, init]] of Object.entries(rows)) {
    test(`${name} is sent ${times === 2 ? 'again' : 'once'}`, async (t) => {
      const { time, sent, limited } = upstreamOf(t, (n) => reply(n === 0 ? 429 : 200));
      const given = typeof input === 'function' ? input() : input;
      const response = await time.until(limited()(given, init));
      assert.deepEqual([response.status, sent.length], [times === 2 ? 200 : 429, times]);
      assert.ok(sent.every((one) => one.input === given && one.init === init));
    });
  }
}

const statuses = [
  [429, {}, 2],
  [503, {}, 1],
  [503, { 'Retry-After': '1' }, 2],
  [503, { 'Retry-After': 'soon' }, 1],
  [503, { 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '1' }, 1],
  [403, {}, 1],
  [403, { 'Retry-After': '1' }, 2],
  [403, { 'X-RateLimit-Remaining': '0', 'X-RateLimit-Reset': '1' }, 2],
  [403, { 'X-RateLimit-Remaining': '5', 'X-RateLimit-Reset': '1' }, 1],
  [500, { 'Retry-After': '1' }, 1],
  [301, { 'Retry-After': '1' }, 1],
  [200, { 'Retry-After': '1' }, 1],
];

for (const [status, headers, times] of statuses) {
  test(`${status} with ${JSON.stringify(headers)} is sent ${times === 2 ? 'again' : 'once'}`, async (t) => {
    const { time, sent, limited } = upstreamOf(t, (n) => reply(n === 0 ? status : 200, n === 0 ? headers : {}));
    assert.equal((await time.until(limited()(URL_A))).status, times === 2 ? 200 : status);
    assert.equal(sent.length, times);
  });
}

test('`Retry-After` takes precedence over a reset', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, (n) => reply(n === 0 ? 429 : 200, n === 0 ? { 'Retry-After': '1', RateLimit: '"a";r=0;t=60' } : {}));
  await time.until(limited()(URL_A));
  assert.deepEqual(sentAt(), [0, 1000]);
});

test('a retry does not wait longer than the upstream says', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, (n) => reply(n === 0 ? 429 : 200, { 'Retry-After': '0.1' }));
  await time.until(limited()(URL_A));
  assert.deepEqual(sentAt(), [0, 100]);
});

test('each attempt counts as a request', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, () => reply(429));
  await time.until(Promise.all(ask(limited({ limit: 1, windowMs: 10_000, retries: 2 }), 1)));
  assert.deepEqual(sentAt(), [0, 10_500, 21_000]);
});

test('if the wait would exceed `maxWaitMs`, the refusal is returned, with its body', async (t) => {
  const { time, limited, sent } = upstreamOf(t, () => reply(429, { 'Retry-After': '5' }, 'slow down'));
  const response = await time.until(limited({ maxWaitMs: 4999 })(URL_A));
  assert.deepEqual([response.status, await response.text(), sent.length, time.ms < 5], [429, 'slow down', 1, true]);
  assert.equal((await time.until(limited({ maxWaitMs: 5000, retries: 1 })(`${URL_A}x`))).status, 429);
  assert.equal(sent.length, 3);
});

test('`maxWaitMs` is for all waits of a request together', async (t) => {
  const { time, sentAt, limited } = upstreamOf(t, () => reply(429, { 'Retry-After': '2' }));
  await time.until(limited({ maxWaitMs: 5000, retries: 9 })(URL_A));
  assert.deepEqual(sentAt(), [0, 2000, 4000]);
});

test('the bodies of refusals that are not returned are cancelled, and errors of that are ignored', async (t) => {
  const cancelled = [];
  const bodyOf = (n) => new ReadableStream({ cancel: () => (cancelled.push(n), Promise.reject(new Error('broken'))) });
  const { time, limited } = upstreamOf(t, (n) => reply(429, {}, bodyOf(n)));
  const response = await time.until(limited({ retries: 2 })(URL_A));
  await settled();
  assert.deepEqual([cancelled, response.bodyUsed], [[0, 1], false]);
  const locked = new Response(bodyOf(9), { status: 429 });
  locked.body.getReader();
  const strange = [locked, { status: 429, headers: new Headers(), body: { cancel: () => undefined } }, { status: 429, headers: new Headers(), body: {} }, reply(200)];
  const other = limitedFetch(async () => strange.shift(), { now: time.now, retries: 9 });
  assert.equal((await time.until(other(URL_A))).status, 200);
});

test('a request that fails is sent again, and what it fails with last is thrown', async (t) => {
  const errors = [new TypeError('fetch failed'), 'a text', undefined, new TypeError('last')];
  const { time, sentAt, limited } = upstreamOf(t, (n) => Promise.reject(errors[n]));
  const { signal } = new AbortController();
  await assert.rejects(time.until(limited({ retries: 3 })(URL_A, { signal })), (error) => error === errors[3]);
  assert.equal(getEventListeners(signal, 'abort').length, 0);
  assert.deepEqual(sentAt(), [0, 500, 1500, 3500]);
});

test('a failure of a POST, or of a URL that is none, is thrown at once', async (t) => {
  const { sent, limited } = upstreamOf(t, () => Promise.reject(new TypeError('no')));
  await assert.rejects(limited()(URL_A, { method: 'POST' }), { message: 'no' });
  await assert.rejects(limited()('http://:'), { message: 'no' });
  await assert.rejects(limited()(), { message: 'no' });
  assert.equal(sent.length, 3);
});

test('a function that throws at once is a rejection', async (t) => {
  const { time } = upstreamOf(t);
  const thrower = limitedFetch(() => { throw new Error('sync'); }, { now: time.now, retries: 0 });
  await assert.rejects(thrower(URL_A), { message: 'sync' });
});

// Options.

const wrongs = [
  [[5], 'fetch: `5` is not a function; use `fetch` itself, or one that is like it', 'ERR_LEAPGATE_ARGUMENT'],
  [[undefined], 'fetch: `undefined` is not a function; use `fetch` itself, or one that is like it', 'ERR_LEAPGATE_ARGUMENT'],
  [[fetch, 5], 'options: `5` is not an object; use one, as in `{ limit: 10, windowMs: 1000 }`, or leave it out'],
  [[fetch, { max: 5 }], 'options.max: `5` means nothing here; use `limit`'],
  [[fetch, { interval: 5 }], 'options.interval: `5` means nothing here; use `windowMs`, in milliseconds'],
  [[fetch, { limit: -1, windowMs: 1000 }], 'options.limit: `-1` is not a valid count; use a number from 0 to 9007199254740992'],
  [[fetch, { limit: '5', windowMs: 1000 }], 'options.limit: `5` is a string; use a number'],
  [[fetch, { limit: () => 5, windowMs: 1000 }], 'options.limit: `a function` is not a value; use a number'],
  [[fetch, { limit: 5 }], 'options: `windowMs` is missing; add it'],
  [[fetch, { windowMs: 1000 }], 'options: `limit` is missing; add it'],
  [[fetch, { limit: 5, windowMs: 0 }], 'options.windowMs: `0` is not possible; use a whole number from 1 to 315360000000'],
  [[fetch, { limits: 5 }], 'options.limits: `5` is not an array; use one of limits'],
  [[fetch, { limits: [5] }], 'options.limits[0]: `5` is not an object; use one, as in `{ limit: 10, windowMs: 1000 }`'],
  [[fetch, { limits: [{ limit: 5, windowMs: 1 }, { limit: 5, windowMs: 1.5 }] }], 'options.limits[1].windowMs: `1.5` is not possible; use a whole number from 1 to 315360000000'],
  [[fetch, { limits: [{ limit: 5, windowMs: 1 }, { limit: 6, windowMs: 1 }] }], 'options.limits[1].id: `1ms` is the id of an earlier rule; give one of them another `id`'],
  [[fetch, { limits: [], limit: 5 }], 'options.limit: `5` stands beside `limits`; put it into one of them'],
  [[fetch, { limits: [{ limit: 5, windowMs: 1000, key: 'a' }] }], 'options.limits[0].key: `a` means nothing here; use one of `limit`, `windowMs`, `window`, `sampleCount`, `id`'],
  [[fetch, { concurrency: -1 }], 'options.concurrency: `-1` is not a valid count; use a number from 0 to 9007199254740992'],
  [[fetch, { concurrency: NaN }], 'options.concurrency: `NaN` is not a valid count; use a number from 0 to 9007199254740992'],
  [[fetch, { key: 'host' }], 'options.key: `host` is not a function; use one of a request, or leave it out'],
  [[fetch, { maxKeys: -1 }], 'options.maxKeys: `-1` is not possible; use a whole number from 0 to 16777216'],
  [[fetch, { maxWaitMs: -1 }], 'options.maxWaitMs: `-1` is not possible; use a number from 0 to 1.7976931348623157e+308'],
  [[fetch, { maxPauseMs: Infinity }], 'options.maxPauseMs: `Infinity` is not possible; use a number from 0 to 2147483647'],
  [[fetch, { retries: 1.5 }], 'options.retries: `1.5` is not possible; use a whole number from 0 to 100'],
  [[fetch, { maxWaiting: -1 }], 'options.maxWaiting: `-1` is not possible; use a whole number from 0 to 9007199254740991'],
  [[fetch, { now: 5 }], 'options.now: `5` is not a function; use one that returns milliseconds, or leave it out'],
];

for (const [args, message, code = 'ERR_LEAPGATE_OPTIONS'] of wrongs) {
  test(message, () => assert.throws(() => limitedFetch(...args), { message, code }));
}
