//! A bounded set of states, one per key, for one rule: windows, calls in flight or turns.
//!
//! A key (a client's address, a header, a combination of such) is identified by a seeded 64-bit hash of its parts. Two keys
//! with the same hash share a state: stricter for both, never more than the limit for either. The states lie in a table of
//! fixed bounds:
//!
//! ```text
//!   tags      [ 3f ][    ][ a1 ][ 07 ][    ]  one byte per slot, none where the slot is empty: a search reads only these
//!   states    [ .. ][    ][ .. ][ .. ][    ]  of each slot:
//!                |
//!                +-- hash              8 bytes
//!                    newest bucket     8 bytes, with three flags
//!                    what counts       8 bytes: the running sum; of a limit on concurrency, the calls in flight
//!                    counters          1 byte per bucket, n + 1 of them, rounded up to 8 bytes
//!                or, of a throttle:
//!                +-- hash              8 bytes
//!                    how far its turns reach
//!                                      8 bytes
//! ```
//!
//! # Memory
//!
//! | State | Bytes | Bytes per key at the bound |
//! |---|---|---|
//! | a window of 20 buckets, the default | 48 | **62** |
//! | a window of 60 buckets | 88 | 112 |
//! | calls in flight | 24 | 32 |
//! | turns | 16 | 22 |
//!
//! At most four slots of five are taken, and each slot has a tag. The sketch that keys share once the table is full (8 bytes
//! more per key; 4 for calls in flight and for turns) and the labels come on top (both below): [`KeyedGeometry::max_bytes`] is
//! the sum. A table begins small and doubles; from an eighth of `max_keys` it grows to the bound at once, and never past it.
//! While it grows, the old and the new one are there.
//!
//! A bucket that counts more than 255 does not fit its byte: the counters of that key then *widen* into a block of 8 bytes per
//! bucket in a slab beside the table (172 bytes more for 20 buckets), which is freed when the whole window has left. The slab
//! doubles as needed, and has at most as many blocks as there are windows ([`KeyedGeometry::max_bytes_wide`]). Widening keeps
//! counts exact. A cell of the sketch widens in the same way, by 44 bytes.
//!
//! # What is held
//!
//! A request whose cost is known only when it ends holds an estimate ([`KeyedTerms::holds`]) until the actual cost is settled
//! ([`KeyedStates::settle`], whose page says why no interval then has too much). In a window of the key's own that takes no bytes:
//! the running sum is larger than the counters by what is held, and the window is not reused while it is. Keys that share hold in
//! both of their cells: 8 bytes more per key of the bound, from the first such hold on ([`KeyedGeometry::max_bytes_more_if_held`]).
//! A key that gets a state of its own later counts what its cells hold besides. In a page that workers share, a key takes 16 bytes
//! while one worker holds, and 8 for each further one.
//!
//! # When the table is full
//!
//! A state in which nothing counts any more can be reused: a window whose passes have left, a key without calls in flight, a
//! pacer whose latest turn is over (with `compat`, where a request waits for its own cost, after the longest spacing so far;
//! `idle_ttl.rs` says why that is enough). Only a new key searches for one: along its probe sequence (linear probing), and in a
//! few more slots at a hand that goes round the table (CLOCK). There is no timer. While each of the `max_keys` states counts
//! something, new keys share a count-min sketch with conservative update: each key has a cell in each of two rows, and the
//! lesser count is an upper bound. So a flood of keys makes limits stricter for new keys only; it takes no state from a key
//! that has one, and no memory beyond the bound.
//!
//! - *Windows.* A row has a cell for every two keys of `max_keys`, and 256 at least. After `f` times `max_keys` further keys of
//!   one request each, a row's cells have counted 2 `f` each on average (Poisson-distributed), and a new client is refused at a
//!   limit of `n` if both of its cells have counted `n`: at 5 and `f` = 1, 1 in 360, and fewer with conservative update. Tests
//!   find that of 1000 new clients 1000 pass at `f` = 1, 990 at 2, 920 at 3, 710 at 4. The sketch counts strictly, whatever the
//!   rule's way to count, in coarse buckets: four per interval, and the current one. So in the long run a key that shares has
//!   four fifths of its limit.
//! - *Calls in flight.* They are added to both cells and taken off both when they end. There are as many cells.
//! - *Turns.* Both cells reach as far as the furthest turn that was taken in them. There are half as many cells. A crowd that
//!   takes turns all at once leaves few cells free until these turns are over: until then new clients wait, or are refused.
//!   With `compat` the turns of a key that shares reach at least as far as every forgotten pacer did.
//!
//! A reservation that is released before it is charged is free again. A charge stays, since other keys may have raised the cell
//! as far: a refund, a reset or a turn given up gives nothing back there. A key that gets a state of its own later continues
//! from its cells, each count dated as late as it can be; a key without a state of its own has only its cells. So no key has
//! its limit twice.
//!
//! # The hottest keys
//!
//! [`KeyedStates::top`] reads all states, so that no decision has to keep an order. The table stores only hashes, so up to
//! [`MAX_LABELS`] keys are *listed*: a decision compares the new sum with a floor, and a key that is not listed and reaches it
//! takes the place of the coolest listed one, if it is a quarter hotter. The floor sinks with time. A listed key gets its
//! label, at most [`MAX_LABEL`] bytes, when it comes the next time, and keeps it while it is listed: together 10 kB at most,
//! none before a key is hot. The label may be missing if a key was hot only for a moment, or is about as hot as more than
//! [`MAX_LABELS`] others; amounts are exact. Keys that share are not shown.
//!
//! # Time
//!
//! Each window follows the clock as a [`crate::backend::RuleWindow`] does. It keeps the sum of all buckets, from which each
//! bucket is subtracted once, when it leaves: so a decision costs the same with 2 buckets and with 60. Turns follow it as in a
//! throttle without a key: a turn that reaches further ahead than the rule allows was taken before the clock stepped back, and
//! is pulled back.
//!
//! When the clock has stepped back by an interval or more, a state follows when its key comes next; in a full table, also when
//! a new key examines it, so that keys of a time that may never come again do not fill the table. A state that had expired and
//! was reused does not come back with the clock.

mod ahead;
mod answers;
mod blocks;
mod count;
mod ends;
mod geometry;
mod held;
mod hottest;
mod idle_ttl;
mod key;
mod left;
mod page;
mod refund;
mod room;
mod saved;
mod siphash;
mod sketch;
mod states;
mod table;
mod unusual;
mod window;
mod windows;

pub use ahead::{PassesAhead, Taken};
pub use answers::{KeyStatus, KeyVerdict, Reserved, Turn};
pub(crate) use blocks::Blocks;
pub(crate) use count::Charges;
pub use geometry::{KeyedGeometry, KeyedTerms};
pub use hottest::{HotKey, MAX_LABEL, MAX_LABELS};
pub use key::{Key, KeyHandle};
pub use page::{KEYS_PER_PAGE, KeyedPages};
pub(crate) use saved::{Restoring, put, take, take_word};
pub use states::KeyedStates;
pub use windows::KeyedWindows;
