// For Express, Connect and node:http.

import { outermost } from './errors.js';
import { PROPERTY, addressKeys, checkAdapter, makeGate, propertyOf, warn, whenKnown } from './gate.js';
import { isForwarded, outcomeOf, whenOver } from './node.js';

const PROXY =
  'leapgate: a request has a header of a proxy, which is not trusted: behind a proxy, all of its clients share one limit; ' +
  "tell Express with `app.set('trust proxy', 1)`, or pass `key`";

const SPOOFED =
  'leapgate: Express trusts all addresses as proxies, so that a client can evade its limit by a header with another address; ' +
  "say how many proxies of yours a request passes, as in `app.set('trust proxy', 1)`, or pass `key`";

// Limits by the address from Express, or from the socket without Express.
function addressKey() {
  const keyOf = addressKeys('pass `key`');
  let isWarned = false;
  return (request) => {
    const trusted = isWarned ? undefined : request.app?.get?.('trust proxy');
    if (!isWarned && (trusted === true || (isForwarded(request) && !trusted))) {
      isWarned = true;
      warn(...(trusted ? ['LEAPGATE_TRUST_PROXY', SPOOFED] : ['LEAPGATE_PROXY', PROXY]));
    }
    return keyOf(request.ip ?? request.socket.remoteAddress);
  };
}

// Headers may have been sent already, as by a handler that streams.
function setHeaders(response, headers) {
  if (response.headersSent) return;
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}

export const leapgate = outermost('leapgate', (options) => {
  checkAdapter(options, PROPERTY);
  const property = propertyOf(options);
  const gate = makeGate(options, addressKey());

  function go(decision, request, response, next) {
    if (decision === undefined) return next();
    const { result, end } = decision;
    request[property] = result;
    if (!result.success) return refuse(decision, request, response, next);
    setHeaders(response, gate.headers(decision));
    if (end !== undefined) whenOver(response, () => end(outcomeOf(response, response)));
    next();
  }

  function refuse(decision, request, response, next) {
    const { status, headers, body } = gate.refusal(decision);
    response.statusCode = status;
    setHeaders(response, headers);
    if (gate.reply === undefined) return response.end(body);
    new Promise((resolve) => resolve(gate.reply(request, response, decision.result))).catch(next);
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
