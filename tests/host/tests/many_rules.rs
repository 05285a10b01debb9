//! A configuration of thousands of rules, in the compiled filter: what no request has asked for takes next to nothing.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use leapgate_host::{Host, Module, Plugin, Request, Vm};
use std::rc::Rc;

const RULES: usize = 10_000;

/// So many rules; that of the resource `r0` has this count.
fn document(rules: usize, count: usize) -> Vec<u8> {
    let rule = |i: usize| match i {
        0 => format!(r#"{{"resource": "r0", "count": {count}, "intervalMs": 60000}}"#),
        _ => format!(r#"{{"resource": "r{i}", "count": {count}}}"#),
    };
    let rules: Vec<String> = (0..rules).map(rule).collect();
    format!(r#"{{"flowRules": [{}]}}"#, rules.join(",")).into_bytes()
}

fn start(host: &Rc<Host>, module: &Module, document: &[u8]) -> Vm {
    let mut vm = Vm::start(host, module, Plugin::default()).unwrap();
    assert!(vm.configure(document).unwrap(), "{:?}", host.log());
    vm
}

/// How many of `n` requests pass.
fn passes(vm: &mut Vm, resource: &str, n: usize) -> usize {
    let request = Request::to_route(resource);
    let all = (0..n).filter(|_| vm.request(&request).unwrap().reply.is_none());
    all.count()
}

/// Ticks, as long as it asks for them.
fn rest(host: &Host, vm: &mut Vm) {
    for _ in 0..100 {
        if (1..=1000).contains(&vm.tick_period_ms()) {
            host.advance_ms(vm.tick_period_ms().into());
            vm.tick().unwrap();
        }
    }
}

#[test]
fn of_many_rules_those_that_requests_ask_for_stand_in_the_process_and_no_others() {
    let module = Module::built().unwrap();
    let names = |rules: usize| {
        let host = Host::new();
        let mut vm = start(&host, &module, &document(rules, 100));
        let begun = vm.memory_size();
        let none: Vec<String> = host.metrics().into_keys().collect();
        assert!(none.iter().all(|name| !name.contains("rule=")), "{none:?}");
        assert_eq!(passes(&mut vm, "r0", 3), 3);
        rest(&host, &mut vm);
        let before = vm.cost();
        assert_eq!(passes(&mut vm, "r0", 1), 1);
        host.advance_ms(vm.tick_period_ms().into());
        vm.tick().unwrap();
        let tick = vm.cost().since(&before);
        (
            host.metrics(),
            host.shared_keys("leapgate"),
            (begun, vm.memory_size()),
            tick.fuel_by_entry["proxy_on_tick"],
        )
    };
    let (one, many) = (names(1), names(RULES));
    assert_eq!(one.0, many.0, "metrics");
    assert_eq!(one.1, many.1, "shared data");
    let bytes = (many.2.0 - one.2.0) / RULES;
    assert!(bytes <= 1000, "{bytes} bytes a rule");
    assert!(
        many.2.1 - many.2.0 <= 2 << 16,
        "one rule is not all of them"
    );
    let (fuel, of_one) = (many.3, one.3);
    assert!(
        fuel <= of_one + of_one / 10,
        "a tick takes {fuel}, and {of_one} of one rule"
    );
}

#[test]
fn an_update_of_many_rules_and_one_back_keep_what_has_passed() {
    let (host, module) = (Host::new(), Module::built().unwrap());
    let mut vm = start(&host, &module, &document(300, 10));
    assert_eq!(passes(&mut vm, "r0", 4), 4);
    let memory = vm.memory_size();
    for (count, expected) in [(20, 16), (10, 0), (25, 5), (10, 0)] {
        assert!(vm.configure(&document(300, count)).unwrap());
        vm.retire_old_roots().unwrap();
        rest(&host, &mut vm);
        assert_eq!(passes(&mut vm, "r0", 50), expected, "{count}");
    }
    assert!(
        vm.memory_size() <= 2 * memory,
        "{} bytes after {memory}",
        vm.memory_size()
    );
    assert_eq!(passes(&mut vm, "r1", 50), 10, "another one begins");
}

#[test]
fn a_worker_that_is_first_asked_late_admits_what_others_have_left() {
    let module = Module::built().unwrap();
    for wait in [0, 1, 50, 5000, 59_000] {
        let host = Host::new();
        let mut vms = [0; 3].map(|_| start(&host, &module, &document(300, 10)));
        let [first, second, third] = &mut vms;
        assert_eq!(passes(first, "r0", 7), 7);
        host.advance_ms(wait);
        rest(&host, first);
        assert_eq!(passes(second, "r0", 50), 3, "after {wait} ms");
        assert_eq!(passes(third, "r0", 50), 0, "after {wait} ms");
        host.advance_ms(62_000);
        assert_eq!(passes(third, "r0", 50), 10, "an interval after {wait} ms");
    }
}
