//! What requests hold of clients' limits while they run, over all workers.

use super::holds::wait;
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

#[test]
fn what_a_dead_worker_held_of_a_client_counts_from_when_a_request_asks_for_it_after_ten_seconds() {
    let process = process();
    let vms = [(); 3].map(|()| Vm::born(&process, HOLDS));
    let held = vms[0].client("a").unwrap();
    let alive = vms[1].client("b").unwrap();
    vms[0].dies_after(0);
    let begin = process.millis.get();
    let passes = || vms[2].client_passes("a", 1) == 1;
    let mut refused_until = begin;
    while !passes() {
        refused_until = process.millis.get();
        assert!(refused_until < begin + 20_000, "it is held for good");
        wait(&process, &vms, 200);
    }
    // Its estimate is charged after 10 s at the earliest, and leaves the window of 1 s and a bucket.
    let after = refused_until - begin;
    assert!((11_000..=14_000).contains(&after), "{after} ms");
    assert_eq!(
        vms[2].client_passes("b", 1),
        0,
        "what the living hold stays"
    );
    drop((held, alive));
}

#[test]
fn a_worker_that_was_only_slow_charges_what_it_held_twice_and_never_less() {
    let process = process();
    let vms = [(); 2].map(|()| Vm::born(&process, HOLDS));
    let held = vms[0].client("a").unwrap();
    // The first one does nothing: it neither ticks nor sees requests.
    let passed = (0..20).map(|_| {
        wait(&process, &vms[1..], 1000);
        vms[1].client_passes("a", 1)
    });
    let passed: usize = passed.sum();
    assert!(passed > 0, "it has been settled and has left the window");
    wait(&process, &vms[1..], 2000);
    // It has reached an upstream, and nothing says what it has cost.
    let upstream = "upstream\0local_address".into();
    process.properties.borrow_mut().insert(upstream, Vec::new());
    vms[0].end_calls([held]);
    assert_eq!(
        vms[1].client_passes("a", 1),
        0,
        "its estimate counts once more"
    );
    wait(&process, &vms, 2000);
    assert_eq!(vms[1].client_passes("a", 1), 1);
}

#[test]
fn what_a_dead_worker_held_makes_room_in_a_full_page_for_the_clients_that_find_it_full() {
    let process = process();
    let vms = [(); 2].map(|()| Vm::born(&process, HOLDS));
    let clients = |from: u32| (from..from + 400).map(|client| client.to_string());
    // Ten pages for forty clients keep eighty apart.
    let held: Vec<_> = clients(0)
        .filter_map(|client| vms[0].client(&client))
        .collect();
    assert!(held.len() >= 80, "{} hold", held.len());
    vms[0].dies_after(0);
    wait(&process, &vms[1..], 5000);
    vms[1].client_passes("0", 1); // what holds is watched from now on
    for _ in 0..20 {
        wait(&process, &vms[1..], 1000);
        vms[1].client_passes("0", 1);
    }
    let shared = || {
        vms[1].filter.on_tick();
        process.metric("leapgate.shared;rule=tokens").unwrap_or(0)
    };
    for client in clients(1000) {
        vms[1].client(&client);
    }
    assert!(shared() > 0, "these find all pages full");
    wait(&process, &vms[1..], 3000);
    let before = shared();
    let passed = clients(2000)
        .take(20)
        .filter(|client| vms[1].client(client).is_some());
    assert_eq!((passed.count(), shared() - before), (20, 0));
    drop(held);
}
