//! The two clocks of a node.

use crate::time::Timestamp;

/// Now, by both clocks of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// By a clock that never steps back. It may stand still while the machine is suspended.
    pub monotonic: Timestamp,
    /// By the wall clock. It may be set.
    pub wall: Timestamp,
}

/// By how much clocks may run apart: one part in so many.
const DRIFT: u64 = 1000;

impl Moment {
    /// By the monotonic clock, in milliseconds.
    pub(super) const fn millis(self) -> u64 {
        self.monotonic.as_millis()
    }

    const fn passed(self, earlier: Moment) -> [u64; 2] {
        [
            self.monotonic
                .as_millis()
                .saturating_sub(earlier.monotonic.as_millis()),
            self.wall
                .as_millis()
                .saturating_sub(earlier.wall.as_millis()),
        ]
    }

    /// How many milliseconds have passed at most, by any clock that runs nearly alike.
    pub(super) fn longest_since(self, earlier: Moment) -> u64 {
        let [one, other] = self.passed(earlier);
        let longest = one.max(other);
        longest.saturating_add(longest.div_ceil(DRIFT) + 1)
    }

    /// How many milliseconds have passed at least.
    pub(super) fn shortest_since(self, earlier: Moment) -> u64 {
        let [one, other] = self.passed(earlier);
        let shortest = one.min(other);
        shortest.saturating_sub(shortest.div_ceil(DRIFT) + 1)
    }
}
