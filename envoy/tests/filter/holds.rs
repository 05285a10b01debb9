//! Virtual machines that die while they hold something, or seem to have died.

use super::waiting::run;
use super::*;
use leapgate::backend::Counter as _;
use std::slice;

pub(super) const FIVE: &str =
    r#"{"flowRules": [{"resource": "slow", "count": 5, "grade": "concurrency", "id": "slow"}]}"#;

const TOKENS: &str = r#"{"flowRules": [{"resource": "slow", "count": 100, "id": "slow", "unit": "tokens",
                                        "cost": {"estimate": {"default": 40, "atMost": "100%"}}}]}"#;

const GIVEN_BACK: &str = "leapgate: a virtual machine has died: what it held is given back";

impl Vm {
    /// Begins up to `n` calls, and returns those that pass.
    pub(super) fn begin(&self, n: usize) -> Vec<Passed<Fake>> {
        (0..n).filter_map(|_| self.request("slow")).collect()
    }

    /// Ends a call, as the host does when it deletes the stream.
    fn end_call(&self, mut passed: Passed<Fake>) {
        self.filter.on_end(&mut passed);
    }

    pub(super) fn end_calls(&self, calls: impl IntoIterator<Item = Passed<Fake>>) {
        calls.into_iter().for_each(|call| self.end_call(call));
    }

    /// The machine traps with the host call after `calls` more.
    pub(super) fn dies_after(&self, calls: u32) {
        self.host.1.life.set(Some(calls));
    }

    pub(super) fn is_dead(&self) -> bool {
        self.host.1.life.get() == Some(0)
    }

    fn period(&self) -> u32 {
        match self.host.1.period.get() {
            1001.. => 0, // it ticks for its gauges alone
            period => period,
        }
    }
}

impl Process {
    pub(super) fn in_flight(&self) -> i64 {
        // A machine that dies while it tries the gauge leaves a bit above all counts.
        let count = self.metric("leapgate.in_flight;rule=slow");
        count.unwrap_or(0) % (1 << 48)
    }

    /// What the gauges of what is held contain, by name.
    pub(super) fn held(&self) -> Vec<(String, i64)> {
        let metrics = self.metrics.borrow();
        let held = metrics
            .iter()
            .filter(|(_, name, _)| name.starts_with("leapgate.held;"));
        held.map(|(_, name, value)| (name.clone(), *value))
            .collect()
    }

    pub(super) fn holds_nothing(&self) -> bool {
        self.held().iter().all(|(_, held)| *held == 0)
    }
}

pub(super) fn born(process: &Rc<Process>, workers: usize, document: &str) -> Vec<Vm> {
    (0..workers).map(|_| Vm::born(process, document)).collect()
}

pub(super) fn wait(process: &Process, vms: &[Vm], millis: u64) {
    run(process, vms, process.millis.get() + millis, 0);
}

/// Like `wait`, while each machine that lives gets a request every 200 ms, which ends at once. Returns when the first of them
/// has passed.
fn ask(process: &Process, vms: &[Vm], millis: u64) -> Option<u64> {
    let begin = process.millis.get();
    (0..millis / 200).find_map(|_| {
        wait(process, vms, 200);
        let passed: Vec<_> = vms.iter().filter(|vm| !vm.is_dead()).collect();
        let passed = passed.iter().map(|vm| vm.passes("slow", 1)).sum::<usize>();
        (passed > 0).then(|| process.millis.get() - begin)
    })
}

/// Time in which the dead are found, and all others have fallen asleep.
pub(super) fn settle(process: &Process, vms: &[Vm]) {
    wait(process, vms, 3000);
    ask(process, vms, 200);
    wait(process, vms, 13_000);
}

#[test]
fn calls_of_a_dead_machine_end_after_ten_seconds_once_whichever_worker_sees_it_first() {
    for first in [1, 2, 3] {
        let process = process();
        let mut vms = born(&process, 4, FIVE);
        let calls = vms[0].begin(9);
        assert_eq!(calls.len(), 5);
        wait(&process, &vms, 3333);
        vms[0].dies_after(0);
        vms[1..].rotate_left(first - 1);
        let after = ask(&process, &vms, 15_000).expect("the limit recovers");
        assert!((10_000..=12_200).contains(&after), "after {after} ms");
        assert_eq!((process.in_flight(), process.holds_nothing()), (0, true));
        assert_eq!(process.warnings(), [GIVEN_BACK]);
        let more: Vec<_> = vms[1..].iter().map(|vm| vm.begin(3)).collect();
        let passed: Vec<_> = more.iter().map(Vec::len).collect();
        assert_eq!(passed, [3, 2, 0]);
        settle(&process, &vms);
        assert_eq!(process.warnings().len(), 1);
        drop(calls);
    }
}

#[test]
fn a_machine_that_takes_the_place_of_a_dead_one_gives_back_what_that_held() {
    let process = process();
    let mut vms = born(&process, 1, FIVE);
    let calls = vms[0].begin(5);
    vms[0].dies_after(0);
    vms.push(Vm::born(&process, FIVE));
    let after = ask(&process, &vms, 15_000).expect("the limit recovers");
    assert!(after <= 12_200, "after {after} ms");
    assert_eq!(vms[1].begin(9).len(), 5);
    drop(calls);
}

#[test]
fn what_a_dead_machine_held_of_a_window_counts_from_then_on_and_leaves_it() {
    let process = process();
    let vms = born(&process, 2, TOKENS);
    let calls = vms[0].begin(9);
    assert_eq!(calls.len(), 2);
    wait(&process, &vms, 500);
    vms[0].dies_after(0);
    let tickets = || process.metric("leapgate.tickets;rule=slow;window=1000ms_100");
    let admitted = || process.metric("leapgate.admitted;rule=slow;window=1000ms_100");
    assert_eq!((tickets(), admitted()), (Some(80), Some(0)));
    let begin = process.millis.get();
    while admitted() == Some(0) {
        assert_eq!(vms[1].passes("slow", 1), 0, "all but 20 are held");
        assert!(process.millis.get() < begin + 15_000, "it is not settled");
        wait(&process, &vms, 10);
    }
    let settled = process.millis.get() - begin;
    assert!((9500..=12_200).contains(&settled), "after {settled} ms");
    assert_eq!((tickets(), admitted()), (Some(80), Some(80)));
    // Admitted at that instant, they leave the window an interval and a bucket later.
    let after = ask(&process, &vms, 2000).unwrap();
    assert!((1000..=1200).contains(&after), "after {after} ms");
    drop(calls);
}

#[test]
fn an_idle_worker_with_one_long_call_ticks_once_a_second_and_is_not_taken_for_dead() {
    let process = process();
    let vms = born(&process, 3, FIVE);
    let call = vms[0].begin(1);
    wait(&process, &vms, 1000);
    for second in 0..120 {
        assert_eq!(vms[0].period(), 1000, "in second {second}");
        assert_eq!(vms[1].passes("slow", 1), 1);
        assert_eq!(process.in_flight(), 1, "in second {second}");
        wait(&process, &vms, 1000);
        assert_eq!((vms[1].period(), vms[2].period()), (0, 0));
    }
    vms[0].end_calls(call);
    wait(&process, &vms, 1000);
    assert_eq!(vms[0].period(), 0);
    assert_eq!((process.in_flight(), process.holds_nothing()), (0, true));
    assert_eq!(process.warnings(), [""; 0]);
}

#[test]
fn a_configuration_that_comes_while_a_call_is_in_flight_keeps_the_heartbeat() {
    let process = process();
    let mut vms = born(&process, 2, FIVE);
    let call = vms[0].begin(1);
    wait(&process, &vms, 3000);
    for document in [FIVE, TEN] {
        vms[0].host.set_tick_period(0);
        vms[0].configure(document);
        for _ in 0..20 {
            wait(&process, &vms, 1000);
            assert_eq!(vms[1].passes("slow", 1), 1);
        }
        assert_eq!((process.in_flight(), vms[0].period()), (1, 1000));
    }
    drop(call);
    settle(&process, &vms);
    assert_eq!((process.in_flight(), vms[0].period()), (0, 0));
    assert_eq!(process.warnings(), [""; 0]);
}

#[test]
fn while_all_workers_sleep_the_next_request_finds_the_dead() {
    let process = process();
    let vms = born(&process, 2, FIVE);
    let calls = vms[0].begin(5);
    vms[0].dies_after(0);
    wait(&process, &vms, 600_000);
    assert_eq!(vms[1].passes("slow", 1), 0);
    let after = ask(&process, &vms, 15_000).unwrap();
    assert!(after <= 1400, "after {after} ms");
    drop(calls);
}

#[test]
fn a_process_that_was_stopped_for_a_while_takes_no_machine_for_dead() {
    for stopped in [9_000, 11_000, 3_600_000] {
        let process = process();
        let vms = born(&process, 3, FIVE);
        let calls: Vec<_> = vms.iter().flat_map(|vm| vm.begin(1)).collect();
        wait(&process, &vms, 5000);
        for asking in [0, 1, 2, 3] {
            process.millis.set(process.millis.get() + stopped);
            vms.iter()
                .take(asking)
                .for_each(|vm| assert!(vm.passes("slow", 1) < 2));
            wait(&process, &vms, 5000);
            assert_eq!(process.in_flight(), 3);
        }
        assert_eq!(process.warnings(), [""; 0]);
        drop(calls);
    }
}

/// The first machine is stopped while the second takes it for dead.
fn taken_for_dead(document: &str) -> (Rc<Process>, Vec<Vm>, Vec<Passed<Fake>>) {
    let process = process();
    let (vm, others) = (Vm::born(&process, document), born(&process, 1, document));
    let calls = vm.begin(9);
    wait(&process, slice::from_ref(&vm), 50);
    assert!(ask(&process, &others, 15_000).is_some());
    assert_eq!(process.warnings(), [GIVEN_BACK]);
    (process, [vm].into_iter().chain(others).collect(), calls)
}

#[test]
fn calls_of_a_machine_that_was_taken_for_dead_are_counted_again_and_end_once() {
    let (process, vms, mut calls) = taken_for_dead(FIVE);
    let others = vms[1].begin(9);
    assert_eq!((others.len(), process.in_flight()), (5, 5));
    // It does not know yet: this call has been released already.
    vms[0].end_calls(calls.pop());
    assert_eq!(process.in_flight(), 5);
    wait(&process, &vms, 1000);
    assert_eq!(process.in_flight(), 4 + 5);
    assert_eq!(vms[1].passes("slow", 1) + vms[0].passes("slow", 1), 0);
    vms[0].end_calls(calls);
    assert_eq!(process.in_flight(), 5);
    vms[1].end_calls(others);
    wait(&process, &vms, 2000);
    assert_eq!((process.in_flight(), process.holds_nothing()), (0, true));
    assert_eq!((vms[0].period(), vms[1].period()), (0, 0));
}

#[test]
fn a_call_that_begins_before_its_machine_knows_is_counted_once() {
    let (process, vms, calls) = taken_for_dead(FIVE);
    wait(&process, &vms[1..], 500); // none has the entry of the first machine any more
    let more = vms[0].begin(2);
    assert_eq!(process.in_flight(), 2);
    wait(&process, &vms, 1000);
    assert_eq!(process.in_flight(), 5 + 2);
    vms[0].end_calls(calls.into_iter().chain(more));
    wait(&process, &vms, 2000);
    assert_eq!((process.in_flight(), process.holds_nothing()), (0, true));
}

#[test]
fn what_has_been_admitted_for_a_machine_is_not_admitted_again() {
    for knows in [false, true] {
        let (process, vms, mut calls) = taken_for_dead(TOKENS);
        let tickets = || process.metric("leapgate.tickets;rule=slow;window=1000ms_100");
        let admitted = || process.metric("leapgate.admitted;rule=slow;window=1000ms_100");
        // The worker that asked has had one request of 40 since then.
        wait(&process, &vms[1..], 1500);
        assert_eq!((tickets(), admitted()), (Some(120), Some(120)));
        if knows {
            wait(&process, &vms, 1000);
        }
        drop(calls.pop()); // its cost stays its estimate
        wait(&process, &vms, 1200);
        let more = vms[0].begin(2);
        assert_eq!((tickets(), admitted()), (Some(200), Some(120)));
        drop(calls);
        wait(&process, &vms, 1000);
        assert_eq!((tickets(), admitted()), (Some(200), Some(120)));
        drop(more);
        wait(&process, &vms, 3000);
        assert_eq!(vms[0].passes("slow", 1), 1);
        wait(&process, &vms, 3000);
        assert_eq!((tickets(), admitted()), (Some(240), Some(240)));
        assert!(process.holds_nothing());
    }
}

impl Vm {
    /// Reserves and holds that much.
    fn hold(&self, n: u64) {
        self.store.for_each_state(0, 1, |state| {
            assert!(state.counter().reserve(n).is_some());
            state.counter().hold(n);
        });
    }

    /// Ends such a hold, and admits it if it is still this machine's. Returns whether it is.
    fn unhold(&self, n: u64) -> bool {
        let mut is_own = false;
        self.store.for_each_state(0, 1, |state| {
            is_own = state.counter().unhold(n);
            if is_own {
                state.counter().admit(n);
            }
        });
        is_own
    }
}

#[test]
fn a_hold_that_has_been_settled_in_part_is_neither_released_nor_admitted_twice() {
    let process = process();
    let vms = born(&process, 2, TOKENS);
    drop(vms[0].request("slow"));
    vms[0].hold(10);
    for _ in 0..65 {
        wait(&process, &vms[1..], 200);
        vms[1].passes("slow", 1);
    }
    wait(&process, &vms, 1000);
    vms[0].hold(30);
    assert!(!vms[0].unhold(30), "10 of these have been admitted already");
    assert!(vms[0].unhold(10), "it has been held since");
    vms[0].passes("slow", 1); // so that it ticks, and falls asleep
    wait(&process, &vms, 20_000);
    let all = |what| process.metric(&format!("leapgate.{what};rule=slow;window=1000ms_100"));
    assert_eq!(all("tickets"), all("admitted"));
    assert!(process.holds_nothing());
}

#[test]
fn gauges_of_what_is_held_are_bounded_however_many_machines_die() {
    let process = process();
    let mut vms = born(&process, 2, FIVE);
    let mut graves = Vec::new();
    for _ in 0..40 {
        graves.push(vms[0].begin(1));
        vms[0].dies_after(0);
        graves.push(vms[1].begin(1));
        vms[0] = Vm::born(&process, FIVE);
        settle(&process, &vms);
        vms[1].end_calls(graves.pop().unwrap());
        settle(&process, &vms);
    }
    let names: Vec<String> = process.held().into_iter().map(|(name, _)| name).collect();
    // Two workers, and one that has died a short while ago.
    let expected = [0, 1, 2].map(|vm| format!("leapgate.held;rule=slow;vm={vm}"));
    assert_eq!((process.in_flight(), names), (0, expected.to_vec()));
    assert_eq!(process.warnings(), [GIVEN_BACK; 40]);
}

#[test]
fn a_call_in_flight_costs_one_more_change_of_a_gauge_at_its_beginning_and_at_its_end() {
    let process = process();
    let vm = Vm::born(&process, FIVE);
    let first = vm.begin(1);
    let calls: Rc<Cell<u32>> = Rc::default();
    let counted = Rc::clone(&calls);
    process
        .probe
        .replace(Some(Rc::new(move || counted.set(counted.get() + 1))));
    let reads = process.reads.get();
    let second = vm.begin(1);
    // The gauge of calls in flight is read, raised and read, and then that of this machine is raised.
    assert_eq!(calls.take(), 4);
    vm.end_calls(second);
    // That is lowered and read, and then the other one lowered.
    assert_eq!((calls.take(), process.reads.get()), (3, reads));
    process.probe.take();
    vm.end_calls(first);
}

#[test]
fn rules_that_hold_nothing_have_no_such_gauges_and_read_nothing_on_ticks() {
    let process = process();
    let vms = born(&process, 2, TEN);
    vms[0].passes("login", 12);
    wait(&process, &vms, 5000);
    assert_eq!(process.held(), []);
    let shared = process.shared.borrow();
    assert!(!shared.keys().any(|key| key.starts_with("leapgate.held")));
}

#[test]
fn calls_that_the_system_counts_are_given_back_too() {
    let document = r#"{"systemRules": [{"maxThread": 3}]}"#;
    let process = process();
    let vms = born(&process, 2, document);
    let calls = vms[0].begin(9);
    assert_eq!(calls.len(), 3);
    vms[0].dies_after(0);
    let after = ask(&process, &vms, 15_000).unwrap();
    assert!((10_000..=12_200).contains(&after), "after {after} ms");
    assert_eq!(process.metric("leapgate.inbound_in_flight"), Some(0));
    assert_eq!(process.held(), [("leapgate.held;vm=0".to_owned(), 0)]);
    drop(calls);
}

#[test]
fn where_its_gauge_is_silent_a_limit_holds_and_the_log_says_what_a_death_leaves() {
    for gauge in ["held;rule=slow;vm=0", "held_by;vm=0"] {
        let process = process();
        process.excluded.replace(Some(gauge.into()));
        let vms = born(&process, 2, FIVE);
        for _ in 0..3 {
            let calls = vms[0].begin(9);
            assert_eq!(calls.len(), 5);
            vms[0].end_calls(calls);
            assert_eq!((vms[1].passes("slow", 9), process.in_flight()), (9, 0));
            wait(&process, &vms, 1000);
        }
        let now = "what a worker holds when its virtual machine dies stays reserved";
        let line = format!(
            "leapgate: the gauge `wasmcustom.leapgate.{gauge}` does not count (does a stats_matcher exclude it?): {now}"
        );
        assert_eq!(process.warnings(), [&*line; 2], "a line of each machine");
    }
}

#[test]
fn without_shared_data_calls_are_counted_as_ever() {
    let process = process();
    process.no_shared_data.set(true);
    let vms = born(&process, 2, FIVE);
    let calls = vms[0].begin(9);
    assert_eq!((calls.len(), vms[1].passes("slow", 1)), (5, 0));
    vms[0].end_calls(calls);
    assert_eq!((vms[1].passes("slow", 1), process.in_flight()), (1, 0));
}
