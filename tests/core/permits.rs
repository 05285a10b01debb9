//! Permits that a test answers for: a backend that leases, and says what it was asked.

use leapgate::backend::{
    Backend, BreakerKey, KeyedGeometry, KeyedWindows, Leased, Leasing, Local, LocalBreaker,
    LocalCounter, NotLeased, Past, StateKey,
};
use leapgate::Timestamp;
use leapgate::lease::{Taken, WhenDown};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// The permits of all rules by the name of their key, and what was asked of them. A key without an answer waits.
#[derive(Clone, Default)]
pub(crate) struct Permits(Rc<RefCell<Known>>);

#[derive(Default)]
pub(crate) struct Known {
    answers: HashMap<String, Answer>,
    said: Vec<String>,
}

#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Left(u64),
    Refused(Option<u64>),
}

impl Permits {
    pub(crate) fn answer(&self, key: &str, answer: Answer) {
        self.0.borrow_mut().answers.insert(key.into(), answer);
    }

    pub(crate) fn left(&self, key: &str) -> u64 {
        match self.0.borrow().answers[key] {
            Answer::Left(left) => left,
            Answer::Refused(_) => 0,
        }
    }

    /// What was said since the last call.
    pub(crate) fn said(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().said)
    }
}

/// The permits of one rule.
struct OfRule(Permits, String);

impl OfRule {
    fn key(&self, key: &[u8]) -> String {
        format!("{}{}", self.1, std::str::from_utf8(key).unwrap())
    }

    fn say(&self, what: String) {
        self.0.0.borrow_mut().said.push(what);
    }
}

impl Leased for OfRule {
    fn take(&self, key: &[u8], cost: u64, now: Timestamp, waits: bool) -> Taken {
        let key = self.key(key);
        let gives_up = if waits { "" } else { ", gives up" };
        self.say(format!("take {cost} of {key} at {}{gives_up}", now.as_millis()));
        match self.0.0.borrow_mut().answers.get_mut(&key) {
            Some(Answer::Left(left)) if *left >= cost => {
                *left -= cost;
                Taken::Pass { remaining: *left }
            }
            Some(Answer::Refused(millis)) => Taken::Refuse {
                retry_after: millis.map(Duration::from_millis),
            },
            _ if waits => Taken::Wait,
            _ => Taken::Pass { remaining: 0 },
        }
    }

    fn give_back(&self, key: &[u8], cost: u64, now: Timestamp) {
        let key = self.key(key);
        self.say(format!("give back {cost} of {key} at {}", now.as_millis()));
        if let Some(Answer::Left(left)) = self.0.0.borrow_mut().answers.get_mut(&key) {
            *left += cost;
        }
    }

    fn change(&self, limit: u64, when_down: Option<WhenDown>) {
        self.say(format!("{} is {limit} now, {when_down:?}", self.1));
    }
}

impl Backend for Permits {
    type Counter = LocalCounter;
    type Keyed = KeyedWindows;
    type Breaker = LocalBreaker;
    const LEASES: bool = true;

    fn open(&self, key: &StateKey) -> (LocalCounter, Past) {
        Local.open(key)
    }

    fn open_keyed(&self, key: &StateKey, geometry: &KeyedGeometry) -> KeyedWindows {
        Local.open_keyed(key, geometry)
    }

    fn open_breaker(&self, key: &BreakerKey) -> LocalBreaker {
        Local.open_breaker(key)
    }

    fn lease(&self, key: &StateKey, leasing: &Leasing<'_>) -> Result<Rc<dyn Leased>, NotLeased> {
        let Leasing { name, terms, when_down, max_keys } = leasing;
        let (limit, interval, buckets) = (terms.limit(), terms.interval_ms(), terms.buckets());
        let of_rule = OfRule(self.clone(), (*name).to_owned());
        let rule = &key.rule;
        of_rule.say(format!(
            "{rule} leases {name}: {limit} in {interval} ms of {buckets}, {when_down:?}, {max_keys} keys"
        ));
        Ok(Rc::new(of_rule))
    }
}
