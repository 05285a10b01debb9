//! What a store answers, as text.

#[cfg(doc)]
use super::request::Request;
use super::request::{VERSION, numbers, push};
use std::fmt;

/// An answer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Answer {
    /// Which request it answers ([`Request::echo`]).
    pub echo: u64,
    /// The new lease; 0 if there is none.
    pub id: u64,
    /// How many permits it has.
    pub granted: u64,
    /// In how many milliseconds there may be as many permits as are needed; 0 if all that were wanted are granted.
    pub retry_ms: u64,
    /// How many more there would be.
    pub remaining: u64,
    /// A part of the limit that is this node's own where there is no store: one of so many parts. With 0 it has none.
    pub nodes: u64,
}

/// An answer that is not one: the text of an error, of an older script, or of something that is not a store at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AnswerError {
    /// How the text begins.
    text: String,
    /// Whether it answers another request.
    is_foreign: bool,
}

/// How much of a text is shown.
const MAX_SHOWN: usize = 120;

impl AnswerError {
    /// Of this text.
    pub fn new(text: &str) -> AnswerError {
        let text = text.chars().take(MAX_SHOWN);
        let text = text.map(|c| if c.is_control() { ' ' } else { c });
        AnswerError {
            text: text.collect(),
            is_foreign: false,
        }
    }
}

impl AnswerError {
    /// Of an answer to another request: something on the way mixes answers up.
    pub fn foreign(answer: &Answer) -> AnswerError {
        AnswerError {
            text: answer.to_text(),
            is_foreign: true,
        }
    }

    /// The sentence.
    pub fn message(&self) -> String {
        let why = match self.is_foreign {
            true => "` answers another request; look at what is between here and the store",
            false => {
                "` is not an answer of leapgate's store; check which store it is, and its script"
            }
        };
        ["`", &self.text, why].concat()
    }
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for AnswerError {}

impl Answer {
    /// The text.
    pub fn to_text(&self) -> String {
        let mut text = String::with_capacity(48);
        let numbers = [
            VERSION,
            self.echo,
            self.id,
            self.granted,
            self.retry_ms,
            self.remaining,
            self.nodes,
        ];
        numbers.iter().for_each(|n| push(&mut text, *n));
        text
    }

    /// The answer of a text.
    ///
    /// # Errors
    ///
    /// If the text is not an answer.
    pub fn parse(text: &str) -> Result<Answer, AnswerError> {
        let read = || match *numbers(text, 7)? {
            [VERSION, echo, id, granted, retry_ms, remaining, nodes] => Some(Answer {
                echo,
                id,
                granted,
                retry_ms,
                remaining,
                nodes,
            }),
            _ => None,
        };
        read().ok_or_else(|| AnswerError::new(text))
    }
}
