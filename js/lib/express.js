// For Express, Connect and node:http.

import { outermost } from './errors.js';
import { addressKeys, checkAdapter, makeGate, warn, whenKnown } from './gate.js';
import { isForwarded, outcomeOf, whenOver } from './node.js';

const PROXY =
  'leapgate: a request has a header of a proxy, which is not trusted: behind a proxy, all of its clients share one limit; ' +
  "tell Express with `app.set('trust proxy', 1)`, or pass `key`";

// Limits by the address from Express, or from the socket without Express.
function addressKey() {
  const keyOf = addressKeys('pass `key`');
  let isWarned = false;
  return (request) => {
    if (!isWarned && isForwarded(request) && !request.app?.get?.('trust proxy')) {
      isWarned = true;
      warn('LEAPGATE_PROXY', PROXY);
    }
    return keyOf(request.ip ?? request.socket.remoteAddress);
  };
}

export const leapgate = outermost('leapgate', (options) => {
  checkAdapter(options);
  const gate = makeGate(options, addressKey());

  function go(decision, request, response, next) {
    if (decision === undefined) return next();
    const { result, end } = decision;
    request.rateLimit = result;
    if (!result.success) return refuse(result, request, response, next);
    for (const [name, value] of Object.entries(gate.headers(result))) response.setHeader(name, value);
    if (end !== undefined) whenOver(response, () => end(outcomeOf(response, response)));
    next();
  }

  function refuse(result, request, response, next) {
    const { status, headers, body } = gate.refusal(result);
    response.statusCode = status;
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
    if (gate.reply === undefined) return response.end(body);
    new Promise((resolve) => resolve(gate.reply(request, response, result))).catch(next);
  }

  return function limit(request, response, next) {
    let decided;
    try {
      decided = whenKnown(gate.decide(request, response), (decision) => () => go(decision, request, response, next));
    } catch (error) {
      return next(error);
    }
    if (typeof decided === 'function') return decided();
    decided.then((go) => go(), next);
  };
});
