// For Fastify: one plugin for all routes, including routes of sibling plugins and unknown ones.

import { addressKeys, checkAdapter, hasLimits, isObject, makeGate, warn, whenKnown } from './gate.js';
import { isForwarded, outcomeOf, whenOver } from './node.js';
import { fault, outermost, wrong } from './errors.js';

const PROXY =
  'leapgate: a request has a header of a proxy, which is not trusted: behind a proxy, all of its clients share one limit; ' +
  "tell Fastify its addresses, as in `fastify({ trustProxy: '10.0.0.0/8' })`, or pass `key`";

function addressKey() {
  const keyOf = addressKeys('pass `key`');
  let isWarned = false;
  return (request) => {
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
function optionsOf(route, { key, skip, countIf, draft, reply, ...limits }) {
  return { key, skip, countIf, draft, reply, ...(hasLimits(route) ? {} : limits), ...route };
}

function pluginOf(options) {
  checkAdapter(options);
  const key = addressKey();
  const common = hasLimits(options) ? makeGate(options, key, FORMATS) : undefined;

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
      paths.set(url, (gate = makeGate(optionsOf(route, options), key, FORMATS)));
    }
    return gate;
  }

  function go(gate, decision, request, reply, done) {
    if (decision === undefined) return done();
    const { result, end } = decision;
    request.rateLimit = result;
    if (!result.success) return refuse(gate, result, request, reply, done);
    reply.headers(gate.headers(result));
    if (end !== undefined) whenOver(reply.raw, () => end(outcomeOf(reply.raw, reply)));
    done();
  }

  function refuse(gate, result, request, reply, done) {
    const { status, headers, body } = gate.refusal(result);
    reply.code(status).headers(headers);
    if (gate.isError) return done(Object.assign(fault('ERR_LEAPGATE_BLOCKED', body), { statusCode: status, result }));
    if (gate.reply === undefined) return void reply.send(body);
    const send = (payload) => {
      if (!reply.sent) reply.send(payload);
    };
    new Promise((resolve) => resolve(gate.reply(request, reply, result))).then(send, done);
  }

  function plugin(fastify, _, ready) {
    if (!fastify.hasRequestDecorator('rateLimit')) fastify.decorateRequest('rateLimit', null);
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
