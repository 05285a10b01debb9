// Engines of flow rules alone: they decide as whole engines do, and refuse what those have besides.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { mock, test } from 'node:test';
import { Engine as Whole } from 'leapgate/engine';
import { Engine } from 'leapgate/flow';

const KINDS = [Engine, Whole];

// Both modules hash keys alike: keys that share states share them in both.
mock.method(crypto, 'getRandomValues', (words) => words.fill(7));

// Random numbers that are the same each time.
function random(seed) {
  let state = seed;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n) => Math.floor(next() * n);
  return { below, one: (list) => list[below(list.length)], chance: (part) => next() < part };
}

const KEYS = [['path'], [{ header: 'X-User' }], [{ header: 'x-user' }, { query: 'q' }], [{ arg: 0 }], ['method', { cookie: 'sid' }]];

function ruleOf({ below, one, chance }, resource) {
  const rule = { resource, count: one([0, 0.5, 1, 2, 3, 5, 10, 40]) };
  if (chance(0.3)) return { ...rule, grade: one(['concurrency', 0]), ...(chance(0.3) && { key: one(KEYS) }) };
  if (chance(0.5)) rule.intervalMs = one([100, 500, 1000, 1001, 2000, 60_000]);
  if (chance(0.3)) rule.id = `r${below(1e9)}`;
  if (chance(0.2)) rule.unit = one(['tokens', 'bytes']);
  const behavior = one(['reject', 'reject', 'throttle', 'warmUp', 'warmUpThrottle', 0, 2]);
  if (chance(0.4) && behavior !== 'warmUp' && behavior !== 'warmUpThrottle') {
    // Which further keys share depends on the seed of each module: there is room for all.
    Object.assign(rule, { key: one(KEYS), ...(chance(0.3) && { maxKeys: one([200, 1000]) }) });
    if (chance(0.3) && behavior !== 'throttle' && behavior !== 2) rule.burst = below(5);
  }
  if (chance(0.7)) rule.controlBehavior = behavior;
  const paced = ['throttle', 'warmUpThrottle', 2].includes(rule.controlBehavior);
  if (!paced && chance(0.4)) rule.window = one(['strict', 'sentinel', 'weighted']);
  if (!paced && chance(0.2)) rule.sampleCount = one([1, 2, 5].filter((n) => (rule.intervalMs ?? 1000) % n === 0));
  if (paced && chance(0.5)) rule.maxQueueingTimeMs = one([0, 10, 300, 2000]);
  if (String(rule.controlBehavior).startsWith('warmUp') && chance(0.5)) Object.assign(rule, { warmUpPeriodSec: 1 + below(5), coldFactor: 2 + below(4) });
  return rule;
}

// A document whose rules have ids of their own.
function documentOf(random) {
  const rules = Array.from({ length: 1 + random.below(5) }, () => ruleOf(random, random.one(['a', 'a', 'b'])));
  for (;;) {
    try {
      return new Whole({ flowRules: rules }) && { flowRules: rules };
    } catch (error) {
      const [, i] = /^flowRules\[(\d+)\]\.id/.exec(error.message);
      rules.splice(i, 1);
    }
  }
}

const told = ({ success, limit, remaining, reset, retryAfterMs, rule, cause, status, policies, waitMs }) => ({
  success, limit, remaining, reset, retryAfterMs, rule, cause, status, policies, waitMs,
});

// What `act` returns for each kind of engine, which is the same.
function same(engines, act, about) {
  const [one, other] = engines.map((engine, i) => {
    try {
      return act(engine, i);
    } catch (error) {
      return { message: error.message, code: error.code };
    }
  });
  assert.deepEqual(one, other, about);
  return one;
}

const VALUES = ['a', 'b', 'Zoë', 7, null, ['a', 'b'], ['b', 'b', 'c'], 'k1', 'k2', 'k3', 'k4'];

test('random_sequences_are_decided_as_by_whole_engines', () => {
  const counts = { refused: 0, waits: 0, passed: 0 };
  for (let seed = 0; seed < 400; seed++) {
    const chosen = random(seed);
    const { below, one, chance } = chosen;
    let now = below(5000);
    const rules = documentOf(chosen);
    const engines = KINDS.map((Kind) => new Kind(rules, { now: () => now }));
    const open = [];
    // Which of the states in which nothing counts any more is used again first depends on how often keys are looked up, and shows only
    // after the clock has stepped back: then each request has one key.
    const stepsBack = seed % 2 === 1;
    const values = VALUES.filter((value) => !(stepsBack && Array.isArray(value)));
    for (let step = 0; step < 120; step++) {
      const about = `seed ${seed}, step ${step}, at ${now}, ${JSON.stringify(rules)}`;
      if (chance(0.6)) now += one([0, 1, 7, 50, 99.5, 400, 3000]);
      if (stepsBack && chance(0.02)) now = Math.max(0, now - one([10, 3000]));
      const key = chance(0.5) ? [one(values), one(values)] : null;
      const cost = one([undefined, undefined, 0, 1, 2, 5, { tokens: 3 }, { tokens: 0, requests: 2 }, { bytes: 9 }]);
      const parts = (resource) => Math.max(...rules.flowRules.filter((rule) => rule.resource === resource).map(({ key }) => key?.length ?? 0), 0);
      const resource = one(['a', 'b', 'c']);
      const asked = { key: key && key.slice(0, Math.max(1, parts(resource))), cost };
      if (chance(0.05)) same(engines, (engine) => engine.policies(resource, { key: asked.key }), about);
      if (chance(0.1)) {
        same(engines, (engine) => told(engine.limit(resource, asked)), about);
      } else if (chance(0.7)) {
        const entries = [];
        const canWait = chance(0.7);
        const answer = same(engines, (engine, i) => told((entries[i] = engine.enter(resource, { ...asked, canWait }))), about);
        if (answer.success) {
          open.push(entries);
          counts[answer.waitMs > 0 ? 'waits' : 'passed']++;
        } else counts.refused++;
      } else if (open.length > 0) {
        const [entries] = open.splice(below(open.length), 1);
        const how = one([(entry) => entry.exit(), (entry) => entry.exit({ error: 1 }), (entry) => entry.cancel(), (entry) => entry.exit({ refund: true }), (entry) => entry.exit({ unanswered: true })]);
        entries.forEach(how);
      }
      if (chance(0.01)) {
        const others = chance(0.5) ? documentOf(chosen) : { flowRules: rules.flowRules.map((rule) => ({ ...rule, count: rule.count + 1 })) };
        same(engines, (engine) => engine.replace(others), about);
        rules.flowRules = others.flowRules;
      }
    }
  }
  assert(Object.values(counts).every((n) => n > 150), JSON.stringify(counts));
});

test('acquire_and_run_wait_as_in_whole_engines', async () => {
  const rules = {
    flowRules: [
      { resource: 'slots', count: 2, grade: 'concurrency' },
      { resource: 'turns', count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 2000 },
      { resource: 'rate', count: 3, intervalMs: 500, key: ['path'] },
    ],
  };
  const logs = [];
  for (const Kind of KINDS) {
    mock.timers.enable({ apis: ['setTimeout'] });
    let now = 0;
    const engine = new Kind(rules, { now: () => now });
    const log = [];
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    for (let i = 0; i < 8; i++) {
      const say = (what) => (outcome) => log.push([now, i, what, outcome?.code ?? 'ok']);
      engine.run('slots', () => sleep(30 + i)).then(say('slot'), say('slot'));
      engine.acquire('turns', { maxWaitMs: 500 }).then((entry) => (entry.exit(), say('turn')()), say('turn'));
      engine.acquire('rate', { key: i % 2 ? 'a' : 'b', priority: i }).then((entry) => (entry.exit(), say('rate')()), say('rate'));
    }
    log.push(engine.stats());
    let isDrained = false;
    engine.drain().then(() => (isDrained = true));
    for (; now < 3000; now++) {
      mock.timers.tick(1);
      for (let i = 0; i < 5; i++) await null;
    }
    log.push(isDrained);
    mock.timers.reset();
    logs.push(log);
  }
  assert.deepEqual(logs[0], logs[1]);
  assert.equal(logs[0].length, 26);
  assert.equal(logs[0].at(-1), true);
});

// The scenarios of all shells that need flow rules alone.
const folder = new URL('./scenarios/', import.meta.url);
let played = 0;
for (const file of readdirSync(folder).filter((file) => file.endsWith('.json'))) {
  const scenario = JSON.parse(readFileSync(new URL(file, folder)));
  const documents = [scenario.rules, ...scenario.steps.flatMap(({ rules }) => rules ?? [])];
  const isRefused = (document) => {
    try {
      return void new Engine(document);
    } catch ({ message }) {
      assert.match(message, /is not part of flow rules alone; use `leapgate\/engine`$/, file);
      return true;
    }
  };
  const asks = scenario.steps.flatMap(({ enter, left }) => enter ?? left ?? []);
  const isAlone = asks.every((asked) => ['origin', 'context', 'within', 'prioritized', 'inbound', 'exempt', 'apis', 'path'].every((name) => !(name in asked)));
  if (documents.some(isRefused) || !isAlone || scenario.steps.some(({ nodes }) => nodes)) continue;
  played++;
  test(`${file}: ${scenario.about}`, () => {
    let now = 0;
    const engine = new Engine(scenario.rules, { now: () => now });
    const open = new Map();
    const keyed = (keys = {}) => new Proxy(keys, { get: (keys, part) => keys[part] ?? null });
    for (const { at, is, enter, exit, rules, left } of scenario.steps) {
      now = at;
      if (rules) engine.replace(rules);
      if (exit) open.get(exit.id).exit((({ id, ...outcome }) => outcome)(exit));
      if (left) {
        const policies = engine.policies(left.resource, { key: keyed(left.keys) });
        assert.deepEqual(policies.map(({ id, remaining, resetMs }) => [id, remaining, resetMs]), is);
      }
      for (let i = 0; enter && i < (enter.times ?? 1); i++) {
        const { resource, id, times, keys, ...request } = enter;
        const entry = engine.enter(resource, { ...request, key: keyed(keys), canWait: true });
        const { success, waitMs, rule, retryAfterMs } = entry;
        const passed = waitMs > 0 ? { waitMs } : 'pass';
        assert.deepEqual(success ? passed : { block: rule, retryAfterMs: retryAfterMs === Infinity ? null : retryAfterMs }, is);
        if (id === undefined) entry.exit();
        else open.set(id, entry);
      }
    }
  });
}

test('scenarios_of_flow_rules_are_among_those_of_all_shells', () => assert(played >= 2, `only ${played}`));

const MORE = 'is not part of flow rules alone; use `leapgate/engine`';
const flow = { resource: 'a', count: 1 };
const refused = (rules) => {
  try {
    new Engine(rules);
  } catch ({ name, code, message }) {
    assert.deepEqual([name, code], ['RangeError', 'ERR_LEAPGATE_RULES']);
    return message;
  }
  return undefined;
};

test('what_only_whole_engines_have_is_refused', () => {
  for (const list of ['paramFlowRules', 'gatewayFlowRules', 'degradeRules', 'systemRules', 'authorityRules', 'banRules', 'apiDefinitions']) {
    assert.equal(refused({ [list]: [{}] }), `${list}: \`[…]\` ${MORE}`);
    assert.equal(refused({ [list]: [] }), undefined);
  }
  assert.equal(refused({ mode: 'shadow' }), `mode: \`shadow\` ${MORE}`);
  assert.equal(refused({ envoy: {} }), `envoy: \`{…}\` ${MORE}`);
  assert.equal(refused({ mode: 'enforce', envoy: null, flowRules: [flow] }), undefined);
  for (const [field, value, shown] of [
    ['limitApp', 'ann', 'ann'],
    ['strategy', 'relate', 'relate'],
    ['strategy', 2, '2'],
    ['refResource', 'b', 'b'],
    ['keyItems', [{}], '[…]'],
    ['enforcePercent', 0, '0'],
    ['exempt', [{ origin: 'a' }], '[…]'],
    ['cost', {}, '{…}'],
    ['compat', 'sentinel', 'sentinel'],
    ['regex', true, 'true'],
    ['clusterMode', true, 'true'],
    ['mode', 'shadow', 'shadow'],
    ['count', { metadata: ['a', 'b'], default: 1 }, '{…}'],
    ['resource', '*', '*'],
  ]) {
    assert.equal(refused({ flowRules: [flow, { ...flow, id: 'x', [field]: value }] }), `flowRules[1].${field}: \`${shown}\` ${MORE}`);
  }
  for (const [part, shown] of [['clientIp', 'clientIp'], ['peer', 'peer']]) {
    assert.equal(refused({ flowRules: [{ ...flow, key: ['path', part] }] }), `flowRules[0].key[1]: \`${shown}\` ${MORE}`);
  }
  for (const kind of ['clientIp', 'jwtClaim', 'metadata', 'typedMetadata', 'routeMetadata', 'filterState']) {
    assert.equal(refused({ flowRules: [{ ...flow, key: [{ [kind]: 'a' }] }] }), `flowRules[0].key[0].${kind}: \`a\` ${MORE}`);
  }
  const sentinels = { limitApp: 'default', strategy: 0, regex: false, clusterMode: false, clusterConfig: {}, gmtCreate: 5, app: 'x', ip: null };
  assert.equal(refused({ flowRules: [{ ...flow, ...sentinels }] }), undefined);
  const many = Array.from({ length: 1001 }, (_, i) => ({ ...flow, resource: `r${i}` }));
  assert.equal(refused({ flowRules: many }), 'flowRules: `[…]` has more than 1000 rules; use `leapgate/engine`');
  assert.equal(refused({ flowRules: many.slice(1) }), undefined);
});

test('what_only_other_rules_read_of_a_request_is_refused', async () => {
  const engine = new Engine({ flowRules: [flow] }, { now: () => 0 });
  for (const name of ['origin', 'prioritized', 'context', 'inbound', 'exempt', 'apis', 'within']) {
    const error = { name: 'TypeError', code: 'ERR_LEAPGATE_OPTIONS', message: `request.${name}: \`x\` ${MORE}` };
    for (const ask of ['limit', 'enter', 'policies']) assert.throws(() => engine[ask]('a', { [name]: 'x' }), error);
    await assert.rejects(engine.acquire('a', { [name]: 'x' }), error);
    await assert.rejects(engine.run('a', { [name]: 'x' }, () => {}), error);
  }
  assert.equal(engine.limit('a').success, true, 'nothing was charged');
});

test('wrong_rules_are_refused_in_the_words_of_whole_engines', () => {
  const wrong = [
    [{}, 5, 'x', null, []],
    ['resource', undefined, null, 5, '', 'x'.repeat(257)],
    ['count', undefined, null, '5', -1, 2 ** 54, [1]],
    ['id', '', -1, 1.5, 'é', 'x'.repeat(257), true, {}],
    ['unit', '', 5, 'é'],
    ['grade', 'qqs', 2, -1, true],
    ['intervalMs', 0, 1.5, '5', 1e15, {}],
    ['sampleCount', 0, 3, 7, 1001, 'x', 2.5],
    ['window', 'fixed', 0, {}],
    ['controlBehavior', 'wait', 4, 1.5, true],
    ['warmUpPeriodSec', 0, 5, 'x', -1],
    ['coldFactor', 1, 4, 2 ** 31],
    ['maxQueueingTimeMs', 5, -1, 'x'],
    ['maxKeys', 5],
    ['burst', 5],
    ['key', 'path', [], {}, ['path', 'path'], [5], [null], [[]], [{}], [{ header: 5 }], [{ header: '' }], [{ arg: 'x' }], [{ arg: 0.5 }], [{ arg: 2 ** 31 }]],
    ['key', Array.from({ length: 9 }, (_, i) => ({ arg: i })), [{ header: 'a', query: 'b' }], [{ header: 'A' }, { header: 'a' }]],
  ];
  let compared = 0;
  const compare = (rule) => {
    const [one, other] = KINDS.map((Kind) => {
      try {
        return void new Kind({ flowRules: [rule] });
      } catch ({ message, code, name }) {
        return [name, code, message];
      }
    });
    assert.deepEqual(one, other, JSON.stringify(rule));
    if (one !== undefined) compared++;
  };
  wrong[0].slice(1).forEach(compare);
  for (const [field, ...values] of wrong.slice(1)) for (const value of values) compare({ ...flow, [field]: value });
  const behaviors = [undefined, 'reject', 'warmUp', 'throttle', 'warmUpThrottle', 0, 1, 2, 3];
  const more = [{ warmUpPeriodSec: 5 }, { coldFactor: 9 }, { maxQueueingTimeMs: 9 }, { window: 'strict' }, { sampleCount: 2 }, { unit: 'tokens' }, { intervalMs: 2000 }, { burst: 3, key: ['path'] }, { burst: 0, key: ['path'] }, { maxKeys: 0, key: ['path'] }];
  for (const controlBehavior of behaviors) {
    for (const grade of [undefined, 'concurrency', 1]) for (const fields of more) compare({ ...flow, controlBehavior, grade, ...fields });
  }
  assert(compared > 150, `only ${compared}`);
  assert.equal(refused([flow]), 'document: `[…]` is an array; put it in an object, under `flowRules`');
  assert.equal(refused({ flowRules: [{ ...flow, count: Infinity }] }), 'flowRules[0].count: `Infinity` is not a valid count; use a number from 0 to 9007199254740992');
  for (const $schema of [5, true, ['a'], {}, 'a', '', null, undefined]) {
    const [one, other] = KINDS.map((Kind) => {
      try {
        return void new Kind({ $schema, flowRules: [flow] });
      } catch ({ message }) {
        return message;
      }
    });
    assert.equal(one, other, String($schema));
  }
  assert.equal(refused({ $schema: 5 }), '$schema: `5` is a number; use a string');
  assert.equal(refused({ flowRules: 5 }), 'flowRules: `5` is a number; use an array');
  assert.equal(refused({ flowRuls: [] }), 'document: `flowRuls` is not a known key; use `flowRules`');
  assert.match(refused({ flowRules: [{ ...flow, cuont: 1 }] }), /^flowRules\[0\]: `cuont` is not a known key; use one of `id`, `resource`, /);
  assert.equal(refused({ flowRules: [flow, flow] }), 'flowRules[1].id: `a` is the id of an earlier rule; give one of them another `id`');
  const many = Array.from({ length: 65 }, (_, i) => ({ ...flow, id: i }));
  assert.equal(refused({ flowRules: many }), 'flowRules[64].resource: `a` has too many rules; use at most 64 for one resource');
});

test('a_wrong_document_replaces_nothing', () => {
  const engine = new Engine({ flowRules: [flow] }, { now: () => 0 });
  engine.limit('a');
  assert.throws(() => engine.replace({ flowRules: [{ ...flow, count: -1 }] }), { code: 'ERR_LEAPGATE_RULES' });
  assert.throws(() => engine.replace({ flowRules: [flow, flow] }), { code: 'ERR_LEAPGATE_RULES' });
  assert.equal(engine.limit('a').success, false);
  engine.replace({ flowRules: [{ ...flow, count: 2 }] });
  assert.equal(engine.limit('a').remaining, 0, 'it goes on where it was');
});

test('refusals_are_told_and_memory_is_freed', () => {
  const engine = new Engine({ flowRules: [flow] }, { now: () => 0 });
  const heard = [];
  engine.on('refused', ({ resource, result }) => heard.push([resource, result.rule]));
  assert.throws(() => engine.on('breaker', () => {}), { message: 'event: `breaker` is not a valid event; use `refused`' });
  engine.enter('a').exit();
  engine.limit('a');
  assert.deepEqual(heard, [['a', 'a']]);
  engine.free();
  assert.throws(() => engine.limit('a'), { code: 'ERR_LEAPGATE_FREED' });
});

test('the_package_has_one_instance_of_the_small_engine', () => {
  assert.equal(createRequire(import.meta.url)('leapgate/flow').Engine, Engine);
  assert.equal(Object.getOwnPropertyNames(Engine.prototype).includes('counters'), false);
});
