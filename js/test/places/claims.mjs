// Claims about the package that hold in all places, by subpath and name. They run in all kinds of places: this file imports nothing,
// and uses only the language and the subject of the claim.

function equal(actual, expected, what) {
  const [is, was] = [actual, expected].map((value) => JSON.stringify(value));
  if (is !== was) throw new Error(`${what}: expected ${was}, got ${is}`);
}

const MINUTE = 60_000;
const request = (client) => new Request('http://localhost/', { headers: { client } });

const adapter = {
  'can be imported, and checks its options': ({ leapgate }) => {
    let code;
    try {
      leapgate({ limit: 'many', windowMs: MINUTE, key: () => 'a' });
    } catch (error) {
      code = error.code;
    }
    equal(code, 'ERR_LEAPGATE_OPTIONS', 'a limit that is a text');
  },
};

// Permits from a store that grants them once.
const granting = (permits) => {
  let isGranted = false;
  return (key, request) => {
    const [, seq, node] = request.split('-').map(BigInt);
    const echo = (seq + node) % 2n ** 53n;
    const answer = isGranted ? `1-${echo}-0-0-9000-0-1` : `1-${echo}-1-${permits}-0-0-1`;
    isGranted = true;
    return answer;
  };
};

// How many of so many requests pass, and whether the others are told when to try again.
const passing = async (limiter, requests) => {
  let passed = 0;
  for (let i = 0; i < requests; i++) {
    const { success, retryAfterMs } = await limiter.limit('Zoë');
    passed += success;
    equal(success === (retryAfterMs === 0), true, `${success}, ${retryAfterMs}`);
  }
  return passed;
};

const CLAIMS = {
  leapgate: {
    'admits exactly the limit, for each key separately, and returns when to try again': ({ Limiter }) => {
      let millis = 5000;
      const limiter = new Limiter({ limit: 3, windowMs: 1000, now: () => millis });
      const ask = (key) => {
        const { success, remaining, retryAfterMs } = limiter.limit(key);
        return [success, remaining, retryAfterMs];
      };
      const full = [false, 0, 1050];
      equal(
        [1, 2, 3, 4, 5].map(() => ask('a')),
        [[true, 2, 0], [true, 1, 0], [true, 0, 0], full, full],
        'five requests of a',
      );
      equal(ask('b'), [true, 2, 0], 'the first request of b');
      millis += 1049;
      equal(ask('a'), [false, 0, 1], 'a, a millisecond too early');
      millis += 1;
      equal(ask('a'), [true, 2, 0], 'a, when it is time to try again');
      limiter.free();
    },
    'made at module scope, it counts by the clock of the place': ({ Limiter }, { limiter }) => {
      equal(limiter instanceof Limiter, true, 'it is a Limiter');
      const results = Array.from({ length: 10 }, (_, i) => limiter.limit(i % 2 === 0 ? 'Zoë' : ['Zoë', 7]));
      equal(
        results.map(({ success }) => success),
        results.map((_, i) => i < 4),
        'two keys of a limit of two',
      );
      const { retryAfterMs, reset } = results[9];
      const isNear = (value, expected) => Math.abs(value - expected) < 10_000;
      equal(
        isNear(retryAfterMs, 1.05 * MINUTE) && isNear(reset - Date.now(), retryAfterMs),
        true,
        `${retryAfterMs}, ${reset}`,
      );
    },
    'names a wrong argument': ({ Limiter }) => {
      let thrown;
      try {
        new Limiter({ limit: -1, windowMs: 1000 });
      } catch (error) {
        thrown = error;
      }
      equal([thrown?.code, thrown?.name], ['ERR_LEAPGATE_OPTIONS', 'RangeError'], 'a limit of -1');
    },
  },
  'leapgate/flow': {
    'decides about keys, and calls in flight wait for their turn': async ({ Engine }) => {
      const flowRules = [
        { resource: 'api', key: ['path'], count: 2 },
        { resource: 'report', count: 1, grade: 'concurrency' },
      ];
      const engine = new Engine({ flowRules });
      const ask = (key) => engine.limit('api', { key }).success;
      equal(['a', 'a', 'a', 'b'].map(ask), [true, true, false, true], 'three of a, one of b');
      const first = await engine.acquire('report');
      const second = engine.acquire('report');
      first.exit();
      equal((await second).success, true, 'the second, when the first had ended');
      engine.free();
    },
    'made at module scope, it counts by the clock of the place': ({ Engine }, { flow }) => {
      equal(flow instanceof Engine, true, 'it is an Engine');
      equal([1, 2, 3].map(() => flow.limit('api').success), [true, true, false], 'three calls');
    },
  },
  'leapgate/engine': {
    'each rule decides, and calls in flight end': ({ Engine }) => {
      let millis = 5000;
      const rules = {
        flowRules: [
          { resource: 'api', key: ['clientIp'], count: 2 },
          { resource: 'report', count: 1, grade: 'concurrency' },
        ],
      };
      const engine = new Engine(rules, { now: () => millis });
      const ask = (ip) => {
        const { success, remaining, retryAfterMs } = engine.limit('api', { key: ip });
        return [success, remaining, retryAfterMs];
      };
      const wait = [false, 0, 1050];
      equal(['a', 'a', 'a', 'b'].map(ask), [[true, 1, 0], [true, 0, 0], wait, [true, 1, 0]], 'three of a, one of b');
      millis += 1050;
      equal(ask('a'), [true, 1, 0], 'a, when it is time to try again');
      const first = engine.enter('report');
      equal([first.success, engine.enter('report').success], [true, false], 'one at a time');
      first.exit();
      equal(engine.enter('report').success, true, 'when the first has ended');
      engine.free();
    },
    'waits for its turn': async ({ Engine }) => {
      const engine = new Engine({ flowRules: [{ resource: 'report', count: 1, grade: 'concurrency' }] });
      const order = [];
      const first = await engine.acquire('report');
      const second = engine.acquire('report').then((entry) => (order.push('second'), entry));
      await engine.run('other', () => order.push('run'));
      first.exit();
      (await second).exit();
      equal(order, ['run', 'second'], 'what came when');
      equal(await engine.run('report', (entry) => entry.success), true, 'when all have left');
    },
    'made at module scope, it counts by the clock of the place': ({ Engine }, { engine }) => {
      equal(engine instanceof Engine, true, 'it is an Engine');
      const results = Array.from({ length: 10 }, (_, i) => engine.limit('api', { key: i % 2 === 0 ? 'Zoë' : 'Zoé' }));
      equal(
        results.map(({ success }) => success),
        results.map((_, i) => i < 4),
        'two keys of a limit of two',
      );
    },
    'names a wrong argument': ({ Engine }) => {
      let thrown;
      try {
        new Engine({ flowRules: [{ resource: 'api', count: -1 }] });
      } catch (error) {
        thrown = error;
      }
      equal(thrown?.code, 'ERR_LEAPGATE_RULES', 'a count of -1');
    },
  },
  'leapgate/stats': {
    'counts as the engine does': ({ StatisticNode }) => {
      let millis = 5000;
      const node = new StatisticNode({ now: () => millis });
      node.addPassRequest(3);
      node.addRtAndSuccess(12);
      equal([node.passQps(), node.successQps(), node.avgRt()], [3, 1, 12], 'in the second of it');
      millis += 1000;
      equal(node.passQps(), 0, 'a second later');
    },
  },
  'leapgate/shared': {
    'made at module scope, it spends what a store grants': async ({ SharedLimiter }, { shared }) => {
      equal(shared instanceof SharedLimiter, true, 'it is a SharedLimiter');
      equal(shared.limitNow('a'), null, 'the store has to be asked');
      const { success, remaining, reset } = await shared.limit('a');
      equal([success, remaining, Math.abs(reset - Date.now() - 1.05 * MINUTE) < 10_000], [true, 0, true], 'the first request');
      equal((await shared.limit('a')).success, false, 'there is one permit');
      const { asks, granted, lost } = shared.stats();
      equal([asks > 0, granted, lost], [true, 1, 0], 'what it has done');
      await shared.close();
    },
    'names a wrong argument': ({ SharedLimiter }) => {
      let thrown;
      try {
        new SharedLimiter({ id: 'a', limit: 1, windowMs: 1000, store: {} });
      } catch (error) {
        thrown = error;
      }
      equal([thrown?.code, thrown?.name], ['ERR_LEAPGATE_OPTIONS', 'TypeError'], 'an object that is no store');
    },
  },
  'leapgate/shared/memory': {
    'is a store: limiters share its count': async ({ MemoryStore }, _, { 'leapgate/shared': shared }) => {
      if (shared === undefined) return;
      const store = new MemoryStore();
      const [one, other] = [1, 2].map(() => new shared.SharedLimiter({ id: 'a', limit: 3, windowMs: MINUTE, store }));
      equal(await passing(one, 2), 2, 'two requests');
      await one.close();
      equal(await passing(other, 3), 1, 'three more');
      await other.close();
    },
  },
  'leapgate/shared/redis': {
    'calls a script with a key': async ({ redis }) => {
      const seen = [];
      const store = redis(async (script, keys, args) => (seen.push(typeof script, keys, args), '1-1-1-0-0-1'));
      equal([await store.lease('a', '1-2'), seen], ['1-1-1-0-0-1', ['string', ['leapgate:a'], ['1-2']]], 'a call');
    },
  },
  'leapgate/shared/durable-object': {
    'an object answers, and stores what it knows': async ({ LeaseStore, durableObject }) => {
      const stored = new Map();
      const storage = {
        get: async (name) => stored.get(name),
        put: async (name, value) => stored.set(name, value),
        getAlarm: async () => null,
        setAlarm: async (at) => stored.set('alarm', at),
      };
      const object = new LeaseStore({ storage });
      const namespace = { idFromName: (name) => name, get: () => ({ fetch: (url, init) => object.fetch(new Request(url, init)) }) };
      const [version, , , granted] = (await durableObject(namespace).lease('a', '1-3-7-0-5-60000-20-3000-2-1')).split('-');
      equal([version, granted], ['1', '2'], 'two permits');
      equal([...stored.keys()], ['leases', 'alarm'], 'what is stored');
    },
  },
  'leapgate/shared/cluster': {
    'a parent serves a store': async ({ serve }) => {
      let hear;
      const replied = new Promise((resolve) => {
        serve({ fork() {}, on: (_, listener) => (hear = listener) }, { lease: (key, text) => `${key} ${text}` });
        hear({ send: resolve }, { 'leapgate:lease': [5, 1, 'a', 'b'] });
      });
      equal(await replied, { 'leapgate:lease': [5, 1, 'a b'] }, 'the reply');
    },
  },
  'leapgate/http': {
    'writes the limit into headers': ({ rateLimitHeaders, ipKey }, _, { leapgate: { Limiter } }) => {
      const limiter = new Limiter({ limit: 3, windowMs: 1000, now: () => 5000 });
      const headers = rateLimitHeaders(limiter.limit(ipKey('2001:db8::1')));
      equal(headers, { 'RateLimit-Policy': '"1s";q=3;w=1', RateLimit: '"1s";r=2;t=2' }, 'headers');
      equal(limiter.limit(ipKey('2001:db8::2')).remaining, 1, 'a neighbour');
    },
  },
  'leapgate/fetch': {
    'passes exactly the limit on to the handler': async ({ leapgate }) => {
      const limited = leapgate({ limit: 3, windowMs: MINUTE, now: () => 0, key: (request) => request.headers.get('client') });
      let reached = 0;
      const fetch = limited(() => new Response(`hello ${++reached}`));
      const answers = [];
      for (const client of ['a', 'a', 'a', 'a', 'b']) {
        const response = await fetch(request(client));
        answers.push([response.status, response.headers.get('retry-after'), await response.text()]);
      }
      const passed = [1, 2, 3].map((n) => [200, null, `hello ${n}`]);
      equal(answers, [...passed, [429, '63', 'too many requests'], [200, null, 'hello 4']], 'answers');
    },
    'with an engine, a call is in flight until its body has been read': async ({ leapgate }, _, { 'leapgate/engine': { Engine } }) => {
      const engine = new Engine({ flowRules: [{ resource: 'all', count: 1, grade: 'concurrency' }] });
      const limited = leapgate({ engine, resource: () => 'all' })(() => new Response('hello'));
      const first = await limited(request('a'));
      equal((await limited(request('a'))).status, 429, 'while it is in');
      equal(await first.text(), 'hello', 'its body');
      equal((await limited(request('a'))).status, 200, 'when it has been read');
    },
  },
  'leapgate/client': {
    'keeps to its limit, and to what an upstream says': async ({ limitedFetch }) => {
      const sent = [];
      const answers = [['X-RateLimit-Remaining', '1'], ['Retry-After', '0.05'], ['X-RateLimit-Remaining', '0']];
      const upstream = async (url) => {
        sent.push(new URL(url).pathname);
        const [name, value] = answers[sent.length - 1];
        return new Response('hello', { status: sent.length === 2 ? 429 : 200, headers: { [name]: value, 'X-RateLimit-Reset': '60' } });
      };
      const limited = limitedFetch(upstream, { limit: 3, windowMs: MINUTE, maxWaitMs: 5000 });
      const statuses = [(await limited('http://localhost/a')).status, (await limited('http://localhost/b')).status];
      equal([statuses, sent], [[200, 200], ['/a', '/b', '/b']], 'statuses, and what was sent');
      let refusal;
      await limited('http://localhost/c').catch((error) => (refusal = error));
      equal([refusal?.code, refusal?.result.rule, sent.length], ['ERR_LEAPGATE_BLOCKED', 'upstream', 3], 'while nothing is left');
    },
  },
  'leapgate/metrics': {
    'tells Prometheus what an engine has decided': async ({ prometheusText, publish }, _, { 'leapgate/engine': { Engine } = {} }) => {
      if (Engine === undefined) return;
      const engine = new Engine({ flowRules: [{ resource: 'api', count: 1, intervalMs: MINUTE }] }, { now: () => 1000 });
      for (let i = 0; i < 2; i++) engine.limit('api');
      const lines = prometheusText(engine).split('\n').filter((line) => /^leapgate_(passed|blocked|utilization_percent)\{/.test(line));
      const labels = '{rule="api/60s",resource="api"}';
      equal(lines.sort(), ['blocked', 'passed', 'utilization_percent'].map((name, i) => `leapgate_${name}${labels} ${[1, 1, 100][i]}`), 'series');
      const told = [];
      const channel = (name) => ({ hasSubscribers: true, publish: ({ resource }) => told.push(`${name} ${resource}`) });
      const end = publish(engine, { channel });
      engine.limit('api');
      end();
      engine.limit('api');
      equal(told, ['leapgate:refused api'], 'what channels are told');
    },
  },
  'leapgate/hono': adapter,
  'leapgate/express': adapter,
  'leapgate/fastify': adapter,
  'leapgate/store': {
    'counts, and charges nothing for a refused request': async ({ leapgate }) => {
      const store = leapgate();
      store.init({ windowMs: MINUTE, limit: 2 });
      const hits = [];
      for (let i = 0; i < 3; i++) hits.push((await store.increment('a')).totalHits);
      equal(hits, [1, 2, 3], 'hits');
    },
  },
  'leapgate/nestjs': {
    'counts, and blocks a refused key': async ({ leapgate }) => {
      const storage = leapgate({ now: () => 0 });
      const hits = [];
      for (let i = 0; i < 3; i++) hits.push(await storage.increment('a', MINUTE, 2, MINUTE, 'default'));
      equal(hits.map(({ totalHits }) => totalHits), [1, 2, 3], 'hits');
      equal([hits[2].isBlocked, hits[2].timeToBlockExpire], [true, 63], 'the refusal');
    },
  },
};

/** The objects made at module scope, before there is a request. */
export function make({
  leapgate: { Limiter },
  'leapgate/engine': { Engine } = {},
  'leapgate/flow': { Engine: FlowEngine } = {},
  'leapgate/shared': { SharedLimiter } = {},
}) {
  const rules = { flowRules: [{ resource: 'api', key: ['clientIp'], count: 2, intervalMs: MINUTE }] };
  const answer = granting(1);
  const store = { lease: async (key, request) => answer(key, request) };
  return {
    limiter: new Limiter({ limit: 2, windowMs: MINUTE }),
    engine: Engine && new Engine(rules),
    flow: FlowEngine && new FlowEngine({ flowRules: [{ resource: 'api', count: 2, intervalMs: MINUTE }] }),
    shared: SharedLimiter && new SharedLimiter({ id: 'api', limit: 2, windowMs: MINUTE, store }),
  };
}

/** The claims about these subpaths. A subpath without a claim is not tested. */
export function claimsOf(subpaths) {
  return subpaths.flatMap((subpath) => {
    const names = Object.keys(CLAIMS[subpath] ?? {});
    if (names.length === 0) throw new Error(`${subpath}: there is no claim about it; add one to claims.mjs`);
    return names.map((name) => `${subpath}: ${name}`);
  });
}

/** Checks the claims, and returns the claims that hold: all of them, since the first that does not is thrown. */
export async function check(modules, made) {
  const held = [];
  for (const [subpath, module] of Object.entries(modules)) {
    for (const [name, claim] of Object.entries(CLAIMS[subpath])) {
      await claim(module, made, modules);
      held.push(`${subpath}: ${name}`);
    }
  }
  return held;
}
