//! Snapshots of a limiter: what its keys count, as bytes.
//!
//! ```text
//!   a number    the version
//!   numbers     how many limits, and for how many keys there is room; of each limit the window, its buckets and how it counts
//!   windows     of each limit (`KeyedWindows::save`)
//!   blocks      (`Blocks::save`), after a 1; or a 0
//! ```

use super::Limiter;
use crate::state::keyed::{Key, Restoring, put, take, take_word};
use crate::time::Timestamp;
use std::fmt;
use std::time::Duration;

const VERSION: u64 = 1;

/// Why bytes cannot be restored. Nothing has changed then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RestoreError {
    /// They are not a snapshot, or not all of one.
    NotASnapshot,
    /// They are a snapshot of another version.
    Version,
    /// They are a snapshot of a limiter with other windows, other ways to count or room for another number of keys.
    OtherLimits,
    /// The limiter has been used.
    InUse,
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RestoreError::NotASnapshot => {
                "not a snapshot, or only a part of one; use all that `snapshot` has returned"
            }
            RestoreError::Version => {
                "a snapshot of another version; use one of the same version of leapgate"
            }
            RestoreError::OtherLimits => {
                "a snapshot of other limits; use one of as many, with the same `windowMs`, `window`, `sampleCount` and `maxKeys`"
            }
            RestoreError::InUse => "the limiter has been used; restore before its first request",
        })
    }
}

impl std::error::Error for RestoreError {}

impl Limiter {
    /// What the windows count and which keys are blocked, as bytes to [restore](Limiter::restore): by age, so that another clock can
    /// go on. What is held counts as charged. It takes time and bytes in proportion to the keys that count something.
    pub fn snapshot(&self, now: Timestamp, out: &mut Vec<u8>) {
        self.put_head(out);
        for (_, windows) in &self.limits {
            windows.save(now, out);
        }
        let blocks = &mut *self.blocks.borrow_mut();
        put(out, blocks.is_some().into());
        if let Some(blocks) = blocks {
            blocks.save(now, out);
        }
    }

    /// Takes up a snapshot that was taken `elapsed` ago; what passed since is not known. Only in a limiter that has not been used, with
    /// the same windows and the same seed; counts of limits may differ.
    ///
    /// A bucket is dated at its end: no interval has more than its limit over both limiters, and quota comes back up to a bucket later
    /// than it would have.
    ///
    /// # Errors
    ///
    /// If the bytes are not such a snapshot, or if the limiter has been used. Nothing has changed then.
    pub fn restore(
        &self,
        bytes: &[u8],
        elapsed: Duration,
        now: Timestamp,
    ) -> Result<(), RestoreError> {
        let holds = self.holds.borrow().places.len();
        if !self.is_empty() || self.blocks.borrow().is_some() || holds > 0 {
            return Err(RestoreError::InUse);
        }
        let mut head = Vec::new();
        self.put_head(&mut head);
        let version = take(&mut { bytes }).ok_or(RestoreError::NotASnapshot)?;
        let rest = match bytes.strip_prefix(&*head) {
            Some(rest) => rest,
            None if version != VERSION => return Err(RestoreError::Version),
            None if bytes.len() < head.len() => return Err(RestoreError::NotASnapshot),
            None => return Err(RestoreError::OtherLimits),
        };
        let elapsed = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        // Read first, so that nothing is restored of what cannot be read to its end.
        for at in [None, Some(Restoring { elapsed, now })] {
            if self.read(rest, at).is_none() {
                return Err(RestoreError::NotASnapshot);
            }
        }
        Ok(())
    }

    fn read(&self, mut bytes: &[u8], at: Option<Restoring>) -> Option<()> {
        for (_, windows) in &self.limits {
            windows.restore(&mut bytes, at)?;
        }
        if take(&mut bytes)? > 0 {
            self.read_blocks(&mut bytes, at)?;
        }
        bytes.is_empty().then_some(())
    }

    /// What [`Blocks::save`](crate::state::keyed::Blocks::save) has written.
    fn read_blocks(&self, bytes: &mut &[u8], at: Option<Restoring>) -> Option<()> {
        let remaining = |left: u64, at: Restoring| match left {
            u64::MAX => Duration::MAX,
            left => Duration::from_nanos(left.saturating_sub(at.elapsed)),
        };
        let (all, keys) = (take(bytes)?, take_word(bytes)?);
        if keys > self.max_keys as u64 {
            return None;
        }
        if let Some((at, mut blocks)) = at.zip(at.and_then(|_| self.blocks())) {
            blocks.make_room(keys);
            blocks.block_all(remaining(all, at), at.now);
        }
        for _ in 0..keys {
            let (key, left) = (Key::from_hash(take_word(bytes)?), take(bytes)?);
            if let Some(at) = at {
                self.block(key, remaining(left, at), at.now);
            }
        }
        Some(())
    }

    /// Appends the version, and what has to be the same where a snapshot is restored.
    fn put_head(&self, out: &mut Vec<u8>) {
        put(out, VERSION);
        put(out, self.limits.len() as u64);
        put(out, self.max_keys as u64);
        for (limit, _) in &self.limits {
            let window = limit.window.window();
            put(out, window.interval_ms());
            put(out, window.sample_count().into());
            out.push(limit.counting as u8);
        }
    }
}
