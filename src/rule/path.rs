//! The path of a request, in steps. [`api`](crate::api) says which spellings are the same path. (The case of letters is for those who compare.)

/// The decoded bytes of a path.
#[derive(Clone)]
pub(crate) struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    #[inline]
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

/// The name of a segment: decoded, and without parameters.
pub(crate) type Segment<'a> = std::iter::Take<Decoded<'a>>;

/// A step on the way that a path describes.
pub(crate) enum Step<'a> {
    /// Into the segment of that name, which is not empty.
    Into(Segment<'a>),
    /// Back to the segment before, if there is one.
    Back,
}

/// The steps of a path.
pub(crate) struct Steps<'a>(Option<Decoded<'a>>);

impl<'a> Steps<'a> {
    pub(crate) fn of(path: &'a [u8]) -> Steps<'a> {
        Steps(Some(Decoded(path)))
    }
}

impl<'a> Iterator for Steps<'a> {
    type Item = Step<'a>;

    #[inline]
    fn next(&mut self) -> Option<Step<'a>> {
        loop {
            let segment = self.0.clone()?;
            let (mut length, mut is_dots, mut is_name) = (0, true, true);
            loop {
                match self.0.as_mut().and_then(Iterator::next) {
                    None => {
                        self.0 = None;
                        break;
                    }
                    Some(b'/') => break,
                    Some(b';') => is_name = false,
                    Some(byte) if is_name => {
                        length += 1;
                        is_dots &= byte == b'.';
                    }
                    Some(_) => {}
                }
            }
            match length {
                0 => {}
                1 if is_dots => {}
                2 if is_dots => return Some(Step::Back),
                _ => return Some(Step::Into(segment.take(length))),
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
                plain.extend(segment);
            }
            Step::Back => plain.truncate(plain.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
        }
    }
    if plain.is_empty() {
        plain.push(b'/');
    }
    plain
}
