//! The same random traces through both, in virtual time.

use crate::server::Server;
use fastrand::Rng;
use leapgate::lease::{Answer, REDIS_SCRIPT, Report, Request, Settlement, Store, Terms};
use leapgate::stats::Window;

/// What the script answers to what is not a request.
pub(crate) const BAD: &str = "a request that the script of leapgate does not know: the versions of a node and of its script differ";

/// How many traces are tried, of how many requests.
const TRACES: u64 = if cfg!(debug_assertions) { 30 } else { 300 };
const LENGTH: usize = 1000;

/// The script with the time and the uptime as arguments. The value does not expire by Redis's own clock, and when it should is in
/// front of the answer.
fn script() -> String {
    let mut script = REDIS_SCRIPT.to_string();
    for (real, virtual_) in [
        ("redis.call('TIME')", "{ARGV[2], ARGV[3]}"),
        (
            "redis.pcall('INFO', 'server')",
            "'uptime_in_seconds:' .. ARGV[4]",
        ),
        ("packed, 'PX', expiry)", "packed)"),
        (
            "return string.format('1-",
            "return expiry .. ' ' .. string.format('1-",
        ),
    ] {
        assert_eq!(script.matches(real).count(), 1, "{real}");
        script = script.replace(real, virtual_);
    }
    script
}

/// A request at a time, and what the store in Rust has answered.
struct Step {
    now_ms: u64,
    uptime_s: u64,
    request: String,
    expected: String,
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

/// Nodes that do all that nodes do, and what they should not.
struct Trace {
    rng: Rng,
    window: Window,
    limit: u64,
    nodes: u64,
    /// The leases that were granted: id, node, permits.
    granted: Vec<(u64, u64, u64)>,
    /// Of the latest request.
    seq: u64,
}

impl Trace {
    fn new(seed: u64) -> Trace {
        let mut rng = Rng::with_seed(seed);
        let (interval_ms, buckets) = pick(
            &mut rng,
            &[
                (1000, 20),
                (1000, 100),
                (400, 4),
                (2000, 1),
                (1000, 1000),
                (60_000, 60),
                (1, 1),
                (315_360_000_000, 10),
            ],
        );
        Trace {
            seq: 0,
            window: Window::new(interval_ms, buckets).unwrap(),
            limit: pick(&mut rng, &[0, 1, 5, 50, 5000, Terms::MAX_LIMIT]),
            nodes: pick(&mut rng, &[1, 2, 10, 40, 1500]),
            granted: Vec::new(),
            rng,
        }
    }

    fn terms(&self) -> Terms {
        Terms::new(self.limit, self.window)
    }

    fn amount(&mut self) -> u64 {
        let most = self.limit.clamp(1, Terms::MAX_LIMIT);
        match self.rng.u64(..12) {
            0 => 0,
            1 => Terms::MAX_LIMIT,
            2 => self.rng.u64(..=Terms::MAX_LIMIT),
            3 => most,
            4..8 => 1,
            _ => self.rng.u64(..=(most / 4).min(1000)),
        }
    }

    fn settlement(&mut self) -> Settlement {
        let latest = self.granted.len().saturating_sub(8);
        let (id, permits) = match self.rng.u64(..8) {
            0 => (0, 3),
            1 => (self.rng.u64(..Terms::MAX_LIMIT), 3),
            _ if self.granted.is_empty() => (1, 1),
            2 => {
                let (id, _, permits) = self.granted[self.rng.usize(..self.granted.len())];
                (id, permits)
            }
            _ => {
                let (id, _, permits) = self.granted[self.rng.usize(latest..self.granted.len())];
                (id, permits)
            }
        };
        let interval_ms = self.window.interval_ms();
        let used = (0..self.rng.usize(..4)).map(|_| Report {
            age_ms: match self.rng.u64(..8) {
                0 => self.rng.u64(..=2 * interval_ms),
                1 => Terms::MAX_LIMIT,
                _ => self.rng.u64(..=interval_ms / 4),
            },
            n: match self.rng.u64(..8) {
                0 => self.amount(),
                _ => self.rng.u64(..=permits),
            },
        });
        let used = used.collect();
        Settlement {
            id,
            seq: self.rng.u64(..5),
            closes: self.rng.u64(..3) == 0,
            used,
        }
    }

    fn request(&mut self) -> String {
        if self.rng.u64(..50) == 0 {
            self.limit = match self.rng.u64(..4) {
                0 => 0,
                _ => self
                    .rng
                    .u64(..=self.limit.clamp(10, Terms::MAX_LIMIT / 2) * 2),
            };
        }
        let terms = self.terms();
        let settlements: Vec<_> = (0..self.rng.usize(..4))
            .map(|_| self.settlement())
            .collect();
        // Most settle leases of their own.
        let owner = settlements.first().and_then(|of| {
            let owner = self.granted.iter().find(|(id, ..)| *id == of.id);
            owner.map(|(_, node, _)| *node)
        });
        let any = self.rng.u64(..self.nodes) * 6_004_799_503_160_661 % (1 << 53);
        let want = self.amount();
        self.seq += 1;
        let seq = match self.rng.u64(..20) {
            0 => self.rng.u64(..=self.seq), // late
            1 => Terms::MAX_LIMIT - self.rng.u64(..3),
            _ => self.seq,
        };
        let nodes = match self.rng.u64(..20) {
            0 => self.amount(),
            _ => self.rng.u64(..4),
        };
        let request = Request {
            seq,
            nodes,
            node: owner.filter(|_| self.rng.u64(..10) > 0).unwrap_or(any),
            terms,
            ttl_ms: match self.rng.u64(..40) {
                0 => self.rng.u64(..2 * terms.longest_ttl_ms()),
                _ => self.rng.u64(1..=terms.longest_ttl_ms()),
            },
            want,
            need: match self.rng.u64(..20) {
                0 => want.saturating_add(1).min(Terms::MAX_LIMIT),
                1 => want,
                _ => want.min(1),
            },
            settlements,
        };
        let mut text = request.to_text();
        if let [of] = request.settlements.as_slice()
            && self.rng.u64(..9) == 0
        {
            // Neither left open nor closed.
            let (old, other) = (u64::from(of.closes), self.rng.u64(2..5));
            let (id, seq) = (of.id, of.seq);
            text = text.replacen(
                &format!("-{id}-{seq}-{old}-"),
                &format!("-{id}-{seq}-{other}-"),
                1,
            );
        }
        if self.rng.u64(..30) > 0 {
            return text;
        }
        let other = self.nonsense(&text);
        // The name of a key says its window: another one is of another key.
        match Request::parse(&other).is_none_or(|of| of.terms.with_limit(self.limit) == terms) {
            true => other,
            false => text,
        }
    }

    /// Almost a request.
    fn nonsense(&mut self, text: &str) -> String {
        let mut text = text.to_string();
        let numbers = text.matches('-').count() + 1;
        match self.rng.u64(..8) {
            0 => {
                let numbers = text.matches('-').count() + 1;
                let more = self.rng.usize(1020..1030) - numbers;
                text.push_str(&"-1".repeat(more / 6 * 6));
            }
            1 => {
                let numbers: Vec<_> = text.split('-').collect();
                text = numbers[..self.rng.usize(..numbers.len())].join("-");
            }
            2..5 => {
                // One of the numbers is another.
                let at = self.rng.usize(..numbers);
                let other = pick(
                    &mut self.rng,
                    &[
                        "0",
                        "",
                        "1",
                        "2",
                        "0x1",
                        "1001",
                        "007",
                        "9007199254740991",
                        "9007199254740992",
                        "9007199254740993",
                        "00000000000000000000000000000001",
                        "99999999999999999999999999999999",
                    ],
                );
                let numbers = text.split('-').enumerate();
                let numbers = numbers.map(|(i, n)| if i == at { other } else { n });
                text = numbers.collect::<Vec<_>>().join("-");
            }
            5 => text.insert(
                self.rng.usize(..=text.len()),
                pick(&mut self.rng, &['-', '+', '.', 'e', ' ', '\0', 'é']),
            ),
            6 => text = text[self.rng.usize(..text.len())..].into(),
            _ => text.push_str("-1-2-3-9007199254740991"),
        }
        text
    }

    fn play(&mut self) -> Vec<Step> {
        let mut store = Store::default();
        let memory_ms = self.terms().memory_ms();
        // Ten years are too long to wait for.
        let (interval_ms, wait_ms) = (
            self.window.interval_ms().min(1 << 33),
            memory_ms.min(1 << 33),
        );
        let mut now_ms = self.rng.u64(1_700_000_000_000..1_900_000_000_000);
        let mut steps = Vec::new();
        for _ in 0..LENGTH {
            match self.rng.u64(..200) {
                0 => now_ms += self.rng.u64(..=wait_ms),
                1 => now_ms += wait_ms,
                2 => now_ms += wait_ms + 1,
                3 => now_ms -= self.rng.u64(..=interval_ms),
                4 => now_ms -= self.rng.u64(..10_000).min(4 * interval_ms),
                5..60 => now_ms += self.rng.u64(..=interval_ms / 8),
                60..100 => now_ms += self.rng.u64(..=interval_ms / 40),
                _ => now_ms += self.rng.u64(..3),
            }
            // Whole seconds of a server that is as old as it says, or up to a second younger.
            let uptime_s = match self.rng.u64(..4) {
                0 => self.rng.u64(..=memory_ms / 1000 + 2),
                _ => memory_ms / 1000 + 2,
            };
            let known_for_ms = uptime_s.saturating_sub(1) * 1000;
            let request = self.request();
            let expected = match store.lease("key", &request, now_ms, known_for_ms) {
                Ok(answer) => {
                    let granted = Answer::parse(&answer).unwrap();
                    if granted.id > 0 {
                        let node = Request::parse(&request).unwrap().node;
                        self.granted.push((granted.id, node, granted.granted));
                    }
                    let (_, over_at) = store.snapshot("key").unwrap();
                    format!("{} {answer}", over_at - now_ms)
                }
                Err(_) => BAD.into(),
            };
            steps.push(Step {
                now_ms,
                uptime_s,
                request,
                expected,
            });
        }
        steps
    }
}

/// Asks the script what the store in Rust was asked, about a new key.
fn compare(server: &mut Server, name: &str, steps: &[Step]) {
    let sha1 = server.call(&[b"SCRIPT", b"LOAD", script().as_bytes()]);
    let sha1 = sha1.unwrap();
    for part in steps.chunks(100) {
        for step in part {
            // The clock of Redis is finer.
            let micros = step.now_ms % 1000 * 1000 + step.now_ms % 999;
            server.send(&[
                b"EVALSHA",
                &sha1,
                b"1",
                name.as_bytes(),
                step.request.as_bytes(),
                (step.now_ms / 1000).to_string().as_bytes(),
                micros.to_string().as_bytes(),
                step.uptime_s.to_string().as_bytes(),
            ]);
        }
        for step in part {
            let answer = server.reply().map(|text| String::from_utf8(text).unwrap());
            let Step {
                now_ms,
                request,
                expected,
                ..
            } = step;
            assert_eq!(
                answer.as_ref(),
                Ok(expected),
                "{name}: `{request}` at {now_ms}"
            );
        }
    }
    server.say(&format!("DEL {name}")).unwrap();
}

#[test]
fn the_script_decides_as_the_store_in_rust() {
    let mut server = Server::start(&[]);
    let seed = std::env::var("LEAPGATE_TRACE").ok();
    let seeds = seed.map_or(0..TRACES, |seed| {
        let seed = seed.parse().unwrap();
        seed..seed + 1
    });
    let (mut bad, mut grants) = (0, 0);
    for seed in seeds {
        let mut trace = Trace::new(seed);
        let steps = trace.play();
        compare(&mut server, &format!("LEAPGATE_TRACE={seed}"), &steps);
        bad += steps.iter().filter(|step| step.expected == BAD).count();
        grants += trace.granted.len();
    }
    assert!(bad > 0 && grants > 0, "{bad} were bad, {grants} leased");
}

#[test]
fn tables_of_leases_and_nodes_are_full_at_the_same_request() {
    let mut steps = Vec::new();
    let mut store = Store::default();
    let mut now_ms = 1_800_000_000_000;
    for i in 0..4300 {
        // 4096 leases at once, then those that are there when the first are over; 1024 nodes.
        now_ms += 10 * u64::from(i > 4150);
        let request = format!("1-{i}-{}-0-9000-60000-60-1000-1-1-0-{i}-0-1-0-1", i % 1200);
        let answer = store.lease("key", &request, now_ms, u64::MAX).unwrap();
        let (_, over_at) = store.snapshot("key").unwrap();
        steps.push(Step {
            now_ms,
            uptime_s: 1 << 40,
            request,
            expected: format!("{} {answer}", over_at - now_ms),
        });
    }
    let refused = |step: &Step| step.expected.split('-').nth(2) == Some("0");
    assert_eq!(steps.iter().position(refused), Some(4096));
    assert_eq!(steps[4096].expected, "73000 1-4592-0-0-1000-0-1024");
    assert!(steps[1024].expected.ends_with("-0"), "no place for a node");
    compare(&mut Server::start(&[]), "full", &steps);
}

#[test]
fn a_key_takes_few_bytes() {
    let mut server = Server::start(&[]);
    let script = script();
    for (buckets, nodes, most) in [(20, 1, 240), (20, 10, 800), (100, 1, 440), (100, 10, 1000)] {
        let key = format!("leapgate:login:1000:{buckets}:192.0.2.{nodes}");
        let mut ids = vec![0; nodes];
        // It has been in use for an hour. In each bucket some hundred were used, and each node has a lease.
        for i in (0..360_000).step_by(100).chain(360_000..360_400) {
            let (node, ms) = (i % nodes, i * 10);
            let id = ids[node];
            let request = format!(
                "1-{i}-{}-0-50000-1000-{buckets}-200-50-1-{id}-{i}-1-1-0-50",
                node as u64 * 6_004_799_503_160_661 % (1 << 53),
            );
            let seconds = (1_800_000_000 + ms / 1000).to_string();
            let micros = (ms % 1000 * 1000).to_string();
            let parts = [
                "EVAL", &script, "1", &key, &request, &seconds, &micros, "99999999",
            ];
            let answer = server.call(&parts.map(str::as_bytes)).unwrap();
            let answer = String::from_utf8(answer).unwrap();
            let (_, answer) = answer.split_once(' ').unwrap();
            ids[node] = Answer::parse(answer).unwrap().id;
        }
        // With the name and Redis's own; the entry of its expiry is not in it.
        let bytes = server.say(&format!("MEMORY USAGE {key}")).unwrap();
        let bytes: u64 = bytes.parse().unwrap();
        println!("{bytes} bytes for {buckets} buckets and {nodes} nodes");
        assert!(bytes <= most, "{bytes} bytes are more than {most}");
    }
}
