// The code of docs/recipes.md.

import assert from 'node:assert/strict';

/** The only block of a recipe, or the only one that begins with the name of this file. */
export function recipe(document, title, file) {
  const [, section] = document.split(`\n## ${title}\n`);
  const [text] = section.split('\n## ');
  const blocks = Array.from(text.matchAll(/```[jt]s\n(.*?)```/gs), ([, code]) => code);
  const found = file === undefined ? blocks : blocks.filter((code) => code.startsWith(`// ${file}\n`));
  assert.equal(found.length, 1, `docs/recipes.md has ${found.length} blocks of ${title} ${file ?? ''}`);
  return found[0];
}
