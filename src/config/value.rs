//! A document as a tree, the reader that walks it, and the errors that it finds.

use crate::text::{decimal, escaped};
use std::fmt;
use std::ops::RangeInclusive;

/// The path of a whole document.
pub(super) const DOCUMENT: &str = "document";

/// How many characters of a value a sentence shows.
const MAX_SHOWN: usize = 64;

/// Keys that Sentinel writes into rules of every kind. The first two mean something to flow rules alone, the others nothing here.
const SENTINEL_KEYS: [&str; 7] = [
    "clusterMode",
    "clusterConfig",
    "gmtCreate",
    "gmtModified",
    "app",
    "ip",
    "port",
];

/// A document, or a part of one, as a tree.
///
/// Code that fills one by hand bounds its depth: dropping it takes stack for each level.
#[derive(Clone, PartialEq, Debug)]
pub enum Value {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A string.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object: all keys, in order, so that a key that is given twice can be refused.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// The value as a sentence shows it.
    pub(super) fn shown(&self) -> String {
        match self {
            Value::Null => "null".into(),
            Value::Bool(value) => value.to_string(),
            Value::Number(value) => decimal(*value),
            Value::String(value) => escaped(value, MAX_SHOWN),
            Value::Array(_) => "[…]".into(),
            Value::Object(_) => "{…}".into(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Value::Null => "not a value",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Array(_) => "an array",
            Value::Object(_) => "an object",
        }
    }
}

/// An error in a document: one sentence with the path, the value and the cure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(
    /// The path, and the rest of the sentence. Boxed: some hundred functions pass it on.
    Box<(String, String)>,
);

impl ConfigError {
    /// `value`, at `path`, is wrong: `fault` says why, and the cure after a semicolon.
    ///
    /// ```
    /// use leapgate::config::ConfigError;
    ///
    /// let error = ConfigError::new("flowRules[2].window", "fast", "is not a valid value; use `strict`");
    /// assert_eq!(error.to_string(), "flowRules[2].window: `fast` is not a valid value; use `strict`");
    /// ```
    pub fn new(path: &str, value: &str, fault: &str) -> ConfigError {
        ConfigError::of(path.into(), &escaped(value, MAX_SHOWN), fault)
    }

    fn of(path: String, shown: &str, fault: &str) -> ConfigError {
        ConfigError(Box::new((path, ["`", shown, "` ", fault].concat())))
    }

    /// An error at `path`, in the words of another error.
    pub(super) fn from_display(path: String, error: &dyn fmt::Display) -> ConfigError {
        ConfigError(Box::new((path, escaped(&error.to_string(), usize::MAX))))
    }

    /// Where it is: `flowRules[2].sampleCount`, or `document` for the whole.
    pub fn path(&self) -> &str {
        &self.0.0
    }

    /// What is wrong there, without the path.
    pub fn message(&self) -> &str {
        &self.0.1
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path(), self.message())
    }
}

impl std::error::Error for ConfigError {}

/// A value and where it stands in the document.
///
/// Its methods read the value as the expected type, or return an error with its path.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a> {
    value: &'a Value,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root(&'a str),
    Key(&'a Located<'a>, &'a str),
    Item(&'a Located<'a>, usize),
}

/// The path.
impl fmt::Display for Located<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Step::Root(name) => f.write_str(name),
            Step::Key(
                Located {
                    step: Step::Root(DOCUMENT),
                    ..
                },
                key,
            ) => f.write_str(&escaped(key, MAX_SHOWN)),
            Step::Key(parent, key) => write!(f, "{parent}.{}", escaped(key, MAX_SHOWN)),
            Step::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

impl<'a> Located<'a> {
    /// `value`, at `path`.
    pub fn new(path: &'a str, value: &'a Value) -> Located<'a> {
        Located {
            value,
            step: Step::Root(path),
        }
    }

    /// The value.
    pub fn value(&self) -> &'a Value {
        self.value
    }

    /// The error that the value is wrong: `fault` says why, and the cure after a semicolon.
    pub fn error(&self, fault: &str) -> ConfigError {
        ConfigError::of(self.to_string(), &self.value.shown(), fault)
    }

    fn expected(&self, wanted: &str) -> ConfigError {
        self.error(&format!("is {}; use {wanted}", self.value.kind()))
    }

    /// The value as an object that has no other keys than `keys`, and none twice.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn object<'b>(&'b self, keys: &'b [&'b str]) -> Result<Fields<'b>, ConfigError> {
        self.known([keys, &[]])
    }

    /// The value as a rule: an object with no other keys than `keys` and [`SENTINEL_KEYS`].
    pub(super) fn rule<'b>(&'b self, keys: &'b [&'b str]) -> Result<Fields<'b>, ConfigError> {
        self.known([keys, &SENTINEL_KEYS])
    }

    /// The value as an object that has no other keys than those of two lists, and none twice.
    pub(super) fn known<'b>(&'b self, keys: Keys<'b>) -> Result<Fields<'b>, ConfigError> {
        let Value::Object(entries) = self.value else {
            return Err(self.expected("an object"));
        };
        let mut lengths = 0;
        for (i, (key, _)) in entries.iter().enumerate() {
            lengths |= length_bit(key);
            if !is_known(keys, key) {
                let keys = keys.concat();
                let fault = format!(
                    "is not a known key; {}",
                    cure(nearest(key, &keys), &mut keys.iter().copied())
                );
                return Err(ConfigError::new(&self.to_string(), key, &fault));
            }
            if entries.iter().take(i).any(|(earlier, _)| earlier == key) {
                return Err(ConfigError::new(
                    &self.to_string(),
                    key,
                    "is given twice; keep one of the two",
                ));
            }
        }
        Ok(Fields {
            at: self,
            keys,
            lengths,
        })
    }

    /// The value as an object with keys of any name: each with its value, in order, and twice if it stands twice.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn entries(
        &self,
    ) -> Result<impl ExactSizeIterator<Item = (&str, Located<'_>)>, ConfigError> {
        let Value::Object(entries) = self.value else {
            return Err(self.expected("an object"));
        };
        Ok(entries.iter().map(|(key, value)| {
            (
                key.as_str(),
                Located {
                    value,
                    step: Step::Key(self, key),
                },
            )
        }))
    }

    /// The items of the value, an array.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn array(&self) -> Result<impl ExactSizeIterator<Item = Located<'_>>, ConfigError> {
        let Value::Array(items) = self.value else {
            return Err(self.expected("an array"));
        };
        Ok(items.iter().enumerate().map(|(index, value)| Located {
            value,
            step: Step::Item(self, index),
        }))
    }

    /// The results of `read` for each item of the value, an array.
    ///
    /// # Errors
    ///
    /// If it is not, and the first error of `read`.
    pub fn list<T>(
        &self,
        mut read: impl FnMut(&Located<'_>) -> Result<T, ConfigError>,
    ) -> Result<Vec<T>, ConfigError> {
        let mut list = Vec::with_capacity(self.array()?.len());
        self.each(&mut |at| {
            list.push(read(at)?);
            Ok(())
        })?;
        Ok(list)
    }

    /// The loop of [`Located::list`], compiled once for all types of items.
    fn each(
        &self,
        read: &mut dyn FnMut(&Located<'_>) -> Result<(), ConfigError>,
    ) -> Result<(), ConfigError> {
        for at in self.array()? {
            read(&at)?;
        }
        Ok(())
    }

    /// The value as a string.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn string(&self) -> Result<&'a str, ConfigError> {
        match self.value {
            Value::String(value) => Ok(value),
            _ => Err(self.expected("a string")),
        }
    }

    /// The value as a number.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn number(&self) -> Result<f64, ConfigError> {
        match self.value {
            Value::Number(value) => Ok(*value),
            _ => Err(self.expected("a number")),
        }
    }

    /// The value as a boolean.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn boolean(&self) -> Result<bool, ConfigError> {
        match self.value {
            Value::Bool(value) => Ok(*value),
            _ => Err(self.expected("`true` or `false`")),
        }
    }

    /// The value as a whole number in `range`, whose ends are at most 2^53.
    ///
    /// # Errors
    ///
    /// If it is not.
    pub fn integer(&self, range: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let (min, max) = (*range.start(), *range.end());
        let wanted = || format!("a whole number from {min} to {max}");
        match self.value {
            Value::Number(n) if n.trunc() == *n && (min as f64..=max as f64).contains(n) => {
                Ok(*n as u64)
            }
            Value::Number(_) => Err(self.error(&format!("is not possible; use {}", wanted()))),
            _ => Err(self.expected(&wanted())),
        }
    }

    /// The choice that the value, one of these names, stands for.
    ///
    /// # Errors
    ///
    /// If it is none of them.
    pub fn one_of<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        self.choose(choices, false)
    }

    /// The choice that the value stands for: one of these names, or its number from 0, as Sentinel writes it.
    ///
    /// # Errors
    ///
    /// If it is none of them.
    pub fn one_of_numbered<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, ConfigError> {
        self.choose(choices, true)
    }

    fn choose<T: Copy>(&self, choices: &[(&str, T)], numbered: bool) -> Result<T, ConfigError> {
        for (i, (name, choice)) in choices.iter().enumerate() {
            let chosen = match self.value {
                Value::String(value) => value == name,
                Value::Number(value) => numbered && *value == i as f64,
                _ => false,
            };
            if chosen {
                return Ok(*choice);
            }
        }
        Err(self.error(&format!(
            "is not a valid value; {}",
            cure(None, &mut choices.iter().map(|(name, _)| *name))
        )))
    }
}

/// The value of `key` in an object.
pub(super) fn find<'a>(object: &'a Value, key: &str) -> Option<&'a Value> {
    let Value::Object(entries) = object else {
        return None;
    };
    entries
        .iter()
        .find(|(name, _)| name == key)
        .map(|(_, value)| value)
}

/// The keys of an object, in two lists.
pub(super) type Keys<'a> = [&'a [&'a str]; 2];

fn is_known(keys: Keys<'_>, key: &str) -> bool {
    keys.iter().any(|keys| keys.contains(&key))
}

/// An object whose keys are known.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    at: &'a Located<'a>,
    keys: Keys<'a>,
    /// A bit for the length of each key that is given. Most that a rule may have are left out: by their lengths they need not be
    /// looked for.
    lengths: u32,
}

fn length_bit(key: &str) -> u32 {
    1 << (key.len() % 32)
}

impl<'a> Fields<'a> {
    fn find(&self, key: &'a str) -> Option<Located<'a>> {
        debug_assert!(
            is_known(self.keys, key),
            "{key} is read, but refused as unknown"
        );
        if self.lengths & length_bit(key) == 0 {
            return None;
        }
        Some(Located {
            value: find(self.at.value, key)?,
            step: Step::Key(self.at, key),
        })
    }

    /// The value of `key`, unless it is left out or `null`.
    pub fn get(&self, key: &'a str) -> Option<Located<'a>> {
        self.find(key).filter(|at| *at.value != Value::Null)
    }

    /// The first of these keys that is given: its place among them, and its value.
    #[inline(never)]
    pub(super) fn first(&self, keys: &'a [&'a str]) -> Option<(usize, Located<'a>)> {
        let mut given = keys.iter().enumerate();
        given.find_map(|(i, key)| Some((i, self.get(key)?)))
    }

    /// The one of these keys that is given; `None` if none is, or several are.
    pub(super) fn only(&self, keys: &'a [&'a str]) -> Option<(usize, Located<'a>)> {
        let (i, only) = self.first(keys)?;
        match self.first(keys.get(i + 1..)?) {
            None => Some((i, only)),
            Some(_) => None,
        }
    }

    /// The value of `key`, which is required.
    ///
    /// # Errors
    ///
    /// If it is left out. A `null` is returned, and refused by the code that reads it.
    pub fn need(&self, key: &'a str) -> Result<Located<'a>, ConfigError> {
        self.find(key)
            .ok_or_else(|| ConfigError::new(&self.at.to_string(), key, "is missing; add it"))
    }
}

/// The advice to use one of `names`, `first` before all others.
fn cure(first: Option<&str>, names: &mut dyn Iterator<Item = &str>) -> String {
    let names: Vec<&str> = names.filter(|name| Some(*name) != first).collect();
    let mut cure = String::from("use ");
    if let Some(first) = first {
        cure.extend(["`", first, "`"]);
        cure.push_str(if names.is_empty() { "" } else { ", or " });
    }
    if names.len() > 1 || first.is_some() && names.len() == 1 {
        cure.push_str("one of ");
    }
    for (i, name) in names.iter().enumerate() {
        cure.extend([if i == 0 { "`" } else { ", `" }, name, "`"]);
    }
    cure
}

/// The known key that `key` is probably a misspelling of.
fn nearest<'a>(key: &str, keys: &[&'a str]) -> Option<&'a str> {
    let nearest = keys
        .iter()
        .copied()
        .min_by_key(|known| distance(key, known))?;
    (distance(key, nearest) <= 1 + key.len().min(20) / 5).then_some(nearest)
}

/// The Levenshtein distance, ignoring case.
fn distance(from: &str, to: &str) -> usize {
    let mut row: Vec<usize> = (1..=to.len()).collect();
    for (i, x) in from.bytes().enumerate().take(2 * MAX_SHOWN) {
        let (mut corner, mut left) = (i, i + 1);
        for (above, y) in row.iter_mut().zip(to.bytes()) {
            left = if x.eq_ignore_ascii_case(&y) {
                corner
            } else {
                1 + corner.min(left).min(*above)
            };
            corner = std::mem::replace(above, left);
        }
    }
    row.last().copied().unwrap_or(from.len())
}
