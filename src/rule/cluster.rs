//! One limit for all machines, as a rule asks for it.

use super::parts::{RuleError, RuleId};

/// How a rule is to share its limit with all machines: by permits that are leased from a store
/// ([`lease`](crate::lease)).
///
/// Sentinel: `ClusterFlowConfig` with the `thresholdType` 1.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[doc(alias = "ClusterFlowConfig")]
pub struct ClusterConfig {
    flow_id: Option<u64>,
    falls_back: Option<bool>,
}

impl ClusterConfig {
    /// The largest number of a flow: 2^53.
    pub const MAX_FLOW_ID: u64 = 1 << 53;

    /// The rule's id names its count at the store, and the store's setting says what decides while it does not answer.
    pub fn new() -> ClusterConfig {
        ClusterConfig::default()
    }

    /// This number, from 1 to [`ClusterConfig::MAX_FLOW_ID`], names the count at the store: rules with the same number and the
    /// same window share it, on all machines.
    ///
    /// # Errors
    ///
    /// If it is out of this range.
    pub fn with_flow_id(mut self, flow_id: u64) -> Result<ClusterConfig, RuleError> {
        let most = ClusterConfig::MAX_FLOW_ID;
        if !(1..=most).contains(&flow_id) {
            return Err(RuleError::OutOfRange {
                number: flow_id,
                least: 1,
                most,
            });
        }
        self.flow_id = Some(flow_id);
        Ok(self)
    }

    /// While the store does not answer, each machine limits by itself if this is true, and lets everything pass if it is false.
    #[doc(alias = "fallbackToLocalWhenFail")]
    #[must_use]
    pub fn with_fallback(mut self, falls_back: bool) -> ClusterConfig {
        self.falls_back = Some(falls_back);
        self
    }

    /// The name of the count of a rule with this id at the store.
    pub(crate) fn name(&self, id: &RuleId) -> String {
        self.flow_id
            .map_or_else(|| id.to_string(), |flow_id| flow_id.to_string())
    }

    /// Whether each machine limits by itself while the store does not answer; `None` if the store's setting says it.
    pub fn falls_back(&self) -> Option<bool> {
        self.falls_back
    }
}
