//! Leases from envoyproxy/ratelimit: the messages, and a service in virtual time with clocks of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use leapgate::Timestamp;
use leapgate::lease::{Answer, Message, Moment, Node, Request, Taken, Terms, WhenDown};
use leapgate::stats::Window;
use leapgate_envoy::rls::{Heard, Service};

const MINUTE: u64 = 60_000;

fn at(millis: u64) -> Moment {
    let now = Timestamp::from_millis(millis);
    Moment {
        monotonic: now,
        wall: now,
    }
}

fn service(domain: &str, rule: &str, parts: &[&str]) -> Service {
    let parts = parts.iter().map(|part| (*part).into()).collect();
    Service::new(domain, rule, parts, MINUTE).unwrap()
}

fn message(key: &[u8], want: u64, settlements: &str) -> Message {
    Message {
        token: 1,
        key: key.to_vec(),
        text: format!(
            "1-3-7-0-1000-60000-100-3000-{want}-{}{settlements}",
            want.min(1)
        ),
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn a_request_has_the_bytes_that_go_writes() {
    let asked = |service: &Service, message: &Message| service.ask(message, false, at(0)).unwrap();
    assert_eq!(
        asked(
            &service("rls", "m1000", &[]),
            &message(b"m1000:60000:100", 100, "")
        ),
        bytes("0a03 726c73 120f 0a0d 0a04 72756c65 1205 6d31303030 1864")
    );
    // Two parts, of which the request lacks the second; and a value with a colon and a percent sign in it.
    let of_key = service("rls", "a:b", &["clientIp", "header:x"]);
    assert_eq!(
        asked(
            &of_key,
            &message(b"a%3Ab:60000:20:2001%3Adb8%3A%3A%2564:%", 300, "")
        ),
        bytes(
            "0a03 726c73 1239
             0a0b 0a04 72756c65 1203 613a62
             0a1b 0a08 636c69656e744970 120f 323030313a6462383a3a25323536 34
             0a0d 0a08 6865616465723a78 1201 25
             18ac02"
        )
    );
}

#[test]
fn what_was_admitted_in_this_window_without_the_service_takes_hits_too() {
    let mut service = service("rls", "m1000", &[]);
    let hits = |service: &Service, want, reports| {
        let message = message(b"m1000:60000:100", want, reports);
        let asked = service.ask(&message, false, at(110_000)).ok()?;
        Some(asked[asked.len() - 2..].to_vec())
    };
    let reports = "-0-1-0-3-500-20-13900-30-59999-40";
    assert_eq!(hits(&service, 7, reports), Some(vec![0x18, 97]));
    assert_eq!(
        hits(&service, 0, "-0-2-0-2-0-9-60000-1"),
        Some(vec![0x18, 9])
    );
    // The service counts in 32 bits: there is no lease of more.
    for want in [0, 1 << 32] {
        assert_eq!(hits(&service, want, ""), None);
    }
    // This window ends after 156 s: it began after 96 s, 14 s ago at most.
    service
        .heard(&ok_with_reset(57), 1000, at(100_000), at(100_002))
        .unwrap();
    assert_eq!(hits(&service, 7, reports), Some(vec![0x18, 57]));
    assert_eq!(hits(&service, 0, "-0-2-0-1-14000-9"), None);
}

#[test]
fn the_service_has_units_and_no_other_windows() {
    let has = |seconds: u64| Service::new("rls", "api", Vec::new(), seconds * 1000).is_some();
    let day = 86_400;
    for seconds in [60, 3600, day, 7 * day, 30 * day, 365 * day] {
        assert!(has(seconds), "{seconds}");
    }
    for seconds in [1, 10, 59, 61, 120, 2 * day, 31 * day] {
        assert!(!has(seconds), "{seconds}");
    }
}

/// What the response means to a request that was sent after 100 s and took 2 ms.
fn heard(service: &mut Service, response: &[u8]) -> Result<Heard, String> {
    service.heard(response, 1000, at(100_000), at(100_002))
}

const OK_900_LEFT: &str = "0801 1210 0801 1205 08e8071002 188407 2202 0818";

fn refusal(retry_ms: u64) -> Answer {
    Answer {
        retry_ms,
        ..Answer::default()
    }
}

#[test]
fn permits_last_until_the_earliest_end_of_their_window_and_a_refusal_until_the_latest() {
    let granted = Heard {
        answer: Answer {
            granted: u64::MAX,
            remaining: 900,
            ..Answer::default()
        },
        expires_ms: 23_000,
        warning: None,
    };
    let ok = bytes(OK_900_LEFT);
    assert_eq!(heard(&mut service("rls", "m", &[]), &ok), Ok(granted));
    let over = bytes("0802 120d 0802 1205 08e8071002 2202 0817");
    let mut service = service("rls", "m", &[]);
    assert_eq!(heard(&mut service, &over).unwrap().answer, refusal(23_050));
    // In the second in which the window may end, no permits can be had, and the service is not asked.
    let ask_if = |is_down, want, millis| {
        service.ask(&message(b"m:60000:100", want, ""), is_down, at(millis))
    };
    let ask = |millis| ask_if(false, 5, millis);
    assert!(ask(121_999).is_ok());
    assert_eq!(ask(122_000), Err(refusal(1_052)));
    assert_eq!(ask(123_051), Err(refusal(1)));
    assert!(ask(123_052).is_ok());
    // But for one that is not there: that it is back, only its answer says.
    assert_eq!(ask_if(true, 5, 122_000), ask(123_052));
    assert_eq!(ask_if(true, 0, 122_000), ask_if(false, 1, 123_052));
}

/// A response: OK, 900 left, and the reset in so many seconds.
fn ok_with_reset(seconds: u8) -> Vec<u8> {
    let mut response = bytes(OK_900_LEFT);
    *response.last_mut().unwrap() = seconds;
    response
}

#[test]
fn a_grant_that_may_be_of_the_window_before_is_dropped() {
    // The reset, how long the call took, and the answer: for how long there are permits, or when to ask again.
    let cases = [
        (60, 1, Err(1_124)),
        (59, 900, Ok(58_000)),
        (59, 1_100, Err(124)),
        (50, 9_900, Ok(49_000)),
        (50, 10_100, Err(1)),
    ];
    for (reset, took, expected) in cases {
        let mut service = service("rls", "m", &[]);
        let response = ok_with_reset(reset);
        let heard = service.heard(&response, 1000, at(100_000), at(100_000 + took));
        let heard = heard.unwrap();
        let found = match heard.answer {
            Answer {
                granted: u64::MAX, ..
            } => Ok(heard.expires_ms),
            answer => Err(answer.retry_ms),
        };
        assert_eq!(found, expected, "{reset} s, {took} ms");
    }
}

#[test]
fn what_responses_say_together_is_closer() {
    let expires = |calls: &[(u8, u64, u64)]| {
        let mut service = service("rls", "m", &[]);
        let heard = calls.iter().map(|&(reset, sent, received)| {
            let response = ok_with_reset(reset);
            let heard = service.heard(&response, 1000, at(sent), at(received));
            let Heard {
                answer, expires_ms, ..
            } = heard.unwrap();
            (answer.granted > 0).then_some(sent + expires_ms)
        });
        heard.last().unwrap()
    };
    // The window ends at 140,100. Alone, a response may say a second less.
    let mut calls = vec![(40, 100_200, 100_202)];
    assert_eq!(expires(&calls), Some(139_200));
    calls.push((39, 101_990, 101_992));
    assert_eq!(expires(&calls), Some(139_990));
    // Clocks may run apart by 0.1 %.
    calls.push((30, 110_200, 110_202));
    assert_eq!(expires(&calls), Some(139_981));
    calls.push((2, 138_700, 138_702));
    assert_eq!(expires(&calls), Some(139_952));
    // So a message was certainly sent in the next window, though the window is less than a second old.
    let next = |sent, received| [&calls[..], &[(60, sent, received)]].concat();
    assert_eq!(expires(&next(140_260, 140_262)), Some(199_260));
    assert_eq!(expires(&next(140_200, 140_300)), None);
    // After some windows it cannot be known any more.
    assert_eq!(expires(&next(500_260, 500_262)), None);
}

#[test]
fn a_clock_that_was_set_or_stood_still_is_not_trusted() {
    for step in [700, 5_000, 3_600_000] {
        let mut service = service("rls", "m", &[]);
        let first = ok_with_reset(40);
        service
            .heard(&first, 1000, at(100_000), at(100_002))
            .unwrap();
        let stood_still = |moment: Moment| Moment {
            monotonic: moment.monotonic,
            wall: Timestamp::from_millis(moment.wall.as_millis() + step),
        };
        let [sent, received] = [110_500, 110_502].map(|millis| stood_still(at(millis)));
        let heard = service.heard(&ok_with_reset(29), 1000, sent, received);
        assert_eq!(heard.unwrap().expires_ms, 28_000, "{step}");
    }
}

#[test]
fn a_service_without_the_limit_is_said() {
    let lacks = "envoyproxy/ratelimit has no limit of 1000 per minute in the domain `shop` for `rule: api, clientIp`; add it to its configuration";
    let responses = [
        ("an unknown rule", "0801 1202 0801"),
        ("unlimited", "0801 1208 0801 18ffffffff0f"),
        ("quota mode", "0801 1208 0801 1204 0803 1002"),
        (
            "another unit",
            "0801 1210 0801 1204 0807 1007 1805 2204 08c79d11",
        ),
        (
            "a reset beyond the unit",
            "0801 1210 0801 1205 08e8071002 188407 2202 083d",
        ),
    ];
    for (what, response) in responses {
        let mut service = service("shop", "api", &["clientIp"]);
        assert_eq!(
            heard(&mut service, &bytes(response)),
            Err(lacks.into()),
            "{what}"
        );
    }
}

#[test]
fn another_number_there_holds_and_is_said_once() {
    let told = |service: &mut Service, limit| {
        let response = bytes(OK_900_LEFT);
        let heard = service.heard(&response, limit, at(0), at(1)).unwrap();
        assert_eq!(heard.answer.granted, u64::MAX);
        heard.warning
    };
    let lacks = "envoyproxy/ratelimit has no limit of 500 per minute in the domain `shop` for `rule: api`; add it to its configuration";
    let mut alone = service("shop", "api", &[]);
    let warnings = [1000, 500, 500, 1000].map(|limit| told(&mut alone, limit));
    assert_eq!(warnings, [None, Some(lacks.into()), None, None]);
    // A client's key may have a number of its own there.
    let mut of_keys = service("shop", "api", &["clientIp"]);
    assert_eq!(told(&mut of_keys, 500), None);
}

#[test]
fn garbage_is_an_error_and_never_a_panic() {
    let garbage = "the answer is not one of envoyproxy/ratelimit; correct `cluster` or `protocol`";
    let mut service = service("rls", "m", &[]);
    for response in [
        "",
        "00",
        "0803",
        "08",
        "0801 12ff",
        "0801 0b",
        "ffffffffffffffffffffff",
    ] {
        assert_eq!(
            heard(&mut service, &bytes(response)),
            Err(garbage.into()),
            "{response}"
        );
    }
    let mut random = fastrand::Rng::with_seed(13);
    let valid = bytes(OK_900_LEFT);
    for _ in 0..100_000 {
        let mut response = valid.clone();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(..response.len());
            response[place] = random.u8(..);
        }
        response.truncate(random.usize(..=response.len()));
        let _ = heard(&mut service, &response);
        random.fill(&mut response);
        let _ = heard(&mut service, &response);
    }
}

#[test]
fn no_more_than_a_quarter_of_what_is_left_is_asked_for() {
    let window = Window::new(MINUTE, 100).unwrap();
    let terms = Terms::new(1000, window);
    let mut node = Node::new(1, "m", terms, WhenDown::Refuse, 1, [7; 2]);
    let mut wanted = |now, answer: Answer| {
        let asked = (0..500).find_map(|_| node.take(b"", 1, at(now)).1).unwrap();
        node.heard(asked.token, &answer, Some(50_000), at(now));
        Request::parse(&asked.text).unwrap().want
    };
    let granted = |remaining| Answer {
        granted: u64::MAX,
        remaining,
        ..Answer::default()
    };
    assert_eq!(wanted(1_000, granted(999)), 1);
    let grows: Vec<u64> = (0..20).map(|i| wanted(1_010 + i, granted(400))).collect();
    assert_eq!(*grows.last().unwrap(), 100, "{grows:?}");
    assert_eq!(wanted(1_040, granted(40)), 100);
    assert_eq!(wanted(1_041, granted(3)), 10);
    assert_eq!(wanted(1_042, refusal(1)), 1);
    // A refusal says nothing about the window after it.
    assert!(wanted(2_600, granted(1_000)) > 50);
}

/// A clock: so far from the time, and so fast.
#[derive(Clone, Copy)]
struct Clock {
    ahead_ms: f64,
    ppm: f64,
}

impl Clock {
    fn random(random: &mut fastrand::Rng, ppm: f64) -> Clock {
        Clock {
            ahead_ms: random.f64() * 1e9,
            ppm: (random.f64() * 2.0 - 1.0) * ppm,
        }
    }

    fn at(self, ms: f64) -> f64 {
        self.ahead_ms + ms * (1.0 + self.ppm / 1e6)
    }
}

/// A call under way: when it is answered, what the answer is, and of which message.
struct Call {
    arrives: f64,
    response: Option<Vec<u8>>,
    token: u64,
    sent: Moment,
}

struct Proxy {
    node: Node,
    service: Service,
    clock: Clock,
    call: Option<Call>,
    /// How many requests wait for its answer.
    waiting: u64,
}

impl Proxy {
    fn now(&self, ms: f64) -> Moment {
        at(self.clock.at(ms) as u64)
    }

    /// Decides about so many requests. Returns how many pass, and the message that is to be sent.
    fn decide(&mut self, requests: u64, now: Moment) -> (u64, Option<(Message, Vec<u8>)>) {
        let (mut passed, mut sent) = (0, None);
        let mut left = requests;
        while left > 0 {
            let (taken, message) = self.node.take(b"", 1, now);
            if let Some(message) = message {
                match self.service.ask(&message, self.node.is_down(), now) {
                    Ok(request) => sent = Some((message, request)),
                    Err(answer) => {
                        self.node.heard(message.token, &answer, Some(0), now);
                        if taken == Taken::Wait {
                            continue;
                        }
                    }
                }
            }
            left -= 1;
            passed += u64::from(matches!(taken, Taken::Pass { .. }));
            self.waiting += u64::from(taken == Taken::Wait);
        }
        (passed, sent)
    }
}

fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}

fn field(message: &mut Vec<u8>, number: u8, content: &[u8]) {
    message.extend([number << 3 | 2, content.len() as u8]);
    message.extend_from_slice(content);
}

/// The number at the end of a request of the domain `rls`: behind that, the descriptor, and its own tag.
fn hits(request: &[u8]) -> u64 {
    let (_, bytes) = request.split_at(8 + usize::from(*request.get(6).unwrap()));
    let bytes = bytes.iter().rev();
    bytes.fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f))
}

/// The service, which picks a window first, counts later, and reckons the reset last.
struct Counts {
    limit: u64,
    clock: Clock,
    windows: std::collections::HashMap<u64, u64>,
}

impl Counts {
    fn window(&self, ms: f64) -> u64 {
        self.clock.at(ms) as u64 / MINUTE
    }

    /// How many milliseconds of its window are left.
    fn left(&self, ms: f64) -> u64 {
        MINUTE - self.clock.at(ms) as u64 % MINUTE
    }

    fn response(&mut self, hits: u64, key_at: f64, reset_at: f64) -> Vec<u8> {
        let window = self.window(key_at);
        let count = self.windows.entry(window).or_default();
        *count += hits;
        let left = self.limit.checked_sub(*count);
        let (mut status, mut limit, mut reset) = (Vec::new(), Vec::new(), Vec::new());
        let code = if left.is_some() { 1 } else { 2 };
        status.extend([0x08, code]);
        limit.push(0x08);
        varint(&mut limit, self.limit);
        limit.extend([0x10, 2]);
        field(&mut status, 2, &limit);
        status.push(0x18);
        varint(&mut status, left.unwrap_or(0));
        let seconds = self.clock.at(reset_at) as u64 / 1000 % 60;
        reset.extend([0x08, 60 - seconds as u8]);
        field(&mut status, 4, &reset);
        let mut response = vec![0x08, code];
        field(&mut response, 2, &status);
        response
    }
}

/// Plays four proxies against a service for six minutes, and checks each of its windows. Returns what was offered, and what was
/// admitted, in those that are whole.
fn play(seed: u64, limit: u64, per_second: f64, slow: f64, surges: bool) -> (u64, u64) {
    let proxies = 4;
    let mut random = fastrand::Rng::with_seed(seed);
    let window = Window::new(MINUTE, 100).unwrap();
    let mut counts = Counts {
        limit,
        clock: Clock::random(&mut random, 200.0),
        windows: std::collections::HashMap::new(),
    };
    let mut all: Vec<Proxy> = (0..proxies)
        .map(|id| Proxy {
            node: Node::new(
                id,
                "m",
                Terms::new(limit, window),
                WhenDown::Refuse,
                1,
                [7; 2],
            ),
            service: service("rls", "m", &[]),
            clock: Clock::random(&mut random, 200.0),
            call: None,
            waiting: 0,
        })
        .collect();
    let mut spent = std::collections::HashMap::<u64, u64>::new();
    let (mut offered, mut admitted) = (0, 0);
    let [first, last] = [counts.window(0.0), counts.window(6.0 * 60_000.0)];
    let share = per_second / 1000.0 / proxies as f64;
    for step in 0..6 * 60_000 {
        let ms = f64::from(step);
        let window = counts.window(ms);
        let is_whole = window > first && window < last;
        let surge = if surges {
            surge(window, counts.left(ms))
        } else {
            1.0
        };
        for proxy in &mut all {
            let now = proxy.now(ms);
            let mut requests = u64::from(random.f64() < share * surge);
            offered += if is_whole { requests } else { 0 };
            if let Some(call) = proxy.call.take_if(|call| call.arrives <= ms) {
                match call.response {
                    None => drop(proxy.node.lost(call.token, now)),
                    Some(response) => {
                        let heard = proxy
                            .service
                            .heard(&response, limit, call.sent, now)
                            .unwrap();
                        proxy
                            .node
                            .heard(call.token, &heard.answer, Some(heard.expires_ms), now);
                    }
                }
                requests += std::mem::take(&mut proxy.waiting);
            }
            if requests == 0 {
                continue;
            }
            let (passed, sent) = proxy.decide(requests, now);
            *spent.entry(window).or_default() += passed;
            admitted += if is_whole { passed } else { 0 };
            if let Some((message, request)) = sent {
                let mut delay = || {
                    random.f64()
                        * if surges || random.f64() < 0.1 {
                            slow
                        } else {
                            1.0
                        }
                };
                let key_at = ms + delay();
                let reset_at = key_at + delay();
                let arrives = reset_at + delay();
                let response = counts.response(hits(&request), key_at, reset_at);
                let is_lost = arrives - ms > 100.0 || random.f64() < 0.002;
                proxy.call = Some(Call {
                    arrives: if is_lost { ms + 100.0 } else { arrives },
                    response: (!is_lost).then_some(response),
                    token: message.token,
                    sent: now,
                });
            }
        }
    }
    for (window, spent) in spent {
        assert!(spent <= limit, "seed {seed}: {spent} in window {window}");
    }
    (offered, admitted)
}

#[test]
fn never_admits_more_than_the_limit_in_any_window_of_the_service_and_hardly_less() {
    for seed in 0..12 {
        // The slowest of calls take seconds: a tenth is lost, and many are of two windows.
        let (slow, least) = [(1.0, 0.96), (40.0, 0.96), (2_000.0, 0.65)][seed as usize % 3];
        for per_second in [50.0, 10.0, 2.5] {
            let (offered, admitted) = play(seed, 300, per_second, slow, false);
            let share = admitted as f64 / offered.min(5 * 300) as f64;
            assert!(share > least, "seed {seed}: {admitted} of {offered}");
        }
    }
}

/// How much more is offered: little in every other window, but for its end.
fn surge(window: u64, left_ms: u64) -> f64 {
    match (window % 2, left_ms) {
        (0, 200..) => 0.2,
        (0, _) => 100.0,
        _ => 2.0,
    }
}

#[test]
fn never_admits_more_where_much_comes_as_a_window_ends() {
    for seed in 0..12 {
        play(seed, 300, 10.0, 30.0, true);
    }
}
