// Compares the statistics with recordings of Sentinel's (vectors/, described in tests/oracle/README.md), as tests/core does in Rust,
// with the same warts named.
//
// Most of Sentinel's reads open the current bucket first, which decides whether a borrowed pass counts. Reads here change
// nothing, so the replay opens the bucket wherever Sentinel does, and only there.

import { Engine } from 'leapgate/engine';
import { ArrayMetric, LeapArray, StatisticNode } from 'leapgate/stats';
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { recorded } from './vectors.mjs';

// A test that replays every trace of `component`: `replay` gets the trace and returns a function that answers a step, or undefined
// for a step without an answer.
function replays(name, component, replay) {
  test(name, () => {
    for (const { file, lines } of recorded(component)) {
      for (const [number, line] of lines.entries()) {
        const trace = JSON.parse(line);
        const answer = replay(trace);
        for (const [i, step] of trace.steps.entries()) {
          const [operation, given] = Object.entries(step).find(([key]) => key !== 't' && key !== 'is');
          const place = `${file}, trace ${number}, step ${i}: ${JSON.stringify(step)}`;
          let is;
          try {
            is = answer(operation, given, step);
          } catch (error) {
            throw new Error(place, { cause: error });
          }
          assert.deepEqual(is, step.is, place);
        }
        assert.ok(trace.steps.length > 0, `${file}, trace ${number} has no step`);
      }
    }
  });
}

const wrap = ({ windowStart, value }) => ({ start: windowStart, pass: value.pass });

replays('a_leap_array_answers_as_sentinels', 'leap_array', ({ intervalMs, sampleCount }) => {
  const array = new LeapArray({ intervalMs, sampleCount });
  return (operation, given, { t }) => {
    switch (operation) {
      case 'currentWindow':
        array.addPass(given.addPass, t);
        return wrap(array.currentWindow(t));
      case 'list':
        array.currentWindow(t);
        return array.list(t).map(wrap);
      case 'windowValue':
        return array.windowValue(given.at)?.pass ?? null;
      case 'previousWindow': {
        array.currentWindow(t);
        const previous = array.previousWindow(t);
        return previous && wrap(previous);
      }
    }
    throw new Error(`unknown operation ${operation}`);
  };
});

// Sentinel reports no concurrency (issue 2430).
const detail = ({ concurrency, ...counts }) => counts;

replays('an_array_metric_answers_as_sentinels', 'array_metric', ({ intervalMs, sampleCount, enableOccupy }) => {
  const metric = new ArrayMetric({ intervalMs, sampleCount, untouched: enableOccupy ? 'lost' : 'kept' });
  return (operation, given, { t }) => {
    if (!['addWaiting', 'waiting'].includes(operation)) metric.touch(t);
    switch (operation) {
      case 'addPass':
      case 'addBlock':
      case 'addSuccess':
      case 'addException':
      case 'addOccupiedPass':
      case 'addRt':
        return metric[operation](given, t);
      case 'addWaiting':
        return metric.addWaiting(given.at, given.count);
      case 'pass':
      case 'block':
      case 'success':
      case 'exception':
      case 'rt':
      case 'minRt':
      case 'maxSuccess':
      case 'previousWindowPass':
      case 'occupiedPass':
      case 'waiting':
        return metric[operation](t);
      case 'details':
        return metric.details(t).map(detail);
    }
    throw new Error(`unknown operation ${operation}`);
  };
});

const TOUCHING = ['passQps', 'blockQps', 'totalQps', 'successQps', 'exceptionQps', 'maxSuccessQps', 'avgRt', 'minRt'];

replays('a_statistic_node_answers_as_sentinels', 'statistic_node', () => {
  const node = new StatisticNode({ untouched: 'lost' });
  return (operation, given, { t }) => {
    if (TOUCHING.includes(operation)) node.touch(t);
    switch (operation) {
      case 'addPassRequest':
      case 'increaseBlockQps':
      case 'increaseExceptionQps':
      case 'addOccupiedPass':
        return node[operation](given, t);
      case 'addRtAndSuccess':
        return node.addRtAndSuccess(given.rt, given.success, t);
      case 'increaseThreadNum':
      case 'decreaseThreadNum':
        return node[operation]();
      case 'addWaitingRequest':
        return node.addWaitingRequest(given.at, given.acquire);
      case 'tryOccupyNext':
        // Refused before the current second is read, if nothing more may be borrowed.
        if (node.waiting(t) < given.threshold) node.touch(t);
        return node.tryOccupyNext(given.acquire, given.threshold, t);
      default:
        return node[operation](t);
    }
  };
});

// The values of a node, by Sentinel's names.
const VALUES = [
  'passQps',
  'blockQps',
  'totalQps',
  'successQps',
  'exceptionQps',
  'avgRt',
  'minRt',
  'curThreadNum',
  'totalRequest',
  'totalPass',
  'totalSuccess',
  'blockRequest',
  'totalException',
  'previousPassQps',
  'previousBlockQps',
  'maxSuccessQps',
  'occupiedPassQps',
  'waiting',
];

function nodeAt(nodes, place) {
  const [[kind, { context, resource, origin }]] = Object.entries(place);
  switch (kind) {
    case 'default':
      return nodes.defaultNode(context, resource);
    case 'cluster':
      return nodes.cluster(resource);
    case 'origin':
      return nodes.cluster(resource)?.origin(origin) ?? null;
    case 'entrance':
      return nodes.entrance(context);
    case 'inbound':
    case 'root':
      return nodes[kind];
  }
  throw new Error(`unknown kind of node ${kind}`);
}

// The resources below nodes, by name, nested.
const below = (nodes) => Object.fromEntries(nodes.map((node) => [node.resource, below(node.children())]));

const halfSecond = (t) => t - (t % 500);

// Borrowed passes that Sentinel's node of the resource does not report. It loses a pass if nothing reads the node in the half second
// that pays for it, while it counts here; and its `occupiedPassQps` is always 0, while here it counts the passes borrowed in the last
// second.
class Borrowed {
  #loans = [];
  #looks = new Set();

  look(resource, t) {
    this.#looks.add(`${halfSecond(t)} ${resource}`);
  }

  lend(resource, taken, due, n) {
    this.#loans.push({ resource, taken: halfSecond(taken), due: halfSecond(due), n });
  }

  // Sentinel's values for the node of a resource, plus the passes that it does not report.
  addedTo(is, resource, t) {
    const counting = [halfSecond(t) - 500, halfSecond(t)];
    const loans = this.#loans.filter((loan) => loan.resource === resource);
    const sum = (loans) => loans.reduce((sum, { n }) => sum + n, 0);
    const lost = sum(loans.filter(({ due }) => counting.includes(due) && !this.#looks.has(`${due} ${resource}`)));
    const occupied = sum(loans.filter(({ taken }) => counting.includes(taken)));
    const { passQps, totalQps, occupiedPassQps } = is;
    return { ...is, passQps: passQps + lost, totalQps: totalQps + lost, occupiedPassQps: occupiedPassQps + occupied };
  }
}

const borrows = 'the_node_tree_reports_what_sentinels_does_and_the_borrowed_passes_that_it_omits';
replays(borrows, 'node_tree', ({ flowRules }) => {
  const borrowed = new Borrowed();
  const open = new Map();
  let now = 0;
  // With their places as ids.
  const rules = flowRules.map((rule, place) => ({ ...rule, id: String(place), compat: 'sentinel' }));
  const engine = new Engine({ flowRules: rules }, { now: () => now });
  const { nodes } = engine;

  const enter = ({ id, parent, context, origin, resource, type, acquire, prioritized = false }) => {
    const request = { context, origin, cost: acquire, prioritized, inbound: type === 'IN', canWait: true };
    if (parent !== null) request.within = open.get(parent).entry;
    const entry = engine.enter(resource, request);
    borrowed.look(resource, now);
    if (!entry.success) return { block: entry.cause, rule: Number(entry.rule) };
    open.set(id, { entry, resource });
    if (entry.waitMs === 0) return 'pass';
    borrowed.lend(resource, now, now + entry.waitMs, acquire);
    return { wait: entry.waitMs };
  };

  const exit = ({ id, error }) => {
    const { entry, resource } = open.get(id);
    borrowed.look(resource, now);
    entry.exit({ error });
  };

  const dump = (place, is) => {
    const node = nodeAt(nodes, place);
    const values = node && Object.fromEntries(VALUES.map((name) => [name, node[name]()]));
    if (place.cluster === undefined) return values;
    const { resource } = place.cluster;
    borrowed.look(resource, now);
    if (is === null) return values;
    assert.deepEqual(values, borrowed.addedTo(is, resource, now));
    return is;
  };

  return (operation, given, { t, is }) => {
    now = t;
    switch (operation) {
      case 'enter':
        return enter(given);
      case 'exit':
        return exit(given);
      case 'dump':
        return dump(given, is);
      case 'tree': {
        const entrance = nodes.entrance(given.context);
        return entrance && below(entrance.children());
      }
    }
    throw new Error(`unknown operation ${operation}`);
  };
});
