//! The node half: it spends what it has leased, and says what is to be asked.

mod closing;

use super::answer::{Answer, AnswerError};
use super::decision::{Change, Figures, Message, Taken, WhenDown};
use super::key_name::window_name;
use super::leases::{InFlight, Leases};
use super::moment::Moment;
use super::request::Request;
use super::terms::Terms;
use hashbrown::HashMap;
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher;
use std::time::Duration;

/// How often the store is asked while it does not answer, in milliseconds.
const PROBE_MS: u64 = 200;

/// For how many requests that are refused the store is not asked again.
const REFUSED_TOGETHER: u64 = 24;

/// A lease is at most one part of so many of the limit, unless one request needs more.
const PARTS: u64 = 10;

/// In how many places a place for a new key is looked for at once.
const EXAMINED: usize = 8;

/// The bits of a token that say which key it is of.
const PLACE_BITS: u32 = 24;

/// A key, and what is known of it.
struct Known {
    key: Box<[u8]>,
    leases: Leases,
    /// Whether it is among those that are due.
    is_due: bool,
}

/// The hash of keys, with a seed that clients cannot guess.
struct Seed([u64; 2]);

impl BuildHasher for Seed {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0[0], self.0[1])
    }
}

/// The node half of one limit, for all its keys.
///
/// At most one request of a key is in flight. A request that the node knows to be refused never reaches the store.
pub struct Node {
    id: u64,
    name: String,
    terms: Terms,
    when_down: WhenDown,
    max_keys: usize,
    places: HashMap<Box<[u8]>, u32, Seed>,
    known: Vec<Known>,
    /// Where a place for a new key is looked for next.
    hand: usize,
    /// The keys whose leases are to be given back, and when at the earliest.
    due: VecDeque<(u64, u32)>,
    tokens: u64,
    reports: u64,
    /// How long answers take, in milliseconds.
    round_trip_ms: u64,
    /// When the latest request was sent that has an answer.
    answered_at: Option<u64>,
    /// Since when the store does not answer, and when it is asked next.
    down: Option<(u64, u64)>,
    figures: Figures,
    /// It leases no more.
    is_closing: bool,
}

impl Node {
    /// A node of a limit. `id` is a random number below 2^53, which no other node has; `name` is the id of the limit. It keeps at most
    /// `max_keys` keys apart: further ones take the places of others, whose permits count as spent. A client that knows the
    /// `seed` can crowd the table: take random numbers, and keep them secret.
    pub fn new(
        id: u64,
        name: &str,
        terms: Terms,
        when_down: WhenDown,
        max_keys: usize,
        seed: [u64; 2],
    ) -> Node {
        Node {
            id: id & Terms::MAX_LIMIT,
            name: window_name(name, &terms),
            terms,
            when_down,
            max_keys: max_keys.clamp(1, 1 << PLACE_BITS),
            places: HashMap::with_hasher(Seed(seed)),
            known: Vec::new(),
            hand: 0,
            due: VecDeque::new(),
            tokens: 0,
            reports: 0,
            round_trip_ms: 0,
            answered_at: None,
            down: None,
            figures: Figures::default(),
            is_closing: false,
        }
    }

    /// What is leased.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Changes the limit. Permits that the node has stay; no interval holds more than the larger limit, and a window after the
    /// last node has the new one, none holds more than that.
    pub fn set_limit(&mut self, limit: u64) {
        self.terms = self.terms.with_limit(limit);
        for known in &mut self.known {
            known.leases.refused(None, 0);
        }
    }

    /// What decides while the store does not answer, from now on.
    pub fn set_when_down(&mut self, when_down: WhenDown) {
        self.when_down = when_down;
    }

    /// Decides about a request of `key` (what [`escape_part`](super::escape_part) has written, or nothing), and charges it if it
    /// passes. A message may come with any decision, and is to be sent at once. After [`Taken::Wait`] decide again when the
    /// answer about the key has come, or [`Node::give_up`].
    #[inline]
    pub fn take(&mut self, key: &[u8], cost: u64, now: Moment) -> (Taken, Option<Message>) {
        self.decide(key, cost, now, true)
    }

    /// Decides about a request that does not wait for the store: without permits and a known refusal [`WhenDown`] decides.
    pub fn give_up(&mut self, key: &[u8], cost: u64, now: Moment) -> (Taken, Option<Message>) {
        self.decide(key, cost, now, false)
    }

    #[inline]
    fn decide(
        &mut self,
        key: &[u8],
        cost: u64,
        now: Moment,
        waits: bool,
    ) -> (Taken, Option<Message>) {
        if cost > self.terms.limit() {
            return (Taken::Refuse { retry_after: None }, None);
        }
        let Some(place) = self.place(key, now) else {
            let retry_after = Some(Duration::from_millis(self.terms.ttl_ms()));
            return (Taken::Refuse { retry_after }, None);
        };
        let is_logged = self.when_down == WhenDown::Local;
        let (terms, now_ms) = (self.terms, now.millis());
        let Some(known) = self.known.get_mut(place as usize) else {
            return (Taken::Wait, None);
        };
        let leases = &mut known.leases;
        let before = leases.left();
        leases.advance(now);
        let spent = leases.spend(cost, now, &terms, is_logged);
        let left = leases.left();
        self.figures.permits = (self.figures.permits + left).saturating_sub(before);
        let refused_for = match spent {
            true => None,
            false => leases.refused_for(cost, now),
        };
        let is_down = self.down.is_some();
        if !spent && refused_for.is_none() && waits && !is_down {
            leases.waiting = leases.waiting.saturating_add(cost);
            return (Taken::Wait, self.ask(place, cost, now, true));
        }
        leases.demand.add(cost, now_ms, span_ms(&terms));
        if spent {
            let remaining = leases.remaining();
            let asks = leases.is_low() && leases.refused_for(1, now).is_none();
            let message = if asks {
                self.ask(place, 0, now, false)
            } else {
                None
            };
            return (Taken::Pass { remaining }, message);
        }
        if let Some(millis) = refused_for {
            let retry_after = Some(Duration::from_millis(millis));
            return (Taken::Refuse { retry_after }, None);
        }
        let taken = self.without_store(place, cost, now);
        let message = if is_down {
            self.ask(place, cost, now, true)
        } else {
            None
        };
        (taken, message)
    }

    /// What [`WhenDown`] decides.
    #[cold]
    fn without_store(&mut self, place: u32, cost: u64, now: Moment) -> Taken {
        let Some(known) = self.known.get_mut(place as usize) else {
            return Taken::Wait;
        };
        let (leases, terms) = (&mut known.leases, &self.terms);
        let refuse = |millis: u64| Taken::Refuse {
            retry_after: Some(Duration::from_millis(millis)),
        };
        let taken = match self.when_down {
            WhenDown::Refuse => refuse(PROBE_MS),
            WhenDown::Pass => {
                leases.admit(cost, now, terms);
                Taken::Pass { remaining: 0 }
            }
            WhenDown::Local => match leases.admit_of_own(cost, now, terms) {
                Ok(remaining) => Taken::Pass { remaining },
                Err(millis) => refuse(millis.unwrap_or(PROBE_MS)),
            },
        };
        self.queue(place, now);
        taken
    }

    /// Takes back the charge of a request that has just passed and is not let in after all. What the store has heard of counts as
    /// spent.
    pub fn give_back(&mut self, key: &[u8], cost: u64) {
        let place = self.places.get(key);
        let known = place.and_then(|place| self.known.get_mut(*place as usize));
        if let Some(known) = known {
            let before = known.leases.left();
            known.leases.give_back(cost, &self.terms);
            self.figures.permits += known.leases.left() - before;
        }
    }

    /// Where a key is known, or is from now on. `None` if all places are taken by keys that wait for an answer.
    #[inline]
    fn place(&mut self, key: &[u8], now: Moment) -> Option<u32> {
        match self.places.get(key) {
            Some(place) => Some(*place),
            None => self.new_place(key, now),
        }
    }

    #[cold]
    fn new_place(&mut self, key: &[u8], now: Moment) -> Option<u32> {
        let new = Known {
            key: key.into(),
            leases: Leases::new(now),
            is_due: false,
        };
        let place = if self.known.len() < self.max_keys {
            self.known.push(new);
            self.known.len() - 1
        } else {
            let place = self.victim(now)?;
            let known = self.known.get_mut(place)?;
            let left = known.leases.left();
            self.figures.permits = self.figures.permits.saturating_sub(left);
            let is_due = known.is_due;
            let old = std::mem::replace(known, Known { is_due, ..new });
            self.places.remove(&old.key);
            place
        };
        self.places.insert(key.into(), place as u32);
        Some(place as u32)
    }

    /// A place that is given to another key: one where nothing counts, else one without permits, else any, but for those that
    /// wait for an answer.
    fn victim(&mut self, now: Moment) -> Option<usize> {
        let mut best: Option<(usize, u8)> = None;
        for _ in 0..EXAMINED {
            self.hand = (self.hand + 1) % self.known.len().max(1);
            let leases = &mut self.known.get_mut(self.hand)?.leases;
            self.figures.permits = self.figures.permits.saturating_sub(leases.advance(now));
            let worth = if leases.is_idle(now, &self.terms) {
                0
            } else if leases.in_flight.is_some() {
                continue;
            } else {
                1 + u8::from(leases.left() > 0)
            };
            if best.is_none_or(|(_, least)| worth < least) {
                best = Some((self.hand, worth));
            }
        }
        best.map(|(place, _)| place)
    }

    /// What to ask about a key, if it may be asked now: for the `need` of a request, and what is expected soon. If no permits are
    /// wanted, it only `settles`.
    fn ask(&mut self, place: u32, need: u64, now: Moment, settles: bool) -> Option<Message> {
        let now_ms = now.millis();
        if self.down.is_some_and(|(_, next)| now_ms < next) {
            return None;
        }
        let known = self.known.get_mut(place as usize)?;
        let (leases, terms) = (&mut known.leases, &self.terms);
        if leases.in_flight.is_some() {
            return None;
        }
        let expected = leases
            .demand
            .expected(horizon_ms(terms), now_ms, span_ms(terms));
        if expected.max(need) == 0 && !settles {
            return None;
        }
        let before = leases.left();
        let settlements = leases.settlements(now, &mut self.reports);
        let most = (terms.limit() / PARTS).min(leases.most).max(need).max(1);
        let has_room =
            !self.is_closing && leases.has_room() && leases.refused_for(need.max(1), now).is_none();
        let want = if has_room {
            expected.max(leases.waiting).max(need).min(most)
        } else {
            0
        };
        if want == 0 && settlements.is_empty() {
            return None;
        }
        if want > 0 {
            leases.waiting = 0;
        }
        let ttl_ms = terms.ttl_ms().max(4 * self.round_trip_ms);
        let ttl_ms = ttl_ms.min(terms.longest_ttl_ms());
        self.tokens += 1;
        let token = (self.tokens << PLACE_BITS | u64::from(place)) & Terms::MAX_LIMIT;
        let need = need.max(1).min(want);
        let request = Request {
            seq: self.tokens,
            node: self.id,
            nodes: leases.told(),
            terms: *terms,
            ttl_ms,
            want,
            need,
            settlements,
        };
        leases.in_flight = Some(InFlight::new(token, now, &request));
        let left = leases.left();
        self.figures.permits = (self.figures.permits + left).saturating_sub(before);
        self.figures.asks += 1;
        if let Some((_, next)) = &mut self.down {
            *next = now_ms.saturating_add(PROBE_MS);
        }
        Some(Message {
            token,
            key: [self.name.as_bytes(), &known.key].concat(),
            text: request.to_text(),
        })
    }

    /// Hands in what the store has answered. An answer that is late, or was lost, changes nothing.
    ///
    /// # Errors
    ///
    /// If the text is not an answer: then it is lost.
    pub fn answered(
        &mut self,
        token: u64,
        answer: &str,
        now: Moment,
    ) -> Result<Change, (AnswerError, Change)> {
        let answer = Answer::parse(answer).and_then(|answer| match self.expects(token, &answer) {
            true => Ok(answer),
            false => Err(AnswerError::foreign(&answer)),
        });
        match answer {
            Ok(answer) => Ok(self.heard(token, &answer, None, now)),
            Err(error) => Err((error, self.lost(token, now))),
        }
    }

    /// Whether an answer is that to the request with this token, if that is in flight. One to an earlier request may grant permits whose time is over, and
    /// some proxies hand the answer of a closed connection to the next one.
    pub fn expects(&self, token: u64, answer: &Answer) -> bool {
        let place = token & ((1 << PLACE_BITS) - 1);
        let known = self.known.get(place as usize);
        let sent = known.and_then(|known| known.leases.in_flight.as_ref());
        let sent = sent.filter(|sent| sent.token == token);
        sent.is_none_or(|sent| sent.echo == answer.echo)
    }

    /// Hands in an answer that [`Node::expects`]. If its permits last only until `expires_ms` after the request was sent, and nothing of them can be given
    /// back, the store is another service.
    pub fn heard(
        &mut self,
        token: u64,
        answer: &Answer,
        expires_ms: Option<u64>,
        now: Moment,
    ) -> Change {
        let (terms, now_ms) = (self.terms, now.millis());
        let Some((place, known)) = self.of_token(token) else {
            return Change::None;
        };
        let leases = &mut known.leases;
        let Some(sent) = leases.in_flight.take_if(|of| of.token == token) else {
            return Change::None;
        };
        let before = leases.left();
        leases.heard(
            answer.remaining,
            expires_ms.is_none().then_some(answer.nodes),
        );
        let granted = answer.granted.min(sent.want);
        if granted > 0 {
            let id = if expires_ms.is_some() { 0 } else { answer.id };
            let ttl_ms = expires_ms.unwrap_or(sent.ttl_ms);
            leases.granted(id, granted, &sent, ttl_ms, now);
        }
        let left = leases.left();
        let refused = (answer.retry_ms > 0).then(|| {
            let in_second = leases.demand.expected(1000, now_ms, span_ms(&terms));
            let together = REFUSED_TOGETHER * 1000 / in_second.max(1);
            let pause = answer.retry_ms.max(together.min(horizon_ms(&terms)));
            now_ms.saturating_add(pause)
        });
        if sent.want > 0 {
            leases.refused(refused, sent.need);
        }
        // Requests that began to wait meanwhile, and more than were granted, are in the next demand.
        leases.waiting = match refused {
            None => leases.waiting.saturating_sub(granted),
            Some(_) => 0,
        };
        self.figures.permits = (self.figures.permits + left).saturating_sub(before);
        self.figures.granted += granted;
        let took = now_ms.saturating_sub(sent.sent.millis());
        self.round_trip_ms = took.max((self.round_trip_ms * 7 + took) / 8);
        self.answered_at = self.answered_at.max(Some(sent.sent.millis()));
        let down = self.down.take();
        self.queue(place, now);
        match down {
            None => Change::None,
            Some((since, _)) => {
                self.figures.down_ms += now_ms.saturating_sub(since);
                Change::Up
            }
        }
    }

    /// There will be no answer: what it would have granted counts as spent, and what it has settled cannot be settled again.
    pub fn lost(&mut self, token: u64, now: Moment) -> Change {
        let Some((place, known)) = self.of_token(token) else {
            return Change::None;
        };
        if known
            .leases
            .in_flight
            .as_ref()
            .is_none_or(|of| of.token != token)
        {
            return Change::None;
        }
        let Some(lost) = known.leases.lost() else {
            return Change::None;
        };
        self.figures.lost += 1;
        self.queue(place, now);
        // An answer to something later says that the store is there.
        if self.down.is_some() || self.answered_at > Some(lost.sent.millis()) {
            return Change::None;
        }
        let now_ms = now.millis();
        self.down = Some((now_ms, now_ms));
        Change::Down
    }

    /// The token of the request about a key that is on its way, if one is.
    pub fn awaited(&self, key: &[u8]) -> Option<u64> {
        let known = self.known.get(*self.places.get(key)? as usize)?;
        known.leases.in_flight.as_ref().map(|sent| sent.token)
    }

    fn of_token(&mut self, token: u64) -> Option<(u32, &mut Known)> {
        let place = token & ((1 << PLACE_BITS) - 1);
        let known = self.known.get_mut(place as usize)?;
        Some((place as u32, known))
    }

    /// Puts a key among those that are due, if it has something to give back or to report.
    fn queue(&mut self, place: u32, now: Moment) {
        let Some(known) = self.known.get_mut(place as usize) else {
            return;
        };
        if known.is_due {
            return;
        }
        let report = known.leases.owes_a_report().then(|| now.millis());
        let close = known.leases.next_close();
        let Some(mut at) = close.into_iter().chain(report).min() else {
            return;
        };
        if let Some((_, next)) = self.down {
            at = at.max(next);
        }
        // In their order, so that the first is due first.
        let last = self.due.back().map_or(0, |(last, _)| *last);
        known.is_due = true;
        self.due.push_back((at.max(last), place));
    }

    /// What is to be sent although no request came: what is left of leases is given back before their time is over, and what was
    /// admitted without the store is told. To be called at [`Node::next_due`], until it returns `None`.
    pub fn due(&mut self, now: Moment) -> Option<Message> {
        let now_ms = now.millis();
        for _ in 0..self.due.len() {
            let &(at, place) = self.due.front()?;
            if at > now_ms {
                return None;
            }
            self.due.pop_front();
            let known = self.known.get_mut(place as usize)?;
            known.is_due = false;
            let expired = known.leases.advance(now);
            self.figures.permits = self.figures.permits.saturating_sub(expired);
            let is_due = known.leases.next_close().is_some_and(|at| at <= now_ms)
                || known.leases.owes_a_report();
            let message = if is_due {
                self.ask(place, 0, now, true)
            } else {
                None
            };
            let waits = self.known.get(place as usize)?.leases.in_flight.is_some();
            // Its answer queues it again.
            if !waits {
                self.queue(place, now);
            }
            if message.is_some() {
                return message;
            }
        }
        None
    }

    /// When [`Node::due`] is to be called next, by the monotonic clock; `None` while nothing is leased.
    pub fn next_due(&self) -> Option<u64> {
        self.due.front().map(|(at, _)| *at)
    }

    /// Whether the store does not answer.
    pub fn is_down(&self) -> bool {
        self.down.is_some()
    }

    /// What it has done so far.
    pub fn figures(&self) -> Figures {
        self.figures
    }
}

/// For how long the permits of a lease should be enough.
fn horizon_ms(terms: &Terms) -> u64 {
    terms.ttl_ms() / 2
}

/// By how long a time the demand is measured.
fn span_ms(terms: &Terms) -> u64 {
    2 * horizon_ms(terms)
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Node");
        shown
            .field("name", &self.name)
            .field("keys", &self.known.len());
        shown.field("figures", &self.figures).finish()
    }
}
