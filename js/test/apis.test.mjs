// Requests that enter a resource and APIs together.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Engine } from 'leapgate/engine';

function engineAt(flowRules) {
  const clock = { millis: 0 };
  return [new Engine({ flowRules }, { now: () => clock.millis }), clock];
}

const left = (engine, resource, request) => engine.policies(resource, request).map(({ id, remaining }) => [id, remaining]);

const settled = () => new Promise(setImmediate);

test('a_request_enters_its_resource_and_each_api_or_none', async () => {
  const [engine] = engineAt([
    { resource: 'web', count: 3, id: 'route' },
    { resource: 'login', count: 4, id: 'login' },
  ]);
  const request = { apis: ['login', 'unknown', 'login'] };
  assert.equal(engine.limit('web', request).success, true);
  assert.equal(engine.enter('web', request).success, true);
  assert.equal(await engine.run('mobile', request, (entry) => entry.success), true);
  assert.equal((await engine.acquire('mobile', request)).success, true);
  const { success, rule, policies } = engine.enter('web', request);
  assert.deepEqual([success, rule, policies.map(({ id }) => id)], [false, 'login', ['route', 'login']]);
  assert.deepEqual(left(engine, 'web'), [['route', 1]]);
  assert.deepEqual(left(engine, 'other', request), [['login', 0]]);
  assert.equal(engine.limit('web', { apis: [] }).rule, 'route');
});

test('the_key_of_a_request_has_the_parts_of_all_that_it_enters', () => {
  const [engine] = engineAt([
    { resource: 'web', count: 5, key: ['clientIp'], id: 'address' },
    { resource: 'login', count: 1, key: [{ header: 'x-user' }], id: 'user' },
  ]);
  const apis = ['login'];
  const enter = (user) => engine.limit('web', { apis, key: { clientIp: '10.0.0.1', 'header:x-user': user } }).rule;
  assert.deepEqual([enter('ann'), enter('bob'), enter('ann')], ['user', 'user', 'user']);
  assert.deepEqual(left(engine, 'web', { apis, key: ['10.0.0.1', 'cat'] }), [['address', 3], ['user', 1]]);
  assert.equal(engine.limit('web', { key: '10.0.0.1' }).remaining, 2);
  assert.throws(() => engine.limit('web', { apis, key: { clientIp: '10.0.0.1' } }), {
    message: 'request.key: `{…}` does not say `header:x-user`; add it, or null if there is none',
  });
});

test('a_resource_with_apis_is_never_taken_for_a_resource_of_their_names_in_json', () => {
  const [engine] = engineAt([{ resource: 'login', count: 1, id: 'login' }]);
  assert.equal(engine.limit('web', { apis: ['login'] }).rule, 'login');
  assert.equal(engine.limit('["web","login"]').rule, null);
});

test('the_windows_of_a_resource_and_its_apis_outlive_their_numbers', () => {
  const [engine] = engineAt([
    { resource: 'web', count: 2, id: 'route' },
    { resource: 'login', count: 2, id: 'login' },
  ]);
  const apis = ['login'];
  assert.equal(engine.limit('web', { apis }).success, true);
  for (let i = 0; i < 5000; i++) engine.limit(`r${i % 3}`, { apis: [`a${i}`] });
  assert.equal(engine.limit('web', { apis }).success, true);
  assert.equal(engine.limit('web', { apis }).rule, 'route');
  assert.deepEqual(left(engine, 'web'), [['route', 0]]);
});

test('a_list_of_apis_that_is_not_valid_is_refused_with_one_sentence', async () => {
  const [engine] = engineAt([]);
  const faults = [
    ['login', TypeError, 'request.apis: `login` is not a list of APIs; use an array of at most 16 names'],
    [null, TypeError, 'request.apis: `null` is not a list of APIs; use an array of at most 16 names'],
    [new Array(17).fill('a'), RangeError, 'request.apis: `[…]` has 17 names; use an array of at most 16 names'],
    [['a', 5], TypeError, 'request.apis[1]: `5` is not a string; use one'],
    [[, 'a'], TypeError, 'request.apis[0]: `undefined` is not a string; use one'],
    [['a'.repeat(1025)], RangeError, `request.apis[0]: \`${'a'.repeat(64)}…\` has 1025 characters; use at most 1024`],
  ];
  for (const [apis, Kind, message] of faults) {
    const fault = { name: Kind.name, code: 'ERR_LEAPGATE_OPTIONS', message };
    for (const method of ['limit', 'enter', 'policies']) assert.throws(() => engine[method]('web', { apis }), fault);
    await assert.rejects(engine.acquire('web', { apis }), fault);
    await assert.rejects(engine.run('web', { apis }, () => 1), fault);
  }
  assert.throws(() => engine.limit(5n, { apis: ['a'] }), { message: 'resource: `5` is not a string; use one' });
});

// What holds the place that a waiting request needs, and that request.
const PAIRS = [
  [['web', ['shop']], ['mobile', ['shop']], 'an API of both'],
  [['web', []], ['web', ['shop']], 'the resource of both'],
  [['web', ['shop', 'all']], ['mobile', ['all', 'news']], 'one of several APIs'],
];

const RULES = {
  'calls in flight': { grade: 'concurrency', count: 1 },
  'the estimate of a cost': { unit: 'tokens', count: 10, cost: { estimate: { default: 10, atMost: '100%' } } },
};

for (const [what, rule] of Object.entries(RULES)) {
  test(`a_call_that_ends_wakes_those_who_wait_with_other_apis_for_${what.replaceAll(' ', '_')}`, async () => {
    for (const [[resource, apis], [other, others], why] of PAIRS) {
      const shared = resource === other ? resource : apis.find((name) => others.includes(name));
      const [engine] = engineAt([{ resource: shared, ...rule, id: 'shared' }]);
      const held = engine.enter(resource, { apis });
      assert.equal(held.success, true);
      const log = [];
      const waiting = engine.acquire(other, { apis: others }).then(
        (entry) => log.push(entry.success),
        (error) => log.push(error.code),
      );
      await settled();
      assert.deepEqual(log, [], why);
      held.exit({ cost: { tokens: 0 } });
      await settled();
      assert.deepEqual(log, [true], why);
      engine.free();
      await waiting;
    }
  });
}
