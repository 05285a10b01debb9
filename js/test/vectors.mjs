// Recordings of Sentinel, described in tests/oracle/README.md.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';

const folder = new URL('vectors/', import.meta.url);

// The files of a component in the folder and its subfolders, with their lines: one for each trace.
export function recorded(component) {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter(({ name }) => name.startsWith(component) && name.endsWith('.jsonl'));
  const paths = files.map(({ parentPath, name }) => `${parentPath}/${name}`).sort();
  assert.ok(paths.length > 0, `no trace of ${component}`);
  return paths.map((file) => ({ file, lines: readFileSync(file, 'utf8').trim().split('\n') }));
}
