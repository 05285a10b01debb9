//! A replay whose format is known.

use super::Options;
use super::agents::{Agent, Agents};
use super::counts::{Distinct, Series, Top, hash};
use super::fields::{Fields, Slot};
use super::format::Format;
use super::queue::{HORIZON_MS, MAX_HELD, Queue};
use super::report::{Clients, Group, KeyReport, Report, RuleReport, Skipped, SkippedLine};
use super::request::{Held, Line, Source, Values};
use super::rules::{Known, sort};
use super::suggest::{MAX_KEPT, Trace, why_not};
use super::when::{Clock, When};
use hashbrown::HashMap;
use leapgate::api::ApiMatcher;
use leapgate::backend::{Local, Store};
use leapgate::rule::{Cause, Exempt, FlowRule, Grade, KeyPart, KeyValue};
use leapgate::{Decision, Engine, Entry, Outcome, Request, Resource, Rules, Timestamp};
use leapgate_envoy::settings::{OriginFrom, ResourceFrom, Settings};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

/// How many skipped lines are told.
const TOLD: usize = 5;

/// How far ahead of all earlier lines a line may be without another one beside it.
const MAX_JUMP_MS: u64 = 86_400_000;

/// How many sites are remembered.
const MAX_SITES: usize = 1 << 14;

/// How many calls are in flight at most. Further ones end at once.
const MAX_IN_FLIGHT: usize = 1 << 20;

/// How many values of keys fit on the stack: more are rare.
const FEW: usize = 16;

/// A resource, and what the replay does for its requests.
pub(crate) struct Site {
    name: String,
    resource: Rc<Resource<Local>>,
    /// Its rules, as places in the report.
    rules: Box<[usize]>,
    sources: Box<[Source]>,
    traced: Box<[Traced]>,
}

/// A rule whose requests are kept.
struct Traced {
    /// Its place in the report.
    rule: usize,
    parts: Box<[TracedPart]>,
    exempt: Option<(Exempt, Box<[usize]>)>,
}

/// Where a part of a key is among those of a resource, and, of an address, how many bits of it count.
type TracedPart = (usize, Option<(u8, u8)>);

/// A call that ends.
struct Exit {
    at_ms: u64,
    order: u64,
    entry: Entry<Local>,
    outcome: Outcome,
}

impl PartialEq for Exit {
    fn eq(&self, other: &Exit) -> bool {
        self.order == other.order
    }
}

impl Eq for Exit {}

impl PartialOrd for Exit {
    fn partial_cmp(&self, other: &Exit) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The earliest is the greatest.
impl Ord for Exit {
    fn cmp(&self, other: &Exit) -> Ordering {
        (other.at_ms, other.order).cmp(&(self.at_ms, self.order))
    }
}

/// A group of refused clients.
#[derive(Default)]
struct RefusedGroup {
    requests: u64,
    clients: Distinct,
}

/// A replay whose format is known.
pub(crate) struct Run {
    engine: Engine,
    matcher: Option<ApiMatcher>,
    format: Format,
    settings: Settings,
    routes: Vec<(Vec<u8>, String)>,
    names_routes: bool,
    refuse_less_than: f64,
    /// Whether any rule looks at how calls end.
    tracks_ends: bool,
    is_inbound: bool,
    origin: Source,
    prioritized: Option<(Source, Option<String>)>,
    exempt: Option<(Exempt, Box<[Source]>)>,
    sites: HashMap<(usize, u64), Rc<Site>>,
    routes_met: HashMap<Box<[u8]>, Rc<Site>>,
    rule_places: HashMap<String, usize>,
    traces: Vec<Option<Trace>>,
    flow: Vec<FlowRule>,
    // The lines.
    fields: Fields,
    clock: Clock,
    agents: Agents,
    line: u64,
    newest_ms: u64,
    /// A line far ahead of the others, with its number, until another one is there, too.
    jump: Option<(u64, u64, Vec<u8>)>,
    has_millis: bool,
    queue: Queue<Held>,
    was_full: bool,
    // The requests.
    exits: BinaryHeap<Exit>,
    exited_early: u64,
    top: Top,
    seen: Distinct,
    refused: Distinct,
    groups: [RefusedGroup; 3],
    report: Report,
}

impl Run {
    /// A replay through the rules that lines of the format can be replayed through.
    ///
    /// # Errors
    ///
    /// If the rules do not go together, which a replay has found out before.
    pub(crate) fn new(
        rules: Rules,
        settings: &Settings,
        format: Format,
        options: &Options,
    ) -> Result<Run, String> {
        let apis = Rc::clone(&rules.apis);
        let all = rules.clone();
        let known = Known::new(&all, &format, settings, &options.routes);
        let names_routes = known.names_routes();
        let (reports, rules) = sort(rules, &known);
        let (flow, is_inbound) = (all_flow(&rules), !rules.system.is_empty());
        let tracks_ends = is_inbound
            || !rules.degrade.is_empty()
            || flow.iter().any(|rule| rule.grade() == Grade::Concurrency);
        let store = match is_inbound {
            true => Store::new(Local),
            false => Store::without_statistics(Local),
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
            rule_places: reports
                .iter()
                .enumerate()
                .map(|(i, rule)| (rule.id.clone(), i))
                .collect(),
            traces: Vec::new(),
            flow,
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
            .filter_map(|i| Some((i, *self.rule_places.get(self.flow.get(i)?.id().as_str())?)))
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
    fn read(&mut self, line: &[u8]) -> Result<When, &'static str> {
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
    fn millis(&self, line: &[u8]) -> u32 {
        let number = |slot: Slot, scale: f64| {
            let text = std::str::from_utf8(self.fields.get(line, slot as usize)?).ok()?;
            let number: f64 = text.parse().ok()?;
            (number >= 0.0).then(|| (number * scale).round() as u32)
        };
        number(Slot::Millis, 1.0)
            .or_else(|| number(Slot::Seconds, 1000.0))
            .or_else(|| number(Slot::Micros, 0.001))
            .unwrap_or(0)
    }

    /// Holds the request of the line that was read until its time has come.
    fn hold(&mut self, line: &[u8], at_ms: u64) {
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

    // ---- resources ----

    /// The name of the resource of a line, but for its APIs.
    fn name<'a>(&'a self, line: &'a [u8]) -> &'a [u8] {
        if !self.routes.is_empty()
            && let Some(path) = self.fields.get(line, Slot::Path as usize)
        {
            let path = path
                .split(|byte| matches!(byte, b'?' | b'#'))
                .next()
                .unwrap_or_default();
            let is_for = |prefix: &[u8]| {
                let prefix = prefix.strip_suffix(b"/").unwrap_or(prefix);
                path.strip_prefix(prefix)
                    .is_some_and(|rest| rest.first().is_none_or(|byte| *byte == b'/'))
            };
            if let Some((_, name)) = self.routes.iter().find(|(prefix, _)| is_for(prefix)) {
                return name.as_bytes();
            }
        }
        match &self.settings.resource {
            ResourceFrom::Fixed(name) => name.as_bytes(),
            _ if !self.names_routes => b"?",
            from => {
                let route = self.fields.get(line, Slot::Route as usize).unwrap_or(b"?");
                match from {
                    // `httproute/<namespace>/<name>/rule/0/match/0/…`
                    ResourceFrom::EnvoyGateway { .. } => {
                        let mut slashes = memchr::memchr_iter(b'/', route);
                        route
                            .get(..slashes.nth(2).unwrap_or(route.len()))
                            .unwrap_or(route)
                    }
                    _ => route,
                }
            }
        }
    }

    fn site(&mut self, line: &[u8]) -> Rc<Site> {
        let name = self.name(line);
        let Some(matcher) = &self.matcher else {
            if let Some(site) = self.routes_met.get(name) {
                return Rc::clone(site);
            }
            let name: Box<[u8]> = name.into();
            let text = String::from_utf8_lossy(&name).into_owned();
            let resource = self.engine.resource(&text);
            let site = self.make(text, resource);
            if self.routes_met.len() >= MAX_SITES {
                self.routes_met.clear();
            }
            self.routes_met.insert(name, Rc::clone(&site));
            return site;
        };
        let text = String::from_utf8_lossy(name);
        let route = self.engine.resource(&text);
        let asked = Line {
            bytes: line,
            fields: &self.fields,
        };
        let path = asked.get(Slot::Path).unwrap_or_default();
        let read = |part: &KeyPart| {
            let mut found = None;
            asked.read(&Source::of(part, &self.format), &mut |value| {
                found = value.map(<[u8]>::to_vec)
            });
            found
        };
        let found = matcher.find(path, &read);
        let resource = self.engine.resource_with(&route, found.names());
        // A site keeps its resource, so that no other one has its place.
        let key = (Rc::as_ptr(&resource).addr(), hash(name));
        if let Some(site) = self.sites.get(&key) {
            return Rc::clone(site);
        }
        let site = self.make(text.into_owned(), resource);
        if self.sites.len() >= MAX_SITES {
            self.sites.clear();
        }
        self.sites.insert(key, Rc::clone(&site));
        site
    }

    fn make(&self, name: String, resource: Rc<Resource<Local>>) -> Rc<Site> {
        let mut rules = Vec::new();
        resource.for_each_rule(&mut |id, _| {
            rules.extend(self.rule_places.get(id.as_str()).copied());
        });
        let system = self.report.rules.iter().enumerate();
        rules.extend(system.filter_map(|(i, rule)| {
            (rule.kind == "system" && rule.not_replayed.is_none()).then_some(i)
        }));
        rules.sort_unstable();
        rules.dedup();
        let parts = resource.key_parts();
        let place = |part: &KeyPart| parts.iter().position(|known| known == part);
        let traced = |i: &usize| {
            self.traces.get(*i)?.as_ref()?;
            let report = self.report.rules.get(*i)?;
            let rule = self
                .flow
                .iter()
                .find(|rule| rule.id().as_str() == report.id)?;
            let of_key = rule.keyed_by().map_or(&[][..], |by| by.parts());
            let of_key = of_key.iter().map(|part| {
                let network = match part {
                    KeyPart::ClientIp { v4, v6 } => Some((*v4, *v6)),
                    _ => None,
                };
                Some((place(part)?, network))
            });
            let exempt = rule.exempt().map(|exempt| {
                let places = exempt.parts().iter().filter_map(place);
                (exempt.clone(), places.collect())
            });
            Some(Traced {
                rule: *i,
                parts: of_key.collect::<Option<_>>()?,
                exempt,
            })
        };
        Rc::new(Site {
            sources: parts
                .iter()
                .map(|part| Source::of(part, &self.format))
                .collect(),
            traced: rules.iter().filter_map(traced).collect(),
            rules: rules.into(),
            resource,
            name,
        })
    }

    // ---- requests ----

    fn decide_before(&mut self, end_ms: u64) {
        while let Some((at, number, held)) = self.queue.take_before(end_ms) {
            self.decide(at, &held);
            self.queue.give_back(number, held);
        }
    }

    fn decide_first(&mut self) {
        if let Some((at, number, held)) = self.queue.take_before(u64::MAX) {
            self.decide(at, &held);
            self.queue.give_back(number, held);
        }
    }

    /// Decides on a request whose time has come.
    fn decide(&mut self, at_ms: u64, held: &Held) {
        let Some(site) = &held.site else { return };
        while self.exits.peek().is_some_and(|exit| exit.at_ms <= at_ms) {
            if let Some(exit) = self.exits.pop() {
                exit.entry
                    .exit(exit.outcome, Timestamp::from_millis(exit.at_ms));
            }
        }
        let now = Timestamp::from_millis(at_ms);
        let mut values = held.values.iter();
        let (client, origin) = (values.next(), values.next());
        let mut few = [KeyValue::Missing; FEW];
        let count = site.sources.len();
        let many: Vec<KeyValue<'_>>;
        let keys = match few.get_mut(..count) {
            Some(few) => {
                few.iter_mut()
                    .zip(&mut values)
                    .for_each(|(place, value)| *place = value);
                &*few
            }
            None => {
                many = values.collect();
                &many[..]
            }
        };
        let origin = match origin {
            Some(KeyValue::One(origin)) if site.resource.by_origin() => {
                String::from_utf8_lossy(origin)
            }
            _ => "".into(),
        };
        for traced in &site.traced {
            let is_exempt = |(exempt, places): &(Exempt, Box<[usize]>)| {
                let values: Vec<_> = places
                    .iter()
                    .filter_map(|place| keys.get(*place).copied())
                    .collect();
                exempt.holds_for(&values, &origin)
            };
            if held.is_exempt || traced.exempt.as_ref().is_some_and(is_exempt) {
                continue;
            }
            if let Some(Some(trace)) = self.traces.get_mut(traced.rule) {
                trace.add(at_ms, key_of(&traced.parts, keys));
            }
        }
        let mut request = Request::new(&site.name).origin(&origin).keys(keys);
        if held.is_prioritized {
            request = request.prioritized();
        }
        if held.is_exempt {
            request = request.exempt();
        }
        if self.is_inbound {
            request = request.inbound();
        }
        for rule in &site.rules {
            if let Some(rule) = self.report.rules.get_mut(*rule) {
                rule.requests += 1;
            }
        }
        let decision = self.engine.enter_resource(&site.resource, &request, now);
        let report = &mut self.report;
        report.requests += 1;
        if report.from_ms == 0 {
            report.from_ms = at_ms;
        }
        report.to_ms = at_ms;
        report.answered429 += u64::from(held.status == 429);
        let (mut is_refused, mut waits) = (false, false);
        let passed = match decision {
            Decision::Pass(entry) => self.tracks_ends.then_some((entry, 0)),
            Decision::Wait(wait, entry) => {
                let wait_ms = wait.as_nanos().div_ceil(1_000_000) as u64;
                waits = true;
                report.waited += 1;
                report.waited_ms += wait_ms;
                report.longest_wait_ms = report.longest_wait_ms.max(wait_ms);
                Some((entry, wait_ms))
            }
            Decision::Block(blocked) => {
                is_refused = true;
                report.refused += 1;
                let place = self.rule_places.get(blocked.id().as_str()).copied();
                let place = place.unwrap_or_else(|| {
                    // That of requests of too many APIs is in no document.
                    let place = report.rules.len();
                    report.rules.push(refusal_of_apis(blocked.id().to_string()));
                    self.rule_places.insert(blocked.id().to_string(), place);
                    place
                });
                if let Some(rule) = report.rules.get_mut(place) {
                    rule.refused += 1;
                }
                let parts = match blocked.cause() {
                    Cause::Flow(rule) => rule.keyed_by(),
                    Cause::Ban(rule) => rule.keyed_by(),
                    _ => None,
                };
                let parts = parts.map_or(&[][..], |by| by.parts());
                self.top
                    .add(place as u32, &label(parts, &site.resource, keys, client));
                None
            }
        };
        report.passed += u64::from(!is_refused);
        report.series.add(at_ms, is_refused, waits);
        if let Some(client) = held.client {
            self.seen.add(client);
            if is_refused {
                self.refused.add(client);
            }
        }
        if is_refused && let Some(group) = self.groups.get_mut(held.agent as usize) {
            group.requests += 1;
            if let Some(client) = held.client {
                group.clients.add(client);
            }
        }
        let Some((entry, wait_ms)) = passed else {
            return;
        };
        let order = self.report.requests;
        let at_ms = at_ms + wait_ms + u64::from(held.millis);
        let is_error = self.settings.errors.counts(held.status.into());
        let outcome = if is_error {
            Outcome::Error
        } else {
            Outcome::Success
        };
        if self.exits.len() >= MAX_IN_FLIGHT {
            self.exited_early += 1;
            return entry.exit(outcome, now);
        }
        self.exits.push(Exit {
            at_ms,
            order,
            entry,
            outcome,
        });
    }

    // ---- the end ----

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
                rule.suggestion = trace.suggest(self.refuse_less_than);
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
    fn count_by_state(&mut self) {
        let mut add = |id: &str, shadow: u64, waited: u64| {
            if let Some(rule) = self
                .rule_places
                .get(id)
                .and_then(|place| self.report.rules.get_mut(*place))
            {
                rule.refused += shadow;
                rule.waited += waited;
            }
        };
        let store = self.engine.store();
        store.for_each_unkeyed(|key, state| {
            add(key.rule.as_str(), state.shadow_blocked(), state.waited())
        });
        store.for_each_keyed(|key, state| {
            add(key.rule.as_str(), state.shadow_blocked(), state.waited())
        });
        self.engine
            .for_each_precheck(|rule| add(rule.id.as_str(), rule.shadow_blocked, 0));
    }

    fn note_times(&mut self) {
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
                "{} came more than a minute behind a later one{full} and were decided at the newest time: give the files in order of time, and the \
                 logs of several machines one by one.",
                crate::text::count(report.late, "request"),
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
                "{} were answered 429 then: something limited this traffic already, and clients that were refused may have come again.",
                crate::text::count(report.answered429, "request")
            ));
        }
    }
}

fn all_flow(rules: &Rules) -> Vec<FlowRule> {
    let lists = [&rules.gateway_flow, &rules.param_flow, &rules.flow];
    lists.into_iter().flatten().cloned().collect()
}

/// The hash of a key as a rule tells keys apart.
fn key_of(parts: &[TracedPart], values: &[KeyValue<'_>]) -> u64 {
    let mut whole = 0_u64;
    for (place, network) in parts {
        let of_part = match values.get(*place) {
            Some(KeyValue::One(value)) => match network {
                Some(bits) => hash_of_address(value, *bits),
                None => hash(value),
            },
            _ => 1,
        };
        whole = whole.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ of_part;
    }
    whole
}

/// The hash of the first bits of an address.
fn hash_of_address(text: &[u8], (v4, v6): (u8, u8)) -> u64 {
    // The common case: the whole of an IPv4 address has one spelling.
    if v4 == 32 && !text.contains(&b':') {
        return hash(text);
    }
    let address = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<std::net::IpAddr>().ok());
    match address.map(|address| address.to_canonical()) {
        Some(std::net::IpAddr::V4(address)) if v4 == 32 => hash(address.to_string().as_bytes()),
        Some(std::net::IpAddr::V4(address)) => {
            let mask = u32::MAX
                .checked_shl(32 - u32::from(v4.min(32)))
                .unwrap_or(0);
            hash(&(u32::from(address) & mask).to_le_bytes())
        }
        Some(std::net::IpAddr::V6(address)) => {
            let mask = u128::MAX
                .checked_shl(128 - u32::from(v6.min(128)))
                .unwrap_or(0);
            hash(&(u128::from(address) & mask).to_le_bytes())
        }
        None => hash(text),
    }
}

/// What a refused key is called in the report.
fn label(
    parts: &[KeyPart],
    resource: &Resource<Local>,
    values: &[KeyValue<'_>],
    client: Option<KeyValue<'_>>,
) -> Vec<u8> {
    let text = |value: Option<&KeyValue<'_>>| match value {
        Some(KeyValue::One(value)) => value.to_vec(),
        _ => b"(missing)".to_vec(),
    };
    if parts.is_empty() {
        return text(client.as_ref());
    }
    let of = |part: &KeyPart| {
        let place = resource.key_parts().iter().position(|known| known == part);
        text(place.and_then(|place| values.get(place)))
    };
    let all: Vec<Vec<u8>> = parts.iter().map(of).collect();
    all.join(&b", "[..])
}

fn refusal_of_apis(id: String) -> RuleReport {
    RuleReport {
        id,
        kind: "api",
        resource: "*".into(),
        shadow: false,
        requests: 0,
        refused: 0,
        waited: 0,
        not_replayed: None,
        suggestion: None,
        no_suggestion: None,
    }
}

fn empty(format: &Format, rules: Vec<RuleReport>) -> Report {
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
