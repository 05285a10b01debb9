//! Rules in force: what they are called, whether they refuse, and how they have decided.

use crate::map::HashMap;
use crate::rule::{MAX_RULES_PER_RESOURCE, Mode, ResourceMode, RuleId, RulesError, Target};
use std::cell::Cell;
use std::rc::Rc;

/// How a rule has decided that is asked before flow rules.
#[derive(Clone, Copy, Debug)]
pub struct PrecheckReport<'a> {
    /// The kind of rule: `authority`, `system` or `breaker`, for example.
    pub kind: &'static str,
    /// Its id.
    pub id: &'a RuleId,
    /// The resource that it names, `*` for each; `None` if it is for all together.
    pub resource: Option<&'a str>,
    /// How many requests it was the first to refuse.
    pub blocked: u64,
    /// How many it would have refused, had it not been in shadow mode.
    pub shadow_blocked: u64,
}

/// A rule in force, and how it has decided.
pub(super) struct InForce<R> {
    pub(super) rule: Rc<R>,
    pub(super) id: RuleId,
    pub(super) enforced: bool,
    blocked: Cell<u64>,
    shadow_blocked: Cell<u64>,
}

impl<R> InForce<R> {
    pub(super) fn new(rule: R, id: RuleId, own: Mode, all: Mode) -> Rc<InForce<R>> {
        Rc::new(InForce {
            rule: Rc::new(rule),
            id,
            enforced: own == Mode::Enforce && all == Mode::Enforce,
            blocked: Cell::new(0),
            shadow_blocked: Cell::new(0),
        })
    }

    /// Records that the rule refuses. Whether the request is refused.
    pub(super) fn refuse(&self) -> bool {
        let count = if self.enforced {
            &self.blocked
        } else {
            &self.shadow_blocked
        };
        count.set(count.get().wrapping_add(1));
        self.enforced
    }

    /// How it has decided, as a rule of that kind, for that resource.
    pub(super) fn report<'a>(
        &'a self,
        kind: &'static str,
        target: Option<&'a Target>,
    ) -> PrecheckReport<'a> {
        PrecheckReport {
            kind,
            id: &self.id,
            resource: target.map(Target::as_str),
            blocked: self.blocked.get(),
            shadow_blocked: self.shadow_blocked.get(),
        }
    }
}

/// The numbers of rules, in order, by the resource that they are for.
#[derive(Default)]
pub(super) struct Targets {
    pub(super) named: HashMap<Rc<str>, Vec<usize>>,
    /// For each resource that none of them names.
    pub(super) each: Vec<usize>,
}

impl Targets {
    /// Those for one of these names, in order, each once. APIs have none but their own.
    fn of(&self, names: &[(Rc<str>, ResourceMode)]) -> Vec<usize> {
        let mut all: Vec<usize> = Vec::new();
        for (name, mode) in names {
            let others = match mode {
                ResourceMode::Route => &*self.each,
                ResourceMode::Api => &[],
            };
            for rule in self.named.get(name).map_or(others, |own| own) {
                if let Err(at) = all.binary_search(rule) {
                    all.insert(at, *rule);
                }
            }
        }
        all
    }

    /// Adds the rule of that number, which stands in `list` at `index`.
    #[inline(never)]
    pub(super) fn add(
        &mut self,
        target: &Target,
        number: usize,
        (list, index): (&'static str, usize),
    ) -> Result<(), RulesError> {
        let of_resource = match target {
            Target::Resource(name) => {
                // Most resources have one rule, and thousands of them take memory.
                let one = || Vec::with_capacity(1);
                self.named.entry(Rc::clone(name)).or_insert_with(one)
            }
            Target::Each => &mut self.each,
        };
        of_resource.push(number);
        if of_resource.len() > MAX_RULES_PER_RESOURCE {
            return Err(RulesError::ManyRules {
                resource: target.as_str().into(),
                list,
                index,
            });
        }
        Ok(())
    }
}

/// The rules of one kind, by the resource that they are for.
pub(super) struct ByTarget<R> {
    pub(super) by: Targets,
    all: Vec<Rc<InForce<R>>>,
}

impl<R> ByTarget<R> {
    /// The rules of a list, taken out of it, in a document in mode `mode`. None of them may have the id of another one, if they
    /// keep states.
    #[inline(never)]
    pub(super) fn new(
        rules: &mut Vec<R>,
        (list, keep_states): (&'static str, bool),
        mode: Mode,
        called: fn(&R) -> (Mode, RuleId, bool),
        target: fn(&R) -> &Target,
    ) -> Result<ByTarget<R>, RulesError> {
        let (mut ids, in_force) = (Ids::default(), Ids::in_force(&mut rules.iter().map(called)));
        let (mut by, mut all) = (Targets::default(), Vec::new());
        for (index, rule) in std::mem::take(rules).into_iter().enumerate() {
            let (own, id) = in_force.beside(called(&rule));
            if keep_states {
                ids.take(&id, index, (list, index))?;
            }
            by.add(target(&rule), index, (list, index))?;
            all.push(InForce::new(rule, id, own, mode));
        }
        Ok(ByTarget { by, all })
    }

    /// The rules for one of these names, in order, each once.
    pub(super) fn of(&self, names: &[(Rc<str>, ResourceMode)]) -> Vec<Rc<InForce<R>>> {
        let numbers = self.by.of(names).into_iter();
        numbers.filter_map(|i| self.all.get(i).cloned()).collect()
    }

    pub(super) fn all(&self) -> &[Rc<InForce<R>>] {
        &self.all
    }
}

/// Ids that are taken, and by the how manieth rule: none is given twice in one list.
#[derive(Default)]
///
/// The last of the numbers counts. (Most maps are of this type, so that their code is there once.)
pub(super) struct Ids(HashMap<Rc<str>, Vec<usize>>);

impl Ids {
    /// The default ids of the rules in force. A rule is its mode, its id, and whether the id was given.
    #[inline(never)]
    pub(super) fn in_force(rules: &mut dyn Iterator<Item = (Mode, RuleId, bool)>) -> Ids {
        let mut ids = Ids::default();
        for (mode, id, given) in rules {
            if mode == Mode::Enforce && !given {
                ids.put(&id, 0);
            }
        }
        ids
    }

    /// Makes room for so many ids.
    pub(super) fn reserve(&mut self, ids: usize) {
        self.0.reserve(ids);
    }

    /// The rule that has this id.
    pub(super) fn number(&self, id: &RuleId) -> Option<usize> {
        self.0.get(id.shared())?.last().copied()
    }

    /// Gives the id to that rule. Returns whether another one had it.
    pub(super) fn put(&mut self, id: &RuleId, number: usize) -> bool {
        let numbers = self.0.entry(Rc::clone(id.shared()));
        let numbers = numbers.or_insert_with(|| Vec::with_capacity(1));
        numbers.push(number);
        numbers.len() > 1
    }

    /// The mode and the id of a rule beside these: a rule in shadow mode gets another id if its default id is among them.
    #[inline(never)]
    pub(super) fn beside(&self, (mode, id, given): (Mode, RuleId, bool)) -> (Mode, RuleId) {
        if mode == Mode::Shadow && !given && self.number(&id).is_some() {
            return (mode, id.in_shadow());
        }
        (mode, id)
    }

    /// Takes an id for the `number`th rule, which stands in that list at that place.
    pub(super) fn take(
        &mut self,
        id: &RuleId,
        number: usize,
        (list, index): (&'static str, usize),
    ) -> Result<(), RulesError> {
        match self.put(id, number) {
            false => Ok(()),
            true => Err(RulesError::SameId {
                id: id.clone(),
                list,
                index,
            }),
        }
    }
}
