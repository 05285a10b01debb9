//! The parts of a module, without a gap.

use anyhow::Result;
use std::collections::HashMap;
use wasmparser::{Parser, Payload};

/// So many bytes, and to which path they belong: that of a function, `data` or `tables`.
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) bytes: usize,
}

/// The parts of the module, whose bytes are the module's. A function's length and a section's head belong to what follows them.
pub(crate) fn parts(module: &[u8], names: &HashMap<u32, String>) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    let mut done = 0;
    let mut number = 0;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload?;
        let (path, end) = match &payload {
            Payload::ImportSection(imports) => {
                number = imports.count();
                ("tables".to_owned(), imports.range().end)
            }
            Payload::CodeSectionEntry(body) => {
                let name = names.get(&number).cloned();
                number += 1;
                (name.unwrap_or_default(), body.range().end)
            }
            Payload::DataSection(data) => ("data".to_owned(), data.range().end),
            payload => match payload.as_section() {
                // The code's is that of its functions.
                Some((_, range)) if !matches!(payload, Payload::CodeSectionStart { .. }) => {
                    ("tables".to_owned(), range.end)
                }
                _ => continue,
            },
        };
        parts.push(Part {
            path,
            bytes: end - done,
        });
        done = end;
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with one import, two functions and a word of data.
    const MODULE: &[u8] = b"\0asm\x01\0\0\0\
        \x01\x04\x01\x60\0\0\
        \x02\x07\x01\x01a\x01b\0\0\
        \x03\x03\x02\0\0\
        \x05\x03\x01\0\x01\
        \x0a\x08\x02\x02\0\x0b\x03\0\x01\x0b\
        \x0b\x0a\x01\0\x41\0\x0b\x04word";

    #[test]
    fn each_byte_belongs_to_one_part() {
        let names = [(1, "first"), (2, "second")].map(|(number, name)| (number, name.to_owned()));
        let parts = parts(MODULE, &names.into()).unwrap();
        let sum: usize = parts.iter().map(|part| part.bytes).sum();
        assert_eq!(sum, MODULE.len());
        let of = |path: &str| -> usize {
            let bytes = parts.iter().filter(|part| part.path == path);
            bytes.map(|part| part.bytes).sum()
        };
        // With the head of the section: its number, its length, the number of functions.
        assert_eq!((of("first"), of("second")), (3 + 3, 4));
        assert_eq!(of("data"), 12);
        assert_eq!(of("tables"), MODULE.len() - 6 - 4 - 12);
    }
}
