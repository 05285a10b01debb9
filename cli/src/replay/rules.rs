//! Which rules a log can be replayed through: what each needs of a request, and whether lines of the format have it.

use super::fields::Slot;
use super::format::Format;
use super::report::RuleReport;
use super::request::Source;
use crate::words::{self, Ids, Reach};
use leapgate::Rules;
use leapgate::rule::{
    ApiDefinition, Exempt, FlowRule, Grade, KeyPart, LimitApp, Mode, Strategy, Target,
};
use leapgate_envoy::settings::{OriginFrom, ResourceFrom, Settings};

/// What lines say of requests.
pub(crate) struct Known<'a> {
    pub(crate) format: &'a Format,
    pub(crate) settings: &'a Settings,
    /// Prefixes of paths and the resources that they stand for.
    pub(crate) routes: &'a [(String, String)],
    apis: &'a [ApiDefinition],
}

impl<'a> Known<'a> {
    pub(crate) fn new(
        rules: &'a Rules,
        format: &'a Format,
        settings: &'a Settings,
        routes: &'a [(String, String)],
    ) -> Known<'a> {
        let apis = &rules.apis;
        Known {
            format,
            settings,
            routes,
            apis,
        }
    }

    /// Whether lines name the resources of requests by themselves.
    pub(crate) fn names_routes(&self) -> bool {
        self.format.has_slot(Slot::Route)
            && matches!(
                self.settings.resource,
                ResourceFrom::Route | ResourceFrom::EnvoyGateway { section: false }
            )
    }

    /// Why lines do not say which requests are for a resource.
    fn lacks_resource(&self, target: &Target) -> Option<String> {
        let Target::Resource(name) = target else {
            return None;
        };
        let is_fixed =
            matches!(&self.settings.resource, ResourceFrom::Fixed(fixed) if fixed == name);
        let is_mapped = self.routes.iter().any(|(_, to)| **to == **name);
        if is_fixed || is_mapped || self.names_routes() {
            return None;
        }
        if let Some(api) = self.apis.iter().find(|api| api.name() == name) {
            return match self.format.has_slot(Slot::Path) {
                true => None,
                false => Some(format!(
                    "the log has no paths, so that nothing is known to belong to the API `{}`",
                    api.name()
                )),
            };
        }
        Some(format!(
            "the log does not say which requests are for `{name}`; say so with --route, as in `--route /{name}={name}`"
        ))
    }

    /// Why a part of a request is not known.
    fn lacks_part(&self, part: &KeyPart) -> Option<String> {
        match Source::of(part, self.format) {
            Source::None => Some(format!("the log does not have `{part}`")),
            _ => None,
        }
    }

    fn lacks_origin(&self) -> Option<String> {
        match &self.settings.origin {
            Some(OriginFrom::Header(name)) => {
                self.lacks_part(&KeyPart::Header(name.as_str().into()))
            }
            Some(OriginFrom::Peer) => self.lacks_part(&KeyPart::Peer),
            None => Some("no origin is defined (`envoy.origin`)".into()),
        }
    }

    fn lacks_exempt(&self, exempt: Option<&Exempt>) -> Option<String> {
        let exempt = exempt?;
        let lacks = exempt.parts().iter().find_map(|part| self.lacks_part(part));
        lacks.or_else(|| exempt.is_by_origin().then(|| self.lacks_origin()).flatten())
    }

    fn lacks_duration(&self) -> Option<String> {
        let slots = [Slot::Millis, Slot::Seconds, Slot::Micros];
        let has = slots.into_iter().any(|slot| self.format.has_slot(slot));
        (!has).then(|| "the log does not say how long requests took".into())
    }

    fn lacks_status(&self) -> Option<String> {
        let has = self.format.has_slot(Slot::Status);
        (!has).then(|| "the log does not have the status of responses".into())
    }

    fn lacks_for_flow(&self, rule: &FlowRule) -> Option<String> {
        let parts = rule.keyed_by().map_or(&[][..], |by| by.parts());
        if rule.cost().is_some() {
            return Some("the log does not say what requests cost".into());
        }
        if rule.keyed_by().is_some_and(|by| by.count_from().is_some()) {
            return Some("the log does not have the counts that requests bring along".into());
        }
        if matches!(rule.strategy(), Strategy::Chain(_)) {
            return Some("requests in a log come in by no context".into());
        }
        let by_origin = *rule.limit_app() != LimitApp::Default;
        self.lacks_resource(rule.target())
            .or_else(|| parts.iter().find_map(|part| self.lacks_part(part)))
            .or_else(|| self.lacks_exempt(rule.exempt()))
            .or_else(|| by_origin.then(|| self.lacks_origin()).flatten())
            .or_else(|| {
                (rule.grade() == Grade::Concurrency)
                    .then(|| self.lacks_duration())
                    .flatten()
            })
    }
}

/// The reports of rules, and the rules that can be replayed.
pub(crate) fn sort(rules: Rules, known: &Known<'_>) -> (Vec<RuleReport>, Rules) {
    let mut reports = Vec::new();
    let (all, ids, reach) = (rules.mode, Ids::new(&rules), Reach::of(known.settings));
    let mut report =
        |(kind, id, words): (_, String, String), resource: &str, mode, lacks: &Option<String>| {
            reports.push(RuleReport {
                id: ids.of(kind, id, mode),
                kind,
                words,
                resource: resource.into(),
                shadow: mode == Mode::Shadow || all == Mode::Shadow,
                requests: 0,
                refused: 0,
                waited: 0,
                not_replayed: lacks.clone(),
                suggestion: None,
                no_suggestion: None,
            });
            lacks.is_none()
        };
    let mut kept = rules;
    kept.authority.retain(|rule| {
        let lacks = known
            .lacks_resource(rule.target())
            .or_else(|| known.lacks_origin());
        report(
            ("authority", rule.id().to_string(), words::authority(rule)),
            rule.target().as_str(),
            rule.mode(),
            &lacks,
        )
    });
    kept.ban.retain(|rule| {
        let parts = rule.keyed_by().map_or(&[][..], |by| by.parts());
        let lacks = known.lacks_resource(rule.target());
        let lacks = lacks.or_else(|| parts.iter().find_map(|part| known.lacks_part(part)));
        report(
            ("ban", rule.id().to_string(), words::ban(rule)),
            rule.target().as_str(),
            rule.mode(),
            &lacks,
        )
    });
    kept.system.retain(|rule| {
        let lacks = known.lacks_duration();
        report(
            ("system", rule.id().to_string(), words::system(rule)),
            "*",
            rule.mode(),
            &lacks,
        )
    });
    kept.degrade.retain(|rule| {
        let lacks = known
            .lacks_resource(rule.target())
            .or_else(|| known.lacks_duration());
        let lacks = lacks.or_else(|| known.lacks_status());
        report(
            ("degrade", rule.id().to_string(), words::degrade(rule)),
            rule.target().as_str(),
            rule.mode(),
            &lacks,
        )
    });
    let mut flow = |list: &mut Vec<FlowRule>| {
        list.retain(|rule| {
            let lacks = known.lacks_for_flow(rule);
            report(
                (
                    "flow",
                    rule.id().to_string(),
                    words::flow(rule, rule.count(), reach),
                ),
                rule.target().as_str(),
                rule.mode(),
                &lacks,
            )
        });
    };
    flow(&mut kept.gateway_flow);
    flow(&mut kept.param_flow);
    flow(&mut kept.flow);
    (reports, kept)
}
