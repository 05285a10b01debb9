// Several gates may limit one request: its headers tell the limits of all of them.

// By request: what its gates have decided so far. All adapters share it: each has this file in its own bundle.
const requests = (globalThis[Symbol.for('leapgate.told')] ??= new WeakMap());

// Adds what a gate has decided, in place of an earlier decision of that gate. Returns all of them, a list that later gates extend.
export function tell(request, gate, { success, rule, policies }) {
  const told = requests.get(request) ?? [];
  if (Object(request) === request) requests.set(request, told);
  const others = told.filter((other) => other.gate !== gate);
  // The names of policies in a header are distinct.
  const names = others.flatMap(({ policies }) => policies.map(({ id }) => id));
  const renamed = names.length === 0 ? policies : policies.map((policy) => ({ ...policy, id: distinct(policy.id, names) }));
  const refusing = policies.findIndex(({ id }) => id === rule);
  told.splice(0, told.length, ...others, { gate, success, rule: renamed[refusing]?.id ?? rule, policies: renamed });
  return told;
}

function distinct(id, names) {
  let name = id;
  for (let n = 2; names.includes(name); n++) name = `${id}-${n}`;
  names.push(name);
  return name;
}

// What the headers tell: the policies of all gates, and whether all have let the request pass.
export const allOf = (told) => ({
  success: told.every(({ success }) => success),
  policies: told.flatMap(({ policies }) => policies),
});
