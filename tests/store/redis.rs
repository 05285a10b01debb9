//! The script as it is, by Redis's own clock.

use crate::server::Server;
use crate::traces::BAD;
use leapgate::lease::{Answer, REDIS_SCRIPT, REDIS_SCRIPT_SHA1, Request};
use std::time::{Duration, Instant};

/// At most 100 in 400 ms: a key counts for at most 700 ms.
const REQUEST: &str = "1-3-7-0-100-400-4-50-10-1";

/// The same in a minute, which counts for 73 s.
const MINUTE: &str = "1-3-7-0-100-60000-60-50-10-1";

fn eval(server: &mut Server, key: &str, request: &str) -> Result<String, String> {
    let command = ["EVAL", REDIS_SCRIPT, "1", key, request].map(str::as_bytes);
    let answer = server.call(&command)?;
    Ok(String::from_utf8(answer).unwrap())
}

fn lease(server: &mut Server, key: &str, request: &str) -> Answer {
    Answer::parse(&eval(server, key, request).unwrap()).unwrap()
}

/// Waits until the server is so old that it must know of all leases, and leases `REQUEST`.
fn lease_when_old(server: &mut Server, key: &str) -> Answer {
    let since = Instant::now();
    loop {
        let answer = lease(server, key, REQUEST);
        if answer.granted > 0 {
            return answer;
        }
        assert!(since.elapsed() < Duration::from_secs(20), "{answer:?}");
        // As a node does, but no shorter.
        let wait = format!("BLPOP {key}:none 0.{:03}", answer.retry_ms.clamp(10, 999));
        server.say(&wait).unwrap();
    }
}

#[test]
fn redis_knows_the_script_by_its_sha1() {
    let mut server = Server::start(&[]);
    let by_sha1 = format!("EVALSHA {REDIS_SCRIPT_SHA1} 1 key {REQUEST}");
    let unknown = server.say(&by_sha1).unwrap_err();
    assert!(unknown.starts_with("NOSCRIPT "), "{unknown}");
    let sha1 = server.call(&[b"SCRIPT", b"LOAD", REDIS_SCRIPT.as_bytes()]);
    assert_eq!(String::from_utf8(sha1.unwrap()).unwrap(), REDIS_SCRIPT_SHA1);
    Answer::parse(&server.say(&by_sha1).unwrap()).unwrap();
    server.say("SCRIPT FLUSH").unwrap();
    eval(&mut server, "key", REQUEST).unwrap();
    Answer::parse(&server.say(&by_sha1).unwrap()).unwrap();
}

/// What the script answers if a key has a value that it has not written.
const FOREIGN: &str =
    "the value of this key is not one of the script of leapgate: take another prefix of keys";

#[test]
fn a_value_of_another_program_is_named_and_stays() {
    let mut server = Server::start(&[]);
    eval(&mut server, "own", REQUEST).unwrap();
    let own = server.call(&[b"GET", b"own"]).unwrap();
    let values: [&[u8]; 10] = [
        b"",
        b"42",
        b"abcd",
        b"abcdefgh",
        b"{\"tokens\":3}",
        b"\x91\x01",
        b"\x91\x01\x90\x90\x90",
        b"\x95\x02\x00\x00\x00\x00\x90\x90\x90",
        b"\xa1a\x90\x90\x90",
        &own[..own.len() / 2],
    ];
    for value in values {
        server.call(&[b"SET", b"key", value]).unwrap();
        let answer = eval(&mut server, "key", REQUEST);
        assert_eq!(answer.as_deref(), Ok(FOREIGN), "{}", value.escape_ascii());
        assert_eq!(server.call(&[b"GET", b"key"]).unwrap(), value);
    }
    server.say("LPUSH list a").unwrap();
    assert_eq!(eval(&mut server, "list", REQUEST).as_deref(), Ok(FOREIGN));
    assert_eq!(server.say("LLEN list").unwrap(), "1");
}

#[test]
fn what_is_not_a_request_writes_nothing() {
    let mut server = Server::start(&[]);
    for request in [
        "",
        "-",
        "1",
        "hello",
        "1-3-7-0-100-400-4-50-10",
        "1-3-7-0-100-400-4-50-10-",
        "2-3-7-100-400-4-50-10-1",
        "1-3-7-0-9007199254740992-400-4-50-10-1",
        "1-3-7-0-100-0-1-50-10-1",
        "1-3-7-0-100-315360000001-1-50-10-1",
        "1-3-7-0-100-400-3-50-10-1",
        "1-3-7-0-100-1001-1001-50-10-1",
        "1-3-7-0-100-400-4-0-10-1",
        "1-3-7-0-100-400-4-201-10-1",
        "1-3-7-0-100-400-4-50-10-11",
        "1-3-7-0-100-400-4-50-10-1-3-1-0",
        "1-3-7-0-100-400-4-50-10-1-3-1-0-2-5-1",
    ] {
        let answer = eval(&mut server, "key", request);
        assert_eq!(answer.as_deref(), Ok(BAD), "{request}");
        assert_eq!(Request::parse(request), None, "{request}");
    }
    assert_eq!(server.say("EXISTS key").unwrap(), "0");
}

/// A server that is younger than a minute's window, which counts for 73 seconds, grants nothing of it.
fn expect_full(server: &mut Server) {
    let young = lease(server, "minute", MINUTE);
    assert_eq!((young.granted, young.remaining), (0, 0));
    assert!((60_000..=73_000).contains(&young.retry_ms), "{young:?}");
}

/// Each step needs a server that is old enough, so they are one test.
#[test]
fn only_a_store_that_remembers_a_window_grants() {
    let since = Instant::now();
    let mut server = Server::start(&[]);
    expect_full(&mut server);
    let old = lease_when_old(&mut server, "key");
    assert_eq!((old.granted, old.remaining), (10, 90));
    assert!(since.elapsed() >= Duration::from_millis(700));

    // It forgets a key when nothing of it counts.
    let left: u64 = server.say("PTTL key").unwrap().parse().unwrap();
    assert!((1..=700).contains(&left), "{left}");
    while server.say("EXISTS key").unwrap() == "1" {
        server.say("BLPOP none 0.02").unwrap();
    }
    let all = "1-3-7-0-100-400-4-50-100-1";
    assert_eq!(lease(&mut server, "key", all).granted, 100);
    assert_eq!(lease(&mut server, "key", all).granted, 0);
    // The nodes do not learn that the server forgets here: so much is over.
    server.say("FLUSHALL").unwrap();
    assert_eq!(lease(&mut server, "key", all).granted, 100);

    // What it is asked while it is stopped counts from when it goes on.
    server.signal("-STOP");
    let settled = format!("{all}-0-1-0-1-0-1");
    let command = ["EVAL", REDIS_SCRIPT, "1", "stopped", &settled].map(str::as_bytes);
    server.send(&command);
    server.signal("-CONT");
    let answer = String::from_utf8(server.reply().unwrap()).unwrap();
    assert_eq!(Answer::parse(&answer).unwrap().granted, 99);

    // Killed, and started again with nothing.
    drop(server);
    let mut server = Server::start(&[]);
    expect_full(&mut server);
    assert_eq!(lease_when_old(&mut server, "key").granted, 10);
}

#[test]
fn a_cluster_takes_the_script() {
    let free = || {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port().to_string()
    };
    let (port, bus) = (free(), free());
    let options = [
        "--cluster-enabled",
        "yes",
        "--port",
        &port,
        "--cluster-port",
        &bus,
    ];
    let mut server = Server::start(&options);
    server.say("CLUSTER ADDSLOTSRANGE 0 16383").unwrap();
    while !server
        .say("CLUSTER INFO")
        .unwrap()
        .contains("cluster_state:ok")
    {
        server.say("PING").unwrap();
    }
    let answer = lease_when_old(&mut server, "leapgate:login:400:4:alice");
    assert_eq!(answer.granted, 10);
}

#[test]
fn a_full_redis_refuses_the_script_and_forgets_nothing() {
    let mut server = Server::start(&["--maxmemory-policy", "noeviction"]);
    eval(&mut server, "key", MINUTE).unwrap();
    let before = server.call(&[b"GET", b"key"]).unwrap();
    server.say("CONFIG SET maxmemory 1").unwrap();
    let error = eval(&mut server, "key", MINUTE).unwrap_err();
    assert!(error.starts_with("OOM "), "{error}");
    server.say("CONFIG SET maxmemory 0").unwrap();
    assert_eq!(server.call(&[b"GET", b"key"]).unwrap(), before);
}

#[test]
fn a_redis_whose_user_may_not_ask_for_its_uptime_is_taken_for_an_old_one() {
    let mut server = Server::start(&[]);
    server.say("ACL SETUSER default -info").unwrap();
    assert_eq!(lease(&mut server, "key", REQUEST).granted, 10);
}
