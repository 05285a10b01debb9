// Replays the scenarios that are also run against the core and the filter: scenarios/README.md explains their keys.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import test from 'node:test';
import { Engine } from 'leapgate/engine';

const folder = new URL('./scenarios/', import.meta.url);
const files = readdirSync(folder).filter((file) => file.endsWith('.json'));

// Values by part, null where they are missing.
const keyed = (keys = {}) => new Proxy(keys, { get: (keys, part) => keys[part] ?? null });

const sorted = (places) => places.map((place) => JSON.stringify(place)).sort();

// The node at a place in the tree.
function nodeAt(nodes, place) {
  const [[kind, { context, resource, origin }]] = Object.entries(place);
  if (kind === 'entrance') return nodes.entrance(context);
  if (kind === 'default') return nodes.defaultNode(context, resource);
  if (kind === 'cluster') return nodes.cluster(resource);
  if (kind === 'origin') return nodes.cluster(resource).origin(origin);
  return nodes[kind];
}

// A scenario in progress.
class Play {
  open = new Map();
  now = 0;

  constructor(scenario) {
    this.scenario = scenario;
    this.engine = new Engine(scenario.rules, { now: () => this.now });
  }

  // The runner of the filter finds the APIs by the path and the method.
  enter({ resource, path, method, id, times = 1, within, keys, ...request }) {
    const answers = Array.from({ length: times }, () => {
      const outer = within === undefined ? {} : { within: this.open.get(within) };
      const entry = this.engine.enter(resource, { ...request, ...outer, key: keyed(keys), canWait: true });
      const { success, waitMs, rule, retryAfterMs } = entry;
      if (!success) return { block: rule, retryAfterMs: retryAfterMs === Infinity ? null : retryAfterMs };
      if (id === undefined) entry.exit();
      else this.open.set(id, entry);
      return waitMs > 0 ? { waitMs } : 'pass';
    });
    for (const answer of answers) assert.deepEqual(answer, answers[0], 'the same answer each time');
    return answers[0];
  }

  exit({ id, ...outcome }) {
    this.open.get(id).exit(outcome);
    assert(this.open.delete(id), `${id} is open`);
  }

  rules(rules) {
    this.engine.replace(rules);
  }

  left({ resource, keys, ...request }) {
    const policies = this.engine.policies(resource, { ...request, key: keyed(keys) });
    return policies.map(({ id, remaining, resetMs }) => [id, remaining, resetMs]);
  }

  // The values of the listed nodes; asserts that no other node exists.
  nodes(_, asked) {
    const rows = asked.map(({ values, ...place }) => place);
    assert.deepEqual(sorted(rows), sorted(this.places()), 'the existing nodes are the listed ones');
    return rows.map((place) => {
      const node = nodeAt(this.engine.nodes, place);
      return { ...place, values: this.scenario.values.map((name) => node[name]()) };
    });
  }

  // The places of the nodes.
  places() {
    const { nodes } = this.engine;
    const below = (context, calls) =>
      calls.flatMap((node) => [{ default: { context, resource: node.resource } }, ...below(context, node.children())]);
    const entrances = nodes.root.entrances().flatMap((entrance) => {
      const { name: context } = entrance;
      return [{ entrance: { context } }, ...below(context, entrance.children())];
    });
    const clusters = nodes.clusters().flatMap((cluster) => {
      const { resource } = cluster;
      return [{ cluster: { resource } }, ...cluster.origins().map(({ origin }) => ({ origin: { resource, origin } }))];
    });
    return [{ root: {} }, { inbound: {} }, ...entrances, ...clusters];
  }

  step({ at, is, ...operation }) {
    this.now = at;
    const [[name, given], ...others] = Object.entries(operation);
    assert.equal(others.length, 0, 'one operation');
    assert(['enter', 'exit', 'rules', 'left', 'nodes'].includes(name), `${name} is an operation`);
    assert.deepEqual(this[name](given, is), is);
  }
}

for (const file of files) {
  const scenario = JSON.parse(readFileSync(new URL(file, folder)));
  test(`${file}: ${scenario.about}`, () => {
    const play = new Play(scenario);
    for (const [i, step] of scenario.steps.entries()) {
      try {
        play.step(step);
      } catch (error) {
        error.message = `step ${i}, ${JSON.stringify(step)}: ${error.message}`;
        throw error;
      }
    }
    assert.equal(play.open.size, 0, 'all calls end');
  });
}

test('there are as many scenarios as there were', () => assert(files.length >= 14, `only ${files.length}`));
