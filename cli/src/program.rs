//! The program without its files: what its arguments mean, and what it says. The binary runs it, and so does the npm package.

use crate::check::{Checked, Target, check, summary};
use crate::explain::{Asked, explain};
use crate::html::html;
use crate::replay::{Format, Options, Replay, Report, text};
use crate::words::Reach;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// How many bytes of a document are read at most: more than any that is accepted, so that the refusal says why.
pub const MAX_DOCUMENT: usize = 8 * leapgate::config::MAX_DOCUMENT;

/// Check rules, explain them, and replay an access log through them.
#[derive(Parser)]
#[command(name = "leapgate", version, about)]
pub struct Arguments {
    /// What is to be done.
    #[command(subcommand)]
    pub command: Command,
}

/// What is to be done.
#[derive(Subcommand)]
pub enum Command {
    /// Say whether a document of rules is right, with the sentence that a proxy would log.
    Check(CheckArguments),
    /// Say which rules a request meets, in the order in which they are asked, and what each does.
    Explain(ExplainArguments),
    /// Say what rules would have done to the traffic of an access log.
    Replay(ReplayArguments),
}

/// The arguments of `check`.
#[derive(Args)]
pub struct CheckArguments {
    /// The document, as JSON; `-` is standard input.
    pub rules: String,
    /// Where it is to run: the filter refuses what no request in Envoy has.
    #[arg(long, value_enum, default_value = "envoy")]
    target: Where,
}

/// The arguments of `explain`.
#[derive(Args)]
pub struct ExplainArguments {
    /// The rules, as JSON; `-` is standard input.
    pub rules: String,
    /// What the request is for: in Envoy commonly the name of its route.
    #[arg(long, default_value = "")]
    resource: String,
    /// The path, with the query: by it the request belongs to APIs.
    #[arg(long)]
    path: Option<String>,
    /// The method.
    #[arg(long)]
    method: Option<String>,
    /// The host.
    #[arg(long)]
    host: Option<String>,
    /// The client's address.
    #[arg(long)]
    client_ip: Option<String>,
    /// The origin.
    #[arg(long)]
    origin: Option<String>,
    /// A header; may be given several times.
    #[arg(long = "header", value_name = "NAME:VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Another part of a key, by its name in ids; may be given several times: `jwtClaim:sub=alice`.
    #[arg(long = "key", value_name = "PART=VALUE", value_parser = key)]
    keys: Vec<(String, String)>,
    /// Say of the other rules, too, why they do not apply.
    #[arg(long)]
    all: bool,
    /// Where the rules are to run.
    #[arg(long, value_enum, default_value = "envoy")]
    target: Where,
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':') {
        Some((name, value)) => Ok((name.trim().to_ascii_lowercase(), value.trim().into())),
        None => Err("use a name and a value, such as `x-app:ios`".into()),
    }
}

fn key(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((name.into(), value.into())),
        None => Err("use a part and a value, such as `jwtClaim:sub=alice`".into()),
    }
}

/// The arguments of `replay`.
#[derive(Args)]
pub struct ReplayArguments {
    /// The rules, as JSON.
    pub rules: String,
    /// Logs in order of time, packed by gzip or not; `-` is standard input.
    #[arg(required = true)]
    pub logs: Vec<String>,
    /// The format of the log; by default what its first lines look like.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(Format::names()), conflicts_with = "fields")]
    format: Option<String>,
    /// Where values stand in lines of another format: `time=$.ts path=$.uri client=$.ip` for JSON, else a pattern such as nginx's
    /// log_format: `$remote_addr [$time_local] "$request" $status`.
    #[arg(long)]
    fields: Option<String>,
    /// The resource of requests whose path begins so; may be given several times, and the first that fits counts.
    #[arg(long = "route", value_name = "/PATH=NAME", value_parser = route)]
    routes: Vec<(String, String)>,
    /// The share of refused requests, in percent, for which the smallest limit is searched.
    #[arg(long, value_name = "PERCENT", default_value = "1", value_parser = percent)]
    refuse_less_than: f64,
    /// Write the report to a file, as a page with plots that needs no other file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Where the rules are to run.
    #[arg(long, value_enum, default_value = "envoy")]
    target: Where,
}

fn route(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((path, name)) if path.starts_with('/') && !name.is_empty() => {
            Ok((path.into(), name.into()))
        }
        _ => Err("use a path and a resource, such as `/login=login`".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent),
        _ => Err("use a number above 0, up to 100".into()),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Where {
    Envoy,
    Js,
    Rust,
}

impl From<Where> for Target {
    fn from(place: Where) -> Target {
        match place {
            Where::Envoy => Target::Envoy,
            Where::Js => Target::Js,
            Where::Rust => Target::Rust,
        }
    }
}

/// What is told of a document on standard error, a sentence each.
pub fn told(checked: &Checked) -> impl Iterator<Item = &String> {
    checked.schema.iter().chain(&checked.warnings)
}

impl Command {
    /// The path of the document of rules.
    pub fn rules(&self) -> &str {
        match self {
            Command::Check(arguments) => &arguments.rules,
            Command::Explain(arguments) => &arguments.rules,
            Command::Replay(arguments) => &arguments.rules,
        }
    }

    /// Checks the document.
    ///
    /// # Errors
    ///
    /// The sentence with which it is refused.
    pub fn check(&self, document: &[u8]) -> Result<Checked, String> {
        let target = match self {
            Command::Check(arguments) => arguments.target,
            Command::Explain(arguments) => arguments.target,
            Command::Replay(arguments) => arguments.target,
        };
        check(document, target.into())
    }
}

impl CheckArguments {
    /// What is printed of a document that is right.
    pub fn output(&self, checked: &Checked) -> String {
        let warnings = match checked.warnings.len() {
            0 => String::new(),
            n => format!("; {}", crate::text::count(n as u64, "warning")),
        };
        format!("{}: {}{warnings}\n", self.rules, summary(&checked.rules))
    }
}

impl ExplainArguments {
    /// What is printed of the request.
    ///
    /// # Errors
    ///
    /// If the rules do not go together, which a check has found out before.
    pub fn output(&self, checked: &Checked) -> Result<String, String> {
        let reach = match self.target {
            Where::Envoy => Reach::of(&checked.settings),
            Where::Js | Where::Rust => Reach::Engine,
        };
        let asked = Asked {
            resource: self.resource.clone(),
            method: self.method.clone(),
            path: self.path.clone(),
            host: self.host.clone(),
            client: self.client_ip.clone(),
            origin: self.origin.clone(),
            headers: self.headers.clone(),
            keys: self.keys.clone(),
        };
        let explanation = explain(&checked.rules, &checked.settings, reach, &asked)?;
        Ok(crate::explain::text(&explanation, self.all))
    }
}

impl ReplayArguments {
    /// Whether the arguments go together.
    ///
    /// # Errors
    ///
    /// A sentence with the cure.
    pub fn verify(&self) -> Result<(), String> {
        let paths = self.logs.iter().chain([&self.rules]);
        match paths.filter(|path| *path == "-").count() {
            0 | 1 => Ok(()),
            _ => Err(
                "`-` is given twice, and there is one standard input; give the path of a file"
                    .into(),
            ),
        }
    }

    /// A replay with the rules of a document.
    ///
    /// # Errors
    ///
    /// A sentence with the cure.
    pub fn replay(&self, checked: Checked) -> Result<Replay, String> {
        let format = match (&self.format, &self.fields) {
            (Some(name), _) => Format::named(name),
            (None, Some(fields)) => {
                Some(Format::of_fields(fields).map_err(|error| format!("--fields: {error}"))?)
            }
            (None, None) => None,
        };
        let options = Options {
            format,
            routes: self.routes.clone(),
            refuse_less_than: self.refuse_less_than,
        };
        let replay = Replay::new(checked.rules, checked.settings, options);
        replay.map_err(|error| error.to_string())
    }

    /// What is printed of a report, and what the file of `--html` is to have.
    ///
    /// # Errors
    ///
    /// That the report cannot be written as JSON.
    pub fn output(&self, report: &Report) -> Result<(String, Option<String>), String> {
        let json = || serde_json::to_string(report).map_err(|error| error.to_string());
        let page = match &self.html {
            Some(_) => Some(html(&json()?)),
            None => None,
        };
        let printed = if self.json {
            json()? + "\n"
        } else {
            text(report)
        };
        Ok((printed, page))
    }
}

/// That a document cannot be read.
pub fn unread_document(path: &str, error: &str) -> String {
    format!("`{path}` cannot be read ({error}); give the path of a file, or `-` for standard input")
}

/// That a log cannot be read.
pub fn unread_log(path: &str, error: &str) -> String {
    format!(
        "`{path}` cannot be read ({error}); give the path of a log, packed by gzip or not, or `-` for standard input"
    )
}

/// That a log was read in part: what has come is reported, since an archive may be broken off.
pub fn broken_off(path: &str, error: &str) -> String {
    format!("`{path}` is read up to a fault only ({error})")
}

/// That a page cannot be written.
pub fn unwritten(path: &str, error: &str) -> String {
    format!("`{path}` cannot be written ({error}); give `--html` a file in a folder that exists")
}
