//! What is read of a line: spans of its bytes, by slot.

/// The slots of a line. Headers that a format names have slots of their own behind these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Slot {
    /// When the request came.
    Time,
    /// When it was logged, after it had ended.
    End,
    Client,
    /// Where there is no client: the last address of it is.
    Forwarded,
    Method,
    Path,
    /// `GET /path HTTP/1.1`.
    Request,
    Host,
    Status,
    /// How long the request took: in milliseconds, in seconds, in microseconds.
    Millis,
    Seconds,
    Micros,
    Route,
    Agent,
    /// An object of headers.
    Headers,
}

/// How many slots the table has.
pub(crate) const FIXED: usize = 15;

/// How many headers a format may name.
pub(crate) const MAX_HEADERS: usize = 17;

pub(crate) const SLOTS: usize = FIXED + MAX_HEADERS;

/// A part of a line, or of what was unescaped of it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) is_spare: bool,
}

/// A line that was read.
pub(crate) struct Fields {
    spans: [Span; SLOTS],
    /// Values that had escapes.
    pub(crate) spare: Vec<u8>,
}

impl Fields {
    pub(crate) fn new() -> Fields {
        Fields {
            spans: [Span::default(); SLOTS],
            spare: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.spans = [Span::default(); SLOTS];
        self.spare.clear();
    }

    pub(crate) fn set(&mut self, slot: usize, start: usize, end: usize) {
        if let Some(span) = self.spans.get_mut(slot) {
            // Lines are shorter than 4 GiB.
            *span = Span {
                start: start as u32,
                end: end as u32,
                is_spare: false,
            };
        }
    }

    /// Sets a value to what has been appended to `spare` from `start` on.
    pub(crate) fn set_spare(&mut self, slot: usize, start: usize) {
        let end = self.spare.len();
        self.set(slot, start, end);
        if let Some(span) = self.spans.get_mut(slot) {
            span.is_spare = true;
        }
    }

    /// The value in a slot; `None` if the line has none, or says `-`.
    #[inline]
    pub(crate) fn get<'a>(&'a self, line: &'a [u8], slot: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(slot)?;
        let bytes = if span.is_spare { &self.spare[..] } else { line };
        let value = bytes.get(span.start as usize..span.end as usize)?;
        (!matches!(value, b"" | b"-")).then_some(value)
    }

    /// Parts a request line into the method and the path.
    pub(crate) fn split_request(&mut self, line: &[u8]) {
        let Some(span) = self.spans.get(Slot::Request as usize).copied() else {
            return;
        };
        if span.end == span.start || span.is_spare {
            return;
        }
        let (start, end) = (span.start as usize, span.end as usize);
        let Some(text) = line.get(start..end) else {
            return;
        };
        let Some(method) = memchr::memchr(b' ', text) else {
            return;
        };
        let path = method + 1;
        let rest = text.get(path..).unwrap_or_default();
        let length = memchr::memrchr(b' ', rest).unwrap_or(rest.len());
        self.set(Slot::Method as usize, start, start + method);
        self.set(Slot::Path as usize, start + path, start + path + length);
    }
}
