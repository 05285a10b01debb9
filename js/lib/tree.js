// Writes a value into bytes: js/src/tree.rs reads it and documents the format.

import * as layout from './layout.js';
import { fault, shown } from './errors.js';

const MAX_DEPTH = 60;

export function flatten(name, value) {
  const tree = { bytes: new Uint8Array(1024), used: 0 };
  put(tree, value, name, 0);
  return tree.bytes.slice(0, tree.used);
}

// Texts, each with its length before it.
export function flattenTexts(texts) {
  const tree = { bytes: new Uint8Array(256), used: 0 };
  for (const text of texts) putText(tree, text);
  return tree.bytes.subarray(0, tree.used);
}

// Lists of texts, each with the number of its texts before it.
export function flattenLists(lists) {
  const tree = { bytes: new Uint8Array(256), used: 0 };
  for (const texts of lists) {
    putLength(tree, texts.length);
    for (const text of texts) putText(tree, text);
  }
  return tree.bytes.subarray(0, tree.used);
}

// Records, one behind the other: numbers, and then texts, each with its length before it.
export function flattenRecords(records) {
  const tree = { bytes: new Uint8Array(1024), used: 0 };
  for (const { numbers, texts } of records) {
    for (const number of numbers) room(tree, 8).setFloat64(0, number, true);
    for (const text of texts) putText(tree, text);
  }
  return tree.bytes.slice(0, tree.used);
}

function room(tree, bytes) {
  const at = tree.used;
  tree.used += bytes;
  if (tree.used > tree.bytes.length) {
    const longer = new Uint8Array(2 * tree.used);
    longer.set(tree.bytes);
    tree.bytes = longer;
  }
  return new DataView(tree.bytes.buffer, at, bytes);
}

function putLength(tree, length) {
  room(tree, 4).setUint32(0, length, true);
}

const encoder = new TextEncoder();

function putText(tree, text) {
  const bytes = encoder.encode(text);
  putLength(tree, bytes.length);
  const at = room(tree, bytes.length).byteOffset;
  tree.bytes.set(bytes, at);
}

function put(tree, value, path, depth) {
  const tag = (tag) => room(tree, 1).setUint8(0, tag);
  if (value === null) return tag(layout.TAG_NULL);
  switch (typeof value) {
    case 'boolean':
      return tag(value ? layout.TAG_TRUE : layout.TAG_FALSE);
    case 'number':
      if (value === Infinity) throw wrongValue(path, value, 'means nothing here; use a number that is finite, or leave out what is not to be limited');
      tag(layout.TAG_NUMBER);
      return room(tree, 8).setFloat64(0, value, true);
    case 'string':
      tag(layout.TAG_TEXT);
      return putText(tree, value);
    case 'object': {
      if (depth === MAX_DEPTH) throw wrongValue(path, value, `is nested too deep; use at most ${MAX_DEPTH} levels`);
      if (Array.isArray(value)) {
        tag(layout.TAG_ARRAY);
        putLength(tree, value.length);
        // Not `forEach`, which would skip holes.
        for (let i = 0; i < value.length; i++) put(tree, value[i], `${path}[${i}]`, depth + 1);
        return;
      }
      // As in JSON, a property that is undefined is left out.
      const entries = Object.entries(value).filter(([, value]) => value !== undefined);
      tag(layout.TAG_OBJECT);
      putLength(tree, entries.length);
      for (const [key, value] of entries) {
        putText(tree, key);
        put(tree, value, `${path}.${key}`, depth + 1);
      }
      return;
    }
  }
  throw wrongValue(path, value, typeof value === 'bigint' ? 'is a bigint; use a number' : 'means nothing here; use a value that JSON has');
}

function wrongValue(path, value, why) {
  return fault('ERR_LEAPGATE_OPTIONS', `${path}: \`${shown(value)}\` ${why}`, TypeError);
}
