//! Passes that workers take ahead of a hot client's requests.

use super::{Process, Vm, process};

const HOT: &str = r#"{"flowRules": [
    {"resource": "api", "id": "hot", "count": 4000, "key": [{"header": "x-api-key"}], "maxKeys": 40}
]}"#;

/// How often shared data was read and replaced.
fn of_shared(process: &Process) -> (u32, u32) {
    (process.reads.get(), process.versions.get())
}

#[test]
fn most_requests_of_a_hot_client_need_no_shared_data() {
    let process = process();
    let vm = Vm::born(&process, HOT);
    process.millis.set(5000);
    assert_eq!(vm.client_passes("a", 1), 1);
    let before = of_shared(&process);
    assert_eq!(vm.client_passes("a", 200), 200);
    let after = of_shared(&process);
    // One, two, four and eight ahead, and sixteen from then on.
    assert_eq!((after.0 - before.0, after.1 - before.1), (15, 15));
}

#[test]
fn four_workers_that_take_passes_ahead_admit_the_limit_of_a_client_together() {
    let process = process();
    let vms = [(); 4].map(|()| Vm::born(&process, HOT));
    let mut random = fastrand::Rng::with_seed(3);
    let mut admitted = Vec::new();
    for step in 0..30_000 {
        // Half more than the limit.
        process.millis.set(5000 + step / 6);
        if step % 600 == 0 {
            vms.iter().for_each(|vm| vm.filter.on_tick());
        }
        if vms[random.usize(0..4)].client("a").is_some() {
            admitted.push(process.millis.get());
        }
    }
    for more in admitted.windows(4001) {
        assert!(more[4000] - more[0] >= 1000, "{more:?}");
    }
    // Five seconds and a bit, of buckets that leave a twentieth late.
    assert!(admitted.len() > 18_500, "{}", admitted.len());
}

#[test]
fn what_was_not_spent_is_given_back_by_a_tick_when_its_bucket_is_over() {
    let process = process();
    let vms = [(); 2].map(|()| Vm::born(&process, HOT));
    process.millis.set(5000);
    assert_eq!(vms[0].client_passes("a", 4), 4);
    process.millis.set(5049);
    vms[0].filter.on_tick();
    let before = of_shared(&process);
    process.millis.set(5050);
    vms[0].filter.on_tick();
    assert_ne!(
        of_shared(&process),
        before,
        "a swap gives back what was left"
    );
    let passes = vms[1].client_passes("a", 5000);
    assert_eq!(passes + 4, 4000);
}
