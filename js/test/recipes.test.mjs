// The recipes of docs/recipes.md, exactly as printed; those for Next are in places/heavy/next.test.mjs.

import 'reflect-metadata';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import test, { after } from 'node:test';
import { NestFactory } from '@nestjs/core';
import { createHTTPHandler } from '@trpc/server/adapters/standalone';
import { graphql } from 'graphql';
import { io as connect } from 'socket.io-client';
import ts from 'typescript';
import { get, listen } from './http.mjs';
import { recipe } from './recipes.mjs';

const document = readFileSync(new URL('docs/recipes.md', import.meta.url), 'utf8');
let made = 0;

// The module of the only block of a recipe.
function imported(title, edit = (code) => code) {
  const file = new URL(`recipe-${++made}.mjs`, import.meta.url);
  writeFileSync(file, edit(recipe(document, title)));
  return import(file);
}

async function statusesOf(ask, requests) {
  const statuses = [];
  for (let i = 0; i < requests; i++) statuses.push((await ask()).status);
  return statuses;
}

const passes = (statuses) => [statuses.filter((status) => status === 200).length, statuses.at(-1)];

test('NestJS: the guard admits the limits', async () => {
  const compilerOptions = { module: 'esnext', target: 'es2022', experimentalDecorators: true, emitDecoratorMetadata: true };
  const { App } = await imported('NestJS', (code) => ts.transpileModule(code, { compilerOptions }).outputText);
  const app = await NestFactory.create(App, { logger: false });
  await app.listen(0, '127.0.0.1');
  after(() => app.close());
  const url = `http://127.0.0.1:${app.getHttpServer().address().port}`;
  assert.deepEqual(await statusesOf(() => get(`${url}/login`), 7), [200, 200, 200, 200, 200, 429, 429]);
  assert.deepEqual(passes(await statusesOf(() => get(url), 110)), [100, 429]);
});

test('tRPC: each user has the limit for each path', async () => {
  const { router } = await imported('tRPC');
  const createContext = ({ req }) => ({ user: req.headers.user });
  const url = await listen(createServer(createHTTPHandler({ router, createContext })));
  const hello = (user) => get(`${url}/hello`, { headers: { user } });
  assert.deepEqual(passes(await statusesOf(() => hello('ann'), 110)), [100, 429]);
  const { error } = JSON.parse((await hello('ann')).body);
  assert.match(error.message, /^again in \d+(\.\d+)? ms$/);
  assert.equal(error.data.code, 'TOO_MANY_REQUESTS');
  assert.equal((await hello('bob')).status, 200);
  const batch = await get(`${url}/hello,hello?batch=1&input=${encodeURIComponent('{}')}`, { headers: { user: 'bob' } });
  assert.equal(JSON.parse(batch.body).length, 2);
  assert.deepEqual(passes(await statusesOf(() => hello('bob'), 110)), [97, 429], 'both of the batch have counted');
});

test('GraphQL: fields are charged as often as they are resolved', async () => {
  const { schema } = await imported('GraphQL');
  const ask = (source, user) => graphql({ schema, source, contextValue: { user } });
  const { data, errors } = await ask('{ a: report b: report ...F c: report } fragment F on Query { hello }', 'ann');
  assert.deepEqual({ ...data }, { a: 'a report', b: 'a report', hello: 'hello', c: null });
  assert.deepEqual(errors.map(({ message, path }) => [message, path]), [['too many requests', ['c']]]);
  const { code, retryAfterMs } = errors[0].extensions;
  assert.ok(code === 'RATE_LIMITED' && retryAfterMs > 0);
  assert.equal((await ask('{ c: report }', 'bob')).data.c, 'a report');
});

test('Socket.io: a client may send so many messages, over all of its connections', async () => {
  const { io } = await imported('Socket.io');
  const server = createServer();
  io.attach(server);
  const url = await listen(server);
  const sockets = [1, 2].map(() => connect(url, { transports: ['websocket'], forceNew: true }));
  after(() => (sockets.forEach((socket) => socket.close()), io.close()));
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  let [answered, refused] = [0, []];
  const over = new Promise((resolve) => {
    const look = () => answered + refused.length === 30 && resolve();
    for (const socket of sockets) {
      socket.on('refused', (message) => (refused.push(message), look()));
      for (let i = 0; i < 15; i++) socket.emit('hello', (answer) => (answered += answer === 'hello', look()));
    }
  });
  await over;
  assert.deepEqual([answered, refused], [20, new Array(10).fill('too many messages')]);
});

test('hot reload: the counts stay when a module is evaluated anew', async () => {
  const file = new URL('recipe-reloaded.mjs', import.meta.url);
  writeFileSync(file, recipe(document, 'Hot reload'));
  const reloaded = async (version) => (await import(`${file}?v=${version}`)).limiter;
  assert.equal((await reloaded(1)).limit('a').remaining, 99);
  assert.equal((await reloaded(2)).limit('a').remaining, 98);
});

test('each recipe is run by a test', () => {
  const titles = Array.from(document.matchAll(/^## (.*)$/gm), ([, title]) => title);
  assert.deepEqual(titles, ['Next.js', 'NestJS', 'tRPC', 'GraphQL', 'Socket.io', 'Hot reload']);
  assert.equal(document.match(/^```[jt]s$/gm).length, titles.length + 1);
});
