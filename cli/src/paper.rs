//! A host that only takes notes: the filter is made on it to hear what it would log.

use leapgate::Timestamp;
use leapgate_envoy::host::{
    GrpcCall, Host, HttpCall, Kind, Level, LocalReply, MetricId, NotSent, Property, Put,
    SharedValue,
};
use std::cell::RefCell;
use std::rc::Rc;

/// What was logged, without the name in front of it.
#[derive(Clone, Default)]
pub(crate) struct Paper(Rc<RefCell<Vec<String>>>);

impl Paper {
    /// The warnings of the configuration. (That this host has no shared data says nothing about it.)
    pub(crate) fn warnings(&self) -> Vec<String> {
        let lines = self.0.borrow();
        let of_rules = |line: &&String| {
            line.split_once(": ")
                .is_some_and(|(path, _)| path.contains('['))
        };
        lines.iter().filter(of_rules).cloned().collect()
    }
}

impl Host for Paper {
    fn property(&self, _: Property) -> Option<Vec<u8>> {
        None
    }
    fn property_at(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
    fn configuration(&self, _: usize) -> Option<Vec<u8>> {
        None
    }
    fn request_header(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
    fn response_header(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
    fn response_trailer(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
    fn add_response_header(&self, _: &str, _: &str) -> bool {
        false
    }
    fn attend(&self, _: u32) -> bool {
        false
    }
    fn resume(&self, _: u32) -> bool {
        false
    }
    fn reply(&self, _: &LocalReply<'_>) -> bool {
        false
    }
    fn now(&self) -> Option<Timestamp> {
        None
    }
    fn wall(&self) -> Option<Timestamp> {
        None
    }
    fn random(&self) -> Option<[u8; 16]> {
        Some([0; 16])
    }
    fn set_tick_period(&self, _: u32) -> bool {
        false
    }
    fn define_metric(&self, _: Kind, _: &str) -> Option<MetricId> {
        None
    }
    fn add(&self, _: MetricId, _: i64) -> bool {
        false
    }
    fn record(&self, _: MetricId, _: u64) -> bool {
        false
    }
    fn read(&self, _: MetricId) -> Option<u64> {
        None
    }
    fn shared(&self, _: &str) -> Option<SharedValue> {
        None
    }
    fn share(&self, _: &str, _: &[u8], _: Put) -> bool {
        false
    }
    fn call_http(&self, _: &HttpCall<'_>) -> Result<u32, NotSent> {
        Err(NotSent::UnknownCluster)
    }
    fn call_grpc(&self, _: &GrpcCall<'_>) -> Result<u32, NotSent> {
        Err(NotSent::UnknownCluster)
    }
    fn answer_header(&self, _: &str) -> Option<Vec<u8>> {
        None
    }
    fn answer_body(&self, _: usize) -> Option<Vec<u8>> {
        None
    }
    fn answer_message(&self, _: usize) -> Option<Vec<u8>> {
        None
    }
    fn log(&self, level: Level, line: &str) {
        if level >= Level::Warn {
            let line = line.strip_prefix("leapgate: ").unwrap_or(line);
            self.0.borrow_mut().push(line.into());
        }
    }
}
