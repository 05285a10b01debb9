import { Engine, type EngineResult, type Entry, type LeapgateErrorCode, type RulesDocument } from 'leapgate/engine';

const rules = {
  flowRules: [
    { resource: 'login', count: 5, intervalMs: 60_000, sampleCount: 60, window: 'strict', id: 'login-burst', mode: 'shadow' },
    { resource: 'report', count: 2, grade: 'concurrency', limitApp: 'other' },
    { resource: 'mail', count: 10.5, controlBehavior: 'throttle', maxQueueingTimeMs: 0 },
    { resource: '*', count: 1, controlBehavior: 3, warmUpPeriodSec: 10, coldFactor: 3, strategy: 1, refResource: 'pay' },
    {
      resource: 'api',
      count: 5,
      key: ['clientIp', { clientIp: { v4: 24 } }, { header: 'x-api-key' }, { query: 'q' }, { cookie: 'sid' }, { arg: -1 }, 'host'],
      keyItems: [{ value: ['10.0.0.1', null], count: 1000 }],
      maxKeys: 10,
      burst: 2,
      compat: 'sentinel',
      clusterMode: false,
    },
    { resource: 'fleet', count: 5, clusterMode: true, clusterConfig: { thresholdType: 1, flowId: 7, fallbackToLocalWhenFail: false, strategy: 0 } },
    { resource: 'peers', count: 1, key: ['peer', { jwtClaim: 'sub' }, { jwtClaim: ['org', 'id'], payload: 'pl', type: 'number' }] },
    { resource: 'plans', count: 1, key: [{ metadata: ['plans', 'tier'], type: 'string' }, { typedMetadata: ['ai', 'n'], type: 'number' }] },
    { resource: 'owners', count: 1, key: [{ routeMetadata: ['envoy-gateway', 'resources', '0', 'name'] }, { filterState: 'my.key' }] },
    { resource: 'chat', count: { metadata: ['plans', 'rpm'], default: 20, atMost: 100 }, key: [{ jwtClaim: 'sub' }], enforcePercent: 12.5 },
    { resource: 'chat', count: { jwtClaim: 'rpm', payload: 'pl', type: 'string', default: 20 }, key: [{ jwtClaim: 'sub' }] },
    { resource: 'probed', count: 5, exempt: [{ clientIp: '10.0.0.0/8' }, { header: 'x-probe', value: '1' }, { header: 'x-in' }, { origin: 'batch' }] },
    { resource: 'chat', count: 20_000, unit: 'tokens', cost: { estimate: { header: 'x-max-tokens', default: 2000, atMost: '50%' } } },
    { resource: 'chat', count: 9, cost: { estimate: 5, actual: { typedMetadata: ['envoy.ai.token_usage', 'total_tokens'] }, missing: 0 } },
    { resource: 'chat', count: 9, cost: { estimate: { jwtClaim: 'sub', type: 'number', atMost: 5 } } },
    { resource: 'login', count: 5, key: ['clientIp'], cost: { actual: { status: ['401', 403] }, estimate: { default: 1 } } },
  ],
  paramFlowRules: [
    { resource: 'a', paramIdx: 0, count: 1, grade: 0, paramFlowItemList: [{ object: 'gold', count: 2, classType: 'String' }] },
  ],
  apiDefinitions: [{ apiName: 'login', predicateItems: [{ pattern: '/a/**', matchStrategy: 1, headers: { 'x-app': true } }] }],
  gatewayFlowRules: [
    { resource: 'a', count: 1, paramItem: { parseStrategy: 2, fieldName: 'X-Tier', pattern: 'g.*', matchStrategy: 'regex' } },
  ],
  degradeRules: [{ resource: 'pay', count: 200, slowRatioThreshold: 0.5, timeWindow: 10, comparison: 'atLeast', probes: 2 }],
  systemRules: [{ qps: 5000, maxThread: -1, bbr: true }],
  authorityRules: [{ resource: 'admin', limitApp: 'ops,ci', strategy: 'white', regex: false }],
  banRules: [{ resource: 'login', key: ['clientIp', { header: 'x-api-key' }], maxKeys: 10, count: 3, intervalMs: 60_000, banSec: 600, id: 'bans' }],
  mode: 'enforce',
  envoy: {},
} as const satisfies RulesDocument;

const engine = new Engine(rules, { now: () => 5 });
new Engine({});
const engineOfNothing: Engine = new Engine(JSON.parse('{}'));
const result: EngineResult = engine.limit('login', { key: 'a', cost: 2, origin: 'app', prioritized: true, context: 'web', inbound: true, exempt: false });
const rule: string | null = result.rule;
const window: number | null | undefined = result.policies[0]?.windowMs;
const warning: string | undefined = engine.warnings[0];
engine.limit('login', { key: [1, 2n, null] });
engine.limit('web', { apis: ['login', 'shop'] as const });
engine.acquire('web', { apis: ['login'], maxWaitMs: 5 }).then((call) => call.cause === 'api');
engine.policies('web', { apis: [] });
// @ts-expect-error not an array
engine.enter('web', { apis: 'login' });
engine.limit('login', { key: { clientIp: '10.0.0.1', 'header:x-api-key': ['a', 'b'], 'arg:0': null, 'jwtClaim:org/id@pl': 7 } });
engine.policies('login', { key: 7 })[0]?.remaining.toFixed();
{
  using entry = engine.enter('pay', { canWait: true });
  const inner: Entry = engine.enter('stock', { within: entry, key: null });
  inner.exit({ error: new Error('broken'), refund: false });
  if (inner.waitMs > 0) inner.cancel();
  entry.exit();
}
const costs = engine.enter('chat', { cost: { tokens: 900, requests: 2 } });
const usage: { totalTokens: number | undefined } = { totalTokens: 412 };
costs.exit({ cost: { tokens: usage.totalTokens }, error: new Error('broken') });
const unit: string | undefined = costs.policies[0]?.unit;
const debt: number | null | undefined = engine.counters()[0]?.debt;
engine.enter('login').exit({ cost: 0 });
void [unit, debt];
engine.replace({ flowRules: [] });
const code: LeapgateErrorCode = 'ERR_LEAPGATE_OPEN';
if (result.cause === 'degrade') engineOfNothing.free();
void [rule, window, code];

// @ts-expect-error no rules
new Engine();
// @ts-expect-error a list that is not there
new Engine({ rules: [] });
// @ts-expect-error no count
new Engine({ flowRules: [{ resource: 'a' }] });
// @ts-expect-error a field that is not there
new Engine({ flowRules: [{ resource: 'a', count: 1, interval: 1000 }] });
// @ts-expect-error another window
new Engine({ flowRules: [{ resource: 'a', count: 1, window: 'fixed' }] });
new Engine({ flowRules: [{ resource: 'a', count: 1, intervalMs: undefined }] });
// @ts-expect-error a ban needs a key
new Engine({ banRules: [{ resource: 'a', count: 1, banSec: 1 }] });
// @ts-expect-error no part of a request
new Engine({ flowRules: [{ resource: 'a', count: 1, key: ['ip'] }] });
// @ts-expect-error two parts in one
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ header: 'a', query: 'b' }] }] });
// @ts-expect-error a part that is not there
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ headers: 'a' }] }] });
// @ts-expect-error a path that is not an array
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ metadata: 'plans/tier' }] }] });
// @ts-expect-error a header is text
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ header: 'a', type: 'number' }] }] });
// @ts-expect-error only a claim has a payload
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ metadata: ['a', 'b'], payload: 'pl' }] }] });
// @ts-expect-error another type
new Engine({ flowRules: [{ resource: 'a', count: 1, key: [{ jwtClaim: 'sub', type: 'boolean' }] }] });
// @ts-expect-error clients choose their headers
new Engine({ flowRules: [{ resource: 'a', count: { header: 'x-plan', default: 1 }, key: ['clientIp'] }] });
// @ts-expect-error a count without a default
new Engine({ flowRules: [{ resource: 'a', count: { metadata: ['a', 'b'] }, key: ['clientIp'] }] });
// @ts-expect-error no exemption
new Engine({ flowRules: [{ resource: 'a', count: 1, exempt: [{ path: '/' }] }] });
// @ts-expect-error a pattern
new Engine({ flowRules: [{ resource: 'a', count: 1, regex: true }] });
// @ts-expect-error no warm-up for values
new Engine({ paramFlowRules: [{ resource: 'a', count: 1, paramIdx: 0, controlBehavior: 'warmUp' }] });
// @ts-expect-error a field of another list
new Engine({ gatewayFlowRules: [{ resource: 'a', count: 1, durationInSec: 1 }] });
// @ts-expect-error no time
new Engine({ degradeRules: [{ resource: 'a', count: 1 }] });
// @ts-expect-error another grade
new Engine({ degradeRules: [{ resource: 'a', count: 1, timeWindow: 1, grade: 'qps' }] });
// @ts-expect-error a threshold that is not there
new Engine({ systemRules: [{ maxRt: 1 }] });
// @ts-expect-error an authority rule without origins
new Engine({ authorityRules: [{ resource: 'a' }] });
// @ts-expect-error another mode
new Engine({ mode: 'off' });
// @ts-expect-error a setting that is not there
new Engine({}, { clock: () => 5 });
// @ts-expect-error no time
new Engine({}, { now: () => '5' });
// @ts-expect-error no resource
engine.limit();
// @ts-expect-error an option that is not there
engine.limit('a', { keys: 'a' });
// @ts-expect-error `limit` cannot wait
engine.limit('a', { canWait: true });
// @ts-expect-error not undefined
engine.enter('a', { key: undefined });
// @ts-expect-error nor in a record
engine.enter('a', { key: { clientIp: undefined } });
// @ts-expect-error no value
engine.enter('a', { key: [true] });
// @ts-expect-error no entry
engine.enter('a', { within: result });
// @ts-expect-error a cost is a number
engine.enter('a', { cost: { tokens: '5' } });
// @ts-expect-error no text
engine.enter('a').exit({ cost: '5' });
// @ts-expect-error two sources
new Engine({ flowRules: [{ resource: 'a', count: 1, cost: { actual: { header: 'a', trailer: 'b' } } }] });
// @ts-expect-error no share
new Engine({ flowRules: [{ resource: 'a', count: 1, cost: { estimate: { default: 1, atMost: 'half' } } }] });
// @ts-expect-error an outcome that is not there
engine.enter('a').exit({ failed: true });
