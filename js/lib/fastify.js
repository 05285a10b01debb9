// For Fastify: one plugin for all routes, including routes of sibling plugins and unknown ones.

import { PROPERTY, addressKeys, checkAdapter, decider, hasLimits, isObject, makeGate, propertyOf, warn, whenKnown } from './gate.js';
import { isForwarded, outcomeOf, whenOver } from './node.js';
import { fault, outermost, wrong } from './errors.js';

const PROXY =
  'leapgate: a request has a header of a proxy, which is not trusted: behind a proxy, all of its clients share one limit; ' +
  "tell Fastify its addresses, as in `fastify({ trustProxy: '10.0.0.0/8' })`, or pass `key`";

const SPOOFED =
  'leapgate: Fastify trusts all addresses as proxies, so that a client can evade its limit by a header with another address; ' +
  "tell Fastify those of yours, as in `fastify({ trustProxy: '10.0.0.0/8' })`, or pass `key`";

// A request that has passed more proxies than there can be, of networks that no proxy has (RFC 5737).
const FORGED = {
  raw: { headers: { 'x-forwarded-for': new Array(40).fill('192.0.2.1').join() }, socket: { remoteAddress: '192.0.2.1' } },
};

// Fastify does not tell what it trusts, but how it reads the addresses of a request.
const trustsAll = (request) => Reflect.get(request, 'ips', FORGED)?.length > 40;

function addressKey() {
  const keyOf = addressKeys('pass `key`');
  let isWarned = false;
  let isKnown = false;
  return (request) => {
    if (!isKnown && trustsAll(request)) {
      isWarned = true;
      warn('LEAPGATE_TRUST_PROXY', SPOOFED);
    }
    isKnown = true;
    // If a proxy is trusted, there are several `ips`.
    if (!isWarned && isForwarded(request) && !(request.ips?.length > 1)) {
      isWarned = true;
      warn('LEAPGATE_PROXY', PROXY);
    }
    return keyOf(request.ip);
  };
}

// The format `error` passes a refusal to the error handler of the route.
const FORMATS = ['error'];

// The options of a route: its own, and the plugin's for the rest; the plugin's limits only if the route has none.
function optionsOf(route, { key, skip, countIf, onRefused, draft, reply }, limits) {
  const own = Object.fromEntries(Object.entries(route).filter(([, value]) => value !== undefined));
  return { key, skip, countIf, onRefused, draft, reply, ...(hasLimits(route) ? {} : limits), ...own };
}

function pluginOf(options) {
  checkAdapter(options, PROPERTY);
  const property = propertyOf(options);
  const key = addressKey();
  // The limits of the plugin, of which all routes without limits of their own have one count.
  const limits = hasLimits(options) ? decider(options) : undefined;
  const gateFor = (route) => makeGate(optionsOf(route, options, limits), key, FORMATS, undefined, ({ raw }) => raw);
  const common = limits && gateFor({});

  // The gates of routes with options of their own, by options and then by path: methods of one path share their limit.
  const gates = new Map();
  function gateOf({ url = '', config }) {
    const route = config?.rateLimit;
    if (route === undefined) return common;
    if (route === false) return undefined;
    if (!isObject(route)) {
      throw wrong(
        'config.rateLimit',
        route,
        'is not an object; use one, as in `{ limit: 5, windowMs: 60_000 }`, or false for no limit',
      );
    }
    let paths = gates.get(route);
    if (paths === undefined) gates.set(route, (paths = new Map()));
    let gate = paths.get(url);
    if (gate === undefined) {
      checkAdapter(route);
      paths.set(url, (gate = gateFor(route)));
    }
    return gate;
  }

  function go(gate, decision, request, reply, done) {
    if (decision === undefined) return done();
    const { result, end } = decision;
    request[property] = result;
    if (!result.success) return refuse(gate, decision, request, reply, done);
    reply.headers(gate.headers(decision));
    if (end !== undefined) whenOver(reply.raw, () => end(outcomeOf(reply.raw, reply)));
    done();
  }

  function refuse(gate, decision, request, reply, done) {
    const { result } = decision;
    const { status, headers, body } = gate.refusal(decision);
    reply.code(status).headers(headers);
    if (gate.isError) return done(Object.assign(fault('ERR_LEAPGATE_BLOCKED', body), { statusCode: status, result }));
    if (gate.reply === undefined) return void reply.send(body);
    const send = (payload) => {
      if (!reply.sent) reply.send(payload);
    };
    new Promise((resolve) => resolve(gate.reply(request, reply, result))).then(send, done);
  }

  function plugin(fastify, _, ready) {
    if (!fastify.hasRequestDecorator(property)) fastify.decorateRequest(property, null);
    // A route with wrong options throws when it is added.
    fastify.addHook('onRoute', (route) => void gateOf(route));
    fastify.addHook('onRequest', (request, reply, done) => {
      let decided;
      try {
        // For a route that was added before the plugin, this is the first look at its options.
        const gate = gateOf(request.routeOptions);
        const then = (decision) => () => go(gate, decision, request, reply, done);
        decided = gate === undefined ? done : whenKnown(gate.decide(request, reply), then);
      } catch (error) {
        return done(error);
      }
      if (typeof decided === 'function') return decided();
      decided.then((go) => go(), done);
    });
    ready();
  }
  return forAll(plugin);
}

// Marks a plugin as one for all routes of the instance that registers it, as fastify-plugin does.
function forAll(plugin) {
  plugin[Symbol.for('skip-override')] = true;
  plugin[Symbol.for('fastify.display-name')] = 'leapgate';
  plugin[Symbol.for('plugin-meta')] = { name: 'leapgate', fastify: '5.x' };
  return plugin;
}

// Makes a plugin from options; in `app.register(leapgate, options)` it is the plugin itself, and errors go to `ready`.
export const leapgate = forAll(
  outermost('leapgate', (options = {}, own = {}, ready = undefined) => {
    if (typeof options?.addHook !== 'function') return pluginOf(options);
    try {
      pluginOf(own)(options, own, ready);
    } catch (error) {
      ready(error);
    }
  }),
);
export default leapgate;
