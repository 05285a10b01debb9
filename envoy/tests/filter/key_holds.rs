//! What requests hold of clients' limits while they run, over all workers.

use super::{Vm, process};

const HOLDS: &str = r#"{"flowRules": [
    {"resource": "api", "id": "tokens", "count": 100, "key": [{"header": "x-api-key"}], "maxKeys": 40, "unit": "tokens",
     "cost": {"estimate": {"default": 60, "atMost": "100%"}}}
]}"#;

#[test]
fn what_one_worker_holds_of_a_client_counts_for_all_however_long_the_request_lasts() {
    let process = process();
    let vms = [(); 2].map(|()| Vm::born(&process, HOLDS));
    let held = vms[0].client("a").unwrap();
    for millis in [5000, 7000, 3_600_000] {
        process.millis.set(millis);
        for vm in &vms {
            assert_eq!(vm.client_passes("a", 1), 0, "{millis} ms");
        }
    }
    assert!(vms[1].client("b").is_some());
    // Nothing says what it has cost: that is its estimate, from its end on.
    drop(held);
    assert_eq!(vms[0].client_passes("a", 1), 0);
    process.millis.set(3_601_049);
    assert_eq!(vms[1].client_passes("a", 1), 0);
    process.millis.set(3_601_050);
    assert_eq!(vms[1].client_passes("a", 1), 1);
}

#[test]
fn a_refusal_for_what_is_held_writes_nothing_and_tells_a_second() {
    let process = process();
    let vm = Vm::born(&process, HOLDS);
    let _held = vm.client("a").unwrap();
    let before = process.versions.get();
    assert!(vm.client("a").is_none());
    assert_eq!(process.versions.get(), before);
    let replies = process.replies.borrow();
    let (status, _, headers, _) = replies.last().unwrap();
    let retry_after = headers.iter().find(|(name, _)| name == "retry-after");
    assert_eq!((*status, retry_after.unwrap().1.as_str()), (429, "1"));
}

#[test]
fn a_hold_is_settled_by_one_read_and_one_swap_of_its_page() {
    let process = process();
    let vm = Vm::born(&process, HOLDS);
    let held = vm.client("a").unwrap();
    let before = (process.reads.get(), process.versions.get());
    drop(held);
    assert!(vm.client("b").is_some(), "one read and one swap of its own");
    let after = (process.reads.get(), process.versions.get());
    assert_eq!(after, (before.0 + 2, before.1 + 2));
}

#[test]
fn a_hold_whose_page_cannot_be_swapped_is_settled_at_the_next_tick() {
    let process = process();
    let vms = [(); 2].map(|()| Vm::born(&process, HOLDS));
    let held = vms[0].client("a").unwrap();
    process.contention.set(1000);
    drop(held);
    vms[0].client_passes("b", 1); // tries to settle it, too
    process.contention.set(0);
    process.millis.set(8000);
    assert_eq!(vms[1].client_passes("a", 1), 0, "it is held still");
    vms[0].filter.on_tick();
    // It has ended at 5000 ms: its cost has left the window.
    assert_eq!(vms[1].client_passes("a", 1), 1);
}
