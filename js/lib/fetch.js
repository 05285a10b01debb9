// For handlers of fetch's Request: Workers, Deno, Bun, Next.js and the like.

import { addressKeys, checkAdapter, isObject, makeGate } from './gate.js';
import { checkFunction, checkOptions, fault, kindOf, outermost, wrong } from './errors.js';
import { isResponse, responseOf, watch, withHeaders } from './web.js';

const HEADER = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

// Returns a function from a request to the client's address.
function addressOf(ip) {
  if (typeof ip === 'function') return ip;
  if (ip === 'cloudflare') return (request) => request.headers.get('cf-connecting-ip');
  if (!isObject(ip)) {
    throw wrong(
      'options.ip',
      ip,
      "is not a valid source of addresses; use 'cloudflare', `{ header: 'x-forwarded-for', hops: 1 }` or a function",
    );
  }
  const { header, hops = 1 } = checkOptions('options.ip', ip, ['header', 'hops']);
  if (typeof header !== 'string' || !HEADER.test(header)) {
    throw wrong('options.ip.header', header, "is not a valid header; use the one that your proxy sets, as in 'x-forwarded-for'");
  }
  if (!Number.isInteger(hops) || hops < 1) {
    throw wrong(
      'options.ip.hops',
      hops,
      'is not a valid number of proxies; use a whole number from 1, how many of yours a request passes',
      kindOf(hops),
    );
  }
  // Each proxy appends the address of its client; clients can forge the addresses before these.
  return (request) => {
    const addresses = request.headers.get(header)?.split(',') ?? [];
    return addresses[Math.max(0, addresses.length - hops)]?.trim();
  };
}

function addressKey(ip) {
  if (ip === undefined) return undefined;
  const [address, keyOf] = [addressOf(ip), addressKeys('look at `ip`, or pass `key`')];
  return (...args) => keyOf(address(...args) ?? undefined);
}

export const leapgate = outermost('leapgate', (options) => {
  checkAdapter(options, ['ip']);
  const { ip, key, engine } = options;
  if (ip === undefined && key === undefined && engine === undefined) {
    throw fault(
      'ERR_LEAPGATE_OPTIONS',
      "options.ip: nothing says whom to limit; use 'cloudflare', `{ header, hops }` or a function, or pass `key`",
      TypeError,
    );
  }
  if (ip !== undefined && key !== undefined) throw wrong('options.ip', ip, 'stands beside `key`; leave one of them out');
  // In Workers, the third argument is the context.
  const gate = makeGate(options, addressKey(ip), [], (_, __, ctx) => ctx);

  return outermost('limit', (handler) => {
    checkFunction('handler', handler ?? null, 'use the one that answers requests');
    return async function limited(request, ...rest) {
      const decision = await gate.decide(request, ...rest);
      if (decision === undefined) return handler.call(this, request, ...rest);
      const { result, end } = decision;
      if (!result.success) {
        const refusal = gate.refusal(decision);
        if (gate.reply === undefined) return responseOf(refusal);
        return withHeaders(await gate.reply(request, result), refusal.headers);
      }
      if (!gate.isOpen) {
        const response = withHeaders(await handler.call(this, request, ...rest), gate.headers(decision));
        if (isResponse(response)) await end?.({ response });
        return response;
      }
      const { through, failed } = watch(request, end, rest[1]);
      try {
        return through(withHeaders(await handler.call(this, request, ...rest), gate.headers(decision)));
      } catch (error) {
        failed(error);
        throw error;
      }
    };
  });
});
