// Upstash's REST interface in front of a Redis, as much of it as its clients use here. usage: node rest.mjs REDIS_PORT REST_PORT
import { createServer } from 'node:http';
import Redis from 'ioredis';

const [redisPort, restPort] = process.argv.slice(2);
const client = new Redis({ host: '127.0.0.1', port: Number(redisPort) });

const run = ([command, ...args]) =>
  client.call(command, ...args.map(String)).then(
    (result) => ({ result }),
    (error) => ({ error: error.message }),
  );

createServer(async (request, response) => {
  let body = '';
  for await (const chunk of request) body += chunk;
  const asked = JSON.parse(body);
  const answer = request.url === '/pipeline' ? await Promise.all(asked.map(run)) : await run(asked);
  const text = JSON.stringify(answer);
  response.writeHead(answer.error === undefined ? 200 : 400, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
  response.end(text);
}).listen(Number(restPort), '127.0.0.1');
