// For Hono, in all runtimes.

import { PROPERTY, addressKeys, checkAdapter, makeGate, propertyOf } from './gate.js';
import { checkFunction, fault, outermost, wrong } from './errors.js';
import { outcomeOf, whenOver } from './node.js';
import { responseOf, watch, withHeaders } from './web.js';

function addressKey(getConnInfo) {
  if (getConnInfo === undefined) return undefined;
  const keyOf = addressKeys('look at `getConnInfo`, or pass `key`');
  return (c) => keyOf(getConnInfo(c).remote.address);
}

// The execution context of Workers; elsewhere, reading it throws.
function contextOf(c) {
  try {
    return c.executionCtx;
  } catch {
    return undefined;
  }
}

export const leapgate = outermost('leapgate', (options) => {
  checkAdapter(options, ['getConnInfo', ...PROPERTY]);
  const property = propertyOf(options);
  const { getConnInfo, key, engine } = options;
  checkFunction('options.getConnInfo', getConnInfo, "use that of your runtime, as from '@hono/node-server/conninfo'");
  if (getConnInfo === undefined && key === undefined && engine === undefined) {
    throw fault(
      'ERR_LEAPGATE_OPTIONS',
      "options.getConnInfo: nothing says whom to limit; use that of your runtime, as from 'hono/cloudflare-workers', or pass `key`",
      TypeError,
    );
  }
  if (getConnInfo !== undefined && key !== undefined)
    throw wrong('options.getConnInfo', getConnInfo, 'stands beside `key`; leave one of them out');
  const gate = makeGate(options, addressKey(getConnInfo), [], contextOf, (c) => c.req.raw);

  function setHeaders(c, decision) {
    const response = withHeaders(c.res, gate.headers(decision));
    if (response !== c.res) c.res = response;
    return c.res;
  }

  // With an engine, an entry stays open until the response has ended. In Node, its own response reports the end; elsewhere, the
  // body is watched.
  async function watched(c, next, decision) {
    const { end } = decision;
    const { outgoing } = c.env ?? {};
    if (typeof outgoing?.once === 'function') {
      whenOver(outgoing, () => end(outcomeOf(outgoing, c.finalized ? c.res : undefined)));
      await next();
      setHeaders(c, decision);
      return;
    }
    const { through, failed } = watch(c.req.raw, end, contextOf(c));
    try {
      await next();
      c.res = through(setHeaders(c, decision));
    } catch (error) {
      failed(error);
      throw error;
    }
  }

  return async function limit(c, next) {
    const decision = await gate.decide(c);
    if (decision === undefined) return next();
    const { result, end } = decision;
    c.set(property, result);
    if (!result.success) {
      const refusal = gate.refusal(decision);
      if (gate.reply === undefined) return responseOf(refusal);
      return withHeaders(await gate.reply(c, result), refusal.headers);
    }
    if (gate.isOpen) return watched(c, next, decision);
    await next();
    setHeaders(c, decision);
    await end?.({ response: c.res });
  };
});
