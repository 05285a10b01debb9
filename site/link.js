// The state of the page in its address: `#ring?limit=20&window=6000`. Whatever is in there, the page opens.

// A part of a state: how it is read from a link; undefined for what cannot be read.
export const whole = (from, to) => (text) => (/^\d{1,9}$/.test(text) && text >= from && text <= to ? Number(text) : undefined);
export const oneOf = (values) => (text) => values.find((value) => String(value) === text);
export const textUpTo = (length) => (text) => (text.length <= length ? text : undefined);

// The figure that a link names, and its state: texts by name.
export function readLink(hash) {
  const [figure, query = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  return { figure, state: Object.fromEntries(new URLSearchParams(query)) };
}

// What a state has in place of defaults, as a link.
export function writeLink(figure, state) {
  const query = new URLSearchParams(Object.entries(state).map(([name, value]) => [name, String(value)]));
  return query.size > 0 ? `#${figure}?${query}` : `#${figure}`;
}

// The values of the named fields, `{ name: [read, default] }`, and the names of those in the state that could not be read.
export function readFields(state, fields) {
  const wrong = [];
  const values = {};
  for (const [name, [read, otherwise]] of Object.entries(fields)) {
    const value = Object.hasOwn(state, name) ? read(state[name]) : otherwise;
    if (value === undefined) wrong.push(name);
    values[name] = value ?? otherwise;
  }
  wrong.push(...Object.keys(state).filter((name) => !Object.hasOwn(fields, name)));
  return { values, wrong };
}

// Those values that differ from the defaults, for a link.
export const changed = (values, fields) =>
  Object.fromEntries(Object.entries(fields).filter(([name, [, otherwise]]) => values[name] !== otherwise).map(([name]) => [name, values[name]]));

// One sentence about what a link has that the page cannot read.
export function sentenceOf(wrong) {
  const names = wrong.slice(0, 3).map((name) => (name.length > 20 ? `${name.slice(0, 20)}…` : name));
  return `This link is not as the page writes it, at ${names.map((name) => `“${name}”`).join(', ')}: the defaults are used there.`;
}
