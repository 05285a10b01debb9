//! Stores that do not answer, or answer with something else.

use super::store::{Redis, end, hundred, is_held};
use super::waiting::run;
use super::*;

#[test]
fn a_call_that_is_never_answered_is_given_up() {
    let process = process();
    let vms = [Vm::born(&process, &hundred(r#", "whenDown": "pass""#))];
    let paused = vms[0].request("login");
    assert_eq!(vms[0].calls().len(), 1);
    run(&process, &vms, 5000 + 1049, 5000);
    assert_eq!(process.warnings(), [""; 0]);
    run(&process, &vms, 5000 + 1050, 5000);
    let line = "leapgate: envoy.store: `webdis` does not answer in time; look at its load and at `timeoutMs`; until it answers, `whenDown` decides";
    assert_eq!(process.warnings(), [line]);
    end(&vms[0], paused.unwrap());
}

#[test]
fn each_failure_is_logged_once_and_when_down_decides_until_the_store_answers() {
    let rows: [(Option<u32>, &str, &str); 12] = [
        (
            Some(503),
            "upstream connect error",
            "`webdis` cannot be reached or has no Redis behind it; start both",
        ),
        (
            Some(504),
            "upstream request timeout",
            "`webdis` does not answer in time; look at its load and at `timeoutMs`",
        ),
        (
            None,
            "",
            "`webdis` ends connections without an answer; look at its log",
        ),
        (
            Some(403),
            "",
            "`webdis` refuses the request; correct `token` and allow EVAL and EVALSHA",
        ),
        (
            Some(401),
            "",
            "`webdis` refuses the request; correct `token` and allow EVAL and EVALSHA",
        ),
        (
            Some(418),
            "",
            "`418` is the status of the store's answer; look at its log",
        ),
        (
            Some(200),
            "",
            "`` is not an answer about permits; use the same version of Leapgate everywhere, and `cluster` and `protocol` of one store",
        ),
        (
            Some(200),
            "<html>",
            "`<html>` is not an answer about permits; use the same version of Leapgate everywhere, and `cluster` and `protocol` of one store",
        ),
        (
            Some(200),
            r#"{"EVALSHA":"2-1"}"#,
            "`2-1` is not an answer about permits; use the same version of Leapgate everywhere, and `cluster` and `protocol` of one store",
        ),
        (
            Some(200),
            r#"{"EVALSHA":17}"#,
            r#"`{"EVALSHA":17}` is not an answer about permits; use the same version of Leapgate everywhere, and `cluster` and `protocol` of one store"#,
        ),
        (
            Some(200),
            r#"{"EVALSHA":[false,"NOAUTH Authentication required."]}"#,
            "`NOAUTH Authentication required.` is the store's error; look at its settings",
        ),
        (
            Some(401),
            r#"{"error":"WRONGPASS u:hush is wrong"}"#,
            "`…` is the store's error; look at its settings",
        ),
    ];
    for (status, body, sentence) in rows {
        let (process, redis) = (process(), Redis::default());
        let vms = [Vm::born(&process, &hundred(r#", "token": "u:hush""#))];
        let vm = &vms[0];
        let fail = || {
            for call in vm.calls() {
                vm.answer(&call, status, body);
            }
        };
        let paused = vm.request("login");
        assert!(is_held(&paused), "{sentence}");
        fail();
        assert_eq!(vm.replied(), [429], "{sentence}");
        drop(paused);
        // The store is asked now and then, not for each request.
        let mut asked = 0;
        for _ in 0..1000 {
            process.millis.set(process.millis.get() + 1);
            assert!(vm.request("login").is_none(), "{sentence}");
            asked += process.calls.sent();
            fail();
        }
        assert!((4..=6).contains(&asked), "{asked}: {sentence}");
        let line =
            format!("leapgate: envoy.store: {sentence}; until it answers, `whenDown` decides");
        assert_eq!(process.warnings(), [line], "{sentence}");
        // It recovers by itself.
        process.millis.set(process.millis.get() + 200);
        vm.replied();
        assert!(vm.request("login").is_none());
        redis.answer(vm);
        let passed = vm.request("login");
        redis.answer(vm);
        assert!(passed.is_some());
        let info: Vec<String> = process
            .log
            .borrow()
            .iter()
            .map(|(_, line)| line.clone())
            .collect();
        assert_eq!(
            info.last().unwrap(),
            "leapgate: envoy.store: `webdis` answers again"
        );
        vm.filter.on_tick();
        let metric = |what: &str| {
            process
                .metric(&format!("leapgate.{what};rule=login"))
                .unwrap()
        };
        assert_eq!((metric("lease_downs"), metric("lease_ups")), (1, 1));
        assert_eq!(metric("lease_lost"), asked as i64 + 1);
        assert!((1000..1300).contains(&metric("lease_down_ms")));
        let log = format!(
            "{:?} {:?}",
            process.log,
            config::parse(hundred(r#", "token": "u:hush""#).as_bytes())
        );
        assert!(!log.contains("hush"), "{log}");
    }
}

#[test]
fn no_request_waits_for_a_call_that_was_not_sent() {
    let rows = [
        (
            NotSent::UnknownCluster,
            "`webdis` is not a cluster; add it to Envoy's clusters or correct `cluster`",
        ),
        (
            NotSent::Refused,
            "`webdis` takes no request; give it a host, a wider circuit breaker, and the module the right to make calls",
        ),
    ];
    for (fault, sentence) in rows {
        for (when_down, passes) in [("refuse", 0), ("pass", 5), ("local", 5)] {
            let process = process();
            process.calls.fault.set(Some(fault));
            let vm = Vm::born(
                &process,
                &hundred(&format!(r#", "whenDown": "{when_down}""#)),
            );
            let passed = [(); 5].map(|()| vm.request("login"));
            assert!(!passed.iter().any(is_held));
            assert_eq!(passed.iter().flatten().count(), passes, "{when_down}");
            let line =
                format!("leapgate: envoy.store: {sentence}; until it answers, `whenDown` decides");
            assert_eq!(process.warnings(), [line]);
        }
    }
}

#[test]
fn without_a_store_the_limit_is_local_and_the_log_says_so() {
    let process = process();
    let rule = r#"{"resource": "login", "count": 10, "clusterMode": true, "clusterConfig": {"thresholdType": 1}}"#;
    let vm = Vm::born(&process, &format!(r#"{{"flowRules": [{rule}]}}"#));
    assert_eq!(vm.passes("login", 20), 10);
    let line = "leapgate: flowRules[0].clusterMode: `true` needs a store, and there is none, so each node limits by itself; add `envoy.store`";
    assert_eq!(process.warnings(), [line]);
}

#[test]
fn the_time_out_doubles_after_each_loss_up_to_eight_times_until_an_answer_is_quick() {
    let (process, redis) = (process(), Redis::default());
    let vm = Vm::born(&process, &hundred(""));
    let asked = || {
        process.millis.set(process.millis.get() + 200);
        drop(vm.request("login"));
        vm.calls()
    };
    // It gets the script.
    drop(vm.request("login"));
    redis.answer(&vm);
    process.millis.set(process.millis.get() + 3000);
    for timeout_ms in [50, 100, 200, 400, 400] {
        let calls = asked();
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].timeout_ms, timeout_ms);
        vm.answer(&calls[0], Some(504), "upstream request timeout");
    }
    for (took, after) in [(300, 400), (10, 50)] {
        for call in asked() {
            process.millis.set(process.millis.get() + took);
            let answer = redis.run(&call, process.millis.get());
            vm.answer(&call, Some(200), &answer);
        }
        // Its permits have ended.
        process.millis.set(process.millis.get() + 3000);
        let calls = asked();
        assert_eq!(calls[0].timeout_ms, after, "after {took} ms");
        for call in &calls {
            let answer = redis.run(call, process.millis.get());
            vm.answer(call, Some(200), &answer);
        }
        if after == 400 {
            vm.answer(&asked()[0], Some(504), "upstream request timeout");
        }
    }
}
