// The rate limit headers, in the forms of the IETF drafts (draft-ietf-httpapi-ratelimit-headers) and as `X-RateLimit-*`.

import { checkOptions, outermost, wrong } from './errors.js';

// The largest integer of a structured field (RFC 9651, section 3.3.1).
const MAX_INTEGER = 999_999_999_999_999;

const integer = (number) => String(Math.min(Math.floor(number), MAX_INTEGER));
const seconds = (ms) => Math.ceil(ms / 1000);

// A string of a structured field. An id is printable ASCII.
const quoted = (text) => `"${text.replace(/[\\"]/g, '\\$&')}"`;

// A limit on requests in flight has no window.
const isConcurrency = (policy) => !(policy.windowMs > 0);
// Only the limits of an engine say what they count. `bytes` has another name in the draft.
const isOfRequests = ({ unit = 'requests' }) => unit === 'requests';

// The policy with the fewest passes left, and among several the one with the latest reset.
function tightest(policies) {
  const isTighter = (a, b) => a.remaining < b.remaining || (a.remaining === b.remaining && a.resetMs > b.resetMs);
  return policies.reduce((tightest, policy) => (isTighter(policy, tightest) ? policy : tightest));
}

// Drafts 6 and 7 require a `w` in whole seconds: it is rounded up, which promises less.
const olderPolicy = (policies) => policies.map(({ limit, windowMs }) => `${integer(limit)};w=${seconds(windowMs)}`).join(', ');

const forms = {
  // Also drafts 8 to 10. `w` has only whole seconds, and is left out for other windows; `t` is there if there is something to
  // wait for.
  11({ success, policies }) {
    const quota = (policy) => {
      const { id, limit, unit, windowMs } = policy;
      let item = `${quoted(id)};q=${integer(limit)}`;
      if (isConcurrency(policy)) return `${item};qu="concurrent-requests"`;
      if (!isOfRequests(policy)) item += `;qu=${quoted(unit === 'bytes' ? 'content-bytes' : unit)}`;
      return windowMs % 1000 === 0 ? `${item};w=${windowMs / 1000}` : item;
    };
    const left = ({ id, remaining, resetMs }) => {
      const item = `${quoted(id)};r=${integer(remaining)}`;
      return resetMs > 0 && resetMs < Infinity && (success || remaining === 0) ? `${item};t=${seconds(resetMs)}` : item;
    };
    return { 'RateLimit-Policy': policies.map(quota).join(', '), RateLimit: policies.map(left).join(', ') };
  },
  7({ policies }) {
    const { limit, remaining, resetMs } = tightest(policies);
    return {
      'RateLimit-Policy': olderPolicy(policies),
      RateLimit: `limit=${integer(limit)}, remaining=${integer(remaining)}, reset=${integer(seconds(resetMs))}`,
    };
  },
  6({ policies }) {
    const { limit, remaining, resetMs } = tightest(policies);
    return {
      'RateLimit-Policy': olderPolicy(policies),
      'RateLimit-Limit': integer(limit),
      'RateLimit-Remaining': integer(remaining),
      'RateLimit-Reset': integer(seconds(resetMs)),
    };
  },
  // The time until the reset, never the instant: a client cannot distinguish the two.
  legacy({ policies }) {
    const { limit, remaining, resetMs } = tightest(policies);
    return {
      'X-RateLimit-Limit': integer(limit),
      'X-RateLimit-Remaining': integer(remaining),
      'X-RateLimit-Reset': integer(seconds(resetMs)),
    };
  },
};

export function checkDraft(place, draft, cure) {
  if ((typeof draft !== 'number' && draft !== 'legacy') || !Object.hasOwn(forms, draft)) {
    throw wrong(place, draft, `is not a valid form of these headers; ${cure}`);
  }
}

// Whole seconds, at least one; undefined if the request passes or waiting does not help.
export function retryAfterSeconds({ success, retryAfterMs }) {
  return success || retryAfterMs === Infinity ? undefined : Math.max(1, seconds(retryAfterMs));
}

// The headers without `Retry-After`. Before draft 11, limits on requests in flight and of other units look like limits of requests in a
// window: they are left out.
export function headersOf({ success, policies }, draft) {
  const isPlain = (policy) => draft === 11 || (!isConcurrency(policy) && isOfRequests(policy));
  const told = policies.filter(isPlain);
  return told.length > 0 ? forms[draft]({ success, policies: told }) : {};
}

export const rateLimitHeaders = outermost('rateLimitHeaders', (result, options = {}) => {
  const { draft = 11 } = checkOptions('options', options, ['draft'], '`{ draft: 7 }`, or leave it out');
  checkDraft('options.draft', draft, "use 11, 7, 6 or 'legacy'");
  if (typeof result !== 'object' || result === null || !Array.isArray(result.policies)) {
    throw wrong('result', result, 'is not a result; use what `limit` has answered');
  }
  const headers = headersOf(result, draft);
  const wait = retryAfterSeconds(result);
  if (wait !== undefined) headers['Retry-After'] = String(wait);
  return headers;
});
