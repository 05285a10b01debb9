//! Virtual machines that die, or are taken for dead, between any two host calls.

use super::holds::{FIVE, born, settle, wait};
use super::*;

type Calls = Rc<RefCell<Vec<Passed<Fake>>>>;

/// What one machine does.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Act {
    Begin,
    End,
    Tick,
}

const ACTS: [Act; 3] = [Act::Begin, Act::End, Act::Tick];

fn act(vm: &Vm, act: Act, calls: &Calls) {
    match act {
        Act::Begin => {
            let passed = vm.request("slow");
            calls.borrow_mut().extend(passed);
        }
        Act::End => {
            let call = calls.borrow_mut().pop();
            vm.end_calls(call);
        }
        Act::Tick => vm.filter.on_tick(),
    }
}

#[test]
fn a_machine_may_die_at_any_host_call() {
    let mut deaths = 0;
    for (before, what) in [0, 1, 3].into_iter().flat_map(|n| ACTS.map(|act| (n, act))) {
        for at in 0.. {
            let process = process();
            let vms = born(&process, 2, FIVE);
            let calls: Calls = Rc::new(RefCell::new(vms[0].begin(before)));
            process.millis.set(6000); // a heartbeat is due
            vms[0].dies_after(at);
            act(&vms[0], what, &calls);
            if !vms[0].is_dead() {
                break;
            }
            deaths += 1;
            settle(&process, &vms);
            let left = process.in_flight();
            assert!(
                (0..=1).contains(&left) && (left == 0 || what != Act::Tick),
                "{left} in flight: {what:?} with {before} before, call {at}"
            );
            assert_eq!(vms[1].begin(9).len() as i64, 5 - left, "{what:?} at {at}");
        }
    }
    assert!(deaths > 50, "{deaths} deaths: the test looks at nothing");
}

#[test]
fn a_machine_may_die_at_any_host_call_while_it_settles_what_another_held() {
    let mut deaths = 0;
    for at in 0.. {
        let process = process();
        let vms = born(&process, 3, FIVE);
        let calls = vms[0].begin(3);
        vms[0].dies_after(0);
        wait(&process, &vms, 9000);
        vms[1].begin(1).clear();
        wait(&process, &vms, 1300);
        assert_eq!(process.in_flight(), 3);
        vms[1].dies_after(at);
        wait(&process, &vms[..2], 1500);
        if !vms[1].is_dead() {
            assert_eq!(process.in_flight(), 0, "it has settled");
            break;
        }
        deaths += 1;
        vms[2].passes("slow", 1);
        settle(&process, &vms);
        let left = process.in_flight();
        assert!([0, 3].contains(&left), "{left} in flight, call {at}");
        assert_eq!(vms[2].begin(9).len() as i64, 5 - left);
        drop(calls);
    }
    assert!(deaths > 5, "{deaths} deaths: the test looks at nothing");
}

/// While one machine settles what another held that was only stopped, that one acts between any two host calls; and the other
/// way round.
#[test]
fn nothing_is_given_back_twice_whatever_a_machine_that_was_taken_for_dead_does_in_between() {
    let mut looked_at = 0;
    for (what, is_settler_first) in ACTS.into_iter().flat_map(|act| [(act, true), (act, false)]) {
        for at in 0.. {
            let process = process();
            let vms = Rc::new(born(&process, 2, FIVE));
            let calls: Calls = Rc::new(RefCell::new(vms[0].begin(3)));
            wait(&process, &vms, 50);
            wait(&process, &vms[1..], 9000);
            vms[1].passes("slow", 1);
            wait(&process, &vms[1..], 1500);
            assert_eq!(process.in_flight(), 3);
            process.millis.set(process.millis.get() + 1000);
            let (vms_too, calls_too) = (Rc::clone(&vms), Rc::clone(&calls));
            let slow_acts = move || act(&vms_too[0], what, &calls_too);
            let vms_too = Rc::clone(&vms);
            let settler_acts = move || vms_too[1].filter.on_tick();
            if is_settler_first {
                process.meanwhile.replace(Some((at, Box::new(slow_acts))));
                settler_acts();
            } else {
                process
                    .meanwhile
                    .replace(Some((at, Box::new(settler_acts))));
                slow_acts();
            }
            if process.meanwhile.take().is_some() {
                break;
            }
            looked_at += 1;
            let case = format!("{what:?}, the settler first: {is_settler_first}, call {at}");
            assert!(process.in_flight() >= 0, "{case}");
            wait(&process, &vms, 1500);
            let alive = calls.borrow().len() as i64;
            let counted = process.in_flight();
            assert!(
                (alive..=alive + 3).contains(&counted),
                "{counted} of {alive}: {case}"
            );
            // At most one that was settled while it ended stays reserved until its machine has left the list.
            vms[0].end_calls(calls.take());
            settle(&process, &vms);
            assert_eq!(
                (process.in_flight(), process.holds_nothing()),
                (0, true),
                "{case}"
            );
        }
    }
    assert!(
        looked_at > 40,
        "{looked_at} cases: the test looks at nothing"
    );
}

#[test]
fn no_more_calls_are_in_flight_than_the_limit_and_none_stays_counted_whoever_dies_or_is_stopped() {
    let (mut dead, mut settled) = (0, 0);
    for seed in 0..150 {
        let mut random = fastrand::Rng::with_seed(seed);
        let process = process();
        let vms: Rc<RefCell<Vec<Rc<Vm>>>> = Rc::default();
        let new_vm = || Rc::new(Vm::born(&process, FIVE));
        vms.borrow_mut().extend((0..3).map(|_| new_vm()));
        let calls: Rc<[Calls; 3]> = Rc::default();
        let mut stopped_until = [0; 3];
        let mut graves = Vec::new();
        for step in 0..400 {
            let now = process.millis.get();
            let (worker, other) = (random.usize(0..3), random.usize(0..3));
            if random.u8(0..60) == 0 && now >= stopped_until[worker] {
                // It traps, and another one takes its place.
                vms.borrow()[worker].dies_after(0);
                graves.push((calls[worker].take(), Rc::clone(&vms.borrow()[worker])));
                vms.borrow_mut()[worker] = new_vm();
                dead += 1;
            }
            if random.u8(0..80) == 0 {
                stopped_until[worker] = now + random.u64(5000..30_000);
            }
            let can_act = |worker: usize| stopped_until[worker] <= process.millis.get();
            if worker != other && can_act(other) {
                let (vm, its_calls) = (Rc::clone(&vms.borrow()[other]), Rc::clone(&calls));
                let does = random.choice(ACTS).unwrap();
                let meanwhile = move || {
                    let route = vm.host.0.route.replace("slow".into());
                    act(&vm, does, &its_calls[other]);
                    vm.host.0.route.replace(route);
                };
                process
                    .meanwhile
                    .replace(Some((random.u32(0..25), Box::new(meanwhile))));
            }
            if can_act(worker) {
                let vm = Rc::clone(&vms.borrow()[worker]);
                act(&vm, random.choice(ACTS).unwrap(), &calls[worker]);
            }
            process.meanwhile.take();
            for _ in 0..random.u32(0..400) {
                process.millis.set(process.millis.get() + 1);
                for (worker, vm) in vms.borrow().iter().enumerate() {
                    let ticks = &vm.host.1;
                    let now = process.millis.get();
                    if ticks.period.get() > 0 && ticks.next.get() <= now && can_act(worker) {
                        ticks.next.set(now + u64::from(ticks.period.get()));
                        vm.filter.on_tick();
                    }
                }
            }
            if stopped_until
                .iter()
                .all(|until| until + 2000 < process.millis.get())
            {
                let alive: usize = calls.iter().map(|calls| calls.borrow().len()).sum();
                assert!(
                    process.in_flight() >= alive as i64,
                    "seed {seed}, step {step}: {alive} {} {:?} {stopped_until:?} {} {:?}",
                    process.in_flight(),
                    process.held(),
                    process.millis.get(),
                    calls.iter().map(|c| c.borrow().len()).collect::<Vec<_>>()
                );
            }
        }
        let vms = vms.take();
        for (vm, calls) in vms.iter().zip(&*calls) {
            vm.end_calls(calls.take());
        }
        let vms: Vec<Vm> = vms
            .into_iter()
            .map(|vm| Rc::into_inner(vm).unwrap())
            .collect();
        for _ in 0..3 {
            vms.iter().for_each(|vm| assert!(vm.passes("slow", 1) < 2));
            wait(&process, &vms, 13_000);
        }
        assert_eq!(
            (process.in_flight(), process.held()),
            (
                0,
                process
                    .held()
                    .into_iter()
                    .map(|(name, _)| (name, 0))
                    .collect()
            ),
            "seed {seed}"
        );
        settled += process.warnings().len();
    }
    assert!(
        dead > 500 && settled > 300,
        "{dead} dead, {settled} settled"
    );
}
