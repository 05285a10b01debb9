//! The tree from a JSON text.

use super::value::{ConfigError, DOCUMENT, Value};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// The longest JSON text, in bytes: 10,000 rules as Sentinel's dashboard writes them, indented.
pub const MAX_DOCUMENT: usize = 8 * 1024 * 1024;

/// How many characters before a fault a sentence shows.
const MAX_TAIL: usize = 32;

impl Value {
    /// The tree of a JSON text: at most [`MAX_DOCUMENT`] bytes, and 127 levels deep.
    ///
    /// # Errors
    ///
    /// If the text is longer, deeper, not UTF-8 or not JSON.
    ///
    /// ```
    /// use leapgate::config::{Value, read};
    ///
    /// let document = Value::from_json(r#"{"flowRules": [{"resource": "login", "count": 100}]}"#)?;
    /// assert_eq!(read(&document)?.rules.flow.len(), 1);
    ///
    /// let document = Value::from_json(r#"{"flowRules": [{"resource": "login", "count": -1}]}"#)?;
    /// assert_eq!(
    ///     read(&document).unwrap_err().to_string(),
    ///     "flowRules[0].count: `-1` is not a valid count; use a number from 0 to 9007199254740992",
    /// );
    /// # Ok::<(), leapgate::config::ConfigError>(())
    /// ```
    pub fn from_json(json: impl AsRef<[u8]>) -> Result<Value, ConfigError> {
        parse(json.as_ref())
    }
}

/// What stands before the first `end` in a text, or all of it. (The search of the standard library would be five kilobytes of the
/// filter's module.)
fn up_to<'a>(text: &'a str, end: &str) -> &'a str {
    let mut parts = text.as_bytes().windows(end.len());
    let at = parts.position(|part| part == end.as_bytes());
    at.and_then(|at| text.get(..at)).unwrap_or(text)
}

fn parse(json: &[u8]) -> Result<Value, ConfigError> {
    let error_at = |value: &str, fault: &str| ConfigError::new(DOCUMENT, value, fault);
    if json.len() > MAX_DOCUMENT {
        let fault = format!("bytes are too many for a document; use at most {MAX_DOCUMENT}");
        return Err(error_at(&json.len().to_string(), &fault));
    }
    let text = std::str::from_utf8(json).map_err(|error| {
        let (before, rest) = json
            .split_at_checked(error.valid_up_to())
            .unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        let byte = rest
            .first()
            .map(|byte| format!("{byte:#04x}"))
            .unwrap_or_default();
        error_at(
            &byte,
            &format!("on line {line} is not UTF-8; save the document as UTF-8"),
        )
    })?;
    // Editors mark a text as UTF-8 by three bytes that are not JSON.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_ascii().is_empty() {
        return Err(error_at("", "is not a document; write at least `{}`"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    let value = Tree
        .deserialize(&mut json)
        .and_then(|value| json.end().map(|()| value));
    value.map_err(|error| {
        let text = before(text, error.line(), error.column());
        let (line, column) = (error.line(), error.column().max(1));
        let reason = error.to_string();
        let reason = up_to(&reason, " at line ");
        let fault = match reason {
            "recursion limit exceeded" => {
                format!(
                    "is nested too deep on line {line}, column {column}; use at most 127 levels"
                )
            }
            _ if error.is_eof() => {
                format!("breaks off on line {line}, column {column} ({reason}); close what is open")
            }
            _ => format!("goes wrong on line {line}, column {column} ({reason}); correct it there"),
        };
        error_at(text, &fault)
    })
}

/// The last characters of `text` up to that line and column; columns are counted in bytes.
fn before(text: &str, line: usize, column: usize) -> &str {
    let lines = text.split_inclusive('\n').take(line.saturating_sub(1));
    let column = column + lines.map(str::len).sum::<usize>();
    let end = (column..text.len())
        .find(|end| text.is_char_boundary(*end))
        .unwrap_or(text.len());
    let before = text.get(..end).unwrap_or(text).trim_ascii();
    let start = before
        .char_indices()
        .rev()
        .map(|(start, _)| start)
        .take(MAX_TAIL)
        .last()
        .unwrap_or(0);
    let tail = before.get(start..).unwrap_or(before);
    tail.rsplit('\n').next().unwrap_or(tail).trim_ascii_start()
}

/// Makes a [`Value`]. `serde_json` bounds its recursion.
struct Tree;

impl<'de> DeserializeSeed<'de> for Tree {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Tree {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value as f64))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Tree)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key_seed(Tree)? {
            // A key of JSON is a string.
            if let (Value::String(key), value) = (key, map.next_value_seed(Tree)?) {
                entries.push((key, value));
            }
        }
        Ok(Value::Object(entries))
    }
}
