//! A small proxy-wasm host that runs the built filter without Envoy: time is set by hand, several
//! VMs share one process's metrics and shared data, and every request's cost is counted exactly.
//!
//! [`Host`] is the process: its clock, metrics, shared data and log. [`Vm`] is what one worker has:
//! an instance of the module with a memory of its own. VMs are run one at a time; where a race is
//! to be shown, [`Host::before_each_call`] runs another VM between two host calls of the first.
//!
//! The semantics are those of Envoy 1.40 for ABI 0.2.1, as far as a limiter can observe them: metrics are process-wide by name
//! while their ids belong to the VM, gauges take negative offsets and counters do not, compare-and-swap on an absent key
//! succeeds, a local reply is deferred to the end of the callback and passes through the module's own response callback, an
//! empty value is returned without entering the VM. A module that imports anything else is refused with the import's name.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use leapgate_host::{Host, Module, Plugin, Request, Vm};
//!
//! let host = Host::new();
//! let module = Module::compile(&std::fs::read("dist/leapgate.wasm")?)?;
//! let mut worker = Vm::start(&host, &module, Plugin::default())?;
//! assert!(worker.configure(br#"{"flowRules": [{"resource": "r", "count": 1}]}"#)?);
//!
//! let request = Request::to_route("r");
//! assert!(worker.request(&request)?.reply.is_none());
//! assert_eq!(worker.request(&request)?.reply.map(|r| r.status), Some(429));
//! host.advance_ms(2000);
//! assert!(worker.request(&request)?.reply.is_none());
//! # Ok(()) }
//! ```

mod abi;
mod calls;
mod cost;
mod host;
mod outgoing;
mod vm;

pub use abi::{Headers, MetricKind, Status, path};
pub use cost::Cost;
pub use host::{Call, Host, LogLine};
pub use outgoing::{Answer, Outgoing};
pub use vm::{Exchange, LocalReply, Module, Plugin, Request, Vm};

#[cfg(test)]
mod tests;
