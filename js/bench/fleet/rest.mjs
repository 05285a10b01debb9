// Upstash's REST interface in front of a Redis, as much of it as its clients use here. usage: node rest.mjs REDIS_PORT REST_PORT
import { createHash } from 'node:crypto';
import { createServer } from 'node:http';
import Redis from 'ioredis';

const [redisPort, restPort] = process.argv.slice(2);
const client = new Redis({ host: '127.0.0.1', port: Number(redisPort) });

// Scripts for Upstash have a first line with a flag that Redis does not know: without it they have another hash.
const sha1 = (text) => createHash('sha1').update(text).digest('hex');
const hashes = new Map();
function translated([command, script, ...rest]) {
  const name = command.toLowerCase();
  if (name === 'evalsha') return [command, hashes.get(script) ?? script, ...rest];
  if (name !== 'eval') return [command, script, ...rest].filter((word) => word !== undefined);
  const plain = script.replace(/^#!.*\n/, '');
  hashes.set(sha1(script), sha1(plain));
  return [command, plain, ...rest];
}

const call = ([command, ...args]) =>
  client.call(command, ...args.map(String)).then(
    (result) => ({ result }),
    (error) => ({ error: error.message }),
  );

createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const asked = JSON.parse(body);
  const run = (words) => call(translated(words));
  const answer = request.url === '/pipeline' ? await Promise.all(asked.map(run)) : await run(asked);
  const text = JSON.stringify(answer);
  response.writeHead(answer.error === undefined ? 200 : 400, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}).listen(Number(restPort), '127.0.0.1');
