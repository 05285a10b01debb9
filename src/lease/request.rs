//! What a node sends to a store, as text: decimals with hyphens between them, which no URL has to escape.

use super::terms::Terms;

/// The version of the texts.
pub(super) const VERSION: u64 = 1;

/// The most numbers that a request has.
const MAX_NUMBERS: usize = 1 << 10;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// It rises with each request of a node. Below 2^53.
    pub seq: u64,
    /// The node: a random number below 2^53.
    pub node: u64,
    /// Which part of the limit the node takes for its own without the store: one of so many parts. With 0 it has been told none.
    pub nodes: u64,
    /// What is leased.
    pub terms: Terms,
    /// How long the lease is to last.
    pub ttl_ms: u64,
    /// How many permits are wanted; none if the request only settles.
    pub want: u64,
    /// The fewest permits that are of use.
    pub need: u64,
    /// What becomes of earlier leases.
    pub settlements: Vec<Settlement>,
}

/// What becomes of a lease. With the id 0 it is a report of what the node has admitted without one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Settlement {
    /// The lease.
    pub id: u64,
    /// It rises with each settlement of a lease, and with each report of a node: one that was seen before changes nothing.
    pub seq: u64,
    /// Whether what is left is given back.
    pub closes: bool,
    /// What was used.
    pub used: Vec<Report>,
}

/// What was used at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Report {
    /// How long ago, in milliseconds: never longer than it is.
    pub age_ms: u64,
    /// How much.
    pub n: u64,
}

impl Request {
    /// The text.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(96);
        let terms = &self.terms;
        let first = [
            VERSION,
            self.seq,
            self.node,
            self.nodes,
            terms.limit(),
            terms.interval_ms(),
            terms.buckets(),
            self.ttl_ms,
            self.want,
            self.need,
        ];
        first.iter().for_each(|n| push(&mut text, *n));
        for settlement in &self.settlements {
            let count = settlement.used.len() as u64;
            let head = [
                settlement.id,
                settlement.seq,
                settlement.closes.into(),
                count,
            ];
            head.iter().for_each(|n| push(&mut text, *n));
            for used in &settlement.used {
                push(&mut text, used.age_ms);
                push(&mut text, used.n);
            }
        }
        text
    }

    /// What the answer repeats: no other request of this node has it, and hardly one of another node.
    pub fn echo(&self) -> u64 {
        self.seq.wrapping_add(self.node) & Terms::MAX_LIMIT
    }

    /// The request of a text; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Request> {
        let numbers = numbers(text, MAX_NUMBERS)?;
        let (first, mut rest) = numbers.split_first_chunk::<10>()?;
        let [
            version,
            seq,
            node,
            nodes,
            limit,
            interval_ms,
            buckets,
            ttl_ms,
            want,
            need,
        ] = *first;
        let terms = Terms::checked(limit, interval_ms, buckets)?;
        if version != VERSION || ttl_ms == 0 || ttl_ms > terms.longest_ttl_ms() || need > want {
            return None;
        }
        let mut settlements = Vec::new();
        while !rest.is_empty() {
            let (&[id, seq, closes, count], after) = rest.split_first_chunk::<4>()?;
            let length = usize::try_from(count).ok()?.checked_mul(2)?;
            let used = after.get(..length)?.as_chunks::<2>().0;
            rest = after.get(length..)?;
            settlements.push(Settlement {
                id,
                seq,
                closes: closes == 1,
                used: used
                    .iter()
                    .map(|&[age_ms, n]| Report { age_ms, n })
                    .collect(),
            });
        }
        Some(Request {
            seq,
            node,
            nodes,
            terms,
            ttl_ms,
            want,
            need,
            settlements,
        })
    }
}

/// Adds a number, with a hyphen before it unless it is the first.
pub(super) fn push(text: &mut String, n: u64) {
    if !text.is_empty() {
        text.push('-');
    }
    push_decimal(text, n);
}

/// Adds a number. Not by formatting, which would be most of a small module.
pub(super) fn push_decimal(text: &mut String, n: u64) {
    if n > 9 {
        push_decimal(text, n / 10);
    }
    text.push(char::from(b'0' + (n % 10) as u8));
}

/// The numbers of a text, at most so many, each below 2^53; `None` if it is not made of such.
pub(super) fn numbers(text: &str, most: usize) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    // Of bytes: searching and parsing text takes more code.
    for part in text.as_bytes().split(|byte| *byte == b'-') {
        if numbers.len() == most || part.is_empty() {
            return None;
        }
        let n = part.iter().try_fold(0u64, |n, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            n.checked_mul(10)?.checked_add(digit)
        })?;
        if n > Terms::MAX_LIMIT {
            return None;
        }
        numbers.push(n);
    }
    Some(numbers)
}
