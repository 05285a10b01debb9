//! The keys of requests that engines know by number, and their costs.

use crate::layout::COSTS;
use crate::tree;
use leapgate::rule::KeyValue;

/// The values of a request for the key parts of its resource.
#[derive(Clone, Default)]
pub(crate) struct KeyText {
    bytes: Vec<u8>,
    form: Form,
}

/// The layout of the values in the buffer.
#[derive(Clone, Copy, Default)]
pub(crate) enum Form {
    /// One text, for the one part.
    #[default]
    One,
    /// A text for each part, each with its length before it.
    Parts,
    /// For each part the number of its texts, in four bytes, and then the texts, each with its length before it.
    Lists,
}

impl KeyText {
    pub(crate) fn put(&mut self, text: &[u8], form: Form) {
        self.form = form;
        self.bytes.clear();
        self.bytes.extend_from_slice(text);
    }
}

/// The costs that JavaScript has put among the results, by unit.
pub(crate) fn costs<'a>(units: &'a [Box<str>], results: &[f64]) -> Vec<(&'a str, u64)> {
    let row = results.iter().skip(COSTS);
    let said = units.iter().zip(row).filter(|(_, n)| **n >= 0.0);
    said.map(|(unit, n)| (&**unit, *n as u64)).collect()
}

/// Calls `each` with the values of a key.
pub(crate) fn with_key<R>(key: Option<&KeyText>, each: impl FnOnce(&[KeyValue<'_>]) -> R) -> R {
    let Some(KeyText { bytes, form }) = key else {
        return each(&[]);
    };
    match form {
        Form::One => each(&[KeyValue::One(bytes)]),
        Form::Parts => each(&tree::parts(bytes).map(KeyValue::One).collect::<Vec<_>>()),
        Form::Lists => {
            let lists = tree::lists(bytes);
            let values: Vec<_> = lists.iter().map(|list| KeyValue::Each(list)).collect();
            each(&values)
        }
    }
}
