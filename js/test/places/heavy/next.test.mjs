// Next.js, as deployed: a route in Node, a route in the edge runtime, and a page in the browser.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import test from 'node:test';
import { MODULES, assertHeld, bin, modulesIn, project, run, start, toolsOf, until } from '../place.mjs';
import { assertHeldAt } from './browser.mjs';

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
});
