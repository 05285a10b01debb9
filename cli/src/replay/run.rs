//! A replay whose format is known.

use super::Options;
use super::agents::{Agent, Agents};
use super::counts::{Distinct, Top, hash};
use super::decide::Exit;
use super::ending::empty;
use super::fields::{Fields, Slot};
use super::format::Format;
use super::queue::{HORIZON_MS, Queue};
use super::report::{Report, RuleReport, SkippedLine};
use super::request::{Held, Line, Source, Values};
use super::rules::{Known, sort};
use super::site::Site;
use super::suggest::{MAX_KEPT, Trace, why_not};
use super::when::{Clock, When};
use crate::words::Ids;
use hashbrown::HashMap;
use leapgate::api::ApiMatcher;
use leapgate::backend::{Backend, Store};
use leapgate::rule::{Exempt, FlowRule, Grade, KeyPart, KeyValue};
use leapgate::{Engine, Rules};
use leapgate_envoy::settings::{OriginFrom, ResourceFrom, Settings};
use std::collections::BinaryHeap;
use std::rc::Rc;

/// How many skipped lines are told.
const TOLD: usize = 5;

/// How far ahead of all earlier lines a line may be without another one beside it.
const MAX_JUMP_MS: u64 = 86_400_000;

/// Where rules stand in the report, by id, with their kinds.
pub(super) type Places = HashMap<String, Vec<(&'static str, usize)>>;

fn places(reports: &[RuleReport]) -> Places {
    let mut places = Places::new();
    for (i, rule) in reports.iter().enumerate() {
        places
            .entry(rule.id.clone())
            .or_default()
            .push((rule.kind, i));
    }
    places
}

/// Where the rule of that kind and id stands.
pub(super) fn place(places: &Places, kind: &str, id: &str) -> Option<usize> {
    let kind = if kind == "breaker" { "degrade" } else { kind };
    let found = places.get(id)?.iter().find(|(of, _)| *of == kind);
    found.map(|(_, place)| *place)
}

/// A group of refused clients.
#[derive(Default)]
pub(super) struct RefusedGroup {
    pub(super) requests: u64,
    pub(super) clients: Distinct,
}

/// A replay whose format is known.
pub(crate) struct Run<S: Backend> {
    /// Where counts are kept.
    pub(super) backend: S,
    pub(super) engine: Engine<S>,
    pub(super) matcher: Option<ApiMatcher>,
    pub(super) format: Format,
    pub(super) settings: Settings,
    pub(super) routes: Vec<(Vec<u8>, String)>,
    pub(super) names_routes: bool,
    pub(super) refuse_less_than: f64,
    /// Whether any rule looks at how calls end.
    pub(super) tracks_ends: bool,
    pub(super) is_inbound: bool,
    pub(super) origin: Source,
    pub(super) prioritized: Option<(Source, Option<String>)>,
    pub(super) exempt: Option<(Exempt, Box<[Source]>)>,
    pub(super) sites: HashMap<(usize, u64), Rc<Site<S>>>,
    pub(super) routes_met: HashMap<Box<[u8]>, Rc<Site<S>>>,
    pub(super) rule_places: Places,
    pub(super) traces: Vec<Option<Trace>>,
    /// The flow rules, and what they are called.
    pub(super) flow: Vec<FlowRule>,
    pub(super) called: Vec<String>,
    // The lines.
    pub(super) fields: Fields,
    pub(super) clock: Clock,
    pub(super) agents: Agents,
    pub(super) line: u64,
    pub(super) newest_ms: u64,
    /// A line far ahead of the others, with its number, until another one is there, too.
    pub(super) jump: Option<(u64, u64, Vec<u8>)>,
    pub(super) has_millis: bool,
    pub(super) queue: Queue<Held<S>>,
    pub(super) was_full: bool,
    // The requests.
    pub(super) exits: BinaryHeap<Exit<S>>,
    pub(super) exited_early: u64,
    pub(super) top: Top,
    pub(super) seen: Distinct,
    pub(super) refused: Distinct,
    pub(super) groups: [RefusedGroup; 3],
    pub(super) report: Report,
}

impl<S: Backend + Clone> Run<S> {
    /// A replay through the rules that lines of the format can be replayed through.
    ///
    /// # Errors
    ///
    /// If the rules do not go together, which a replay has found out before.
    pub(crate) fn new(
        backend: S,
        rules: Rules,
        settings: &Settings,
        format: Format,
        options: &Options,
    ) -> Result<Run<S>, String> {
        let apis = Rc::clone(&rules.apis);
        let all = rules.clone();
        let known = Known::new(&all, &format, settings, &options.routes);
        let names_routes = known.names_routes();
        let (reports, rules) = sort(rules, &known);
        let (flow, is_inbound) = (all_flow(&rules), !rules.system.is_empty());
        let ids = Ids::new(&all);
        let called = flow
            .iter()
            .map(|rule| ids.of("flow", rule.id().to_string(), rule.mode()))
            .collect();
        let tracks_ends = is_inbound
            || !rules.degrade.is_empty()
            || flow.iter().any(|rule| rule.grade() == Grade::Concurrency);
        let store = match is_inbound {
            true => Store::new(backend.clone()),
            false => Store::without_statistics(backend.clone()),
        };
        store.set_max_resources(settings.max_resources);
        let engine =
            Engine::with_store(Rc::new(store), rules).map_err(|error| error.to_string())?;
        let has_rules = |api: &&leapgate::rule::ApiDefinition| engine.has_api(api.name());
        let matcher = ApiMatcher::new(apis.iter().filter(has_rules));
        let origin = match &settings.origin {
            Some(OriginFrom::Header(name)) => {
                Source::of(&KeyPart::Header(name.as_str().into()), &format)
            }
            _ => Source::None,
        };
        let prioritized = settings.prioritized.as_ref().map(|by| {
            let part = KeyPart::Header(by.header.as_str().into());
            (Source::of(&part, &format), by.value.clone())
        });
        let exempt = settings.exempt.as_ref().map(|exempt| {
            let sources = exempt.parts().iter().map(|part| Source::of(part, &format));
            (exempt.clone(), sources.collect())
        });
        let mut run = Run {
            matcher: (!matcher.is_empty() && format.has_slot(Slot::Path)).then_some(matcher),
            backend,
            engine,
            settings: settings.clone(),
            routes: options
                .routes
                .iter()
                .map(|(prefix, name)| (prefix.clone().into_bytes(), name.clone()))
                .collect(),
            names_routes,
            refuse_less_than: options.refuse_less_than,
            tracks_ends,
            is_inbound,
            origin,
            prioritized,
            exempt,
            sites: HashMap::new(),
            routes_met: HashMap::new(),
            rule_places: places(&reports),
            traces: Vec::new(),
            flow,
            called,
            fields: Fields::new(),
            clock: Clock::default(),
            agents: Agents::new(),
            line: 0,
            newest_ms: 0,
            jump: None,
            has_millis: false,
            queue: Queue::new(),
            was_full: false,
            exits: BinaryHeap::new(),
            exited_early: 0,
            top: Top::default(),
            seen: Distinct::default(),
            refused: Distinct::default(),
            groups: Default::default(),
            report: empty(&format, reports),
            format,
        };
        run.begin_traces();
        run.note_what_is_unknown(&all);
        Ok(run)
    }

    /// Keeps the requests of the rules whose limits can be tried out.
    fn begin_traces(&mut self) {
        self.traces = self.report.rules.iter().map(|_| None).collect();
        let places: Vec<(usize, usize)> = (0..self.flow.len())
            .filter_map(|i| Some((i, self.place_of_flow(i)?)))
            .collect();
        let fit = |(i, _): &&(usize, usize)| {
            self.flow
                .get(*i)
                .is_some_and(|rule| why_not(rule).is_none())
        };
        let count = places.iter().filter(fit).count().max(1);
        for (i, place) in places {
            let (Some(rule), Some(report)) = (self.flow.get(i), self.report.rules.get_mut(place))
            else {
                continue;
            };
            match why_not(rule) {
                Some(why) => report.no_suggestion = Some(why.into()),
                None => {
                    if let Some(trace) = self.traces.get_mut(place) {
                        *trace = Some(Trace::new(rule, MAX_KEPT / count));
                    }
                }
            }
        }
    }

    /// Where the flow rule of that number stands in the report.
    fn place_of_flow(&self, number: usize) -> Option<usize> {
        place(&self.rule_places, "flow", self.called.get(number)?)
    }

    fn note_what_is_unknown(&mut self, rules: &Rules) {
        let (settings, format) = (&self.settings, &self.format);
        let mut notes = Vec::new();
        let asks_each = rules.flow.iter().any(|rule| rule.target().as_str() == "*");
        if asks_each && !self.names_routes && !matches!(settings.resource, ResourceFrom::Fixed(_)) {
            notes.push(
                "The log names no routes: requests that no --route names count as one resource under rules for `*`.".into(),
            );
        }
        if let Some((exempt, sources)) = &self.exempt {
            let lacking = exempt
                .parts()
                .iter()
                .zip(sources)
                .filter(|(_, source)| matches!(source, Source::None));
            let lacking: Vec<String> = lacking.map(|(part, _)| format!("`{part}`")).collect();
            if !lacking.is_empty() {
                notes.push(format!(
                    "The log does not have {}, so no request is exempt by that.",
                    lacking.join(" and ")
                ));
            }
        }
        if let Some((Source::None, _)) = self.prioritized {
            notes.push(
                "The log does not have the header of `envoy.prioritized`, so no request borrows."
                    .into(),
            );
        }
        if settings.allow_route_rules.is_some() {
            notes.push("Rules that routes have of their own, in their metadata, are not in the document and were not replayed.".into());
        }
        if !format.has_slot(Slot::Client) && format.has_slot(Slot::Forwarded) {
            notes.push("The log has no address of the client: the last one of x-forwarded-for, or of what the log has instead, stands for it.".into());
        }
        self.report.notes.extend(notes);
    }

    // ---- lines ----

    /// A line that is longer than `most`.
    pub(crate) fn skip_long(&mut self, most: usize) {
        self.line += 1;
        self.report.lines += 1;
        self.skip(self.line, &format!("it is longer than {most} bytes"));
    }

    fn skip(&mut self, line: u64, why: &str) {
        let skipped = &mut self.report.skipped;
        skipped.count += 1;
        if skipped.first.len() < TOLD {
            skipped.first.push(SkippedLine {
                line,
                why: why.into(),
            });
        }
    }

    /// Reads a line.
    pub(crate) fn line(&mut self, line: &[u8]) {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            return;
        }
        self.report.lines += 1;
        match self.read(line) {
            Err(why) => self.skip(self.line, why),
            Ok(when) if self.newest_ms > 0 && when.ms > self.newest_ms + MAX_JUMP_MS => {
                // One line of a wrong time would make all others late.
                match self.jump.take() {
                    Some((ms, _, earlier)) if ms.abs_diff(when.ms) <= MAX_JUMP_MS => {
                        if self.read(&earlier).is_ok() {
                            self.hold(&earlier, ms);
                        }
                        if self.read(line).is_ok() {
                            self.hold(line, when.ms);
                        }
                    }
                    other => {
                        self.drop_jump(other);
                        self.jump = Some((when.ms, self.line, line.to_vec()));
                    }
                }
            }
            Ok(when) => {
                self.has_millis |= when.has_millis;
                if self.jump.is_some() {
                    let jump = self.jump.take();
                    self.drop_jump(jump);
                }
                self.hold(line, when.ms);
            }
        }
    }

    fn drop_jump(&mut self, jump: Option<(u64, u64, Vec<u8>)>) {
        if let Some((_, number, _)) = jump {
            self.skip(
                number,
                "its time is more than a day ahead of the lines around it",
            );
        }
    }

    /// Reads a line's fields and its time: when the request came.
    pub(super) fn read(&mut self, line: &[u8]) -> Result<When, &'static str> {
        self.format.read(line, &mut self.fields)?;
        let of = |slot: Slot| self.fields.get(line, slot as usize);
        let (start, end) = (of(Slot::Time), of(Slot::End));
        let text = start.or(end).ok_or("it has no time")?;
        let mut when = self.clock.read(text).ok_or("its time cannot be read")?;
        if start.is_none() {
            when.ms = when.ms.saturating_sub(self.millis(line).into());
        }
        Ok(when)
    }

    /// How long the request took.
    pub(super) fn millis(&self, line: &[u8]) -> u32 {
        let number = |slot: Slot, scale: f64| {
            let number = crate::text::number(self.fields.get(line, slot as usize)?)?;
            (number >= 0.0).then(|| (number * scale).round() as u32)
        };
        number(Slot::Millis, 1.0)
            .or_else(|| number(Slot::Seconds, 1000.0))
            .or_else(|| number(Slot::Micros, 0.001))
            .unwrap_or(0)
    }

    /// Holds the request of the line that was read until its time has come.
    pub(super) fn hold(&mut self, line: &[u8], at_ms: u64) {
        if at_ms > self.newest_ms {
            self.newest_ms = at_ms;
            self.decide_before(at_ms.saturating_sub(HORIZON_MS));
        }
        while self.queue.is_full() {
            self.was_full = true;
            self.decide_first();
        }
        let floor = self.queue.floor();
        if at_ms < floor {
            self.report.late += 1;
        }
        let site = self.site(line);
        let millis = if self.tracks_ends {
            self.millis(line)
        } else {
            0
        };
        let line = Line {
            bytes: line,
            fields: &self.fields,
        };
        // A late one is decided when the newest is.
        let at = if at_ms < floor {
            self.newest_ms.max(floor)
        } else {
            at_ms
        };
        let Some(held) = self.queue.insert(at) else {
            return;
        };
        let status = line
            .get(Slot::Status)
            .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        held.status = status.unwrap_or(0);
        held.millis = millis;
        held.agent = line
            .get(Slot::Agent)
            .map_or(Agent::Unknown, |agent| self.agents.of(agent));
        held.values.clear();
        let client = line.client();
        held.client = client.map(hash);
        held.values.push(client);
        line.read(&self.origin, &mut |origin| held.values.push(origin));
        for source in &site.sources {
            line.read(source, &mut |value| held.values.push(value));
        }
        held.is_prioritized = false;
        if let Some((source, wanted)) = &self.prioritized {
            let is_it = |value: &[u8]| {
                wanted
                    .as_ref()
                    .is_none_or(|wanted| wanted.as_bytes() == value)
            };
            line.read(source, &mut |value| {
                held.is_prioritized = value.is_some_and(is_it)
            });
        }
        held.is_exempt = self.exempt.as_ref().is_some_and(|(exempt, sources)| {
            let mut values = Values::default();
            for source in sources {
                line.read(source, &mut |value| values.push(value));
            }
            let values: Vec<KeyValue<'_>> = values.iter().collect();
            let mut origin = String::new();
            line.read(&self.origin, &mut |value| {
                origin = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
            });
            exempt.holds_for(&values, &origin)
        });
        held.site = Some(site);
    }
}

fn all_flow(rules: &Rules) -> Vec<FlowRule> {
    let lists = [&rules.gateway_flow, &rules.param_flow, &rules.flow];
    lists.into_iter().flatten().cloned().collect()
}
