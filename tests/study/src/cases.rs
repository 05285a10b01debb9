//! The workloads on which time and memory are measured, for each way to keep a window.
//!
//! The limit is twice what comes, and everything passes, unless a workload says otherwise. Buckets count so that the limit holds
//! in any interval: in each structure the same ones.

use std::hint::black_box;

use leapgate::rule::Counting;

use crate::{Buckets, INTERVAL, Limiter, array, list, others};

/// A way to keep a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Structure {
    /// [`array::Leapgate`], which the others are compared with.
    Leapgate,
    /// [`array::RunningCounts`].
    RunningCounts,
    /// [`array::Summed`].
    SummedArray,
    /// [`list::Totalled`].
    List,
    /// [`list::Pooled`].
    PooledList,
    /// [`list::Summed`].
    SummedList,
    /// [`others::Log`].
    Log,
    /// [`others::TwoWindows`].
    TwoWindows,
    /// [`others::TokenBucket`].
    TokenBucket,
}

use Structure::{
    Leapgate, List, Log, PooledList, RunningCounts, SummedArray, SummedList, TokenBucket,
    TwoWindows,
};

impl Structure {
    /// All of them, in the order of the tables.
    pub const ALL: [Structure; 9] = [
        Leapgate,
        RunningCounts,
        SummedArray,
        List,
        PooledList,
        SummedList,
        Log,
        TwoWindows,
        TokenBucket,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Leapgate => "leapgate's window",
            RunningCounts => "array: running counts",
            SummedArray => "array: summed",
            List => "list: running total",
            PooledList => "list: running total; pooled",
            SummedList => "list: summed",
            Log => "log of instants",
            TwoWindows => "two-window estimate",
            TokenBucket => "token bucket",
        }
    }

    /// Whether it has buckets.
    pub fn has_buckets(self) -> bool {
        !matches!(self, Log | TwoWindows | TokenBucket)
    }
}

/// What is asked of a window.
#[derive(Clone, Copy, Debug)]
enum Work {
    /// One limiter, and so many requests in an interval.
    Steady { requests: f64 },
    /// One limiter that is full.
    Full,
    /// A decision after so many intervals without a request. Before them, there was one in each bucket.
    Idle { intervals: u64 },
    /// So many limiters in turn, in an order that no cache foresees; for each, a request in a bucket.
    Keys { keys: usize },
}

/// One point of a figure.
pub struct Case {
    /// The figure.
    pub figure: &'static str,
    /// The structure.
    pub structure: Structure,
    /// The place on the figure's axis.
    pub x: f64,
    buckets: u32,
    work: Work,
}

/// The most requests that a window without buckets is filled with before it idles.
const IN_WINDOW: u64 = 600;
/// How many limiters have idled.
const IDLE: usize = 64;
/// A clock that has run for a day.
const START: u64 = 1440 * INTERVAL;

/// Bucket counts of the figures: all divide a minute.
pub const BUCKETS: [u32; 6] = [2, 6, 20, 60, 200, 600];
/// How many buckets there are where something else varies.
pub const USUAL: u32 = 60;
/// Requests in a bucket.
pub const RATES: [f64; 6] = [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0];
/// Intervals without a request.
pub const GAPS: [u64; 3] = [1, 10, 1000];
/// Keys.
pub const KEYS: [usize; 2] = [1, 10_000];
/// Requests in a window whose memory is measured.
pub const HELD: [u64; 6] = [1, 10, 100, 1000, 10_000, 100_000];

/// All points at which time is measured.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for structure in Structure::ALL {
        let mut add = |figure, x, buckets, work| {
            cases.push(Case {
                figure,
                structure,
                x,
                buckets,
                work,
            });
        };
        // What has no buckets has one point, which is drawn as a line.
        let counts = if structure.has_buckets() {
            &BUCKETS[..]
        } else {
            &[USUAL]
        };
        for &buckets in counts {
            let x = f64::from(buckets);
            add("buckets", x, buckets, Work::Steady { requests: 6000.0 });
            add("idle", x, buckets, Work::Idle { intervals: 1000 });
        }
        for rate in RATES {
            let requests = rate * f64::from(USUAL);
            add("rate", rate, USUAL, Work::Steady { requests });
        }
        for intervals in GAPS {
            add("gap", intervals as f64, USUAL, Work::Idle { intervals });
        }
        add("refused", f64::from(USUAL), USUAL, Work::Full);
        for keys in KEYS {
            add("keys", keys as f64, 20, Work::Keys { keys });
        }
    }
    cases
}

/// All points at which memory is measured: after two intervals with so many requests in each.
pub fn held() -> Vec<Case> {
    let of = |structure| {
        HELD.map(|requests| Case {
            figure: "memory",
            structure,
            x: requests as f64,
            buckets: USUAL,
            work: Work::Steady {
                requests: requests as f64,
            },
        })
    };
    Structure::ALL.into_iter().flat_map(of).collect()
}

/// What runs again and again.
pub trait Run {
    /// Brings about what the next decisions are to find. Not measured.
    fn prepare(&mut self) {}

    /// Decides so many times; how many were as meant.
    fn run(&mut self, times: u64) -> u64;

    /// How many decisions follow each [`Run::prepare`], if that is fixed.
    fn batch(&self) -> Option<u64> {
        None
    }

    /// One of the limiters, without what drives it.
    fn into_limiter(self: Box<Self>) -> Option<Box<dyn Limiter>>;
}

impl Case {
    /// Its name, which has no space in it.
    pub fn name(&self) -> String {
        format!("{}/{:?}/{}", self.figure, self.structure, self.x)
    }

    /// Whether it is among the few of a quick run: of each figure, the points with the usual number of buckets and ten requests
    /// in each.
    pub fn is_usual(&self) -> bool {
        let usual = match self.figure {
            "rate" => 10.0,
            "gap" => 1000.0,
            "keys" => 1.0,
            "memory" => 1000.0,
            _ => f64::from(USUAL),
        };
        self.x == usual
    }

    /// Whether what it costs depends on caches alone: then instructions say nothing.
    pub fn is_of_caches(&self) -> bool {
        matches!(self.work, Work::Keys { .. })
    }

    /// How many decisions bring it to where it stays: two windows full.
    pub fn to_fill(&self) -> u64 {
        match self.work {
            Work::Steady { requests } => 2 * requests as u64 + 1,
            Work::Keys { keys } => 2 * u64::from(self.buckets) * keys as u64,
            Work::Full | Work::Idle { .. } => 0,
        }
    }

    /// A limiter alone, with what this workload leaves in it.
    pub fn hold(&self) -> Option<Box<dyn Limiter>> {
        let mut run = self.make()?;
        run.run(self.to_fill());
        run.into_limiter()
    }

    /// A limiter under this workload; `None` if the buckets do not divide the interval.
    pub fn make(&self) -> Option<Box<dyn Run>> {
        let limit = match self.work {
            Work::Steady { requests } => (2.0 * requests).max(10.0) as u64,
            Work::Full => IN_WINDOW,
            Work::Idle { .. } | Work::Keys { .. } => 2 * IN_WINDOW,
        };
        let buckets = Buckets::strict(self.buckets);
        let leapgate = || array::Leapgate::new(self.buckets, Counting::Strict, limit);
        leapgate()?;
        Some(match self.structure {
            Leapgate => self.running(leapgate),
            RunningCounts => self.running(|| Some(array::RunningCounts::new(buckets, limit))),
            SummedArray => self.running(|| {
                let ring = array::SummedRing::new(buckets.length, buckets.counting);
                Some(array::Summed { ring, limit })
            }),
            List => self.running(|| Some(list::Totalled::new(buckets, limit))),
            PooledList => self.running(|| Some(list::Pooled::new(buckets, limit))),
            SummedList => self.running(|| Some(list::Summed::new(buckets, limit))),
            Log => self.running(|| Some(others::Log::new(limit))),
            TwoWindows => self.running(|| Some(others::TwoWindows::new(limit))),
            TokenBucket => self.running(|| Some(others::TokenBucket::new(limit))),
        })
    }

    fn running<L: Limiter + 'static>(&self, new: impl Fn() -> Option<L>) -> Box<dyn Run> {
        let many = |number| (0..number).filter_map(|_| new()).collect();
        let length = INTERVAL / u64::from(self.buckets);
        match self.work {
            Work::Steady { requests } => Box::new(Steady {
                limiters: many(1),
                now: START,
                step: (INTERVAL as f64 / requests) as u64,
                passes: true,
                order: Vec::new(),
                at: 0,
            }),
            Work::Full => {
                let mut full: Vec<L> = many(1);
                let mut now = START;
                for limiter in &mut full {
                    for _ in 1..IN_WINDOW {
                        limiter.admit(now);
                        now += INTERVAL / IN_WINDOW;
                    }
                    // What has come back to a token bucket in the meantime.
                    while limiter.admit(now) {}
                }
                Box::new(Steady {
                    limiters: full,
                    now,
                    step: 1,
                    passes: false,
                    order: Vec::new(),
                    at: 0,
                })
            }
            Work::Idle { intervals } => Box::new(Idle {
                limiters: many(IDLE),
                now: START,
                intervals,
            }),
            Work::Keys { keys } => {
                let mut order: Vec<usize> = (0..keys).collect();
                fastrand::Rng::with_seed(1).shuffle(&mut order);
                Box::new(Steady {
                    limiters: many(keys),
                    now: START,
                    step: length / keys as u64,
                    passes: true,
                    order,
                    at: 0,
                })
            }
        }
    }
}

/// Requests at equal distances, to some limiters in turn.
struct Steady<L> {
    limiters: Vec<L>,
    now: u64,
    step: u64,
    passes: bool,
    /// In which order they are asked, and where in it.
    order: Vec<usize>,
    at: usize,
}

impl<L: Limiter + 'static> Run for Steady<L> {
    fn run(&mut self, times: u64) -> u64 {
        let mut as_meant = 0;
        if let [limiter] = &mut self.limiters[..] {
            for _ in 0..times {
                self.now += self.step;
                as_meant += u64::from(black_box(&mut *limiter).admit(self.now) == self.passes);
            }
            return as_meant;
        }
        for _ in 0..times {
            self.now += self.step;
            let at = self.order.get(self.at).copied().unwrap_or(0);
            self.at = if self.at + 1 < self.order.len() {
                self.at + 1
            } else {
                0
            };
            let limiter = self.limiters.get_mut(at);
            let passed = limiter.is_some_and(|limiter| black_box(limiter).admit(self.now));
            as_meant += u64::from(passed == self.passes);
        }
        as_meant
    }

    fn into_limiter(mut self: Box<Self>) -> Option<Box<dyn Limiter>> {
        Some(Box::new(self.limiters.pop()?))
    }
}

/// Limiters that were full of buckets, and then idle.
struct Idle<L> {
    limiters: Vec<L>,
    now: u64,
    intervals: u64,
}

impl<L: Limiter + 'static> Run for Idle<L> {
    fn prepare(&mut self) {
        // In turns, as many keys are: what one of them allocates lies among what the others do.
        for _ in 0..IN_WINDOW {
            self.now += INTERVAL / IN_WINDOW;
            for limiter in &mut self.limiters {
                limiter.admit(self.now);
            }
        }
        self.now += self.intervals * INTERVAL;
    }

    fn run(&mut self, times: u64) -> u64 {
        let mut passed = 0;
        for limiter in self.limiters.iter_mut().take(times as usize) {
            passed += u64::from(black_box(limiter).admit(self.now));
        }
        passed
    }

    fn batch(&self) -> Option<u64> {
        Some(self.limiters.len() as u64)
    }

    fn into_limiter(mut self: Box<Self>) -> Option<Box<dyn Limiter>> {
        Some(Box::new(self.limiters.pop()?))
    }
}
