//! Which rules apply to a request.

use crate::engine::listed::Listed;
use crate::rule::ResourceMode;
use std::rc::Rc;

/// The flow rules of a resource, or of a route and of APIs together: their numbers in the document.
#[derive(Default)]
pub(super) struct Applicable {
    /// What they are for: the resource, then the APIs.
    pub(super) names: Vec<(Rc<str>, ResourceMode)>,
    /// The rules that are for one of these, in order, each once; and for which of them.
    pub(super) own: Vec<(usize, u8)>,
    /// The rules that measure one of these, and may be for another resource.
    pub(super) measuring: Vec<usize>,
    /// Rules of the resource that stand in no document. Their numbers follow those of the rules that do.
    pub(super) further: Option<Rc<Vec<Listed>>>,
}

impl Applicable {
    /// Adds a name, and the rules that are for it or measure it.
    pub(super) fn add(
        &mut self,
        name: (Rc<str>, ResourceMode),
        own: impl Iterator<Item = usize>,
        measuring: &[usize],
    ) {
        let member = self.names.len() as u8;
        self.names.push(name);
        for rule in own {
            let at = self.own.partition_point(|(known, _)| *known < rule);
            if self.own.get(at).is_none_or(|(known, _)| *known != rule) {
                self.own.insert(at, (rule, member));
            }
        }
        for rule in measuring {
            if !self.measuring.contains(rule) {
                self.measuring.push(*rule);
            }
        }
    }

    /// The rules that measure one of the names, and are for none of them.
    pub(super) fn measuring_only(&self) -> impl Iterator<Item = usize> {
        let is_own = |rule| self.own.iter().any(|(own, _)| *own == rule);
        self.measuring
            .iter()
            .copied()
            .filter(move |rule| !is_own(*rule))
    }

    /// Whether it is one of the names.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|(known, _)| **known == *name)
    }
}
