//! What a store knows of a key.

use super::answer::Answer;
use super::request::{Request, Settlement, numbers, push};
use super::ring::{Ring, add};
use super::terms::Terms;

/// The most leases of a key that are out; while there are so many, no more are granted.
const MAX_HOLDS: usize = 4096;

/// The most nodes of a key that get a part of the limit for times without the store.
const MAX_MEMBERS: usize = 1024;

/// The whole limit, of which each node's part is so much.
const WHOLE: u64 = 1 << 40;

/// Parts that are cut off when the whole is divided, of all nodes together.
const ROUNDING: u64 = 1 << 11;

/// The latest time, in the year 2248: a thousand times it is below 2^53.
const MAX_NOW: u64 = 1 << 43;

/// The most numbers that a state has.
const MAX_NUMBERS: usize = 6 + 2 * 1001 + 5 * MAX_HOLDS + 6 * MAX_MEMBERS;

/// Permits that are out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Hold {
    id: u64,
    node: u64,
    /// What is not settled.
    left: u64,
    /// When they count as used.
    until: u64,
    seq: u64,
}

/// A node that was seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Member {
    node: u64,
    seen: u64,
    /// It was told that its part is one of so many; 0 for none.
    told: u64,
    /// What it believed when it asked: it is not known whether it has the answer.
    before: u64,
    /// Its latest request. One that is older is late, and says nothing of what the node believes.
    seq: u64,
    /// The latest report.
    reported: u64,
}

/// What a store knows of a key. Times are in milliseconds of the store's wall clock.
///
/// The script for Redis decides alike: a change here is a change there (`tests/store/`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyState {
    now: u64,
    last_id: u64,
    /// Until when it counts as full: what was leased before is not known.
    full_until: u64,
    ring: Ring,
    holds: Vec<Hold>,
    members: Vec<Member>,
}

impl KeyState {
    /// Of a key that is missing in a store of this age.
    pub fn missing(terms: &Terms, now_ms: u64, uptime_ms: u64) -> KeyState {
        let unknown_for = terms.memory_ms().saturating_sub(uptime_ms);
        let now_ms = now_ms.min(MAX_NOW);
        KeyState {
            now: now_ms,
            last_id: 0,
            full_until: if unknown_for > 0 {
                now_ms.saturating_add(unknown_for)
            } else {
                0
            },
            ring: Ring::default(),
            holds: Vec::new(),
            members: Vec::new(),
        }
    }

    /// Settles what the request says, then leases what it asks for.
    pub fn lease(&mut self, request: &Request, now_ms: u64) -> Answer {
        let terms = &request.terms;
        self.now = self.now.max(now_ms.min(MAX_NOW));
        let now = self.now;
        self.ring.forget(terms, now);
        self.expire(terms);
        let nodes = self.meet(request);
        for settlement in &request.settlements {
            self.settle(request.node, settlement, terms);
        }
        let held = self.holds.iter().map(|hold| hold.left);
        let held = held.fold(0, add);
        let taken = add(self.ring.sum(), held);
        let room = match self.full_until > now || self.holds.len() >= MAX_HOLDS {
            true => 0,
            false => terms.limit().saturating_sub(taken),
        };
        let granted = if room >= request.need {
            request.want.min(room)
        } else {
            0
        };
        let id = if granted > 0 {
            // Larger than any id of before the store forgot.
            self.last_id = (self.last_id + 1).max(now * 1000);
            self.holds.push(Hold {
                id: self.last_id,
                node: request.node,
                left: granted,
                until: now + request.ttl_ms,
                seq: 0,
            });
            self.last_id
        } else {
            0
        };
        let retry_ms = match granted < request.want {
            true => self.retry(terms, request.need.max(1), held + granted),
            false => 0,
        };
        Answer {
            echo: request.echo(),
            id,
            granted,
            retry_ms,
            remaining: room - granted,
            nodes,
        }
    }

    /// From when on nothing of it counts any more, and no node has a part of the limit.
    pub(super) fn over_at(&self, terms: &Terms) -> u64 {
        let over_at = self.now.saturating_add(terms.memory_ms());
        over_at.max(self.full_until)
    }

    /// What is held beyond its time counts as used at the end of it.
    fn expire(&mut self, terms: &Terms) {
        let (now, ring) = (self.now, &mut self.ring);
        self.holds.retain(|hold| {
            let is_over = hold.until <= now;
            if is_over {
                ring.add(terms, hold.until, hold.left, now);
            }
            !is_over
        });
    }

    fn settle(&mut self, node: u64, settlement: &Settlement, terms: &Terms) {
        let (now, ring) = (self.now, &mut self.ring);
        let mut charge = |settlement: &Settlement| {
            let mut sum = 0_u64;
            for used in &settlement.used {
                ring.add(terms, now.saturating_sub(used.age_ms), used.n, now);
                sum = add(sum, used.n);
            }
            sum
        };
        if settlement.id == 0 {
            let member = self.members.iter_mut().find(|member| member.node == node);
            // Without a place for the node it is not known whether the report was seen: it counts.
            if member
                .as_ref()
                .is_none_or(|of| settlement.seq > of.reported)
            {
                charge(settlement);
                member
                    .into_iter()
                    .for_each(|of| of.reported = settlement.seq);
            }
            return;
        }
        let is_meant = |hold: &Hold| hold.id == settlement.id && hold.node == node;
        let Some(place) = self.holds.iter().position(is_meant) else {
            return;
        };
        let Some(hold) = self.holds.get_mut(place) else {
            return;
        };
        if settlement.seq > hold.seq {
            hold.seq = settlement.seq;
            hold.left = hold.left.saturating_sub(charge(settlement));
            if settlement.closes {
                self.holds.remove(place);
            }
        }
    }

    /// Notes that the node was seen. Returns its part of the limit for times without the store: of so many parts one. The parts
    /// of all nodes that were seen lately are together at most the whole, whenever each of them was told its own, whichever answers
    /// were lost.
    fn meet(&mut self, request: &Request) -> u64 {
        let (now, memory) = (self.now, request.terms.memory_ms());
        let node = request.node;
        self.members
            .retain(|member| member.node == node || now.saturating_sub(member.seen) < memory);
        if !self.members.iter().any(|member| member.node == node) {
            if self.members.len() >= MAX_MEMBERS {
                return 0;
            }
            self.members.push(Member {
                node,
                seen: now,
                told: 0,
                before: 0,
                seq: 0,
                reported: 0,
            });
        }
        let fair = WHOLE / self.members.len() as u64;
        let others = self.members.iter().filter(|member| member.node != node);
        let part = |told| WHOLE.checked_div(told).unwrap_or(0);
        let others = others.map(|member| part(member.told).max(part(member.before)));
        let own = fair.min(WHOLE.saturating_sub(others.sum()));
        let told = if own > ROUNDING {
            (WHOLE - ROUNDING).div_ceil(own)
        } else {
            0
        };
        let Some(member) = self.members.iter_mut().find(|of| of.node == node) else {
            return 0;
        };
        member.seen = now;
        if request.seq > member.seq {
            member.seq = request.seq;
            (member.before, member.told) = (request.nodes, told);
        }
        member.told
    }

    /// In how many milliseconds `need` permits may be there, at least one: once enough has left the window; or, where it is held
    /// permits that are in the way, once the first of them can have come back.
    fn retry(&self, terms: &Terms, need: u64, held: u64) -> u64 {
        let now = self.now;
        let end = now + terms.memory_ms();
        let Some(most) = terms.limit().checked_sub(need) else {
            return terms.interval_ms();
        };
        let first = self.holds.iter().map(|hold| hold.until).min();
        let without = self.ring.falls_to(terms, most).max(first.unwrap_or(end));
        let with = match most.checked_sub(held) {
            Some(most) => self.ring.falls_to(terms, most).max(now),
            None => end,
        };
        let mut at = with.min(without).max(self.full_until).max(now + 1);
        if self.holds.len() >= MAX_HOLDS {
            at = at.max(first.unwrap_or(end));
        }
        at - now
    }

    /// All of it as text: decimals with hyphens between them.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(128);
        let lengths = [
            self.ring.buckets().len(),
            self.holds.len(),
            self.members.len(),
        ];
        [self.now, self.last_id, self.full_until]
            .into_iter()
            .chain(lengths.map(|length| length as u64))
            .chain(self.ring.buckets().iter().flat_map(|&(at, n)| [at, n]))
            .chain(
                self.holds
                    .iter()
                    .flat_map(|of| [of.id, of.node, of.left, of.until, of.seq]),
            )
            .chain(
                self.members
                    .iter()
                    .flat_map(|of| [of.node, of.seen, of.told, of.before, of.seq, of.reported]),
            )
            .for_each(|n| push(&mut text, n));
        text
    }

    /// The state of a text; `None` if it is not one.
    pub fn parse(text: &str) -> Option<KeyState> {
        let numbers = numbers(text, MAX_NUMBERS)?;
        let (&[now, last_id, full_until, buckets, holds, members], rest) =
            numbers.split_first_chunk::<6>()?;
        let (buckets, rest) =
            rest.split_at_checked(usize::try_from(buckets).ok()?.checked_mul(2)?)?;
        let (holds, members_of) =
            rest.split_at_checked(usize::try_from(holds).ok()?.checked_mul(5)?)?;
        if members_of.len() != usize::try_from(members).ok()?.checked_mul(6)? {
            return None;
        }
        Some(KeyState {
            now,
            last_id,
            full_until,
            ring: Ring::of(buckets.as_chunks::<2>().0),
            holds: holds
                .as_chunks::<5>()
                .0
                .iter()
                .map(|&[id, node, left, until, seq]| Hold {
                    id,
                    node,
                    left,
                    until,
                    seq,
                })
                .collect(),
            members: members_of
                .as_chunks::<6>()
                .0
                .iter()
                .map(|&[node, seen, told, before, seq, reported]| Member {
                    node,
                    seen,
                    told,
                    before,
                    seq,
                    reported,
                })
                .collect(),
        })
    }
}
