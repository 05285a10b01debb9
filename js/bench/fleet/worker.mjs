// One process of many, which sends itself requests with one key, by a Poisson process.
// usage: node worker.mjs SUBJECT REDIS_PORT REST_PORT LIMIT WINDOW_MS SAMPLES RATE FILE
// It says when it is ready, and reads a line `BEGIN END`, in seconds of CLOCK_MONOTONIC. FILE gets three doubles for each request: when
// it was sent and answered (never: when the process ended), and 1 if it passed; and a line of JSON is printed.
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline/promises';
import { SUBJECTS } from './subjects.mjs';

const [name, ...numbers] = process.argv.slice(2);
const file = numbers.pop();
const [redisPort, restPort, limit, windowMs, samples, rate] = numbers.map(Number);

const clock = () => Number(process.hrtime.bigint()) / 1e9;
const ask = SUBJECTS[name]({ redisPort, restPort }, limit, windowMs, samples);
const requests = [];
let failed = 0;

async function send() {
  const request = [clock(), Infinity, 0];
  requests.push(request);
  try {
    request[2] = Number(await ask('client'));
    request[1] = clock();
  } catch (error) {
    if (failed++ === 0) console.error(`${name}: ${error.message}`);
  }
}

await ask('ready');
const [begin, end] = (await createInterface({ input: process.stdin, output: process.stdout }).question('ready\n')).split(' ').map(Number);

const gap = () => -Math.log(1 - Math.random()) / rate;
let due = begin + gap();
let before = process.cpuUsage();
let isBegun = false;
const timer = setInterval(async () => {
  const now = clock();
  if (!isBegun && now >= begin) [isBegun, before] = [true, process.cpuUsage()];
  for (; due <= now && due < end; due += gap()) send();
  if (now < end + 0.5) return;
  clearInterval(timer);
  const { user, system } = process.cpuUsage(before);
  for (const request of requests) request[1] = Math.min(request[1], now);
  writeFileSync(file, Float64Array.from(requests.flat()));
  console.log(JSON.stringify({ cpuSeconds: (user + system) / 1e6, failed }));
  process.exit();
}, 1);
