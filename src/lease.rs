//! One limit for all machines: leases from a store.
//!
//! A *store* keeps one strict window for each key. A *node* (a process, a worker, an isolate) leases *permits* from it, a few at a
//! time, and spends them without asking again. Both halves are here, and neither has a clock or does any I/O: a shell hands in the
//! time and carries the texts of [`Message`]s and answers between them. A script for Redis is the same store.
//!
//! ```text
//!      node                                                     store, of one key
//!   take: no permits  ---- ask 20 ------------------------->    limit >= held + window + 20 ?
//!                     <--- lease 7: 20 permits -------------    held + 20, until its time is over
//!   take, take, take: no message
//!   ask early         ---- of lease 7 used: 15; ask 20 ---->    window + 15 at their age, held - 15
//!   idle              ---- of lease 7 used: 2; close ------>    window + 2, held - 5: 3 are given back
//! ```
//!
//! # Never more than the limit in any interval, over all nodes
//!
//! 1. A permit that is held counts in full, and is in no bucket yet.
//! 2. What a node has used is *settled*: it moves into the bucket of its age. Ages are durations, and the way to the store makes
//!    them too short: a use counts from a moment that is never before it. Only `close` gives the rest of a lease back, and the node
//!    spends nothing of a lease from the moment it sends that.
//! 3. A lease expires. The node counts its time from *sending* the request, the store from receiving it, which is later; then
//!    what was not settled counts as used at the end of its time, which is later than any use of it. So a node that dies and an
//!    answer that is lost make limits stricter.
//!
//! Take any interval of a window's length and, of the leases whose permits were spent in it, the one that was granted last. Every
//! other permit spent in the interval was granted earlier. At that grant each of them is either still held, or settled or expired
//! in a bucket not before its use, which is at most a window before: it is counted. So all of them together were at most the limit.
//! Nothing here needs clocks that agree, answers that arrive, or nodes that live.
//!
//! # Clocks
//!
//! A node has two clocks ([`Moment`]): the time of a lease goes by whichever of them has passed more, ages by whichever has passed
//! less, so a machine that was suspended and a wall clock that was set make limits stricter. Both are corrected by 0.1 %, more than
//! clocks run apart. The store's time never goes back within a key; a step forward of it by `s` shortens windows by `s`, once.
//!
//! # What forgets
//!
//! A store that was restarted empty does not know what was leased before: a key that is missing while the store is younger than a
//! window and the longest lease counts as full until then. Where a store forgets without a restart (`FLUSHALL`, last writes that
//! were lost in a failover), the overshoot is at most what was forgotten.

mod answer;
mod decision;
mod demand;
mod key_name;
mod leases;
mod moment;
mod node;
mod request;
mod ring;
mod script;
mod state;
mod store;
mod terms;

pub use answer::{Answer, AnswerError};
pub use decision::{Change, Figures, Message, Taken, WhenDown};
pub use key_name::{escape_part, window_name};
pub use moment::Moment;
pub use node::Node;
pub use request::{Report, Request, Settlement};
pub use script::{REDIS_SCRIPT, REDIS_SCRIPT_SHA1};
pub use state::KeyState;
pub use store::Store;
pub use terms::Terms;
