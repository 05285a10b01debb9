// The output of an uncaught error through a pipe, as in a container, and the beginning of stacks.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { basename } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { ArrayMetric, Engine, LeapArray, StatisticNode } from 'leapgate/engine';
import { Limiter } from 'leapgate';
import { leapgate as express } from 'leapgate/express';
import { leapgate as fastify } from 'leapgate/fastify';
import { leapgate as fetch } from 'leapgate/fetch';
import { leapgate as hono } from 'leapgate/hono';
import { ipKey, rateLimitHeaders } from 'leapgate/http';
import { init } from 'leapgate/slim';
import { SharedLimiter } from 'leapgate/shared';
import { MemoryStore } from 'leapgate/shared/memory';
import { redis } from 'leapgate/shared/redis';
import { leapgate as store } from 'leapgate/store';

const here = fileURLToPath(new URL('.', import.meta.url));
let programs = 0;

// The output of a program through a pipe.
async function printed(extension, text) {
  const [program, out] = [`${here}program-${++programs}.${extension}`, `${here}program-${programs}.out`];
  writeFileSync(program, text);
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  await promisify(execFile)('sh', ['-c', '"$0" "$1" 2>&1 | cat > "$2"', process.execPath, program, out], { env });
  return readFileSync(out, 'utf8');
}

const PROGRAMS = {
  'a Limiter': ['leapgate', 'Limiter', "new Limiter({ limit: '100', windowMs: 60_000 });", 'RangeError: options.limit: `100` is a string; use a number'],
  'an Engine': ['leapgate/engine', 'Engine', 'new Engine({ flowRules: 5 });', 'RangeError: flowRules: `5` is a number; use an array'],
  'a run that is refused': [
    'leapgate/engine',
    'Engine',
    "new Engine({ flowRules: [{ resource: 'x', count: 0 }] }).run('x', () => 1);",
    'Error: x: `x` refuses; it never lets this request pass',
  ],
  'an adapter': ['leapgate/express', 'leapgate', 'leapgate({ limit: 1 });', 'RangeError: options: `windowMs` is missing; add it'],
};

for (const [what, [from, name, text, message]] of Object.entries(PROGRAMS)) {
  for (const [extension, load] of [
    ['mjs', `import { ${name} } from '${from}';`],
    ['cjs', `const { ${name} } = require('${from}');`],
  ]) {
    test(`uncaught: ${what} (${extension}): the message comes through a pipe, with little around it`, async () => {
      const all = await printed(extension, `${load}\n${text}\n`);
      assert.ok(all.includes(`\n${message}\n`), all.slice(0, 2000));
      assert.ok(all.length < 1500, `${all.length} characters`);
      assert.ok(Math.max(...all.split('\n').map((line) => line.length)) < 400, all);
    });
  }
}

test('the_only_long_line_is_the_module_which_cannot_throw', () => {
  const require = createRequire(import.meta.url);
  const dist = (file) => new URL(file, `file://${require.resolve('leapgate/leapgate_bg.wasm')}`);
  const names = ['express', 'fastify', 'fetch', 'hono', 'http', 'store', 'stats', 'shared-durable-object', 'shared-cluster'];
  const modules = ['engine', 'shared', 'memory'].flatMap((module) => [`${module}/default.js`, `${module}/node.cjs`]);
  const files = ['default.js', 'node.cjs', 'slim.js', ...modules];
  for (const file of [...files, ...names.flatMap((name) => [`${name}.js`, `${name}.cjs`])]) {
    const long = readFileSync(dist(file), 'utf8').split('\n').filter((line) => line.length > 600);
    const isInlined = /default\.js|node\.cjs/.test(file);
    assert.equal(long.length, isInlined ? 1 : 0, file);
    if (isInlined) assert.match(long[0], /^"[^"\\]+"$/, file);
  }
});

// The first line of a stack below the message that is not Node's own.
const firstOf = ({ stack }) => stack.split('\n').find((line) => line.startsWith('    at ') && !line.includes('node:internal'));

const shared = new SharedLimiter({ id: 'a', limit: 1, windowMs: 1000, store: new MemoryStore() });
const engine = () => new Engine({ flowRules: [{ resource: 'x', count: 0 }, { resource: 'y', count: 1, grade: 'concurrency' }] });
const limiter = new Limiter({ limit: 1, windowMs: 1000 });
const refuse = { limit: 1, windowMs: 1000, key: () => 'a', max: 1 };
const freed = new Limiter({ limit: 1, windowMs: 1000 });
freed.free();

for (const [what, throws] of Object.entries({
  'new Limiter': () => new Limiter(5),
  'new Limiter, with an error of the core': () => new Limiter({ limit: -1, windowMs: 1 }),
  'limiter.limit': () => limiter.limit('a', { rate: 1 }),
  'limiter.limit of a key': () => limiter.limit({}),
  'limiter.peek': () => limiter.peek('a', { cost: -1 }),
  'limiter.refund': () => limiter.refund('a', -1),
  'limiter.block': () => limiter.block('a', -1),
  'limiter.reset when freed': () => freed.reset('a'),
  'new SharedLimiter': () => new SharedLimiter({ id: 'a' }),
  'shared.limit': () => shared.limit({}),
  'shared.limitNow': () => shared.limitNow('a', { rate: 1 }),
  'shared.refund': () => shared.refund('a', -1),
  'memory.lease': () => new MemoryStore().lease('a', 'b'),
  'redis of shared limiters': () => redis(5),
  'new Engine': () => new Engine({ flowRules: 5 }),
  'engine.replace': () => engine().replace(5),
  'engine.limit': () => engine().limit('x', 5),
  'engine.enter': () => engine().enter(5),
  'engine.setGauges': () => engine().setGauges(),
  'engine.top': () => engine().top(-1),
  'entry.exit': () => engine().enter('y').exit(5),
  'engine.nodes': () => engine().nodes.cluster(5),
  'new LeapArray': () => new LeapArray({ intervalMs: 0 }),
  'array.addPass': () => new LeapArray({ intervalMs: 1000, sampleCount: 2 }).addPass(-1),
  'new ArrayMetric': () => new ArrayMetric(5),
  'metric.sum': () => new ArrayMetric({ intervalMs: 1000, sampleCount: 2 }).sum('passes'),
  'node.complete': () => new StatisticNode().complete(-1),
  rateLimitHeaders: () => rateLimitHeaders(5),
  ipKey: () => ipKey('x'),
  'leapgate of Express': () => express(refuse),
  'leapgate of Express, with an error of the core': () => express({ limit: -1, windowMs: 1 }),
  'leapgate of Fastify': () => fastify(refuse),
  'leapgate of fetch': () => fetch(refuse),
  'limited of fetch': () => fetch({ limit: 1, windowMs: 1000, key: () => 'a' })(5),
  'leapgate of Hono': () => hono(refuse),
  'leapgate of the store': () => store({ limit: 1 }),
  'store.increment': () => store().increment('a'),
  'init of slim': async () => await init(5),
  'engine.run, wrong': () => engine().run('x'),
  'engine.run, refused': () => engine().run('x', () => 1),
  'engine.acquire, wrong': () => engine().acquire('x', { costs: 5 }),
  'engine.acquire, refused': () => engine().acquire('x'),
})) {
  test(`stacks: ${what}: it begins where the call is`, async () => {
    const error = await (async () => throws())().catch((error) => error);
    assert.match(error.code, /^ERR_LEAPGATE_/);
    assert.ok(firstOf(error).includes(basename(import.meta.url)), error.stack);
  });
}

test('stacks: an error of a function of the caller is left alone', () => {
  const mine = new Error('mine');
  const { stack } = mine;
  const limiter = new Limiter({
    limit: 1,
    windowMs: 1000,
    now: () => {
      throw mine;
    },
  });
  assert.throws(() => limiter.limit('a'), (error) => error === mine && error.stack === stack);
});

test('stacks: an error after waiting has no frame of the package', async () => {
  const full = engine();
  full.enter('y');
  const late = full.acquire('y').catch((error) => error);
  full.free();
  const { code, stack } = await late;
  assert.equal(code, 'ERR_LEAPGATE_FREED');
  assert.ok(!stack.includes('leapgate/dist'), stack);
});
