//! Flow rules that limit each key for itself, on one resource.
//!
//! They decide with the other flow rules, in the order of the document: all are charged, or none. What a request has
//! for their parts it brings along ([`crate::Request::keys`]); where a part has several values it is asked about once for
//! each, and charged once for equal ones.
//!
//! A request that another rule makes wait counts for its keys when that is decided, and takes its turn in theirs when it is
//! released.
//!
//! Sentinel: `ParamFlowSlot` and `ParamFlowChecker`.

mod check;
mod controller;
mod full;
mod keys;
mod leases;
mod reservations;

pub(crate) use check::{KeyCaller, KeyCheck, count_keys, values_of};
pub use controller::KeyedController;
pub(crate) use keys::Keys;
pub(crate) use leases::LeaseCheck;
pub(crate) use reservations::{EntryExtras, Reservations};
