//! Limits per key, beside governor's: as many keys as there are clients, in an order that no cache foresees.
//!
//! Both hash with SipHash-1-3, governor through the standard library; the row after it gives it the fastest of the seeded
//! hashes. Its store is the one without shards: on one thread the faster one.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};
use hashbrown::DefaultHashBuilder;
use leapgate::backend::{
    Key, KeyHandle, KeyVerdict, KeyedGeometry, KeyedStates as _, KeyedTerms, KeyedWindows,
};
use leapgate::rule::{Count, Counting, Grade, RuleGeometry, RuleId};
use leapgate::{Limit, Limiter, Timestamp, Verdict};

use super::cases::SetClock;
use crate::parallel;
use crate::statistics::{median, ratio};
use crate::table::{Table, grouped, section};
use crate::valgrind;

/// Passes of a key in a second.
const LIMIT: u32 = 100;
/// How many requests of a key come in a second, and what that means.
const RATES: [(u64, &str); 2] = [(50, "pass"), (REFUSED, "nine of ten refused")];
const REFUSED: u64 = 1000;
const KEYS: [usize; 3] = [1, 1000, 1_000_000];
const SEED: [u64; 2] = [0x1eaf, 0x9a7e];
/// A clock that has run for a day.
const START_NANOS: u64 = 86_400_000_000_000;
const ROUNDS: usize = 301;
const NANOS_PER_BATCH: f64 = 2e5;
/// How many decisions are counted in valgrind.
const COUNTED: usize = 100_000;

/// One decision for a key at an instant about a request of that cost; whether it passed.
type Decide<'a> = Box<dyn Fn(&String, u32, u64) -> bool + 'a>;

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
        "Default windows of 20 buckets, 100 passes a second for each key. Where requests are refused, each key has used up its\n\
         limit before. Aim: seven tenths of governor's time at each size, at most 64 bytes per key. Governor's bytes are those\n\
         of its table and of the text of its keys, without what the allocator adds. Instructions are those of valgrind, with\n\
         the loop around each decision; `-` without valgrind.",
    );
    let mut table = Table::new(&[
        "",
        "keys",
        "ns",
        "a second",
        "ns / governor",
        "instructions",
        "bytes per key",
    ]);
    let valgrind = valgrind::on_path("valgrind");
    for keys in KEYS {
        let names = addresses(keys);
        for (rate, what) in RATES {
            measure(&names, rate, what, valgrind.as_deref(), &mut table)?;
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
    let limits = |name: &String, cost: u32, now| {
        let (key, now) = (key(&limiting, name), Timestamp::from_nanos(now));
        limiting.limit(key, cost.into(), None, now, |_| ()) == Verdict::Pass
    };
    let holds = |name: &String, _, now| {
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

/// So many addresses.
fn addresses(keys: usize) -> Vec<String> {
    (0..keys)
        .map(|i| format!("10.{}.{}.{}", i >> 16, i >> 8 & 255, i & 255))
        .collect()
}

/// Measures each of the peers in turn, in many rounds, with so many requests of each key in a second.
fn rounds(peers: &mut [Peer<'_>], names: &[String], rate: u64) {
    let order = shuffled(names);
    let step = step(names.len(), rate);
    for peer in peers.iter_mut() {
        peer.warm_up(&order, rate);
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

/// How many nanoseconds lie between two requests.
fn step(keys: usize, rate: u64) -> u64 {
    (1_000_000_000 / rate / keys as u64).max(1)
}

fn measure(
    names: &[String],
    rate: u64,
    what: &str,
    valgrind: Option<&Path>,
    table: &mut Table,
) -> Result<()> {
    let mut peers = peers(names)?;
    rounds(&mut peers, names, rate);
    let counts = match valgrind {
        Some(valgrind) => {
            let called: Vec<&'static str> = peers.iter().map(|peer| peer.name).collect();
            parallel::map(&called, |name| {
                count(valgrind, name, names.len(), rate, COUNTED).context(*name)
            })?
        }
        None => Vec::new(),
    };
    let reference = peers.first().map_or(Vec::new(), |peer| peer.nanos.clone());
    for (place, peer) in peers.iter().enumerate() {
        let nanos = median(&peer.nanos);
        let count = counts.get(place);
        table.row([
            format!("{}: {what}", peer.name),
            grouped(names.len() as f64),
            format!("{nanos:.1}"),
            grouped(1e9 / nanos),
            format!("{:.2}", ratio(&peer.nanos, &reference)),
            count.map_or("-".to_owned(), |count| format!("{count:.0}")),
            grouped((peer.bytes)()),
        ]);
    }
    Ok(())
}

/// Instructions per decision: the difference between a process that makes 2 N of them and one that makes N.
fn count(valgrind: &Path, name: &str, keys: usize, rate: u64, counted: usize) -> Result<f64> {
    let program = std::env::current_exe().context("this program's own path")?;
    let [keys, rate] = [keys as u64, rate].map(|number| number.to_string());
    let instructions = |times: usize| {
        let times = times.to_string();
        valgrind::instructions(
            valgrind,
            &program,
            &["repeat", "keyed", name, &keys, &rate, &times],
        )
    };
    Ok((instructions(2 * counted)? - instructions(counted)?) / counted as f64)
}

const ALONE: &str = "window, a rule that is alone";

/// Instructions of a decision of a rule that is alone, for one of so many keys, which pass or are nearly all refused.
pub(crate) fn count_alone(valgrind: &Path, keys: usize, is_refused: bool) -> Result<f64> {
    let [(passing, _), (refused, _)] = RATES;
    let rate = if is_refused { refused } else { passing };
    // Each key counts at least once: otherwise there would be keys of which only the first requests are seen.
    count(valgrind, ALONE, keys, rate, COUNTED.max(keys))
}

/// Nanoseconds of such a decision that passes, and bytes of a key.
pub(crate) fn time_alone(keys: usize) -> Result<(f64, f64)> {
    let names = addresses(keys);
    let mut peers = peers(&names)?;
    let peer = peers.iter_mut().find(|peer| peer.name == ALONE);
    let peer = std::slice::from_mut(peer.context("a rule that is alone")?);
    let [(passing, _), _] = RATES;
    rounds(peer, &names, passing);
    let [peer] = peer else {
        anyhow::bail!("one peer was timed");
    };
    Ok((median(&peer.nanos), (peer.bytes)()))
}

/// So many decisions of a peer, for valgrind.
pub(super) fn repeat(name: &str, keys: usize, rate: u64, times: usize) -> Result<()> {
    let names = addresses(keys);
    let mut peers = peers(&names)?;
    let peer = peers.iter_mut().find(|peer| peer.name == name);
    let peer = peer.with_context(|| format!("no peer `{name}`"))?;
    let order = shuffled(&names);
    peer.warm_up(&order, rate);
    peer.decide(times, &order, step(keys, rate));
    Ok(())
}

fn peers(names: &[String]) -> Result<Vec<Peer<'_>>> {
    let window = RuleGeometry::new(1000, Some(20))?;
    let counting = Counting::Strict;
    let geometry = KeyedGeometry::new(Grade::Qps { window, counting }, names.len());
    let calls = KeyedGeometry::new(Grade::Concurrency, names.len());
    let terms = KeyedTerms::of(Count::new(f64::from(LIMIT))?);

    Ok(vec![
        peer(
            "governor",
            governed(governor(RandomState::new())?),
            bytes_of(names),
        ),
        peer(
            "governor, foldhash",
            governed(governor(DefaultHashBuilder::default())?),
            bytes_of(names),
        ),
        keyed(ALONE, geometry, move |table, key, cost, now| {
            table.admit_now(key, &terms, cost, now).is_some()
        }),
        keyed(
            "window, reserve + commit",
            geometry,
            move |table, key, cost, now| {
                let taken = table.reserve(&mut KeyHandle::of(key), &terms, cost, now);
                taken.map(|taken| table.admit(taken, cost)).is_some()
            },
        ),
        keyed(
            "window, ask + reserve + commit",
            geometry,
            move |table, key, cost, now| {
                let mut key = KeyHandle::of(key);
                if table.ask(&mut key, &terms, cost, now) != KeyVerdict::Pass {
                    return false;
                }
                let taken = table.reserve(&mut key, &terms, cost, now);
                taken.map(|taken| table.admit(taken, cost)).is_some()
            },
        ),
        keyed(
            "throttle",
            geometry.paced(),
            move |table, key, cost, now| table.admit_now(key, &terms, cost, now).is_some(),
        ),
        keyed(
            "calls in flight, enter + leave",
            calls,
            move |table, key, cost, now| {
                let call = table.admit_now(key, &terms, cost, now);
                call.map(|call| table.leave(call, cost)).is_some()
            },
        ),
    ])
}

impl Peer<'_> {
    /// One decision for each key, after which it has no quota left if its requests are to be refused.
    fn warm_up(&mut self, order: &[&String], rate: u64) {
        let cost = if rate == REFUSED { LIMIT } else { 1 };
        self.decide_each(order.len(), order, step(order.len(), rate), cost);
    }

    /// Decides so many times; nanoseconds per decision.
    fn decide(&mut self, times: usize, order: &[&String], step: u64) -> f64 {
        self.decide_each(times, order, step, 1)
    }

    #[inline(never)]
    fn decide_each(&mut self, times: usize, order: &[&String], step: u64, cost: u32) -> f64 {
        let begin = Instant::now();
        let mut at = self.done % order.len().max(1);
        for number in self.done..self.done + times {
            let now = START_NANOS + number as u64 * step;
            let Some(name) = order.get(at) else {
                break;
            };
            black_box((self.decide)(black_box(name), cost, now));
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
    decide: impl Fn(&String, u32, u64) -> bool + 'a,
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

fn keyed(
    name: &'static str,
    geometry: KeyedGeometry,
    decide: impl Fn(&KeyedWindows, Key, u64, Timestamp) -> bool + 'static,
) -> Peer<'static> {
    let table = Rc::new(KeyedWindows::new(geometry, SEED));
    let counted = Rc::clone(&table);
    peer(
        name,
        move |name, cost, now| {
            let key = table.key([Some(name.as_bytes())]);
            decide(&table, key, cost.into(), Timestamp::from_nanos(now))
        },
        move || counted.bytes() as f64 / geometry.max_keys as f64,
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

fn governed<S: BuildHasher + 'static>(governor: Governor<S>) -> impl Fn(&String, u32, u64) -> bool {
    move |name, cost, now| {
        governor.clock().set(now);
        match NonZeroU32::new(cost) {
            Some(NonZeroU32::MIN) | None => governor.check_key(name).is_ok(),
            Some(cost) => matches!(governor.check_key_n(name, cost), Ok(Ok(()))),
        }
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
