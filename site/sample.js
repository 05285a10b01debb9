// A small log to try: ten minutes of a shop, as Istio writes it, with a burst of guesses at its login by a tool and a crawler that does not
// pause. The same in each run.

const BEGINNING = Date.UTC(2026, 10, 2, 9, 0);
const MINUTES = 10;

const BROWSERS = [
  'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36',
  'Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Mobile/15E148 Safari/604.1',
  'Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0',
];

export const SAMPLE_RULES = {
  flowRules: [
    { id: 'login-per-client', resource: 'login', key: ['clientIp'], count: 5, intervalMs: 60_000 },
    { id: 'search-per-client', resource: 'search', key: ['clientIp'], count: 20, intervalMs: 10_000 },
    { id: 'all-of-shop', resource: 'shop', count: 30, intervalMs: 1000 },
  ],
};

// Park and Miller's generator: numbers in [0, 1).
function randomFrom(seed) {
  let state = seed;
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
}

export function sampleLog() {
  const random = randomFrom(15);
  const pick = (list) => list[Math.floor(random() * list.length)];
  const requests = [];
  const add = (at, client, agent, route, path, status = 200) => {
    requests.push({ at: Math.floor(at), client, agent, route, path, status, duration: 2 + Math.floor(random() * 90) });
  };
  const end = MINUTES * 60_000;
  // Visitors: a login now and then, a few searches, and pages of the shop.
  for (let visitor = 0; visitor < 320; visitor++) {
    const client = `203.0.${113 + Math.floor(visitor / 250)}.${1 + (visitor % 250)}`;
    const agent = pick(BROWSERS);
    let at = random() * end;
    if (random() < 0.5) add(at, client, agent, 'login', '/login', random() < 0.1 ? 401 : 200);
    for (let page = Math.floor(random() * 30); page > 0 && at < end; page--) {
      at += 400 + random() * 9000;
      if (random() < 0.25) add(at, client, agent, 'search', '/search?q=lamp');
      else add(at, client, agent, 'shop', `/items/${Math.floor(random() * 500)}`);
    }
  }
  // Somebody has forgotten a password.
  for (let i = 0; i < 8; i++) add(95_000 + i * 4200, '203.0.113.77', BROWSERS[0], 'login', '/login', 401);
  // Guesses from a few addresses.
  for (let at = 180_000; at < 330_000; at += 140 + random() * 260) {
    add(at, `198.51.100.${20 + Math.floor(random() * 4)}`, 'python-requests/2.32.5', 'login', '/login', 401);
  }
  // A crawler that does not pause.
  for (let at = 390_000; at < 480_000; at += 90 + random() * 120) {
    add(at, '192.0.2.200', 'ExampleBot/2.1 (+https://bot.example/)', 'search', `/search?q=${Math.floor(random() * 900)}`);
  }
  requests.sort((one, other) => one.at - other.at);
  const lines = requests.map(({ at, client, agent, route, path, status, duration }) =>
    JSON.stringify({
      start_time: new Date(BEGINNING + at).toISOString(),
      route_name: route,
      method: route === 'login' ? 'POST' : 'GET',
      path,
      protocol: 'HTTP/1.1',
      response_code: status,
      duration,
      downstream_remote_address: `${client}:50000`,
      x_forwarded_for: client,
      user_agent: agent,
      authority: 'shop.example',
    }),
  );
  // What a disk that was full has left of a line.
  lines.splice(1200, 0, lines[1200].slice(0, 90));
  return `${lines.join('\n')}\n`;
}
