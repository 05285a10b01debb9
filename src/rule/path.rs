//! The path of a request, in steps. [`api`](crate::api) says which spellings are the same path. (The case of letters is for those who compare.)

use std::borrow::Cow;

/// The decoded bytes of a path.
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (&byte, mut rest) = self.0.split_first()?;
        let mut decoded = byte;
        match byte {
            b'?' | b'#' => {
                self.0 = &[];
                return None;
            }
            b'%' => {
                if let [high, low, after @ ..] = rest
                    && let Some(high) = char::from(*high).to_digit(16)
                    && let Some(low) = char::from(*low).to_digit(16)
                {
                    (decoded, rest) = ((high * 16 + low) as u8, after);
                }
            }
            _ => {}
        }
        self.0 = rest;
        Some(if decoded == b'\\' { b'/' } else { decoded })
    }
}

/// A step on the way that a path describes.
pub(crate) enum Step<'a> {
    /// Into the segment of that name: decoded, without parameters, and not empty.
    Into(Cow<'a, [u8]>),
    /// Back to the segment before, if there is one.
    Back,
}

/// The steps of a path.
pub(crate) struct Steps<'a>(Option<&'a [u8]>);

impl<'a> Steps<'a> {
    pub(crate) fn of(path: &'a [u8]) -> Steps<'a> {
        Steps(Some(path))
    }

    /// The name of a segment with escapes or parameters, and the path behind it.
    #[cold]
    fn decode(path: &'a [u8]) -> (Vec<u8>, Option<&'a [u8]>) {
        let (mut rest, mut name, mut is_name) = (Decoded(path), Vec::new(), true);
        loop {
            match rest.next() {
                None => return (name, None),
                Some(b'/') => return (name, Some(rest.0)),
                Some(b';') => is_name = false,
                Some(byte) if is_name => name.push(byte),
                Some(_) => {}
            }
        }
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        loop {
            let path = self.0?;
            let is_special = |byte: &u8| matches!(byte, b'/' | b'?' | b'#' | b'%' | b'\\' | b';');
            let end = path.iter().position(is_special).unwrap_or(path.len());
            let (plain, rest) = path.split_at(end);
            let mut name = Cow::Borrowed(plain);
            self.0 = match rest {
                [] | [b'?' | b'#', ..] => None,
                [b'/' | b'\\', rest @ ..] => Some(rest),
                _ => {
                    let (decoded, rest) = Steps::decode(path);
                    name = decoded.into();
                    rest
                }
            };
            match &*name {
                b"" | b"." => {}
                b".." => return Some(Step::Back),
                _ => return Some(Step::Into(name)),
            }
        }
    }
}

/// The path in its shortest spelling, decoded: `/`, or each of its segments after a `/`.
#[cfg(feature = "regex")]
pub(crate) fn plain(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    for step in Steps::of(path) {
        match step {
            Step::Into(segment) => {
                plain.push(b'/');
                plain.extend_from_slice(&segment);
            }
            Step::Back => plain.truncate(plain.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
        }
    }
    if plain.is_empty() {
        plain.push(b'/');
    }
    plain
}
