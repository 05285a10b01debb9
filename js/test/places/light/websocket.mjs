// WebSockets behind leapgate/fetch: one claim for all runtimes, each of which begins a WebSocket in its own way.

/** A module of the server: `handle(answer)` returns its handler; `answer` is limited, and upgrades requests to a WebSocket. */
export const SERVER = `
import { Engine } from 'leapgate/engine';
import { leapgate } from 'leapgate/fetch';
const engine = new Engine({ flowRules: [{ resource: 'all', count: 1, grade: 'concurrency' }] });
const path = (request) => new URL(request.url).pathname;
const limited = leapgate({ limit: 2, windowMs: 60_000, key: path, countIf: (request, response) => response.status !== 404 });
const entered = leapgate({ engine, resource: () => 'all' });
export function handle(answer) {
  const [byLimit, byEngine] = [limited(answer), entered(answer)];
  return (request, ...rest) => (path(request) === '/engine' ? byEngine : byLimit)(request, ...rest);
}
`;

/** The client: returns the answers of the server at `url`, which have to be `EXPECTED`. */
export async function answersOf(url) {
  const echo = (path) =>
    new Promise((resolve) => {
      const socket = new WebSocket(`${url.replace('http', 'ws')}${path}`);
      socket.onopen = () => socket.send('a');
      socket.onmessage = ({ data }) => (socket.close(), resolve(data));
      socket.onerror = () => resolve('refused');
    });
  const status = async (path) => {
    const response = await fetch(url + path);
    await response.text();
    return response.status;
  };
  return [
    [await echo('/a'), await echo('/a'), await echo('/a'), await status('/a')],
    [await status('/b'), await echo('/b'), await status('/b')],
    [await echo('/engine'), await echo('/engine'), await status('/engine')],
  ];
}

export const EXPECTED = [
  ['echo a', 'echo a', 'refused', 429],
  [200, 'echo a', 429],
  ['echo a', 'echo a', 200],
];
