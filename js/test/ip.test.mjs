import assert from 'node:assert/strict';
import { isIPv4, isIPv6 } from 'node:net';
import test from 'node:test';
import { ipKey } from 'leapgate/http';

const rows = [
  ['203.0.113.7', undefined, '203.0.113.7'],
  ['0.0.0.0', undefined, '0.0.0.0'],
  ['255.255.255.255', undefined, '255.255.255.255'],
  ['203.0.113.7:8080', undefined, '203.0.113.7'],
  ['203.0.113.7', { v4: 24 }, '203.0.113.0/24'],
  ['203.0.113.129', { v4: 25 }, '203.0.113.128/25'],
  ['203.0.113.7', { v4: 0 }, '0.0.0.0/0'],
  ['2001:db8:1:2:3:4:5:6', undefined, '2001:db8:1:2::/64'],
  ['2001:DB8:1:2:ffff:ffff:ffff:ffff', undefined, '2001:db8:1:2::/64'],
  ['2001:db8:1:2ff:3:4:5:6', { v6: 56 }, '2001:db8:1:200::/56'],
  ['2001:db8:1:2:3:4:5:6', { v6: 48 }, '2001:db8:1::/48'],
  ['2001:db8:1:2:3:4:5:6', { v6: 128 }, '2001:db8:1:2:3:4:5:6'],
  ['2001:db8:1:2:3:4:5:7', { v6: 127 }, '2001:db8:1:2:3:4:5:6/127'],
  ['2001:db8::1', { v6: 0 }, '::/0'],
  ['::1', undefined, '::/64'],
  ['::', { v6: 128 }, '::'],
  ['1::', { v6: 128 }, '1::'],
  ['1:0:0:2:0:0:0:3', { v6: 128 }, '1:0:0:2::3'],
  ['1:0:0:2:3:0:0:4', { v6: 128 }, '1::2:3:0:0:4'],
  ['1:0:2:3:4:5:6:7', { v6: 128 }, '1:0:2:3:4:5:6:7'],
  ['1:2:3:4:5:6:7::', { v6: 128 }, '1:2:3:4:5:6:7:0'],
  ['[2001:db8::1]', { v6: 128 }, '2001:db8::1'],
  ['[2001:db8::1]:443', { v6: 128 }, '2001:db8::1'],
  ['fe80::1%eth0', { v6: 128 }, 'fe80::1'],
  ['[fe80::1%25eth0]:443', { v6: 128 }, 'fe80::1'],
  ['::ffff:203.0.113.7', undefined, '203.0.113.7'],
  ['::ffff:cb00:7107', undefined, '203.0.113.7'],
  ['::ffff:203.0.113.7', { v4: 24, v6: 128 }, '203.0.113.0/24'],
  ['[::ffff:203.0.113.7]:443', undefined, '203.0.113.7'],
  ['64:ff9b::203.0.113.7', { v6: 128 }, '64:ff9b::cb00:7107'],
];

for (const [ip, options, key] of rows) {
  test(`ip: ${ip} with ${JSON.stringify(options) ?? 'no options'} is ${key}`, () => assert.equal(ipKey(ip, options), key));
}

test('ip: exactly the addresses of node:net are valid', () => {
  const parts = ['', '0', '01', '255', '256', 'ffff', '10000', 'g', ':', '::', '.', '1.2.3.4', '1.2.3', ' '];
  let addresses = 0;
  for (const a of parts) {
    for (const b of parts) {
      for (const c of parts) {
        for (const text of [a + b + c, `${a}:${b}:${c}`, `${a}.${b}.${c}.1`, `1:2:3:4:5:${a}${b}${c}`, `::${a}:${b}:${c}`]) {
          // Brackets and ports are accepted only here.
          if (/^\[|^[\d.]+:\d*$/.test(text)) continue;
          const isAddress = isIPv4(text) || isIPv6(text);
          addresses += isAddress;
          const key = () => ipKey(text, { v6: 128 });
          if (isAddress) assert.ok(isIPv4(key()) || isIPv6(key()), text);
          else assert.throws(key, { code: 'ERR_LEAPGATE_IP' }, text);
        }
      }
    }
  }
  assert.ok(addresses > 100, `${addresses}`);
});

for (const ip of ['', 'unknown', '1.2.3', '1.2.3.4.5', '1.2.3.256', '01.2.3.4', '1.2.3.4:', '1.2.3.4:x', '1.2.3.4:123456', '1.2.3.4%eth0', '[1.2.3.4]:80', '[::1', '::1]', '[::1]x', '[::1]:', 'fe80::1%', ':::', '1::2::3', '1:2:3:4:5:6:7', '1:2:3:4:5:6:7:8:9', '::1.2.3.4:5', '12345::', 'g::', ' 1.2.3.4', '1.2.3.4\n', undefined, null, 7]) {
  test(`ip: ${JSON.stringify(ip) ?? 'undefined'} is not an address`, () => {
    const message = `ip: \`${ip}\` is not a valid IP address; use one as in \`203.0.113.7\` or \`2001:db8::1\``;
    assert.throws(() => ipKey(ip), { name: 'TypeError', code: 'ERR_LEAPGATE_IP', message });
  });
}

for (const [options, message] of [
  [{ v4: 33 }, 'options.v4: `33` is not possible; use a whole number from 0 to 32'],
  [{ v6: -1 }, 'options.v6: `-1` is not possible; use a whole number from 0 to 128'],
  [{ v6: '56' }, 'options.v6: `56` is a string; use a whole number from 0 to 128'],
  [{ subnet: 56 }, 'options.subnet: `56` means nothing here; use one of `v4`, `v6`'],
  [56, 'options: `56` is not an object; use one, as in `{ v6: 56 }`, or leave it out'],
]) {
  test(`ip: ${JSON.stringify(options)} is wrong`, () => assert.throws(() => ipKey('::1', options), { code: 'ERR_LEAPGATE_OPTIONS', message }));
}
