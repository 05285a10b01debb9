// What engines tell of themselves to Prometheus, OpenTelemetry and `node:diagnostics_channel`. Nothing here is called by a decision.

import { wrong } from './errors.js';

// The method of an engine or a shared limiter that reports its rules.
const REPORTS = Symbol.for('leapgate.metrics');

// For how long a gauge shows a peak, as `envoy.metrics.holdMs` does in the filter by default.
const HOLD_MS = 60_000;

export const contentType = 'text/plain; version=0.0.4; charset=utf-8';

const isTold = (it) => typeof it?.[REPORTS] === 'function';

// Engines and shared limiters with their names, of which one alone has none.
function named(engines) {
  if (isTold(engines)) return [['', engines]];
  const all = Object.prototype.toString.call(engines) === '[object Object]' ? Object.entries(engines) : [];
  if (all.length > 0 && all.every(([, engine]) => isTold(engine))) return all;
  throw wrong('engines', engines, 'is neither an engine of `leapgate/engine`, a `SharedLimiter`, nor an object of them by name; use one');
}

// By engine and series: the refusals at the last reading, and percentages with their times, falling. All copies of this file share it.
const engines = (globalThis[Symbol.for('leapgate.peaks')] ??= new WeakMap());

// The fullest that a limit was when it was read in the last minute. A limit that has refused since the last reading was full.
function fullest(known, { part, blocked, shadowBlocked }, now) {
  const refused = blocked + shadowBlocked;
  const { peaks, last } = known ?? { peaks: [], last: 0 };
  const percent = Math.max(Math.floor(part * 100), refused > last ? 100 : 0);
  const kept = peaks.filter(([at, peak]) => now - at < HOLD_MS && peak > percent);
  kept.push([now, percent]);
  return { peaks: kept, last: refused };
}

// The rules of an engine, and its circuit breakers: one row for each series.
function rowsOf(engine) {
  const now = engine.now?.();
  const [before, after, rows] = [engines.get(engine), new Map(), new Map()];
  for (const { target, ...row } of engine[REPORTS]()) {
    const { kind, rule, origin, resource } = Object.assign(row, { resource: row.resource || target });
    const place = JSON.stringify([kind, rule, resource, origin]);
    const same = rows.get(place);
    if (same === undefined) {
      rows.set(place, row);
      continue;
    }
    for (const count of ['passed', 'waited', 'blocked', 'shadowBlocked', 'shared', 'defaulted', 'debt', 'inFlight']) {
      if (row[count] >= 0) same[count] = Math.max(same[count], 0) + row[count];
    }
    same.part = Math.max(same.part, row.part);
  }
  for (const [place, row] of rows) {
    if (!(row.part >= 0)) continue;
    const known = fullest(before?.get(place), row, now);
    after.set(place, known);
    row.percent = known.peaks[0][1];
  }
  engines.set(engine, after);
  return [...rows.keys()].sort().map((place) => rows.get(place));
}

const HELP = {
  utilization_percent: ['gauge', 'how full the limit was at its fullest in the last minute'],
  passed: ['counter', 'requests that the flow rule admitted and that passed'],
  blocked: ['counter', 'requests that the flow rule was the first to refuse'],
  shadow_blocked: ['counter', 'requests that the rule would have refused, had it not been in shadow mode'],
  waited: ['counter', 'requests that the rule has delayed, or would have delayed in shadow mode'],
  shared: ['counter', 'passed requests that were charged to windows that keys share'],
  defaulted: ['counter', 'decisions by the default of a rule whose count comes with requests'],
  debt: ['counter', 'what requests have cost beyond what they held under the rule'],
  in_flight: ['gauge', 'calls in flight under a limit on them'],
  breaker_state: ['gauge', 'the state of a circuit breaker: 0 closed, 1 open, 2 half-open'],
  lease_permits: ['gauge', 'permits that have been leased and not spent'],
  lease_asks: ['counter', 'messages to the store'],
  lease_granted: ['counter', 'permits that the store has granted'],
  lease_lost: ['counter', 'messages without an answer: their permits count as spent'],
  waiting: ['gauge', 'requests that wait now, under any rule'],
  info: ['gauge', 'the version of leapgate'],
};

const escaped = (text) => text.replace(/[\\"\n]/g, (char) => (char === '\n' ? '\\n' : `\\${char}`));

export function prometheusText(of) {
  const families = new Map();
  const add = (name, labels, value) => {
    const [kind, help] = HELP[name] ?? ['counter', `the same of ${name.split('_')[0]} rules`];
    const family = `leapgate_${name}`;
    if (!families.has(name)) families.set(name, [`# HELP ${family} ${help}`, `# TYPE ${family} ${kind}`]);
    const said = Object.entries(labels).filter(([, text]) => text);
    const list = said.map(([label, text]) => `${label}="${escaped(text)}"`).join(',');
    families.get(name).push(`${family}${list && `{${list}}`} ${value}`);
  };
  for (const [root, engine] of named(of)) {
    for (const row of rowsOf(engine)) {
      const { kind, rule, resource, origin } = row;
      const labels = { root, rule, resource, origin };
      if (kind === 'state') {
        add('breaker_state', labels, row.blocked);
        continue;
      }
      if (kind === 'lease') {
        for (const name of ['permits', 'asks', 'granted', 'lost']) add(`lease_${name}`, labels, row[name]);
        continue;
      }
      const before = kind && `${kind}_`;
      add(`${before}blocked`, labels, row.blocked);
      add(`${before}shadow_blocked`, labels, row.shadowBlocked);
      if (kind) continue;
      add('utilization_percent', labels, row.percent);
      add('passed', labels, row.passed);
      add('waited', labels, row.waited);
      if (row.inFlight >= 0) add('in_flight', labels, row.inFlight);
      for (const name of ['shared', 'defaulted', 'debt']) if (row[name] > 0) add(name, labels, row[name]);
    }
    add('waiting', { root }, engine.stats().waiting);
  }
  add('info', { version: VERSION }, 1);
  return `${[...families.values()].flat().join('\n')}\n`;
}

const PREFIX = 'leapgate.rate_limiting';

export function observe(meter, of) {
  const all = named(of);
  if (typeof meter?.addBatchObservableCallback !== 'function') {
    throw wrong('meter', meter, "is not a meter of OpenTelemetry; use `metrics.getMeter('leapgate')`");
  }
  const made = (kind, name, unit, description) => meter[`createObservable${kind}`](`${PREFIX}.${name}`, { unit, description });
  const requests = made('Counter', 'requests', '{request}', 'Decisions of rules, by their result.');
  const delayed = made('Counter', 'delayed_requests', '{request}', 'Requests that a rule has delayed.');
  const leases = made('UpDownCounter', 'active_request_leases', '{request}', 'Calls in flight under a limit on them.');
  const queued = made('UpDownCounter', 'queued_requests', '{request}', 'Requests that wait now.');
  const utilization = made('Gauge', 'utilization', '1', 'How full a limit was at its fullest in the last minute.');
  const state = made('Gauge', 'breaker_state', '1', 'The state of a circuit breaker: 0 closed, 1 open, 2 half-open.');
  const attributesOf = (said) => {
    const texts = Object.entries(said).filter(([, text]) => text);
    return Object.fromEntries(texts.map(([name, text]) => [`${PREFIX}.${name}`, text]));
  };
  const callback = (result) => {
    for (const [engine, of] of all) {
      for (const { kind, rule, resource, origin, ...row } of rowsOf(of)) {
        if (kind === 'lease') continue;
        const said = { engine, rule, resource, origin, kind: kind || 'flow' };
        if (kind === 'state') {
          result.observe(state, row.blocked, attributesOf({ ...said, kind: 'breaker' }));
          continue;
        }
        const count = (what, many) => result.observe(requests, many, attributesOf({ ...said, result: what }));
        count('refused', row.blocked);
        count('shadow_refused', row.shadowBlocked);
        if (kind) continue;
        count('acquired', row.passed);
        result.observe(delayed, row.waited, attributesOf(said));
        result.observe(utilization, row.percent / 100, attributesOf(said));
        if (row.inFlight >= 0) result.observe(leases, row.inFlight, attributesOf(said));
      }
      result.observe(queued, of.stats().waiting, attributesOf({ engine }));
    }
  };
  const instruments = [requests, delayed, leases, queued, utilization, state];
  meter.addBatchObservableCallback(callback, instruments);
  return () => meter.removeBatchObservableCallback(callback, instruments);
}

export function publish(engine, channels = globalThis.process?.getBuiltinModule?.('node:diagnostics_channel')) {
  if (!isTold(engine) || !engine.on) throw wrong('engine', engine, 'is not an engine of `leapgate/engine`; use one');
  if (typeof channels?.channel !== 'function') {
    const cure = "hand it in: `publish(engine, await import('node:diagnostics_channel'))`";
    throw wrong('channels', channels, `is not \`node:diagnostics_channel\`, which is not found here; ${cure}`);
  }
  const ends = ['refused', 'breaker'].map((event) => {
    const channel = channels.channel(`leapgate:${event}`);
    return engine.on(event, (what) => channel.hasSubscribers && channel.publish({ engine, ...what }));
  });
  return () => ends.forEach((end) => end());
}
