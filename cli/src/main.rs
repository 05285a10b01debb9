//! `leapgate`: files, the clock and the terminal around the library.

use clap::{Parser, Subcommand, ValueEnum};
use leapgate_cli::check::{Target, check, summary};
use std::io::{Read, Write};
use std::process::ExitCode;

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

fn run_check(path: &str, target: Target) -> Result<(), String> {
    let checked = check(&document(path)?, target)?;
    for warning in checked.schema.iter().chain(&checked.warnings) {
        let _ = writeln!(std::io::stderr(), "leapgate: {warning}");
    }
    let warnings = match checked.warnings.len() {
        0 => String::new(),
        n => format!("; {}", leapgate_cli::text::count(n as u64, "warning")),
    };
    say(&format!("{path}: {}{warnings}\n", summary(&checked.rules)))
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
