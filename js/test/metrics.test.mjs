// `leapgate/metrics`: what Prometheus and OpenTelemetry read of an engine, by their own code, and the channels.
import assert from 'node:assert/strict';
import diagnostics from 'node:diagnostics_channel';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { test } from 'node:test';
import { AggregationTemporality, InMemoryMetricExporter, MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics';
import { Engine } from 'leapgate/engine';
import { Engine as FlowEngine } from 'leapgate/flow';
import { contentType, observe, prometheusText, publish } from 'leapgate/metrics';
import { SharedLimiter } from 'leapgate/shared';
import { MemoryStore } from 'leapgate/shared/memory';
import parse from 'parse-prometheus-text-format';

const { version } = createRequire(import.meta.url)('leapgate/package.json');

function engineOf(rules) {
  const time = { now: 1000 };
  return [new Engine(rules, { now: () => time.now }), time];
}

// The values of a metric, by their labels.
function valuesOf(text, name) {
  const family = parse(text).find((family) => family.name === `leapgate_${name}`);
  return family?.metrics.map(({ labels, value }) => [labels ?? {}, Number(value)]);
}

test('decisions_of_each_rule_are_counted_with_the_rule_and_its_resource', () => {
  const [engine] = engineOf({
    flowRules: [
      { resource: 'login', count: 3, id: 'a' },
      { resource: 'mail', count: 1, controlBehavior: 'throttle', id: 'b' },
      { resource: '*', count: 1, id: 'c' },
      { resource: 'login', count: 1, id: 'd', mode: 'shadow' },
      { resource: 'login', count: 5, id: 'e', limitApp: 'other' },
    ],
    authorityRules: [{ resource: 'admin', limitApp: 'ops', id: 'f' }],
    degradeRules: [{ resource: 'pay', grade: 'errorRatio', count: 0.5, timeWindow: 10, id: 'g' }],
    systemRules: [{ qps: 1000, id: 'h' }],
    banRules: [{ resource: 'login', key: [{ arg: 0 }], count: 100, banSec: 1, id: 'i' }],
  });
  for (let i = 0; i < 4; i++) engine.limit('login', { origin: 'shop', key: ['x'] });
  engine.limit('mail');
  engine.limit('else');
  engine.limit('admin', { origin: 'crawler' });
  const text = prometheusText(engine);
  const [a, b, c, d] = [['a', 'login'], ['b', 'mail'], ['c', 'else'], ['d', 'login']].map(([rule, resource]) => ({ rule, resource }));
  const e = { rule: 'e', resource: 'login', origin: 'shop' };
  // Without the windows of `*` that nothing has passed.
  const sorted = (rows) => rows.filter(([{ resource }]) => !['admin', 'pay'].includes(resource)).sort(([one], [other]) => (one.rule < other.rule ? -1 : 1));
  assert.deepEqual(sorted(valuesOf(text, 'passed')), [[a, 3], [b, 1], [c, 1], [d, 1], [e, 3]]);
  assert.deepEqual(sorted(valuesOf(text, 'blocked')), [[a, 1], [b, 0], [c, 0], [d, 0], [e, 0]]);
  assert.deepEqual(sorted(valuesOf(text, 'shadow_blocked')).find(([{ rule }]) => rule === 'd'), [d, 3]);
  assert.deepEqual(valuesOf(text, 'authority_blocked'), [[{ rule: 'f', resource: 'admin' }, 1]]);
  assert.deepEqual(valuesOf(text, 'breaker_blocked'), [[{ rule: 'g', resource: 'pay' }, 0]]);
  assert.deepEqual(valuesOf(text, 'system_blocked'), [[{ rule: 'h' }, 0]]);
  assert.deepEqual(valuesOf(text, 'ban_shadow_blocked'), [[{ rule: 'i', resource: 'login' }, 0]]);
  assert.deepEqual(valuesOf(text, 'info'), [[{ version }, 1]]);
  assert.deepEqual(valuesOf(text, 'waiting'), [[{}, 0]]);
  assert.equal(contentType, 'text/plain; version=0.0.4; charset=utf-8');
});

test('a_gauge_shows_the_fullest_of_the_last_minute_and_falls_by_itself', () => {
  const [engine, time] = engineOf({ flowRules: [{ resource: 'a', count: 10 }, { resource: 'k', count: 4, key: [{ arg: 0 }] }] });
  const of = (resource) => valuesOf(prometheusText(engine), 'utilization_percent').find(([labels]) => labels.resource === resource)?.[1];
  assert.deepEqual([of('a'), of('k')], [0, undefined], 'no request yet');
  for (let i = 0; i < 7; i++) engine.limit('a');
  for (const key of ['x', 'y', 'y', 'y']) engine.limit('k', { key: [key] });
  assert.deepEqual([of('a'), of('k')], [70, 75]);
  time.now = 30_000;
  engine.limit('a');
  assert.deepEqual([of('a'), of('k')], [70, 75], 'it holds');
  time.now = 61_000;
  assert.deepEqual([of('a'), of('k')], [10, 0], 'for a minute');
  time.now = 91_000;
  assert.deepEqual([of('a'), of('k')], [0, 0]);
  for (let i = 0; i < 11; i++) engine.limit('a');
  time.now = 100_000;
  assert.equal(of('a'), 100, 'it has refused since the last reading');
  time.now = 160_000;
  assert.equal(of('a'), 0);
});

test('calls_in_flight_and_turns_are_seen_at_their_highest_between_two_readings', () => {
  const [engine, time] = engineOf({
    flowRules: [
      { resource: 'a', count: 10, grade: 'concurrency' },
      { resource: 'b', count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 200 },
    ],
  });
  const entries = [1, 2, 3, 4].map(() => engine.enter('a'));
  entries.forEach((entry) => entry.exit());
  const open = engine.enter('a');
  engine.enter('b').exit();
  const turn = engine.enter('b', { canWait: true });
  assert.equal(turn.waitMs, 100);
  time.now = 5000;
  const text = prometheusText(engine);
  assert.deepEqual(valuesOf(text, 'utilization_percent').map(([, percent]) => percent), [40, 50]);
  assert.deepEqual(valuesOf(text, 'in_flight'), [[{ rule: 'a/concurrency', resource: 'a' }, 1]]);
  open.exit();
  assert.equal(valuesOf(prometheusText(engine), 'in_flight')[0][1], 0);
});

test('a_debt_is_more_than_full', () => {
  const [engine] = engineOf({ flowRules: [{ resource: 'a', count: 100, unit: 'tokens', cost: { estimate: 10 } }] });
  engine.enter('a').exit({ cost: { tokens: 150 } });
  const text = prometheusText(engine);
  assert.deepEqual([valuesOf(text, 'utilization_percent')[0][1], valuesOf(text, 'debt')[0][1]], [150, 140]);
});

test('breakers_tell_their_state', () => {
  const [engine, time] = engineOf({ degradeRules: [{ resource: 'pay', grade: 'errorCount', count: 1, timeWindow: 1, minRequestAmount: 1, id: 'b' }] });
  const state = () => valuesOf(prometheusText(engine), 'breaker_state')?.[0];
  engine.enter('pay').exit();
  assert.deepEqual(state(), [{ rule: 'b', resource: 'pay' }, 0]);
  for (let i = 0; i < 2; i++) engine.enter('pay').exit({ error: true });
  assert.equal(state()[1], 1);
  time.now += 1000;
  const probe = engine.enter('pay');
  assert.equal(state()[1], 2);
  probe.exit();
  assert.equal(state()[1], 0);
});

test('labels_are_escaped_and_engines_have_names', () => {
  const name = 'a"b\\c\nd';
  const [one] = engineOf({ flowRules: [{ resource: name, count: 1 }] });
  const [other] = engineOf({ flowRules: [{ resource: 'x', count: 1 }] });
  one.limit(name);
  other.limit('x');
  const text = prometheusText({ one, other });
  assert(text.includes('leapgate_passed{root="one",rule="a\\"b\\\\c_d",resource="a\\"b\\\\c\\nd"} 1\n'), text);
  assert.deepEqual(valuesOf(text, 'waiting'), [[{ root: 'one' }, 0], [{ root: 'other' }, 0]]);
  assert.equal(text.match(/# TYPE leapgate_passed counter/g).length, 1, 'a family has one head');
  const names = text.split('\n').filter((line) => line && !line.startsWith('#')).map((line) => line.replace(/ \S+$/, ''));
  assert.equal(new Set(names).size, names.length, 'no series stands twice');
});

test('a_shared_limiter_tells_its_leases', async () => {
  const limiter = new SharedLimiter({ id: 'api', limit: 100, windowMs: 60_000, store: new MemoryStore() });
  await limiter.limit('a');
  const text = prometheusText({ edge: limiter });
  const { permits, asks, granted } = limiter.stats();
  const labels = { root: 'edge', rule: 'api' };
  const names = ['permits', 'asks', 'granted', 'lost'];
  assert.deepEqual(names.map((name) => valuesOf(text, `lease_${name}`)), [permits, asks, granted, 0].map((value) => [[labels, value]]));
  assert(asks >= 1 && granted >= 1);
  assert.throws(() => publish(limiter), { message: 'engine: `{…}` is not an engine of `leapgate/engine`; use one' });
  await limiter.close();
});

test('the_names_are_those_of_the_table_in_the_documents', () => {
  const [engine] = engineOf({
    apiDefinitions: [{ apiName: 'api', predicateItems: [{ pattern: '/' }] }],
    flowRules: [
      { resource: 'a', count: 1, grade: 'concurrency' },
      { resource: 'b', count: 1, unit: 'tokens', cost: { estimate: 1 } },
      { resource: 'c', count: { metadata: ['a', 'b'], default: 9 }, key: [{ arg: 0 }], maxKeys: 1 },
    ],
    degradeRules: [{ resource: 'b', grade: 'errorCount', count: 1, timeWindow: 1 }],
    systemRules: [{ qps: 1000 }],
    authorityRules: [{ resource: 'a', limitApp: 'ops' }],
    banRules: [{ resource: 'c', key: [{ arg: 0 }], count: 1000, banSec: 1 }],
  });
  engine.enter('b').exit({ cost: { tokens: 5 } });
  for (let i = 0; i < 9; i++) engine.limit('c', { key: { 'arg:0': `k${i}`, 'metadata:a/b': null } });
  const limiter = new SharedLimiter({ id: 'api', limit: 1, windowMs: 1000, store: new MemoryStore() });
  const told = parse(prometheusText({ engine, limiter })).map(({ name, type }) => `${name} ${type.toLowerCase()}`);
  const rows = readFileSync(new URL('docs/metrics.md', import.meta.url), 'utf8').matchAll(/^\| (`leapgate_.*?) \| (\w+) \| (both|npm) \|/gm);
  const known = [...rows].flatMap(([, names, kind]) => [...names.matchAll(/leapgate_\w+/g)].map(([name]) => `${name} ${kind}`));
  assert(known.length > 20);
  assert.deepEqual(told.sort(), known.sort());
});

test('a_rule_that_is_gone_is_told_no_more', () => {
  const [engine] = engineOf({ flowRules: [{ resource: 'a', count: 1 }] });
  engine.limit('a');
  assert.equal(valuesOf(prometheusText(engine), 'passed').length, 1);
  engine.replace({});
  assert.equal(valuesOf(prometheusText(engine), 'passed'), undefined);
});

test('opentelemetry_observes_the_same', async () => {
  const [engine] = engineOf({
    flowRules: [{ resource: 'a', count: 2, id: 'a' }, { resource: 'b', count: 2, grade: 'concurrency', id: 'b' }],
    degradeRules: [{ resource: 'b', grade: 'errorCount', count: 1, timeWindow: 1, id: 'c' }],
  });
  const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE);
  const reader = new PeriodicExportingMetricReader({ exporter, exportIntervalMillis: 2 ** 30 });
  const provider = new MeterProvider({ readers: [reader] });
  const end = observe(provider.getMeter('leapgate'), { api: engine });
  for (let i = 0; i < 3; i++) engine.limit('a');
  const open = engine.enter('b');
  const read = async () => {
    exporter.reset();
    await reader.forceFlush();
    const all = exporter.getMetrics().flatMap(({ scopeMetrics }) => scopeMetrics).flatMap(({ metrics }) => metrics);
    const points = all.flatMap(({ descriptor, dataPoints }) => dataPoints.map(({ attributes, value }) => [descriptor.name, attributes, value]));
    return points.map(([name, attributes, value]) => {
      const said = Object.entries(attributes).map(([name, text]) => `${name.replace('leapgate.rate_limiting.', '')}=${text}`);
      return `${name} ${said.join(' ')} ${value}`;
    });
  };
  const of = (rule, resource, more) => `engine=api rule=${rule} resource=${resource} kind=${more}`;
  const expected = [
    `leapgate.rate_limiting.requests ${of('a', 'a', 'flow result=refused')} 1`,
    `leapgate.rate_limiting.requests ${of('a', 'a', 'flow result=shadow_refused')} 0`,
    `leapgate.rate_limiting.requests ${of('a', 'a', 'flow result=acquired')} 2`,
    `leapgate.rate_limiting.requests ${of('b', 'b', 'flow result=refused')} 0`,
    `leapgate.rate_limiting.requests ${of('b', 'b', 'flow result=shadow_refused')} 0`,
    `leapgate.rate_limiting.requests ${of('b', 'b', 'flow result=acquired')} 1`,
    `leapgate.rate_limiting.requests ${of('c', 'b', 'breaker result=refused')} 0`,
    `leapgate.rate_limiting.requests ${of('c', 'b', 'breaker result=shadow_refused')} 0`,
    `leapgate.rate_limiting.delayed_requests ${of('a', 'a', 'flow')} 0`,
    `leapgate.rate_limiting.delayed_requests ${of('b', 'b', 'flow')} 0`,
    `leapgate.rate_limiting.active_request_leases ${of('b', 'b', 'flow')} 1`,
    'leapgate.rate_limiting.queued_requests engine=api 0',
    `leapgate.rate_limiting.utilization ${of('a', 'a', 'flow')} 1`,
    `leapgate.rate_limiting.utilization ${of('b', 'b', 'flow')} 0.5`,
    `leapgate.rate_limiting.breaker_state ${of('c', 'b', 'breaker')} 0`,
  ];
  assert.deepEqual((await read()).sort(), expected.sort());
  open.exit();
  assert((await read()).includes(`leapgate.rate_limiting.active_request_leases ${of('b', 'b', 'flow')} 0`));
  end();
  engine.enter('b');
  assert((await read()).every((line) => !line.includes('active_request_leases') || line.endsWith(' 0')), 'it has ended');
  await provider.shutdown();
});

test('events_are_published_on_channels_that_have_subscribers', () => {
  const [engine] = engineOf({ flowRules: [{ resource: 'a', count: 1 }], degradeRules: [{ resource: 'pay', grade: 'errorCount', count: 0, timeWindow: 1, minRequestAmount: 1, id: 'b' }] });
  const told = [];
  const refused = ({ resource, result, engine: of }) => told.push([resource, result.rule, of === engine]);
  const changed = ({ resource, rule, from, to }) => told.push([resource, rule, from, to]);
  const end = publish(engine);
  engine.limit('a');
  engine.limit('a');
  assert.deepEqual(told, [], 'nobody listens');
  diagnostics.subscribe('leapgate:refused', refused);
  diagnostics.subscribe('leapgate:breaker', changed);
  engine.limit('a');
  engine.enter('pay').exit({ error: true });
  assert.deepEqual(told, [['a', 'a', true], ['pay', 'b', 'closed', 'open']]);
  end();
  engine.limit('a');
  assert.equal(told.length, 2);
  diagnostics.unsubscribe('leapgate:refused', refused);
  diagnostics.unsubscribe('leapgate:breaker', changed);
});

test('what_is_wrong_is_said_in_one_sentence', () => {
  const cure = 'is neither an engine of `leapgate/engine`, a `SharedLimiter`, nor an object of them by name; use one';
  const flow = new FlowEngine({});
  for (const [engines, shown] of [[undefined, 'undefined'], [null, 'null'], [5, '5'], [{}, '{…}'], [{ a: 5 }, '{…}'], [[flow], '[…]'], [flow, '{…}']]) {
    assert.throws(() => prometheusText(engines), { name: 'TypeError', code: 'ERR_LEAPGATE_ARGUMENT', message: `engines: \`${shown}\` ${cure}` });
  }
  const [engine] = engineOf({});
  assert.throws(() => observe({}, engine), { name: 'TypeError', message: "meter: `{…}` is not a meter of OpenTelemetry; use `metrics.getMeter('leapgate')`" });
  assert.throws(() => publish(flow), { name: 'TypeError', message: 'engine: `{…}` is not an engine of `leapgate/engine`; use one' });
  assert.throws(() => publish(engine, null), {
    name: 'TypeError',
    message: "channels: `null` is not `node:diagnostics_channel`, which is not found here; hand it in: `publish(engine, await import('node:diagnostics_channel'))`",
  });
  engine.free();
  assert.throws(() => prometheusText(engine), { code: 'ERR_LEAPGATE_FREED' });
});
