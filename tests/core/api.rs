//! Which APIs a request belongs to.

use leapgate::api::{ApiMatcher, MAX_APIS};
use leapgate::rule::{
    ApiDefinition, KeyPart, MAX_CONDITIONS, MAX_PATTERN, MAX_PREDICATE_ITEMS, PredicateItem, Regex,
    RuleError,
};
use std::cell::RefCell;

fn api(name: &str, items: impl Into<Vec<PredicateItem>>) -> ApiDefinition {
    ApiDefinition::new(name, items).unwrap()
}

fn exact(path: &str) -> PredicateItem {
    PredicateItem::exact(path).unwrap()
}

fn prefix(pattern: &str) -> PredicateItem {
    PredicateItem::prefix(pattern).unwrap()
}

fn header(name: &str) -> KeyPart {
    KeyPart::Header(name.into())
}

/// The APIs of a request that has nothing but a path, in the order of the alphabet.
fn found<'a>(matcher: &'a ApiMatcher, path: &str) -> Vec<&'a str> {
    found_for(matcher, path.as_bytes(), &[])
}

/// The same, of a request with these parts.
fn found_for<'a>(matcher: &'a ApiMatcher, path: &[u8], parts: &[(KeyPart, &str)]) -> Vec<&'a str> {
    let read = |part: &KeyPart| {
        let known = parts.iter().find(|(known, _)| known == part)?;
        Some(known.1.as_bytes().to_vec())
    };
    let found = matcher.find(path, &read);
    let mut names = found.names().to_vec();
    names.sort_unstable();
    names
}

#[test]
fn differs_from_sentinel_every_spelling_of_a_path_is_that_path() {
    let matcher = ApiMatcher::new(&[api("login", [exact("/v2/login")])]);
    let rows = [
        ("/v2/login", true),
        ("/v2/login?next=/", true),
        ("/v2/login#top", true),
        ("/v2/%6Cogin", true),
        ("/v2/%6cogi%6E", true),
        ("/v2%2Flogin", true),
        ("%2fv2%2flogin", true),
        (r"\v2\login", true),
        ("/v2%5clogin", true),
        ("//v2///login", true),
        ("/v2/login/", true),
        ("/v2/login//%2F/", true),
        ("/v2/login;x=1", true),
        ("/v2;a/login;b=/", true),
        ("/v2/;a/login", true),
        ("/v2/login%3Bx", true),
        ("/./v2/./login/.", true),
        ("/a/../v2/login", true),
        ("/v2/a/b/../../login", true),
        ("/v2/login/a/..", true),
        ("/../../v2/login", true),
        ("/a/%2e%2e/v2/%2E/login", true),
        ("/a/..;x/v2/login", true),
        ("/V2/LOGIN", true),
        ("v2/login", true),
        ("/v2/login?/../../", true),
        ("/v2/login#/x", true),
        ("/v2/%256Cogin", false),
        ("/v2/%6", false),
        ("/v2/login%", false),
        ("/v2/login%zz", false),
        ("/v2/login.json", false),
        ("/v2/login%20", false),
        ("/v2/login%00", false),
        ("/v2/login%3F", false),
        ("/v2/login%23top", false),
        ("/v2/login/..", false),
        ("/v2/.../login", false),
        ("/v2/login/x", false),
        ("/v2", false),
        ("/x/v2/login", false),
        ("/", false),
        ("", false),
        ("*", false),
    ];
    for (path, is_it) in rows {
        assert_eq!(found(&matcher, path).len() == 1, is_it, "{path}");
    }
    assert_eq!(found_for(&matcher, b"/v2/log\xff", &[]), [""; 0]);
}

#[test]
fn an_invalid_escape_is_the_text_that_it_is() {
    let matcher = ApiMatcher::new(&[api("all", [exact("/100%/%zz/%6")])]);
    assert_eq!(found(&matcher, "/100%/%zz/%6"), ["all"]);
    assert_eq!(found(&matcher, "/100%25/%25zz/%256"), ["all"]);
    assert_eq!(found(&matcher, "/100/zz/6"), [""; 0]);
}

#[test]
fn a_pattern_has_every_spelling_too() {
    let matcher = ApiMatcher::new(&[api("login", [exact("//V2/%6Cogin/../x/../login/")])]);
    assert_eq!(found(&matcher, "/v2/login"), ["login"]);
    assert_eq!(found(&matcher, "/v2"), [""; 0]);
}

#[test]
fn a_prefix_ends_where_a_segment_ends() {
    let matcher = ApiMatcher::new(&[
        api("shop", [prefix("/product/**")]),
        api("all", [prefix("/**")]),
    ]);
    let rows = [
        ("/product", true),
        ("/product/", true),
        ("/product/a/b?c", true),
        ("/product;v=1/a", true),
        ("/x/../product/a", true),
        ("/products", false),
        ("/produc", false),
        ("/x/product", false),
        ("/", false),
    ];
    for (path, is_it) in rows {
        let expected: &[&str] = if is_it { &["all", "shop"] } else { &["all"] };
        assert_eq!(found(&matcher, path), expected, "{path}");
    }
}

#[test]
fn a_path_that_leaves_a_prefix_by_dots_belongs_to_it_all_the_same() {
    let matcher = ApiMatcher::new(&[
        api("shop", [prefix("/product/**")]),
        api("login", [exact("/login")]),
        api("exact", [exact("/product")]),
    ]);
    assert_eq!(found(&matcher, "/product/../login"), ["login", "shop"]);
    assert_eq!(
        found(&matcher, "/product/a/../../../login"),
        ["login", "shop"]
    );
    assert_eq!(found(&matcher, "/a/product/../../login"), ["login"]);
    assert_eq!(found(&matcher, "/login/../product/../x"), ["shop"]);
}

/// A path, the parts of a request, and its APIs.
type Row<'a> = (&'a str, &'a [(KeyPart, &'a str)], &'a [&'a str]);

#[test]
fn all_conditions_of_an_item_hold_or_those_of_another_one() {
    let post = exact("/login").with(KeyPart::Method, Some("POST")).unwrap();
    let post = post.with(header("x-app"), Some("ios")).unwrap();
    let any = exact("/login").with(header("x-debug"), None).unwrap();
    let of_host = prefix("/v1/**").with(KeyPart::Host, Some("LLM.example.com"));
    let query = exact("/search")
        .with(KeyPart::Query("deep".into()), Some("1"))
        .unwrap();
    let matcher = ApiMatcher::new(&[
        api("login", [post, any]),
        api("chat", [of_host.unwrap()]),
        api("search", [query]),
    ]);
    let method = |method| (KeyPart::Method, method);
    let host = |host| (KeyPart::Host, host);
    let none: [&str; 0] = [];
    let rows: [Row<'_>; 15] = [
        (
            "/login",
            &[method("POST"), (header("x-app"), "ios")],
            &["login"],
        ),
        (
            "/login",
            &[method("post"), (header("x-app"), "ios")],
            &["login"],
        ),
        ("/login", &[method("GET"), (header("x-app"), "ios")], &none),
        ("/login", &[method("POST"), (header("x-app"), "iOS")], &none),
        ("/login", &[method("POST")], &none),
        (
            "/login",
            &[method("GET"), (header("x-debug"), "")],
            &["login"],
        ),
        ("/v1/a", &[host("llm.example.com")], &["chat"]),
        ("/v1", &[host("Llm.Example.COM.:8443")], &["chat"]),
        ("/v1/a", &[host("llm.example.com.evil")], &none),
        ("/v1/a", &[host("[llm.example.com]")], &none),
        ("/v1/a", &[], &none),
        ("/v2/a", &[host("llm.example.com")], &none),
        (
            "/search",
            &[(KeyPart::Query("deep".into()), "1")],
            &["search"],
        ),
        ("/search", &[(KeyPart::Query("deep".into()), "10")], &none),
        ("/search", &[(header("deep"), "1")], &none),
    ];
    for (path, parts, expected) in rows {
        assert_eq!(
            found_for(&matcher, path.as_bytes(), parts),
            expected,
            "{path} {parts:?}"
        );
    }
}

#[test]
fn an_address_is_a_host_and_a_segment_is_not() {
    let of = |host| exact("/a").with(KeyPart::Host, Some(host)).unwrap();
    let matcher = ApiMatcher::new(&[
        api("v6", [of("[2001:db8::1]")]),
        api("v4", [of("10.0.0.1")]),
    ]);
    let host = |host| [(KeyPart::Host, host)];
    assert_eq!(
        found_for(&matcher, b"/a", &host("[2001:DB8::1]:8080")),
        ["v6"]
    );
    assert_eq!(found_for(&matcher, b"/a", &host("10.0.0.1:80")), ["v4"]);
    for path in [
        "/a/10.0.0.1",
        "/a//10.0.0.1",
        "/a/%2F10.0.0.1",
        "/a/;10.0.0.1",
    ] {
        assert_eq!(found_for(&matcher, path.as_bytes(), &[]), [""; 0], "{path}");
    }
}

#[test]
fn a_part_is_read_once_and_only_if_an_item_asks_for_it() {
    let post = |path| exact(path).with(KeyPart::Method, Some("POST")).unwrap();
    let tenant = |name| {
        prefix("/t/**")
            .with(header("x-tenant"), Some(name))
            .unwrap()
    };
    let host = |path| exact(path).with(KeyPart::Host, Some("a")).unwrap();
    let matcher = ApiMatcher::new(&[
        api(
            "login",
            [
                post("/login"),
                post("/login").with(header("x-app"), None).unwrap(),
            ],
        ),
        api("a", [tenant("a")]),
        api("b", [tenant("b")]),
        api("c", [host("/h"), host("/h/i")]),
        api("plain", [exact("/plain")]),
    ]);
    let rows: [(&str, &[&str]); 7] = [
        ("/elsewhere/x", &[]),
        ("/elsewhere", &[]),
        ("/login", &["method"]),
        ("/t/x/../../t", &["header:x-tenant"]),
        ("/h/x", &[]),
        ("/h", &["host"]),
        ("/h/../h/i", &["host"]),
    ];
    for (path, expected) in rows {
        let asked = RefCell::new(Vec::new());
        let read = |part: &KeyPart| {
            asked.borrow_mut().push(part.to_string());
            None
        };
        assert_eq!(matcher.find(path.as_bytes(), &read).names(), [""; 0]);
        assert_eq!(asked.into_inner(), expected, "{path}");
    }
}

#[test]
fn a_request_of_too_many_apis_is_known_by_their_number() {
    let apis = |count| (0..count).map(|i| api(&format!("a{i}"), [prefix("/**"), exact("/x")]));
    for count in [MAX_APIS - 1, MAX_APIS, MAX_APIS + 1, MAX_APIS + 2, 100] {
        let matcher = ApiMatcher::new(&apis(count).collect::<Vec<_>>());
        assert_eq!(found(&matcher, "/x").len(), count.min(MAX_APIS + 1));
    }
}

#[test]
fn a_long_path_costs_as_much_as_its_length() {
    // Each prefix is tried once, however often the path comes by.
    let tried = RefCell::new(0);
    let read = |_: &KeyPart| {
        *tried.borrow_mut() += 1;
        None
    };
    let of = |i: usize| {
        prefix("/a/**")
            .with(header(&format!("x{i}")), None)
            .unwrap()
    };
    let apis: Vec<_> = (0..100).map(|i| api(&format!("a{i}"), [of(i)])).collect();
    let matcher = ApiMatcher::new(&apis);
    let path = "/a/..".repeat(20_000);
    assert_eq!(matcher.find(path.as_bytes(), &read).names(), [""; 0]);
    assert_eq!(tried.into_inner(), 100);
    let deep = "/a".repeat(100_000);
    assert_eq!(found(&matcher, &deep), [""; 0]);
    let back = [&*deep, &"/..".repeat(100_000)].concat();
    assert_eq!(found(&matcher, &back), [""; 0]);
}

#[test]
fn a_regular_expression_is_matched_on_the_whole_of_the_shortest_spelling() {
    let regex = |text| PredicateItem::regex(Regex::new(text).unwrap());
    let post = regex("/a/[0-9]+")
        .with(KeyPart::Method, Some("POST"))
        .unwrap();
    let matcher = ApiMatcher::new(&[
        api("number", [regex("/id/[0-9]+")]),
        api("post", [post]),
        api("root", [regex("/")]),
    ]);
    assert_eq!(found(&matcher, "//id/%31;x?y"), ["number"]);
    assert_eq!(found(&matcher, "/id/1a"), [""; 0]);
    assert_eq!(found(&matcher, "/ID/1"), [""; 0]);
    assert_eq!(found(&matcher, "/x/.."), ["root"]);
    assert_eq!(found(&matcher, "/a/1"), [""; 0]);
    assert_eq!(
        found_for(&matcher, b"/a/1", &[(KeyPart::Method, "POST")]),
        ["post"]
    );
}

#[test]
fn differs_from_sentinel_a_prefix_has_no_other_wildcards() {
    let sentence = |pattern: &str| {
        format!(
            "`{pattern}` is not a pattern of paths; use one such as `/login`, or `/product/**` with `matchStrategy` 1"
        )
    };
    let long = format!("/{}", "a".repeat(MAX_PATTERN));
    for path in [
        "", "login", "/a?b", "/a#b", "/a;b", "/a/*", "/a/**", "/{id}", r"/a\b", &long,
    ] {
        let error = PredicateItem::exact(path).unwrap_err();
        let shown = if path == long {
            format!("{}…", &long[..64])
        } else {
            path.into()
        };
        assert_eq!(error.to_string(), sentence(&shown));
    }
    for pattern in [
        "", "/", "/a", "/a/*", "/a**", "**", "/a/**/b", "/a/*/**", "a/**", "/a;b/**", "/**/**",
    ] {
        let error = PredicateItem::prefix(pattern).unwrap_err();
        assert_eq!(error.to_string(), sentence(pattern));
    }
    assert!(PredicateItem::exact(&long[..MAX_PATTERN]).is_ok());
    assert!(PredicateItem::exact("/").is_ok());
    assert!(PredicateItem::prefix("/**").is_ok());
}

#[test]
fn an_api_has_a_name_and_a_bound() {
    let error = |name: &str| ApiDefinition::new(name, []).unwrap_err();
    assert_eq!(error(""), RuleError::EmptyName);
    assert_eq!(error("*"), RuleError::EmptyName);
    assert_eq!(error(&"a".repeat(257)), RuleError::LongName { length: 257 });
    let items = vec![exact("/a"); MAX_PREDICATE_ITEMS + 1];
    let too_many = |number: usize, most: usize| RuleError::OutOfRange {
        number: number as u64,
        least: 0,
        most: most as u64,
    };
    assert!(ApiDefinition::new("a", &items[1..]).is_ok());
    assert_eq!(
        ApiDefinition::new("a", items).unwrap_err(),
        too_many(1001, 1000)
    );
    let mut item = exact("/a");
    for _ in 0..MAX_CONDITIONS {
        item = item.with(header("x"), None).unwrap();
    }
    assert_eq!(item.with(header("x"), None).unwrap_err(), too_many(17, 16));
}

/// The model: all definitions are gone through, and a path is a list of texts.
mod naive {
    /// The ways of a path: the one that it ends at, and all that it comes by.
    pub(super) fn ways(path: &str) -> (Vec<String>, Vec<Vec<String>>) {
        let path = path.split(['?', '#']).next().unwrap();
        let mut bytes = Vec::new();
        let mut rest = path.as_bytes();
        while let Some(byte) = rest.first() {
            let escape = rest
                .get(1..3)
                .and_then(|digits| std::str::from_utf8(digits).ok());
            let escape = escape.filter(|digits| digits.chars().all(|c| c.is_ascii_hexdigit()));
            match escape.filter(|_| *byte == b'%') {
                Some(digits) => {
                    bytes.push(u8::from_str_radix(digits, 16).unwrap());
                    rest = &rest[3..];
                }
                None => {
                    bytes.push(*byte);
                    rest = &rest[1..];
                }
            }
        }
        let text = String::from_utf8(bytes)
            .unwrap()
            .to_ascii_lowercase()
            .replace('\\', "/");
        let (mut way, mut ways) = (Vec::new(), vec![Vec::new()]);
        for segment in text.split('/') {
            match segment.split(';').next().unwrap() {
                "" | "." => {}
                ".." => drop(way.pop()),
                name => way.push(name.to_string()),
            }
            ways.push(way.clone());
        }
        (way, ways)
    }

    /// An item: whether it is a prefix, its pattern, and the header that it wants.
    pub(super) type Item = (bool, String, Option<String>, Option<String>);

    pub(super) fn matches(
        (is_prefix, pattern, host, wanted): &Item,
        (end, by): &(Vec<String>, Vec<Vec<String>>),
        of: &str,
        header: &str,
    ) -> bool {
        let (pattern, _) = ways(pattern);
        let is_there = if *is_prefix {
            by.iter().any(|way| way.starts_with(&pattern))
        } else {
            *end == pattern
        };
        is_there
            && host.as_ref().is_none_or(|host| host == of)
            && wanted.as_ref().is_none_or(|wanted| wanted == header)
    }
}

#[test]
fn the_tree_finds_what_going_through_all_definitions_finds() {
    let mut random = fastrand::Rng::with_seed(12);
    let names = [
        "a", "b", "ab", "login", "A", "..", ".", "", "a;x", "%61", "%2e%2e", "b%2Fa", "%", "%zz",
        "c\\b",
    ];
    let path = |random: &mut fastrand::Rng, names: &[&str], most: usize| {
        let mut path = String::new();
        for _ in 0..random.usize(0..=most) {
            path.push('/');
            path.push_str(names[random.usize(..names.len())]);
        }
        if path.is_empty() {
            "/".to_string()
        } else {
            path
        }
    };
    let mut matched = 0;
    for _ in 0..200 {
        let mut items: Vec<(String, naive::Item)> = Vec::new();
        let mut apis = Vec::new();
        for i in 0..random.usize(1..=16) {
            let mut of_api = Vec::new();
            for _ in 0..random.usize(1..=3) {
                let is_prefix = random.bool();
                let pattern = path(&mut random, &["a", "b", "ab", "login", "A", "..", "%61"], 3);
                let pick = |random: &mut fastrand::Rng, of: &[&str]| {
                    (random.u8(..3) == 0).then(|| of[random.usize(..of.len())].to_string())
                };
                let host = pick(&mut random, &["h1", "h2"]);
                let wanted = pick(&mut random, &["x", "y"]);
                let mut item = if is_prefix {
                    let below = pattern.trim_end_matches('/');
                    prefix(&format!("{below}/**"))
                } else {
                    exact(&pattern)
                };
                if let Some(host) = &host {
                    item = item.with(KeyPart::Host, Some(host)).unwrap();
                }
                if let Some(wanted) = &wanted {
                    item = item.with(header("x-app"), Some(wanted)).unwrap();
                }
                of_api.push(item);
                items.push((format!("api{i:02}"), (is_prefix, pattern, host, wanted)));
            }
            apis.push(api(&format!("api{i:02}"), of_api));
        }
        let matcher = ApiMatcher::new(&apis);
        for _ in 0..100 {
            let path = path(&mut random, &names, 6);
            let (host, value) = (
                ["h1", "h2", "h3"][random.usize(..3)],
                ["x", "y", "z"][random.usize(..3)],
            );
            let ways = naive::ways(&path);
            let matching = items
                .iter()
                .filter(|(_, item)| naive::matches(item, &ways, host, value));
            let mut expected: Vec<&str> = matching.map(|(name, _)| name.as_str()).collect();
            expected.dedup();
            let parts = [(KeyPart::Host, host), (header("x-app"), value)];
            assert_eq!(
                found_for(&matcher, path.as_bytes(), &parts),
                expected,
                "{path} {host} {value} {items:?}"
            );
            matched += expected.len();
        }
    }
    assert!(matched > 40_000, "only {matched} matched");
}
