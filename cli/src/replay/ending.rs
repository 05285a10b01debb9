//! The report, when all requests have been decided on.

use super::agents::Agent;
use super::counts::{Distinct, Series};
use super::decide::MAX_IN_FLIGHT;
use super::fields::Slot;
use super::format::Format;
use super::queue::MAX_HELD;
use super::report::{Clients, Group, KeyReport, Report, RuleReport, Skipped};
use super::run::{Run, place};
use leapgate::backend::Backend;

impl<S: Backend + Clone> Run<S> {
    /// The report.
    pub(crate) fn finish(mut self) -> Report {
        if let Some((ms, _, line)) = self.jump.take()
            && self.read(&line).is_ok()
        {
            self.hold(&line, ms);
        }
        self.decide_before(u64::MAX);
        self.exits.clear();
        self.count_by_state();
        let traces = std::mem::take(&mut self.traces);
        for (trace, rule) in traces.into_iter().zip(&mut self.report.rules) {
            if let Some(trace) = trace {
                rule.suggestion = trace.suggest(&self.backend, self.refuse_less_than);
                if rule.suggestion.is_none() {
                    rule.no_suggestion = Some("no request came to it".into());
                }
            }
        }
        let name = |place: u32| {
            self.report
                .rules
                .get(place as usize)
                .map_or("", |rule| &rule.id)
        };
        let keys = self.top.first(10).into_iter().map(|key| KeyReport {
            rule: name(key.rule).into(),
            key: String::from_utf8_lossy(&key.text).into_owned(),
            refused: key.count,
            at_most_over: key.over,
        });
        self.report.keys = keys.collect();
        let [unknown, browsers, tools] =
            [Agent::Unknown, Agent::Browser, Agent::Tool].map(|agent| {
                let group = self.groups.get(agent as usize);
                Group {
                    requests: group.map_or(0, |group| group.requests),
                    clients: group
                        .map_or(Distinct::default().number(), |group| group.clients.number()),
                }
            });
        self.report.clients = Clients {
            known: self.format.has_slot(Slot::Client) || self.format.has_slot(Slot::Forwarded),
            seen: self.seen.number(),
            refused: self.refused.number(),
            browsers,
            tools,
            others: unknown,
        };
        self.note_times();
        self.report
    }

    /// What only the states of rules know: what rules in shadow mode would have refused, and which rules made requests wait.
    pub(super) fn count_by_state(&mut self) {
        let mut add = |kind: &str, id: &str, shadow: u64, waited: u64| {
            let place = place(&self.rule_places, kind, id);
            if let Some(rule) = place.and_then(|place| self.report.rules.get_mut(place)) {
                rule.refused += shadow;
                rule.waited += waited;
            }
        };
        let store = self.engine.store();
        store.for_each_unkeyed(|key, state| {
            add(
                key.kind,
                key.rule.as_str(),
                state.shadow_blocked(),
                state.waited(),
            )
        });
        store.for_each_keyed(|key, state| {
            add(
                key.kind,
                key.rule.as_str(),
                state.shadow_blocked(),
                state.waited(),
            )
        });
        self.engine
            .for_each_precheck(|rule| add(rule.kind, rule.id.as_str(), rule.shadow_blocked, 0));
    }

    pub(super) fn note_times(&mut self) {
        let report = &mut self.report;
        if report.requests > 0 && !self.has_millis {
            report.notes.push(
                "The log has times in whole seconds: all requests of a second count as if they came at its beginning. A limit in an interval of \
                 a few seconds may refuse more here, or less, than it would have."
                    .into(),
            );
        }
        if report.late > 0 {
            let full = match self.was_full {
                true => format!(
                    " (or behind the {} that are put in order at once)",
                    crate::text::count(MAX_HELD as u64, "request")
                ),
                false => String::new(),
            };
            report.notes.push(format!(
                "{} more than a minute behind a later one{full} {} at the newest time: give the files in order of time, and the logs of several machines one by one.",
                crate::text::count(report.late, "request"),
                if report.late == 1 { "counts" } else { "count" },
            ));
        }
        if self.exited_early > 0 {
            report.notes.push(format!(
                "{} had more than {} others in flight and counted as ended at once.",
                crate::text::count(self.exited_early, "request"),
                crate::text::grouped(MAX_IN_FLIGHT as u64)
            ));
        }
        if report.answered429 > 0 {
            report.notes.push(format!(
                "{} answered 429 then: something limited this traffic already, and clients that were refused may have come again.",
                crate::text::count(report.answered429, "request")
            ));
        }
    }
}

pub(super) fn empty(format: &Format, rules: Vec<RuleReport>) -> Report {
    let none = Distinct::default().number();
    let group = Group {
        requests: 0,
        clients: none,
    };
    Report {
        version: env!("CARGO_PKG_VERSION"),
        format: format.name().into(),
        lines: 0,
        requests: 0,
        passed: 0,
        refused: 0,
        waited: 0,
        waited_ms: 0,
        longest_wait_ms: 0,
        answered429: 0,
        from_ms: 0,
        to_ms: 0,
        skipped: Skipped::default(),
        late: 0,
        rules,
        keys: Vec::new(),
        series: Series::default(),
        clients: Clients {
            known: false,
            seen: none,
            refused: none,
            browsers: group,
            tools: group,
            others: group,
        },
        notes: Vec::new(),
    }
}
