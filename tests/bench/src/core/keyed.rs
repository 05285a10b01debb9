//! Limits per key, beside governor's: as many keys as there are clients, in an order that no cache foresees.
//!
//! Both hash with SipHash-1-3, governor through the standard library; the row after it gives it the fastest of the seeded
//! hashes. Its store is the one without shards: on one thread the faster one.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use hashbrown::DefaultHashBuilder;
use leapgate::backend::{
    KeyHandle, KeyVerdict, KeyedGeometry, KeyedStates as _, KeyedTerms, KeyedWindows,
};
use leapgate::rule::{Count, Counting, Grade, RuleGeometry, RuleId};
use leapgate::{Limit, Limiter, Timestamp, Verdict};

use super::cases::SetClock;
use crate::statistics::{median, ratio};
use crate::table::{Table, grouped, section};

/// Passes of a key in a second.
const LIMIT: u32 = 100;
/// How many requests of a key come in a second, and what that means.
const RATES: [(u64, &str); 2] = [(50, "pass"), (1000, "nine of ten refused")];
const KEYS: [usize; 3] = [1, 1000, 1_000_000];
const SEED: [u64; 2] = [0x1eaf, 0x9a7e];
/// A clock that has run for a day.
const START_NANOS: u64 = 86_400_000_000_000;
const ROUNDS: usize = 301;
const NANOS_PER_BATCH: f64 = 2e5;

/// One decision for a key at an instant; whether it passed.
type Decide<'a> = Box<dyn Fn(&String, u64) -> bool + 'a>;

struct Peer<'a> {
    name: &'static str,
    decide: Decide<'a>,
    /// Bytes per key, when all of them have come.
    bytes: Box<dyn Fn() -> f64 + 'a>,
    /// Decisions so far.
    done: usize,
    /// By round.
    nanos: Vec<f64>,
}

/// Prints the table.
pub(super) fn run() -> Result<()> {
    section(
        "core: one decision for one of many keys",
        "Default windows of 20 buckets, 100 passes a second for each key. Aim: ahead of governor at each size, at most 64 bytes\n\
         per key. Governor's bytes are those of its table and of the text of its keys, without what the allocator adds.",
    );
    let mut table = Table::new(&[
        "",
        "keys",
        "ns",
        "a second",
        "ns / governor",
        "bytes per key",
    ]);
    for keys in KEYS {
        let names: Vec<String> = (0..keys)
            .map(|i| format!("10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255))
            .collect();
        for (rate, what) in RATES {
            measure(&names, rate, what, &mut table)?;
        }
    }
    table.print();
    section(
        "core: a limiter's hold and settle",
        "The short form with one limit, 20 buckets, 100 a second for each key, of which half are asked for. Aim: at most 2.5 of\n\
         a `limit`.",
    );
    let mut table = Table::new(&["", "keys", "ns", "ns / limit"]);
    for keys in KEYS {
        measure_holds(keys, &mut table)?;
    }
    table.print();
    Ok(())
}

fn measure_holds(keys: usize, table: &mut Table) -> Result<()> {
    let limit = || -> Result<Limiter> {
        let limit = Limit {
            id: RuleId::new("limit")?,
            count: Count::new(f64::from(LIMIT))?,
            window: RuleGeometry::new(1000, Some(20))?,
            counting: Counting::Strict,
        };
        // Its error names a rule, which threads cannot share.
        Limiter::new(vec![limit], keys, SEED).map_err(|error| anyhow!("{error}"))
    };
    let (limiting, holding) = (limit()?, limit()?);
    let names: Vec<String> = (0..keys).map(|i| format!("client {i}")).collect();
    let key = |limiter: &Limiter, name: &String| limiter.key([Some(name.as_bytes())]);
    let limits = |name: &String, now| {
        let (key, now) = (key(&limiting, name), Timestamp::from_nanos(now));
        limiting.limit(key, 1, None, now, |_| ()) == Verdict::Pass
    };
    let holds = |name: &String, now| {
        let (key, now) = (key(&holding, name), Timestamp::from_nanos(now));
        let held = holding.hold(key, 2, None, now, |_| ());
        held.is_ok_and(|held| holding.settle(held, 1, now).is_some())
    };
    let mut peers = [
        peer("limit", limits, || 0.0),
        peer("hold + settle", holds, || 0.0),
    ];
    rounds(&mut peers, &names, RATES[0].0);
    let [limit, _] = &peers;
    let reference = limit.nanos.clone();
    for peer in &peers {
        let nanos = median(&peer.nanos);
        table.row([
            peer.name.to_owned(),
            grouped(keys as f64),
            format!("{nanos:.1}"),
            format!("{:.2}", ratio(&peer.nanos, &reference)),
        ]);
    }
    Ok(())
}

/// Measures each of the peers in turn, in many rounds, with so many requests of each key in a second.
fn rounds(peers: &mut [Peer<'_>], names: &[String], rate: u64) {
    let order = shuffled(names);
    let step = (1_000_000_000 / rate / names.len() as u64).max(1);
    for peer in peers.iter_mut() {
        peer.decide(names.len(), &order, step);
        let per_decision = peer.decide(5000, &order, step);
        peer.nanos = vec![per_decision];
    }
    for _ in 0..ROUNDS {
        for peer in peers.iter_mut() {
            let batch = peer
                .nanos
                .first()
                .map_or(1.0, |nanos| NANOS_PER_BATCH / nanos);
            let nanos = peer.decide(batch as usize, &order, step);
            peer.nanos.push(nanos);
        }
    }
}

fn measure(names: &[String], rate: u64, what: &str, table: &mut Table) -> Result<()> {
    let window = RuleGeometry::new(1000, Some(20))?;
    let counting = Counting::Strict;
    let geometry = KeyedGeometry::new(Grade::Qps { window, counting }, names.len());
    let terms = KeyedTerms::of(Count::new(f64::from(LIMIT))?);
    let [alone, reserving, asking] =
        [geometry; 3].map(|geometry| KeyedWindows::new(geometry, SEED));
    let turns = KeyedWindows::new(geometry.paced(), SEED);
    let calls = KeyedWindows::new(KeyedGeometry::new(Grade::Concurrency, names.len()), SEED);
    let siphash = governor(RandomState::new())?;
    let foldhash = governor(DefaultHashBuilder::default())?;

    let keys = names.len();
    let mut peers = [
        peer("governor", governed(&siphash), bytes_of(names)),
        peer("governor, foldhash", governed(&foldhash), bytes_of(names)),
        keyed("window, a rule that is alone", &alone, keys, |key, now| {
            alone.admit_now(key, &terms, 1, now).is_some()
        }),
        keyed("window, reserve + commit", &reserving, keys, |key, now| {
            let taken = reserving.reserve(&mut KeyHandle::of(key), &terms, 1, now);
            taken.map(|taken| reserving.admit(taken, 1)).is_some()
        }),
        keyed(
            "window, ask + reserve + commit",
            &asking,
            keys,
            |key, now| {
                let mut key = KeyHandle::of(key);
                if asking.ask(&mut key, &terms, 1, now) != KeyVerdict::Pass {
                    return false;
                }
                let taken = asking.reserve(&mut key, &terms, 1, now);
                taken.map(|taken| asking.admit(taken, 1)).is_some()
            },
        ),
        keyed("throttle", &turns, keys, |key, now| {
            turns.admit_now(key, &terms, 1, now).is_some()
        }),
        keyed(
            "calls in flight, enter + leave",
            &calls,
            keys,
            |key, now| {
                let call = calls.admit_now(key, &terms, 1, now);
                call.map(|call| calls.leave(call, 1)).is_some()
            },
        ),
    ];

    rounds(&mut peers, names, rate);
    let reference = peers.first().map_or(Vec::new(), |peer| peer.nanos.clone());
    for peer in &peers {
        let nanos = median(&peer.nanos);
        table.row([
            format!("{}: {what}", peer.name),
            grouped(names.len() as f64),
            format!("{nanos:.1}"),
            grouped(1e9 / nanos),
            format!("{:.2}", ratio(&peer.nanos, &reference)),
            grouped((peer.bytes)()),
        ]);
    }
    Ok(())
}

impl Peer<'_> {
    /// Decides so many times; nanoseconds per decision.
    fn decide(&mut self, times: usize, order: &[&String], step: u64) -> f64 {
        let begin = Instant::now();
        let mut at = self.done % order.len().max(1);
        for number in self.done..self.done + times {
            let now = START_NANOS + number as u64 * step;
            let Some(name) = order.get(at) else {
                break;
            };
            black_box((self.decide)(black_box(name), now));
            at += 1;
            if at == order.len() {
                at = 0;
            }
        }
        self.done += times;
        begin.elapsed().as_nanos() as f64 / times as f64
    }
}

fn peer<'a>(
    name: &'static str,
    decide: impl Fn(&String, u64) -> bool + 'a,
    bytes: impl Fn() -> f64 + 'a,
) -> Peer<'a> {
    Peer {
        name,
        decide: Box::new(decide),
        bytes: Box::new(bytes),
        done: 0,
        nanos: Vec::new(),
    }
}

fn keyed<'a>(
    name: &'static str,
    table: &'a KeyedWindows,
    keys: usize,
    decide: impl Fn(leapgate::backend::Key, Timestamp) -> bool + 'a,
) -> Peer<'a> {
    peer(
        name,
        move |name, now| {
            let key = table.key([Some(name.as_bytes())]);
            decide(key, Timestamp::from_nanos(now))
        },
        move || table.bytes() as f64 / keys as f64,
    )
}

type Governor<S> =
    RateLimiter<String, HashMapStateStore<String, S>, SetClock, NoOpMiddleware<Nanos>>;

fn governor<S: BuildHasher>(hasher: S) -> Result<Governor<S>> {
    let quota = Quota::per_second(NonZeroU32::new(LIMIT).context("not zero")?);
    Ok(RateLimiter::hashmap_with_clock_and_hasher(
        quota,
        SetClock::default(),
        hasher,
    ))
}

fn governed<S: BuildHasher>(governor: &Governor<S>) -> impl Fn(&String, u64) -> bool {
    |name, now| {
        governor.clock().set(now);
        governor.check_key(name).is_ok()
    }
}

/// The memory of a map of these keys with an instant each: its capacity is governor's, and a slot has one more byte.
fn bytes_of(names: &[String]) -> impl Fn() -> f64 {
    || {
        let mut map = HashMap::new();
        map.extend(names.iter().map(|name| (name, Cell::new(0_u64))));
        // The table has a power of two of slots, of which it fills seven of eight.
        let slots = (map.capacity() * 8 / 7).next_power_of_two();
        let text: usize = names.iter().map(String::len).sum();
        let slot = size_of::<(String, u64)>() + 1;
        (slots * slot + text) as f64 / names.len() as f64
    }
}

/// The same order each time, without a pattern.
fn shuffled(names: &[String]) -> Vec<&String> {
    let mut order: Vec<&String> = names.iter().collect();
    let mut random = 1_u64;
    for last in (1..order.len()).rev() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (random >> 33) as usize % (last + 1));
    }
    order
}
