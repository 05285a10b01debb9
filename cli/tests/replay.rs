//! A replay decides as the engine does, whatever the order and the form of the log, and says what it did not read.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use leapgate::rule::KeyValue;
use leapgate::{Decision, Engine, Request, Rules, Timestamp};
use leapgate_cli::check::{Target, check};
use leapgate_cli::replay::{Format, Options, Replay, Report, text};
use leapgate_envoy::settings::Settings;

/// 2026-10-01T00:00:00Z.
const START_MS: u64 = 1_790_812_800_000;

fn rules(document: &str) -> (Rules, Settings) {
    let checked = check(document.as_bytes(), Target::Envoy).unwrap();
    (checked.rules, checked.settings)
}

fn replay_with(document: &str, log: &[u8], options: Options) -> Report {
    let (rules, settings) = rules(document);
    let mut replay = Replay::new(rules, settings, options).unwrap();
    // Chunks end anywhere.
    for chunk in log.chunks(1009) {
        replay.feed(chunk).unwrap();
    }
    replay.finish().unwrap()
}

fn replay(document: &str, log: &str) -> Report {
    replay_with(document, log.as_bytes(), Options::default())
}

/// A request of a log.
#[derive(Clone)]
struct Line {
    ms: u64,
    route: &'static str,
    client: String,
    status: u16,
    duration: u64,
}

fn line(ms: u64, route: &'static str, client: &str) -> Line {
    Line {
        ms,
        route,
        client: client.into(),
        status: 200,
        duration: 1,
    }
}

/// `2026-10-01T00:00:01.500Z` of 1500.
fn iso(ms: u64) -> String {
    let (second, ms) = (ms / 1000, ms % 1000);
    format!(
        "2026-10-01T{:02}:{:02}:{:02}.{ms:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

fn istio(line: &Line) -> String {
    format!(
        r#"{{"start_time":"{}","route_name":"{}","method":"GET","path":"/{}","response_code":{},"duration":{},"user_agent":"curl/8","authority":"a.example","downstream_remote_address":"{}:4711"}}"#,
        iso(line.ms),
        line.route,
        line.route,
        line.status,
        line.duration,
        line.client
    ) + "\n"
}

fn log(lines: &[Line]) -> String {
    lines.iter().map(istio).collect()
}

/// Requests of a few clients at random times, in order.
fn traffic(seed: u64, count: usize, clients: u32, most_gap: u64) -> Vec<Line> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut ms = 0;
    let lines = (0..count).map(|_| {
        ms += random.u64(0..most_gap);
        let client = random.u32(0..clients) * random.u32(0..clients) / clients;
        line(
            ms,
            random.choice(["login", "api"]).unwrap(),
            &format!("10.0.{}.{}", client / 256, client % 256),
        )
    });
    lines.collect()
}

const LIMITS: &str = r#"{"flowRules": [
    {"resource": "login", "id": "clients", "count": 3, "key": ["clientIp"]},
    {"resource": "login", "id": "login", "count": 18},
    {"resource": "api", "id": "api", "count": 30, "intervalMs": 2000, "window": "sentinel"}
]}"#;

#[test]
fn a_replay_decides_as_the_engine_whatever_the_order_within_a_minute() {
    for seed in 0..4 {
        let lines = traffic(seed, 4000, 40, 30);
        let engine = Engine::new(rules(LIMITS).0).unwrap();
        let mut refused = std::collections::BTreeMap::<String, u64>::new();
        for line in &lines {
            let key = [KeyValue::One(line.client.as_bytes())];
            let request = Request::new(line.route).keys(&key);
            if let Decision::Block(blocked) =
                engine.enter(&request, Timestamp::from_millis(START_MS + line.ms))
            {
                *refused.entry(blocked.id().to_string()).or_default() += 1;
            }
        }
        // Requests of one millisecond stay in their order, or another one of them would be refused.
        let mut shuffled: Vec<(u64, Line)> = lines
            .iter()
            .map(|line| (line.ms + 10 * (line.ms * 7919 % 2900), line.clone()))
            .collect();
        shuffled.sort_by_key(|(at, _)| *at);
        let report = replay(
            LIMITS,
            &shuffled
                .iter()
                .map(|(_, line)| istio(line))
                .collect::<String>(),
        );
        for rule in &report.rules {
            assert_eq!(
                rule.refused,
                refused.remove(&rule.id).unwrap_or(0),
                "{} of seed {seed}",
                rule.id
            );
            assert!(rule.refused > 0, "{} refuses nothing", rule.id);
        }
        assert_eq!((report.late, report.requests), (0, 4000));
        assert_eq!(report.passed + report.refused, 4000);
    }
}

#[test]
fn the_smallest_limit_refuses_less_and_one_less_does_not() {
    let cases = [
        r#"{"flowRules": [{"resource": "login", "id": "r", "count": COUNT, "key": ["clientIp"]}]}"#,
        r#"{"flowRules": [{"resource": "login", "id": "r", "count": COUNT, "key": ["clientIp"], "burst": 2, "intervalMs": 5000}]}"#,
        r#"{"flowRules": [{"resource": "login", "id": "r", "count": COUNT}]}"#,
        r#"{"flowRules": [{"resource": "login", "id": "r", "count": COUNT, "window": "weighted", "intervalMs": 10000}]}"#,
        r#"{"flowRules": [{"resource": "login", "id": "r", "count": COUNT, "key": ["clientIp", "path"], "exempt": [{"clientIp": "10.0.0.1"}]}]}"#,
    ];
    for (seed, document) in (0..).zip(cases) {
        let log = log(&traffic(seed, 2000, 40, 20));
        for (start, percent) in [("1", 1.0), ("500", 1.0), ("7", 0.1), ("7", 20.0)] {
            let with = |count: &str| {
                let options = Options {
                    refuse_less_than: percent,
                    ..Options::default()
                };
                replay_with(&document.replace("COUNT", count), log.as_bytes(), options)
            };
            let found = with(start).rules[0].suggestion.unwrap();
            let bound = found.requests as f64 * percent / 100.0;
            let again = with(&found.count.to_string());
            assert_eq!(
                again.refused, found.refused,
                "{document} with {}",
                found.count
            );
            assert!(
                (again.refused as f64) < bound,
                "{document} with {}",
                found.count
            );
            let less = with(&(found.count - 1).to_string());
            assert_eq!(
                Some(less.refused),
                found.refused_with_one_less,
                "{document} with one less than {}",
                found.count
            );
            assert!(
                less.refused as f64 >= bound,
                "{document} with one less than {}",
                found.count
            );
        }
    }
}

#[test]
fn rules_that_look_at_how_calls_end_are_replayed_by_status_and_duration() {
    let at = |ms, status, duration| Line {
        status,
        duration,
        ..line(ms, "pay", "10.0.0.1")
    };
    // Five failures open the breaker for 10 s; then a probe succeeds.
    let mut lines: Vec<Line> = (0..5).map(|i| at(i * 10, 500, 1)).collect();
    lines.extend([
        at(1000, 200, 1),
        at(9000, 200, 1),
        at(10_500, 200, 1),
        at(10_600, 200, 1),
    ]);
    let breaker = r#"{"degradeRules": [{"resource": "pay", "id": "b", "grade": "errorRatio", "count": 0.5, "timeWindow": 10}]}"#;
    let report = replay(breaker, &log(&lines));
    assert_eq!((report.refused, report.rules[0].refused), (2, 2));
    // Two in flight, of 100 ms each. A refused one is not in flight.
    let lines: Vec<Line> = [0, 10, 20, 30, 100, 105, 110]
        .iter()
        .map(|ms| at(*ms, 200, 100))
        .collect();
    let concurrency =
        r#"{"flowRules": [{"resource": "pay", "id": "c", "count": 2, "grade": "concurrency"}]}"#;
    let report = replay(concurrency, &log(&lines));
    assert_eq!(
        (report.passed, report.refused),
        (4, 3),
        "0, 10, then 100 and 110 pass"
    );
    // One every 100 ms, and a wait of 150 ms at most.
    let lines: Vec<Line> = [0, 0, 0, 0].iter().map(|ms| at(*ms, 200, 1)).collect();
    let throttle = r#"{"flowRules": [{"resource": "pay", "id": "t", "count": 10, "controlBehavior": "throttle", "maxQueueingTimeMs": 150}]}"#;
    let report = replay(throttle, &log(&lines));
    assert_eq!(
        (
            report.passed,
            report.waited,
            report.waited_ms,
            report.longest_wait_ms
        ),
        (2, 1, 100, 100)
    );
    assert_eq!(
        (
            report.rules[0].waited,
            report.rules[0].no_suggestion.as_deref()
        ),
        (1, Some("it does not only reject"))
    );
    let system = r#"{"systemRules": [{"qps": 3, "id": "s"}]}"#;
    let report = replay(system, &log(&traffic(1, 100, 5, 2)));
    assert_eq!(
        (report.refused > 50, report.rules[0].refused),
        (true, report.refused)
    );
}

#[test]
fn a_rule_in_shadow_mode_refuses_nothing_and_says_what_it_would_have() {
    let document = r#"{"flowRules": [{"resource": "login", "count": 100}, {"resource": "login", "count": 5, "mode": "shadow"}]}"#;
    let lines: Vec<Line> = (0..20).map(|ms| line(ms, "login", "10.0.0.1")).collect();
    let report = replay(document, &log(&lines));
    let of = |i: usize| {
        (
            report.rules[i].id.as_str(),
            report.rules[i].shadow,
            report.rules[i].refused,
        )
    };
    assert_eq!(
        (of(0), of(1)),
        (("login", false, 0), ("login/shadow", true, 15))
    );
    assert_eq!((report.refused, report.passed), (0, 20));
}

#[test]
fn each_format_tells_the_same() {
    let lines = traffic(3, 500, 10, 20);
    let path = |line: &Line| format!("/{}?x=1", line.route);
    let clf = |ms: u64| {
        format!(
            "01/Oct/2026:{:02}:{:02}:{:02} +0000",
            ms / 3_600_000,
            ms / 60_000 % 60,
            ms / 1000 % 60
        )
    };
    type Written<'a> = (&'a str, Option<&'a str>, Box<dyn Fn(&Line) -> String + 'a>);
    let formats: [Written<'_>; 6] = [
        ("istio", None, Box::new(istio)),
        (
            "envoy",
            None,
            Box::new(|line| {
                format!(
                    "[{}] \"GET {} HTTP/2\" 200 - 0 5 {} 1 \"6.6.6.6, {}\" \"curl/8\" \"id\" \"a.example\" \"10.9.9.9:80\"\n",
                    iso(line.ms),
                    path(line),
                    line.duration,
                    line.client
                )
            }),
        ),
        (
            "caddy",
            None,
            Box::new(|line| {
                format!(
                    "{{\"level\":\"info\",\"ts\":{}.{:03},\"request\":{{\"client_ip\":\"{}\",\"method\":\"GET\",\"uri\":\"{}\",\"headers\":{{\"User-Agent\":[\"curl/8\"]}}}},\"duration\":0,\"status\":200}}\n",
                    (START_MS + line.ms) / 1000,
                    line.ms % 1000,
                    line.client,
                    path(line)
                )
            }),
        ),
        (
            "fields",
            Some("time=$.at client=$.from.ip path=$.url"),
            Box::new(|line| {
                format!(
                    "{{\"at\":{},\"from\":{{\"ip\":\"{}\"}},\"url\":\"{}\"}}\n",
                    START_MS + line.ms,
                    line.client,
                    path(line)
                )
            }),
        ),
        (
            "fields",
            Some("$remote_addr|$msec|$request_uri"),
            Box::new(|line| {
                format!(
                    "{}|{}.{:03}|{}\n",
                    line.client,
                    (START_MS + line.ms) / 1000,
                    line.ms % 1000,
                    path(line)
                )
            }),
        ),
        (
            "combined",
            None,
            Box::new(|line| {
                format!(
                    "{} - - [{}] \"GET {} HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n",
                    line.client,
                    clf(line.ms),
                    path(line)
                )
            }),
        ),
    ];
    let expected = replay(LIMITS, &log(&lines));
    for (name, fields, written) in formats {
        let options = Options {
            format: fields.map(|fields| Format::of_fields(fields).unwrap()),
            routes: vec![
                ("/login".into(), "login".into()),
                ("/api".into(), "api".into()),
            ],
            ..Options::default()
        };
        let log: String = lines.iter().map(&*written).collect();
        let report = replay_with(LIMITS, log.as_bytes(), options);
        assert_eq!((report.format.as_str(), report.skipped.count), (name, 0));
        if name == "combined" {
            assert_eq!(
                report.notes,
                [
                    "The log has times in whole seconds: all requests of a second count as if they came at its beginning. A limit in an interval of a few seconds may refuse more here, or less, than it would have."
                ]
            );
            continue;
        }
        assert_eq!(
            (report.refused, &report.series),
            (expected.refused, &expected.series),
            "{name}"
        );
    }
}

#[test]
fn apis_are_found_by_path_method_and_host() {
    let document = r#"{"apiDefinitions": [{"apiName": "auth", "predicateItems": [{"pattern": "/login", "method": "GET", "host": "a.example"}]}],
        "flowRules": [{"resource": "auth", "id": "auth", "count": 2}]}"#;
    let mut lines: Vec<Line> = (0..5).map(|ms| line(ms, "login", "10.0.0.1")).collect();
    lines.extend((0..5).map(|ms| line(ms, "other", "10.0.0.1")));
    let report = replay(document, &log(&lines));
    assert_eq!((report.refused, report.rules[0].requests), (3, 5));
}

#[test]
fn addresses_of_one_ipv6_network_are_one_client() {
    let document =
        r#"{"flowRules": [{"resource": "login", "id": "r", "count": 2, "key": ["clientIp"]}]}"#;
    let lines: Vec<Line> = (0..9)
        .map(|i| line(i, "login", &format!("[2001:db8::{i}]")))
        .collect();
    let report = replay(document, &log(&lines));
    assert_eq!(report.refused, 7);
    let found = report.rules[0].suggestion.unwrap();
    assert_eq!((found.count, found.refused_with_one_less), (9, Some(1)));
}

#[test]
fn lines_that_are_broken_are_counted_and_told() {
    let mut log = log(&traffic(1, 30, 3, 50));
    log += "half a line {\n\n";
    log += &istio(&line(100, "login", "10.0.0.1")).replace("2026-10-01", "yesterday");
    log += "{\"route_name\":\"login\"}\n";
    log += &("x".repeat(70_000) + "\n");
    log += &istio(&line(1600, "login", "10.0.0.1"));
    let report = replay(LIMITS, &log);
    let told: Vec<(u64, &str)> = report
        .skipped
        .first
        .iter()
        .map(|line| (line.line, &*line.why))
        .collect();
    let expected = [
        (31, "it is not a JSON object"),
        (33, "its time cannot be read"),
        (34, "it has no time"),
        (35, "it is longer than 65536 bytes"),
    ];
    assert_eq!((report.skipped.count, &told[..]), (4, &expected[..]));
    assert_eq!((report.lines, report.requests), (35, 31));
}

#[test]
fn one_line_of_a_wrong_time_does_not_make_the_others_late() {
    let mut lines: Vec<String> = traffic(1, 50, 3, 50).iter().map(istio).collect();
    lines[20] = lines[20].replace("2026", "2036");
    let report = replay(LIMITS, &lines.concat());
    assert_eq!(
        (report.late, report.requests, report.skipped.count),
        (0, 49, 1)
    );
    assert_eq!(
        report.skipped.first[0].why,
        "its time is more than a day ahead of the lines around it"
    );
    // Two of them are the next day.
    let day = |line: &String| line.replace("2026-10-01", "2026-10-03");
    let later: Vec<String> = lines
        .iter()
        .filter(|line| line.contains("2026"))
        .map(day)
        .collect();
    let report = replay(LIMITS, &(lines.concat() + &later.concat()));
    assert_eq!(
        (report.late, report.requests, report.skipped.count),
        (0, 98, 1)
    );
}

#[test]
fn a_line_more_than_a_minute_behind_is_decided_at_the_newest_time_and_told() {
    let lines = [
        line(200_000, "login", "10.0.0.1"),
        line(139_999, "login", "10.0.0.1"),
        line(200_001, "login", "10.0.0.1"),
        line(140_001, "login", "10.0.0.1"),
    ];
    let report = replay(
        r#"{"flowRules": [{"resource": "login", "count": 2}]}"#,
        &log(&lines),
    );
    assert_eq!((report.late, report.refused), (1, 1));
    assert_eq!(
        report.notes,
        [
            "1 request more than a minute behind a later one counts at the newest time: give the files in order of time, and the logs of several machines one by one."
        ]
    );
}

#[test]
fn what_a_log_lacks_is_said_once_and_its_rules_are_not_replayed() {
    let document = r#"{"flowRules": [
        {"resource": "login", "id": "a", "count": 1, "key": [{"header": "x-api-key"}]},
        {"resource": "api", "id": "b", "count": 1},
        {"resource": "login", "id": "c", "count": 1, "grade": "concurrency"},
        {"resource": "login", "id": "d", "count": 1, "limitApp": "app"},
        {"resource": "login", "id": "e", "count": 1, "key": [{"jwtClaim": "sub"}]},
        {"resource": "login", "id": "f", "count": 1000}],
        "degradeRules": [{"resource": "login", "id": "g", "count": 1, "timeWindow": 1}],
        "envoy": {"origin": {"from": "peer"}}}"#;
    let log =
        "1.2.3.4 - - [01/Oct/2026:00:00:00 +0000] \"GET /login HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n";
    let options = Options {
        routes: vec![("/login".into(), "login".into())],
        ..Options::default()
    };
    let report = replay_with(document, log.as_bytes(), options);
    let told: Vec<(&str, Option<&str>)> = report
        .rules
        .iter()
        .map(|rule| (&*rule.id, rule.not_replayed.as_deref()))
        .collect();
    assert_eq!(
        told,
        [
            ("g", Some("the log does not say how long requests took")),
            ("a", Some("the log does not have `header:x-api-key`")),
            (
                "b",
                Some(
                    "the log does not say which requests are for `api`; say so with --route, as in `--route /api=api`"
                )
            ),
            ("c", Some("the log does not say how long requests took")),
            ("d", Some("the log does not have `peer`")),
            ("e", Some("the log does not have `jwtClaim:sub`")),
            ("f", None),
        ]
    );
    assert_eq!((report.rules[6].requests, report.refused), (1, 0));
}

#[test]
fn a_log_of_another_format_is_one_sentence() {
    let (rules, settings) = rules(LIMITS);
    for log in [
        "Oct  1 00:00:00 host sshd[1]: Accepted\n",
        "\u{1}\u{2}binary",
    ] {
        let mut replay = Replay::new(rules.clone(), settings.clone(), Options::default()).unwrap();
        let error = replay
            .feed(log.as_bytes())
            .and_then(|()| replay.finish().map(|_| ()))
            .unwrap_err();
        let shown: String = log
            .trim()
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        assert_eq!(
            error,
            format!(
                "the log has none of the formats that are known (its first line begins `{shown}`); say which values stand where with --fields, or name the format with --format: istio, caddy, envoy, istio-text, combined, common, nginx-json"
            )
        );
    }
    let report = replay(LIMITS, "");
    assert_eq!((report.lines, report.requests), (0, 0));
    assert_eq!(text(&report), "The log has no lines.\n");
}

#[test]
fn the_report_in_words_has_its_parts() {
    let mut lines = traffic(5, 3000, 30, 20);
    for line in &mut lines {
        line.route = "login";
    }
    let report = replay(
        r#"{"flowRules": [{"resource": "login", "id": "clients", "count": 3, "key": ["clientIp"]}]}"#,
        &log(&lines),
    );
    let words = text(&report);
    let parts = [
        "3,000 lines of the format `istio`, over ",
        "  clients (flow): at most 3 requests in any second, over all workers; keyed by the client's address (of IPv6 the first 64 bits): each has its own 3\n",
        "the smallest count that refuses fewer than 1 %, by itself: ",
        "Over time, a bar is ",
        "Refused most often:\n",
        "22 of 29 clients would have been refused at least once. By their user agents, which anybody can choose:\n",
        " say that they are tools or crawlers, with 100.0 % of the refusals\n",
    ];
    for part in parts {
        assert!(words.contains(part), "{part:?} is missing in\n{words}");
    }
}
