//! A flow rule of a document, as it is called.

use crate::rule::{FlowRule, Mode, RuleId};
use std::rc::Rc;

/// A flow rule, as it is called.
pub(super) struct Listed {
    pub(super) rule: Rc<FlowRule>,
    pub(super) id: RuleId,
    /// Its default id, which is that of a rule in force: it looks at the state of that one.
    pub(super) beside: Option<RuleId>,
}

impl Listed {
    pub(super) fn new(rule: FlowRule) -> Listed {
        Listed {
            id: rule.id(),
            rule: Rc::new(rule),
            beside: None,
        }
    }

    /// Of two rules with one id: where one of them is the other in shadow mode, and their id is a default one, that one is called
    /// otherwise from now on. How.
    pub(super) fn part_from(&mut self, earlier: &mut Listed) -> Option<RuleId> {
        let is_parted = self.rule.mode() != earlier.rule.mode()
            && self.rule.has_default_id()
            && earlier.rule.has_default_id()
            && self.rule.counts_as(&earlier.rule);
        let shadow = match self.rule.mode() {
            _ if !is_parted || earlier.beside.is_some() => return None,
            Mode::Shadow => self,
            Mode::Enforce => earlier,
        };
        let id = shadow.id.in_shadow();
        shadow.beside = Some(std::mem::replace(&mut shadow.id, id.clone()));
        Some(id)
    }
}
