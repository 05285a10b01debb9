// The statistics alone. vectors-stats.test.mjs compares their values with Sentinel's.

import { Engine } from 'leapgate/engine';
import { ArrayMetric, LeapArray, StatisticNode } from 'leapgate/stats';
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { test } from 'node:test';

const SECOND = { intervalMs: 1000, sampleCount: 2 };

// The counts of an idle bucket.
const NOTHING = {
  pass: 0,
  block: 0,
  exception: 0,
  success: 0,
  rt: 0,
  occupiedPass: 0,
  minRt: 5000,
  shortestRt: null,
  maxRt: null,
  maxConcurrency: 0,
};

const sentence = (act, code, message, Kind = Error) =>
  assert.throws(act, (error) => {
    assert.deepEqual([error.code, error.message], [code, message]);
    assert.ok(error instanceof Kind, `${error.name}: ${message}`);
    return true;
  });

test('a_bucket_counts_all_events_in_its_time', () => {
  const array = new LeapArray(SECOND);
  array.addPass(3, 1000);
  array.addBlock(2, 1100);
  array.addException(1, 1200);
  array.addSuccess(4, 1300);
  array.addOccupiedPass(5, 1400);
  array.addRt(7, 1400);
  array.addRt(9000.9, 1499.9);
  array.updateConcurrency(6, 1499);
  array.updateConcurrency(2, 1499);
  const value = {
    pass: 3,
    block: 2,
    exception: 1,
    success: 4,
    rt: 9007,
    occupiedPass: 5,
    minRt: 7,
    shortestRt: 7,
    maxRt: 9000,
    maxConcurrency: 6,
  };
  assert.deepEqual(array.currentWindow(1499), { windowStart: 1000, windowLength: 500, value });
  assert.deepEqual(array.currentWindow(1500), { windowStart: 1500, windowLength: 500, value: NOTHING });
  assert.deepEqual(array.previousWindow(1500), { windowStart: 1000, windowLength: 500, value });
});

test('n_is_one_by_default', () => {
  const array = new LeapArray({ ...SECOND, now: () => 1000 });
  array.addPass();
  array.addBlock();
  const { pass, block } = array.currentWindow().value;
  assert.deepEqual([pass, block], [1, 1]);
});

test('buckets_that_count_are_listed_and_all_buckets_too', () => {
  const array = new LeapArray({ intervalMs: 1000, sampleCount: 10 });
  assert.deepEqual([array.list(5000), array.listAll(), array.validHead(5000)], [[], [], null]);
  for (const [now, n] of [[5000, 1], [5100, 2], [5900, 3], [6000, 4]]) array.addPass(n, now);
  const passes = (wraps) => wraps.map(({ windowStart, value }) => [windowStart, value.pass]);
  assert.deepEqual(passes(array.list(6000)), [[5100, 2], [5900, 3], [6000, 4]]);
  assert.deepEqual(passes(array.listAll()), [[5100, 2], [5900, 3], [6000, 4]], 'the last one has taken the place of the first');
  assert.deepEqual(passes(array.list(6100)), [[5900, 3], [6000, 4]]);
  assert.equal(passes(array.listAll()).length, 3, 'reading opens nothing');
  assert.deepEqual(array.values(6100).map(({ pass }) => pass), [3, 4]);
  assert.deepEqual(array.valuesConditional((start) => start < 6000, 6100).map(({ pass }) => pass), [3]);
  assert.equal(array.validHead(6000).windowStart, 5100);
  array.addPass(5, 6200);
  assert.deepEqual(passes(array.list(6200)), [[5900, 3], [6000, 4], [6200, 5]]);
  assert.deepEqual(passes(array.listAll()), [[5100, 2], [5900, 3], [6000, 4], [6200, 5]], 'nothing has taken its place yet');
  assert.deepEqual([array.windowValue(5999).pass, array.windowValue(5050), array.windowValue(5200)], [3, null, null]);
});

test('a_bucket_counts_for_one_interval_from_its_start', () => {
  const array = new LeapArray(SECOND);
  const wrap = array.currentWindow(10_000);
  const deprecated = [10_000, 10_999, 11_000, 20_000].map((now) => array.isWindowDeprecated(wrap, now));
  assert.deepEqual(deprecated, [false, false, true, true]);
});

test('places_and_starts_are_sentinels', () => {
  const array = new LeapArray({ intervalMs: 10_000, sampleCount: 20 });
  assert.deepEqual([array.intervalMs, array.sampleCount, array.windowLengthMs], [10_000, 20, 500]);
  assert.equal(array.calculateTimeIdx(1_576_296_044_907), 9);
  assert.equal(array.calculateWindowStart(1_576_296_044_907), 1_576_296_044_500);
});

test('an_interval_has_its_largest_divisor_up_to_a_hundred_as_its_number_of_buckets', () => {
  for (const [intervalMs, sampleCount] of [[1000, 100], [999, 37], [60_000, 100]]) {
    assert.equal(new LeapArray({ intervalMs }).sampleCount, sampleCount);
  }
});

test('a_clock_that_steps_back_loses_nothing', () => {
  const array = new LeapArray(SECOND);
  array.addPass(3, 10_000);
  array.addPass(4, 9_600);
  assert.equal(array.currentWindow(9_600).windowStart, 10_000);
  array.addPass(1, 2_000);
  assert.deepEqual(array.list(2_000).map(({ windowStart, value }) => [windowStart, value.pass]), [[2000, 8]]);
});

test('sums_and_rates_are_of_the_buckets_that_count', () => {
  const metric = new ArrayMetric({ intervalMs: 2000, sampleCount: 4 });
  metric.addPass(3, 1000);
  metric.addPass(4, 1500);
  metric.addSuccess(2, 1500);
  metric.addRt(30, 1500);
  metric.addRt(10, 1500);
  metric.addException(1, 1500);
  metric.addBlock(5, 2000);
  metric.updateConcurrency(9, 2000);
  const events = ['pass', 'block', 'exception', 'success', 'rt', 'occupiedPass'];
  assert.deepEqual(events.map((event) => metric.sum(event, 2499)), [7, 5, 1, 2, 40, 0]);
  assert.deepEqual(events.map((event) => metric[event](2499)), [7, 5, 1, 2, 40, 0]);
  assert.deepEqual(events.map((event) => metric.average(event, 2499)), [3.5, 2.5, 0.5, 1, 20, 0]);
  assert.deepEqual(events.map((event) => metric.windowSum(event, 1999)), [4, 0, 1, 2, 40, 0]);
  assert.deepEqual([metric.previousWindowPass(2000), metric.previousWindowBlock(2500)], [4, 5]);
  assert.deepEqual([metric.maxSuccess(2499), metric.minRt(2499), metric.maxConcurrency(2499)], [2, 10, 9]);
  assert.deepEqual([metric.shortestRt(2499), metric.maxRt(2499)], [10, 30]);
  assert.equal(metric.pass(3000), 4, 'the first bucket has left');
  assert.deepEqual([metric.minRt(9000), metric.shortestRt(9000), metric.maxRt(9000), metric.maxSuccess(9000)], [5000, null, null, 1]);
});

test('details_have_all_counts_of_a_bucket', () => {
  const metric = new ArrayMetric(SECOND);
  metric.addPass(5, 1000);
  metric.addSuccess(4, 1000);
  metric.addRt(125, 1000);
  metric.touch(1500);
  const nothing = { pass: 0, block: 0, success: 0, exception: 0, rt: 0, occupiedPass: 0, concurrency: 0 };
  const first = { ...nothing, timestamp: 1000, pass: 5, success: 4, rt: 31 };
  assert.deepEqual(metric.details(1999), [first, { ...nothing, timestamp: 1500 }]);
  assert.deepEqual(metric.detailsOnCondition((timestamp) => timestamp < 1500, 1999), [first]);
});

test('a_borrowed_pass_counts_when_its_bucket_begins', () => {
  for (const [untouched, pass] of [['kept', 2], ['lost', 0]]) {
    const metric = new ArrayMetric({ ...SECOND, untouched });
    metric.addPass(1, 1000);
    metric.addWaiting(1500, 2);
    assert.deepEqual([metric.pass(1499), metric.waiting(1499)], [1, 2]);
    assert.deepEqual([metric.pass(1500), metric.waiting(1500)], [1 + pass, 0], untouched);
    metric.touch(1500);
    assert.equal(metric.pass(1500), 3, 'a touched bucket pays');
  }
});

test('a_view_counts_what_its_ring_counts', () => {
  const metric = new ArrayMetric({ intervalMs: 10_000, sampleCount: 20 });
  const view = metric.view({ intervalMs: 2000, sampleCount: 2 });
  for (let now = 1000; now < 6000; now += 500) metric.addPass(1, now);
  assert.deepEqual([metric.pass(5999), view.pass(5999), view.average('pass', 5999)], [10, 4, 2]);
  assert.deepEqual([view.intervalMs, view.sampleCount, view.windowLengthMs], [2000, 2, 1000]);
  assert.deepEqual(view.details(5999).map(({ timestamp, pass }) => [timestamp, pass]), [[4000, 2], [5000, 2]]);
  sentence(
    () => metric.view({ intervalMs: 2100, sampleCount: 3 }),
    'ERR_LEAPGATE_OPTIONS',
    'options: buckets of `700` ms are not made of whole buckets of 500 ms; use 500 or 1000 ms',
    RangeError,
  );
  sentence(
    () => metric.view({ intervalMs: 20_000, sampleCount: 2 }),
    'ERR_LEAPGATE_OPTIONS',
    'options: `20000` ms is more than the ring of 10000 ms holds; use at most that',
    RangeError,
  );
});

test('a_busy_second_reads_as_in_sentinel', () => {
  const node = new StatisticNode();
  for (let i = 0; i < 8; i++) node.begin(1, 10_000 + i);
  for (let i = 0; i < 5; i++) node.complete(20 + i, { failed: i === 0 }, 10_200);
  node.increaseBlockQps(3, 10_300);
  const values = (now) => [
    node.passQps(now),
    node.blockQps(now),
    node.totalQps(now),
    node.successQps(now),
    node.exceptionQps(now),
    node.avgRt(now),
    node.minRt(now),
    node.maxSuccessQps(now),
  ];
  assert.deepEqual(values(10_400), [8, 3, 11, 5, 1, 22, 20, 10]);
  assert.deepEqual(values(11_000), [0, 0, 0, 0, 0, 0, 5000, 2]);
  const totals = [node.totalRequest(69_999), node.totalPass(69_999), node.totalSuccess(69_999), node.totalException(69_999)];
  assert.deepEqual([...totals, node.blockRequest(69_999)], [11, 8, 5, 1, 3]);
  assert.equal(node.totalRequest(70_000), 0, 'the minute is over');
  assert.equal(node.curThreadNum(), 3);
  assert.deepEqual([node.previousPassQps(11_000), node.previousBlockQps(11_000)], [8, 3]);
});

test('calls_in_flight_never_fall_below_zero', () => {
  const node = new StatisticNode();
  node.increaseThreadNum();
  node.decreaseThreadNum();
  node.decreaseThreadNum();
  assert.equal(node.curThreadNum(), 0);
});

test('the_second_and_the_minute_are_whole_metrics', () => {
  const node = new StatisticNode({ now: () => 10_400 });
  node.addPassRequest(2);
  node.addRtAndSuccess(8, 2);
  const [second, minute] = [node.second(), node.minute()];
  assert.deepEqual([second.intervalMs, second.sampleCount, minute.intervalMs, minute.sampleCount], [1000, 2, 60_000, 60]);
  assert.deepEqual([second.pass(), second.maxRt(), minute.success()], [2, 8, 2]);
  assert.deepEqual(minute.details().map(({ timestamp, pass }) => [timestamp, pass]), [[10_000, 2]]);
  assert.equal(node.second(), second, 'it is the same one each time');
});

test('the_metric_log_gets_each_second_once', () => {
  const node = new StatisticNode();
  for (const now of [10_000, 11_500, 13_000]) node.addPassRequest(1, now);
  const seconds = (now) => node.metrics(now).map(({ timestamp }) => timestamp);
  assert.deepEqual([seconds(13_000), seconds(13_999), seconds(14_000)], [[10_000, 11_000], [], [13_000]]);
  assert.deepEqual(
    node.rawMetricsInMin((timestamp) => timestamp > 10_000, 14_000).map(({ timestamp }) => timestamp),
    [11_000, 13_000],
  );
});

test('passes_that_expire_at_the_next_boundary_can_be_borrowed_now', () => {
  const node = new StatisticNode();
  node.addPassRequest(4, 1000);
  node.addPassRequest(1, 1600);
  assert.equal(node.tryOccupyNext(2, 5, 1700), 300);
  node.addWaitingRequest(2000, 2);
  node.addOccupiedPass(2, 1700);
  assert.deepEqual([node.waiting(1700), node.occupiedPassQps(1700), node.totalPass(1700)], [2, 2, 7]);
  assert.equal(node.tryOccupyNext(3, 5, 1700), 500);
  assert.equal(node.passQps(2000), 3);
});

test('the_clock_is_the_one_given_or_else_a_steady_one', () => {
  let millis = 10_000;
  const metric = new ArrayMetric({ ...SECOND, now: () => millis });
  metric.addPass(1);
  millis = 10_700;
  assert.deepEqual([metric.previousWindowPass(), metric.view({ intervalMs: 500, sampleCount: 1 }).pass()], [1, 0]);
  const before = performance.now();
  const { windowStart } = new LeapArray({ intervalMs: 1, sampleCount: 1 }).currentWindow();
  assert.ok(windowStart >= Math.floor(before) && windowStart <= performance.now());
});

test('a_wrong_option_is_refused_with_a_sentence', () => {
  const options = (options, message, Kind = RangeError) =>
    sentence(() => new LeapArray(options), 'ERR_LEAPGATE_OPTIONS', message, Kind);
  options({ intervalMs: 0 }, 'options.intervalMs: `0` is not possible; use a whole number from 1 to 315360000000');
  options({ intervalMs: '1s' }, 'options.intervalMs: `1s` is a string; use a whole number from 1 to 315360000000');
  options(
    { intervalMs: 1000, sampleCount: 7 },
    'options.sampleCount: `7` does not divide the 1000 ms interval; use one of 1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100',
  );
  options({ intervalMs: 1e9, sampleCount: 1e9 }, 'options.sampleCount: `1000000000` is not possible; use a whole number from 1 to 1000');
  options({ sampleCount: 2 }, 'options: `intervalMs` is missing; add it');
  options({ intervalMs: 1000, samples: 2 }, 'options: `samples` is not a known key; use one of `intervalMs`, `sampleCount`');
  options({ intervalMs: 1000, untouched: 'lost' }, 'options: `untouched` is not a known key; use one of `intervalMs`, `sampleCount`');
  options({ intervalMs: 1n }, 'options.intervalMs: `1` is a bigint; use a number', TypeError);
  sentence(
    () => new StatisticNode({ untouched: 'gone' }),
    'ERR_LEAPGATE_OPTIONS',
    'options.untouched: `gone` is not a valid value; use one of `kept`, `lost`',
    RangeError,
  );
});

test('a_wrong_argument_is_refused_with_a_sentence', () => {
  const [array, metric, node] = [new LeapArray(SECOND), new ArrayMetric(SECOND), new StatisticNode()];
  const whole = 'is not possible; use a whole number from 0 to 4294967295';
  for (const [act, message, Kind] of [
    [() => new LeapArray(), 'options: `undefined` is not an object; use one, as in `{ intervalMs: 1000, sampleCount: 2 }`', TypeError],
    [() => new ArrayMetric(5), 'options: `5` is not an object; use one, as in `{ intervalMs: 1000, sampleCount: 2 }`', TypeError],
    [() => new StatisticNode(null), 'options: `null` is not an object; use one, as in `{ untouched: \'lost\' }`', TypeError],
    [() => metric.view(), 'options: `undefined` is not an object; use one, as in `{ intervalMs: 1000, sampleCount: 2 }`', TypeError],
    [() => new StatisticNode({ now: 5 }), 'options.now: `5` is not a function; use one that returns milliseconds, or leave it out', TypeError],
    [() => array.addPass(1, '5'), 'now: `5` is not a valid time; use milliseconds, a number of at least 0', TypeError],
    [() => array.addPass(1, -1), 'now: `-1` is not a valid time; use milliseconds, a number of at least 0', RangeError],
    [() => array.list(NaN), 'now: `NaN` is not a valid time; use milliseconds, a number of at least 0', RangeError],
    [() => array.windowValue(), 'at: `undefined` is not a valid time; use milliseconds, a number of at least 0', TypeError],
    [() => array.isWindowDeprecated(5), 'wrap: `5` is not a bucket of an array; use what `list` or `currentWindow` returns', TypeError],
    [() => array.addPass(1.5), `n: \`1.5\` ${whole}`, RangeError],
    [() => array.addPass('2'), `n: \`2\` ${whole.replace('not possible', 'a string')}`, TypeError],
    [() => node.addPassRequest(2 ** 32), `n: \`4294967296\` ${whole}`, RangeError],
    [() => node.complete(1, { n: -1 }), `outcome.n: \`-1\` ${whole}`, RangeError],
    [() => node.complete(1, null), 'outcome: `null` is not an object; use one, as in `{ failed: true }`', TypeError],
    [() => node.complete(1, { error: 1 }), 'outcome.error: `1` means nothing here; use one of `n`, `failed`', TypeError],
    [() => node.complete(1, { failed: 1 }), 'outcome.failed: `1` is not a boolean; use `true` or `false`', TypeError],
    [() => metric.updateConcurrency(-1), `inFlight: \`-1\` ${whole}`, RangeError],
    [() => metric.addRt(-1), 'rt: `-1` is not possible; use a number from 0 to 9007199254740991', RangeError],
    [() => node.tryOccupyNext(1, NaN), 'threshold: `NaN` is not possible; use a number from 0 to 9007199254740992', RangeError],
    [() => metric.sum('passes'), 'event: `passes` is not a valid event; use one of pass, block, exception, success, rt, occupiedPass', TypeError],
    [() => metric.detailsOnCondition(5), 'predicate: `5` is not a function; use one that takes the start of a bucket', TypeError],
  ]) {
    sentence(act, /^(options|outcome)/.test(message) ? 'ERR_LEAPGATE_OPTIONS' : 'ERR_LEAPGATE_ARGUMENT', message, Kind);
  }
  const stopped = new StatisticNode({ now: () => undefined });
  const message = 'options.now(): `undefined` is not a valid time; use milliseconds, a number of at least 0';
  sentence(() => stopped.passQps(), 'ERR_LEAPGATE_CLOCK', message, TypeError);
});

test('the_last_instants_are_valid', () => {
  const [array, metric, node] = [new LeapArray(SECOND), new ArrayMetric(SECOND), new StatisticNode()];
  for (const now of [0, 1e15, Number.MAX_SAFE_INTEGER, Number.MAX_VALUE, Infinity]) {
    array.addPass(1, now);
    metric.addPass(2 ** 32 - 1, now);
    metric.addWaiting(now, 1);
    node.begin(1, now);
    node.complete(1, {}, now);
    node.tryOccupyNext(1, 5, now);
    assert.ok(array.list(now).length > 0 && metric.details(now).length > 0 && node.second().details(now).length > 0, String(now));
    node.metrics(now);
  }
});

test('using_a_freed_object_is_an_error', () => {
  for (const [made, use, what] of [
    [new LeapArray(SECOND), (array) => array.addPass(), 'array'],
    [new ArrayMetric(SECOND), (metric) => metric.pass(), 'metric'],
    [new StatisticNode(), (node) => node.passQps(), 'node'],
  ]) {
    use(made);
    made.free();
    made.free();
    sentence(() => use(made), 'ERR_LEAPGATE_FREED', `${what}: it has been freed; make another one, or free it later`);
  }
  const other = new LeapArray(SECOND);
  assert.deepEqual(other.list(0), [], 'what takes its place is another one');
  if (Symbol.dispose) {
    other[Symbol.dispose]();
    assert.throws(() => other.list(), { code: 'ERR_LEAPGATE_FREED' });
  }
});

test('import_and_require_share_one_instance', () => {
  const require = createRequire(import.meta.url);
  assert.equal(require('leapgate/stats').LeapArray, LeapArray);
  assert.equal(require('leapgate/engine').Engine, Engine);
});

test('many_objects_are_kept_apart', () => {
  const arrays = Array.from({ length: 1000 }, () => new LeapArray(SECOND));
  arrays.forEach((array, i) => array.addPass(i, 1000));
  arrays.forEach((array, i) => i % 2 && array.free());
  arrays.forEach((array, i) => i % 2 || assert.equal(array.currentWindow(1000).value.pass, i));
  assert.equal(new LeapArray(SECOND).currentWindow(1000).value.pass, 0);
});

// ---- the nodes of an engine ----

// An engine and its clock, with some calls in flight: `orders` of two origins in the context `web`, `stock` below it.
function busy(rules = {}) {
  const clock = { millis: 10_000 };
  const engine = new Engine(rules, { now: () => clock.millis });
  const orders = engine.enter('orders', { context: 'web', origin: 'app', inbound: true });
  const stock = engine.enter('stock', { within: orders, origin: 'app' });
  engine.enter('orders', { context: 'web', origin: 'shop' });
  engine.enter('stock', { context: 'job', cost: 2 });
  clock.millis = 10_020;
  stock.exit({ error: true });
  return { engine, clock };
}

test('a_tree_has_a_node_for_each_context_resource_and_origin', () => {
  const { nodes } = busy().engine;
  const { root } = nodes;
  assert.equal(root.name, 'machine-root');
  assert.deepEqual(root.entrances().map(({ name }) => name), ['web', 'job']);
  assert.deepEqual(root.children(), []);
  const web = nodes.entrance('web');
  assert.deepEqual(web.entrances(), []);
  assert.deepEqual(web.children().map(({ context, resource }) => [context, resource]), [['web', 'orders']]);
  const [orders] = web.children();
  assert.deepEqual(orders.children().map(({ context, resource }) => [context, resource]), [['web', 'stock']]);
  assert.deepEqual(nodes.clusters().map(({ resource }) => resource), ['orders', 'stock']);
  assert.deepEqual(nodes.cluster('orders').origins().map(({ origin }) => origin), ['app', 'shop']);
  assert.equal(nodes.inbound.resource, '__total_inbound_traffic__');
  assert.deepEqual(nodes.inbound.origins(), []);
});

test('nodes_have_their_own_counts', () => {
  const { engine, clock } = busy();
  const { nodes } = engine;
  const passes = (node) => [node.passQps(), node.curThreadNum()];
  assert.deepEqual(passes(nodes.root), [4, 3]);
  assert.deepEqual(passes(nodes.entrance('web')), [2, 2], 'inner calls are not added up again');
  assert.deepEqual(passes(nodes.defaultNode('web', 'stock')), [1, 0]);
  assert.deepEqual(passes(nodes.cluster('stock')), [3, 1]);
  assert.deepEqual(passes(nodes.cluster('orders').origin('shop')), [1, 1]);
  assert.deepEqual(passes(nodes.inbound), [1, 1]);
  const stock = nodes.cluster('stock');
  assert.deepEqual([stock.exceptionQps(), stock.avgRt(), stock.second().maxRt(), stock.minute().pass()], [1, 20, 20, 3]);
  assert.deepEqual(stock.rawMetricsInMin(() => true).map(({ timestamp, pass, success }) => [timestamp, pass, success]), [[10_000, 3, 1]]);
  assert.deepEqual(stock.metrics(), []);
  clock.millis = 11_000;
  assert.deepEqual(stock.metrics().map(({ timestamp, concurrency }) => [timestamp, concurrency]), [[10_000, 2]]);
  assert.equal(stock.passQps(10_999), 3, 'another time than that of the clock can be given');
  assert.equal(stock.passQps(), 0);
});

test('a_node_is_null_until_it_exists', () => {
  const engine = new Engine({});
  const { nodes } = engine;
  const ask = () => [nodes.entrance('web'), nodes.defaultNode('web', 'a'), nodes.cluster('a'), nodes.cluster('a')?.origin('app')];
  assert.deepEqual(ask(), [null, null, null, undefined]);
  assert.deepEqual([nodes.clusters(), nodes.root.entrances()], [[], []]);
  engine.limit('a', { context: 'web' });
  assert.equal(nodes.cluster('a').origin('app'), null);
  engine.limit('a', { context: 'web', origin: 'app' });
  assert.ok(ask().every((node) => node.totalPass() > 0));
});

test('a_node_is_the_same_object_each_time', () => {
  const { nodes } = busy().engine;
  const [first, second] = [0, 1].map(() => [nodes.root, nodes.entrance('web'), nodes.cluster('stock'), ...nodes.clusters()]);
  second.forEach((node, i) => assert.equal(node, first[i]));
  assert.equal(nodes.defaultNode('web', 'orders').cluster(), nodes.cluster('orders'));
});

test('any_text_is_a_valid_name', () => {
  const engine = new Engine({});
  const names = ['a", "b', 'a', 'long '.repeat(100), '\0', 'ü€😀', ' ', '__proto__'];
  for (const name of names) engine.limit(name, { context: `in ${name}`, origin: name });
  assert.deepEqual(engine.nodes.clusters().map(({ resource }) => resource), [...names].sort());
  for (const name of names) {
    const entrance = engine.nodes.entrance(`in ${name}`);
    assert.deepEqual(entrance.children().map(({ resource }) => resource), [name]);
    assert.equal(engine.nodes.cluster(name).origin(name).totalPass(), 1);
  }
});

test('a_name_is_a_string', () => {
  const { nodes } = new Engine({});
  for (const [act, message] of [
    [() => nodes.cluster(5), 'resource: `5` is not a string; use one'],
    [() => nodes.entrance(), 'context: `undefined` is not a string; use one'],
    [() => nodes.defaultNode('web', null), 'resource: `null` is not a string; use one'],
    [() => busy().engine.nodes.cluster('orders').origin({}), 'origin: `{…}` is not a string; use one'],
  ]) {
    sentence(act, 'ERR_LEAPGATE_ARGUMENT', message, TypeError);
  }
});

test('nodes_outlive_their_engine_and_a_freed_engine_returns_none', () => {
  const { engine } = busy();
  const { nodes } = engine;
  const stock = nodes.cluster('stock');
  engine.free();
  assert.equal(stock.totalPass(10_020), 3);
  sentence(() => nodes.cluster('stock'), 'ERR_LEAPGATE_FREED', 'engine: it has been freed; make another one, or free it later');
});

test('results_are_read_after_memory_has_grown', () => {
  for (let i = 0; i < 100; i++) {
    const engine = new Engine({});
    const array = new LeapArray({ intervalMs: 1000, sampleCount: 1000 });
    assert.equal(engine.nodes.root.totalPass(), 0);
    array.addPass(1, 1000);
    assert.equal(array.list(1000)[0].value.pass, 1);
  }
});

// ---- decisions of rules ----

test('counters_have_the_decisions_of_each_rule', () => {
  const engine = new Engine(
    {
      flowRules: [
        { resource: 'a', count: 2, id: 'two' },
        { resource: 'a', count: 1, id: 'shadow', mode: 'shadow' },
        { resource: '*', count: 1, id: 'each' },
        { resource: 'b', count: 1, id: 'others', limitApp: 'other' },
        { resource: 'c', count: 1, id: 'key', key: ['clientIp'], maxKeys: 1 },
      ],
      authorityRules: [
        { resource: 'd', limitApp: 'ops', strategy: 'white', id: 'only-ops' },
        { resource: 'e', limitApp: 'ops', strategy: 'white', id: 'only-ops' },
      ],
    },
    { now: () => 1000 },
  );
  const begun = engine.counters();
  const rules = begun.map(({ rule, resource }) => [rule, resource]);
  assert.deepEqual(rules, [['each', 'd'], ['each', 'e'], ['only-ops', null], ['shadow', null], ['two', null]], 'the rules of named resources');
  assert.ok(begun.every(({ passed, blocked }) => !passed && blocked === 0));
  for (let i = 0; i < 3; i++) engine.limit('a');
  for (let i = 0; i < 2; i++) engine.limit('x');
  for (const origin of ['app', 'app', 'shop']) engine.limit('b', { origin });
  for (const key of ['1.1.1.1', '1.1.1.1', '2.2.2.2']) engine.limit('c', { key });
  for (const resource of ['d', 'e']) engine.limit(resource, { origin: 'app' });
  const row = (rule, resource, origin, passed, blocked, shadowBlocked = 0) => {
    const waited = passed === null ? null : 0;
    const [shared, defaulted] = rule === 'key' ? [1, 0] : [null, null];
    return { rule, resource, origin, passed, waited, blocked, shadowBlocked, shared, defaulted, debt: passed === null ? null : 0 };
  };
  assert.deepEqual(
    engine.counters().filter((row) => row.passed !== 0 || row.blocked !== 0),
    [
      row('each', 'x', null, 1, 1),
      row('key', null, null, 2, 1),
      row('only-ops', null, null, null, 2),
      row('others', null, 'app', 1, 1),
      row('others', null, 'shop', 1, 0),
      row('shadow', null, null, 1, 0, 2),
      row('two', null, null, 2, 1),
    ],
  );
});

test('counters_have_the_requests_that_waited', () => {
  const engine = new Engine(
    { flowRules: [{ resource: 'a', count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 500, id: 'paced' }] },
    { now: () => 1000 },
  );
  for (let i = 0; i < 3; i++) engine.enter('a', { canWait: true }).exit();
  const [{ passed, waited }] = engine.counters();
  assert.deepEqual([passed, waited], [3, 2]);
});

test('top_returns_the_hottest_keys', () => {
  const engine = new Engine(
    {
      flowRules: [
        { resource: 'a', count: 100, id: 'z', key: ['clientIp'] },
        { resource: 'b', count: 10, id: 'paced', key: ['clientIp'], controlBehavior: 'throttle', maxQueueingTimeMs: 5000 },
      ],
    },
    { now: () => 1000 },
  );
  assert.deepEqual(engine.top(), []);
  const ask = () => [9, 5, 7].forEach((times, i) => {
    for (let n = 0; n < times; n++) engine.limit('a', { key: `client ${i}` });
  });
  ask();
  engine.top();
  ask();
  const hot = (rule, key, amount) => ({ rule, key, amount });
  assert.deepEqual(engine.top(2), [hot('z', 'client 0', 18), hot('z', 'client 2', 14)]);
  assert.deepEqual(engine.top().map(({ key }) => key), ['client 0', 'client 2', 'client 1']);
  for (let n = 0; n < 3; n++) engine.enter('b', { key: 'slow', canWait: true });
  assert.deepEqual(engine.top(1), [hot('paced', 'slow', 300), hot('z', 'client 0', 18)]);
  sentence(
    () => engine.top(0.5),
    'ERR_LEAPGATE_ARGUMENT',
    'n: `0.5` is not possible; use a whole number from 0 to 10000',
    RangeError,
  );
});
