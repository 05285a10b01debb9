//! The program of the command line, without its files: what they have comes in, and what it says is kept until it is fetched.

use crate::layout::*;
use crate::texts::Texts;
use clap::Parser;
use leapgate_cli::program::{self, Arguments, Command};
use leapgate_cli::replay::Replay;

/// Not an exit status: the program goes on.
const GOES_ON: i32 = -1;

#[derive(Default)]
pub(crate) struct Program {
    command: Option<Command>,
    replay: Option<Replay>,
    out: String,
    err: String,
    page: String,
}

impl Program {
    /// Starts with these arguments. What is not UTF-8 in them is replaced.
    pub(crate) fn start<'a>(arguments: impl Iterator<Item = &'a [u8]>) -> (Program, i32) {
        let mut program = Program::default();
        let arguments = arguments.map(|text| String::from_utf8_lossy(text).into_owned());
        match Arguments::try_parse_from(std::iter::once("leapgate".into()).chain(arguments)) {
            Ok(Arguments { command }) => {
                let verified = match &command {
                    Command::Replay(arguments) => arguments.verify(),
                    Command::Check(_) | Command::Explain(_) => Ok(()),
                };
                program.command = Some(command);
                let status = program.or_fail(verified.map(|()| GOES_ON));
                (program, status)
            }
            Err(error) => {
                let text = error.render().to_string();
                match error.use_stderr() {
                    true => program.err = text,
                    false => program.out = text,
                }
                (program, error.exit_code())
            }
        }
    }

    pub(crate) fn paths(&self) -> Vec<u8> {
        let mut texts = Texts::default();
        if let Some(command) = &self.command {
            texts.add(command.rules());
        }
        if let Some(Command::Replay(arguments)) = &self.command {
            texts.add(arguments.html.as_deref().unwrap_or_default());
            arguments.logs.iter().for_each(|path| texts.add(path));
        }
        texts.bytes().to_vec()
    }

    pub(crate) fn document(&mut self, bytes: &[u8]) -> i32 {
        let status = self.read(bytes);
        self.or_fail(status)
    }

    fn read(&mut self, bytes: &[u8]) -> Result<i32, String> {
        let Some(command) = &self.command else {
            return Ok(GOES_ON);
        };
        let checked = command.check(bytes)?;
        program::told(&checked).for_each(|warning| tell(&mut self.err, warning));
        match command {
            Command::Check(arguments) => {
                self.out = arguments.output(&checked);
                Ok(0)
            }
            Command::Explain(arguments) => {
                self.out = arguments.output(&checked)?;
                Ok(0)
            }
            Command::Replay(arguments) => {
                self.replay = Some(arguments.replay(checked)?);
                Ok(GOES_ON)
            }
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> i32 {
        let fed = self
            .replay
            .as_mut()
            .map_or(Ok(()), |replay| replay.feed(bytes));
        self.or_fail(fed.map(|()| GOES_ON))
    }

    pub(crate) fn end_of_file(&mut self) -> i32 {
        let ended = self.replay.as_mut().map_or(Ok(()), Replay::end_of_file);
        self.or_fail(ended.map(|()| GOES_ON))
    }

    pub(crate) fn finish(&mut self) -> i32 {
        let status = self.report();
        self.or_fail(status)
    }

    fn report(&mut self) -> Result<i32, String> {
        if let (Some(Command::Replay(arguments)), Some(replay)) =
            (&self.command, self.replay.take())
        {
            let (printed, page) = arguments.output(&replay.finish()?)?;
            self.out = printed;
            self.page = page.unwrap_or_default();
        }
        Ok(0)
    }

    pub(crate) fn fault(&mut self, fault: u32, texts: &[&[u8]]) -> i32 {
        let text = |i: usize| String::from_utf8_lossy(texts.get(i).copied().unwrap_or_default());
        let (path, error) = (text(0), text(1));
        let sentence = match fault {
            FAULT_DOCUMENT => program::unread_document(&path, &error),
            FAULT_LOG => program::unread_log(&path, &error),
            FAULT_PAGE => program::unwritten(&path, &error),
            _ => program::broken_off(&path, &error),
        };
        tell(&mut self.err, &sentence);
        if fault == FAULT_BROKEN_OFF {
            GOES_ON
        } else {
            1
        }
    }

    /// What was said in a place since the last call.
    pub(crate) fn take(&mut self, place: u32) -> String {
        std::mem::take(match place {
            SAID_OUT => &mut self.out,
            SAID_ERR => &mut self.err,
            _ => &mut self.page,
        })
    }

    fn or_fail(&mut self, status: Result<i32, String>) -> i32 {
        status.unwrap_or_else(|sentence| {
            tell(&mut self.err, &sentence);
            1
        })
    }
}

fn tell(err: &mut String, sentence: &str) {
    err.push_str("leapgate: ");
    err.push_str(sentence);
    err.push('\n');
}
