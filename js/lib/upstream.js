// What a response says about the limits of its upstream: `Retry-After`, the IETF drafts of `RateLimit`, `X-RateLimit-*`, and the forms of
// OpenAI and Anthropic. Whatever is malformed says nothing.

// The longest field, and the longest name of a limit, that are read.
const MAX_FIELD = 2048;
const MAX_ID = 128;

// From here on a number of seconds is an instant in epoch seconds, and from here on one in epoch milliseconds.
const EPOCH = 1e9;
const EPOCH_MS = 1e11;

const NUMBER = /^\d+(\.\d+)?$/;
// As Go writes durations.
const DURATION = /^(?=\d)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$/;
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$/;
// The three forms of HTTP (RFC 9110, section 5.6.7): IMF-fixdate, RFC 850 with its year of two digits, and asctime.
const DATES = [
  /^[A-Z][a-z]{2}, (?<day>\d\d) (?<month>[A-Z][a-z]{2}) (?<year>\d{4}) (?<time>\d\d:\d\d:\d\d) GMT$/,
  /^[A-Z][a-z]{5,8}, (?<day>\d\d)-(?<month>[A-Z][a-z]{2})-(?<year>\d\d) (?<time>\d\d:\d\d:\d\d) GMT$/,
  /^[A-Z][a-z]{2} (?<month>[A-Z][a-z]{2}) (?<day>[ \d]\d) (?<time>\d\d:\d\d:\d\d) (?<year>\d{4})$/,
];

// Epoch milliseconds; NaN if the text is not a date of HTTP.
function dateOf(text) {
  const { day, month, year, time } = DATES.map((form) => form.exec(text)?.groups).find(Boolean) ?? {};
  return Date.parse(`${day} ${month} ${year?.length === 2 ? `20${year}` : year} ${time} GMT`);
}

// How many milliseconds a text says, from the instant that `sentAt` returns; at least 0. Undefined if it says nothing.
function msUntil(text, sentAt) {
  if (text === '') return undefined;
  const duration = DURATION.exec(text);
  let ms;
  if (NUMBER.test(text)) {
    const number = Number(text);
    if (number < EPOCH) ms = 1000 * number;
    else ms = (number < EPOCH_MS ? 1000 * number : number) - sentAt();
  } else if (duration !== null) {
    const [hours, minutes, seconds, millis] = duration.slice(1).map((part = 0) => Number(part));
    ms = ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis;
  } else ms = (INSTANT.test(text) ? Date.parse(text) : dateOf(text)) - sentAt();
  return Number.isFinite(ms) ? Math.max(0, ms) : undefined;
}

// Structured fields (RFC 9651), without inner lists and display strings: a string, a number, bytes, a boolean, a token or a date.
const BARE = /"((?:[ !#-[\]-~]|\\["\\])*)"|(-?\d{1,15}(?:\.\d{1,3})?)|:[\w+/=]*:|\?[01]|[A-Za-z*][!#$%&'*+.^`|~:/\w-]*|@-?\d{1,15}/y;
const NAME = /([a-z*][a-z0-9_.*-]*)(=?)/y;
const MEMBER_NAME = /([a-z*][a-z0-9_.*-]*)=/y;
const SEMICOLON = /; */y;
const COMMA = /[ \t]*,[ \t]*/y;

// The members of a list or a dictionary, which are `{ name, value, of }` with the parameters in `of`; none if the field is malformed.
export function membersOf(field) {
  if (field === '') return [];
  let at = 0;
  const take = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(field);
    if (found !== null) at = pattern.lastIndex;
    return found;
  };
  const bare = () => {
    const [all, text, number] = take(BARE) ?? [];
    return text?.replace(/\\(.)/g, '$1') ?? (number === undefined ? all : Number(number));
  };
  const members = [];
  do {
    const member = { name: take(MEMBER_NAME)?.[1], value: bare(), of: new Map() };
    let isWhole = member.value !== undefined;
    while (isWhole && take(SEMICOLON) !== null) {
      const [, name, hasValue] = take(NAME) ?? [];
      const value = hasValue === '=' ? bare() : true;
      isWhole = name !== undefined && value !== undefined;
      member.of.set(name, value);
    }
    if (!isWhole) return [];
    members.push(member);
  } while (take(COMMA) !== null);
  return at === field.length ? members : [];
}

const isCount = (value) => Number.isInteger(value) && value >= 0;
const countOf = (text) => (/^\d{1,15}$/.test(text) ? Number(text) : undefined);

// Headers with what is left and the reset, by what they count.
const PAIRS = [
  ...['ratelimit', 'x-ratelimit', 'x-rate-limit'].map((prefix) => ['requests', `${prefix}-remaining`, `${prefix}-reset`]),
  ...['requests', 'tokens'].map((unit) => [unit, `x-ratelimit-remaining-${unit}`, `x-ratelimit-reset-${unit}`]),
  ...['requests', 'tokens', 'input-tokens', 'output-tokens'].map((unit) => {
    const prefix = `anthropic-ratelimit-${unit}`;
    return [unit, `${prefix}-remaining`, `${prefix}-reset`];
  }),
];

// Returns `retryAfterMs`, if the headers say it, and `quotas`: of each limit its `id`, how many requests are `left`, and `resetMs`, when
// there are more again. Of a limit that counts something else only its end is known, which leaves no request.
export function read(headers) {
  // Faster than asking for each.
  const all = new Map(headers);
  const field = (name) => {
    const text = all.get(name) ?? '';
    return text.length > MAX_FIELD ? '' : text.trim();
  };
  // By the upstream's own clock, if it tells the time: the local one may be wrong.
  const sentAt = () => {
    const date = dateOf(field('date'));
    return Number.isNaN(date) ? Date.now() : date;
  };
  const quotas = [];
  const note = (id, unit, left, resetMs) => {
    if (left > 0 && !/^(content-)?requests?$/.test(unit)) return;
    if (isCount(left) && resetMs > 0 && id.length <= MAX_ID) quotas.push({ id, left, resetMs });
  };

  const policies = new Map(membersOf(field('ratelimit-policy')).map(({ value, of }) => [String(value), of]));
  const members = membersOf(field('ratelimit'));
  const named = (name) => members.find((member) => member.name === name)?.value;
  // Draft 7 has one limit, in a dictionary.
  if (named('remaining') !== undefined) note('', 'requests', named('remaining'), isCount(named('reset')) ? 1000 * named('reset') : 0);
  else {
    for (const { value, of } of members) {
      const policy = policies.get(String(value));
      const [t, w] = [of.get('t'), policy?.get('w')];
      const seconds = [t, w].find(isCount);
      const partition = of.get('pk') ?? policy?.get('pk');
      note(partition === undefined ? String(value) : `${value};${partition}`, String(policy?.get('qu') ?? 'requests'), of.get('r'), 1000 * seconds);
    }
  }
  // GitHub has several limits, and names the one that counts a request.
  const resource = field('x-ratelimit-resource');
  for (const [unit, remaining, reset] of PAIRS) {
    if (all.has(remaining)) note(`${remaining} ${resource}`, unit, countOf(field(remaining)), msUntil(field(reset), sentAt));
  }
  // What a cache has kept is out of date.
  const isKept = countOf(field('age')) > 0;
  return { retryAfterMs: msUntil(field('retry-after'), sentAt), quotas: isKept ? [] : quotas };
}
