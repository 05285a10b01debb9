//! The memory that both sides read and write: a buffer for texts and trees, and doubles for what a decision tells.

use crate::layout::AREA;

/// How many keys have a number. JavaScript remembers their texts.
pub(crate) const KEYS: usize = 4096;

/// Room for most keys.
const TEXT: usize = 1024;

pub(crate) struct Buffer {
    pub(crate) text: Vec<u8>,
    pub(crate) area: [f64; AREA],
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer {
            text: vec![0; TEXT],
            area: [0.0; AREA],
        }
    }
}

impl Buffer {
    pub(crate) fn reserve(&mut self, bytes: usize) {
        if self.text.len() < bytes {
            self.text.resize(bytes, 0);
        }
    }

    /// So many bytes that JavaScript has put there.
    pub(crate) fn bytes(&self, bytes: usize) -> &[u8] {
        self.text.get(..bytes).unwrap_or_default()
    }

    /// Puts `text` where JavaScript reads it. How long it is.
    pub(crate) fn say(&mut self, text: &str) -> f64 {
        self.tell(text.as_bytes())
    }

    /// The same, of several texts, each with its length before it, or of anything else.
    pub(crate) fn tell(&mut self, bytes: &[u8]) -> f64 {
        self.reserve(bytes.len());
        for (to, from) in self.text.iter_mut().zip(bytes) {
            *to = *from;
        }
        bytes.len() as f64
    }
}

/// A text of so many bytes that JavaScript has put there, behind others.
#[cfg(feature = "engine")]
pub(crate) fn text_at(text: &[u8], at: usize, bytes: usize) -> &str {
    let bytes = text.get(at..).and_then(|rest| rest.get(..bytes));
    std::str::from_utf8(bytes.unwrap_or_default()).unwrap_or_default()
}
