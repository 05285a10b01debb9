// Particular to Workers: no timers and no randomness at module scope, and requests whose client has left are dropped.
import assert from 'node:assert/strict';
import test from 'node:test';
import { EXPECTED, SERVER, answersOf } from './websocket.mjs';
import { leave, worker } from './workerd.mjs';

test('workerd: ten thousand keys expire without a timer, and others take their place', async () => {
  const { get } = await worker(
    `
    import { memory } from './memory.mjs';
    import { Limiter } from 'leapgate';
    let millis = 0;
    const limiter = new Limiter({ limit: 2, windowMs: 1000, maxKeys: 10_000, now: () => millis });
    export default {
      fetch(request) {
        const { pathname, searchParams } = new URL(request.url);
        millis = Number(searchParams.get('at'));
        const passed = [0, 0, 0];
        for (let i = 0; i < 3; i++) {
          for (let key = 0; key < 10_000; key++) passed[i] += limiter.limit(pathname + key).success;
        }
        return Response.json({ passed, bytes: memory().buffer.byteLength });
      },
    };
  `,
    {
      files: {
        'memory.mjs': `
    let last;
    const { Instance } = WebAssembly;
    WebAssembly.Instance = function (...args) {
      return (last = new Instance(...args));
    };
    export const memory = () => last.exports.memory;
  `,
      },
    },
  );
  const { passed } = await get('/a?at=0');
  assert.deepEqual(passed, [10_000, 10_000, 0]);
  // While these keys count, others have no window of their own: they share, so that most of them pass, and none more than its limit.
  const { passed: others, bytes } = await get('/b?at=1049');
  assert.ok(others[0] > 9000, `${others} of the others pass`);
  assert.ok(others[0] + others[1] + others[2] <= 20_000, `${others} of the others pass`);
  for (let round = 1; round <= 20; round++) {
    const at = 1000 + round * 2100;
    assert.deepEqual(await get(`/${round}?at=${at}`), { passed, bytes }, `at ${at}, each has a window of its own`);
  }
});

test('workerd: the clock is the one of the place', async () => {
  const { get } = await worker(`
    import { Limiter } from 'leapgate';
    const limiter = new Limiter({ limit: 1, windowMs: 50 });
    export default { fetch: () => Response.json(limiter.limit('a')) };
  `);
  const passed = [];
  for (const started = Date.now(); passed.length < 3; assert.ok(Date.now() < started + 10_000)) {
    const before = Date.now();
    const { success, retryAfterMs } = await get('/');
    if (success) passed.push([before, Date.now()]);
    else assert.ok(retryAfterMs > 0 && retryAfterMs <= 55, `${retryAfterMs}`);
  }
  for (let i = 1; i < passed.length; i++) assert.ok(passed[i][1] - passed[i - 1][0] >= 50, JSON.stringify(passed));
});

const CLIENTS = 32;

test('workerd: with many clients at once, never more than the limit in any window', async () => {
  const [limit, windowMs] = [20, 100];
  const { url, get } = await worker(`
    import { leapgate } from 'leapgate/fetch';
    let ms = 0;
    const admitted = [];
    const limited = leapgate({ limit: ${limit}, windowMs: ${windowMs}, now: () => ms, key: async () => (ms++, 'all') });
    const fetch = limited(async () => {
      admitted.push(ms);
      return new Response('hello');
    });
    export default {
      fetch: (request, ...rest) => (request.url.endsWith('/admitted') ? Response.json(admitted) : fetch(request, ...rest)),
    };
  `);
  const statuses = [];
  let left = 1000;
  const client = async () => {
    while (left-- > 0) {
      const response = await fetch(url);
      await response.text();
      statuses.push(response.status);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  const admitted = await get('/admitted');
  admitted.forEach((instant, i) => {
    const beyond = admitted[i + limit];
    assert.ok(beyond === undefined || beyond - instant >= windowMs, `${limit + 1} from ${instant} to ${beyond}`);
  });
  assert.equal(statuses.filter((status) => status === 200).length, admitted.length);
  assert.equal(statuses.filter((status) => status === 429).length, 1000 - admitted.length);
  assert.ok(admitted.length >= limit * Math.floor(1000 / (1.1 * windowMs)), `${admitted.length} pass`);
});

// Admits one call at a time, and records the outcomes.
const ADAPTED = `
import { Engine } from 'leapgate/engine';
const one = new Engine({ flowRules: [{ resource: 'all', count: 1, grade: 'concurrency' }] });
let inside = 0;
const ends = [];
const engine = {
  enter(...args) {
    const entry = one.enter(...args);
    if (!entry.success) return entry;
    inside++;
    const exit = (outcome) => (inside--, ends.push(outcome), entry.exit(outcome));
    return { ...entry, exit };
  },
};
const options = { engine, resource: () => 'all' };
const bytes = new TextEncoder();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
function answer(request) {
  switch (new URL(request.url).pathname) {
    case '/stream':
      return new Response(new ReadableStream({
        async pull(controller) {
          controller.enqueue(bytes.encode('more'));
          await sleep(20);
        },
      }));
    case '/native': {
      const { readable, writable } = new IdentityTransformStream();
      const writer = writable.getWriter();
      (async () => {
        for (;;) {
          await writer.write(bytes.encode('more'));
          await sleep(20);
        }
      })().catch(() => {});
      return new Response(readable);
    }
    case '/idle':
      return new Response(new ReadableStream({
        start(controller) {
          controller.enqueue(bytes.encode('begun'));
          return sleep(60_000);
        },
      }));
    case '/hold':
      return sleep(60_000).then(() => new Response());
    case '/broken': {
      let read = 0;
      const pull = (controller) => {
        if (read++ === 1) throw new Error('broken');
        controller.enqueue(bytes.encode('begun'));
      };
      return new Response(new ReadableStream({ pull }, { highWaterMark: 0 }));
    }
    case '/slow':
      return new Response(new ReadableStream({
        async start(controller) {
          controller.enqueue(bytes.encode('begun'));
          await sleep(100);
          controller.enqueue(bytes.encode(', ended'));
          controller.close();
        },
      }));
    default:
      return new Response('hello');
  }
}
export default {
  fetch(request, ...rest) {
    const { pathname } = new URL(request.url);
    if (pathname === '/ends') return Response.json({ inside, ends: ends.splice(0) });
    if (pathname === '/collect') return Response.json(gc() ?? null);
    return adapted(request, ...rest);
  },
};
`;

const ADAPTERS = {
  fetch: `
import { leapgate } from 'leapgate/fetch';
const adapted = (...args) => leapgate(options)(answer)(...args);
${ADAPTED}`,
  hono: `
import { Hono } from 'hono';
import { leapgate } from 'leapgate/hono';
let app;
const adapted = (...args) => (app ??= new Hono().use(leapgate(options)).all('*', (c) => answer(c.req.raw))).fetch(...args);
${ADAPTED}`,
};

// The JSON at `path`, once it satisfies `isSo`.
async function until(get, path, isSo) {
  for (const deadline = Date.now() + 20_000; ;) {
    const answer = await get(path);
    if (isSo(answer)) return answer;
    assert.ok(Date.now() < deadline, `${path} says ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// The outcomes, once the call in flight has ended.
async function ended(get, collects = false) {
  const asking = collects ? (path) => get('/collect').then(() => get(path)) : get;
  return (await until(asking, '/ends', ({ inside, ends }) => inside === 0 && ends.length > 0)).ends;
}

const entered = (get) => until(get, '/ends', ({ inside }) => inside === 1);

const LEFT = [{ unanswered: true }];

for (const [name, text] of Object.entries(ADAPTERS)) {
  test(`workerd: ${name}: an entry ends with its response`, async () => {
    const { url, get } = await worker(text);
    for (const [path, body] of [
      ['/', 'hello'],
      ['/slow', 'begun, ended'],
    ]) {
      const response = await fetch(url + path);
      assert.equal(await response.text(), body);
      assert.deepEqual(await ended(get), [{}]);
    }
    const slow = await fetch(`${url}/slow`);
    await get('/collect');
    assert.deepEqual(await get('/ends'), { inside: 1, ends: [] }, 'while it is read');
    assert.equal((await fetch(url)).status, 429);
    await slow.text();
    await (await fetch(`${url}/broken`)).text();
    assert.deepEqual(await ended(get), [{}, { error: true }]);
  });

  test(`workerd: ${name}: a client that leaves in mid-stream ends its entry`, async () => {
    const { url, get } = await worker(text);
    for (const path of ['/stream', '/native']) {
      await leave(url + path);
      assert.deepEqual(await ended(get), LEFT, path);
    }
  });

  test(`workerd: ${name}: a client that leaves before the answer ends its entry at garbage collection`, async () => {
    const { url, get } = await worker(text);
    await leave(`${url}/hold`, entered(get));
    assert.deepEqual(await ended(get, true), LEFT);
  });

  test(`workerd: ${name}: with enable_request_signal, a client that leaves ends its entry at once`, async () => {
    const { url, get } = await worker(text, { flags: ['enable_request_signal'] });
    for (const path of ['/stream', '/native', '/idle', '/hold']) {
      await leave(url + path, path === '/hold' ? entered(get) : undefined);
      assert.deepEqual(await ended(get), LEFT, path);
    }
  });
}

// Each request has a context of its own in Workers: no request may wait for the context of another, which may be gone.
const WAITING = `
import { Engine } from 'leapgate/engine';
const rules = [
  { resource: 'two', count: 2, grade: 'concurrency' },
  { resource: 'paced', count: 100, controlBehavior: 'throttle', maxQueueingTimeMs: 10_000 },
];
const engine = new Engine({ flowRules: rules });
let [inside, most, waiting] = [0, 0, 0];
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export default {
  async fetch(request) {
    const [, resource, ms] = new URL(request.url).pathname.split('/');
    if (resource === 'state') return Response.json({ inside, most, waiting });
    waiting++;
    const entry = await engine.acquire(resource);
    waiting--;
    most = Math.max(most, ++inside);
    await sleep(Number(ms));
    inside--;
    entry.exit();
    return Response.json(resource);
  },
};
`;

async function answered(get, path, times) {
  let left = times;
  const client = async () => {
    while (left-- > 0) assert.equal(`/${await get(path)}`, path.slice(0, path.lastIndexOf('/')));
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

test('workerd: waiting requests are admitted, and never more than the limit', async () => {
  const { get } = await worker(WAITING);
  await answered(get, '/two/2', 60);
  assert.deepEqual(await get('/state'), { inside: 0, most: 2, waiting: 0 });
  await answered(get, '/paced/0', 64);
});

test('workerd: a client that leaves while it waits holds up no other request', async () => {
  const { url, get } = await worker(WAITING);
  const long = [get('/two/3000'), get('/two/3000')];
  await until(get, '/state', ({ inside }) => inside === 2);
  for (let i = 1; i <= 3; i++) await leave(`${url}/two/0`, until(get, '/state', ({ waiting }) => waiting === i));
  await answered(get, '/two/0', 40);
  await Promise.all(long);
});

test('workerd: a WebSocket behind leapgate/fetch', async () => {
  const { url } = await worker(
    `
    import { handle } from './handle.mjs';
    const answer = (request) => {
      if (request.headers.get('upgrade') !== 'websocket') return new Response('hello');
      const [webSocket, socket] = Object.values(new WebSocketPair());
      socket.accept();
      socket.addEventListener('message', ({ data }) => socket.send(\`echo \${data}\`));
      return new Response(null, { status: 101, webSocket });
    };
    export default { fetch: handle(answer) };
  `,
    { files: { 'handle.mjs': SERVER } },
  );
  assert.deepEqual(await answersOf(url), EXPECTED);
});
