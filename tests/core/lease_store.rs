//! A store's half of leases. The script for Redis decides alike: `tests/store/` asks both the same.

use fastrand::Rng;
use leapgate::lease::{Answer, KeyState, Report, Request, Settlement, Store, Terms};
use leapgate::stats::Window;
use std::collections::HashMap;

/// When the rows of a test begin.
const START: u64 = 1_800_000_000_000;

/// At most so many in a second, in 10 buckets; a lease lasts for at most 200 ms, and nothing counts for longer than 1300 ms.
fn terms(limit: u64) -> Terms {
    Terms::new(limit, Window::new(1000, 10).unwrap())
}

/// A key of an old store, and its requests at times since `START`.
struct Key {
    state: KeyState,
    limit: u64,
    seq: u64,
    /// What each node was told of its part, in the latest answer that it has heard.
    told: HashMap<u64, u64>,
}

impl Key {
    fn new(limit: u64) -> Key {
        let state = KeyState::missing(&terms(limit), START, u64::MAX);
        let (seq, told) = (0, HashMap::new());
        Key { state, limit, seq, told }
    }

    /// What a node asks.
    fn request(&mut self, node: u64, want: u64, settlements: &[Settlement]) -> Request {
        self.seq += 1;
        Request {
            seq: self.seq,
            node,
            nodes: self.told.get(&node).copied().unwrap_or(0),
            terms: terms(self.limit),
            ttl_ms: 200,
            want,
            need: want.min(1),
            settlements: settlements.to_vec(),
        }
    }

    fn run(&mut self, request: &Request, at: u64) -> Answer {
        self.state.lease(request, START + at)
    }

    fn ask(&mut self, node: u64, at: u64, want: u64, settlements: &[Settlement]) -> Answer {
        let request = self.request(node, want, settlements);
        let answer = self.run(&request, at);
        self.told.insert(node, answer.nodes);
        answer
    }

    /// What there would be at a time.
    fn room(&mut self, at: u64) -> u64 {
        self.ask(99, at, 0, &[]).remaining
    }
}

/// `n` of a lease were used so long ago.
fn used(id: u64, seq: u64, closes: bool, age_ms: u64, n: u64) -> Settlement {
    let used = vec![Report { age_ms, n }];
    Settlement {
        id,
        seq,
        closes,
        used,
    }
}

fn granted(answer: &Answer) -> (u64, u64, u64) {
    (answer.granted, answer.retry_ms, answer.remaining)
}

#[test]
fn permits_that_are_out_count_in_full_and_when_their_time_is_over_as_used() {
    let mut key = Key::new(100);
    assert_eq!(granted(&key.ask(1, 0, 60, &[])), (60, 0, 40));
    assert_eq!(granted(&key.ask(2, 50, 60, &[])), (40, 150, 0));
    // The first lease is over at 200 ms: its permits count as used then, until that bucket has left the window.
    assert_eq!(granted(&key.ask(3, 199, 1, &[])), (0, 1, 0));
    assert_eq!(granted(&key.ask(3, 200, 1, &[])), (0, 50, 0));
    assert_eq!(granted(&key.ask(3, 250, 1, &[])), (0, 1050, 0));
    assert_eq!(granted(&key.ask(3, 1299, 1, &[])), (0, 1, 0));
    assert_eq!(granted(&key.ask(3, 1300, 100, &[])), (100, 0, 0));
}

#[test]
fn what_is_settled_counts_from_its_age_on_and_only_closing_gives_the_rest_back() {
    let mut key = Key::new(100);
    let lease = key.ask(1, 100, 60, &[]).id;
    assert_eq!(key.room(190), 40);
    // Ten were used at 110 ms, and count until that bucket, of 100 ms to 200 ms, has left.
    let ten = used(lease, 1, false, 80, 10);
    assert_eq!(key.ask(1, 190, 0, &[ten]).remaining, 40);
    let five = used(lease, 2, true, 0, 5);
    assert_eq!(key.ask(1, 250, 0, &[five]).remaining, 85);
    for (at, room) in [(1199, 85), (1200, 95), (1299, 95), (1300, 100)] {
        assert_eq!(key.room(at), room, "at {at}");
    }
}

#[test]
fn what_was_seen_and_leases_that_are_not_the_nodes_change_nothing() {
    let mut key = Key::new(100);
    let lease = key.ask(1, 0, 60, &[]).id;
    assert_eq!(key.ask(1, 10, 0, &[used(lease, 2, false, 0, 5)]).remaining, 40);
    for (node, what, settlement) in [
        (1, "seen", used(lease, 2, true, 0, 5)),
        (1, "older", used(lease, 1, true, 0, 5)),
        (1, "unknown", used(lease + 1, 9, true, 0, 5)),
        (2, "of another node", used(lease, 9, true, 0, 5)),
    ] {
        assert_eq!(key.ask(node, 20, 0, &[settlement]).remaining, 40, "{what}");
    }
    // The lease is over: all that was not settled is used.
    assert_eq!(key.ask(1, 200, 0, &[used(lease, 9, true, 0, 0)]).remaining, 40);
}

#[test]
fn a_node_that_says_that_it_used_more_than_it_had_is_charged_for_all_of_it() {
    let mut key = Key::new(100);
    let lease = key.ask(1, 0, 10, &[]).id;
    assert_eq!(key.ask(1, 10, 0, &[used(lease, 1, true, 0, 30)]).remaining, 70);
}

#[test]
fn a_report_counts_over_the_limit_and_once() {
    let mut key = Key::new(100);
    for (node, seq, room) in [(1, 1, 20), (1, 1, 20), (1, 2, 0), (2, 1, 0)] {
        let answer = key.ask(node, 0, 0, &[used(0, seq, false, 50, 80)]);
        assert_eq!(answer.remaining, room, "node {node}, {seq}");
    }
    // Reported were 240. They were admitted before the clock's 0 here, a bucket earlier.
    assert_eq!((key.room(999), key.room(1000)), (0, 100));
}

#[test]
fn nothing_is_granted_that_is_less_than_what_is_needed() {
    let mut key = Key::new(100);
    key.ask(1, 0, 95, &[]);
    let ask = |want, need| Request {
        seq: 3,
        node: 2,
        nodes: 0,
        terms: terms(100),
        ttl_ms: 200,
        want,
        need,
        settlements: Vec::new(),
    };
    assert_eq!(granted(&key.state.lease(&ask(20, 6), START)), (0, 200, 5));
    assert_eq!(granted(&key.state.lease(&ask(20, 101), START)), (0, 1000, 5));
    assert_eq!(granted(&key.state.lease(&ask(20, 5), START)), (5, 200, 0));
}

#[test]
fn without_permits_that_are_out_there_is_room_after_the_time_that_was_said_and_not_before() {
    let mut refusals = 0;
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let limit = rng.u64(1..50);
        let (mut key, mut now) = (Key::new(limit), 0);
        for seq in 1..100 {
            now += rng.u64(..200);
            let need = rng.u64(1..=limit);
            let mut state = key.state.clone();
            let mut request = Request {
                seq: 3,
                node: 1,
                nodes: 0,
                terms: terms(limit),
                ttl_ms: 200,
                want: need,
                need,
                settlements: vec![used(0, seq, false, rng.u64(..300), rng.u64(..limit))],
            };
            let answer = state.lease(&request, START + now);
            if answer.granted == 0 {
                refusals += 1;
                request.settlements.clear();
                for (at, expected) in [(answer.retry_ms - 1, 0), (answer.retry_ms, need)] {
                    let answer = state.clone().lease(&request, START + now + at);
                    assert_eq!(answer.granted, expected, "seed {seed}, {at} after {now}");
                }
                key.state = state;
            }
        }
    }
    assert!(refusals > 10_000, "only {refusals} were refused");
}

#[test]
fn the_parts_of_all_nodes_are_together_at_most_the_limit() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let limit = [1, 7, 100, 99_999, 1 << 28][rng.usize(..5)];
        let nodes = [2, 5, 40, 1100][rng.usize(..4)];
        let (mut key, mut now) = (Key::new(limit), 0);
        let (mut parts, mut late) = (HashMap::new(), Vec::new());
        for _ in 0..2000 {
            now += rng.u64(..20);
            let node = rng.u64(..nodes);
            let request = key.request(node, 0, &[]);
            let told = key.run(&request, now).nodes;
            if rng.u64(..4) == 0 {
                late.push(request);
            }
            // Answers are lost, some in a row, and requests arrive twice, the second time late.
            if rng.u64(..3) == 0 {
                parts.entry(node).and_modify(|(seen, _)| *seen = now);
            } else {
                key.told.insert(node, told);
                parts.insert(node, (now, limit.checked_div(told).unwrap_or(0)));
            }
            if rng.u64(..8) == 0 && !late.is_empty() {
                let request = late.swap_remove(rng.usize(..late.len()));
                key.run(&request, now);
            }
            // Of the nodes that were met in the time for which anything counts.
            parts.retain(|_, (seen, _)| now - *seen < terms(1).memory_ms());
            let sum: u64 = parts.values().map(|(_, part)| part).sum();
            assert!(sum <= limit, "seed {seed}: {sum} of {limit} at {now}");
        }
    }
}

#[test]
fn a_part_is_given_to_another_node_when_the_one_that_had_it_has_heard_of_it() {
    let mut key = Key::new(100);
    let mut told = |node, at| key.ask(node, at, 0, &[]).nodes;
    // A part is one of so many; 0 is none.
    assert_eq!((told(1, 0), told(2, 1)), (1, 0));
    // As far as the store knows, the first node still has the whole.
    assert_eq!((told(1, 2), told(2, 3)), (2, 0));
    assert_eq!((told(1, 4), told(2, 5)), (2, 2));
    // However many answers are lost.
    let mut key = Key::new(100);
    key.ask(1, 0, 0, &[]);
    for at in 1..9 {
        let lost = key.request(1, 0, &[]);
        let answer = key.run(&lost, at);
        assert_eq!((answer.nodes, key.ask(2, at, 0, &[]).nodes), (if at == 1 { 1 } else { 2 }, 0));
    }
}

#[test]
fn nodes_that_stay_get_equal_parts() {
    let mut key = Key::new(100);
    for round in 0..8 {
        for node in 0..3 {
            let told = key.ask(node, round * 100, 0, &[]).nodes;
            assert!(round < 7 || told == 3, "node {node} is told {told}");
        }
    }
}

#[test]
fn a_clock_that_steps_back_stands_still_and_one_that_steps_forward_shortens_once() {
    let mut key = Key::new(100);
    key.ask(1, 5000, 0, &[used(0, 1, false, 0, 100)]);
    for (at, room) in [(0, 0), (5000, 0), (6099, 0), (6100, 100)] {
        assert_eq!(key.room(at), room, "at {at}");
    }
    let lease = key.ask(1, 3000, 10, &[]);
    assert_eq!(lease.id, (START + 6100) * 1000);
}

#[test]
fn a_key_that_is_missing_in_a_young_store_is_full_for_as_long_as_anything_may_count() {
    // In so old a store, a window, a bucket and the longest lease of 200 ms: 1300 ms.
    for (uptime_ms, full_for) in [(0, 1300), (1, 1299), (1299, 1), (1300, 0), (u64::MAX, 0)] {
        let mut key = Key::new(100);
        key.state = KeyState::missing(&terms(100), START, uptime_ms);
        if full_for > 0 {
            let answer = key.ask(1, 0, 1, &[]);
            assert_eq!(granted(&answer), (0, full_for, 0), "{uptime_ms} ms old");
            assert_eq!(key.ask(1, full_for - 1, 1, &[]).granted, 0);
        }
        assert_eq!(key.ask(1, full_for, 1, &[]).granted, 1, "{uptime_ms} ms old");
    }
}

#[test]
fn a_key_is_forgotten_when_nothing_of_it_counts_and_not_before() {
    let mut store = Store::default();
    let mut ask = |at, want| {
        let request = format!("1-3-7-0-100-1000-10-200-{want}-1");
        let answer = store.lease("key", &request, START + at, u64::MAX).unwrap();
        Answer::parse(&answer).unwrap()
    };
    let first = ask(0, 100);
    assert_eq!(granted(&ask(1299, 100)), (0, 1, 0));
    // The lease was over at 200 ms. What was asked at 1299 ms has left nothing behind.
    assert_eq!(granted(&ask(1299 + 1300, 100)), (100, 0, 0));
    let second = ask(1299 + 1300 + 1, 1);
    assert_eq!((second.id, second.granted), (0, 0));
    // An id is never used again, also by a store that has forgotten the key.
    assert_eq!(first.id, START * 1000);
    let mut other = Store::default();
    let later = other.lease("key", "1-3-7-0-100-1000-10-200-1-1", START + 1, u64::MAX);
    assert!(Answer::parse(&later.unwrap()).unwrap().id > first.id);
}

#[test]
fn a_sum_that_has_met_the_highest_number_does_not_forget_what_is_left_of_it() {
    let mut key = Key::new(Terms::MAX_LIMIT);
    for (seq, at) in [(1, 0), (2, 100), (3, 200)] {
        key.ask(1, at, 0, &[used(0, seq, false, 0, Terms::MAX_LIMIT)]);
    }
    for (at, room) in [(1100, 0), (1200, 0), (1299, 0), (1300, Terms::MAX_LIMIT)] {
        assert_eq!(key.room(at), room, "at {at}");
    }
}

/// How many numbers a state has.
fn size(state: &KeyState) -> usize {
    state.to_text().split('-').count()
}

#[test]
fn a_key_is_bounded_whatever_nodes_say() {
    let mut rng = Rng::with_seed(1);
    let mut key = Key::new(Terms::MAX_LIMIT);
    for i in 0..6000 {
        let node = rng.u64(..2000);
        let settlements = [used(0, i, false, rng.u64(..2000), rng.u64(..=Terms::MAX_LIMIT / 9000))];
        let answer = key.ask(node, i / 100, 1, &settlements);
        assert_eq!(answer.granted, u64::from(i < 4096), "request {i}");
        if i == 4096 {
            // Until the first of them is over.
            assert_eq!(answer.retry_ms, 200 - 40);
        }
    }
    assert!(size(&key.state) <= 6 + 2 * 11 + 5 * 4096 + 6 * 1024);
    // By nodes that mistake the key: it has the buckets of one window, never of several.
    for (i, interval_ms) in (1..=200).cycle().take(2000).enumerate() {
        let window = Window::new(interval_ms, interval_ms as u32).unwrap();
        let request = Request {
            seq: 3,
            node: 1,
            nodes: 0,
            terms: Terms::new(5, window),
            ttl_ms: 1,
            want: 0,
            need: 0,
            settlements: vec![used(0, 6001 + i as u64, false, i as u64 % 200, 1)],
        };
        key.state.lease(&request, START + 10_000 + i as u64);
        assert!(size(&key.state) <= 6 + 2 * 201 + 6 * 1024, "{i}");
    }
}

#[test]
fn a_snapshot_is_the_state() {
    let mut rng = Rng::with_seed(2);
    let mut key = Key::new(1000);
    let mut leases = vec![1];
    for i in 0..500 {
        let lease = leases[rng.usize(..leases.len())];
        let settlement = used(lease, i, rng.bool(), rng.u64(..500), rng.u64(..9));
        leases.push(key.ask(rng.u64(..5), i * 7, rng.u64(..9), &[settlement]).id);
        let text = key.state.to_text();
        assert_eq!(KeyState::parse(&text).as_ref(), Some(&key.state), "{text}");
        for text in [&text[1..], &text[..text.len() - 1], &format!("{text}-1"), &text.replace('-', "+")] {
            // A digit less may be another state; a number less or more is none.
            let is_whole = text.split('-').count() == size(&key.state);
            assert!(is_whole || KeyState::parse(text).is_none(), "{text}");
        }
    }
    for text in ["", "1", "1-2-3-0-0", "1-2-3-9007199254740991-0-0", "1-2-3-0-0-1-4-5-6", "a"] {
        assert_eq!(KeyState::parse(text), None, "{text}");
    }
}

#[test]
fn what_is_not_a_request_is_refused() {
    let request = "1-3-7-0-100-1000-10-200-5-1-4-2-1-1-30-5";
    assert_eq!(Request::parse(request).unwrap().to_text(), request);
    for text in [
        "",
        "-",
        "1",
        "hello",
        "1-3-7-0-100-1000-10-200-5",
        "1-3-7-0-100-1000-10-200-5-",
        "1-3-7-0-100-1000-10-200-5-+1",
        "2-3-7-100-1000-10-200-5-1",
        "1-3-9007199254740992-0-100-1000-10-200-5-1",
        "1-3-7-0-100-0-10-200-5-1",
        "1-3-7-0-100-1000-0-200-5-1",
        "1-3-7-0-100-1000-3-200-5-1",
        "1-3-7-0-100-1001-1001-200-5-1",
        "1-3-7-0-100-1000-10-0-5-1",
        "1-3-7-0-100-1000-10-201-5-1",
        "1-3-7-0-100-1000-10-200-5-6",
        "1-3-7-0-100-1000-10-200-5-1-4",
        "1-3-7-0-100-1000-10-200-5-1-4-2-1-2-30-5",
        "1-3-7-0-100-1000-10-200-5-1-4-2-1-9007199254740991-30-5",
    ] {
        assert_eq!(Request::parse(text), None, "{text}");
    }
    let long = |n| format!("{request}{}", "-1-1-1-0".repeat(n));
    assert!(Request::parse(&long(252)).is_some(), "1023 numbers");
    assert_eq!(Request::parse(&long(253)), None, "1027 numbers");
}
