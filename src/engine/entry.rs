//! A call in flight.

use crate::engine::api_nodes::ApiNode;
use crate::engine::breakers::Admissions;
use crate::engine::caller::Caller;
use crate::engine::check::{Applies, Check, Measures, measured_elsewhere};
use crate::engine::cost::Costs;
use crate::engine::keyed::{EntryExtras, KeyCaller};
use crate::engine::origin::Origin;
use crate::engine::request::Request;
use crate::engine::resource::Resource;
use crate::engine::rest::Rest;
use crate::engine::scope::{Scope, Within};
use crate::engine::store::ControllerOf;
use crate::rule::{Count, FlowRule, KeyValue};
use crate::state::backend::{Backend, Local};
use crate::stats::node::{ClusterNode, DefaultNode, StatisticNode};
use crate::stats::tree::{Context, DEFAULT_CONTEXT, NodeTree};
use crate::time::Timestamp;
use std::fmt;
use std::rc::Rc;

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// As it should.
    Success,
    /// With an error.
    Error,
}

/// A call in flight.
///
/// Ended once, with an outcome. Dropped without one, it gives back what it holds of limits on concurrency, is charged its
/// estimates of costs that are known only at the end, and records nothing; and if it is still waiting, what it would have been released with ([`Entry::cancel`]), as far as the next
/// decision can tell. (A turn that it has taken for a key is spent then.)
#[must_use]
pub struct Entry<S: Backend = Local> {
    pub(super) resource: Rc<Resource<S>>,
    /// `None` for a request that has nothing but a resource and a cost, and passes at once: most have no more.
    rest: Option<Box<Rest<S>>>,
    /// By check: the rules that look at how this call ends.
    held: u64,
    /// By breaker: those that look at how this call ends.
    asked: u64,
    cost: u64,
    started: Timestamp,
    /// Whether it was ended with an outcome.
    ended: bool,
}

impl<S: Backend> Entry<S> {
    /// A call of a request that has nothing but a resource and a cost, and has passed at once; the rules in `held` and the
    /// breakers in `asked` look at how it ends.
    #[inline]
    pub(super) fn plain(
        resource: &Rc<Resource<S>>,
        (held, asked): (u64, u64),
        cost: u64,
        now: Timestamp,
    ) -> Entry<S> {
        Entry {
            resource: Rc::clone(resource),
            rest: None,
            held,
            asked,
            cost,
            started: now,
            ended: false,
        }
    }

    /// A call that was let in at `now` and may go on at `release`.
    pub(super) fn new(
        resource: &Rc<Resource<S>>,
        (origin, scope): (Option<Rc<Origin<S>>>, Scope),
        (held, mut admissions): (u64, Admissions),
        cost: u64,
        (now, release): (Timestamp, Timestamp),
    ) -> Entry<S> {
        let asked = admissions.take_asked();
        let is_plain =
            origin.is_none() && scope.is_default() && admissions.are_none() && release == now;
        let rest = (!is_plain).then(|| {
            resource.rests.keep(Rest {
                origin,
                release,
                scope,
                admissions,
            })
        });
        let mut entry = Entry::plain(resource, (held, asked), cost, now);
        entry.rest = rest;
        entry
    }

    /// Ends the call.
    #[inline]
    pub fn exit(self, outcome: Outcome, now: Timestamp) {
        self.exit_as(outcome, now, now);
    }

    /// Ends the call, which was answered earlier: its response time is that to `answered`.
    #[cfg_attr(not(feature = "small"), inline(always))] // else the entry is moved once more
    pub fn exit_as(mut self, outcome: Outcome, answered: Timestamp, now: Timestamp) {
        let rt = answered.millis_since(self.started);
        let failed = outcome == Outcome::Error;
        self.ended = true;
        if S::STATISTICS
            && let Some(node) = self.node()
        {
            node.complete(rt, self.cost, failed, now);
        }
        if self.rest.is_some() || self.asked | self.held != 0 {
            self.end_rest(rt, failed, now);
        }
    }

    /// Ends what not every call has.
    #[inline(never)]
    fn end_rest(&mut self, rt: u64, failed: bool, now: Timestamp) {
        if S::STATISTICS {
            for node in self.others().into_iter().flatten() {
                node.complete(rt, self.cost, failed, now);
            }
        }
        let mut admissions = self.take_admissions();
        if !admissions.are_none() {
            if S::STATISTICS {
                for api in admissions.apis() {
                    api.complete(rt, self.cost, failed, now);
                }
            }
            if let Some(extras) = admissions.extras() {
                self.resource.keys.leave(extras);
                self.settle_holds(extras, Some(now));
            }
            self.resource
                .prechecks
                .breakers
                .complete(&mut admissions, rt, failed, now);
        }
        let held = std::mem::take(&mut self.held);
        if held != 0 {
            let leave = |_, _: &_, state: &Rc<ControllerOf<S>>| state.leave(self.cost, now);
            self.resource.each_state(held, self.origin(), leave);
        }
        self.give_rest_back();
    }

    fn give_rest_back(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.resource.rests.give_back(rest);
        }
    }

    /// How breakers and keys let it in. None did, from now on.
    fn take_admissions(&mut self) -> Admissions {
        let rest = self.rest.as_mut();
        let admissions = rest.map(|rest| std::mem::take(&mut rest.admissions));
        let mut admissions = admissions.unwrap_or_default();
        admissions.ask(std::mem::take(&mut self.asked));
        admissions
    }

    fn origin(&self) -> Option<&Origin<S>> {
        self.rest.as_ref()?.origin.as_deref()
    }

    /// The keys that look at how the call ends, and what it holds.
    fn extras(&self) -> Option<&EntryExtras> {
        self.rest.as_ref()?.admissions.extras()
    }

    /// The statistics of the APIs of its request.
    fn apis(&self) -> &[ApiNode] {
        self.rest
            .as_ref()
            .map_or(&[], |rest| rest.admissions.apis())
    }

    /// The statistics of the resource in its context.
    #[inline]
    fn node(&self) -> Option<&Rc<DefaultNode>> {
        match &self.rest {
            None => self.resource.default_node.get(),
            Some(rest) => rest.scope.node.as_ref(),
        }
    }

    fn context(&self) -> Option<&Rc<Context>> {
        self.rest.as_ref()?.scope.context.as_ref()
    }

    fn context_name(&self) -> &str {
        self.context()
            .map_or(DEFAULT_CONTEXT, |context| context.name())
    }

    /// Tells the breakers that the call has failed, though it goes on: its caller no longer waits for it. It is in flight until it
    /// ends, and how it ends then tells the breakers nothing.
    pub fn fail(&mut self, now: Timestamp) {
        let rt = now.millis_since(self.started);
        let mut admissions = self.take_admissions();
        let breakers = &self.resource.prechecks.breakers;
        breakers.complete(&mut admissions, rt, true, now);
        if let Some(rest) = &mut self.rest {
            rest.admissions = admissions;
        }
    }

    /// Says what the call has cost in that unit, before it ends: rules that hold an estimate of it charge so much instead, from
    /// the end of the call on; without it, their estimate. Of several values the last one holds; other rules ignore it. Returns
    /// by how much it is more than what a rule holds: debt, which is charged over the limit, if need be.
    pub fn settle(&mut self, unit: &str, n: u64) -> u64 {
        self.settle_each(|rule, _| (rule.unit() == unit).then_some(n))
    }

    /// The same for each rule that holds an estimate, so much: `cost` says what the call has cost under it; `None` if that is
    /// unknown.
    pub fn settle_each(&mut self, mut cost: impl FnMut(&FlowRule, u64) -> Option<u64>) -> u64 {
        let rest = self.rest.as_mut();
        let Some(extras) = rest.and_then(|rest| rest.admissions.extras_mut()) else {
            return 0;
        };
        let mut debt = 0;
        for (i, held) in extras.holds.iter_mut() {
            if let Some(check) = self.resource.checks.get(*i)
                && let Some(n) = cost(&check.rule, held.amount)
            {
                debt = held.settle(n.min(Count::MAX as u64)).max(debt);
            }
        }
        for key in extras.keys.iter_mut().filter(|key| key.holds()) {
            if let Some(rule) = self.resource.keys.rule_of(key)
                && let Some(n) = cost(rule, key.held.amount)
            {
                debt = key.held.settle(n.min(Count::MAX as u64)).max(debt);
            }
        }
        debt
    }

    /// Calls `with` with each rule that holds an estimate of its cost.
    pub fn for_each_hold(&self, with: &mut dyn FnMut(&FlowRule)) {
        let Some(extras) = self.extras() else {
            return;
        };
        for (i, _) in extras.holds.iter() {
            if let Some(check) = self.resource.checks.get(*i) {
                with(&check.rule);
            }
        }
        for key in extras.keys.iter().filter(|key| key.holds()) {
            if let Some(rule) = self.resource.keys.rule_of(key) {
                with(rule);
            }
        }
    }

    /// Reads the shared counts of the rules that hold an estimate of its cost. To be called before the clock is read at its end.
    pub fn observe(&self) {
        let extras = self.extras();
        for (i, _) in extras.iter().flat_map(|extras| extras.holds.iter()) {
            let observe = |_, _: &_, state: &Rc<ControllerOf<S>>| state.observe();
            self.resource.each_state(1 << i, self.origin(), observe);
        }
    }

    /// Whether any rule holds an estimate of its cost.
    pub fn holds(&self) -> bool {
        self.extras().is_some_and(EntryExtras::holds)
    }

    /// Ends a call that turns out not to count: what windows were charged for it goes back, as far as it counts there still; while
    /// it is waiting, it is given up ([`Entry::cancel`]). `keys` are the keys of its request.
    ///
    /// Turns that have been taken, counts that are shared, and rules in shadow mode, which may not have charged it, stay as they
    /// are. Statistics count the call like any other.
    pub fn exit_uncounted(self, keys: &[KeyValue<'_>], outcome: Outcome, now: Timestamp) {
        if now < self.release() {
            return self.cancel(now);
        }
        let extras = self.extras();
        if !extras.is_some_and(EntryExtras::is_exempt) {
            self.resource.refund(&self, keys, now);
        }
        let mut call = self;
        call.settle_each(|_, _| Some(0));
        call.exit(outcome, now);
    }

    /// Ends a call without an answer, since its caller no longer waits for one. It has no outcome, and no response time but that it was not
    /// shorter than this: a breaker that counts slow calls counts it if that is slow already. Else it is as if it were
    /// cancelled.
    pub fn exit_unanswered(mut self, now: Timestamp) {
        let lasted = now.millis_since(self.started);
        self.give_up(Some(lasted), Some(now));
    }

    /// Gives the call up. While it is still waiting, that gives back what it would have been released with: what it borrowed,
    /// and its turn, if no later one was taken. Later, it is as if it were dropped.
    pub fn cancel(mut self, now: Timestamp) {
        self.give_up(None, Some(now));
    }

    /// Records that the call has begun, in the statistics of its APIs, too.
    pub(super) fn begin(&self) {
        if !S::STATISTICS {
            return;
        }
        if let Some(node) = self.node() {
            node.begin(self.cost, self.started);
        }
        for node in self.others().into_iter().flatten() {
            node.begin(self.cost, self.started);
        }
        for api in self.apis() {
            api.begin(self.cost, self.started);
        }
    }

    /// Records that the call has begun on a pass that `lender` lends it.
    ///
    /// Sentinel: `DefaultController.canPass`, which records it on the rule's node alone: there the other nodes never see that
    /// pass.
    #[cold]
    pub(super) fn begin_on_loan(&self, tree: Option<&NodeTree>, lender: &Check<S>) {
        if !S::STATISTICS {
            return;
        }
        let (n, now) = (self.cost, self.started);
        let others = || self.others().into_iter().flatten();
        let (apis, release) = (self.apis(), self.release());
        if lender.terms.compat.is_some() {
            if let Some(node) = self.node() {
                node.begin_elsewhere(now);
            }
            others().for_each(|node| node.begin_elsewhere(now));
            apis.iter().for_each(|api| api.begin_elsewhere(now));
            // An API with the name of the route is counted there.
            let api = apis.iter().find(|api| api.member == lender.member);
            let node = api.map_or(self.node(), |api| Some(&api.node));
            let measured = match (&lender.measures, &lender.applies, node) {
                (Measures::Context(_), _, Some(node)) => {
                    return node.statistics().lend(n, release, now);
                }
                (Measures::Same, Applies::All, Some(node)) => Some(Rc::clone(node.cluster())),
                (Measures::Same, _, _) => {
                    let origin = self.origin();
                    let of_route = || origin.and_then(|origin| origin.statistics.as_ref());
                    if let Some(node) = api.map_or_else(of_route, |api| api.origin.as_ref()) {
                        node.lend(n, release, now);
                    }
                    None
                }
                _ => measured_elsewhere(&lender.rule)
                    .zip(tree)
                    .and_then(|(measured, tree)| tree.cluster(measured)),
            };
            if let Some(measured) = measured {
                measured.statistics().lend(n, release, now);
            }
            return;
        }
        if let Some(node) = self.node() {
            node.begin_on_loan(n, release, now);
        }
        others().for_each(|node| node.begin_on_loan(n, release, now));
        apis.iter()
            .for_each(|api| api.begin_on_loan(n, release, now));
    }

    /// When it may go on: when it was let in, or when its wait is over.
    pub fn release(&self) -> Timestamp {
        self.rest.as_ref().map_or(self.started, |rest| rest.release)
    }

    /// The statistics besides the resource's own.
    fn others(&self) -> [Option<&StatisticNode>; 2] {
        let Some(Rest { origin, scope, .. }) = self.rest.as_deref() else {
            return [None, None];
        };
        [
            origin
                .as_ref()
                .and_then(|origin| origin.statistics.as_deref()),
            scope.inbound.as_deref().map(ClusterNode::statistics),
        ]
    }

    /// Ends what it holds: at an unknown time, if there is no `now`. While it is waiting, it has cost nothing.
    #[cold]
    fn settle_holds(&self, extras: &EntryExtras, now: Option<Timestamp>) {
        let is_waiting = now.is_some_and(|now| now < self.release());
        let origin = self.origin();
        self.resource.keys.settle(extras, is_waiting, now);
        for (i, held) in extras.holds.iter() {
            let cost = if is_waiting { 0 } else { held.cost() };
            self.resource.each_state(1 << i, origin, |_, _, state| {
                state.settle(held.amount, cost, now);
            });
        }
    }

    /// Releases what it holds; without a `now`, the time is unknown. `unanswered` says for how many milliseconds the call had no
    /// answer, if its caller no longer waits for one.
    fn give_up(&mut self, unanswered: Option<u64>, now: Option<Timestamp>) {
        let mut charged = Vec::new();
        let mut admissions = self.take_admissions();
        if !admissions.are_none() {
            if S::STATISTICS {
                admissions.apis().iter().for_each(ApiNode::abandon);
            }
            if let Some(extras) = admissions.extras_mut() {
                charged = std::mem::take(&mut extras.charged);
            }
            let Resource {
                prechecks, keys, ..
            } = &*self.resource;
            if let Some(extras) = admissions.extras() {
                keys.give_up(extras, self.release(), now);
                self.settle_holds(extras, now);
            }
            let (breakers, now) = (&prechecks.breakers, now.unwrap_or(self.started));
            match unanswered {
                Some(lasted) => breakers.give_up(admissions, lasted, now),
                None => breakers.give_back(admissions, now),
            }
        }
        let held = std::mem::take(&mut self.held);
        if held != 0 {
            let release = Some(self.release()).filter(|release| *release > self.started);
            let others = units_of(&charged);
            let costs = Costs {
                requests: self.cost,
                others: &others,
                values: &[],
            };
            let give_up = |_, check: &Check<S>, state: &Rc<ControllerOf<S>>| {
                state.give_up(check.cost(&costs), release, now);
            };
            self.resource.each_state(held, self.origin(), give_up);
        }
    }

    /// Gives up a call that was not ended with an outcome.
    #[cold]
    #[inline(never)]
    fn abandon(&mut self) {
        self.give_up(None, None);
        if S::STATISTICS {
            self.node().into_iter().for_each(|node| node.abandon());
            for node in self.others().into_iter().flatten() {
                node.decrease_thread_num();
            }
        }
        self.give_rest_back();
    }
}

impl<'a> Request<'a> {
    /// This request, made while `entry` is open, and in its context.
    #[must_use]
    pub fn within<S: Backend>(self, entry: &'a Entry<S>) -> Request<'a> {
        Request {
            within: Some(Within {
                context: entry.context(),
                node: entry.node(),
            }),
            ..self
        }
    }
}

impl<S: Backend> Drop for Entry<S> {
    #[inline]
    fn drop(&mut self) {
        if !self.ended {
            self.abandon();
        }
    }
}

impl<S: Backend> fmt::Debug for Entry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "entry to {} since {} ms",
            self.resource.name,
            self.started.as_millis()
        )
    }
}

fn units_of(charged: &[(Box<str>, u64)]) -> Vec<(&str, u64)> {
    charged.iter().map(|(unit, n)| (&**unit, *n)).collect()
}

impl<S: Backend> Resource<S> {
    /// Gives back what windows were charged for a call.
    fn refund(&self, call: &Entry<S>, keys: &[KeyValue<'_>], now: Timestamp) {
        let (origin, release) = (call.origin(), call.release());
        let extras = call.extras();
        let others = units_of(extras.map_or(&[], |extras| &extras.charged));
        let caller = Caller {
            origin,
            context: call.context_name(),
            prioritized: false,
            keys: KeyCaller {
                values: keys,
                resource: &self.name,
                origin: origin.map_or("", |origin| &*origin.name),
                is_other: origin.map_or(0, |origin| origin.is_other),
                cost: call.cost,
                others: &others,
            },
            impatient: false,
        };
        let waited = release > call.started;
        for (i, check) in self.checks.iter().enumerate() {
            let (applies, counts) = check.role(&caller);
            if counts
                && !check.terms.holds
                && (check.enforced || !applies)
                && let Some(state) = self.state(check, i, origin)
            {
                state.refund(check.cost(&caller.keys.costs()), release, waited, now);
            }
        }
        if !self.name.is_empty() {
            self.keys.refund(&caller.keys, call.started, now);
        }
    }
}
