//! The memory that both sides use: a buffer for texts and values, and doubles for the results of a decision.

use crate::layout::RESULTS_LEN;

/// How many keys can have a number. JavaScript remembers their texts.
pub(crate) const KEYS: usize = 4096;

/// Room for most keys.
pub(crate) const TEXT: usize = 1024;

pub(crate) struct Buffer {
    pub(crate) text: Vec<u8>,
    pub(crate) results: [f64; RESULTS_LEN],
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer {
            text: vec![0; TEXT],
            results: [0.0; RESULTS_LEN],
        }
    }
}

impl Buffer {
    pub(crate) fn reserve(&mut self, bytes: usize) {
        if self.text.len() < bytes {
            self.text.resize(bytes, 0);
        }
    }

    /// The first `bytes` bytes that JavaScript has written.
    pub(crate) fn bytes(&self, bytes: usize) -> &[u8] {
        self.text.get(..bytes).unwrap_or_default()
    }

    /// Two texts that JavaScript has written, one behind the other.
    #[cfg(feature = "memory")]
    pub(crate) fn two_texts(&self, bytes: usize, next_bytes: usize) -> (&str, &str) {
        (
            text_at(&self.text, 0, bytes),
            text_at(&self.text, bytes, next_bytes),
        )
    }

    /// Writes `text` for JavaScript. Returns its length.
    pub(crate) fn write_text(&mut self, text: &str) -> f64 {
        self.write(text.as_bytes())
    }

    /// 0 for JavaScript, or minus the length of a sentence, which is written for it.
    #[cfg(feature = "replay")]
    pub(crate) fn told(&mut self, done: Result<(), String>) -> f64 {
        match done {
            Ok(()) => 0.0,
            Err(sentence) => -self.write_text(&sentence),
        }
    }

    /// A number for JavaScript, or minus the length of an error message, which is written for it. (Out of line: there is one copy.)
    #[cfg(feature = "engine")]
    #[inline(never)]
    pub(crate) fn said(&mut self, made: Result<u32, leapgate::config::ConfigError>) -> f64 {
        match made {
            Ok(number) => number.into(),
            Err(error) => -self.write_text(&error.to_string()),
        }
    }

    /// Writes bytes for JavaScript. Returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> f64 {
        self.reserve(bytes.len());
        for (to, from) in self.text.iter_mut().zip(bytes) {
            *to = *from;
        }
        bytes.len() as f64
    }
}

/// The text of `bytes` bytes, from `at` on, that JavaScript has written.
#[cfg(any(feature = "engine", feature = "memory"))]
pub(crate) fn text_at(text: &[u8], at: usize, bytes: usize) -> &str {
    let bytes = text.get(at..).and_then(|rest| rest.get(..bytes));
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}
