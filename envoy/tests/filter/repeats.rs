//! Refusals that are repeated, beside a filter that decides on each request.

use super::*;

/// A rule that refuses no request. In shadow mode, what it looks at is decided on each time.
const LOOKS: &str =
    r#"{"resource": "RESOURCE", "limitApp": "nobody", "strategy": "black", "mode": "MODE"}"#;

/// The same document twice, the second one for a filter that repeats nothing.
fn twins(rules: &[String], settings: &str) -> [String; 2] {
    let flow = rules.join(", ");
    ["enforce", "shadow"].map(|mode| {
        let looks = |resource| LOOKS.replace("RESOURCE", resource).replace("MODE", mode);
        let authority = ["a", "b", "*"].map(looks).join(", ");
        format!(
            r#"{{"flowRules": [{flow}], "authorityRules": [{authority}],
                 "envoy": {{"origin": {{"header": "x-app"}}, {settings}}}}}"#
        )
    })
}

fn one_of<T: Copy>(random: &mut fastrand::Rng, all: &[T]) -> T {
    all[random.usize(0..all.len())]
}

/// A random flow rule on that resource.
fn rule(random: &mut fastrand::Rng, resource: &str, id: usize) -> String {
    let window = one_of(random, &["strict", "sentinel", "weighted"]);
    let (interval, samples) = one_of(random, &[(1000, 10), (1000, 100), (300, 3), (5000, 20)]);
    let further = one_of(
        random,
        &[
            "",
            "",
            r#", "key": [{"header": "x-key"}]"#,
            r#", "key": [{"header": "x-key"}]"#,
            r#", "key": [{"header": "x-key"}], "keyItems": [{"value": "1", "count": 3}]"#,
            r#", "limitApp": "shop""#,
            r#", "limitApp": "other""#,
            r#", "grade": "concurrency""#,
            r#", "controlBehavior": "throttle", "maxQueueingTimeMs": 200"#,
            r#", "controlBehavior": "warmUp", "warmUpPeriodSec": 2"#,
        ],
    );
    let geometry = match further.contains("concurrency") || further.contains("throttle") {
        true => String::new(),
        false => {
            format!(r#", "intervalMs": {interval}, "sampleCount": {samples}, "window": "{window}""#)
        }
    };
    let count = random.u32(0..6);
    let count = count.max(u32::from(further.contains("controlBehavior")));
    format!(r#"{{"resource": "{resource}", "id": "r{id}", "count": {count}{geometry}{further}}}"#)
}

/// What a request was told: `None` if it passes.
fn decide(vm: &Vm, route: &str, headers: &[(&str, &str)]) -> Option<Sent> {
    let process = &vm.host.0;
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| (name.to_string(), value.to_string()));
    process.request_headers.replace(headers.collect());
    process.replies.borrow_mut().clear();
    let passed = vm.request(route);
    let reply = process.replies.borrow_mut().pop();
    assert_eq!(passed.is_none(), reply.is_some());
    reply
}

/// The counters of rules whose names begin with `what`, in order.
fn counters(process: &Process, what: &str) -> Vec<(String, i64)> {
    let metrics = process.metrics.borrow();
    let mut found: Vec<_> = metrics
        .iter()
        .filter(|(_, name, _)| name.starts_with(what))
        .map(|(_, name, value)| (name.clone(), *value))
        .collect();
    found.sort();
    found
}

/// Compares what a filter that repeats and one that does not have told the same request, which the first argument describes.
type Same<'a> = &'a dyn Fn(&str, &Option<Sent>, &Option<Sent>);

/// Sends random requests to both; `same` compares what they are told. If one rule alone is for a request, each counts the same.
/// Returns how many refusals were repeated.
fn play(
    (seed, is_one): (u64, bool),
    rules: &dyn Fn(&mut fastrand::Rng) -> Vec<String>,
    same: Same<'_>,
) -> i64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let settings = format!(
        r#""rateLimitHeaders": "{}", "reply": {{"format": "{}"}}"#,
        one_of(&mut random, &["draft", "legacy", "off"]),
        one_of(&mut random, &["text", "json", "problem"]),
    );
    let mut documents = twins(&rules(&mut random), &settings);
    let processes = [process(), process()];
    let mut vms = [0, 1].map(|i| Vm::born(&processes[i], &documents[i]));
    for step in 0..400 {
        let pause = match random.u8(0..40) {
            0 => random.u64(0..20_000),
            1..8 => random.u64(0..400),
            _ => random.u64(0..4),
        };
        let (ticks, reloads) = (random.u8(0..6) == 0, random.u8(0..80) == 0);
        if reloads {
            documents = twins(&rules(&mut random), &settings);
        }
        let route = one_of(&mut random, &["a", "a", "b", "c", "d", "e"]);
        let key = one_of(&mut random, &["1", "2", "3"]);
        let app = one_of(&mut random, &["shop", "batch", ""]);
        let kind = one_of(&mut random, &["text/html", "application/grpc+proto"]);
        let headers = [("x-key", key), ("x-app", app), ("content-type", kind)];
        let many = random.usize(1..6);
        for (vm, document) in vms.iter_mut().zip(&documents) {
            let process = &vm.host.0;
            process.millis.set(process.millis.get() + pause);
            process.content_type.replace(kind.into());
            if ticks || reloads {
                vm.filter.on_tick(); // what is not exported goes with the rules
            }
            if reloads {
                vm.configure(document);
            }
        }
        for _ in 0..many {
            let [repeats, decides] = [0, 1].map(|i| decide(&vms[i], route, &headers));
            let of = format!(
                "seed {seed}, step {step}, {route} {headers:?}: {}",
                documents[0]
            );
            same(&of, &repeats, &decides);
        }
    }
    let ends = |vm: &Vm| (0..100).for_each(|_| vm.filter.on_tick());
    vms.iter().for_each(ends);
    let [passed, refused] = ["leapgate.passed;", "leapgate.blocked;"]
        .map(|what| processes.each_ref().map(|process| counters(process, what)));
    let sum = |of: &[(String, i64)]| of.iter().map(|(_, n)| n).sum::<i64>();
    assert_eq!(passed[0], passed[1], "{}", documents[0]);
    assert_eq!(sum(&refused[0]), sum(&refused[1]), "{}", documents[0]);
    if is_one {
        assert_eq!(refused[0], refused[1], "{}", documents[0]);
    }
    let repeated = processes.each_ref().map(|process| {
        let of = counters(process, "leapgate.repeated_refusals");
        sum(&of)
    });
    assert_eq!(repeated[1], 0);
    repeated[0]
}

#[test]
fn one_rule_decides_answers_and_counts_as_if_nothing_were_repeated() {
    let repeated: i64 = (0..60)
        .map(|seed| {
            let rules = |random: &mut fastrand::Rng| {
                let mut id = 0;
                ["a", "b", "*"]
                    .map(|resource| {
                        id += 1;
                        rule(random, resource, id)
                    })
                    .to_vec()
            };
            play((seed, true), &rules, &|of, repeats, decides| {
                assert_eq!(repeats, decides, "{of}");
            })
        })
        .sum();
    assert!(repeated > 2_000, "{repeated}");
}

#[test]
fn several_rules_decide_as_if_nothing_were_repeated() {
    let repeated: i64 = (0..60)
        .map(|seed| {
            let rules = |random: &mut fastrand::Rng| {
                let n = random.usize(2..7);
                let rule = |id| {
                    let resource = one_of(random, &["a", "a", "b", "*"]);
                    rule(random, resource, id)
                };
                (10..10 + n).map(rule).collect()
            };
            // Which of several full rules is named, and what is left of the others, is that of a second ago, at most.
            let status = |sent: &Option<Sent>| sent.as_ref().map(|sent| sent.0);
            play((seed, false), &rules, &|of, repeats, decides| {
                assert_eq!(status(repeats), status(decides), "{of}");
            })
        })
        .sum();
    assert!(repeated > 2_000, "{repeated}");
}

#[test]
fn the_time_to_try_again_is_never_stale_and_the_client_is_then_admitted() {
    for format in ["draft", "legacy"] {
        let process = process();
        let vm = Vm::born(
            &process,
            &format!(
                r#"{{"flowRules": [{{"resource": "a", "count": 2, "intervalMs": 7000}}], "envoy": {{"rateLimitHeaders": "{format}", "reply": {{"format": "json"}}}}}}"#
            ),
        );
        process.millis.set(70_000);
        assert_eq!(vm.passes("a", 2), 2);
        let mut told = Vec::new();
        while let Some((_, _, headers, body)) = decide(&vm, "a", &[]) {
            let of = |name| headers.iter().find(|(known, _)| known == name);
            let retry: u64 = of("retry-after").unwrap().1.parse().unwrap();
            assert!(body.contains(&format!("\"retryAfterSeconds\":{retry}")));
            match of("ratelimit") {
                Some((_, limit)) => assert_eq!(*limit, format!(r#""a/7s";r=0;t={retry}"#)),
                None => assert_eq!(of("x-ratelimit-reset").unwrap().1, retry.to_string()),
            }
            told.push((process.millis.get(), retry));
            process.millis.set(process.millis.get() + 7);
        }
        // It passes 7,070 ms after the others: its own bucket has to leave, too.
        for (at, retry) in told {
            assert_eq!(retry, (77_070 - at).div_ceil(1000), "at {at}");
        }
        vm.filter.on_tick();
        let repeated = process.metric("leapgate.repeated_refusals").unwrap();
        assert!(repeated > 1000 - 20, "{repeated}");
    }
}

#[test]
fn another_configuration_repeats_nothing_of_the_one_before() {
    let process = process();
    let document = |count: u32, body: &str| {
        format!(
            r#"{{"flowRules": [{{"resource": "a", "id": "a", "count": {count}}}], "envoy": {{"reply": {{"body": "{body}"}}}}}}"#
        )
    };
    let mut vm = Vm::born(&process, &document(2, "first"));
    assert_eq!(vm.passes("a", 9), 2);
    vm.configure(&document(2, "second"));
    for _ in 0..5 {
        assert_eq!(decide(&vm, "a", &[]).unwrap().3, "second");
    }
    vm.configure(&document(5, "third"));
    assert_eq!(vm.passes("a", 9), 3);
}

#[test]
fn no_interval_over_four_workers_that_repeat_holds_more_than_the_limit_of_a_client() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "a", "count": 5, "key": [{"header": "x-key"}]}, {"resource": "a", "count": 9, "id": "all"}]}"#;
    let vms: Vec<Vm> = (0..4).map(|_| Vm::born(&process, document)).collect();
    let mut random = fastrand::Rng::with_seed(11);
    let mut admitted = [const { Vec::new() }; 3];
    for _ in 0..30_000 {
        process.millis.set(process.millis.get() + random.u64(0..3));
        let vm = &vms[random.usize(0..4)];
        if random.u8(0..8) == 0 {
            vm.filter.on_tick();
        }
        let key = random.usize(0..2);
        if decide(vm, "a", &[("x-key", &key.to_string())]).is_none() {
            for of in [key, 2] {
                admitted[of].push(process.millis.get());
            }
        }
    }
    for (admitted, limit) in admitted.iter().zip([5, 5, 9]) {
        for window in admitted.windows(limit + 1) {
            assert!(window[limit] - window[0] >= 1000, "{window:?}");
        }
    }
    let all = &admitted[2];
    let allowed = (all[all.len() - 1] - all[0]) * 9 / 1000;
    assert!(
        all.len() as u64 * 100 >= allowed * 90,
        "{} of {allowed}",
        all.len()
    );
    let repeated = {
        vms.iter().for_each(|vm| vm.filter.on_tick());
        process.metric("leapgate.repeated_refusals").unwrap()
    };
    assert!(repeated > 10_000, "{repeated}");
}

/// Another worker reserves for a request that another rule then refuses; meanwhile a client is refused that would have had room.
#[test]
fn a_refusal_is_too_strict_for_a_second_at_most_where_another_worker_gives_back_what_it_had_reserved()
 {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "a", "id": "key", "count": 1, "intervalMs": 60000, "key": [{"header": "x-key"}]},
                                     {"resource": "a", "id": "all", "count": 0, "limitApp": "batch"}],
                       "envoy": {"origin": {"header": "x-app"}}}"#;
    let vms: Rc<Vec<Vm>> = Rc::new((0..2).map(|_| Vm::born(&process, document)).collect());
    let [client, batch] = ["shop", "batch"].map(|app| [("x-key", "1"), ("x-app", app)]);
    let mut refused_for = 0;
    for calls in 0..40 {
        process.millis.set(process.millis.get() + 100_000);
        let (others, told) = (Rc::clone(&vms), Rc::new(Cell::new(0)));
        let seen = Rc::clone(&told);
        let meanwhile = move || {
            let refused = |_: &usize| decide(&others[1], "a", &client).is_some();
            seen.set((0..2).filter(refused).count());
        };
        process
            .meanwhile
            .replace(Some((calls, Box::new(meanwhile))));
        decide(&vms[0], "a", &batch);
        process.meanwhile.take();
        if told.get() < 2 {
            continue; // it came before or after
        }
        let from = process.millis.get();
        while decide(&vms[1], "a", &client).is_some() {
            process.millis.set(process.millis.get() + 10);
        }
        refused_for = (process.millis.get() - from).max(refused_for);
    }
    assert_eq!(refused_for, 1000);
}

#[test]
fn a_flood_of_clients_keeps_no_refusals() {
    let process = process();
    let document = r#"{"flowRules": [{"resource": "a", "count": 0}, {"resource": "a", "count": 9, "id": "client", "key": [{"header": "x-key"}], "maxKeys": 10}]}"#;
    let vm = Vm::born(&process, document);
    for client in 0..100_000 {
        assert!(decide(&vm, "a", &[("x-key", &client.to_string())]).is_some());
        if client % 1000 == 0 {
            vm.filter.on_tick();
        }
    }
    vm.filter.on_tick();
    assert_eq!(process.metric("leapgate.repeated_refusals"), None);
    let long = "x".repeat(300);
    for _ in 0..10 {
        assert!(decide(&vm, "a", &[("x-key", &long)]).is_some());
    }
    vm.filter.on_tick();
    assert_eq!(process.metric("leapgate.repeated_refusals"), None);
}
