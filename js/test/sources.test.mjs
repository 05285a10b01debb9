// Properties of the package's sources, rather than of its behaviour.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';

// run.mjs puts them there.
const folder = new URL('sources/', import.meta.url).pathname;
const files = (name) =>
  readdirSync(join(folder, name), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => join(parentPath, name).slice(folder.length))
    .sort();
const text = (file) => readFileSync(join(folder, file), 'utf8');

// The files that each file uses by `import` or `export … from`.
function importsOf(file) {
  const paths = text(file).matchAll(/^(?:import|export)\b[^;]*? from '(\.[^']*)'/gm);
  return Array.from(paths, ([, path]) => normalize(join(dirname(file), path)));
}

// The files that each file uses by `crate::`: the longest path that is a file. `lib.rs` only puts them together.
function usesOf(file, all) {
  const code = text(file).replace(/\/\/.*/g, '').replace(/crate::\{([^}]*)\}/g, (_, names) => names.replace(/\b(?=\w)/g, 'crate::'));
  return Array.from(code.matchAll(/\bcrate::(\w+)(?:::(\w+))?(?:::(\w+))?/g), ([, ...names]) => {
    for (let depth = names.length; depth > 0; depth--) {
      const used = `src/${names.slice(0, depth).join('/')}.rs`;
      if (all.includes(used)) return used;
    }
    assert.fail(`${file}: \`${names[0]}\` is not a file`);
  });
}

// A circle of imports, or undefined.
function circle(all, usesOf) {
  const isDone = new Set();
  const visit = (file, way) => {
    if (way.includes(file)) return [...way.slice(way.indexOf(file)), file];
    if (isDone.has(file) || !all.includes(file)) return undefined;
    for (const used of usesOf(file, all)) {
      const found = used === file ? undefined : visit(used, [...way, file]);
      if (found !== undefined) return found;
    }
    isDone.add(file);
    return undefined;
  };
  for (const file of all) {
    const found = visit(file, []);
    if (found !== undefined) return found.join(' → ');
  }
  return undefined;
}

test('no_circle_of_files_is_in_the_shell', () => {
  const all = files('src').filter((file) => file !== 'src/lib.rs');
  assert.ok(all.flatMap((file) => usesOf(file, all)).length > 8);
  assert.equal(circle(all, usesOf), undefined);
});

test('no_file_of_the_shell_has_more_than_600_lines', () => {
  const long = files('src').filter((file) => text(file).split('\n').length > 601);
  assert.deepEqual(long, []);
});

test('no_circle_of_files_is_in_the_library', () => {
  const all = files('lib');
  assert.ok(all.flatMap((file) => importsOf(file)).length > 8);
  assert.equal(circle(all, importsOf), undefined);
});

// The contents of a layout, by name: numbers, and lists of names.
function layoutOf(code, number, list) {
  const lists = Array.from(code.matchAll(list), ([, name, items]) => [name, Array.from(items.matchAll(/\w+/g), ([item]) => item)]);
  return { numbers: Array.from(code.matchAll(number), ([, name, value]) => [name, Number(value)]), lists };
}

test('memory_is_laid_out_alike_on_both_sides', () => {
  const shell = layoutOf(text('src/layout.rs'), /const (\w+): \w+ = (-?[\d.]+);/g, /const (\w+): \[&str; \d+\] = \[([^\]]*)\];/g);
  const library = layoutOf(text('lib/layout.js'), /^export const (\w+) = (-?\d+);/gm, /^export const (\w+) = \[([^\]]*)\];/gm);
  // A list on one side that is numbers on the other.
  const isShared = ([name]) => shell.lists.some(([other]) => other === name);
  const numbered = library.lists.filter((list) => !isShared(list)).flatMap(([list, names]) =>
    names.map((name, i) => [`${list}_${name.replace(/[A-Z]/g, '_$&').toUpperCase()}`, i]),
  );
  assert.deepEqual(Object.fromEntries([...library.numbers, ...numbered]), Object.fromEntries(shell.numbers));
  assert.deepEqual(Object.fromEntries(library.lists.filter(isShared)), Object.fromEntries(shell.lists));
  assert.ok(shell.numbers.length > 60 && shell.lists.length > 4);
});
