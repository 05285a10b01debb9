// A rules document as text: where its values are, so that an error can be shown in its place.

const SPACE = /[ \t\n\r]*/y;
const TEXT = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const PLAIN = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;

// The deepest that is read: documents are flat.
const MAX_DEPTH = 100;

// The line of a place in a text, from 1.
export const lineOf = (text, at) => text.slice(0, at).split('\n').length;

// Reads JSON. Returns its `value`, and `places`: from and to by path, as `flowRules[0].count`, of keys with their values. Throws one
// sentence, with `from` and `to`.
export function readDocument(text) {
  const places = new Map();
  let at = 0;
  const fail = (cure) => {
    const found = at < text.length ? `\`${[...text.slice(at, at + 8)][0]}\`` : 'the end of the text';
    const error = new Error(`line ${lineOf(text, at)}: ${found} cannot be here; ${cure}`);
    throw Object.assign(error, { from: Math.min(at, Math.max(0, text.length - 1)), to: Math.min(at + 1, text.length) });
  };
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text)?.[0];
    if (found !== undefined) at += found.length;
    return found;
  };
  const skip = () => take(SPACE);
  const sign = (one) => text[at] === one && (at += 1) > 0;

  // The items of an array or an object, between its brackets.
  const items = (close, read) => {
    skip();
    if (sign(close)) return;
    do {
      skip();
      read();
      skip();
    } while (sign(','));
    if (!sign(close)) fail(`use \`,\` or \`${close}\``);
  };

  const value = (path, depth) => {
    if (depth > MAX_DEPTH) fail(`nest at most ${MAX_DEPTH} deep`);
    skip();
    if (sign('{')) {
      const made = {};
      items('}', () => {
        const from = at;
        const name = take(TEXT);
        if (name === undefined) fail('use a key in double quotes');
        const key = JSON.parse(name);
        skip();
        if (!sign(':')) fail('use `:` behind a key');
        const inner = path === '' ? key : `${path}.${key}`;
        const read = value(inner, depth + 1);
        Object.defineProperty(made, key, { value: read, enumerable: true, configurable: true, writable: true });
        places.set(inner, [from, at]);
      });
      return made;
    }
    if (sign('[')) {
      const made = [];
      items(']', () => {
        const inner = `${path}[${made.length}]`;
        const from = at;
        made.push(value(inner, depth + 1));
        places.set(inner, [from, at]);
      });
      return made;
    }
    const read = take(TEXT) ?? take(PLAIN);
    return read === undefined || read === '' ? fail('use a value: an object, an array, a text in double quotes, a number, true, false or null') : JSON.parse(read);
  };

  const read = value('', 0);
  skip();
  if (at < text.length) fail('use nothing behind the document');
  return { value: read, places };
}

// Where the text has what a sentence of the engine is about: the path at its beginning, or the key in it that is not known.
export function placeOf(sentence, { places }) {
  const [path] = /^[^\s:]+(?=: )/.exec(sentence) ?? [];
  const [, unknown] = /^[^\s:]+: `([^`]*)` is not a known key/.exec(sentence) ?? [];
  const inner = path === 'document' ? unknown : `${path}.${unknown}`;
  return places.get(inner) ?? places.get(path);
}
