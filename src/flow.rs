//! Flow rules alone: the short form of an [`Engine`](crate::Engine), in a quarter of its code.
//!
//! The states of the rules are the engine's, and several rules decide together in the same three steps: each is asked, and if none
//! refuses, each reserves, and then each admits; else all give back. What is left out is all that other rules, statistics and shared counts need.

mod call;
mod limit;
mod resource;
mod state;

pub use call::{FlowCall, FlowRefusal};
pub use limit::{FlowLimit, FlowTerms};
pub use resource::{FlowPolicy, FlowRequest, FlowResource};

use crate::rule::{FlowRule, KeyPart, RulesError};
use resource::OfResource;
use state::{InForce, in_force};
use std::cell::RefCell;
use std::rc::{Rc, Weak};

/// Flow rules of named resources: limits on rates and on calls in flight, for all requests or for each key, throttles, and rules that warm
/// up. For the rest of a document there is an [`Engine`](crate::Engine), which decides alike.
///
/// ```
/// use leapgate::Timestamp;
/// use leapgate::flow::{FlowEngine, FlowRequest, FlowTerms};
///
/// let engine = FlowEngine::new(vec![FlowTerms::of("login").limit()?])?;
/// let login = engine.resource("login");
/// let seed = [17, 4]; // random numbers, of the host
/// let enter = |millis| login.enter(&FlowRequest::default(), seed, Timestamp::from_millis(millis));
/// assert!(enter(0).is_ok());
/// assert_eq!(enter(10).err().and_then(|refusal| refusal.retry_after).map(|wait| wait.as_millis()), Some(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FlowEngine {
    rules: RefCell<Vec<Rc<InForce>>>,
    /// Those that were in force before, and on which calls may still be in flight.
    past: RefCell<Vec<Weak<InForce>>>,
}

impl FlowEngine {
    /// An engine with these rules. Their ids are compared one by one: a thousand rules take milliseconds, and ten times as many a
    /// hundred times as long.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together.
    pub fn new(rules: Vec<FlowLimit>) -> Result<FlowEngine, RulesError> {
        Ok(FlowEngine {
            rules: RefCell::new(in_force(rules, &[])?),
            past: RefCell::default(),
        })
    }

    /// Puts other rules in force. Those with an id and a geometry that are in force, or have calls in flight, go on where they are;
    /// resources that were looked up before stay as they were.
    ///
    /// # Errors
    ///
    /// Where the rules do not go together: then the rules in force stay.
    pub fn replace(&self, rules: Vec<FlowLimit>) -> Result<(), RulesError> {
        let mut known: Vec<_> = self.rules.borrow().clone();
        known.extend(self.past.borrow().iter().filter_map(Weak::upgrade));
        let rules = in_force(rules, &known)?;
        let known = known.iter().map(Rc::downgrade).collect();
        drop(self.rules.replace(rules));
        let past = &mut *self.past.borrow_mut();
        *past = known;
        past.retain(|rule| rule.strong_count() > 0);
        Ok(())
    }

    /// The rules in force.
    pub fn for_each_rule(&self, mut each: impl FnMut(&FlowRule)) {
        let rules = self.rules.borrow();
        rules.iter().for_each(|rule| each(&rule.rule));
    }

    /// The resource called `name`, with the rules that are in force now.
    pub fn resource(&self, name: &str) -> Rc<FlowResource> {
        let mut parts: Vec<KeyPart> = Vec::new();
        let mut place_of = |part: &KeyPart| {
            parts
                .iter()
                .position(|known| known == part)
                .unwrap_or_else(|| {
                    parts.push(part.clone());
                    parts.len() - 1
                })
        };
        let rules = self.rules.borrow();
        let rules = rules
            .iter()
            .filter(|rule| rule.rule.target().as_str() == name);
        let rules = rules.map(|rule| OfResource {
            of: rule.key_parts().iter().map(&mut place_of).collect(),
            rule: Rc::clone(rule),
        });
        Rc::new(FlowResource {
            rules: rules.collect(),
            parts: parts.into(),
        })
    }
}
