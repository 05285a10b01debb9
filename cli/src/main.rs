//! `leapgate`: files, the clock and the terminal around the library.

mod files;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use leapgate_cli::check::Checked;
use leapgate_cli::program::{self, Arguments, Command, MAX_DOCUMENT, ReplayArguments};
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    match run(&command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            tell(&sentence);
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<(), String> {
    if let Command::Replay(arguments) = command {
        arguments.verify()?;
    }
    let checked = command.check(&document(command.rules())?)?;
    program::told(&checked).for_each(|warning| tell(warning));
    match command {
        Command::Check(arguments) => say(&arguments.output(&checked)),
        Command::Explain(arguments) => say(&arguments.output(&checked)?),
        Command::Replay(arguments) => run_replay(arguments, checked),
    }
}

/// The bytes of a document: of a file, or of standard input.
fn document(path: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = MAX_DOCUMENT as u64;
    let read = match path {
        "-" => std::io::stdin().lock().take(most).read_to_end(&mut bytes),
        path => File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)),
    };
    match read {
        Ok(_) => Ok(bytes),
        Err(error) => Err(program::unread_document(path, &error.to_string())),
    }
}

fn run_replay(arguments: &ReplayArguments, checked: Checked) -> Result<(), String> {
    let mut replay = arguments.replay(checked)?;
    if let Some(path) = &arguments.html {
        // A page that cannot be written is told before a log is read for minutes.
        let opened = OpenOptions::new().append(true).create(true).open(path);
        opened.map_err(|error| program::unwritten(path, &error.to_string()))?;
    }
    let progress = Progress::new(&arguments.logs);
    for path in &arguments.logs {
        let log = files::Log::open(path, Arc::clone(&progress.read));
        let mut log = log.map_err(|error| program::unread_log(path, &error.to_string()))?;
        while let Some(piece) = log.next() {
            let piece = match piece {
                Ok(piece) => piece,
                Err(error) => {
                    let sentence = program::broken_off(path, &error.to_string());
                    progress.bar.suspend(|| tell(&sentence));
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
    let (printed, page) = arguments.output(&replay.finish()?)?;
    if let (Some(path), Some(page)) = (&arguments.html, page) {
        let written = std::fs::write(path, page);
        written.map_err(|error| program::unwritten(path, &error.to_string()))?;
    }
    say(&printed)
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

/// Writes a sentence to standard error.
fn tell(sentence: &str) {
    let _ = writeln!(std::io::stderr(), "leapgate: {sentence}");
}

/// Writes to standard output. If its reader has gone, nothing is left to write to.
fn say(text: &str) -> Result<(), String> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(format!("standard output cannot be written ({error})"))
        }
        _ => Ok(()),
    }
}
