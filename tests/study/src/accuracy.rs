//! What limiters admit: in any interval, and beside the exact log.

use leapgate::rule::Counting;

use crate::array::Leapgate;
use crate::others::{Log, TokenBucket, TwoWindows};
use crate::{INTERVAL, Limiter};

/// The limit of all that is compared.
pub const LIMIT: u64 = 1000;

/// A way to decide, which may be kept in more than one way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Buckets, and one more: leapgate's default. An array and a list of these buckets decide alike.
    Strict,
    /// Buckets as Sentinel counts them; an array and a list alike.
    Sentinel,
    /// As the latter, with the leaving bucket in proportion.
    Weighted,
    /// The exact log.
    Log,
    /// The estimate from two windows.
    TwoWindows,
    /// The token bucket.
    TokenBucket,
}

impl Way {
    /// All of them, in the order of the tables.
    pub const ALL: [Way; 6] = [
        Way::Strict,
        Way::Sentinel,
        Way::Weighted,
        Way::Log,
        Way::TwoWindows,
        Way::TokenBucket,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Way::Strict => "buckets: strict",
            Way::Sentinel => "buckets: as Sentinel counts",
            Way::Weighted => "buckets: weighted",
            Way::Log => "log of instants",
            Way::TwoWindows => "two-window estimate",
            Way::TokenBucket => "token bucket",
        }
    }

    /// Whether it has buckets.
    pub fn has_buckets(self) -> bool {
        matches!(self, Way::Strict | Way::Sentinel | Way::Weighted)
    }

    /// A fresh limiter with [`LIMIT`]; `None` if the buckets do not divide the interval.
    pub fn limiter(self, buckets: u32) -> Option<Box<dyn Limiter>> {
        let counts = |counting| {
            let counts = Leapgate::new(buckets, counting, LIMIT)?;
            Some(Box::new(counts) as Box<dyn Limiter>)
        };
        match self {
            Way::Strict => counts(Counting::Strict),
            Way::Sentinel => counts(Counting::Sentinel),
            Way::Weighted => counts(Counting::Weighted),
            Way::Log => Some(Box::new(Log::new(LIMIT))),
            Way::TwoWindows => Some(Box::new(TwoWindows::new(LIMIT))),
            Way::TokenBucket => Some(Box::new(TokenBucket::new(LIMIT))),
        }
    }
}

/// Random traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Requests that know nothing of each other (Poisson), nine tenths of the limit.
    Calm,
    /// The same, one and a half times the limit.
    Flood,
    /// Bursts of a quarter of the limit on average, at random, one and a half times the limit in all.
    Bursts,
}

/// How long random traffic lasts, in intervals.
pub const INTERVALS: u64 = 200;
/// A clock that has run for a day.
const START: u64 = 1440 * INTERVAL;

impl Traffic {
    /// All of it, in the order of the tables.
    pub const ALL: [Traffic; 3] = [Traffic::Calm, Traffic::Flood, Traffic::Bursts];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Traffic::Calm => "calm",
            Traffic::Flood => "flood",
            Traffic::Bursts => "bursts",
        }
    }

    /// How much comes, in limits.
    fn load(self) -> f64 {
        match self {
            Traffic::Calm => 0.9,
            Traffic::Flood | Traffic::Bursts => 1.5,
        }
    }

    /// The instants of its requests, in order.
    pub fn instants(self, seed: u64) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut wait = |mean: f64| (-mean * (1.0 - random.f64()).ln()) as u64;
        let between = INTERVAL as f64 / (self.load() * LIMIT as f64);
        let (mut now, mut instants) = (START, Vec::new());
        let size = LIMIT as f64 / 4.0;
        while now < START + INTERVALS * INTERVAL {
            match self {
                Traffic::Calm | Traffic::Flood => {
                    now += wait(between);
                    instants.push(now);
                }
                Traffic::Bursts => {
                    now += wait(between * size);
                    for _ in 0..=wait(size) {
                        now += wait(1e6);
                        instants.push(now);
                    }
                }
            }
        }
        instants
    }
}

/// What a limiter makes of each of these requests.
pub fn decide(limiter: &mut dyn Limiter, instants: &[u64]) -> Vec<bool> {
    instants.iter().map(|now| limiter.admit(*now)).collect()
}

/// The instants of those that were admitted.
pub fn admitted(instants: &[u64], decisions: &[bool]) -> Vec<u64> {
    let both = instants.iter().zip(decisions);
    both.filter_map(|(now, passes)| passes.then_some(*now))
        .collect()
}

/// The most of these instants, which are in order, in any `[t, t + INTERVAL)`.
pub fn worst_interval(instants: &[u64]) -> u64 {
    let mut begin = instants.iter().enumerate().peekable();
    let mut worst = 0;
    for (last, now) in instants.iter().enumerate() {
        while begin
            .next_if(|(_, first)| **first + INTERVAL <= *now)
            .is_some()
        {}
        let first = begin.peek().map_or(last, |(first, _)| *first);
        worst = worst.max(last + 1 - first);
    }
    worst as u64
}

/// The most that the adversary gets out of an interval: it is silent for a day, begins at some instant, and from then on takes
/// all that it is given. It tries instants all over a window, and the last ones of buckets and of windows.
pub fn adversary(new: &dyn Fn() -> Option<Box<dyn Limiter>>, buckets: u32) -> Option<u64> {
    const TICKS: u64 = 20_000;
    let length = INTERVAL / u64::from(buckets);
    let spread = (0..16).map(|i| i * INTERVAL / 16 + i * length / 16);
    let begins = spread.chain([length - 1, INTERVAL / 2, INTERVAL - 1]);
    let mut worst = 0;
    for begin in begins {
        let mut limiter = new()?;
        let mut instants = Vec::new();
        for tick in 0..2 * TICKS {
            let now = START + begin + tick * (INTERVAL / TICKS);
            let before = instants.len();
            while limiter.admit(now) && instants.len() - before < 4 * LIMIT as usize {
                instants.push(now);
            }
        }
        worst = worst.max(worst_interval(&instants));
    }
    Some(worst)
}
