//! Sentinel's statistics: leap arrays of metric buckets, the nodes of resources, and the tree of calls.

pub(crate) mod metric;
pub(crate) mod metric_bucket;
pub(crate) mod node;
pub(crate) mod occupy;
pub(crate) mod tree;
pub(crate) mod view;

pub use crate::leap_array::{Bucket, LeapArray, WindowWrap};
pub use crate::window::{Window, WindowError};
pub use metric::{ArrayMetric, Metric, MetricNode, SlidingWindowMetric};
pub use metric_bucket::{MetricBucket, MetricEvent};
pub use node::{ClusterNode, DefaultNode, EntranceNode, MAX_ORIGINS, Node, StatisticNode};
pub use occupy::{
    BucketLeapArray, FutureBucketLeapArray, LoanRule, OCCUPY_TIMEOUT_MS, OccupiableBucketLeapArray,
};
pub use tree::{DEFAULT_CONTEXT, MAX_CONTEXTS, NodeTree};
pub use view::{View, ViewError};
