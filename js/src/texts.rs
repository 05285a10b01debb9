//! Several texts in the buffer, one after another.

/// Texts, each with its length before it, in four bytes, little-endian.
#[derive(Default)]
pub(crate) struct Texts(Vec<u8>);

impl Texts {
    pub(crate) fn add(&mut self, text: &str) {
        self.0.extend_from_slice(&(text.len() as u32).to_le_bytes());
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
