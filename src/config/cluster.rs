//! One limit for all machines, in a document: Sentinel's `clusterMode` and `clusterConfig`.

use super::value::{ConfigError, Fields};
use crate::rule::ClusterConfig;

const KEYS: [&str; 10] = [
    "flowId",
    "thresholdType",
    "fallbackToLocalWhenFail",
    // Sentinel's, for its own servers and clients; the window is the rule's own.
    "strategy",
    "sampleCount",
    "windowIntervalMs",
    "resourceTimeout",
    "resourceTimeoutStrategy",
    "acquireRefuseStrategy",
    "clientOfflineTime",
];

/// What a rule asks for; `None` if its count is each node's own.
pub(super) fn read(fields: &Fields<'_>) -> Result<Option<ClusterConfig>, ConfigError> {
    let is_on = match fields.get("clusterMode") {
        Some(mode) => mode.boolean()?,
        None => false,
    };
    let Some(config) = fields.get("clusterConfig").filter(|_| is_on) else {
        return Ok(None);
    };
    let fields = config.object(&KEYS)?;
    let is_global = match fields.get("thresholdType") {
        Some(threshold) => threshold.integer(0..=1)? == 1,
        None => false,
    };
    if !is_global {
        return Ok(None);
    }
    let mut cluster = ClusterConfig::new();
    if let Some(flow_id) = fields.get("flowId") {
        let number = flow_id.integer(1..=ClusterConfig::MAX_FLOW_ID)?;
        cluster = cluster
            .with_flow_id(number)
            .map_err(|error| ConfigError::from_display(flow_id.to_string(), &error))?;
    }
    if let Some(falls_back) = fields.get("fallbackToLocalWhenFail") {
        cluster = cluster.with_fallback(falls_back.boolean()?);
    }
    Ok(Some(cluster))
}
