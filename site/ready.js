// Ready rules, each with the traffic that shows what they do.

const written = (document) => JSON.stringify(document, null, 2);
const flow = (rule) => written({ flowRules: [{ resource: 'api', ...rule }] });
const TRAFFIC = { rate: 30, shape: 'random', clients: 8, wait: 0, latency: 50, fail: 0, failures: 'always' };

export const READY = {
  limit: {
    title: 'A limit',
    headline: 'At most 20 requests in any second',
    sentence: 'What is over the limit is refused at once.',
    document: flow({ count: 20, intervalMs: 1000 }),
    traffic: { ...TRAFFIC, shape: 'ramp', rate: 25 },
  },
  client: {
    title: 'For each client',
    headline: 'At most 5 requests of each client in any second',
    sentence: 'The clients that send too many are refused; the others do not notice.',
    document: flow({ count: 5, intervalMs: 1000, key: ['clientIp'] }),
    traffic: { ...TRAFFIC, rate: 40 },
  },
  throttle: {
    title: 'Throttle',
    headline: 'Ten a second, one by one',
    sentence: 'Bursts come in, and an even flow goes on to the service: requests wait for their turn.',
    document: flow({ count: 10, controlBehavior: 'throttle', maxQueueingTimeMs: 5000 }),
    traffic: { ...TRAFFIC, rate: 9, shape: 'bursts', wait: 10_000 },
  },
  warmUp: {
    title: 'Warm-up',
    headline: 'A cold service gets a third at first',
    sentence: 'Under load the limit climbs to its full height within the warm-up period; without load it cools down.',
    document: flow({ count: 60, controlBehavior: 'warmUp', warmUpPeriodSec: 20 }),
    traffic: { ...TRAFFIC, rate: 80, shape: 'steady' },
  },
  breaker: {
    title: 'Circuit breaker',
    headline: 'A service that fails is left alone',
    sentence: 'When half of the calls fail, the breaker opens for 3 seconds. Then one probe decides.',
    document: written({
      degradeRules: [{ resource: 'api', id: 'errors', grade: 'errorRatio', count: 0.5, statIntervalMs: 2000, minRequestAmount: 10, timeWindow: 3 }],
    }),
    traffic: { ...TRAFFIC, rate: 20, fail: 90, failures: 'outages' },
  },
  concurrency: {
    title: 'Calls in flight',
    headline: 'At most 5 calls at a time',
    sentence: 'A slow service is not given more than it can do. Requests wait in line until a call ends.',
    document: flow({ grade: 'concurrency', count: 5 }),
    traffic: { ...TRAFFIC, rate: 18, shape: 'bursts', wait: 2000, latency: 200 },
  },
};
