//! Counts for networks of clients: CIDRs, and items of a key that name one.

use crate::support::{admitted, at, block, engine};
use fastrand::Rng;
use leapgate::config::{Value, read};
use leapgate::rule::{Cidr, Count, FlowRule, KeyItem, KeyPart, KeyValue, KeyedBy};
use leapgate::{Engine, Request};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn by(v4: u8, v6: u8) -> KeyedBy {
    KeyedBy::new([KeyPart::ClientIp { v4, v6 }]).unwrap()
}

fn item(value: &str, count: f64) -> KeyItem {
    KeyItem {
        values: [Some(value.into())].into(),
        count: Count::new(count).unwrap(),
    }
}

/// One request a minute for each client, but for those in these networks.
fn login(by: KeyedBy, items: &[(&str, f64)]) -> FlowRule {
    let items: Vec<_> = items
        .iter()
        .map(|(value, count)| item(value, *count))
        .collect();
    let by = by.with_items(items).unwrap();
    let rule = FlowRule::new("login", 1.0).unwrap().keyed(by).unwrap();
    rule.per(60_000, None).unwrap()
}

/// How many of 100 requests of a client pass.
fn passes(engine: &Engine, client: &str) -> usize {
    let keys = [KeyValue::One(client.as_bytes())];
    admitted(engine, &Request::new("login").keys(&keys), 100, 0)
}

#[test]
fn a_network_contains_its_addresses_in_any_notation() {
    let rows = [
        ("10.0.0.0/8", "10.255.255.255", true),
        ("10.0.0.0/8", "10.1.2.3:443", true),
        ("10.0.0.0/8", "::ffff:10.1.2.3", true),
        ("10.0.0.0/8", "[::ffff:10.1.2.3]:443", true),
        ("10.0.0.0/8", "11.0.0.0", false),
        ("10.0.0.0/8", "a00::", false),
        ("10.0.0.0/8", "", false),
        ("10.0.0.0/8", "10.0.0.0/8", false),
        ("10.0.0.1/32", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.0", false),
        ("0.0.0.0/0", "203.0.113.7", true),
        ("0.0.0.0/0", "2001:db8::1", false),
        ("::/0", "2001:db8::1", true),
        ("::/0", "203.0.113.7", false),
        ("2001:db8::/32", "2001:db8:ffff::1", true),
        ("2001:db8::/32", "2001:db9::", false),
        ("2001:db8::1/128", "2001:db8::1", true),
        ("2001:db8::1/128", "2001:db8::2", false),
    ];
    for (cidr, client, expected) in rows {
        let cidr = Cidr::new(cidr).unwrap();
        assert_eq!(
            cidr.contains(client.as_bytes()),
            expected,
            "{cidr:?}, {client}"
        );
    }
}

#[test]
fn what_is_not_a_network_is_refused() {
    let no_network = "is not a network; use one such as `10.0.0.0/8`";
    let long = "has no such prefix; use at most `/32` for IPv4 and at most `/128` for IPv6";
    let bits = "has bits behind its prefix; use the first address of the network";
    let mapped = "is IPv4 in the notation of IPv6; write it as IPv4, such as `10.0.0.0/8`";
    let rows = [
        ("", no_network),
        ("/8", no_network),
        ("office", no_network),
        ("10.0.0/8", no_network),
        ("10.0.0.0/+8", no_network),
        ("10.0.0.0/8/8", no_network),
        ("10.0.0.0:80/8", no_network),
        ("10.0.0.0/", long),
        ("10.0.0.0/33", long),
        ("::/129", long),
        ("10.0.0.0/99999999999", long),
        ("10.0.0.1/8", bits),
        ("0.0.0.1/0", bits),
        ("2001:db8::1/64", bits),
        ("::ffff:10.0.0.0/95", bits),
        ("::ffff:0:0/96", mapped),
        ("::ffff:10.0.0.0/104", mapped),
        ("::ffff:10.0.0.1", mapped),
    ];
    for (text, fault) in rows {
        let sentence = Cidr::new(text).unwrap_err().to_string();
        assert_eq!(sentence, format!("`{text}` {fault}"));
    }
}

#[test]
fn each_address_of_a_network_has_the_count_of_the_longest_prefix() {
    let items = [
        ("10.0.0.0/8", 2.0),
        ("10.1.0.0/16", 3.0),
        ("10.1.2.0/24", 4.0),
        ("10.1.2.3", 5.0),
        ("0.0.0.0/0", 6.0),
        ("2001:db8::/32", 7.0),
        ("10.1.0.0/16", 8.0),
    ];
    let engine = engine([login(by(32, 64), &items)]);
    let rows = [
        ("10.9.9.9", 2),
        ("10.9.9.8", 2),
        ("10.1.9.9", 8),
        ("10.1.2.9", 4),
        ("10.1.2.3", 5),
        ("11.0.0.1", 6),
        ("2001:db8:1::1", 7),
        ("2001:db8:1::2", 0), // the same /64
        ("2001:db9::1", 1),
        ("unknown", 1),
    ];
    for (client, expected) in rows {
        assert_eq!(passes(&engine, client), expected, "{client}");
    }
}

#[test]
fn an_exact_value_goes_before_a_network_and_the_later_of_two_for_one_key_counts() {
    let of = |items: &[(&str, f64)], client| passes(&engine([login(by(32, 128), items)]), client);
    assert_eq!(
        of(&[("10.0.0.1", 2.0), ("10.0.0.0/31", 3.0)], "10.0.0.1"),
        2
    );
    assert_eq!(
        of(&[("10.0.0.1", 2.0), ("10.0.0.1/32", 3.0)], "10.0.0.1"),
        2
    );
    assert_eq!(
        of(&[("10.0.0.0/31", 2.0), ("10.0.0.0/31", 3.0)], "10.0.0.1"),
        3
    );
    assert_eq!(of(&[("::1", 2.0), ("::1/128", 3.0)], "::1"), 3);
    assert_eq!(of(&[("::1/128", 3.0), ("::1", 2.0)], "::1"), 2);
    assert_eq!(of(&[("10.0.0.0/31", 0.0)], "10.0.0.1"), 0);
}

#[test]
fn a_burst_goes_on_top_of_the_count_of_a_network() {
    let items = [("10.0.0.0/8", 2.0), ("11.0.0.0/8", 0.0)];
    let engine = engine([login(by(32, 64).with_burst(5), &items)]);
    let rows = [("10.0.0.1", 7), ("11.0.0.1", 0), ("12.0.0.1", 6)];
    for (client, expected) in rows {
        assert_eq!(passes(&engine, client), expected, "{client}");
    }
}

#[test]
fn a_header_tells_the_count_of_the_network() {
    let engine = engine([login(by(32, 64), &[("10.0.0.0/8", 5.0)])]);
    let keys = [KeyValue::One(b"10.0.0.1")];
    let request = Request::new("login").keys(&keys);
    assert_eq!(admitted(&engine, &request, 7, 0), 5);
    let resource = engine.resource("login");
    let told = resource.policies_for(&request, at(0));
    let told: Vec<_> = told
        .map(|policy| (policy.count.get(), policy.remaining))
        .collect();
    assert_eq!(told, [(5.0, 0)]);
    assert_eq!(
        block(&engine, &request, 0).id().as_str(),
        "login/60s/key=clientIp"
    );
}

#[test]
fn where_the_key_is_a_network_an_item_is_for_the_networks_in_it() {
    let items = [
        ("10.0.0.0/8", 2.0),
        ("10.1.2.0/24", 3.0),
        ("2001:db8::/32", 4.0),
    ];
    let engine = engine([login(by(24, 48), &items)]);
    let rows = [
        ("10.9.9.1", 2),
        ("10.9.9.2", 0),
        ("10.9.8.2", 2),
        ("10.1.2.1", 3),
        ("2001:db8:1::1", 4),
    ];
    for (client, expected) in rows {
        assert_eq!(passes(&engine, client), expected, "{client}");
    }
    let narrow = "is narrower than the networks that the key tells apart; use a shorter prefix here, or a longer one in the key";
    for value in ["10.0.0.0/25", "10.0.0.1/32", "2001:db8::/49"] {
        let error = by(24, 48).with_items([item(value, 1.0)]).unwrap_err();
        assert_eq!(error.to_string(), format!("`{value}` {narrow}"));
    }
    assert!(by(24, 48).with_items([item("10.0.0.1", 1.0)]).is_ok());
}

#[test]
fn a_text_that_is_no_address_is_a_value_as_it_is_written() {
    let engine = engine([login(by(32, 64), &[("/run/a.sock", 3.0)])]);
    assert_eq!(passes(&engine, "/run/a.sock"), 3);
    let two = KeyedBy::new([KeyPart::CLIENT_IP, KeyPart::Path]).unwrap();
    let items = KeyItem {
        values: [Some("10.0.0.0/8".into()), None].into(),
        count: Count::new(3.0).unwrap(),
    };
    assert!(
        two.with_items([items]).is_ok(),
        "no network, but a text that no client has"
    );
}

#[test]
fn a_document_names_networks_and_is_told_what_is_wrong_with_them() {
    let sentence = |key: &str, value: &str| {
        let json = format!(
            r#"{{"flowRules": [{{"resource": "login", "count": 1, "key": {key}, "keyItems": [{{"value": {value}, "count": 2}}]}}]}}"#
        );
        let tree = Value::from_json(json).unwrap();
        read(&tree)
            .map(|document| document.rules.flow)
            .map_err(|error| error.to_string())
    };
    for value in [r#""10.0.0.0/8""#, r#"["10.0.0.0/8"]"#] {
        let rule = FlowRule::new("login", 1.0).unwrap();
        let by = by(32, 64).with_items([item("10.0.0.0/8", 2.0)]).unwrap();
        assert_eq!(
            sentence(r#"["clientIp"]"#, value),
            Ok(vec![rule.keyed(by).unwrap()])
        );
    }
    let long = "x".repeat(100);
    let rows = [
        (r#"["clientIp"]"#, r#""10.0.0.1/8""#, ".value: `10.0.0.1/8` has bits behind its prefix; use the first address of the network".into()),
        (r#"["clientIp"]"#, r#"["10.0.0.1/8"]"#, ".value[0]: `10.0.0.1/8` has bits behind its prefix; use the first address of the network".into()),
        (r#"["clientIp"]"#, r#""10.0.0.0/33""#, ".value: `10.0.0.0/33` has no such prefix; use at most `/32` for IPv4 and at most `/128` for IPv6".into()),
        (r#"["clientIp"]"#, r#""::ffff:10.0.0.0/104""#, ".value: `::ffff:10.0.0.0/104` is IPv4 in the notation of IPv6; write it as IPv4, such as `10.0.0.0/8`".into()),
        (r#"["clientIp"]"#, r#""office/8""#, ".value: `office/8` is not a network; use one such as `10.0.0.0/8`".into()),
        (r#"["clientIp"]"#, &format!(r#""{long}/8""#), format!(".value: `{}…` is not a network; use one such as `10.0.0.0/8`", "x".repeat(64))),
        (r#"[{"clientIp": {"v4": 24}}]"#, r#""10.0.0.0/25""#, ".value: `10.0.0.0/25` is narrower than the networks that the key tells apart; use a shorter prefix here, or a longer one in the key".into()),
        (r#"["clientIp", "path"]"#, r#"["10.0.0.0/8", null]"#, ".value[0]: `10.0.0.0/8` is a network, which goes only with a key of `clientIp` alone; use an address such as `10.0.0.1`".into()),
    ];
    for (key, value, fault) in rows {
        let expected = format!("flowRules[0].keyItems[0]{fault}");
        assert_eq!(sentence(key, value), Err(expected));
    }
}

/// The count of an address by a look at each item.
fn naive(items: &[(u128, u8, bool, f64)], address: u128, is_v4: bool) -> f64 {
    let mut best = (None, 1.0);
    for (network, length, of_v4, count) in items {
        let cut = 128_u32.saturating_sub(u32::from(*length));
        let same = address.checked_shr(cut) == network.checked_shr(cut);
        if *of_v4 == is_v4 && same && best.0 <= Some(*length) {
            best = (Some(*length), *count);
        }
    }
    best.1
}

#[test]
fn a_look_up_finds_what_a_look_at_each_item_finds() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        // Few different bits, so that networks lie in one another.
        let address = |rng: &mut Rng, is_v4: bool| {
            let bits = u128::from(rng.u8(..) & 0b1010_0011) << 120
                | u128::from(rng.u8(..4)) << 96
                | u128::from(rng.u8(..4)) << 64;
            if is_v4 { bits >> 96 << 96 } else { bits }
        };
        let text = |bits: u128, is_v4: bool| {
            let v4 = IpAddr::V4(Ipv4Addr::from((bits >> 96) as u32));
            let v6 = IpAddr::V6(Ipv6Addr::from(bits));
            if is_v4 { v4 } else { v6 }.to_string()
        };
        let mut items = Vec::new();
        for number in 0..rng.usize(..30) {
            let is_v4 = rng.bool();
            let length = rng.u8(..=if is_v4 { 32 } else { 64 });
            let kept = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            items.push((
                address(&mut rng, is_v4) & kept,
                length,
                is_v4,
                (number % 9) as f64,
            ));
        }
        let listed: Vec<_> = items
            .iter()
            .map(|(bits, length, is_v4, count)| {
                item(&format!("{}/{length}", text(*bits, *is_v4)), *count)
            })
            .collect();
        let rule = FlowRule::new("login", 1.0).unwrap();
        let rule = rule.keyed(by(32, 64).with_items(listed).unwrap()).unwrap();
        let engine = engine([rule]);
        for _ in 0..100 {
            let is_v4 = rng.bool();
            let bits = address(&mut rng, is_v4);
            let keys = text(bits, is_v4);
            let keys = [KeyValue::One(keys.as_bytes())];
            let request = Request::new("login").keys(&keys);
            // Opens the states.
            let _ = engine.enter(&request, at(0));
            let resource = engine.resource("login");
            let told = resource.policies_for(&request, at(0)).next().unwrap().count;
            assert_eq!(
                told.get(),
                naive(&items, bits, is_v4),
                "seed {seed}, {keys:?}, {items:?}"
            );
        }
    }
}

#[test]
fn a_hundred_thousand_networks_are_read_and_found() {
    let value = |i: u32| Ipv4Addr::from(i << 12);
    let items = (0..100_000).map(|i| item(&format!("{}/20", value(i)), f64::from(i % 5 + 2)));
    let by = by(32, 64).with_items(items.collect::<Vec<_>>()).unwrap();
    let engine = engine([FlowRule::new("login", 1.0).unwrap().keyed(by).unwrap()]);
    for i in [0, 1, 77_777, 99_999] {
        assert_eq!(passes(&engine, &value(i).to_string()), i as usize % 5 + 2);
    }
}
