//! What rules would have done to the traffic of a log: its lines in, in chunks, a [`Report`] out.
//!
//! A line becomes a request when all lines of the minute around it have come, so that they may be in any order. Memory is bounded:
//! what is held of that minute, the tables of the engine, and the counts of the report.

mod agents;
mod counts;
mod decide;
mod ending;
mod fields;
mod format;
mod json;
mod queue;
mod report;
mod request;
mod rules;
mod run;
mod site;
mod suggest;
mod text;
mod when;

pub use counts::{Number, Series};
pub use format::Format;
pub use report::{Clients, Group, KeyReport, Report, RuleReport, Skipped, SkippedLine, Suggestion};

pub use text::text;

use crate::replay::format::SAMPLE;
use crate::replay::run::Run;
use leapgate::Rules;
use leapgate::backend::{Local, Store};
use leapgate::config::ConfigError;
use leapgate_envoy::settings::Settings;
use std::rc::Rc;

/// The longest line, in bytes. Longer ones are skipped.
const MAX_LINE: usize = 1 << 16;

/// How a log is read.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its format; `None`: what its first lines look like.
    pub format: Option<Format>,
    /// The resources of paths, in order: a prefix, as Envoy's `path_separated_prefix`, and a name. They come before the routes
    /// that a log names.
    pub routes: Vec<(String, String)>,
    /// For which share of refused requests, in percent, the smallest limit is searched.
    pub refuse_less_than: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: None,
            routes: Vec::new(),
            refuse_less_than: 1.0,
        }
    }
}

/// A replay of a log.
///
/// ```
/// use leapgate::Rules;
/// use leapgate::rule::FlowRule;
/// use leapgate_cli::replay::{Options, Replay};
/// use leapgate_envoy::settings::Settings;
///
/// let rules = Rules { flow: vec![FlowRule::new("login", 1.0)?], ..Rules::default() };
/// let routes = vec![("/login".into(), "login".into())];
/// let mut replay = Replay::new(rules, Settings::default(), Options { routes, ..Options::default() })?;
/// replay.feed(b"10.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /login HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n")?;
/// replay.feed(b"10.0.0.2 - - [10/Oct/2000:13:55:36 -0700] \"GET /login HTTP/1.1\" 200 5 \"-\" \"curl/8\"\n")?;
/// let report = replay.finish()?;
/// assert_eq!((report.passed, report.refused), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Replay {
    rules: Rules,
    settings: Settings,
    options: Options,
    /// The beginning of a line that has not come to its end, and before the format is known all that has come.
    carry: Vec<u8>,
    /// Whether the rest of the line is too long.
    is_too_long: bool,
    run: Option<Box<Run>>,
}

impl Replay {
    /// A replay with these rules.
    ///
    /// # Errors
    ///
    /// If the rules do not go together.
    pub fn new(rules: Rules, settings: Settings, options: Options) -> Result<Replay, ConfigError> {
        let engine = leapgate::Engine::with_store(Rc::new(Store::new(Local)), rules.clone());
        engine.map_err(|error| ConfigError::from_rules(&error))?;
        Ok(Replay {
            rules,
            settings,
            options,
            carry: Vec::new(),
            is_too_long: false,
            run: None,
        })
    }

    /// Reads more of the log. A chunk may end anywhere.
    ///
    /// # Errors
    ///
    /// That the log has none of the formats that are known: a sentence with the cure.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), String> {
        if self.run.is_some() {
            self.lines(bytes);
            return Ok(());
        }
        self.carry.extend_from_slice(bytes);
        let lines = memchr::memchr_iter(b'\n', &self.carry).count();
        if lines < SAMPLE && self.carry.len() < 2 * MAX_LINE {
            return Ok(());
        }
        self.begin()
    }

    /// The log, or one file of it, has come to its end: so has its last line.
    ///
    /// # Errors
    ///
    /// As [`Replay::feed`].
    pub fn end_of_file(&mut self) -> Result<(), String> {
        if self.run.is_none() {
            if self.carry.trim_ascii().is_empty() {
                return Ok(());
            }
            self.begin()?;
        }
        let line = std::mem::take(&mut self.carry);
        if let Some(run) = &mut self.run {
            match std::mem::take(&mut self.is_too_long) {
                true => run.skip_long(MAX_LINE),
                false => run.line(&line),
            }
        }
        Ok(())
    }

    /// The report of all lines.
    ///
    /// # Errors
    ///
    /// As [`Replay::feed`].
    pub fn finish(mut self) -> Result<Report, String> {
        self.end_of_file()?;
        if self.run.is_none() {
            // Nothing has come: whatever the format is.
            self.options.format = self.options.format.or_else(|| Format::named("combined"));
            self.begin()?;
        }
        match self.run {
            Some(run) => {
                let mut report = run.finish();
                if report.lines == 0 {
                    report.notes = vec!["The log has no lines.".into()];
                }
                Ok(report)
            }
            None => Err("the log was not read".into()),
        }
    }

    /// What has come so far says which format it is.
    fn begin(&mut self) -> Result<(), String> {
        let held = std::mem::take(&mut self.carry);
        let lines = held.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let lines: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).take(SAMPLE).collect();
        let format = match self.options.format.take() {
            Some(format) => format,
            None => Format::of_lines(&lines).ok_or_else(|| unknown(&lines))?,
        };
        self.run = Some(Box::new(Run::new(
            std::mem::take(&mut self.rules),
            &self.settings,
            format,
            &self.options,
        )?));
        self.lines(&held);
        Ok(())
    }

    fn lines(&mut self, mut bytes: &[u8]) {
        let Some(run) = &mut self.run else { return };
        if !self.carry.is_empty() || self.is_too_long {
            let end = memchr::memchr(b'\n', bytes);
            let head = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            if self.carry.len() + head.len() > MAX_LINE {
                self.is_too_long = true;
                self.carry.clear();
            } else if !self.is_too_long {
                self.carry.extend_from_slice(head);
            }
            let Some(end) = end else { return };
            match std::mem::take(&mut self.is_too_long) {
                true => run.skip_long(MAX_LINE),
                false => run.line(&self.carry),
            }
            self.carry.clear();
            bytes = bytes.get(end + 1..).unwrap_or_default();
        }
        let mut start = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            let line = bytes.get(start..end).unwrap_or_default();
            match line.len() > MAX_LINE {
                true => run.skip_long(MAX_LINE),
                false => run.line(line),
            }
            start = end + 1;
        }
        let rest = bytes.get(start..).unwrap_or_default();
        match rest.len() > MAX_LINE {
            true => self.is_too_long = true,
            false => self.carry.extend_from_slice(rest),
        }
    }
}

/// That the format is not known.
fn unknown(lines: &[&[u8]]) -> String {
    let first = lines.first().copied().unwrap_or_default();
    let first: String = String::from_utf8_lossy(first)
        .chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .take(60)
        .collect();
    format!(
        "the log has none of the formats that are known (its first line begins `{first}`); say which values stand where with --fields, \
         or name the format with --format: {}",
        Format::names().collect::<Vec<_>>().join(", ")
    )
}
