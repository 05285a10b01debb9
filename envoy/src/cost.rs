//! What a request has cost that has ended: read where its rules say, each source once, and told to the rules.
//!
//! | What | When Envoy has it |
//! |---|---|
//! | metadata, the status, the bytes of the bodies | until the stream is deleted |
//! | headers and trailers of the response | only while they pass |
//! | the local address of the connection to the upstream | if there was one in the last try; so the request has reached an upstream |
//!
//! A request that has not reached an upstream has cost nothing, whatever answered it.

use crate::backend::EnvoyBackend;
use crate::host::{Host, Kind, Property};
use crate::keys::{self, WrongTypes};
use crate::names::rule_labels;
use crate::vm::Vm;
use leapgate::Entry;
use leapgate::rule::{CostSource, FlowRule};
use std::cell::RefCell;

/// What has been read for the rules of a request, each source once.
#[derive(Default)]
pub(crate) struct Readings(RefCell<Vec<(CostSource, Option<f64>)>>);

impl Readings {
    /// Reads what rules name of the headers of the response, or of its trailers, and of both if the headers are `all` of it.
    pub(crate) fn read<H: Host>(
        &self,
        host: &H,
        entry: &Entry<EnvoyBackend<H>>,
        [headers, trailers]: [bool; 2],
    ) {
        entry.for_each_hold(&mut |rule| {
            let actual = rule.cost().and_then(|cost| cost.actual());
            for source in actual.iter().flat_map(|actual| actual.sources()) {
                let text = || match source {
                    CostSource::Trailer(name) if !headers => host.response_trailer(name),
                    CostSource::Header(name) | CostSource::Trailer(name) => {
                        host.response_header(name)
                    }
                    _ => None,
                };
                let is_there = match source {
                    CostSource::Header(_) => headers,
                    CostSource::Trailer(_) => trailers,
                    _ => false,
                };
                if is_there {
                    self.number(source, || source.number(&text()?));
                }
            }
        });
    }

    /// The number of a source, read once.
    fn number(&self, source: &CostSource, read: impl FnOnce() -> Option<f64>) -> Option<f64> {
        let known =
            |(known, number): &(CostSource, Option<f64>)| (known == source).then_some(*number);
        let found = self.0.borrow().iter().find_map(known);
        found.unwrap_or_else(|| {
            let number = read();
            self.0.borrow_mut().push((source.clone(), number));
            number
        })
    }

    /// Tells the rules that hold something what the request has cost, now that all of it is over.
    pub(crate) fn settle<H: Host>(
        &self,
        vm: &Vm<H>,
        wrong: &WrongTypes,
        entry: &mut Entry<EnvoyBackend<H>>,
    ) {
        let is_reached = vm.host().property(Property::UpstreamLocalAddress).is_some();
        entry.settle_each(|rule, held| {
            if !is_reached {
                return Some(0);
            }
            let actual = rule.cost()?.actual()?;
            let mut read = |source: &CostSource| self.number(source, || at_end(vm, wrong, source));
            let cost = actual.amount(&mut read).or_else(|| {
                count(vm, "cost_missing", rule, 1);
                actual.substitute(&mut read)
            });
            let debt = cost.map_or(0, |cost| cost.saturating_sub(held));
            if debt > 0 {
                count(vm, "debt", rule, debt);
            }
            cost
        });
    }
}

/// The number of a source that can be read when all is over.
fn at_end<H: Host>(vm: &Vm<H>, wrong: &WrongTypes, source: &CostSource) -> Option<f64> {
    let number = |property| {
        let bytes = vm.host().property(property)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes) as f64)
    };
    match source {
        CostSource::Attribute(attribute) => {
            let text = keys::typed(vm, wrong, attribute)?;
            source.number(&text.unwrap_or_default())
        }
        CostSource::BytesReceived => number(Property::RequestSize),
        CostSource::BytesSent => number(Property::ResponseSize),
        CostSource::Status => number(Property::ResponseCode),
        // They have not come.
        _ => None,
    }
}

/// Adds to the counter `what` of a rule.
#[cold]
fn count<H: Host>(vm: &Vm<H>, what: &str, rule: &FlowRule, n: u64) {
    let labels = rule_labels(rule.id().as_str(), Some(rule.target().as_str()));
    let counter = vm
        .host()
        .define_metric(Kind::Counter, &vm.name(what, &labels));
    if let Some(counter) = counter {
        vm.host().add(counter, i64::try_from(n).unwrap_or(i64::MAX));
    }
}
