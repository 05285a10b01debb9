//! Keys that are blocked for a time: a pacer each, whose one turn reaches to the end of the block.

use super::geometry::KeyedGeometry;
use super::key::Key;
use super::saved::{left, put};
use super::table::Table;
use super::window::Shape;
use crate::time::Timestamp;
use std::time::Duration;

/// Which keys are blocked, and until when. After the clock has stepped back, no key stays blocked for longer than the longest
/// block was.
pub(crate) struct Blocks {
    table: Table,
    /// When the block of every key ends, and when the last one does.
    all: Timestamp,
    last: Timestamp,
    /// The longest block so far, in nanoseconds.
    longest: u64,
}

impl Blocks {
    /// No blocks, and room for as many keys as windows of this geometry have.
    pub(crate) fn new(geometry: KeyedGeometry) -> Blocks {
        let shape = Shape::new(geometry.grade, true);
        Blocks {
            table: Table::new(shape, false, geometry.keys()),
            all: Timestamp::ZERO,
            last: Timestamp::ZERO,
            longest: 0,
        }
    }

    fn end(&mut self, length: Duration, now: Timestamp) -> Timestamp {
        let nanos = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        self.longest = self.longest.max(nanos);
        let end = now.plus_nanos(nanos);
        self.last = self.last.max(end);
        end
    }

    /// Blocks `key` for this long from now. Returns whether there was room for it.
    pub(crate) fn block(&mut self, key: Key, length: Duration, now: Timestamp) -> bool {
        let end = self.end(length, now);
        self.table.reserve_until(key, end, self.longest, now)
    }

    /// Blocks every key for this long from now.
    pub(crate) fn block_all(&mut self, length: Duration, now: Timestamp) {
        self.all = self.end(length, now);
    }

    /// Appends how long every key stays blocked, and which keys for how long, in nanoseconds.
    pub(crate) fn save(&mut self, now: Timestamp, out: &mut Vec<u8>) {
        put(out, left(self.all, now));
        self.table.save(now, out);
    }

    /// Makes room for so many keys ([`Table::make_room`]).
    pub(crate) fn make_room(&mut self, keys: u64) {
        self.table.make_room(keys as usize);
    }

    /// Ends the block of `key`.
    pub(crate) fn unblock(&mut self, key: Key) {
        self.table.pull_back_to(key, Timestamp::ZERO);
    }

    /// How long `key` stays blocked.
    pub(crate) fn left(&mut self, key: Key, now: Timestamp) -> Duration {
        let latest = now.plus_nanos(self.longest);
        self.all = self.all.min(latest);
        self.last = self.last.min(latest);
        let own = self.table.pull_back_to(key, latest);
        own.unwrap_or(Timestamp::ZERO).max(self.all).since(now)
    }

    /// Whether no key is blocked any more.
    pub(crate) fn are_over(&self, now: Timestamp) -> bool {
        self.last <= now
    }
}
