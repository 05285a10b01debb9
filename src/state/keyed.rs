//! A bounded set of states, one per key, for one rule: windows, calls in flight or turns.
//!
//! A key (a client's address, a header, a combination of such) is known by a seeded 64-bit hash of its parts. Two keys of one
//! hash share a state: stricter for both, never more than the limit for either. The states lie in a table of fixed bounds:
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
//! At most four slots of five are taken, and each has its tag. Beside them lies what keys share once the table is full (8 bytes
//! more per key; 4 for calls in flight and for turns), and the labels (both below): [`KeyedGeometry::max_bytes`] is the sum. A
//! table begins small and doubles; from an eighth of `max_keys` it goes there at once, and never past. While it grows, both
//! are there.
//!
//! A bucket that counts more than 255 does not fit its byte: the counters of that key then *widen* into a block of 8 bytes
//! per bucket in a slab beside the table (172 bytes more for 20 buckets), which goes back when the whole window has left. The
//! slab doubles as needed, and has at most as many blocks as there are windows ([`KeyedGeometry::max_bytes_wide`]). Widening
//! saves what is counted, exactly. What keys share widens in the same way, by 44 bytes.
//!
//! # When the table is full
//!
//! A state in which nothing counts any more is free to be taken: a window whose passes have left it, a key without calls in
//! flight, a line whose latest turn is over (with `compat`, where a request waits for its own cost, for as long as the dearest
//! one has to; `IdleTtl` in `table.rs` says why that is enough). Such are looked for only when a key comes that is not known: in
//! the slots where it would be searched for, and in a few more where a hand stands that goes round the table. There is no timer.
//! While each of the `max_keys` states counts something, new keys share a count-min sketch with conservative update: for each key
//! a cell in each of two rows, of which the lesser count is an upper bound. So a flood of keys makes limits stricter for the keys
//! that come with it; it takes no state from a key that has one, and no memory beyond the bound.
//!
//! - *Windows.* A row has a cell for every two keys of `max_keys`, and 256 at least. After `f` times `max_keys` further keys of one
//!   request each, a row's cells have counted 2 `f` each on average, by chance (Poisson's distribution), and a new client is
//!   refused at a limit of `n` if both of its own have counted `n`: at 5 and `f` = 1, 1 in 360, and fewer since an update is
//!   conservative. Tests find that of 1000 new clients 1000 pass at `f` = 1, 990 at 2, 920 at 3, 710 at 4. The sketch counts
//!   strictly, whatever the mode of the rule, in coarse buckets: the interval in four, and the current one. So in the long run a
//!   key that shares has four fifths of its limit.
//! - *Calls in flight.* They are added to both cells and taken off both when they end; there are as many cells.
//! - *Turns.* Both cells reach as far as the furthest turn that was taken in them; there are half as many cells. A crowd that
//!   takes turns all at once leaves few cells free until those turns are over: new clients wait for so long, or are refused. With
//!   `compat` the turns of a key that shares reach at least as far as the lines did that were forgotten.
//!
//! What is reserved and given back before it is charged is free again. What has been charged stays, since others may have raised
//! the cell as far: a refund, a forgotten key or a turn given up gives nothing back there. A key that gets a state of its own
//! later goes on from what its cells tell, each count dated no earlier than it can be; a key without a state of its own has none
//! beside its cells. So no key has its limit twice.
//!
//! # The hottest keys
//!
//! [`KeyedStates::top`] looks at all states, so that no decision has to keep an order. What the table does not know is what a
//! key is called. So up to [`MAX_LABELS`] keys are *listed*: a decision compares what now counts with a floor, and a key that
//! is not listed and reaches it takes the place of the coolest one, if it is a quarter hotter. The floor sinks with time. A
//! listed key is named when it comes the next time, and its label, at most [`MAX_LABEL`] bytes, is kept while it is listed:
//! together 10 kB at most, none before something is hot. What may be missing is the label of a key that has been hot for a
//! moment only, or that is about as hot as more than [`MAX_LABELS`] others; amounts are exact. What keys share belongs to none
//! of them and is not shown.
//!
//! # Time
//!
//! Each window follows the clock as a [`crate::backend::RuleWindow`] does. One sum is kept, of all buckets, and a bucket that leaves is
//! subtracted from it: each bucket once, so that a decision costs the same with 2 buckets and with 60. Turns follow it as those
//! of a throttle for all: what reaches further ahead than a turn of its rule can was taken before the clock stepped back, and is
//! pulled back to there.
//!
//! Of a clock that has stepped back by an interval or more, a state hears when its key comes next; in a full table, also when
//! a new key looks at it, so that the keys of a time that may never come again do not hold the table. What had expired and was
//! taken does not come back with the clock.

mod answers;
mod blocks;
mod count;
mod geometry;
mod hottest;
mod idle_ttl;
mod key;
mod left;
mod page;
mod refund;
mod sketch;
mod states;
mod table;
mod window;
mod windows;

pub use answers::{KeyStatus, KeyVerdict, Reserved, Turn};
pub(crate) use blocks::Blocks;
pub use geometry::{KeyedGeometry, KeyedTerms};
pub use hottest::{HotKey, MAX_LABEL, MAX_LABELS};
pub use key::{Key, KeyHandle};
pub use page::{KEYS_PER_PAGE, KeyedPages};
pub use states::KeyedStates;
pub use windows::KeyedWindows;
