// One process of a fleet: it sends itself requests, and logs each admission as `RULE KEY SENT ANSWERED`, in nanoseconds of
// CLOCK_MONOTONIC. usage: node fleet_node.mjs REDIS_PORT LOG WHEN_DOWN RATE KEY_PREFIX [RULE LIMIT WINDOW_MS BUCKETS KEYS]…
// A line `RULE LIMIT` on stdin changes a limit; at its end the process ends.
import { openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import Redis from 'ioredis';
import { SharedLimiter } from 'leapgate/shared';
import { redis } from 'leapgate/shared/redis';

const [port, path, whenDown, rate, keyPrefix, ...words] = process.argv.slice(2);
const log = openSync(path, 'a');
// It tries to connect again and again, as is usual; here a little more often, since tests are short.
const client = new Redis({ host: '127.0.0.1', port: Number(port), retryStrategy: () => 50 });
client.on('error', () => {}); // the limiter says what it means

const rules = new Map();
while (words.length > 0) {
  const [id, limit, windowMs, sampleCount, keys] = words.splice(0, 5);
  const options = { id, windowMs: Number(windowMs), sampleCount: Number(sampleCount), whenDown, store: redis(client, { keyPrefix }) };
  const make = (limit) => new SharedLimiter({ ...options, limit });
  rules.set(id, { make, limiter: make(Number(limit)), keys: keys === '' ? [undefined] : keys.split(','), sent: 0 });
}

async function ask(id, { limiter }, key) {
  const sent = process.hrtime.bigint();
  const { success } = await limiter.limit(key);
  // At once, so that nothing is missing from the log of a process that is killed.
  if (success) writeSync(log, `${id} ${key ?? ''} ${sent} ${process.hrtime.bigint()}\n`);
}

const begin = performance.now();
setInterval(() => {
  const due = ((performance.now() - begin) / 1000) * Number(rate);
  for (const [id, rule] of rules) {
    for (; rule.sent < due; rule.sent++) ask(id, rule, rule.keys[rule.sent % rule.keys.length]);
  }
}, 2);

for await (const line of createInterface({ input: process.stdin })) {
  const [id, limit] = line.split(' ');
  const rule = rules.get(id);
  const before = rule.limiter;
  rule.limiter = rule.make(Number(limit));
  await before.close();
}
process.exit();
