//! Each rule of the host, seen by a module of a few lines.

use std::cell::RefCell;
use std::rc::Rc;

use crate::*;

/// A module whose request callback runs `on_request`; `$say` logs a status as a letter, `A` for 0.
fn module(on_request: &str) -> Module {
    let wat = format!(
        r#"(module
            (import "env" "proxy_log" (func $log (param i32 i32 i32) (result i32)))
            (import "env" "proxy_get_property" (func $property (param i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_get_buffer_bytes" (func $buffer (param i32 i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_define_metric" (func $define (param i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_increment_metric" (func $increment (param i32 i64) (result i32)))
            (import "env" "proxy_get_metric" (func $metric (param i32 i32) (result i32)))
            (import "env" "proxy_get_shared_data" (func $get (param i32 i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_set_shared_data" (func $set (param i32 i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_set_tick_period_milliseconds" (func $tick (param i32) (result i32)))
            (import "env" "proxy_add_header_map_value" (func $add (param i32 i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_send_local_response" (func $send (param i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (import "env" "proxy_set_effective_context" (func $take_up (param i32) (result i32)))
            (import "env" "proxy_continue_stream" (func $continue (param i32) (result i32)))
            (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 100) "gauge\00counter\00histogram\00xds\00route_name\00key\00")
            (data (i32.const 200) "\01\00\00\00\0b\00\00\00\01\00\00\00retry-after\007\00")
            (global $top (mut i32) (i32.const 4096))
            (global $configured (mut i32) (i32.const 0))
            (func (export "proxy_abi_version_0_2_1"))
            (func (export "proxy_on_memory_allocate") (param i32) (result i32)
                (global.get $top) (global.set $top (i32.add (global.get $top) (local.get 0))))
            (func $say (param i32)
                (i32.store8 (i32.const 0) (i32.add (local.get 0) (i32.const 65)))
                (drop (call $log (i32.const 2) (i32.const 0) (i32.const 1))))
            (func (export "proxy_on_configure") (param i32 i32) (result i32)
                (global.set $configured (i32.add (global.get $configured) (i32.const 1)))
                (drop (call $tick (i32.const 5)))
                (drop (call $define (i32.const 1) (i32.const 100) (i32.const 5) (i32.const 16)))
                (drop (call $define (i32.const 0) (i32.const 106) (i32.const 7) (i32.const 20)))
                (drop (call $define (i32.const 2) (i32.const 114) (i32.const 9) (i32.const 24)))
                ;; A configuration that begins with "n" is refused.
                (drop (call $buffer (i32.const 7) (i32.const 0) (i32.const 99) (i32.const 32) (i32.const 36)))
                (i32.ne (i32.load8_u (i32.load (i32.const 32))) (i32.const 110)))
            (global $paused (mut i32) (i32.const 0))
            (func (export "proxy_on_tick") (param i32)
                (if (global.get $paused)
                    (then
                        (call $say (call $take_up (global.get $paused)))
                        (call $say (call $continue (i32.const 0)))
                        ;; A tick period that is asked for meanwhile is that of the root.
                        (drop (call $tick (i32.const 7))))
                    (else (call $say (global.get $configured)))))
            (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32)
                {on_request}
                (i32.const 0))
            (func (export "proxy_on_response_headers") (param i32 i32 i32) (result i32)
                (drop (call $add (i32.const 2) (i32.const 106) (i32.const 7) (i32.const 114) (i32.const 9)))
                (i32.const 0)))"#
    );
    Module::compile(wat.as_bytes()).expect("the module is valid")
}

fn started(host: &Rc<Host>, module: &Module, vm: &str) -> Vm {
    let mut vm = Vm::start(host, module, Plugin::in_vm(vm)).expect("it starts");
    assert!(vm.configure(b"yes").expect("it is configured"));
    vm
}

/// Everything that was said, as one word.
fn said(host: &Host) -> String {
    host.take_log().into_iter().map(|line| line.text).collect()
}

fn run(vm: &mut Vm) -> Exchange {
    vm.request(&Request::to_route("r")).expect("no trap")
}

#[test]
fn metrics_are_shared_by_name_and_answer_as_in_envoy() {
    let host = Host::new();
    let module = module(
        "(call $say (call $increment (i32.load (i32.const 16)) (i64.const 3)))  ;; gauge, up
         (call $say (call $increment (i32.load (i32.const 16)) (i64.const -1))) ;; gauge, down
         (call $say (call $increment (i32.load (i32.const 20)) (i64.const 1)))  ;; counter, up
         (call $say (call $increment (i32.load (i32.const 20)) (i64.const -1))) ;; counter, down: refused
         (call $say (call $metric (i32.load (i32.const 24)) (i32.const 40)))    ;; a histogram has no value
         (call $say (call $metric (i32.const 4000) (i32.const 40)))             ;; nobody's id",
    );
    let mut first = started(&host, &module, "first");
    let mut second = started(&host, &module, "second");
    run(&mut first);
    assert_eq!(said(&host), "AAACCB");
    run(&mut second);
    assert_eq!(
        (host.metric("gauge"), host.metric("counter")),
        (Some(4), Some(2))
    );
    host.set_gauge("gauge", -7);
    assert_eq!(host.metric("gauge"), Some(-7));
    assert_eq!(host.metric("nothing"), None);
}

#[test]
fn silenced_metrics_take_everything_and_read_zero() {
    let host = Host::new();
    host.silence_metrics("gau");
    let module = module(
        "(call $say (call $increment (i32.load (i32.const 16)) (i64.const 3)))
         (i64.store (i32.const 40) (i64.const 9))
         (call $say (call $metric (i32.load (i32.const 16)) (i32.const 40)))
         (call $say (i32.load (i32.const 40)))",
    );
    run(&mut started(&host, &module, "vm"));
    assert_eq!(said(&host), "AAA");
    assert_eq!(host.metric("gauge"), None);
}

#[test]
fn a_swap_succeeds_on_an_absent_key_and_with_the_latest_number() {
    let host = Host::new();
    let module = module(
        "(call $say (call $get (i32.const 139) (i32.const 3) (i32.const 40) (i32.const 44) (i32.const 48)))
         (call $say (call $set (i32.const 139) (i32.const 3) (i32.const 100) (i32.const 5) (i32.const 77)))
         (call $say (call $get (i32.const 139) (i32.const 3) (i32.const 40) (i32.const 44) (i32.const 48)))
         (call $say (call $set (i32.const 139) (i32.const 3) (i32.const 106) (i32.const 7) (i32.load (i32.const 48))))
         (call $say (call $set (i32.const 139) (i32.const 3) (i32.const 100) (i32.const 5) (i32.load (i32.const 48))))",
    );
    run(&mut started(&host, &module, "vm"));
    assert_eq!(said(&host), "BAAAI");
    assert_eq!(
        host.shared_data("leapgate", "key").map(|(value, _)| value),
        Some(b"counter".to_vec())
    );
    assert_eq!(host.shared_keys("leapgate"), ["key"]);
    assert_eq!(host.shared_data("another", "key"), None);

    host.refuse_swaps(1);
    assert_eq!(
        host.write_shared("leapgate", b"key", b"", 2),
        Status::CasMismatch
    );
    assert_eq!(host.write_shared("leapgate", b"key", b"", 2), Status::Ok);
}

#[test]
fn bytes_cost_an_entry_and_no_bytes_do_not() {
    let host = Host::new();
    let module = module(
        "(call $say (call $property (i32.const 124) (i32.const 14) (i32.const 40) (i32.const 44)))
         (call $say (i32.load (i32.const 44)))",
    );
    let mut vm = started(&host, &module, "vm");
    let mut cost_of = |request: &Request| {
        let before = vm.cost();
        vm.request(request).expect("no trap");
        vm.cost().since(&before)
    };
    let named = cost_of(&Request::to_route("abc"));
    assert_eq!(said(&host), "AD");
    assert_eq!(
        (
            named.calls_with_bytes,
            named.entries["proxy_on_memory_allocate"]
        ),
        (1, 1)
    );
    assert_eq!(named.fuel, named.fuel_by_entry.values().sum::<u64>());
    assert!(
        named.fuel_by_entry["proxy_on_memory_allocate"] < 10,
        "{named:?}"
    );
    assert_eq!(
        (
            named.calls["proxy_get_property"],
            named.host_calls(),
            named.vm_entries()
        ),
        (1, 4, 3)
    );

    let unnamed = cost_of(&Request::to_route(""));
    assert_eq!(said(&host), "AA");
    assert_eq!((unnamed.calls_with_bytes, unnamed.vm_entries()), (0, 2));

    assert_eq!(cost_of(&Request::default()).calls_with_bytes, 0);
    assert_eq!(said(&host), "BA");
    assert_eq!(cost_of(&Request::to_route("abc")), named, "fuel is exact");
}

#[test]
fn the_first_local_reply_wins_and_passes_the_response_callback() {
    let host = Host::new();
    let module = module(
        "(drop (call $send (i32.const 429) (i32.const 139) (i32.const 3) (i32.const 100) (i32.const 5)
                           (i32.const 200) (i32.const 26) (i32.const 8)))
         (drop (call $send (i32.const 503) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
                           (i32.const 0) (i32.const 0) (i32.const -1)))",
    );
    let exchange = run(&mut started(&host, &module, "vm"));
    let reply = exchange.reply.expect("a reply");
    assert_eq!(
        (
            reply.status,
            reply.details.as_str(),
            reply.body.as_slice(),
            reply.grpc_status
        ),
        (429, "key", &b"gauge"[..], 8)
    );
    assert_eq!(reply.header("Retry-After"), Some("7"));
    let names: Vec<&str> = exchange
        .response_headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(names, [":status", "retry-after", "counter"]);
    assert!(!exchange.paused);
}

#[test]
fn time_is_what_the_test_says() {
    let host = Host::new();
    let module = module(
        "(drop (call $clock (i32.const 1) (i64.const 0) (i32.const 40)))
         (drop (call $log (i32.const 2) (i32.const 40) (i32.const 8)))",
    );
    let mut vm = started(&host, &module, "vm");
    // The bytes of the word "eightmin" as a number: the log then reads as that word.
    host.set_now_ns(u64::from_le_bytes(*b"eightmin"));
    let wall = host.wall_ns();
    run(&mut vm);
    assert_eq!(said(&host), "eightmin");
    host.advance_ms(2);
    assert_eq!(host.wall_ns() - wall, 2_000_000);
    host.set_wall_ns(5);
    assert_eq!(
        (host.wall_ns(), host.now_ns()),
        (5, u64::from_le_bytes(*b"eightmin") + 2_000_000)
    );
}

#[test]
fn a_second_configuration_keeps_the_memory_and_a_refused_one_changes_nothing() {
    let host = Host::new();
    let module = module("(call $say (global.get $configured))");
    let mut vm = started(&host, &module, "vm");
    assert_eq!(vm.tick_period_ms(), 5);
    vm.tick().expect("no trap");
    assert_eq!(said(&host), "B");

    assert!(!vm.configure(b"no").expect("no trap"));
    vm.tick().expect("no trap");
    assert_eq!(said(&host), "C", "one root ticks, in the same memory");

    assert!(vm.configure(b"yes").expect("no trap"));
    vm.tick().expect("no trap");
    assert_eq!(said(&host), "DD", "the old root ticks until it is retired");
    vm.retire_old_roots().expect("no trap");
    vm.tick().expect("no trap");
    run(&mut vm);
    assert_eq!(said(&host), "DD");
}

#[test]
fn a_probe_runs_one_vm_between_the_calls_of_another() {
    let host = Host::new();
    let module = module(
        "(drop (call $increment (i32.load (i32.const 16)) (i64.const 1)))
         (drop (call $metric (i32.load (i32.const 16)) (i32.const 40)))
         (call $say (i32.load (i32.const 40)))",
    );
    let mut first = started(&host, &module, "first");
    let second = RefCell::new(started(&host, &module, "second"));
    host.before_each_call(move |call| {
        if (call.vm, call.name) == ("first", "proxy_get_metric") {
            run(&mut second.borrow_mut());
        }
    });
    run(&mut first);
    assert_eq!(
        said(&host),
        "CC",
        "the second VM added its one before the first could read its own"
    );
    host.no_probe();
    run(&mut first);
    assert_eq!(said(&host), "D");
}

#[test]
fn restricted_callbacks_are_not_called_and_restricted_calls_fail() {
    let host = Host::new();
    let module = module("(call $say (call $increment (i32.load (i32.const 16)) (i64.const 1)))");
    let allowed = [
        "proxy_on_configure",
        "proxy_on_request_headers",
        "proxy_log",
        "proxy_define_metric",
    ];
    let allowed = Some(allowed.map(str::to_owned).into());
    let mut vm = Vm::start(
        &host,
        &module,
        Plugin {
            allowed,
            ..Plugin::default()
        },
    )
    .expect("it starts");
    vm.configure(b"yes").expect("no trap");
    let exchange = run(&mut vm);
    assert_eq!(said(&host), "K");
    assert_eq!(
        exchange.response_headers.len(),
        1,
        "the response callback was not called"
    );
}

#[test]
fn a_stream_may_stay_open_while_others_pass() {
    let host = Host::new();
    let mut vm = started(&host, &module(""), "vm");
    let open = vm.begin(&Request::to_route("a")).expect("no trap");
    let short = run(&mut vm);
    assert_eq!(short.response_headers.len(), 2);
    assert!(vm.look_at(&short).is_err(), "it has ended");
    let ended = vm.abort(open).expect("no trap");
    assert!(ended.response_headers.is_empty());
}

#[test]
fn a_tick_resumes_a_paused_request_and_finds_one_that_has_ended_gone() {
    let host = Host::new();
    let module = module("(global.set $paused (local.get 0)) (return (i32.const 1))");
    let mut vm = started(&host, &module, "vm");
    let paused = vm.begin(&Request::to_route("a")).expect("no trap");
    assert!(paused.paused);
    vm.tick().expect("no trap");
    assert_eq!(said(&host), "AA");
    assert!(!vm.look_at(&paused).expect("it goes on").paused);
    assert_eq!(vm.tick_period_ms(), 7);
    vm.abort(paused).expect("no trap");
    vm.tick().expect("no trap");
    assert_eq!(said(&host), "CA", "there is no such context any more");
}

#[test]
fn an_unknown_import_is_refused_by_name_unless_declared() {
    let host = Host::new();
    let wat = r#"(module
        (import "env" "proxy_make_coffee" (func $coffee (result i32)))
        (memory (export "memory") 1)
        (func (export "proxy_abi_version_0_2_1"))
        (func (export "proxy_on_vm_start") (param i32 i32) (result i32) (i32.eq (call $coffee) (i32.const 12))))"#;
    let module = Module::compile(wat.as_bytes()).expect("the module is valid");
    assert_eq!(module.imports(), ["env.proxy_make_coffee"]);
    let refused = Vm::start(&host, &module, Plugin::default())
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        refused.as_deref(),
        Some("the module imports `env.proxy_make_coffee`, which this host does not have")
    );

    let unimplemented = [String::from("proxy_make_coffee")].into();
    assert!(
        Vm::start(
            &host,
            &module,
            Plugin {
                unimplemented,
                ..Plugin::default()
            }
        )
        .is_ok()
    );
}

#[test]
fn an_endless_loop_ends_in_an_error_that_names_the_callback() {
    let host = Host::new();
    let module = module("(loop (br 0))");
    let plugin = Plugin {
        fuel_per_callback: 100_000,
        ..Plugin::in_vm("busy")
    };
    let mut vm = Vm::start(&host, &module, plugin).expect("it starts");
    let error = vm
        .request(&Request::to_route("r"))
        .err()
        .map(|error| error.to_string());
    assert_eq!(
        error.as_deref(),
        Some("`proxy_on_request_headers` of VM `busy` trapped")
    );
}
