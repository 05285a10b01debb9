// A limiter, an engine and an entry in a console. Runtimes differ in quotes and line breaks.
import assert from 'node:assert/strict';

export const SHOWN = `
import { Limiter } from 'leapgate';
import { Engine } from 'leapgate/engine';
console.log(new Limiter({ limit: 5, windowMs: 1000 }));
const engine = new Engine({ flowRules: [{ resource: 'a', count: 1 }] });
console.log(engine);
console.log(engine.enter('b'));
`;

export function assertShown(printed) {
  const shown = printed.replaceAll('"', "'").replace(/\s+/g, ' ').replaceAll(',]', ' ]');
  const limits = "{ limits: [ { id: '1s', limit: 5, windowMs: 1000 } ], maxKeys: 100000 }";
  assert.ok(shown.startsWith(`Limiter ${limits} Engine { flowRules: [ 'a' ] } Entry { waitMs: 0, success: true, `), printed);
  assert.ok(!shown.includes('[Function'), printed);
}
