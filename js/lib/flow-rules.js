// Reads the rules of an engine of flow rules alone, and writes them as js/src/flow.rs reads them. The sentences are those of the core,
// which reads whole documents: flow.test.mjs compares them. A reader in the module would double it.

import { fault, listed, shown } from './errors.js';
import { FLOW_RULE } from './layout.js';
import { flattenRecords } from './tree.js';

export const MORE = 'is not part of flow rules alone; use `leapgate/engine`';
const MAX_RULES = 1000;
const MAX_PARTS = 8;
const MAX_COUNT = 2 ** 53;
const MAX_INT = 2 ** 31 - 1;
const MAX_INTERVAL_MS = 315_360_000_000;

const LISTS = ['paramFlowRules', 'gatewayFlowRules', 'degradeRules', 'systemRules', 'authorityRules', 'banRules', 'apiDefinitions', 'mode', 'envoy'];
const FIELDS = ['id', 'resource', 'unit', 'grade', 'key', ...FLOW_RULE.slice(0, -1)];
const LEFT_OUT = ['limitApp', 'strategy', 'refResource', 'keyItems', 'enforcePercent', 'exempt', 'cost', 'compat', 'regex', 'clusterMode', 'mode'];
// Sentinel's, without a meaning here.
const IGNORED = ['clusterConfig', 'gmtCreate', 'gmtModified', 'app', 'ip', 'port'];
const PARTS = ['path', 'method', 'host'];
const NAMED = ['header', 'query', 'cookie', 'arg'];
const PARTS_LEFT_OUT = ['clientIp', 'peer', 'jwtClaim', 'metadata', 'typedMetadata', 'routeMetadata', 'filterState'];
const BEHAVIORS = ['reject', 'warmUp', 'throttle', 'warmUpThrottle'];
const [REJECT, WARM_UP, THROTTLE, WARM_UP_THROTTLE] = [0, 1, 2, 3];
const WINDOWS = ['strict', 'sentinel', 'weighted'];
const NO_CONCURRENCY = 'means nothing to a limit on concurrency; leave it out';

const PRINTABLE = /^[ -~]{1,256}$/;
const encoder = new TextEncoder();

function fail(path, value, why) {
  throw fault('ERR_LEAPGATE_RULES', `${path}: \`${shown(value)}\` ${why}`, RangeError);
}

function expected(path, value, wanted) {
  let kind = { boolean: 'a boolean', number: 'a number', string: 'a string' }[typeof value] ?? 'not a value';
  if (typeof value === 'object' && value !== null) kind = Array.isArray(value) ? 'an array' : 'an object';
  fail(path, value, `is ${kind}; use ${wanted}`);
}

const isAbsent = (value) => value === undefined || value === null;

// Whether a value that is left out says nothing: it is a default.
const saysNothing = (name, value) =>
  isAbsent(value) ||
  ['', 'default', 'direct', 'enforce', false].includes(value) ||
  (name === 'strategy' && value === 0) ||
  (Array.isArray(value) && value.length === 0);

function checkObject(path, value) {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) expected(path, value, 'an object');
  return value;
}

// Refuses names that are not `known`, and those that are `leftOut` and say something.
function checkNames(path, object, known, leftOut, ignored = [], prefix = `${path}.`) {
  for (const name of Object.keys(object)) {
    if (leftOut.includes(name)) {
      if (!saysNothing(name, object[name])) fail(prefix + name, object[name], MORE);
    } else if (!known.includes(name) && !ignored.includes(name) && object[name] !== undefined) {
      fail(path, name, `is not a known key; use ${known.length > 1 ? 'one of ' : ''}${listed(known)}`);
    }
  }
}

function text(path, value) {
  return typeof value === 'string' ? value : expected(path, value, 'a string');
}

function name(path, value) {
  const { length } = encoder.encode(text(path, value));
  if (length === 0 || length > 256) fail(path, value, 'is not a valid name; use 1 to 256 bytes');
  return value;
}

function integer(path, value, least, most) {
  const wanted = `a whole number from ${least} to ${most}`;
  if (typeof value !== 'number') expected(path, value, wanted);
  if (!Number.isInteger(value) || value < least || value > most) fail(path, value, `is not possible; use ${wanted}`);
  return value;
}

// The place of a value among names, or the value if it is such a place.
function choice(path, value, names, isNumbered) {
  const place = isNumbered && typeof value === 'number' ? value : names.indexOf(value);
  return names[place] === undefined ? fail(path, value, `is not a valid value; use one of ${listed(names)}`) : place;
}

function part(path, value) {
  if (typeof value === 'string') {
    if (PARTS.includes(value)) return value;
    if (PARTS_LEFT_OUT.includes(value)) fail(path, value, MORE);
    fail(path, value, `is not a part of a request; use ${listed(PARTS)}, or an object: \`{"header": "x-api-key"}\``);
  }
  checkNames(path, checkObject(path, value), NAMED, PARTS_LEFT_OUT);
  const given = NAMED.filter((kind) => !isAbsent(value[kind]));
  if (given.length !== 1) fail(path, value, 'is not a part of a request; use one key');
  const [kind] = given;
  const of = value[kind];
  if (kind !== 'arg') return `${kind}:${kind === 'header' ? name(`${path}.${kind}`, of).toLowerCase() : name(`${path}.${kind}`, of)}`;
  if (typeof of !== 'number') expected(`${path}.arg`, of, 'a number');
  if (!Number.isInteger(of) || Math.abs(of) > MAX_INT) {
    fail(`${path}.arg`, of, `is not possible; use a whole number from -${MAX_INT} to ${MAX_INT}`);
  }
  return `arg:${of}`;
}

function keyOf(path, value) {
  if (!Array.isArray(value)) expected(path, value, 'an array');
  const parts = value.map((value, i) => part(`${path}[${i}]`, value));
  if (parts.length === 0 || parts.length > MAX_PARTS) fail(path, value, `is not a valid key; use 1 to ${MAX_PARTS} parts`);
  const again = parts.findIndex((part, i) => parts.indexOf(part) < i);
  if (again >= 0) fail(`${path}[${again}]`, value[again], 'is given twice; keep one of the two');
  return parts;
}

// One rule: the numbers of `FLOW_RULE`, negative where they are not said, and its texts.
function ruleOf(rule, path) {
  checkNames(path, checkObject(path, rule), FIELDS, LEFT_OUT, IGNORED);
  const at = (field) => `${path}.${field}`;
  const has = (field) => !isAbsent(rule[field]);
  const refuse = (fields, why) => fields.forEach((field) => has(field) && fail(at(field), rule[field], why));
  const whole = (field, least, most) => (has(field) ? integer(at(field), rule[field], least, most) : -1);
  for (const field of ['resource', 'count']) if (rule[field] === undefined) fail(path, field, 'is missing; add it');
  const said = Object.fromEntries(FLOW_RULE.map((name) => [name, -1]));

  const { id, key } = rule;
  const resource = text(at('resource'), rule.resource);
  const { count } = rule;
  said.count = count;
  if (count?.default !== undefined) fail(at('count'), count, MORE);
  if (typeof count !== 'number') expected(at('count'), count, 'a number');
  if (!(count >= 0 && count <= MAX_COUNT)) fail(at('count'), count, `is not a valid count; use a number from 0 to ${MAX_COUNT}`);
  if (name(at('resource'), resource) === '*') fail(at('resource'), resource, MORE);
  if (typeof id === 'number') integer(at('id'), id, 0, MAX_COUNT);
  else if (has('id') && !PRINTABLE.test(text(at('id'), id))) {
    fail(at('id'), id, 'is not a valid id; use 1 to 256 characters of printable ASCII');
  }

  const parts = has('key') ? keyOf(at('key'), key) : [];
  if (has('key')) {
    said.parts = parts.length;
    said.maxKeys = whole('maxKeys', 1, 2 ** 24);
    said.burst = whole('burst', 0, MAX_COUNT);
  } else refuse(['maxKeys', 'burst'], 'means nothing without a `key`; add one, or leave it out');

  const isConcurrency = has('grade') && choice(at('grade'), rule.grade, ['concurrency', 'qps'], true) === 0;
  const isNumbered = typeof rule.controlBehavior === 'number';
  let behavior = has('controlBehavior') ? choice(at('controlBehavior'), rule.controlBehavior, BEHAVIORS, true) : REJECT;
  if (isConcurrency && behavior !== REJECT) {
    if (!isNumbered) refuse(['controlBehavior'], NO_CONCURRENCY);
    behavior = REJECT;
  }
  const [warmsUp, throttles] = [behavior === WARM_UP || behavior === WARM_UP_THROTTLE, behavior === THROTTLE || behavior === WARM_UP_THROTTLE];
  if (has('key')) {
    if (said.burst > 0 && throttles) refuse(['burst'], 'means nothing to `throttle`; leave it out');
    if (said.burst > 0 && isConcurrency) refuse(['burst'], NO_CONCURRENCY);
    if (warmsUp) refuse(['controlBehavior'], 'does not go with a `key`; use `reject` or `throttle`');
  }
  said.controlBehavior = behavior;

  if (isConcurrency) refuse(['window', 'intervalMs', 'sampleCount'], NO_CONCURRENCY);
  else {
    const interval = has('intervalMs') ? whole('intervalMs', 1, MAX_INTERVAL_MS) : 1000;
    said.intervalMs = interval;
    said.sampleCount = whole('sampleCount', 1, 1000);
    if (said.sampleCount > 0 && interval % said.sampleCount > 0) {
      const divisors = Array.from({ length: 100 }, (_, i) => i + 1).filter((divisor) => interval % divisor === 0);
      fail(at('sampleCount'), rule.sampleCount, `does not divide the ${interval} ms interval; use one of ${divisors.join(', ')}`);
    }
    if (has('window')) said.window = choice(at('window'), rule.window, WINDOWS, false);
  }

  const used = (field, isUsed, least, standard) => {
    const value = whole(field, isUsed ? least : 0, MAX_INT);
    if (isUsed) said[field] = value;
    else if (value >= 0 && value !== standard && !isNumbered) {
      refuse([field], `means nothing to \`${BEHAVIORS[behavior]}\`; leave it out`);
    }
  };
  used('warmUpPeriodSec', warmsUp, 1, 10);
  used('coldFactor', warmsUp, 2, 3);
  used('maxQueueingTimeMs', throttles, 0, 500);
  if (throttles) refuse(['window', 'sampleCount'], `means nothing to \`${BEHAVIORS[behavior]}\`; leave it out`);

  if (has('unit')) {
    if (isConcurrency) refuse(['unit'], NO_CONCURRENCY);
    if (!PRINTABLE.test(text(at('unit'), rule.unit))) {
      fail(at('unit'), rule.unit, 'is not a valid unit; use 1 to 256 characters of printable ASCII');
    }
  }
  const texts = [resource, has('id') ? String(id) : '', rule.unit ?? 'requests', ...parts];
  return { numbers: FLOW_RULE.map((name) => said[name]), texts };
}

// The rules of a document in bytes.
export function flatRules(_, rules) {
  if (Array.isArray(rules)) fail('document', rules, 'is an array; put it in an object, under `flowRules`');
  checkNames('document', rules, ['flowRules'], LISTS, ['$schema'], '');
  if (!isAbsent(rules.$schema)) text('$schema', rules.$schema);
  const list = rules.flowRules ?? [];
  if (!Array.isArray(list)) expected('flowRules', list, 'an array');
  if (list.length > MAX_RULES) fail('flowRules', list, `has more than ${MAX_RULES} rules; use \`leapgate/engine\``);
  return flattenRecords(Array.from(list, (rule, i) => ruleOf(rule, `flowRules[${i}]`)));
}
