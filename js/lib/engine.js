// Engines with statistics, circuit breakers and gauges.

import * as core from './leapgate_bg.js';
import * as wasm from './core.js';
import { BaseEngine, checkName, insideOf, isEngine } from './base.js';
import { bounded, checkNumber, checkOptions, wrong } from './errors.js';
import { NodeTree, counters, reports, top } from './statistics.js';
import { flatten } from './tree.js';

// The most keys that `top` returns.
const MAX_TOP = 10_000;

function guarded(call) {
  try {
    return call();
  } catch (error) {
    throw wasm.crashed(error);
  }
}

// How many APIs a request may name.
const MAX_APIS = 16;

function checkApis(apis) {
  const cure = `use an array of at most ${MAX_APIS} names`;
  if (!Array.isArray(apis)) throw wrong('request.apis', apis, `is not a list of APIs; ${cure}`);
  if (apis.length > MAX_APIS) throw wrong('request.apis', apis, `has ${apis.length} names; ${cure}`, RangeError);
  for (let i = 0; i < apis.length; i++) checkName(`request.apis[${i}]`, apis[i]);
  return apis;
}

const namesOf = (name, apis) => (checkApis(apis).length === 0 ? undefined : [name, ...apis]);

export class Engine extends BaseEngine {
  #inside;
  #gauges;
  #nodes;

  constructor(rules, settings) {
    super(rules, settings, { flat: flatten, namesOf });
    this.#inside = insideOf(this, (number) => this.#gauges !== undefined && core.engine_gauges(number, ...this.#gauges));
    const { numberOf, events } = this.#inside;
    events.add('breaker', (areKept) => {
      const number = numberOf();
      if (number === undefined) return;
      const texts = guarded(() => wasm.readTexts(core.engine_changes(number, areKept)));
      for (let i = 0; i < texts.length; i += 4) {
        const [resource, rule, from, to] = texts.slice(i, i + 4);
        events.tell('breaker', { resource: resource || null, rule, from, to });
      }
    });
  }

  setGauges(gauges) {
    const number = this.#inside.ready();
    const { load, cpu } = checkOptions('gauges', gauges, ['load', 'cpu'], '`{ load: os.loadavg()[0] }`');
    const known = (name, value) => (value === undefined ? -1 : checkNumber(`gauges.${name}`, value, Number.MAX_VALUE, false));
    this.#gauges = [known('load', load), known('cpu', cpu)];
    guarded(() => core.engine_gauges(number, ...this.#gauges));
    this.#inside.replaced();
  }

  get nodes() {
    return (this.#nodes ??= new NodeTree(this.#inside.ready, () => this.now()));
  }

  get warnings() {
    const number = this.#inside.ready();
    return guarded(() => wasm.readTexts(core.engine_warnings(number)));
  }

  stats(resource) {
    const waits = super.stats(resource);
    if (resource === undefined) return waits;
    const number = this.#inside.ready();
    const texts = guarded(() => wasm.readTexts(core.engine_about(number, wasm.putTextAt(resource, 0))));
    const [ids, breakers] = [new Set(), []];
    for (let i = 0; i < texts.length; i += 2) {
      const [rule, state] = texts.slice(i, i + 2);
      ids.add(rule);
      if (state !== '') breakers.push({ rule, state });
    }
    const rules = counters(number).filter((row) => ids.has(row.rule) && (row.resource ?? resource) === resource);
    const node = this.nodes.cluster(resource);
    const of = (name) => node?.[name]() ?? 0;
    return {
      passQps: of('passQps'),
      blockQps: of('blockQps'),
      successQps: of('successQps'),
      exceptionQps: of('exceptionQps'),
      avgRt: of('avgRt'),
      concurrency: of('curThreadNum'),
      ...waits,
      rules,
      breakers,
    };
  }

  counters() {
    return counters(this.#inside.ready());
  }

  // For `leapgate/metrics`.
  [Symbol.for('leapgate.metrics')]() {
    return reports(this.#inside.ready(), this.now());
  }

  top(n = 10) {
    const number = this.#inside.ready();
    checkNumber('n', n, MAX_TOP, true);
    return top(number, n, this.now());
  }

  static {
    bounded(this, 'Engine', isEngine);
  }
}
