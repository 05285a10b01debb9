//! What a node knows of a key: its leases, what it has used of them, and what the store has said.

use super::demand::Demand;
use super::moment::Moment;
use super::request::{Report, Request, Settlement};
use super::ring::Ring;
use super::terms::Terms;

/// The most moments that what was used of a lease is told apart by: further ones count from the later of two, which is stricter.
const MAX_SLOTS: usize = 8;

/// The most leases that are open; while there are so many, no more are asked for.
const MAX_LEASES: usize = 4;

/// What was used until a moment.
#[derive(Clone, Copy, Debug)]
struct Used {
    /// The latest use.
    at: Moment,
    n: u64,
}

/// Uses in their order.
#[derive(Default, Debug)]
struct Uses(Vec<Used>);

impl Uses {
    fn add(&mut self, n: u64, now: Moment, bucket_ms: u64) {
        if let Some(last) = self.0.last_mut()
            && now.millis() / bucket_ms == last.at.millis() / bucket_ms
        {
            *last = Used {
                at: now,
                n: last.n.saturating_add(n),
            };
            return;
        }
        if self.0.len() == MAX_SLOTS {
            let first = self.0.remove(0);
            let next = self.0.iter_mut().take(1);
            next.for_each(|next| next.n = next.n.saturating_add(first.n));
        }
        self.0.push(Used { at: now, n });
    }

    /// Takes back the latest uses. Returns when the latest was; `None`, and takes nothing, if fewer were used then.
    fn take_back(&mut self, n: u64) -> Option<Moment> {
        let last = self.0.last_mut().filter(|last| last.n >= n)?;
        last.n -= n;
        Some(last.at)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|used| used.n == 0)
    }

    fn reports(&self, now: Moment) -> Vec<Report> {
        let used = self.0.iter().filter(|used| used.n > 0);
        used.map(|used| Report {
            age_ms: now.shortest_since(used.at),
            n: used.n,
        })
        .collect()
    }
}

/// Permits of a key, for a time.
#[derive(Debug)]
struct Lease {
    id: u64,
    left: u64,
    /// When it was asked for.
    sent: Moment,
    ttl_ms: u64,
    /// Of the latest settlement.
    seq: u64,
    /// What was used and not yet settled.
    used: Uses,
    /// It is given back at once.
    closes: bool,
    /// It is not known whether a settlement has arrived: there is no other, and the store counts all of it as used.
    is_lost: bool,
    /// The store hears nothing of it: it has charged all of it.
    is_charged: bool,
}

impl Lease {
    /// Whether its permits may still be spent: the store holds them until later.
    fn lasts(&self, now: Moment) -> bool {
        now.longest_since(self.sent).saturating_add(1) < self.ttl_ms
    }

    /// When what is left is to be given back, by the monotonic clock.
    fn closes_at(&self) -> u64 {
        if self.closes {
            return 0;
        }
        self.sent.millis().saturating_add(self.ttl_ms * 3 / 5)
    }

    fn is_open(&self) -> bool {
        !self.is_lost && !self.is_charged
    }
}

/// A request that has no answer yet.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) token: u64,
    pub(super) sent: Moment,
    /// What its answer repeats.
    pub(super) echo: u64,
    pub(super) ttl_ms: u64,
    pub(super) want: u64,
    pub(super) need: u64,
    /// The leases that it settles.
    settled: Vec<u64>,
}

impl InFlight {
    pub(super) fn new(token: u64, sent: Moment, request: &Request) -> InFlight {
        InFlight {
            token,
            sent,
            echo: request.echo(),
            ttl_ms: request.ttl_ms,
            want: request.want,
            need: request.need,
            settled: request.settlements.iter().map(|of| of.id).collect(),
        }
    }
}

/// What was admitted without the store, on its way to it.
#[derive(Debug)]
struct SentReport {
    seq: u64,
    uses: Uses,
}

/// What a node knows of a key.
#[derive(Debug)]
pub(super) struct Leases {
    /// In the order in which they were granted, which is that in which they are spent.
    open: Vec<Lease>,
    /// The permits of all of them.
    left: u64,
    pub(super) in_flight: Option<InFlight>,
    /// Until when the store has no permits, and for which cost; by the monotonic clock.
    refused: Option<(u64, u64)>,
    pub(super) demand: Demand,
    /// What requests wait for.
    pub(super) waiting: u64,
    /// The permits that the lease before had, and was asked for again below a quarter of them.
    low: u64,
    /// What was left at the store.
    remaining: u64,
    /// The most that is asked for at once: a quarter of what is left, where the store loses that if more is asked for.
    pub(super) most: u64,
    /// The part of the limit without the store: one of so many; `None` before the first answer.
    told: Option<u64>,
    /// What the node has admitted in the last window, where that decides without the store.
    own: Ring,
    /// What was admitted without the store.
    unreported: Uses,
    reported: Option<SentReport>,
}

impl Leases {
    pub(super) fn new(now: Moment) -> Leases {
        Leases {
            open: Vec::new(),
            left: 0,
            in_flight: None,
            refused: None,
            demand: Demand::new(now.millis()),
            waiting: 0,
            low: 0,
            remaining: 0,
            most: u64::MAX,
            told: None,
            own: Ring::default(),
            unreported: Uses::default(),
            reported: None,
        }
    }

    /// How many permits there are.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// Permits here, and those that the store had left.
    pub(super) fn remaining(&self) -> u64 {
        self.left.saturating_add(self.remaining)
    }

    /// Forgets the leases whose time is over: the store counts them as used. Returns how many permits they had left.
    #[inline]
    pub(super) fn advance(&mut self, now: Moment) -> u64 {
        if self.open.iter().all(|lease| lease.lasts(now)) {
            return 0;
        }
        let before = self.left;
        self.open.retain(|lease| lease.lasts(now));
        self.left = self.open.iter().map(|lease| lease.left).sum();
        before.saturating_sub(self.left)
    }

    /// Spends permits, of the oldest lease first; all or none.
    #[inline]
    pub(super) fn spend(&mut self, cost: u64, now: Moment, terms: &Terms, is_logged: bool) -> bool {
        if self.left < cost {
            return false;
        }
        self.left -= cost;
        let mut due = cost;
        for lease in &mut self.open {
            let n = lease.left.min(due);
            if n > 0 {
                lease.left -= n;
                due -= n;
                lease.used.add(n, now, terms.bucket_ms());
            }
        }
        if is_logged {
            let now_ms = now.millis();
            self.own.forget(terms, now_ms);
            self.own.add(terms, now_ms, cost, now_ms);
        }
        true
    }

    /// Takes back what was spent last, as far as no settlement has told the store.
    pub(super) fn give_back(&mut self, cost: u64, terms: &Terms) {
        let newest_first = self.open.iter_mut().rev();
        let given = newest_first
            .filter(|lease| lease.is_open())
            .find_map(|lease| {
                let at = lease.used.take_back(cost)?;
                lease.left += cost;
                Some((at, cost))
            });
        let given = given.or_else(|| Some((self.unreported.take_back(cost)?, 0)));
        if let Some((at, permits)) = given {
            self.left += permits;
            self.own.take_back(terms, at.millis(), cost);
        }
    }

    /// For how many milliseconds a request of that cost is known to be refused.
    #[inline]
    pub(super) fn refused_for(&self, cost: u64, now: Moment) -> Option<u64> {
        let (until, need) = self.refused?;
        let left = until.saturating_sub(now.millis());
        (left > 0 && cost >= need).then_some(left)
    }

    /// Whether so few permits are left that more should be asked for now.
    #[inline]
    pub(super) fn is_low(&self) -> bool {
        self.left <= self.low / 4 && self.in_flight.is_none()
    }

    /// Whether one more lease can be noted.
    pub(super) fn has_room(&self) -> bool {
        self.open.len() < MAX_LEASES
    }

    /// When the next lease that has permits left is to be given back; `None` if there is none.
    pub(super) fn next_close(&self) -> Option<u64> {
        let open = self.open.iter().filter(|of| of.left > 0 && of.is_open());
        open.map(Lease::closes_at).min()
    }

    /// Gives back all leases when the next request is sent.
    pub(super) fn close(&mut self) {
        self.open.iter_mut().for_each(|lease| lease.closes = true);
    }

    /// Whether the store has not heard of all that was admitted without it.
    pub(super) fn owes_a_report(&self) -> bool {
        self.reported.is_some() || !self.unreported.is_empty()
    }

    /// Whether nothing of it would be missed, but for what is known of refusals. To be called after [`Leases::advance`].
    pub(super) fn is_idle(&mut self, now: Moment, terms: &Terms) -> bool {
        self.own.forget(terms, now.millis());
        self.in_flight.is_none() && self.left == 0 && self.own.is_empty() && !self.owes_a_report()
    }

    /// What is to be settled now: it leaves here, and what is given back cannot be spent from now on.
    pub(super) fn settlements(&mut self, now: Moment, next_report: &mut u64) -> Vec<Settlement> {
        let mut settlements = Vec::new();
        self.open.retain_mut(|lease| {
            if !lease.is_open() {
                return lease.left > 0;
            }
            let closes = lease.left == 0 || now.millis() >= lease.closes_at();
            if closes || !lease.used.is_empty() {
                lease.seq += 1;
                settlements.push(Settlement {
                    id: lease.id,
                    seq: lease.seq,
                    closes,
                    used: lease.used.reports(now),
                });
                lease.used = Uses::default();
            }
            !closes
        });
        self.left = self.open.iter().map(|lease| lease.left).sum();
        if self.reported.is_none() && !self.unreported.is_empty() {
            *next_report += 1;
            self.reported = Some(SentReport {
                seq: *next_report,
                uses: std::mem::take(&mut self.unreported),
            });
        }
        if let Some(report) = &self.reported {
            settlements.push(Settlement {
                id: 0,
                seq: report.seq,
                closes: false,
                used: report.uses.reports(now),
            });
        }
        settlements
    }

    /// There will be no answer. What it has settled may have been settled, and may not.
    pub(super) fn lost(&mut self) -> Option<InFlight> {
        let lost = self.in_flight.take()?;
        for lease in &mut self.open {
            lease.is_lost |= lost.settled.contains(&lease.id);
        }
        self.waiting = 0;
        Some(lost)
    }

    /// Which part of the limit is this node's without the store: one of so many; 0 if it has been told none.
    pub(super) fn told(&self) -> u64 {
        self.told.unwrap_or(0)
    }

    /// The store has heard what was told it, and has said how much of the limit is this node's without it.
    pub(super) fn heard(&mut self, remaining: u64, told: Option<u64>) {
        self.reported = None;
        self.remaining = remaining;
        self.most = match told {
            None if remaining > 0 => remaining / 4,
            _ => u64::MAX,
        };
        self.told = told.or(self.told);
    }

    /// Notes a lease. Returns whether its permits can still be spent.
    pub(super) fn granted(
        &mut self,
        id: u64,
        n: u64,
        of: &InFlight,
        ttl_ms: u64,
        now: Moment,
    ) -> bool {
        let lease = Lease {
            id,
            left: n,
            sent: of.sent,
            ttl_ms,
            seq: 0,
            used: Uses::default(),
            closes: false,
            is_lost: false,
            is_charged: id == 0,
        };
        let lasts = lease.lasts(now);
        if lasts {
            self.low = n;
            self.left = self.left.saturating_add(n);
            self.open.push(lease);
        }
        lasts
    }

    /// The store has no permits for `need` until then, by the monotonic clock; `None` if it has.
    pub(super) fn refused(&mut self, until: Option<u64>, need: u64) {
        self.refused = until.map(|until| (until, need));
    }

    /// Admits a request without the store, whatever the limit.
    pub(super) fn admit(&mut self, cost: u64, now: Moment, terms: &Terms) {
        self.unreported.add(cost, now, terms.bucket_ms());
    }

    /// Admits a request without the store if this node's part of the limit has room: all that the node has admitted in the last
    /// window counts. Else returns for how many milliseconds it has none; `None` if it never has.
    pub(super) fn admit_of_own(
        &mut self,
        cost: u64,
        now: Moment,
        terms: &Terms,
    ) -> Result<u64, Option<u64>> {
        let part = match self.told {
            None => terms.limit(),
            Some(nodes) => terms.limit().checked_div(nodes).unwrap_or(0),
        };
        let now_ms = now.millis();
        self.own.forget(terms, now_ms);
        let Some(most) = part.checked_sub(cost) else {
            return Err(None);
        };
        let left = most
            .checked_sub(self.own.sum())
            .ok_or_else(|| Some(self.own.falls_to(terms, most).saturating_sub(now_ms)))?;
        self.own.add(terms, now_ms, cost, now_ms);
        self.admit(cost, now, terms);
        Ok(left)
    }
}
