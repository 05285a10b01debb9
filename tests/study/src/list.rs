//! Buckets in a linked list, oldest first. Only buckets in which a request was admitted have a node.
//!
//! All three drop old buckets only when a new one begins, so that a decision within a bucket does not look at the list's front.

use std::collections::LinkedList;

use crate::{Buckets, Limiter};

/// A bucket: when it starts, and what was admitted in it.
struct Bucket {
    start: u64,
    passes: u64,
}

/// The current bucket's start, kept beside the list: nothing is divided while a bucket lasts.
struct Current {
    buckets: Buckets,
    start: u64,
}

impl Current {
    fn new(buckets: Buckets) -> Current {
        Current { buckets, start: 0 }
    }

    /// Whether a bucket begins with `now`.
    #[inline]
    fn begins(&mut self, now: u64) -> bool {
        if now - self.start < self.buckets.length {
            return false;
        }
        self.start = self.buckets.start(now);
        true
    }

    fn oldest(&self) -> u64 {
        self.buckets.oldest(self.start)
    }
}

/// A list with a running total: a node that leaves is subtracted from it.
pub struct Totalled {
    list: LinkedList<Bucket>,
    total: u64,
    current: Current,
    limit: u64,
}

impl Totalled {
    /// An empty window.
    pub fn new(buckets: Buckets, limit: u64) -> Totalled {
        Totalled {
            list: LinkedList::new(),
            total: 0,
            current: Current::new(buckets),
            limit,
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_old(&mut self) {
        let oldest = self.current.oldest();
        while self.list.front().is_some_and(|front| front.start < oldest) {
            self.total -= self.list.pop_front().map_or(0, |front| front.passes);
        }
    }
}

impl Limiter for Totalled {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        if self.current.begins(now) {
            self.drop_old();
        }
        if self.total >= self.limit {
            return false;
        }
        self.total += 1;
        count_one(&mut self.list, self.current.start);
        true
    }
}

/// A list that is added up at each read.
pub struct Summed {
    list: LinkedList<Bucket>,
    current: Current,
    limit: u64,
}

impl Summed {
    /// An empty window.
    pub fn new(buckets: Buckets, limit: u64) -> Summed {
        Summed {
            list: LinkedList::new(),
            current: Current::new(buckets),
            limit,
        }
    }
}

impl Limiter for Summed {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        if self.current.begins(now) {
            let oldest = self.current.oldest();
            while self.list.front().is_some_and(|front| front.start < oldest) {
                self.list.pop_front();
            }
        }
        let passes: u64 = self.list.iter().map(|bucket| bucket.passes).sum();
        if passes >= self.limit {
            return false;
        }
        count_one(&mut self.list, self.current.start);
        true
    }
}

/// Counts an admission in the newest bucket, which starts at `start`.
#[inline]
fn count_one(list: &mut LinkedList<Bucket>, start: u64) {
    match list.back_mut() {
        Some(newest) if newest.start == start => newest.passes += 1,
        _ => list.push_back(Bucket { start, passes: 1 }),
    }
}

/// No node.
const NONE: u32 = u32::MAX;

/// A node of a pool: a bucket, and the node after it in the list, or among the free ones.
struct Node {
    bucket: Bucket,
    next: u32,
}

/// A list with a running total whose nodes come from a pool, and go back to it: after the first window nothing is allocated.
pub struct Pooled {
    nodes: Vec<Node>,
    front: u32,
    back: u32,
    free: u32,
    total: u64,
    current: Current,
    limit: u64,
}

impl Pooled {
    /// An empty window.
    pub fn new(buckets: Buckets, limit: u64) -> Pooled {
        Pooled {
            nodes: Vec::new(),
            front: NONE,
            back: NONE,
            free: NONE,
            total: 0,
            current: Current::new(buckets),
            limit,
        }
    }

    #[inline]
    fn node(&mut self, at: u32) -> Option<&mut Node> {
        self.nodes.get_mut(at as usize)
    }

    #[cold]
    #[inline(never)]
    fn drop_old(&mut self) {
        let (oldest, mut front, mut free) = (self.current.oldest(), self.front, self.free);
        let mut gone = 0;
        while let Some(node) = self.node(front)
            && node.bucket.start < oldest
        {
            gone += node.bucket.passes;
            (free, front, node.next) = (front, node.next, free);
        }
        (self.front, self.free) = (front, free);
        if front == NONE {
            self.back = NONE;
        }
        self.total -= gone;
    }

    #[cold]
    #[inline(never)]
    fn append(&mut self, bucket: Bucket) {
        let (node, free) = (Node { bucket, next: NONE }, self.free);
        let at = if let Some(place) = self.node(free) {
            let next = place.next;
            *place = node;
            self.free = next;
            free
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        match self.node(self.back) {
            Some(back) => back.next = at,
            None => self.front = at,
        }
        self.back = at;
    }
}

impl Limiter for Pooled {
    #[inline]
    fn admit(&mut self, now: u64) -> bool {
        if self.current.begins(now) {
            self.drop_old();
        }
        if self.total >= self.limit {
            return false;
        }
        self.total += 1;
        let start = self.current.start;
        match self.node(self.back) {
            Some(newest) if newest.bucket.start == start => newest.bucket.passes += 1,
            _ => self.append(Bucket { start, passes: 1 }),
        }
        true
    }
}
