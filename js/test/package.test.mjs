// The package itself: its imports, and its restart after a trap.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { inspect } from 'node:util';
import { crash } from './traps.mjs';

const require = createRequire(import.meta.url);
const options = { limit: 5, windowMs: 1000, now: () => 5000 };

test('import_and_require_share_one_instance', async () => {
  const [imported, required] = [await import('leapgate'), require('leapgate')];
  assert.deepEqual(Object.keys(required), ['Limiter']);
  assert.deepEqual(Object.keys(imported), ['Limiter']);
  assert.equal(imported.Limiter, required.Limiter);
});

test('the_schema_of_documents_is_in_the_package', () => {
  const schema = JSON.parse(readFileSync(require.resolve('leapgate/config.schema.json'), 'utf8'));
  assert.deepEqual([schema.title, Object.keys(schema.properties)[0]], ['leapgate', '$schema']);
});

test('a_console_shows_the_name_and_the_limits_of_an_object', async () => {
  const { Limiter } = await import('leapgate');
  const { ArrayMetric, Engine, LeapArray, StatisticNode } = await import('leapgate/engine');
  const { leapgate } = await import('leapgate/store');
  const limits = "{ limits: [ { id: '1s', limit: 5, windowMs: 1000 } ], maxKeys: 100000 }";
  const shown = (value) => inspect(value, { breakLength: Infinity });
  const limiter = new Limiter(options);
  assert.equal(shown(limiter), `Limiter ${limits}`);
  assert.equal(shown({ limiter }), `{ limiter: Limiter ${limits} }`);
  const store = leapgate();
  assert.equal(shown(store), 'Store { limiter: null }');
  store.init(options);
  assert.equal(shown(store), `Store { limiter: Limiter ${limits} }`);
  limiter.free();
  assert.equal(shown(limiter), `Limiter ${limits}`, 'freed, too');
  const several = { limits: [{ limit: 1, windowMs: 1000 }, { limit: 9, windowMs: 60_000, id: 'long' }], maxKeys: 10 };
  const both = "[ { id: '1s', limit: 1, windowMs: 1000 }, { id: 'long', limit: 9, windowMs: 60000 } ]";
  assert.equal(shown(new Limiter(several)), `Limiter { limits: ${both}, maxKeys: 10 }`);
  const engine = new Engine({ flowRules: [{ resource: 'a', count: 1 }], systemRules: [{ qps: 9 }], mode: 'shadow' });
  assert.equal(shown(engine), "Engine { flowRules: [ 'a' ], systemRules: [ { qps: 9 } ] }");
  engine.replace({});
  assert.equal(shown(engine), 'Engine {}');
  assert.match(shown(engine.enter('a')), /^Entry \{ waitMs: 0, success: true, /);
  assert.deepEqual([shown(Limiter), shown(Engine)], ['[class Limiter]', '[class Engine extends BaseEngine]']);
  const named = [Limiter, Engine, ArrayMetric, LeapArray, StatisticNode].map(({ name }) => name);
  assert.deepEqual(named, ['Limiter', 'Engine', 'ArrayMetric', 'LeapArray', 'StatisticNode']);
  assert.equal(shown(new StatisticNode()), 'StatisticNode {}');
});

test('slim_has_to_be_loaded_before_it_works', async () => {
  const { Limiter, init } = await import('leapgate/slim');
  assert.throws(() => new Limiter(options), {
    code: 'ERR_LEAPGATE_NOT_READY',
    message: 'leapgate/slim: nothing is loaded; call `await init(module)` first',
  });
  await assert.rejects(init(5), {
    code: 'ERR_LEAPGATE_ARGUMENT',
    message: 'module: `5` is not a module; use a WebAssembly.Module, its bytes, its URL or a Response',
  });
  const path = require.resolve('leapgate/leapgate_bg.wasm');
  await init(pathToFileURL(path));
  await init(readFileSync(path));
  assert.equal(new Limiter(options).limit('a').remaining, 4);
});

test('after_a_trap_all_windows_are_full_until_they_have_passed', async () => {
  const { Limiter } = await import('leapgate');
  let millis = 5000;
  const [one, other] = [new Limiter({ ...options, now: () => millis }), new Limiter({ ...options, now: () => millis })];
  one.limit('a');
  for (let i = 0; i < 50; i++) other.limit('hot');
  crash('limiter_ask', () => one.limit('a'));
  for (const limiter of [one, other]) {
    const { success, rule, retryAfterMs } = limiter.limit('hot');
    assert.deepEqual([success, rule, retryAfterMs], [false, null, 1050]);
  }
  assert.equal(new Limiter(options).limit('hot').success, true, 'a limiter made afterwards has lost nothing');
  millis = 6050;
  for (const limiter of [one, other]) assert.equal(limiter.limit('hot').remaining, 4);
});
