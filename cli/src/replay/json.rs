//! A JSON line, read in one pass without a tree: only the wanted values are looked at.

use super::fields::Fields;
use memchr::memchr2;

/// A wanted value: the keys on the way to it, and its slot.
pub(crate) type Wanted = (Vec<Box<[u8]>>, usize);

/// How many wanted values there may be: a bit for each.
pub(crate) const MAX_WANTED: usize = 32;

const MAX_DEPTH: usize = 32;

/// Reads the wanted values of an object.
///
/// # Errors
///
/// Why the line is not one.
pub(crate) fn read(
    line: &[u8],
    wanted: &[Wanted],
    fields: &mut Fields,
) -> Result<(), &'static str> {
    let mut scan = Scan {
        line,
        at: 0,
        wanted,
        fields,
    };
    scan.space();
    if scan.peek() != Some(b'{') {
        return Err("it is not a JSON object");
    }
    let all = if wanted.len() >= MAX_WANTED {
        u32::MAX
    } else {
        (1 << wanted.len()) - 1
    };
    scan.object(all, 0).ok_or("it is not valid JSON")
}

/// The text, or the first text of an array, at a key of any case in an object.
#[cold]
pub(crate) fn member(object: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut fields = Fields::new();
    let mut scan = Scan {
        line: object,
        at: 1,
        wanted: &[],
        fields: &mut fields,
    };
    loop {
        scan.space();
        let (start, end, _) = scan.string()?;
        let is_named = object
            .get(start..end)?
            .eq_ignore_ascii_case(name.as_bytes());
        scan.space();
        if scan.peek()? != b':' {
            return None;
        }
        scan.at += 1;
        scan.space();
        if is_named {
            if scan.peek()? == b'[' {
                scan.at += 1;
                scan.space();
            }
            let (start, end, _) = scan.string()?;
            let text = serde_json::from_slice::<String>(object.get(start - 1..end + 1)?);
            return text.ok().map(String::into_bytes);
        }
        scan.value(None, 0, 1)?;
        scan.space();
        if scan.peek()? != b',' {
            return None;
        }
        scan.at += 1;
    }
}

struct Scan<'a> {
    line: &'a [u8],
    at: usize,
    wanted: &'a [Wanted],
    fields: &'a mut Fields,
}

impl Scan<'_> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    #[inline]
    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// An object, of which the values in `open` are wanted, a bit for each, whose first `depth` keys have come.
    fn object(&mut self, open: u32, depth: usize) -> Option<()> {
        if depth == MAX_DEPTH {
            return None;
        }
        self.at += 1;
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            self.space();
            let (start, end, is_escaped) = self.string()?;
            let key = self.line.get(start..end)?;
            self.space();
            if self.peek()? != b':' {
                return None;
            }
            self.at += 1;
            self.space();
            let (mut found, mut further) = (None, 0);
            let mut rest = if is_escaped { 0 } else { open };
            while rest != 0 {
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                let (path, slot) = self.wanted.get(bit as usize)?;
                if path.get(depth).is_some_and(|step| **step == *key) {
                    match path.len() == depth + 1 {
                        true => found = Some(*slot),
                        false => further |= 1 << bit,
                    }
                }
            }
            self.value(found, further, depth + 1)?;
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
        }
    }

    /// Any value; its text is put into the slot.
    fn value(&mut self, slot: Option<usize>, open: u32, depth: usize) -> Option<()> {
        let start = self.at;
        match self.peek()? {
            b'"' => {
                let (start, end, is_escaped) = self.string()?;
                match slot {
                    Some(slot) if is_escaped => self.unescape(slot, start, end),
                    Some(slot) => self.fields.set(slot, start, end),
                    None => {}
                }
                return Some(());
            }
            b'{' if open != 0 => self.object(open, depth)?,
            b'[' if slot.is_some() || open != 0 => return self.first_of_array(slot, open, depth),
            b'{' | b'[' => self.skip()?,
            _ => {
                let rest = self.line.get(start..)?;
                let is_end = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\r');
                let length = rest.iter().position(is_end)?;
                let text = rest.get(..length)?;
                let is_literal = matches!(text, b"true" | b"false" | b"null");
                if !is_literal && !text.first()?.is_ascii_digit() && *text.first()? != b'-' {
                    return None;
                }
                self.at += length;
                if text == b"null" {
                    return Some(());
                }
            }
        }
        if let Some(slot) = slot {
            self.fields.set(slot, start, self.at);
        }
        Some(())
    }

    /// Of an array the first value is wanted: so some logs write headers.
    fn first_of_array(&mut self, slot: Option<usize>, open: u32, depth: usize) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        let start = self.at;
        self.skip()?;
        let end = std::mem::replace(&mut self.at, start + 1);
        self.space();
        if self.peek()? != b']' {
            self.value(slot, open, depth + 1)?;
        }
        self.at = end;
        Some(())
    }

    /// Skips an object or an array, without looking at what is in it but for its strings.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    if depth == 0 {
                        self.at += 1;
                        return Some(());
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// Where the text of a string stands, and whether it has escapes.
    #[inline]
    fn string(&mut self) -> Option<(usize, usize, bool)> {
        if self.peek()? != b'"' {
            return None;
        }
        let start = self.at + 1;
        let (mut at, mut is_escaped) = (start, false);
        loop {
            at += memchr2(b'"', b'\\', self.line.get(at..)?)?;
            if self.line.get(at)? == &b'"' {
                self.at = at + 1;
                return Some((start, at, is_escaped));
            }
            is_escaped = true;
            at += 2;
        }
    }

    /// Puts a text with escapes into the slot.
    #[cold]
    fn unescape(&mut self, slot: usize, start: usize, end: usize) {
        let quoted = self.line.get(start - 1..end + 1).unwrap_or_default();
        let text: Result<String, _> = serde_json::from_slice(quoted);
        let from = self.fields.spare.len();
        match text {
            Ok(text) => self.fields.spare.extend_from_slice(text.as_bytes()),
            // Bytes that are not UTF-8 stay as they stand.
            Err(_) => return self.fields.set(slot, start, end),
        }
        self.fields.set_spare(slot, from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(line: &str) -> Result<Vec<Option<String>>, &'static str> {
        let path = |path: &str| path.split('.').map(|step| step.as_bytes().into()).collect();
        let wanted = [(path("a"), 0), (path("r.ip"), 1), (path("r.h.ua"), 2)];
        let mut fields = Fields::new();
        read(line.as_bytes(), &wanted, &mut fields)?;
        let text = |slot| {
            fields
                .get(line.as_bytes(), slot)
                .map(|text| String::from_utf8_lossy(text).into_owned())
        };
        Ok((0..3).map(text).collect())
    }

    #[test]
    fn wanted_values_are_found_wherever_they_stand() {
        let some = |text: &str| Some(text.to_owned());
        let cases = [
            (
                r#"{"a":1.5,"r":{"ip":"1.2.3.4","h":{"ua":["x","y"]}}}"#,
                [some("1.5"), some("1.2.3.4"), some("x")],
            ),
            (
                r#" { "x" : [1,{"a":"]"}] , "a" : "q\"\u00e9" } "#,
                [some("q\"é"), None, None],
            ),
            (r#"{"a":null,"r":{"ip":"-","h":{}}}"#, [None, None, None]),
            (r#"{"r":"text","a":true}"#, [some("true"), None, None]),
            (
                r#"{"r":{"h":{"ua":[]}},"a":{"b":1}}"#,
                [some(r#"{"b":1}"#), None, None],
            ),
            ("{}", [None, None, None]),
        ];
        for (line, expected) in cases {
            assert_eq!(read_all(line).unwrap(), expected, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_broken_off_is_not_read() {
        assert_eq!(read_all("127.0.0.1 - -"), Err("it is not a JSON object"));
        let deep = format!("{{\"r\":{}", "[".repeat(100_000));
        for line in [
            r#"{"a":"#,
            r#"{"a""#,
            r#"{"a":"x"#,
            r#"{"a":1"#,
            r#"{"a":"x\"#,
            r#"{"a":x}"#,
            r#"{a:1}"#,
            "{",
            &deep,
        ] {
            assert_eq!(read_all(line), Err("it is not valid JSON"), "{line}");
        }
    }
}
