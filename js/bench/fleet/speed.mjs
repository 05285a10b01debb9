// A decision with a leased permit beside one of a window of this process, in turns; prints a line of JSON with the ratios of each
// round. usage: node speed.mjs REDIS_PORT ROUNDS KEYS
import Redis from 'ioredis';
import { Limiter } from 'leapgate';
import { SharedLimiter } from 'leapgate/shared';
import { redis } from 'leapgate/shared/redis';

const [port, rounds, keys] = process.argv.slice(2).map(Number);
const BATCHES = 400;
const BATCH = 500;
const SINGLES = 50_000;

const client = new Redis({ host: '127.0.0.1', port });
const options = { limit: 2 ** 40, windowMs: 60_000 };
const local = new Limiter(options);
const shared = new SharedLimiter({ ...options, id: 'speed', store: redis(client), whenDown: 'refuse' });
const names = Array.from({ length: keys }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
const subjects = {
  local: (key) => local.limit(key),
  leased: (key) => shared.limitNow(key),
};
const turn = () => new Promise((resolve) => setImmediate(resolve));

// Without a permit there is no decision, but a question: those are counted, and are rare.
let unanswered = 0;
let decided = 0;

async function cpuPerDecision(ask) {
  let [used, done] = [0, 0];
  for (let batch = 0; batch < BATCHES; batch++) {
    const before = process.cpuUsage();
    for (let i = 0; i < BATCH; i++) {
      if (ask(names[i % keys]) === null) unanswered++;
      else done++;
    }
    const { user, system } = process.cpuUsage(before);
    used += user + system;
    await turn();
  }
  decided += done;
  return used / done;
}

async function p99(ask) {
  const taken = [];
  for (let i = 0; i < SINGLES; i++) {
    const key = names[i % keys];
    const start = performance.now();
    const result = ask(key);
    const end = performance.now();
    if (result === null) unanswered++;
    else taken.push(end - start);
    if (i % BATCH === 0) await turn();
  }
  decided += taken.length;
  return taken.sort((a, b) => a - b)[Math.floor(taken.length * 0.99)];
}

// The store asks for as much as was used lately, so permits are short at first.
for (const ask of Object.values(subjects)) for (let i = 0; i < 3; i++) await cpuPerDecision(ask);
[unanswered, decided] = [0, 0];
const ratios = { cpu: [], p99: [] };
for (let round = 0; round < rounds; round++) {
  const figures = {};
  for (const [name, ask] of Object.entries(subjects)) figures[name] = { cpu: await cpuPerDecision(ask), p99: await p99(ask) };
  for (const figure of ['cpu', 'p99']) ratios[figure].push(figures.leased[figure] / figures.local[figure]);
}
console.log(JSON.stringify({ ...ratios, unanswered: unanswered / decided }));
process.exit();
