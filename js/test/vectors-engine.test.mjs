// Replays recordings of Sentinel itself (vectors/, described in tests/oracle/README.md) on an engine in JavaScript, as tests/core does
// in Rust, with the same warts named.
//
// Only the decisions of an engine are compared here; vectors-stats.test.mjs compares its statistics. Steps that cannot be replayed
// are counted, with the reason. Nothing here may fit one recording alone: if a decision of ours may differ from Sentinel's, a rule
// says when.

import assert from 'node:assert/strict';
import test from 'node:test';
import { Engine } from 'leapgate/engine';
import { recorded } from './vectors.mjs';

// A trace, and its steps one after another.
class Trace {
  constructor(file, number, line) {
    const { steps, ...head } = JSON.parse(line);
    assert.ok(steps.length > 0);
    Object.assign(this, { name: `${file}, trace ${number}`, head, steps, ms: 0, open: new Map(), notReplayed: new Map() });
  }

  engine(rules) {
    return new Engine(rules, { now: () => this.ms });
  }

  // `each` gets the operation, its arguments, Sentinel's answer, and the step.
  replay(each) {
    this.steps.forEach((step, i) => {
      const { t, is, ...rest } = step;
      const [[operation, args]] = Object.entries(rest);
      this.ms = t;
      this.at = `${this.name}, step ${i}: ${JSON.stringify(step)}`;
      if (operation === 'exit') this.exit(args);
      else each(operation, args, is);
    });
  }

  enter(engine, resource, request, id) {
    const entry = engine.enter(resource, { ...request, canWait: true });
    if (entry.success) this.open.set(id, entry);
    if (entry.success) return entry.waitMs > 0 ? { wait: entry.waitMs } : 'pass';
    return { block: entry.cause, rule: entry.rule };
  }

  // Where a wart shows, a call that Sentinel admitted may have been refused here.
  exit({ id, error }) {
    this.open.get(id)?.exit(error ? { error: true } : {});
    this.open.delete(id);
  }

  same(answer, is) {
    assert.deepEqual(answer, is, this.at);
  }

  skip(why) {
    this.notReplayed.set(why, (this.notReplayed.get(why) ?? 0) + 1);
  }
}

// Replays all traces of a component, and prints the number of steps.
function replays(component, title, replay) {
  test(`${component}: ${title}`, () => {
    const traces = recorded(component).flatMap(({ file, lines }) => lines.map((line, number) => new Trace(file, number, line)));
    for (const trace of traces) replay(trace);
    const steps = traces.reduce((sum, trace) => sum + trace.steps.length, 0);
    const not = new Map();
    for (const trace of traces) for (const [why, count] of trace.notReplayed) not.set(why, (not.get(why) ?? 0) + count);
    const rest = [...not].map(([why, count]) => `; not replayed: ${count} steps, ${why}`).join('');
    console.log(`${component}: ${steps} steps of ${traces.length} traces${rest}`);
  });
}

// Rules that decide as Sentinel's, with their places as ids.
const asSentinels = (rules) => rules.map((rule, place) => ({ ...rule, id: String(place), compat: 'sentinel' }));

const isBlock = (is) => is.block !== undefined;

// ---- one flow rule ----

const flow = {
  flow_reject: 'a compatible flow rule decides as Sentinel’s',
  flow_concurrency: 'a compatible limit on concurrency decides as Sentinel’s',
  flow_priority: 'a compatible rule lends as Sentinel’s',
  flow_throttle: 'a compatible throttle paces as Sentinel’s',
  flow_warm_up: 'a compatible warm-up decides as Sentinel’s',
};
for (const [component, title] of Object.entries(flow)) {
  replays(component, title, (trace) => {
    const engine = trace.engine({ flowRules: asSentinels([{ ...trace.head.flowRule, resource: 'service' }]) });
    trace.replay((operation, { id, acquire, prioritized }, is) => {
      assert.equal(operation, 'enter');
      const answer = trace.enter(engine, 'service', { cost: acquire, prioritized }, id);
      trace.same(isBlock(answer) ? { block: answer.block } : answer, is);
    });
  });
}

// ---- several flow rules ----

// `rulesFor` gets the resources that have been entered.
function replaySeveral(trace, rulesFor) {
  const entered = new Set();
  const engine = trace.engine({ flowRules: rulesFor(entered) });
  trace.replay((operation, { id, resource, context, origin, acquire }, is) => {
    assert.equal(operation, 'enter');
    if (!entered.has(resource)) engine.replace({ flowRules: rulesFor(entered.add(resource)) });
    const answer = trace.enter(engine, resource, { context, origin, cost: acquire }, id);
    trace.same(isBlock(answer) ? { ...answer, rule: Number(answer.rule) } : answer, is);
  });
}

replays('origin_relate_chain', 'compatible rules by origin, relation and context decide as Sentinel’s', (trace) =>
  replaySeveral(trace, () => asSentinels(trace.head.flowRules)),
);

// Until the resource that a rule measures is first entered, Sentinel admits everything at any cost: there the default differs, and
// such rules are left out.
replays('origin_relate_chain', 'rules by origin, relation and context decide as Sentinel’s where windows are', (trace) => {
  const rules = trace.head.flowRules.map((rule, place) => ({
    ...rule,
    id: String(place),
    ...(rule.grade === 1 ? { intervalMs: 1000, sampleCount: 2, window: 'sentinel' } : {}),
  }));
  replaySeveral(trace, (entered) => rules.filter(({ strategy, refResource }) => strategy !== 1 || entered.has(refResource)));
});

// ---- circuit breakers ----

replays('breaker', 'a compatible breaker decides as Sentinel’s', (trace) => {
  const engine = trace.engine({ degradeRules: asSentinels([{ ...trace.head.degradeRule, resource: 'service' }]) });
  trace.replay((operation, { id, acquire }, is) => {
    assert.equal(operation, 'enter');
    const answer = trace.enter(engine, 'service', { cost: acquire }, id);
    trace.same(isBlock(answer) ? { block: answer.block } : answer, is);
  });
});

// ---- system rules ----

const MEASURES = { qps: 'qps', maxThread: 'thread', avgRt: 'rt', highestSystemLoad: 'load', highestCpuUsage: 'cpu' };

// A rule for each threshold, so that the id names the refusing one. The first is found in the order of thresholds, and then of rules,
// as with all thresholds in one rule.
const byThreshold = (rules) =>
  rules.flatMap((rule, place) =>
    Object.entries(MEASURES)
      .filter(([threshold]) => rule[threshold] >= 0)
      .map(([threshold, id]) => ({ [threshold]: rule[threshold], id: `${id} ${place}`, compat: 'sentinel' })),
  );

replays('system', 'compatible system rules decide as Sentinel’s', (trace) => {
  const engine = trace.engine({ systemRules: byThreshold(trace.head.systemRules) });
  const gauges = {};
  trace.replay((operation, args, is) => {
    const gauge = { setSystemLoad: 'load', setCpuUsage: 'cpu' }[operation];
    if (gauge !== undefined) return engine.setGauges(Object.assign(gauges, { [gauge]: args }));
    assert.equal(operation, 'enter');
    const { id, resource, type, acquire } = args;
    const answer = trace.enter(engine, resource, { cost: acquire, inbound: type === 'IN' }, id);
    trace.same(isBlock(answer) ? { block: answer.block, limit: answer.rule.split(' ')[0] } : answer, is);
  });
});

// ---- authority ----

// Two warts of Sentinel show in some of the traces: a second rule for a resource is ignored, and names are not trimmed. There our
// decisions are compared with a log, and Sentinel's with its rules as the warts change them.
replays('authority', 'authority rules decide as Sentinel’s but for its warts', (trace) => {
  const { authorityRules, flowRules } = trace.head;
  const engine = trace.engine({ authorityRules, flowRules: asSentinels(flowRules) });
  const wart = authorityRules.some(
    ({ limitApp, resource }, i) => limitApp.includes(' ') || authorityRules.slice(0, i).some((rule) => rule.resource === resource),
  );
  const logs = new Map(flowRules.map((rule) => [rule.resource, []]));
  trace.replay((operation, { id, resource, context, origin }, is) => {
    assert.equal(operation, 'enter');
    const own = authorityRules.filter((rule) => rule.resource === resource);
    const admits = ({ limitApp, strategy }, trim) =>
      origin === '' || limitApp.split(',').some((name) => trim(name) === origin) === (strategy === 0);
    const inSentinel = own.length === 0 || admits(own[0], (name) => name);
    assert.equal(inSentinel, is.block !== 'authority', trace.at);

    const given = trace.enter(engine, resource, { origin, context }, id);
    const answer = !isBlock(given) || given.block === 'flow' ? given : { block: given.block };
    if (isBlock(answer) && answer.block === 'flow') answer.rule = Number(answer.rule);
    if (!wart) return trace.same(answer, is);
    const may = own.every((rule) => admits(rule, (name) => name.trim()));
    const place = flowRules.findIndex((rule) => rule.resource === resource);
    const log = logs.get(resource);
    const half = Math.floor(trace.ms / 500);
    const hasRoom = may && (log === undefined || log.filter((then) => half - then < 2).length + 1 <= flowRules[place].count);
    if (hasRoom) log?.push(half);
    trace.same(answer, !may ? { block: 'authority' } : hasRoom ? 'pass' : { block: 'flow', rule: place });
  });
});

// ---- rules with a key ----

// A naive restatement of one rule: the admitted requests, with their instants and costs.
class Naive {
  constructor(rule) {
    const { grade, controlBehavior, count, burstCount, durationInSec, paramIdx, maxQueueingTimeMs, paramFlowItemList } = rule;
    this.limits = grade === 0 ? 'in flight' : controlBehavior === 2 ? 'turns' : 'passes';
    this.hasKey = paramIdx !== null;
    Object.assign(this, { resource: rule.resource, each: count, burst: burstCount, queue: maxQueueingTimeMs });
    const whole = ({ object, classType }) => (classType.includes('Double') ? object.replace(/\.0$/, '') : object);
    this.items = new Map(paramFlowItemList.map((item) => [whole(item), item.count]));
    this.interval = durationInSec * 1000;
    this.buckets = this.hasKey ? 20 : 100;
    [this.passes, this.latest, this.inFlight] = [[], new Map(), new Map()];
  }

  count(value) {
    const count = this.items.get(value) ?? this.each;
    return this.limits === 'passes' && count > 0 ? count + this.burst : count;
  }

  // How long a request waits; undefined if it is refused.
  ask(value, cost, now) {
    const count = this.count(value);
    const fits = (sum) => (sum <= count ? 0 : undefined);
    if (this.limits === 'passes') {
      // The buckets of the interval, and the one that is leaving.
      const bucketOf = (at) => Math.floor(at / (this.interval / this.buckets));
      const counting = this.passes.filter((pass) => pass.value === value && bucketOf(pass.at) + this.buckets >= bucketOf(now));
      return fits(counting.reduce((sum, pass) => sum + pass.cost, 0) + cost);
    }
    if (this.limits === 'in flight') return fits([...this.inFlight.values()].flat().filter((of) => of === value).length + 1);
    if (count === 0) return undefined;
    const latest = this.latest.get(value);
    const wait = latest === undefined ? 0 : Math.max(0, latest + Math.round((this.interval * cost) / count) - now);
    return wait === 0 || wait < this.queue ? wait : undefined;
  }

  take(values, id, cost, wait, now) {
    // A rule without a key counts a request that waits when it is released.
    const at = this.hasKey ? now : now + wait;
    for (const value of values) {
      if (this.limits === 'passes') this.passes.push({ value, at, cost });
      else if (this.limits === 'turns') this.latest.set(value, now + wait);
      else this.inFlight.set(id, [...(this.inFlight.get(id) ?? []), value]);
    }
  }

  // The most admitted for a value within an interval, as a ratio to its count.
  most() {
    const within = ({ value, at: start }) =>
      this.passes
        .filter((pass) => pass.value === value && pass.at >= start && pass.at < start + this.interval)
        .reduce((sum, { cost }) => sum + cost, 0) / this.count(value);
    return Math.max(0, ...this.passes.map(within));
  }
}

// A value as text. Java distinguishes numbers of different types; here the caller passes texts that differ.
function textOf(value) {
  if (value === null || value === undefined) return null;
  if (typeof value !== 'object') return String(value);
  const [number] = Object.values(value);
  return Object.is(number, -0) ? '-0' : String(number);
}

const textsOf = (value) => (Array.isArray(value) ? value.map(textOf) : [textOf(value)]);

// For rules that pace or count calls in flight, every answer is Sentinel's. For rules that count passes, Sentinel has a token bucket
// for each value, and we a window: it is compared with a naive window. (tests/oracle/check.py restates the bucket.)
class Keyed {
  constructor(trace, engine, written) {
    Object.assign(this, { trace, engine, written });
    this.ours = written.map((rule) => new Naive(rule));
    const several = written.some((rule, i) => i > 0 && rule.resource === written[i - 1].resource);
    this.isExact = !several && this.ours.every(({ limits }) => limits !== 'passes');
  }

  // `key` is the key for the engine; `valuesOf` returns the values that the rule at a place looks at.
  enter({ id, acquire: cost }, resource, key, valuesOf, is) {
    const { trace } = this;
    let answer = trace.enter(this.engine, resource, { key, cost }, id);
    if (isBlock(answer)) answer = { block: 'paramFlow', rule: Number(answer.rule) };
    const asked = [];
    this.ours.forEach((rule, place) => {
      if (rule.resource !== resource) return;
      const values = [...new Set(valuesOf(place).filter((value) => value !== null && value !== '$NM'))];
      const waits = values.map((value) => rule.ask(value, cost, trace.ms));
      asked.push({ place, values, wait: waits.includes(undefined) ? undefined : Math.max(0, ...waits) });
    });
    const refuses = asked.find(({ wait }) => wait === undefined);
    const wait = refuses === undefined ? Math.max(0, ...asked.map(({ wait }) => wait)) : undefined;
    const restated = refuses !== undefined ? { block: 'paramFlow', rule: refuses.place } : wait > 0 ? { wait } : 'pass';
    assert.deepEqual(answer, restated, `${trace.at}: ours, and restated`);
    for (const { place, values } of asked) {
      if (wait !== undefined) this.ours[place].take(values, id, cost, wait, trace.ms);
    }
    if (this.isExact) trace.same(answer, is);
  }

  replay(each) {
    const { exit } = this.trace;
    this.trace.exit = (args) => {
      exit.call(this.trace, args);
      for (const rule of this.ours) rule.inFlight.delete(args.id);
    };
    this.trace.replay(each);
  }

  // Asserts that no rule admitted too much.
  end() {
    for (const rule of this.ours) assert.ok(rule.most() <= 1, `${this.trace.name}: ${rule.most()} times the count`);
  }
}

replays(
  'param_flow',
  'hot parameters are paced and held in flight as Sentinel’s, and counted in windows',
  (trace) => {
    const written = trace.head.paramFlowRules;
    const engine = trace.engine({ paramFlowRules: asSentinels(written) });
    const keyed = new Keyed(trace, engine, written);
    const argOf = (args, index) => args.at(index);
    keyed.replay((operation, { args, ...rest }, is) => {
      assert.equal(operation, 'enter');
      const key = {};
      for (const { paramIdx } of written) key[`arg:${paramIdx}`] = partOf(textsOf(argOf(args, paramIdx)));
      keyed.enter(rest, written[0].resource, key, (place) => textsOf(argOf(args, written[place].paramIdx)), is);
    });
    keyed.end();
  },
);

// The argument for a part: a value, several, or null for none.
function partOf(texts) {
  const there = texts.filter((text) => text !== null);
  return there.length === 0 ? null : there.length === 1 ? there[0] : there;
}

// ---- gateway rules ----

// Sentinel distinguishes addresses, not networks.
const PARTS = ['clientIp:32:128', 'host', 'header', 'query', 'cookie'];

// The value that a gateway reads from a request for a rule.
function readPart({ parseStrategy, fieldName }, { ip, headers, params, cookies }) {
  const header = (name) => Object.entries(headers).find(([known]) => known.toLowerCase() === name.toLowerCase())?.[1];
  const read = [() => ip, () => header('host'), () => header(fieldName), () => params[fieldName], () => cookies[fieldName]];
  return textOf(read[parseStrategy]());
}

function nameOfPart({ parseStrategy, fieldName }) {
  const kind = PARTS[parseStrategy];
  if (parseStrategy < 2) return kind;
  return `${kind}:${kind === 'header' ? fieldName.toLowerCase() : fieldName}`;
}

function matches({ pattern, matchStrategy }, value) {
  if (pattern === null || pattern === '') return true;
  switch (matchStrategy) {
    case 0:
      return value === pattern;
    case 1:
      return value.startsWith(pattern);
    case 2:
      return new RegExp(`^(?:${pattern})$`).test(value);
    case 3:
      return value.includes(pattern);
  }
}

// The values that a rule looks at.
function valuesFor({ paramItem }, request) {
  if (paramItem === null) return ['$D'];
  const value = readPart(paramItem, request);
  return value !== null && matches(paramItem, value) ? [value] : [];
}

replays(
  'gateway',
  'gateway rules decide as Sentinel’s, and count in windows',
  (trace) => {
    const written = trace.head.gatewayRules;
    const engine = trace.engine({ gatewayFlowRules: asSentinels(written) });
    // In our order: Sentinel keeps its gateway rules in no order.
    const converted = written.map((rule) => ({
      resource: rule.resource,
      grade: rule.grade,
      count: rule.count,
      controlBehavior: rule.controlBehavior,
      durationInSec: rule.intervalSec,
      burstCount: rule.burst,
      maxQueueingTimeMs: rule.maxQueueingTimeoutMs,
      paramFlowItemList: [],
      paramIdx: rule.paramItem === null ? null : 0,
    }));
    const keyed = new Keyed(trace, engine, converted);
    let request;
    keyed.replay((operation, args, is) => {
      if (operation === 'parse') {
        ({ request } = args);
        return trace.skip('what Sentinel makes of a request for its rules, which callers in JavaScript do themselves');
      }
      const key = {};
      for (const { resource, paramItem } of written) {
        if (resource !== args.resource || paramItem === null) continue;
        key[nameOfPart(paramItem)] = readPart(paramItem, request);
      }
      keyed.enter(args, args.resource, key, (place) => valuesFor(written[place], request), is);
    });
    keyed.end();
  },
);
