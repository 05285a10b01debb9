// The key of a client: its address, or its network.

import { checkNumber, checkOptions, outermost, wrong } from './errors.js';

// The longest text that is parsed: an IPv6 address with its zone, brackets and port.
const MAX_LENGTH = 128;

// How many bits of an address identify a client, by default.
export const [V4, V6] = [32, 64];

// An IPv4 address as a number, or undefined. A leading zero is refused: some parsers read it as octal.
function parseV4(text) {
  const parts = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text);
  if (parts === null) return undefined;
  let address = 0;
  for (let i = 1; i <= 4; i++) {
    const part = parts[i];
    if (part > 255 || (part.length > 1 && part[0] === '0')) return undefined;
    address = address * 256 + Number(part);
  }
  return address;
}

// The groups on one side of `::`; an IPv4 address at the very end counts as two groups.
function parseGroups(text, isLast) {
  if (text === '') return [];
  const groups = text.split(':');
  const numbers = [];
  for (const [i, group] of groups.entries()) {
    if (/^[0-9a-fA-F]{1,4}$/.test(group)) {
      numbers.push(parseInt(group, 16));
      continue;
    }
    const address = isLast && i === groups.length - 1 ? parseV4(group) : undefined;
    if (address === undefined) return undefined;
    numbers.push(address >>> 16, address & 0xffff);
  }
  return numbers;
}

// The eight groups of an IPv6 address, or undefined.
function parseV6(text) {
  const sides = text.split('::');
  if (sides.length > 2) return undefined;
  const head = parseGroups(sides[0], sides.length === 1);
  const tail = sides.length === 2 ? parseGroups(sides[1], true) : [];
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  if (sides.length === 1 ? missing !== 0 : missing < 1) return undefined;
  return [...head, ...new Array(missing).fill(0), ...tail];
}

// An address without brackets, port and zone.
function bare(text) {
  const bracketed = /^\[([^\]]*)\](?::\d{1,5})?$/.exec(text);
  let address = text;
  if (bracketed !== null) {
    address = bracketed[1];
    if (!address.includes(':')) return undefined;
  } else if (text.includes('.') && text.indexOf(':') === text.lastIndexOf(':')) {
    address = text.replace(/:\d{1,5}$/, '');
  }
  const zone = address.indexOf('%');
  if (zone < 0) return address;
  return address.includes(':') && zone < address.length - 1 ? address.slice(0, zone) : undefined;
}

// RFC 5952: `::` stands for the longest run of at least two zeros, and for the first of several that are equally long.
function showV6(groups) {
  let [start, length] = [0, 1];
  for (let i = 0; i < 8; i++) {
    let end = i;
    while (end < 8 && groups[end] === 0) end++;
    if (end - i > length) [start, length] = [i, end - i];
    if (end > i) i = end;
  }
  const text = (part) => part.map((group) => group.toString(16)).join(':');
  return length < 2 ? text(groups) : `${text(groups.slice(0, start))}::${text(groups.slice(start + length))}`;
}

function keyOfV4(address, bits) {
  const masked = bits === 0 ? 0 : (address & (-1 << (32 - bits))) >>> 0;
  const text = `${masked >>> 24}.${(masked >>> 16) & 255}.${(masked >>> 8) & 255}.${masked & 255}`;
  return bits === 32 ? text : `${text}/${bits}`;
}

function keyOfV6(groups, bits) {
  const masked = groups.map((group, i) => group & (0xffff << Math.max(0, 16 - Math.max(0, bits - 16 * i))) & 0xffff);
  const text = showV6(masked);
  return bits === 128 ? text : `${text}/${bits}`;
}

// The key of an address, or undefined if it is not valid.
export function keyOfAddress(ip, v4, v6) {
  if (typeof ip !== 'string' || ip.length > MAX_LENGTH) return undefined;
  const address = bare(ip);
  if (address === undefined) return undefined;
  if (!address.includes(':')) {
    const number = parseV4(address);
    return number === undefined ? undefined : keyOfV4(number, v4);
  }
  const groups = parseV6(address);
  if (groups === undefined) return undefined;
  // A dual-stack socket shows an IPv4 client as an address in ::ffff:0:0/96.
  const isMapped = groups[5] === 0xffff && groups.slice(0, 5).every((group) => group === 0);
  return isMapped ? keyOfV4(groups[6] * 65536 + groups[7], v4) : keyOfV6(groups, v6);
}

export const ipKey = outermost('ipKey', (ip, options = {}) => {
  const { v4 = V4, v6 = V6 } = checkOptions('options', options, ['v4', 'v6'], '`{ v6: 56 }`, or leave it out');
  checkNumber('options.v4', v4, 32, true);
  checkNumber('options.v6', v6, 128, true);
  const key = keyOfAddress(ip, v4, v6);
  if (key !== undefined) return key;
  throw wrong('ip', ip, 'is not a valid IP address; use one as in `203.0.113.7` or `2001:db8::1`', TypeError, 'ERR_LEAPGATE_IP');
});
