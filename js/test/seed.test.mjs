// When the seed of the key hashes is drawn: Workers have no randomness while a module is loaded.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crash } from './traps.mjs';

const { Limiter } = await import('leapgate');
const { Engine } = await import('leapgate/engine');

// How often random numbers have been drawn.
let drawn = 0;
const { getRandomValues } = crypto;
crypto.getRandomValues = (words) => (drawn++, getRandomValues.call(crypto, words));

const rules = {
  flowRules: [
    { resource: 'api', count: 5, key: ['clientIp', 'path'] },
    { resource: 'plain', count: 5 },
  ],
  systemRules: [{ qps: 100 }],
};

test('no_random_number_is_drawn_until_a_key_is_hashed', () => {
  const limiter = new Limiter({ limit: 1, windowMs: 1000 });
  assert.deepEqual(limiter.stats(), { keys: 0, shared: 0, shadowBlocked: 0 });
  const engine = new Engine(rules, { now: () => 5000 });
  engine.setGauges({ load: 1 });
  assert.deepEqual(engine.top(), []);
  assert.equal(engine.nodes.root.totalPass(), 0);
  assert.equal(engine.limit('plain').remaining, 4);
  assert.deepEqual(engine.counters().map(({ rule, passed }) => [rule.slice(0, 5), passed]), [['plain', 1], ['syste', null]]);
  engine.replace(rules);
  assert.equal(engine.limit('plain').remaining, 3);
  assert.equal(drawn, 0);
  limiter.limit('a');
  assert.equal(drawn, 1);
  limiter.limit('b');
  assert.equal(drawn, 1);
});

const KEYS = { 'a value for each part': ['10.0.0.1', '/'], 'values that are missing': null, 'several values': { clientIp: ['10.0.0.1', '10.0.0.2'], path: '/' } };

for (const [name, key] of Object.entries(KEYS)) {
  test(`random numbers are drawn once before a key is hashed: ${name}`, () => {
    let millis = 5000;
    const engine = new Engine(rules, { now: () => millis });
    // The next instance of the module has none.
    crash('engine_enter', () => engine.limit('plain'));
    assert.equal(engine.limit('plain').success, false);
    millis += 10_000;
    const before = drawn;
    assert.equal(engine.limit('plain').success, true);
    assert.equal(drawn, before);
    assert.equal(engine.limit('api', { key }).success, true);
    assert.equal(engine.limit('api', { key }).success, true);
    assert.equal(drawn, before + 1);
  });
}
