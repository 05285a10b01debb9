//! Rules in words: what each counts, and what it guarantees.

use crate::text::{grouped, span};
use leapgate::Rules;
use leapgate::rule::{
    AuthorityRule, AuthorityStrategy, BanRule, Comparison, ControlBehavior, Count, Counting,
    DegradeGrade, DegradeRule, FlowRule, Grade, KeyPart, KeyedBy, LimitApp, Mode, REQUESTS, Ratio,
    Strategy, SystemLimit, SystemRule,
};
use leapgate_envoy::settings::{Scope, Settings};
use std::collections::HashSet;

/// For whom limits hold together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// All worker threads of a proxy.
    Workers,
    /// Each worker thread by itself.
    Worker,
    /// An engine of the library.
    Engine,
}

impl Reach {
    /// Where the filter counts with these settings.
    pub fn of(settings: &Settings) -> Reach {
        match settings.scope {
            Scope::Process => Reach::Workers,
            Scope::Worker => Reach::Worker,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Reach::Workers => ", over all workers",
            Reach::Worker => ", in each worker by itself",
            Reach::Engine => "",
        }
    }
}

/// The ids by which rules are called: one in shadow mode whose id is that of a rule in force is called otherwise.
pub(crate) struct Ids(HashSet<(&'static str, String)>);

impl Ids {
    pub(crate) fn new(rules: &Rules) -> Ids {
        let enforced = |mode: Mode| mode == Mode::Enforce;
        let lists = [&rules.gateway_flow, &rules.param_flow, &rules.flow];
        let flow = lists
            .into_iter()
            .flatten()
            .filter(|rule| enforced(rule.mode()));
        let flow = flow.map(|rule| ("flow", rule.id().to_string()));
        let degrade = rules.degrade.iter().filter(|rule| enforced(rule.mode()));
        let degrade = degrade.map(|rule| ("degrade", rule.id().to_string()));
        let authority = rules.authority.iter().filter(|rule| enforced(rule.mode()));
        let authority = authority.map(|rule| ("authority", rule.id().to_string()));
        let system = rules.system.iter().filter(|rule| enforced(rule.mode()));
        let system = system.map(|rule| ("system", rule.id().to_string()));
        let bans = rules.ban.iter().filter(|rule| enforced(rule.mode()));
        let bans = bans.map(|rule| ("ban", rule.id().to_string()));
        Ids(flow
            .chain(degrade)
            .chain(authority)
            .chain(system)
            .chain(bans)
            .collect())
    }

    pub(crate) fn of(&self, kind: &'static str, id: String, mode: Mode) -> String {
        match mode == Mode::Shadow && self.0.contains(&(kind, id.clone())) {
            true => id + "/shadow",
            false => id,
        }
    }
}

/// A number without needless digits.
fn number(count: Count) -> String {
    let count = count.get();
    match count.fract() == 0.0 {
        true => grouped(count as u64),
        false => count.to_string(),
    }
}

fn unit(rule: &FlowRule, count: Count) -> String {
    let one = count.get() == 1.0;
    match rule.unit() {
        REQUESTS if one => "request".into(),
        unit => unit.into(),
    }
}

/// `any second`, `any 10 s`.
fn any(ms: u64) -> String {
    match ms {
        1000 => "any second".into(),
        60_000 => "any minute".into(),
        3_600_000 => "any hour".into(),
        86_400_000 => "any day".into(),
        ms => format!("any {}", span(ms)),
    }
}

/// A part of a key, as a possession: `the client's address`.
pub fn part(part: &KeyPart) -> String {
    match part {
        KeyPart::ClientIp { v4: 32, v6: 128 } => "the client's address".into(),
        KeyPart::ClientIp { v4: 32, v6 } => {
            format!("the client's address (of IPv6 the first {v6} bits)")
        }
        KeyPart::ClientIp { v4, v6 } => {
            format!("the client's network (the first {v4} bits of IPv4, {v6} of IPv6)")
        }
        KeyPart::Header(name) => format!("the header {name}"),
        KeyPart::Query(name) => format!("the query parameter {name}"),
        KeyPart::Cookie(name) => format!("the cookie {name}"),
        KeyPart::Path => "the path".into(),
        KeyPart::Method => "the method".into(),
        KeyPart::Host => "the host".into(),
        KeyPart::Peer => "the identity in the peer's certificate".into(),
        KeyPart::Arg(index) => format!("argument {index}"),
        other => other.to_string(),
    }
}

fn keyed(by: &KeyedBy) -> String {
    let parts: Vec<String> = by.parts().iter().map(part).collect();
    parts.join(" and ")
}

/// What a flow rule limits. `count` is its own, or that of the key at hand.
pub fn flow(rule: &FlowRule, count: Count, reach: Reach) -> String {
    let (n, requests) = (number(count), unit(rule, count));
    let all = match rule.cluster() {
        Some(_) => ", of all machines together",
        None => reach.words(),
    };
    let mut text = match (rule.grade(), rule.control_behavior()) {
        (Grade::Concurrency, _) => format!("at most {n} {requests} in flight at once{all}"),
        (
            Grade::Qps { window, .. },
            ControlBehavior::Throttle | ControlBehavior::WarmUpThrottle,
        ) => {
            let every = window.window().interval_ms() as f64 / count.get();
            let wait = rule.max_queueing().as_millis();
            let pace = match count.get() > 0.0 {
                true => format!(
                    "one {} every {} ms{all}",
                    singular(&requests),
                    (every * 100.0).round() / 100.0
                ),
                false => format!("no {requests}"),
            };
            match wait {
                0 => format!("{pace}; none waits for its turn"),
                wait => format!(
                    "{pace}; the others wait for their turn, for {} at most, and are refused beyond that",
                    span(wait)
                ),
            }
        }
        (Grade::Qps { window, counting }, _) => {
            let ms = window.window().interval_ms();
            let most = format!("at most {n} {requests} in {}{all}", any(ms));
            match counting {
                Counting::Strict => most,
                Counting::Sentinel | Counting::Weighted => {
                    format!(
                        "{n} {requests} in {} of its window{all}, and at most twice as many in {}",
                        span(ms),
                        any(ms)
                    )
                }
            }
        }
    };
    if rule.control_behavior().warms_up() {
        let warm = rule.warming_up();
        text += &format!(
            "; when cold a part of 1/{} of it, rising within {} s of traffic",
            warm.cold_factor(),
            warm.period_sec()
        );
    }
    if let Some(by) = rule.keyed_by() {
        text += &format!("; keyed by {}: each has its own {n}", keyed(by));
        if by.burst() > 0 && count.get() > 0.0 && matches!(rule.grade(), Grade::Qps { .. }) {
            text += &format!(" and may use {} more at once", grouped(by.burst()));
        }
        if let Some(matching) = by.pattern() {
            text += &format!("; only values that match `{matching}`");
        }
        if by.count_from().is_some() {
            text += "; a request may bring another count along";
        }
        if by.enforced_share().get() < 1.0 {
            text += &format!(
                "; enforced for {} % of the keys",
                by.enforced_share().get() * 100.0
            );
        }
    }
    match rule.strategy() {
        Strategy::Direct => {}
        Strategy::Relate(resource) => {
            text += &format!("; what counts is the resource `{resource}`")
        }
        Strategy::Chain(context) => {
            text += &format!("; only requests that come in by the context `{context}`")
        }
    }
    match rule.limit_app() {
        LimitApp::Default => {}
        LimitApp::Other => text += "; each origin that no other rule names has its own",
        LimitApp::Origin(name) => text += &format!("; only requests of the origin `{name}`"),
    }
    if rule.cost().is_some() {
        text +=
            "; what a request costs is held as an estimate while it runs, and charged when it ends";
    }
    text + shadow(rule.mode())
}

fn singular(unit: &str) -> &str {
    match unit {
        "requests" => "request",
        unit => unit,
    }
}

fn shadow(mode: Mode) -> &'static str {
    match mode {
        Mode::Enforce => "",
        Mode::Shadow => "; in shadow mode: it counts, and refuses nothing",
    }
}

/// What a circuit breaker does.
pub fn degrade(rule: &DegradeRule) -> String {
    let window = span(rule.geometry().window().interval_ms());
    let than = match rule.comparison() {
        Comparison::Above => "more than",
        Comparison::AtLeast => "at least",
    };
    let share = |ratio: Ratio| (ratio.get() * 10_000.0).round() / 100.0;
    let when = match rule.grade() {
        DegradeGrade::SlowRatio { max_rt_ms, ratio } => {
            format!(
                "{than} {} % of the calls of {window} took longer than {} ms",
                share(ratio),
                number(max_rt_ms)
            )
        }
        DegradeGrade::ErrorRatio { ratio } => {
            format!("{than} {} % of the calls of {window} failed", share(ratio))
        }
        DegradeGrade::ErrorCount { count } => {
            format!("{than} {} calls of {window} failed", number(count))
        }
    };
    let probes = match rule.probes() {
        1 => "then one probe decides".into(),
        n => format!("then {n} probes must succeed"),
    };
    format!(
        "a circuit breaker: refuses all for {} once {when}, of at least {} calls; {probes}{}",
        span(rule.time_window_ms()),
        grouped(rule.min_request_amount()),
        shadow(rule.mode())
    )
}

/// What a system rule limits.
pub fn system(rule: &SystemRule) -> String {
    let limits = [
        (SystemLimit::Qps, "passes in a second"),
        (SystemLimit::Thread, "calls in flight"),
        (SystemLimit::Rt, "the average response time"),
        (SystemLimit::Load, "the machine's load"),
        (
            SystemLimit::Bbr,
            "calls in flight, by what the machine is estimated to bear",
        ),
        (SystemLimit::Cpu, "the use of the processor"),
    ];
    let named = limits
        .iter()
        .filter(|(limit, _)| rule.limits(*limit))
        .map(|(_, name)| *name);
    let named: Vec<&str> = named.collect();
    format!(
        "all inbound requests together, by {}{}",
        named.join(", "),
        shadow(rule.mode())
    )
}

/// Whom an authority rule admits.
pub fn authority(rule: &AuthorityRule) -> String {
    let names: Vec<String> = rule
        .origins()
        .take(5)
        .map(|name| format!("`{name}`"))
        .collect();
    let more = match rule.origins().count() - names.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    let names = names.join(", ");
    match rule.strategy() {
        AuthorityStrategy::White => format!(
            "admits only the origins {names}{more}, and requests without one{}",
            shadow(rule.mode())
        ),
        AuthorityStrategy::Black => {
            format!("refuses the origins {names}{more}{}", shadow(rule.mode()))
        }
    }
}

/// What a ban does.
pub fn ban(rule: &BanRule) -> String {
    let by = rule.keyed_by().map(keyed).unwrap_or_default();
    let refusals = crate::text::count(rule.count(), "refusal");
    let (ban, any) = (span(rule.ban_ms()), any(rule.interval_ms()));
    format!(
        "a ban of {ban} after {refusals} in {any}; keyed by {by}{}",
        shadow(rule.mode())
    )
}
