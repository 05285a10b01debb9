//! One resource's statistics, and the tree of calls.
//!
//! ```text
//!   machine-root
//!     EntranceNode "web"                  one for each context
//!       DefaultNode "orders"              one for each resource and context, below the call that first entered it there
//!         DefaultNode "stock"  ----.
//!     EntranceNode "job"            >--   ClusterNode "stock": all contexts together,
//!       DefaultNode "stock"  ------'        and one StatisticNode for each origin
//! ```

mod entrance;
mod resource;
mod statistic;

pub use entrance::EntranceNode;
pub use resource::{ClusterNode, DefaultNode, MAX_ORIGINS};
pub use statistic::{Node, StatisticNode};
