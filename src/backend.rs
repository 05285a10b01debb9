//! Where counts are kept. You need this only to share limits between workers.

pub use crate::engine::in_force::PrecheckReport;
pub use crate::engine::keyed::KeyedController;
pub use crate::engine::leased::LeaseController;
pub use crate::engine::store::Store;
pub use crate::places::{Claim, NamePlace, Places};
pub use crate::rule::degrade::BreakerGeometry;
pub use crate::rule::system::{Gauges, Inbound};
pub use crate::snapshots::Snapshots;
pub use crate::state::backend::{Backend, BreakerKey, Local, Seeded, Shown, StateKey};
pub use crate::state::breaker::{
    Admission, Breaker, BreakerStorage, CallCounts, LocalBreaker, Phase, Refused, State, Ticket,
};
pub use crate::state::counter::{Counter, LocalCounter, LocalInstant, Past, SharedInstant};
pub use crate::state::flow::Controller;
pub use crate::state::keyed::{
    HotKey, KEYS_PER_PAGE, Key, KeyHandle, KeyStatus, KeyVerdict, KeyedGeometry, KeyedPages,
    KeyedStates, KeyedTerms, KeyedWindows, MAX_LABEL, MAX_LABELS, PassesAhead, Reserved, Taken,
    Turn,
};
pub use crate::state::leased::{Leased, Leasing, NotLeased};
pub use crate::state::window::RuleWindow;
