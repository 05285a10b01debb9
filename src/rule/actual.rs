//! The actual cost of a request: where it is read when the request has ended, and how it is counted.

use super::attribute::{Attribute, AttributeSource, number_of};
use super::parts::{Count, RuleError};

/// How many statuses a list may have.
pub const MAX_STATUSES: usize = 32;

/// The largest weight of a count.
pub const MAX_WEIGHT: f64 = 1e6;

/// Weights are kept in millionths: with whole numbers, sums of them are exact.
const SCALE: f64 = 1e6;

/// How many bytes of an answer stand for one unit, where the cost is missing: about as many as a token has.
const BYTES_PER_UNIT: f64 = 4.0;

/// Something about a request that has ended, and that a cost is read from.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CostSource {
    /// A number in its metadata.
    Attribute(Attribute),
    /// The first header of this name in the response, in lower case.
    Header(Box<str>),
    /// The first trailer of this name in the response, in lower case.
    Trailer(Box<str>),
    /// The bytes of the request's body that were received.
    BytesReceived,
    /// The bytes of the response's body that were sent.
    BytesSent,
    /// The status of the response.
    Status,
}

impl CostSource {
    /// The number that `text` is, which a shell has read from metadata, a header or a trailer. `None` if there is none: an unset
    /// count in typed metadata reads as 0. Not a number if it is not one from 0 to 2^53, or is above 0
    /// and less than a millionth.
    pub fn number(&self, text: &[u8]) -> Option<f64> {
        // Eight digits as text, read as a number, are next to nothing.
        let is_count = |n: &f64| *n == 0.0 || (1.0 / SCALE..=Count::MAX).contains(n);
        let number = number_of(text).filter(is_count).unwrap_or(f64::NAN);
        let is_unset = number == 0.0
            && matches!(self, CostSource::Attribute(of) if of.source() == AttributeSource::TypedMetadata);
        (!is_unset).then_some(number)
    }
}

/// A list of statuses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statuses(Vec<[u16; 2]>);

impl Statuses {
    /// These statuses, from the first to the last of each pair; at most [`MAX_STATUSES`] pairs.
    ///
    /// # Errors
    ///
    /// If there are more.
    pub fn new(statuses: Vec<[u16; 2]>) -> Result<Statuses, RuleError> {
        match statuses.len() {
            0..=MAX_STATUSES => Ok(Statuses(statuses)),
            more => Err(RuleError::OutOfRange {
                number: more as u64,
                least: 0,
                most: MAX_STATUSES as u64,
            }),
        }
    }

    /// Those of errors of a server: 500 to 599.
    pub fn server_errors() -> Statuses {
        Statuses(vec![[500, 599]])
    }

    /// Whether it has this status.
    pub fn contains(&self, status: u64) -> bool {
        let mut all = self.0.iter();
        all.any(|[first, last]| (u64::from(*first)..=u64::from(*last)).contains(&status))
    }
}

/// What a token costs: one of the input, one of the input that the model had cached, one of the output. A weight of `None` is 0;
/// without one for cached tokens they weigh as much as other input, of which they are a part.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Weights {
    /// Of a token of the input.
    pub input: Option<f64>,
    /// Of a cached token of the input, instead.
    pub cached: Option<f64>,
    /// Of a token of the output.
    pub output: Option<f64>,
}

/// What a request is settled at whose cost is missing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Missing {
    /// What it held.
    #[default]
    Estimate,
    /// A quarter of the bytes of its answer that were sent, rounded up.
    Bytes,
    /// 0.
    Zero,
}

/// Where the actual cost of a request is read.
///
/// ```
/// use leapgate::rule::{Actual, AttributeSource, CostSource, Weights};
///
/// let weights = Weights { input: Some(1.0), cached: Some(0.1), output: Some(4.0) };
/// let tokens = Actual::weighted(AttributeSource::TypedMetadata, &["envoy.ai.token_usage"], weights)?;
/// // 100 tokens of input, 30 of them cached, and 50 of output, in the order of the sources: 70 + 3 + 200.
/// let mut counts = [100.0, 30.0, 50.0].into_iter();
/// assert_eq!(tokens.amount(&mut |_| counts.next()), Some(273));
/// # Ok::<(), leapgate::rule::RuleError>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Actual {
    /// What is added up, each times its weight in millionths.
    sum: Vec<(CostSource, f64)>,
    /// The status counts 1 if it is one of these, else 0.
    listed: Option<Statuses>,
    missing: Missing,
}

impl Actual {
    /// The number that these sources have, together.
    pub fn of(sources: Vec<CostSource>) -> Actual {
        let sum = sources.into_iter().map(|source| (source, SCALE));
        Actual::from(sum.collect())
    }

    /// 1 for a response with one of these statuses, and 0 for others.
    pub fn listed(statuses: Statuses) -> Actual {
        Actual {
            listed: Some(statuses),
            ..Actual::of(vec![CostSource::Status])
        }
    }

    /// The number in the metadata at `path`; `None` if the path is not valid.
    pub(crate) fn at(source: AttributeSource, path: &[&str]) -> Option<Actual> {
        let attribute = Attribute::at(source, None, path)?.as_number();
        Some(Actual::of(vec![CostSource::Attribute(attribute)]))
    }

    /// The tokens in the metadata at `path`, weighted: in typed metadata those of Envoy's `TokenUsage`, in other metadata those
    /// that Envoy AI Gateway's documentation writes. Cached tokens are a part of the input.
    ///
    /// # Errors
    ///
    /// If the path is not valid, or a weight is not a number from 0 to [`MAX_WEIGHT`].
    pub fn weighted(
        source: AttributeSource,
        path: &[&str],
        weights: Weights,
    ) -> Result<Actual, RuleError> {
        let of_all = [weights.input, weights.cached, weights.output];
        let is_bad = |weight: &f64| !(0.0..=MAX_WEIGHT).contains(weight);
        if let Some(count) = of_all.into_iter().flatten().find(is_bad) {
            return Err(RuleError::BadCount { count });
        }
        Actual::weighted_at(source, path.to_vec(), weights).ok_or_else(|| RuleError::BadPath {
            path: path.join("/"),
        })
    }

    /// The same for weights in range; `None` if the path is not valid.
    pub(crate) fn weighted_at(
        source: AttributeSource,
        mut path: Vec<&str>,
        weights: Weights,
    ) -> Option<Actual> {
        let names: [&[&str]; 3] = match source {
            AttributeSource::TypedMetadata => [
                &["input_tokens"],
                &["input_token_details", "cached_tokens"],
                &["output_tokens"],
            ],
            _ => [
                &["llm_input_token"],
                &["llm_cached_input_token"],
                &["llm_output_token"],
            ],
        };
        let of_all = [weights.input, weights.cached, weights.output]
            .map(|weight| weight.map(|weight| (weight * SCALE).round()));
        let (mut sum, namespace) = (Vec::new(), path.len());
        // Cached tokens have been counted as input already.
        let counted = [0.0, of_all[0].unwrap_or(0.0), 0.0];
        for ((name, weight), counted) in names.into_iter().zip(of_all).zip(counted) {
            if let Some(weight) = weight {
                path.extend(name);
                let attribute = Attribute::at(source, None, &path)?.as_number();
                path.truncate(namespace);
                sum.push((CostSource::Attribute(attribute), weight - counted));
            }
        }
        // The namespace itself is not a number.
        (namespace > 0).then(|| Actual::from(sum))
    }

    fn from(sum: Vec<(CostSource, f64)>) -> Actual {
        Actual {
            sum,
            listed: None,
            missing: Missing::default(),
        }
    }

    /// This cost, instead of which `missing` counts where it is missing.
    #[must_use]
    pub fn or(self, missing: Missing) -> Actual {
        Actual { missing, ..self }
    }

    /// What it is read from.
    pub fn sources(&self) -> impl Iterator<Item = &CostSource> {
        self.sum.iter().map(|(source, _)| source)
    }

    /// The cost of a request that has reached an upstream and has ended, rounded up; `None` if it is missing. `read` has the number
    /// of each source, as [`CostSource::number`] has it. What it has for none of them is missing, and what is not a number makes all
    /// of it missing; so does a cost above 2^53.
    pub fn amount(&self, read: &mut dyn FnMut(&CostSource) -> Option<f64>) -> Option<u64> {
        let (mut all, mut is_there) = (0.0, false);
        for (source, weight) in &self.sum {
            let Some(mut number) = read(source) else {
                continue;
            };
            is_there = true;
            if let Some(listed) = self.listed.as_ref().filter(|_| !number.is_nan()) {
                number = u8::from(listed.contains(number as u64)).into();
            }
            all += number * weight;
        }
        // More cached tokens than input would make it negative.
        let cost = (all / SCALE).ceil();
        (is_there && cost <= Count::MAX).then_some(cost as u64)
    }

    /// What a request costs whose cost is missing; `None` for what it held.
    pub fn substitute(&self, read: &mut dyn FnMut(&CostSource) -> Option<f64>) -> Option<u64> {
        match self.missing {
            Missing::Estimate => None,
            Missing::Bytes => {
                let cost = (read(&CostSource::BytesSent)? / BYTES_PER_UNIT).ceil();
                (cost <= Count::MAX).then_some(cost as u64)
            }
            Missing::Zero => Some(0),
        }
    }
}
