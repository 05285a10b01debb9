//! `leapgate`: files, the clock and the terminal around the library.

mod files;

use clap::{Args, Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use leapgate_cli::check::{Checked, Target, check, summary};
use leapgate_cli::explain::{Asked, explain};
use leapgate_cli::replay::{Format, Options, Replay};
use leapgate_cli::words::Reach;
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Check rules, explain them, and replay an access log through them.
#[derive(Parser)]
#[command(name = "leapgate", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say whether a document of rules is right, with the sentence that a proxy would log.
    Check {
        /// The document, as JSON; `-` is standard input.
        rules: String,
        /// Where it is to run: the filter refuses what no request in Envoy has.
        #[arg(long, value_enum, default_value = "envoy")]
        target: Where,
    },
    /// Say which rules a request meets, in the order in which they are asked, and what each does.
    Explain(ExplainArguments),
    /// Say what rules would have done to the traffic of an access log.
    Replay(ReplayArguments),
}

#[derive(Args)]
struct ExplainArguments {
    /// The rules, as JSON; `-` is standard input.
    rules: String,
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
    let (name, value) = text
        .split_once(':')
        .ok_or("use a name and a value, such as `x-app:ios`")?;
    Ok((name.trim().to_ascii_lowercase(), value.trim().into()))
}

fn key(text: &str) -> Result<(String, String), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or("use a part and a value, such as `jwtClaim:sub=alice`")?;
    Ok((name.into(), value.into()))
}

#[derive(Args)]
struct ReplayArguments {
    /// The rules, as JSON.
    rules: String,
    /// Logs in order of time, packed by gzip or not; `-` is standard input.
    #[arg(required = true)]
    logs: Vec<String>,
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

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.command {
        Command::Check { rules, target } => run_check(&rules, target.into()),
        Command::Explain(arguments) => run_explain(arguments),
        Command::Replay(arguments) => run_replay(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            let _ = writeln!(std::io::stderr(), "leapgate: {sentence}");
            ExitCode::FAILURE
        }
    }
}

/// The bytes of a document: of a file, or of standard input.
fn document(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = 8 * leapgate::config::MAX_DOCUMENT as u64;
    let read = match path {
        "-" => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        path => std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!(
            "`{path}` cannot be read ({error}); give the path of a file, or `-` for standard input"
        )),
    }
}

/// Reads a document of rules, and tells what is to be told of it.
fn read(path: &str, target: Target) -> Result<Checked, String> {
    let checked = check(&document(path)?, target)?;
    for warning in checked.schema.iter().chain(&checked.warnings) {
        let _ = writeln!(std::io::stderr(), "leapgate: {warning}");
    }
    Ok(checked)
}

fn run_check(path: &str, target: Target) -> Result<(), String> {
    let checked = read(path, target)?;
    let warnings = match checked.warnings.len() {
        0 => String::new(),
        n => format!("; {}", leapgate_cli::text::count(n as u64, "warning")),
    };
    say(&format!("{path}: {}{warnings}\n", summary(&checked.rules)))
}

fn run_explain(arguments: ExplainArguments) -> Result<(), String> {
    let checked = read(&arguments.rules, arguments.target.into())?;
    let reach = match arguments.target {
        Where::Envoy => Reach::of(&checked.settings),
        Where::Js | Where::Rust => Reach::Engine,
    };
    let asked = Asked {
        resource: arguments.resource,
        method: arguments.method,
        path: arguments.path,
        host: arguments.host,
        client: arguments.client_ip,
        origin: arguments.origin,
        headers: arguments.headers,
        keys: arguments.keys,
    };
    let explanation = explain(&checked.rules, &checked.settings, reach, &asked)?;
    say(&leapgate_cli::explain::text(&explanation, arguments.all))
}

fn run_replay(arguments: &ReplayArguments) -> Result<(), String> {
    if arguments
        .logs
        .iter()
        .chain([&arguments.rules])
        .filter(|path| *path == "-")
        .count()
        > 1
    {
        return Err(
            "`-` is given twice, and there is one standard input; give the path of a file".into(),
        );
    }
    let checked = read(&arguments.rules, arguments.target.into())?;
    let format = match (&arguments.format, &arguments.fields) {
        (Some(name), _) => Format::named(name),
        (None, Some(fields)) => {
            Some(Format::of_fields(fields).map_err(|error| format!("--fields: {error}"))?)
        }
        (None, None) => None,
    };
    let options = Options {
        format,
        routes: arguments.routes.clone(),
        refuse_less_than: arguments.refuse_less_than,
    };
    let replay = Replay::new(checked.rules, checked.settings, options);
    let mut replay = replay.map_err(|error| error.to_string())?;
    let progress = Progress::new(&arguments.logs);
    for path in &arguments.logs {
        let unread = |error| {
            format!(
                "`{path}` cannot be read ({error}); give the path of a log, packed by gzip or not, or `-` for standard input"
            )
        };
        let mut log = files::Log::open(path, Arc::clone(&progress.read)).map_err(unread)?;
        while let Some(piece) = log.next() {
            let piece = match piece {
                Ok(piece) => piece,
                // What has come is reported: an archive may be broken off.
                Err(error) => {
                    progress.bar.suspend(|| {
                        let _ = writeln!(
                            std::io::stderr(),
                            "leapgate: `{path}` is read up to a fault only ({error})"
                        );
                    });
                    break;
                }
            };
            replay.feed(&piece)?;
            log.give_back(piece);
            progress.show();
        }
        replay.end_of_file()?;
    }
    progress.bar.finish_and_clear();
    let report = replay.finish()?;
    if arguments.json {
        let json = serde_json::to_string(&report).map_err(|error| error.to_string())?;
        return say(&(json + "\n"));
    }
    say(&leapgate_cli::replay::text(&report))
}

/// A bar on standard error, if that is a terminal.
struct Progress {
    bar: ProgressBar,
    read: Arc<AtomicU64>,
}

impl Progress {
    fn new(logs: &[String]) -> Progress {
        let length = |path: &String| Some(std::fs::metadata(path).ok()?.len());
        let total: Option<u64> = logs.iter().map(length).sum();
        let bar = match (
            std::io::stderr().is_terminal(),
            total.filter(|total| *total > 0),
        ) {
            (false, _) => ProgressBar::hidden(),
            (true, None) => ProgressBar::new_spinner(),
            (true, Some(total)) => {
                let style = ProgressStyle::with_template(
                    "{wide_bar} {percent} % of {total_bytes}, {eta} left",
                );
                let bar = ProgressBar::new(total);
                style.map_or(bar.clone(), |style| bar.with_style(style))
            }
        };
        Progress {
            bar,
            read: Arc::default(),
        }
    }

    fn show(&self) {
        self.bar.set_position(self.read.load(Ordering::Relaxed));
    }
}

/// Writes to standard output. If its reader has gone, there is nobody to tell.
fn say(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written ({error})"))
        }
        _ => Ok(()),
    }
}
