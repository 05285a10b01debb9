//! The cost of running a VM.

use std::collections::BTreeMap;

/// Costs since a VM was made, or between two such readings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Wasm operators executed (bulk memory operations count their bytes / 64 as well).
    pub fuel: u64,
    /// Host calls by name.
    pub calls: BTreeMap<String, u64>,
    /// Host calls among them that gave bytes to the module, and so entered the VM once more to ask
    /// for memory.
    pub calls_with_bytes: u64,
    /// Entries into the VM by export: the callbacks, and the allocations of calls that return
    /// bytes.
    pub entries: BTreeMap<String, u64>,
    /// Fuel by export: where it went.
    pub fuel_by_entry: BTreeMap<String, u64>,
}

/// Instructions that Envoy 1.40 spends on each, fitted to what valgrind counts (`filter
/// instructions`): enough to compare two modules where nothing counts instructions, and no more
/// than that.
const PER_ENTRY: f64 = 2_750.0;
const PER_CALL: f64 = 800.0;
const PER_BYTES_RETURNED: f64 = 10_200.0;
const PER_REPLY: f64 = 10_400.0;
/// V8 makes fewer instructions of them: many operators only move operands.
const PER_FUEL: f64 = 0.4;

impl Cost {
    /// What all this costs in Envoy, estimated with fixed weights.
    pub fn estimated_instructions(&self) -> f64 {
        let replies = self.calls.get("proxy_send_local_response");
        let counts = [
            (PER_ENTRY, self.vm_entries()),
            (PER_CALL, self.host_calls()),
            (PER_BYTES_RETURNED, self.calls_with_bytes),
            (PER_REPLY, replies.copied().unwrap_or(0)),
            (PER_FUEL, self.fuel),
        ];
        counts
            .iter()
            .map(|(weight, count)| weight * *count as f64)
            .sum()
    }

    /// All host calls.
    pub fn host_calls(&self) -> u64 {
        self.calls.values().sum()
    }

    /// All entries into the VM.
    pub fn vm_entries(&self) -> u64 {
        self.entries.values().sum()
    }

    /// Counts an entry and what it burnt.
    pub(crate) fn count_entry(&mut self, name: &str, fuel: u64) {
        self.fuel += fuel;
        *self.entries.entry(name.to_owned()).or_default() += 1;
        *self.fuel_by_entry.entry(name.to_owned()).or_default() += fuel;
    }

    /// Adds another cost to this one.
    pub fn add(&mut self, other: &Cost) {
        self.fuel += other.fuel;
        self.calls_with_bytes += other.calls_with_bytes;
        let counts = [&other.calls, &other.entries, &other.fuel_by_entry];
        for (sum, counts) in [&mut self.calls, &mut self.entries, &mut self.fuel_by_entry]
            .into_iter()
            .zip(counts)
        {
            for (name, count) in counts {
                *sum.entry(name.clone()).or_default() += count;
            }
        }
    }

    /// What was added since `earlier`, a reading of the same VM.
    pub fn since(&self, earlier: &Cost) -> Cost {
        let difference = |now: &BTreeMap<String, u64>, then: &BTreeMap<String, u64>| {
            now.iter()
                .map(|(name, count)| (name.clone(), count - then.get(name).unwrap_or(&0)))
                .filter(|(_, count)| *count > 0)
                .collect()
        };
        Cost {
            fuel: self.fuel - earlier.fuel,
            calls: difference(&self.calls, &earlier.calls),
            calls_with_bytes: self.calls_with_bytes - earlier.calls_with_bytes,
            entries: difference(&self.entries, &earlier.entries),
            fuel_by_entry: difference(&self.fuel_by_entry, &earlier.fuel_by_entry),
        }
    }
}
