//! A flow rule of a document, as it is called.

use crate::engine::leased::{LeaseController, window_to_lease};
use crate::engine::store::Store;
use crate::rule::{
    Counting, DEFAULT_SAMPLE_COUNT, FlowRule, Grade, KEYED_SAMPLE_COUNT, Mode, RuleId,
};
use crate::state::backend::Backend;
use crate::state::leased::NotLeased;
use crate::window::Window;
use std::rc::Rc;

/// A flow rule, as it is called.
pub(super) struct Listed {
    pub(super) rule: Rc<FlowRule>,
    pub(super) id: RuleId,
    /// Its default id, which is that of a rule in force: it looks at the state of that one.
    pub(super) beside: Option<RuleId>,
    /// Its permits, if its limit is one for all machines.
    pub(super) leased: Option<Rc<LeaseController>>,
    /// Why it is not, although the rule asks for it: a sentence.
    pub(super) warning: Option<String>,
    /// The list where it stands, and its place there.
    place: (&'static str, usize),
}

impl Listed {
    /// The rule that stands in that list at that place, in a document in mode `all`.
    pub(super) fn new<S: Backend>(
        store: &Store<S>,
        rule: FlowRule,
        all: Mode,
        (list, index): (&'static str, usize),
    ) -> Listed {
        let (id, mut leased, mut warning) = (rule.id(), None, None);
        if let Some(cluster) = rule.cluster() {
            let window = window_to_lease(&rule, all);
            match window.and_then(|window| store.lease((&rule, &id), cluster, window)) {
                Ok(permits) => leased = Some(permits),
                Err(NotLeased { why, cure }) => {
                    let place = format!("{list}[{index}].clusterMode: `true` {why}");
                    warning = Some(format!("{place}, so each node limits by itself; {cure}"));
                }
            }
        }
        Listed {
            id,
            rule: Rc::new(rule),
            beside: None,
            leased,
            warning,
            place: (list, index),
        }
    }

    /// That its window is coarse for want of a divisor: a sentence. It is made where it is read, since few callers read it.
    pub(super) fn coarse_warning(&self) -> Option<String> {
        let (list, index) = self.place;
        let why = coarseness(&self.rule)?;
        Some(format!("{list}[{index}].intervalMs: {why}"))
    }

    /// Whether it is decided on by key: rules with leased permits are, too.
    pub(super) fn is_keyed(&self) -> bool {
        self.rule.keyed_by().is_some() || self.leased.is_some()
    }

    /// Of two rules with one id: where one of them is the other in shadow mode, and their id is a default one, that one is called
    /// otherwise from now on. How. It looks at the state of the other one, unless that has permits instead.
    pub(super) fn part_from(&mut self, earlier: &mut Listed) -> Option<RuleId> {
        let is_parted = self.rule.mode() != earlier.rule.mode()
            && self.rule.has_default_id()
            && earlier.rule.has_default_id()
            && self.rule.counts_as(&earlier.rule);
        let is_leased = self.leased.is_some() || earlier.leased.is_some();
        let shadow = match self.rule.mode() {
            _ if !is_parted || earlier.beside.is_some() => return None,
            Mode::Shadow => self,
            Mode::Enforce => earlier,
        };
        let id = shadow.id.in_shadow();
        let own = std::mem::replace(&mut shadow.id, id.clone());
        shadow.beside = Some(own).filter(|_| !is_leased);
        Some(id)
    }
}

/// Why a rule's window is coarse, if that is for want of a divisor of its interval: what follows, and the cure.
fn coarseness(rule: &FlowRule) -> Option<String> {
    let (Grade::Qps { window, counting }, false) =
        (rule.grade(), rule.control_behavior().is_paced())
    else {
        return None;
    };
    let most = match rule.keyed_by() {
        Some(_) => KEYED_SAMPLE_COUNT,
        None => DEFAULT_SAMPLE_COUNT,
    };
    let (least, window) = (KEYED_SAMPLE_COUNT / 2, window.window());
    let (samples, interval_ms) = (window.sample_count(), window.interval_ms());
    let is_coarse = samples < least && interval_ms >= KEYED_SAMPLE_COUNT.into();
    let is_default = samples == Window::finest_sample_count(interval_ms, most);
    (counting == Counting::Strict && is_coarse && is_default).then(|| {
        let buckets = if samples == 1 { "bucket" } else { "buckets" };
        let (counted, even) = (samples + 1, interval_ms.next_multiple_of(most.into()));
        format!(
            "`{interval_ms}` has no divisor from {least} to {most}, so its window has {samples} {buckets} and may pass only {samples}/{counted} of the count; use `{even}`"
        )
    })
}
