//! A request enters a resource.

use crate::engine::blocked::Blocked;
use crate::engine::breakers::Admissions;
use crate::engine::decide::Admitted;
use crate::engine::decision::Decision;
use crate::engine::entry::Entry;
use crate::engine::keyed::{KeyCaller, Reservations};
use crate::engine::origin::Origin;
use crate::engine::prechecks::Asked;
use crate::engine::request::Request;
use crate::engine::resource::Resource;
use crate::engine::scope::Scope;
use crate::engine::store::Store;
use crate::lease::Taken;
use crate::rule::Cause;
use crate::state::backend::Backend;
use crate::stats::node::ClusterNode;
use crate::time::Timestamp;
use std::rc::Rc;
use std::time::Duration;

impl<S: Backend> Resource<S> {
    #[cfg_attr(not(feature = "small"), inline)]
    pub(super) fn enter(
        self: &Rc<Self>,
        store: &Store<S>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<S> {
        let node = self.default_node.get();
        // Most requests have nothing but a resource, which was asked for before.
        if !request.is_plain() || (node.is_none() && self.is_counted) {
            return self.enter_with_more(store, request, now);
        }
        let asked = if self.has_others {
            self.others_pass_at_once(store, None, request, now)
        } else {
            Some(0)
        };
        let passes = asked.and_then(|asked| {
            let held = self.pass_at_once(None, request.cost, self.may_wait, now)?;
            Some((held, asked))
        });
        match passes {
            None => self.enter_slowly_alone(store, request, now),
            Some(looking) => {
                if S::STATISTICS
                    && let Some(node) = node
                {
                    node.begin(request.cost, now);
                }
                Decision::Pass(Entry::plain(self, looking, request.cost, now))
            }
        }
    }

    /// What becomes of a request that has nothing more and may not pass at once.
    #[cold]
    #[inline(never)]
    fn enter_slowly_alone(
        self: &Rc<Self>,
        store: &Store<S>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<S> {
        let scope = self.scope(store, request);
        self.enter_slowly(None, scope, store, request, now)
    }

    /// What becomes of a request that has more than a resource and a cost.
    #[inline(never)]
    fn enter_with_more(
        self: &Rc<Self>,
        store: &Store<S>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<S> {
        let origin = if request.origin.is_empty() {
            None
        } else {
            Some(self.origin(store, request.origin, Some(now)))
        };
        let scope = self.scope(store, request);
        let may_wait = self.may_wait || request.prioritized;
        let asked = match (request.exempt, self.has_others) {
            (true, _) => None,
            (_, true) => self.others_pass_at_once(store, scope.inbound.as_deref(), request, now),
            (_, false) => Some(0),
        };
        let passes = asked.and_then(|asked| {
            let held = self.pass_at_once(origin.as_deref(), request.cost, may_wait, now)?;
            Some((held, asked))
        });
        let Some((held, asked)) = passes else {
            return self.enter_slowly(origin, scope, store, request, now);
        };
        let mut admissions = Admissions::default();
        admissions.ask(asked);
        let (admitted, whereabouts) = ((held, admissions), (origin, scope));
        let entry = Entry::new(self, whereabouts, admitted, request.cost, (now, now));
        entry.begin();
        Decision::Pass(entry)
    }

    /// The breakers that look at how the call ends, if all rules but flow rules let a request through at once
    /// ([`Prechecks::pass_at_once`](crate::engine::prechecks::Prechecks::pass_at_once)), and no rule has a key.
    #[inline(never)]
    fn others_pass_at_once(
        &self,
        store: &Store<S>,
        inbound: Option<&ClusterNode>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Option<u64> {
        // APIs have statistics of their own.
        if self.members.is_some() || !self.keys.are_none() {
            return None;
        }
        let asked = Asked {
            store,
            origin: request.origin,
            cost: request.cost,
            caller: None,
            is_inbound: request.is_inbound(),
            inbound,
        };
        self.prechecks.pass_at_once(&asked, now)
    }

    /// What becomes of a request that flow rules alone do not let pass at once.
    #[cold]
    #[inline(never)]
    fn enter_slowly(
        self: &Rc<Self>,
        origin: Option<Rc<Origin<S>>>,
        scope: Scope,
        store: &Store<S>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<S> {
        let decided = if self.has_others || request.exempt {
            match self.decide_with_others(origin.as_deref(), &scope, store, request, now) {
                Err(blocked) if S::STATISTICS && S::LEASES && blocked.awaits_store() => {
                    return Decision::Block(blocked);
                }
                decided => decided,
            }
        } else {
            self.decide(origin.as_deref(), request, None, now)
                .map(|admitted| (admitted, Admissions::default()))
        };
        let apis = match S::STATISTICS {
            true => self.api_nodes(store, &scope, origin.as_deref(), request),
            false => Vec::new(),
        };
        let (mut admitted, mut admissions) = match decided {
            Ok(admitted) => admitted,
            Err(blocked) => {
                if S::STATISTICS {
                    apis.iter().for_each(|api| api.block(request.cost, now));
                }
                return self.block(blocked, origin.as_deref(), &scope, request, now);
            }
        };
        admissions.keep(admitted.extras.take());
        if self.charges_units && !request.other_costs().is_empty() {
            admissions.keep_charged(request.other_costs());
        }
        if S::STATISTICS {
            admissions.keep_apis(apis);
        }
        let Admitted {
            held, wait, lender, ..
        } = admitted;
        let (admitted, times) = ((held, admissions), (now, now.plus_nanos(wait)));
        let entry = Entry::new(self, (origin, scope), admitted, request.cost, times);
        match lender {
            None => entry.begin(),
            Some(lender) => entry.begin_on_loan(store.tree(), lender),
        }
        match wait {
            0 => Decision::Pass(entry),
            wait => Decision::Wait(Duration::from_nanos(wait), entry),
        }
    }

    /// Asks the prechecks, and then the flow rules.
    fn decide_with_others(
        &self,
        origin: Option<&Origin<S>>,
        scope: &Scope,
        store: &Store<S>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Result<(Admitted<'_, S>, Admissions), Blocked> {
        let asked = Asked {
            store,
            origin: request.origin,
            cost: request.cost,
            caller: (self.prechecks.are_keyed() && !request.exempt)
                .then(|| self.key_caller(origin, request)),
            is_inbound: request.is_inbound(),
            inbound: scope.inbound.as_deref(),
        };
        let may_wait = self.may_wait || request.prioritized;
        let mut admissions = Admissions::default();
        let decided = self.prechecks.decide(&asked, &mut admissions, now, || {
            if request.exempt {
                Ok(Admitted::exempt())
            } else if !self.keys.are_none() {
                self.decide_keyed(origin, store, request, may_wait, now)
            } else if let Some(held) = self.pass_at_once(origin, request.cost, may_wait, now) {
                Ok(Admitted::at_once(held))
            } else {
                self.decide(origin, request, None, now)
            }
        });
        Ok((decided?, admissions))
    }

    /// Charges all flow rules, or none, where some have a key.
    fn decide_keyed(
        &self,
        origin: Option<&Origin<S>>,
        store: &Store<S>,
        request: &Request<'_>,
        may_wait: bool,
        now: Timestamp,
    ) -> Result<Admitted<'_, S>, Blocked> {
        // Where no rule has a key, some have permits.
        if S::LEASES
            && self.keys.checks.is_empty()
            && let Some(decided) = self.decide_on_permits(origin, request, now)
        {
            return decided;
        }
        for check in self.keys.checks.iter().filter(|check| !check.is_open()) {
            store.open_keyed(check, true);
        }
        let caller = self.key_caller(origin, request);
        let mut reservations = Reservations::default();
        // Most pass at once. What becomes of the others is decided together.
        if self.keys.reserve_at_once(&mut reservations, &caller, now) {
            if let Some(held) = self.pass_at_once(origin, request.cost, may_wait, now) {
                let extras = self.keys.admit(&reservations, None, 0, &caller);
                return Ok(Admitted {
                    extras,
                    ..Admitted::at_once(held)
                });
            }
            self.keys.release(&mut reservations, &caller, now);
        }
        if S::LEASES {
            self.keys.leases.begin(request.is_impatient_for_store());
        }
        self.decide(origin, request, Some(&mut reservations), now)
    }

    /// Takes the permits of a request of one key, where that is all that the rules ask for.
    #[inline(never)]
    fn decide_on_permits(
        &self,
        origin: Option<&Origin<S>>,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Option<Result<Admitted<'_, S>, Blocked>> {
        if !self.checks.is_empty() {
            return None;
        }
        let caller = self.key_caller(origin, request);
        let waits = !request.is_impatient_for_store();
        let (lease, taken) = self.keys.leases.take_only(&caller, waits, now)?;
        let (retry_after, cost) = match taken {
            Taken::Pass { .. } => return Some(Ok(Admitted::at_once(0))),
            Taken::Refuse { retry_after } => (retry_after, Some(lease.block(&caller))),
            Taken::Wait => (Some(Duration::ZERO), None),
        };
        let (rule, id) = lease.check().called();
        Some(Err(Blocked {
            cause: Cause::Flow(rule),
            id,
            retry_after,
            cost,
        }))
    }

    /// The name of the resource of a request. It tells keys apart even beyond the bound, where resources share windows.
    pub(super) fn name_of<'a>(&'a self, request: &Request<'a>) -> &'a str {
        if self.name.is_empty() {
            request.resource
        } else {
            &self.name
        }
    }

    pub(super) fn key_caller<'a>(
        &'a self,
        origin: Option<&Origin<S>>,
        request: &'a Request<'a>,
    ) -> KeyCaller<'a> {
        KeyCaller {
            values: request.keys,
            resource: self.name_of(request),
            origin: request.origin,
            is_other: origin.map_or(0, |origin| origin.is_other),
            cost: request.cost,
            others: request.other_costs(),
        }
    }

    /// Records that a request was refused.
    fn block(
        &self,
        blocked: Blocked,
        origin: Option<&Origin<S>>,
        scope: &Scope,
        request: &Request<'_>,
        now: Timestamp,
    ) -> Decision<S> {
        if !S::STATISTICS {
            return Decision::Block(blocked);
        }
        if let Some(node) = &scope.node {
            node.block(request.cost, now);
        }
        let origin = origin.and_then(|origin| origin.statistics.as_deref());
        let inbound = scope.inbound.as_deref().map(ClusterNode::statistics);
        for node in [origin, inbound].into_iter().flatten() {
            node.increase_block_qps(request.cost, now);
        }
        Decision::Block(blocked)
    }

    /// Where the request is counted; its node is made if need be.
    #[inline]
    fn scope(&self, store: &Store<S>, request: &Request<'_>) -> Scope {
        let parent = request.within;
        let context = match parent {
            Some(parent) => parent.context.cloned(),
            None if request.context.is_empty() => None,
            None => Some(store.context(request.context)),
        };
        let Some(tree) = store.tree().filter(|_| self.is_counted) else {
            return Scope {
                context,
                ..Scope::default()
            };
        };
        let within = parent.and_then(|parent| parent.node.map(|node| &**node));
        let node = match &context {
            Some(context) => tree.node(context, &self.name, within),
            None => {
                let make = || tree.node(tree.default_context(), &self.name, within);
                Rc::clone(self.default_node.get_or_init(make))
            }
        };
        Scope {
            context,
            node: Some(node),
            inbound: request.is_inbound().then(|| Rc::clone(tree.inbound())),
        }
    }
}
