//! The rules of a resource that are asked before its flow rules: which origins may enter, what the machine can bear, and
//! whether the resource works.

use crate::engine::blocked::Blocked;
use crate::engine::breakers::{Admissions, BreakerCheck, BreakerChecks};
use crate::engine::in_force::{ByTarget, Ids, InForce, PrecheckReport};
use crate::engine::key_parts::KeyParts;
use crate::engine::keyed::{KeyCaller, KeyCheck};
use crate::engine::store::Store;
use crate::inline_vec::InlineVec;
use crate::map::HashMap;
use crate::places::NamePlace;
use crate::rule::system::{Gauges, Inbound, Reads};
use crate::rule::{
    AUTHORITY_RULES, AuthorityRule, BAN, BAN_RULES, BanRule, Cause, DEGRADE_RULES, DegradeRule,
    FlowRule, MAX_SYSTEM_RULES, Mode, ResourceMode, RuleId, Rules, RulesError, SystemRule, Target,
};
use crate::state::backend::{Backend, BreakerKey};
use crate::state::breaker::Phase;
use crate::state::keyed::{Key, KeyHandle, KeyedStates, KeyedTerms};
use crate::stats::node::ClusterNode;
use crate::time::Timestamp;
use std::rc::Rc;
use std::time::Duration;

/// A request as prechecks see it.
pub(super) struct Asked<'a, S: Backend> {
    pub(super) store: &'a Store<S>,
    pub(super) origin: &'a str,
    pub(super) cost: u64,
    /// What keyed rules see of it; `None` if no precheck is keyed.
    pub(super) caller: Option<KeyCaller<'a>>,
    /// Whether the request comes from outside; if statistics are kept, the node of all such requests.
    pub(super) is_inbound: bool,
    pub(super) inbound: Option<&'a ClusterNode>,
}

/// The system rules of a document, and what they look at.
struct SystemRules {
    rules: Box<[Rc<InForce<SystemRule>>]>,
    reads: Reads,
}

/// The rules of a document that are asked before flow rules.
pub(super) struct PrecheckRules {
    authority: ByTarget<AuthorityRule>,
    ban: ByTarget<BanRule>,
    system: Rc<SystemRules>,
    degrade: ByTarget<DegradeRule>,
    /// What refuses a request of too many APIs.
    pub(super) over: Rc<InForce<()>>,
    has_apis: bool,
}

impl PrecheckRules {
    /// Takes them out of the rules of a document.
    ///
    /// # Errors
    ///
    /// Where they do not go together.
    pub(super) fn new<S: Backend>(
        store: &Store<S>,
        rules: &mut Rules,
    ) -> Result<PrecheckRules, RulesError> {
        let (all, system) = (rules.mode, std::mem::take(&mut rules.system));
        if store.tree().is_none() && store.inbound.get().is_none() && !system.is_empty() {
            return Err(RulesError::NoStatistics);
        }
        if system.len() > MAX_SYSTEM_RULES {
            let rules = system.len();
            return Err(RulesError::ManySystemRules { rules });
        }
        // A breaker in shadow mode has a state of its own: it may be open where the other one is closed.
        let degrade = ByTarget::new(
            &mut rules.degrade,
            (DEGRADE_RULES, true),
            all,
            DegradeRule::called,
            DegradeRule::target,
        )?;
        // Authority and system rules keep no state: two rules may have one id.
        let authority = ByTarget::new(
            &mut rules.authority,
            (AUTHORITY_RULES, false),
            all,
            AuthorityRule::called,
            AuthorityRule::target,
        )?;
        let ban = ByTarget::new(
            &mut rules.ban,
            (BAN_RULES, true),
            all,
            BanRule::called,
            BanRule::target,
        )?;
        let in_force = Ids::in_force(&mut system.iter().map(SystemRule::called));
        let in_force = |rule: SystemRule| {
            let (mode, id) = in_force.beside(rule.called());
            InForce::new(rule, id, mode, all)
        };
        let system = SystemRules {
            reads: Reads::of(system.iter()),
            rules: system.into_iter().map(in_force).collect(),
        };
        Ok(PrecheckRules {
            authority,
            ban,
            system: Rc::new(system),
            degrade,
            over: InForce::new((), RuleId::made_of("apis"), Mode::Enforce, all),
            has_apis: !rules.apis.is_empty(),
        })
    }

    /// Whether there are none.
    pub(super) fn are_none(&self) -> bool {
        self.system.rules.is_empty()
            && self.authority.all().is_empty()
            && self.degrade.all().is_empty()
            && self.ban.all().is_empty()
    }

    /// The resources that they name, with the numbers of the rules: a map for each kind.
    pub(super) fn named(&self) -> impl Iterator<Item = &HashMap<Rc<str>, Vec<usize>>> {
        let lists = [&self.degrade.by, &self.authority.by, &self.ban.by];
        lists.into_iter().map(|by| &by.named)
    }

    /// Whether any of them is a breaker of the resource of that name.
    pub(super) fn have_breaker(&self, name: &str) -> bool {
        self.degrade.by.named.contains_key(name)
    }

    /// Whether any of them is for an API of that name.
    pub(super) fn are_for_api(&self, name: &str) -> bool {
        !self.system.rules.is_empty() || self.named().any(|named| named.contains_key(name))
    }

    /// How many breakers look at requests for these names.
    pub(super) fn count_breakers(&self, names: &[(Rc<str>, ResourceMode)]) -> usize {
        self.degrade.of(names).len()
    }

    /// Whether resources that none of them names have states of their own.
    pub(super) fn have_states_of_each(&self) -> bool {
        !self.degrade.by.each.is_empty()
    }

    /// The prechecks of the resource of that name, and of all these names. What their keys are made of is added to `parts`.
    pub(super) fn of<S: Backend>(
        &self,
        store: &Store<S>,
        (name, place): (&Rc<str>, Option<NamePlace>),
        names: &[(Rc<str>, ResourceMode)],
        parts: &mut KeyParts,
    ) -> Prechecks<S> {
        let check = |rule: &Rc<InForce<DegradeRule>>| BreakerCheck {
            rule: Rc::clone(rule),
            breaker: store.breaker(BreakerKey {
                rule: rule.id.clone(),
                resource: Rc::clone(match rule.rule.target() {
                    Target::Resource(name) => name,
                    Target::Each => name,
                }),
                place,
                each: *rule.rule.target() == Target::Each,
                geometry: rule.rule.geometry(),
            }),
        };
        let (bans, breakers) = (self.ban.of(names), self.degrade.of(names));
        Prechecks {
            authority: self.authority.of(names).into(),
            bans: bans
                .iter()
                .map(|rule| BanCheck::new(rule, store, parts))
                .collect(),
            system: Rc::clone(&self.system),
            breakers: BreakerChecks(breakers.iter().map(check).collect()),
            over: None,
        }
    }

    /// Calls `each` with how each of them has decided.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(PrecheckReport<'_>)) {
        self.authority
            .all()
            .iter()
            .for_each(|rule| each(rule.report("authority", Some(rule.rule.target()))));
        self.ban
            .all()
            .iter()
            .for_each(|rule| each(rule.report(BAN, Some(rule.rule.target()))));
        self.system
            .rules
            .iter()
            .for_each(|rule| each(rule.report("system", None)));
        self.degrade
            .all()
            .iter()
            .for_each(|rule| each(rule.report("breaker", Some(rule.rule.target()))));
        let over = self.over.report("api", None);
        if self.has_apis || over.blocked + over.shadow_blocked > 0 {
            each(over);
        }
    }
}

/// The rules of one resource that are asked before its flow rules.
pub(super) struct Prechecks<S: Backend> {
    authority: Box<[Rc<InForce<AuthorityRule>>]>,
    bans: Box<[BanCheck]>,
    system: Rc<SystemRules>,
    pub(super) breakers: BreakerChecks<S::Breaker>,
    /// Of a resource that stands for too many APIs.
    pub(super) over: Option<Rc<InForce<()>>>,
}

impl<S: Backend> Prechecks<S> {
    /// Whether there are none.
    #[inline]
    pub(super) fn are_none(&self) -> bool {
        self.authority.is_empty()
            && self.bans.is_empty()
            && self.system.rules.is_empty()
            && self.breakers.0.is_empty()
    }

    /// As [`Resource::for_each_rule`](crate::Resource::for_each_rule).
    pub(super) fn for_each_rule(&self, each: &mut dyn FnMut(&RuleId, Option<Phase>)) {
        self.authority.iter().for_each(|rule| each(&rule.id, None));
        self.bans.iter().for_each(|ban| each(&ban.rule.id, None));
        for check in &self.breakers.0 {
            each(&check.rule.id, Some(check.breaker.phase()));
        }
    }

    /// Whether a request that they let through is let through again, and none of them records that.
    pub(super) fn are_steady(&self) -> bool {
        self.system.rules.is_empty()
            && self.bans.is_empty()
            && self.breakers.0.is_empty()
            && self.over.is_none()
            && self.authority.iter().all(|rule| rule.enforced)
    }

    /// Whether any of them is keyed.
    #[inline]
    pub(super) fn are_keyed(&self) -> bool {
        !self.bans.is_empty()
    }

    /// Whether any of them looks at the origin of a request.
    pub(super) fn by_origin(&self) -> bool {
        !self.authority.is_empty()
    }

    /// The breakers that look at how the call ends, if these rules let a request through and are left as they are: none of
    /// them refuses it, in shadow mode or not, and no breaker has to be asked for a probe. Else `None`: nothing is counted, and
    /// [`Prechecks::decide`] is to be asked.
    #[inline]
    pub(super) fn pass_at_once(&self, asked: &Asked<'_, S>, now: Timestamp) -> Option<u64> {
        let admits = |rule: &Rc<InForce<AuthorityRule>>| rule.rule.admits(asked.origin);
        let passes = self.over.is_none()
            && self.bans.is_empty()
            && self.authority.iter().all(admits)
            && self.exceeded(asked, now).is_none();
        if passes {
            self.breakers.pass_at_once(now)
        } else {
            None
        }
    }

    /// Decides on a request: if these rules let it through, as the `flow` rules decide. `admissions` says how they did.
    #[inline]
    pub(super) fn decide<A>(
        &self,
        asked: &Asked<'_, S>,
        admissions: &mut Admissions,
        now: Timestamp,
        flow: impl FnOnce() -> Result<A, Blocked>,
    ) -> Result<A, Blocked> {
        if let Err(blocked) = self.check(asked, admissions, now) {
            if !self.bans.is_empty() {
                self.note_refusal(&blocked, asked, now);
            }
            return Err(blocked);
        }
        // Before anything is charged: where breakers are shared, another worker may have taken the probe since they were asked.
        self.breakers.reserve(admissions, now)?;
        match flow() {
            Ok(admitted) => Ok(admitted),
            Err(blocked) => {
                self.breakers.undo(std::mem::take(admissions), now);
                if !self.bans.is_empty() {
                    self.note_refusal(&blocked, asked, now);
                }
                Err(blocked)
            }
        }
    }

    /// Counts a refusal for bans, if it says anything about the client.
    #[cold]
    fn note_refusal(&self, blocked: &Blocked, asked: &Asked<'_, S>, now: Timestamp) {
        let is_about_client = matches!(blocked.cause, Cause::Flow(_) | Cause::Authority(_));
        if is_about_client && !blocked.awaits_store() {
            for ban in &self.bans {
                ban.note_refusal(asked, now);
            }
        }
    }

    /// What refuses a request before any flow rule is asked: an authority rule; a ban; for a request from outside, a system
    /// rule; a breaker. Nothing is taken. Sentinel asks breakers last; none of them is charged, so that only changes which refusal is
    /// reported where several refuse.
    fn check(
        &self,
        asked: &Asked<'_, S>,
        admissions: &mut Admissions,
        now: Timestamp,
    ) -> Result<(), Blocked> {
        if let Some(over) = &self.over
            && over.refuse()
        {
            return Err(Blocked {
                cause: Cause::Apis,
                id: over.id.clone(),
                retry_after: None,
                cost: None,
            });
        }
        for rule in &self.authority {
            if !rule.rule.admits(asked.origin) && rule.refuse() {
                return Err(Blocked {
                    cause: Cause::Authority(Rc::clone(&rule.rule)),
                    id: rule.id.clone(),
                    retry_after: None,
                    cost: None,
                });
            }
        }
        for ban in &self.bans {
            ban.check(asked, now)?;
        }
        if let Some(inbound) = self.exceeded(asked, now) {
            self.refuse_by_system(&inbound, &asked.store.gauges.get(), asked.cost)?;
        }
        self.breakers.check(admissions, now)
    }

    /// The numbers of all inbound calls, where a system rule refuses a request by them.
    #[inline]
    fn exceeded(&self, asked: &Asked<'_, S>, now: Timestamp) -> Option<Inbound> {
        if self.system.rules.is_empty() || !asked.is_inbound {
            return None;
        }
        let inbound = match asked.inbound {
            Some(node) => Inbound::read(node.statistics(), self.system.reads, now),
            None => asked.store.inbound.get()?,
        };
        let gauges = asked.store.gauges.get();
        let refuses =
            |rule: &Rc<InForce<SystemRule>>| rule.rule.refuses(&inbound, &gauges, asked.cost);
        self.system.rules.iter().any(refuses).then_some(inbound)
    }

    /// Refuses by the first limit that is exceeded, if a rule that is enforced has it.
    #[cold]
    #[inline(never)]
    fn refuse_by_system(
        &self,
        inbound: &Inbound,
        gauges: &Gauges,
        cost: u64,
    ) -> Result<(), Blocked> {
        let rules_in = |enforced| {
            self.system
                .rules
                .iter()
                .filter(move |rule| rule.enforced == enforced)
        };
        for enforced in [false, true] {
            let rules = rules_in(enforced).map(|rule| &*rule.rule);
            let Some((limit, exceeded)) = SystemRule::first_exceeded(rules, inbound, gauges, cost)
            else {
                continue;
            };
            let found = rules_in(enforced).find(|rule| std::ptr::eq(&*rule.rule, exceeded));
            if let Some(rule) = found.filter(|rule| rule.refuse()) {
                return Err(Blocked {
                    cause: Cause::System(limit, Rc::clone(&rule.rule)),
                    id: rule.id.clone(),
                    // What the machine bears may change at any moment.
                    retry_after: Some(Duration::from_millis(1)),
                    cost: None,
                });
            }
        }
        Ok(())
    }
}

/// A ban rule on one resource.
struct BanCheck {
    rule: Rc<InForce<BanRule>>,
    refusals: KeyCheck,
    bans: KeyCheck,
}

impl BanCheck {
    #[inline(never)]
    fn new<S: Backend>(
        rule: &Rc<InForce<BanRule>>,
        store: &Store<S>,
        parts: &mut KeyParts,
    ) -> BanCheck {
        let mut check = |of: &FlowRule| {
            let check = KeyCheck::new(
                BAN,
                Rc::new(of.clone()),
                (rule.id.clone(), None),
                true,
                parts,
            );
            store.open_keyed(&check, false);
            check
        };
        BanCheck {
            refusals: check(rule.rule.refusals()),
            bans: check(rule.rule.bans()),
            rule: Rc::clone(rule),
        }
    }

    /// Opens the states with the first request: then there is a seed for hashes.
    fn open<S: Backend>(&self, store: &Store<S>) {
        for check in [&self.refusals, &self.bans] {
            if !check.is_open() {
                store.open_keyed(check, true);
            }
        }
    }

    /// Refuses a request with a key that is banned, for as long as its longest ban; for ever, if it has too many keys.
    #[inline(never)]
    fn check<S: Backend>(&self, asked: &Asked<'_, S>, now: Timestamp) -> Result<(), Blocked> {
        let Some(caller) = &asked.caller else {
            return Ok(());
        };
        self.open(asked.store);
        // A key that was never banned has no state, and gets none.
        let mut left = Some(Duration::ZERO);
        let fits = self.bans.for_each_key(caller, &mut |opened, key, count| {
            let status = opened.states().status(key, &self.bans.terms(count), now);
            if status.remaining == 0 {
                left = left.map(|longest| longest.max(status.reset));
            }
        });
        let retry_after = left.filter(|_| fits);
        if retry_after == Some(Duration::ZERO) || !self.rule.refuse() {
            return Ok(());
        }
        Err(Blocked {
            cause: Cause::Ban(Rc::clone(&self.rule.rule)),
            id: self.rule.id.clone(),
            retry_after,
            cost: None,
        })
    }

    /// Counts a refusal by another rule, once for each key of the request, and bans the keys that have been refused too often.
    #[inline(never)]
    fn note_refusal<S: Backend>(&self, asked: &Asked<'_, S>, now: Timestamp) {
        let Some(caller) = &asked.caller else {
            return;
        };
        self.open(asked.store);
        let (mut counted, mut banned) = (
            InlineVec::<Key, 4>::default(),
            InlineVec::<bool, 4>::default(),
        );
        self.refusals
            .for_each_key(caller, &mut |opened, key, count| {
                let (states, terms) = (opened.states(), self.refusals.terms(count));
                let is_new = !counted.iter().any(|known| *known == key);
                counted.push(key);
                let is_counted = is_new && take_own(states, key, &terms, now);
                banned.push(is_counted && states.status(key, &terms, now).remaining == 0);
            });
        // Both rules see the keys of a request in one order.
        let mut banned = banned.iter();
        self.bans.for_each_key(caller, &mut |opened, key, count| {
            if banned.next() == Some(&true) {
                take_own(opened.states(), key, &self.bans.terms(count), now);
            }
        });
    }
}

/// Charges one to the state of a key, as far as there is room. Returns `false` if the key has no state of its own: it would share
/// one with others, and no client is banned for what others do.
fn take_own(states: &dyn KeyedStates, key: Key, terms: &KeyedTerms, now: Timestamp) -> bool {
    let Some(reserved) = states.reserve(&mut KeyHandle::of(key), terms, 1, now) else {
        return true;
    };
    if reserved.handle.is_shared() {
        states.release(reserved, 1, now);
        return false;
    }
    states.admit(reserved, 1);
    true
}
