//! The geometry of a table of keys, and the terms of a rule for each key.

use super::hottest::LABEL_BYTES;
use super::sketch::Sketch;
use super::table::{AT_A_TIME, slots};
use super::window::Shape;
use crate::rule::{Count, Grade, MAX_KEYS};

/// The geometry of one rule's states, which never changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct KeyedGeometry {
    /// What is limited.
    pub grade: Grade,
    /// Whether requests take turns, spaced evenly over the interval of the grade, and nothing is counted: a throttle per key.
    /// Not for calls in flight.
    pub is_paced: bool,
    /// How many keys have a state of their own: at least one, at most [`MAX_KEYS`].
    pub max_keys: usize,
    /// Whether turns are those of Sentinel's hot parameters.
    pub compat: bool,
}

impl KeyedGeometry {
    /// The geometry of windows or calls in flight of `max_keys` keys.
    pub const fn new(grade: Grade, max_keys: usize) -> KeyedGeometry {
        KeyedGeometry {
            grade,
            is_paced: false,
            max_keys,
            compat: false,
        }
    }

    /// This geometry, with turns.
    pub const fn paced(self) -> KeyedGeometry {
        KeyedGeometry {
            is_paced: true,
            ..self
        }
    }

    /// This geometry, with decisions as Sentinel makes them.
    pub const fn sentinel(self) -> KeyedGeometry {
        KeyedGeometry {
            compat: true,
            ..self
        }
    }

    pub(super) fn keys(&self) -> usize {
        self.max_keys.clamp(1, MAX_KEYS)
    }

    /// The most bytes that [`KeyedWindows`](crate::backend::KeyedWindows) of this geometry have allocated between two calls,
    /// while no counter has widened.
    pub fn max_bytes(&self) -> usize {
        let (shape, keys) = (Shape::new(self.grade, self.is_paced), self.keys());
        let state = shape.stride * size_of::<u64>();
        slots(keys) * (state + 1) + AT_A_TIME + Sketch::max_bytes(&shape, keys) + LABEL_BYTES
    }

    /// The same if the counters of all windows have widened.
    pub fn max_bytes_wide(&self) -> usize {
        let (shape, keys) = (Shape::new(self.grade, self.is_paced), self.keys());
        let block = shape.buckets * size_of::<u64>();
        let own = keys
            * if block > 0 {
                block + size_of::<u32>()
            } else {
                0
            };
        self.max_bytes() + own + Sketch::max_bytes_more_if_wide(&shape, keys)
    }

    /// How many more bytes it is once keys that share have held something: 8 for each key of the bound.
    pub fn max_bytes_more_if_held(&self) -> usize {
        let shape = Shape::new(self.grade, self.is_paced);
        Sketch::max_bytes_more_if_held(&shape, self.keys())
    }
}

/// The terms of a rule for one key. They can change while the state goes on.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyedTerms {
    /// The limit of the key: the rule's count, or the key's own.
    pub count: Count,
    /// For turns: how long a request waits at most, in nanoseconds.
    pub max_queueing_ns: u64,
    /// Whether a window holds what is reserved until its actual cost is settled
    /// ([`KeyedStates::settle`](super::KeyedStates::settle)). It counts in full until then.
    pub holds: bool,
}

impl KeyedTerms {
    /// This count, and no request waits.
    pub const fn of(count: Count) -> KeyedTerms {
        KeyedTerms {
            count,
            max_queueing_ns: 0,
            holds: false,
        }
    }

    /// These terms, for requests that hold.
    #[must_use]
    pub const fn holding(self) -> KeyedTerms {
        KeyedTerms {
            holds: true,
            ..self
        }
    }
}
