// Redis and Valkey as the store of shared limiters: one script, one key for each call, over the client that the user has.

import { checkOptions, outermost, wrong } from './errors.js';

// build.mjs writes them.
const [script, SHA1] = [REDIS_SCRIPT, REDIS_SCRIPT_SHA1];

const CURE = 'use a client of ioredis, iovalkey, node-redis or @upstash/redis, or a function of the script, its keys and its arguments';

// How each client calls a script: `known` by its hash, or `sent`.
const CLIENTS = {
  // node-redis has `evalSha`, with one object.
  redis: (client, key, request) => ({
    known: () => client.evalSha(SHA1, { keys: [key], arguments: [request] }),
    sent: () => client.eval(script, { keys: [key], arguments: [request] }),
  }),
  // @upstash/redis has `evalsha`, with two lists.
  upstash: (client, key, request) => ({
    known: () => client.evalsha(SHA1, [key], [request]),
    sent: () => client.eval(script, [key], [request]),
  }),
  // ioredis and iovalkey have `evalsha`, with the number of keys.
  ioredis: (client, key, request) => ({
    known: () => client.evalsha(SHA1, 1, key, request),
    sent: () => client.eval(script, 1, key, request),
  }),
};

function kindOf(client) {
  if (typeof client?.evalSha === 'function') return CLIENTS.redis;
  if (typeof client?.evalsha !== 'function') return undefined;
  return typeof client.defineCommand === 'function' ? CLIENTS.ioredis : CLIENTS.upstash;
}

const isUnknown = (error) => String(error?.message ?? error).includes('NOSCRIPT');

export const redis = outermost('redis', (client, options = {}) => {
  const { keyPrefix = 'leapgate:' } = checkOptions('options', options, ['keyPrefix'], "`{ keyPrefix: 'limits:' }`, or leave it out");
  if (typeof keyPrefix !== 'string') throw wrong('options.keyPrefix', keyPrefix, 'is not a string; use one');
  const kind = kindOf(client);
  const call = typeof client === 'function' ? client : client?.eval?.bind?.(client);
  if (kind === undefined && typeof call !== 'function') throw wrong('client', client, `is not a client of Redis; ${CURE}`);
  if (kind === undefined) return { lease: (key, request) => call(script, [keyPrefix + key], [request]) };
  return {
    async lease(key, request) {
      const { known, sent } = kind(client, keyPrefix + key, request);
      try {
        return await known();
      } catch (error) {
        if (!isUnknown(error)) throw error;
        return sent();
      }
    },
  };
});
