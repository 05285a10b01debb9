//! A resource with rules that stand in no document, such as those that the owner of a route gives it.
//!
//! They join the rules that the resource has: all admit a request, or none is charged, as the rules of one resource decide.

use crate::engine::Engine;
use crate::engine::in_force::Ids;
use crate::engine::listed::Listed;
use crate::engine::resource::Resource;
use crate::rule::{FLOW_RULES, FlowRule, MAX_RULES_PER_RESOURCE, RulesError};
use crate::state::backend::Backend;
use std::rc::Rc;

impl<S: Backend> Engine<S> {
    /// The resource that has the rules of `route` and, after them, `rules`, which should be for that resource. The caller keeps it
    /// for as long as they are in force: [`Engine::resource`] returns the `route` without them.
    ///
    /// A rule whose id and geometry were in force a moment ago goes on where it is, as long as a resource with it is kept.
    ///
    /// # Errors
    ///
    /// If a rule has the id of another one, of the rules in force, too; or if the resource then has more rules than
    /// [`MAX_RULES_PER_RESOURCE`]. The index is that in `rules`.
    pub fn resource_with_rules(
        &self,
        route: &Rc<Resource<S>>,
        rules: Vec<FlowRule>,
    ) -> Result<Rc<Resource<S>>, RulesError> {
        let table = self.table.borrow();
        let (mut ids, mut further) = (Ids::default(), Vec::new());
        for (index, rule) in rules.into_iter().enumerate() {
            let listed = Listed::new(&self.store, rule, table.mode, (FLOW_RULES, index));
            if table.rules.iter().any(|known| known.id == listed.id) {
                ids.put(&listed.id, index);
            }
            ids.take(&listed.id, index, (FLOW_RULES, index))?;
            further.push(listed);
        }
        let last = further.len().saturating_sub(1);
        let all = table.of_route(&route.name, Some(&Rc::new(further)));
        if table.count_rules(&all) > MAX_RULES_PER_RESOURCE {
            return Err(RulesError::ManyRules {
                resource: route.name.as_ref().into(),
                list: FLOW_RULES,
                index: last,
            });
        }
        Ok(Rc::new(table.make_of(
            &self.store,
            (&route.name, route.place),
            &all,
        )))
    }
}
