// The cases of express-rate-limit's and hono-rate-limiter's own tests of their middlewares, for a middleware of ours in their place. They are
// written anew from reading them; docs/peers.md has those that it does not meet.

import assert from 'node:assert/strict';
import test from 'node:test';
import { ADAPTERS, statusesOf } from './adapters.mjs';

const MINUTE = 60_000;

/** Tests the middleware of an adapter. `answer` makes a reply of a text, `read` reads a property of a request as handlers see it. */
export function testMiddleware(peer, adapter, { answer, read, status }) {
  const { serve, header } = ADAPTERS[adapter];
  const key = () => 'all';
  const claim = (name, run) => test(`${peer}: ${name}`, run);
  const limited = (options) => serve([{ limit: 2, windowMs: MINUTE, key, ...options }]);
  const asked = (ask, n) => statusesOf(ask, new Array(n).fill({}));

  claim('as many requests as the limit pass, and no more', async () => {
    assert.deepEqual(await asked(await limited({}), 4), [200, 200, 429, 429]);
  });

  claim('a client that was refused passes again after the window, over and over', async () => {
    let ms = 0;
    const ask = await limited({ now: () => ms });
    for (ms of [0, 120_000, 240_000]) assert.deepEqual(await asked(ask, 3), [200, 200, 429]);
  });

  claim('a limit of 0 refuses all', async () => assert.deepEqual(await asked(await limited({ limit: 0 }), 2), [429, 429]));

  claim('the message and the status of a refusal', async () => {
    const ask = await limited({ limit: 0, reply: { body: 'calm down', status: 420 } });
    const refused = await ask({});
    assert.deepEqual([refused.status, refused.body], [420, 'calm down']);
  });

  for (const [how, reply] of [
    ['a function', (...args) => answer(args, 'calm down')],
    ['a function that returns a promise', async (...args) => answer(args, 'calm down')],
  ]) {
    claim(`a refusal answered by ${how}`, async () => {
      const refused = await (await limited({ limit: 0, reply }))({});
      assert.deepEqual([refused.status, refused.body], [429, 'calm down']);
    });
  }

  claim('each key has a limit of its own', async () => {
    const ask = await limited({ limit: 1, key: (...args) => header(args[0], 'client') });
    assert.deepEqual(await statusesOf(ask, ['a', 'b', 'a'].map((client) => ({ client }))), [200, 200, 429]);
  });

  for (const [how, skip] of [['a function', () => true], ['a function that returns a promise', async () => true]]) {
    claim(`requests skipped by ${how} do not count`, async () => {
      assert.deepEqual(await asked(await limited({ limit: 1, skip }), 3), [200, 200, 200]);
    });
  }

  for (const [how, limit] of [['a function', () => 2], ['a function that returns a promise', async () => 2]]) {
    claim(`\`limit\` is ${how}`, async () => assert.deepEqual(await asked(await limited({ limit }), 3), [200, 200, 429]));
  }

  for (const [skips, counts, path, charged] of [
    ['failed', (response) => status(response) < 400, '404', '200'],
    ['successful', (response) => status(response) >= 400, '200', '404'],
  ]) {
    for (const [how, countIf] of [['a function', (_, response) => counts(response)], ['a promise', async (_, response) => counts(response)]]) {
      claim(`${skips} requests are given back, as ${how} says, and others are not`, async () => {
        const left = async (ask) => Number(/r=(\d+)/.exec((await ask({}, charged)).headers.ratelimit)[1]);
        const ask = await limited({ limit: 3, countIf });
        await ask({}, path);
        assert.equal(await left(ask), 2);
        assert.equal(await left(ask), 1);
      });
    }
  }

  claim('a request that is refused is not counted', async () => {
    let ms = 0;
    const ask = await limited({ limit: 1, now: () => ms });
    for (ms = 0; ms < 60_000; ms += 5000) await ask({});
    ms = 63_000;
    assert.equal((await ask({})).status, 200);
  });

  claim('a handler that throws has failed, and its request is given back', async () => {
    const ask = await limited({ limit: 1, countIf: (_, response) => status(response) < 500 });
    for (let i = 0; i < 3; i++) {
      const { status, body } = await ask({}, 'throw');
      assert.deepEqual([status, body], [500, 'thrown']);
    }
  });

  for (const option of ['key', 'skip', 'reply', 'limit']) {
    claim(`what \`${option}\` throws is an error of the request`, async () => {
      const fail = () => {
        throw new Error('no idea');
      };
      const ask = await limited({ ...(option === 'reply' ? { limit: 0 } : {}), [option]: fail });
      const { status, body } = await ask({});
      assert.deepEqual([option === 'reply' || status, body], [option === 'reply' || 500, 'no idea']);
    });
  }

  claim('handlers get the limit and what is left, under a name of choice', async () => {
    const seen = [];
    const look = (name) => (request) => seen.push([read(request, name).limit, read(request, name).remaining]);
    for (const name of ['rateLimit', 'custom']) await (await serve([{ limit: 5, windowMs: MINUTE, key, requestPropertyName: name }], look(name)))({});
    assert.deepEqual(seen, [[5, 4], [5, 4]]);
  });

  claim('two limits with names of their own count separately', async () => {
    const seen = [];
    const ask = await serve(
      [
        { limit: 2, windowMs: MINUTE, key: (...args) => header(args[0], 'client'), requestPropertyName: 'byKey' },
        { limit: 5, windowMs: MINUTE, key, requestPropertyName: 'all' },
      ],
      (request) => seen.push([read(request, 'byKey').remaining, read(request, 'all').remaining]),
    );
    const statuses = await statusesOf(ask, ['a', 'a', 'a', 'b', 'b', 'c', 'd'].map((client) => ({ client })));
    assert.deepEqual(statuses, [200, 200, 429, 200, 200, 200, 429]);
    assert.deepEqual(seen, [[1, 4], [0, 3], [1, 2], [0, 1], [1, 0]]);
  });

  for (const [draft, expected] of [
    ['legacy', { 'x-ratelimit-limit': '5', 'x-ratelimit-remaining': '4', 'x-ratelimit-reset': '63' }],
    [6, { 'ratelimit-policy': '5;w=60', 'ratelimit-limit': '5', 'ratelimit-remaining': '4', 'ratelimit-reset': '63' }],
    [7, { 'ratelimit-policy': '5;w=60', ratelimit: 'limit=5, remaining=4, reset=63' }],
    [11, { 'ratelimit-policy': '"60s";q=5;w=60', ratelimit: '"60s";r=4;t=63' }],
    [false, {}],
  ]) {
    claim(`the headers of the form ${draft}`, async () => {
      const { headers } = await (await limited({ limit: 5, now: () => 0, draft }))({});
      assert.deepEqual(Object.fromEntries(Object.entries(headers).filter(([name]) => name.includes('ratelimit'))), expected);
    });
  }

  claim('a limit has a name of choice in the headers, and two are told together', async () => {
    const limits = [{ limit: 5, windowMs: MINUTE, id: 'minute', key }, { limit: 2, windowMs: 5000, id: 'burst', key }];
    const { headers } = await (await serve(limits))({});
    assert.equal(headers['ratelimit-policy'], '"minute";q=5;w=60, "burst";q=2;w=5');
  });

  claim('a refusal says when to try again', async () => {
    const ask = await limited({ limit: 1, now: () => 0 });
    assert.equal((await ask({})).headers['retry-after'], undefined);
    assert.equal((await ask({})).headers['retry-after'], '63');
  });

  claim('the options object stays as it is', async () => {
    const options = Object.freeze({ limit: 1, windowMs: MINUTE, key, reply: Object.freeze({}) });
    assert.equal((await (await serve([options]))({})).status, 200);
  });

  claim('an option that is undefined counts as not given', async () => {
    const ask = await limited({ skip: undefined, countIf: undefined, draft: undefined, reply: undefined, onRefused: undefined });
    assert.equal((await ask({})).headers['ratelimit-policy'], '"60s";q=2;w=60');
  });
}
