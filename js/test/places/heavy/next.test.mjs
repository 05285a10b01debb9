// Next.js, as deployed: a route in Node, a route in the edge runtime, a page in the browser, and the recipes for Next.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { MODULES, assertHeld, bin, modulesIn, project, run, start, toolsOf, until } from '../place.mjs';
import { recipe } from '../../recipes.mjs';
import { assertHeldAt } from './browser.mjs';

const document = readFileSync(new URL('../../../../docs/recipes.md', import.meta.url), 'utf8');

const routeOf = (runtime) => `
import { claims } from '../../app.mjs';
export const runtime = '${runtime}';
export const dynamic = 'force-dynamic';
export const GET = async () => Response.json(await claims());
`;

const FILES = {
  'next.config.mjs': `export default { turbopack: { root: ${JSON.stringify(toolsOf('heavy'))} } };\n`,
  'app/layout.js': 'export default ({ children }) => <html lang="en"><body>{children}</body></html>;\n',
  'app/page.js': `'use client';
import { useEffect } from 'react';
import { claims } from '../app.mjs';
export default function Page() {
  useEffect(() => void claims().then((held) => (document.title = JSON.stringify(held))), []);
  return <p>…</p>;
}
`,
  'app/nodejs/route.js': routeOf('nodejs'),
  'app/edge/route.js': routeOf('edge'),
  ...Object.fromEntries(['app/api/hello/route.js', 'proxy.js'].map((file) => [file, recipe(document, 'Next.js', file)])),
};

test('Next.js', async (t) => {
  const cwd = project(FILES, { within: 'heavy' });
  await run(bin('heavy', 'next'), ['build'], { cwd, seconds: 180 });
  // A deployed edge runtime compiles no inlined module.
  assert.deepEqual(modulesIn(join(cwd, '.next/server')), MODULES);
  const server = start(bin('heavy', 'next'), ['start', '--hostname', '127.0.0.1', '--port', '0'], { cwd });
  const [, url] = await until(server, /(http:\/\/127\.0\.0\.1:\d+)/);
  for (const runtime of ['nodejs', 'edge']) {
    await t.test(`Next.js: a route, ${runtime}`, async () => {
      const response = await fetch(`${url}/${runtime}`);
      assertHeld(await response.text());
    });
  }
  await t.test('Next.js: a page', () => assertHeldAt(url));
  await t.test('Next.js: the recipes admit their limits, of the route and of the proxy before it', async () => {
    const reached = { route: 0, proxy: 0 };
    const ask = async (path) => {
      const response = await fetch(`${url}/api/${path}`, { headers: { 'X-Forwarded-For': '192.0.2.1' } });
      assert.equal(response.headers.get('ratelimit-policy'), '"60s";q=1000;w=60');
      return [response.status, await response.text()];
    };
    for (let i = 0; i < 110; i++) reached.route += (await ask('hello'))[1] === 'hello';
    for (let i = 0; i < 900; i++) reached.proxy += (await ask('nothing'))[0] === 404;
    assert.deepEqual(reached, { route: 100, proxy: 890 });
    assert.deepEqual(await ask('nothing'), [429, 'too many requests']);
  });
});
