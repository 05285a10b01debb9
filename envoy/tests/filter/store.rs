//! Permits from a store: what is asked, and requests that wait for the answer.

use super::calls::Call;
use super::waiting::run;
use super::*;
use leapgate::lease;
use leapgate_envoy::host::Answer;

pub(super) const STORE: &str = r#""cluster": "webdis", "protocol": "webdis""#;

/// One limit of a hundred a second for all machines, with these further settings of the store.
pub(super) fn hundred(more: &str) -> String {
    with_rules(
        r#"{"resource": "login", "count": 100, "clusterMode": true, "clusterConfig": {"thresholdType": 1}}"#,
        more,
    )
}

pub(super) fn with_rules(rules: &str, more: &str) -> String {
    format!(r#"{{"flowRules": [{rules}], "envoy": {{"store": {{{STORE}{more}}}}}}}"#)
}

/// A Redis with the script, which is answered by hand.
#[derive(Default)]
pub(super) struct Redis {
    store: RefCell<lease::Store>,
    /// Whether it knows the script.
    is_loaded: Cell<bool>,
    /// The commands that it was sent.
    commands: RefCell<Vec<Vec<String>>>,
}

impl Redis {
    /// What it answers to a call of webdis's form.
    pub(super) fn run(&self, call: &Call, millis: u64) -> String {
        let body = String::from_utf8(call.body.clone()).unwrap();
        let parts: Vec<String> = body.split('/').map(unescaped).collect();
        let [command, script, count, key, request] = &parts[..] else {
            panic!("{body}");
        };
        self.commands.borrow_mut().push(parts.clone());
        assert_eq!(count, "1");
        match command.as_str() {
            "EVALSHA" => assert_eq!(script, lease::REDIS_SCRIPT_SHA1),
            _ => assert_eq!(
                (command.as_str(), script.as_str()),
                ("EVAL", lease::REDIS_SCRIPT)
            ),
        }
        if command == "EVALSHA" && !self.is_loaded.get() {
            return r#"{"EVALSHA":[false,"NOSCRIPT No matching script. Please use EVAL."]}"#.into();
        }
        self.is_loaded.set(true);
        let mut store = self.store.borrow_mut();
        let answer = store.lease(key, request, millis, u64::MAX / 2).unwrap();
        format!(r#"{{"{command}":"{answer}"}}"#)
    }

    /// Answers all calls, and those that follow.
    pub(super) fn answer(&self, vm: &Vm) {
        loop {
            let calls = vm.host.0.calls.take();
            if calls.is_empty() {
                return;
            }
            for call in calls {
                let body = self.run(&call, vm.host.0.millis.get());
                vm.answer(&call, Some(200), &body);
            }
        }
    }
}

pub(super) fn unescaped(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).unwrap()
}

impl Vm {
    /// A call is answered with this status, unless its connection ends before, and this body.
    pub(super) fn answer(&self, call: &Call, status: Option<u32>, body: &str) {
        self.host.0.calls.set_answer(status, body.as_bytes());
        let message = self.filter.on_answer(call.token, Answer::Http(body.len()));
        if let Some(message) = message {
            self.filter.on_answered(message);
        }
        self.host.0.calls.leave_answer();
    }

    /// The statuses of the replies since this was asked before.
    pub(super) fn replied(&self) -> Vec<u16> {
        let replies = self.host.0.replies.take();
        replies.into_iter().map(|(status, ..)| status).collect()
    }

    /// The requests that were resumed since this was asked before.
    pub(super) fn resumed(&self) -> Vec<u32> {
        let resumed = self.host.0.resumed.take();
        resumed.into_iter().map(|(_, context)| context).collect()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.host.0.calls.take()
    }
}

pub(super) fn is_held(passed: &Option<Passed<Fake>>) -> bool {
    passed.as_ref().is_some_and(Passed::is_held)
}

/// The request ends, after a response if it got one.
pub(super) fn end(vm: &Vm, mut passed: Passed<Fake>) {
    passed.take_over();
    vm.filter.on_response(&passed, true);
    vm.filter.on_end(&mut passed);
}

#[test]
fn only_a_request_without_permits_waits_and_goes_on_with_the_answer() {
    let (process, redis) = (process(), Redis::default());
    let vm = Vm::born(&process, &hundred(""));
    let first = vm.request("login");
    let second = vm.request("login");
    assert!(is_held(&first) && is_held(&second));
    assert_eq!(vm.resumed(), [0; 0]);
    redis.answer(&vm);
    assert_eq!(vm.resumed(), [1, 2]);
    for passed in [first, second].into_iter().flatten() {
        end(&vm, passed);
    }
    // A node that has seen two requests leases as many as it expects.
    let passed: Vec<_> = (0..30)
        .map(|_| {
            process.millis.set(process.millis.get() + 1);
            let passed = vm.request("login");
            let is_held = is_held(&passed);
            redis.answer(&vm);
            is_held
        })
        .collect();
    let waited = passed.iter().filter(|is_held| **is_held).count();
    assert!(waited <= 3, "{passed:?}");
    let asked = redis.commands.borrow().len();
    assert!(asked <= 15, "{asked}");
    assert_eq!(vm.replied(), [0; 0]);
}

#[test]
fn the_store_is_asked_as_webdis_wants_it_by_a_key_with_its_prefix() {
    let process = process();
    let rule = r#"{"resource": "login", "id": "log/in", "count": 100, "clusterMode": true, "clusterConfig": {"thresholdType": 1},
                   "key": ["method"]}"#;
    let more = r#", "authority": "redis.internal", "token": "me:secret", "timeoutMs": 70, "keyPrefix": "a b:""#;
    let vm = Vm::born(&process, &with_rules(rule, more));
    super::waiting::with_header(&process, ":method", "GE:T");
    assert!(is_held(&vm.request("login")));
    let [call] = &vm.calls()[..] else { panic!() };
    assert_eq!((call.cluster.as_str(), call.timeout_ms), ("webdis", 70));
    let header = |name| call.headers[name].as_str();
    let headers = [":method", ":path", ":authority", "authorization"].map(header);
    assert_eq!(
        headers,
        ["POST", "/", "redis.internal", "Basic bWU6c2VjcmV0"]
    );
    let body = String::from_utf8(call.body.clone()).unwrap();
    let parts: Vec<&str> = body.split('/').collect();
    let key = "a%20b%3Alog%2Fin%3A1000%3A20%3AGE%253AT";
    assert_eq!(parts[..4], ["EVALSHA", lease::REDIS_SCRIPT_SHA1, "1", key]);
    assert!(parts[4].starts_with("1-"), "{body}");
}

#[test]
fn upstash_is_asked_in_json_with_a_bearers_token() {
    let process = process();
    let rule = r#"{"resource": "login", "count": 100, "clusterMode": true, "clusterConfig": {"thresholdType": 1}}"#;
    let document = format!(
        r#"{{"flowRules": [{rule}], "envoy": {{"store": {{"cluster": "up", "protocol": "upstash", "token": "t0p"}}}}}}"#
    );
    let vm = Vm::born(&process, &document);
    let paused = vm.request("login");
    let [call] = &vm.calls()[..] else { panic!() };
    assert_eq!(call.headers["authorization"], "Bearer t0p");
    assert_eq!(call.headers[":authority"], "up");
    let command: Vec<String> = serde_json::from_slice(&call.body).unwrap();
    let first = [
        "EVALSHA",
        lease::REDIS_SCRIPT_SHA1,
        "1",
        "leapgate:login:1000:100",
    ];
    assert_eq!(command[..4], first);
    let error = r#"{"error":"NOSCRIPT No matching script. Please use EVAL."}"#;
    vm.answer(call, Some(400), error);
    let [call] = &vm.calls()[..] else { panic!() };
    let again: Vec<String> = serde_json::from_slice(&call.body).unwrap();
    assert_eq!(
        (again[0].as_str(), again[1].as_str()),
        ("EVAL", lease::REDIS_SCRIPT)
    );
    assert_eq!(again[2..], command[2..]);
    let echo = lease::Request::parse(&command[4]).unwrap().echo();
    let answer = format!(r#"{{"result":"1-{echo}-7-5-0-95-1"}}"#);
    vm.answer(call, Some(200), &answer);
    assert_eq!(vm.resumed(), [1]);
    end(&vm, paused.unwrap());
}

#[test]
fn a_store_that_does_not_know_the_script_gets_it_with_the_same_message() {
    let (process, redis) = (process(), Redis::default());
    let vm = Vm::born(&process, &hundred(""));
    let paused = vm.request("login");
    let [call] = &vm.calls()[..] else { panic!() };
    let body = redis.run(call, 5000);
    vm.answer(call, Some(200), &body);
    assert_eq!(vm.resumed(), [0; 0]);
    assert!(is_held(&paused));
    redis.answer(&vm);
    assert_eq!(vm.resumed(), [1]);
    let commands = redis.commands.borrow();
    assert_eq!(commands.len(), 2);
    assert_eq!(commands[0][0], "EVALSHA");
    assert_eq!(commands[1][0], "EVAL");
    assert_eq!(commands[0][2..], commands[1][2..]);
    assert_eq!(process.warnings(), [""; 0]);
}

#[test]
fn a_request_waits_no_longer_than_it_may_and_then_when_down_decides() {
    for (when_down, resumed, replied) in [("refuse", 0, 1), ("pass", 1, 0), ("local", 1, 0)] {
        let process = process();
        let more = format!(r#", "maxWaitMs": 20, "whenDown": "{when_down}""#);
        let vms = [Vm::born(&process, &hundred(&more))];
        let paused = vms[0].request("login");
        assert!(is_held(&paused));
        assert_eq!(vms[0].host.1.period.get(), 10, "upkeep comes before");
        run(&process, &vms, 5019, 5000);
        assert_eq!((vms[0].resumed().len(), vms[0].replied().len()), (0, 0));
        run(&process, &vms, 5020, 5000);
        let answered = (vms[0].resumed().len(), vms[0].replied());
        assert_eq!(answered, (resumed, vec![429; replied]), "{when_down}");
        end(&vms[0], paused.unwrap());
    }
}

#[test]
fn an_answer_that_comes_too_late_for_a_request_is_of_use_to_the_next() {
    let (process, redis) = (process(), Redis::default());
    let vms = [Vm::born(&process, &hundred(""))];
    let paused = vms[0].request("login");
    run(&process, &vms, 5025, 5000);
    assert_eq!(vms[0].replied(), [429]);
    drop(paused);
    redis.answer(&vms[0]);
    assert_eq!(vms[0].resumed(), [0; 0]);
    assert!(!is_held(&vms[0].request("login")));
    assert_eq!(vms[0].replied(), [0; 0]);
}

#[test]
fn a_client_that_leaves_does_not_take_the_permits_of_others_with_it() {
    let (process, redis) = (process(), Redis::default());
    let vm = Vm::born(&process, &hundred(""));
    let leaves = vm.request("login");
    let stays = vm.request("login");
    process.gone.borrow_mut().push(1);
    let mut leaves = leaves.unwrap();
    vm.filter.on_end(&mut leaves);
    drop(leaves);
    redis.answer(&vm);
    assert_eq!(vm.resumed(), [2]);
    end(&vm, stays.unwrap());
    run(&process, &[vm], 5100, 5000);
    assert_eq!(process.metric("leapgate.passed;rule=login"), Some(1));
}

#[test]
fn a_client_that_leaves_while_its_request_is_resumed_is_not_answered() {
    let (process, redis) = (process(), Redis::default());
    let vm = Vm::born(&process, &hundred(""));
    let paused = vm.request("login");
    // Its stream has ended, and the filter has not heard of it yet.
    process.gone.borrow_mut().push(1);
    redis.answer(&vm);
    assert_eq!((vm.resumed().len(), vm.replied().len()), (0, 0));
    end(&vm, paused.unwrap());
}

#[test]
fn no_more_requests_wait_than_may() {
    let (process, redis) = (process(), Redis::default());
    let document = hundred("").replacen(r#"{"store""#, r#"{"maxWaiting": 2, "store""#, 1);
    let vm = Vm::born(&process, &document);
    let paused = [(); 3].map(|()| vm.request("login"));
    assert_eq!(paused.each_ref().map(is_held), [true, true, false]);
    assert_eq!(vm.replied(), [429]);
    redis.answer(&vm);
    assert_eq!(vm.resumed(), [1, 2]);
}

#[test]
fn a_client_that_leaves_makes_room_for_another() {
    let process = process();
    let document = hundred("").replacen(r#"{"store""#, r#"{"maxWaiting": 1, "store""#, 1);
    let vm = Vm::born(&process, &document);
    let mut leaves = vm.request("login").unwrap();
    vm.filter.on_end(&mut leaves);
    assert!(is_held(&vm.request("login")));
    // One that is dropped without a word, too.
    assert!(is_held(&vm.request("login")));
}

#[test]
fn a_request_under_several_rules_goes_on_when_all_of_them_have_permits() {
    let (process, redis) = (process(), Redis::default());
    let rule = |id: &str, count: u32| {
        format!(
            r#"{{"resource": "login", "id": "{id}", "count": {count}, "clusterMode": true, "clusterConfig": {{"thresholdType": 1}}}}"#
        )
    };
    let rules = [rule("a", 100), rule("b", 50)].join(", ");
    let vm = Vm::born(&process, &with_rules(&rules, ""));
    let paused = vm.request("login");
    while vm.resumed().is_empty() {
        let calls = vm.calls();
        assert!(!calls.is_empty(), "it waits for an answer");
        for call in calls {
            assert!(is_held(&paused));
            let body = redis.run(&call, 5000);
            vm.answer(&call, Some(200), &body);
        }
    }
    end(&vm, paused.unwrap());
    run(&process, &[vm], 5100, 5000);
    for rule in ["a", "b"] {
        let passed = process.metric(&format!("leapgate.passed;rule={rule}"));
        assert_eq!(passed, Some(1), "{rule}");
    }
}

#[test]
fn a_request_that_has_its_permit_can_still_wait_for_its_turn() {
    let (process, redis) = (process(), Redis::default());
    let rules = r#"{"resource": "login", "id": "all", "count": 100, "clusterMode": true, "clusterConfig": {"thresholdType": 1}},
                   {"resource": "login", "count": 40, "controlBehavior": "throttle", "maxQueueingTimeMs": 500}"#;
    let vms = [Vm::born(&process, &with_rules(rules, ""))];
    let paused = [(); 2].map(|()| vms[0].request("login"));
    redis.answer(&vms[0]);
    assert_eq!(vms[0].resumed(), [1]);
    assert_eq!(run(&process, &vms, 5030, 5000), [25]);
    assert_eq!(vms[0].resumed(), [2]);
    for passed in paused.into_iter().flatten() {
        end(&vms[0], passed);
    }
}

#[test]
fn leases_are_given_back_before_they_end_and_then_the_ticks_stop() {
    let (process, redis) = (process(), Redis::default());
    let vms = [Vm::born(&process, &hundred(""))];
    for _ in 0..20 {
        drop(vms[0].request("login"));
        redis.answer(&vms[0]);
        process.millis.set(process.millis.get() + 1);
    }
    vms[0].filter.on_tick();
    assert!(process.metric("leapgate.lease_permits;rule=login") > Some(0));
    redis.commands.take();
    // A lease lasts for 50 ms.
    for _ in 0..49 {
        run(&process, &vms, process.millis.get() + 1, 0);
        redis.answer(&vms[0]);
    }
    let given_back = redis.commands.borrow().len();
    assert!((1..4).contains(&given_back), "{given_back}");
    for _ in 0..500 {
        run(&process, &vms, process.millis.get() + 1, 0);
        redis.answer(&vms[0]);
    }
    assert_eq!(vms[0].host.1.period.get(), 0);
    assert_eq!(process.metric("leapgate.lease_permits;rule=login"), Some(0));
}

#[test]
fn a_new_configuration_goes_on_with_the_permits_and_resumes_the_requests_of_the_old_one() {
    let (process, redis) = (process(), Redis::default());
    let mut vm = Vm::born(&process, &hundred(""));
    let paused = vm.request("login");
    let (rules, settings) = config::parse(hundred(r#", "maxWaitMs": 5"#).as_bytes()).unwrap();
    let new = Filter::new(vm.host.clone(), Rc::clone(&vm.store), rules, settings).unwrap();
    let old = std::mem::replace(&mut vm.filter, new);
    let [call] = &vm.calls()[..] else { panic!() };
    let body = redis.run(call, 5000);
    assert!(body.contains("NOSCRIPT"));
    vm.answer(call, Some(200), &body);
    let [call] = &vm.calls()[..] else { panic!() };
    let body = redis.run(call, 5000);
    process.calls.set_answer(Some(200), body.as_bytes());
    let message = vm.filter.on_answer(call.token, Answer::Http(body.len()));
    for filter in [&old, &vm.filter] {
        filter.on_answered(message.unwrap());
    }
    assert_eq!(vm.resumed(), [1]);
    end(&vm, paused.unwrap());
    assert_eq!(process.warnings(), [""; 0]);
}

#[test]
fn never_admits_more_than_the_limit_in_any_interval_over_two_processes() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let redis = Redis::default();
        let processes = [process(), process()];
        let documents = [hundred(""), hundred(r#", "maxWaitMs": 3"#)];
        let machines = [0, 1].map(|i| [(); 2].map(|()| Vm::born(&processes[i], &documents[i])));
        let (mut admitted, mut refused) = (Vec::new(), 0);
        // The calls on their way: when they are at the store, or back with an answer.
        let mut away: Vec<(u64, usize, Call, Option<String>)> = Vec::new();
        let mut waiting: Vec<(usize, Passed<Fake>)> = Vec::new();
        for now in 5000..9000 {
            for (i, process) in processes.iter().enumerate() {
                process.millis.set(now);
                for call in process.calls.take() {
                    away.push((now + random.u64(0..4), i, call, None));
                }
            }
            for (at, _, call, answer) in &mut away {
                if answer.is_none() && *at <= now {
                    *answer = Some(redis.run(call, now));
                    *at = now + random.u64(0..4);
                }
            }
            let (back, still): (Vec<_>, Vec<_>) = away
                .into_iter()
                .partition(|(at, _, _, answer)| *at <= now && answer.is_some());
            away = still;
            for (_, i, call, answer) in back {
                // One in twenty is lost.
                let (status, body) = match random.u8(0..20) {
                    0 => (Some(504), String::new()),
                    _ => (Some(200), answer.unwrap()),
                };
                machines[i]
                    .iter()
                    .for_each(|vm| vm.answer(&call, status, &body));
            }
            for (i, machine) in machines.iter().enumerate() {
                for vm in machine {
                    let ticks = &vm.host.1;
                    if ticks.period.get() > 0 && ticks.next.get() <= now {
                        ticks.next.set(now + u64::from(ticks.period.get()));
                        vm.filter.on_tick();
                    }
                    if random.u8(0..10) == 0 {
                        match vm.request("login") {
                            None => refused += 1,
                            Some(passed) if passed.is_held() => waiting.push((i, passed)),
                            Some(_) => admitted.push(now),
                        }
                    }
                }
                admitted.extend(machine[0].resumed().iter().map(|_| now));
            }
        }
        drop(waiting);
        let over = admitted
            .windows(101)
            .filter(|window| window[100] - window[0] < 1000);
        assert_eq!(over.count(), 0, "seed {seed}");
        assert!(
            admitted.len() >= 300 && refused > 100,
            "{} {refused}: seed {seed}",
            admitted.len()
        );
    }
}
