// A Node.js process with an engine that is asked all the time, and its metrics over HTTP. usage: node metrics_node.mjs RULES RATES, both as JSON;
// it prints its port, and ends with its stdin.
import { createServer } from 'node:http';
import { Engine } from 'leapgate/engine';
import { contentType, prometheusText } from 'leapgate/metrics';

const [rules, rates] = process.argv.slice(2).map((text) => JSON.parse(text));
const engine = new Engine(rules);
const half = () => new Promise((resolve) => setTimeout(resolve, 500));
const calls = {
  login: () => engine.limit('login'),
  free: () => engine.limit('free'),
  mail: () => engine.run('mail', () => {}),
  report: () => engine.run('report', half),
  pay: () => engine.run('pay', () => Promise.reject(new Error('it fails'))),
};

const server = createServer((_, response) => response.setHeader('content-type', contentType).end(prometheusText(engine)));
server.listen(0, '127.0.0.1', () => console.log(server.address().port));

const begin = performance.now();
const sent = Object.fromEntries(Object.keys(rates).map((name) => [name, 0]));
setInterval(() => {
  for (const [name, rate] of Object.entries(rates)) {
    const due = ((performance.now() - begin) / 1000) * rate;
    // What is refused or fails is counted by the engine.
    for (; sent[name] < due; sent[name]++) Promise.resolve(calls[name]()).catch(() => {});
  }
}, 5);
process.stdin.on('end', () => process.exit()).resume();
