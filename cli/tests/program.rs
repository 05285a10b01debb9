//! The binary: files, packed and not, standard input, exit codes, and how much memory a long log takes.

#![cfg(feature = "native")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests are tests"
)]

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const RULES: &str =
    r#"{"flowRules": [{"resource": "login", "id": "login", "count": 2, "key": ["clientIp"]}]}"#;

/// A folder of this process' own.
fn folder(name: &str) -> PathBuf {
    let folder =
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("rules.json"), RULES).unwrap();
    folder
}

fn line(i: u64) -> String {
    let (second, ms) = (i / 100, i % 100 * 10);
    format!(
        "{{\"start_time\":\"2026-10-01T{:02}:{:02}:{:02}.{ms:03}Z\",\"route_name\":\"login\",\"method\":\"GET\",\"path\":\"/login\",\"response_code\":200,\"duration\":3,\"user_agent\":\"Mozilla/5.0 (X11; Linux x86_64; rv:130.0) Gecko/20100101 Firefox/130.0\",\"downstream_remote_address\":\"10.{}.{}.{}:4711\"}}\n",
        second / 3600 % 24,
        second / 60 % 60,
        second % 60,
        i / 65536 % 256,
        i / 256 % 256,
        i % 256
    )
}

fn log(lines: std::ops::Range<u64>) -> Vec<u8> {
    lines.flat_map(|i| line(i % 50).into_bytes()).collect()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

fn leapgate(arguments: &[&str], input: &[u8]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_leapgate"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have ended before it has read all.
    let _ = program.stdin.take().unwrap().write_all(input);
    program.wait_with_output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn check_says_what_was_read_or_what_is_wrong() {
    let folder = folder("check");
    let rules = folder.join("rules.json");
    let rules = rules.to_str().unwrap();
    assert_eq!(
        said(&leapgate(&["check", rules], b"")),
        (Some(0), format!("{rules}: 1 flow rule\n"), String::new())
    );
    assert_eq!(
        said(&leapgate(&["check", "-"], br#"{"flowRules": [{"resource": "a", "count": 1, "intervalMs": 997}]}"#)),
        (Some(0), "-: 1 flow rule; 1 warning\n".into(), "leapgate: flowRules[0].intervalMs: `997` has no divisor from 10 to 100, so its window has 1 bucket and may pass only 1/2 of the count; use `1000`\n".into())
    );
    assert_eq!(
        said(&leapgate(&["check", "-"], br#"{"flowRules": 5}"#)),
        (
            Some(1),
            String::new(),
            "leapgate: flowRules: `5` is a number; use an array\n".into()
        )
    );
    assert_eq!(
        said(&leapgate(&["check", "no/such/file"], b"")),
        (Some(1), String::new(), "leapgate: `no/such/file` cannot be read (No such file or directory (os error 2)); give the path of a file, or `-` for standard input\n".into())
    );
}

#[test]
fn a_log_is_the_same_packed_or_not_in_pieces_or_from_standard_input() {
    let folder = folder("replay");
    let (rules, plain, members, first) = ("rules.json", "a.log", "members.gz", "first.gz");
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let all = log(0..3000);
    std::fs::write(path(plain), &all).unwrap();
    // Two members, and the first ends within a line.
    std::fs::write(
        path(members),
        [packed(&all[..7777]), packed(&all[7777..])].concat(),
    )
    .unwrap();
    let half = log(0..1000);
    std::fs::write(path(first), packed(&half)).unwrap();
    std::fs::write(path("rest.log"), &all[half.len()..]).unwrap();
    let report = |logs: &[&str], input: &[u8]| {
        let rules = path(rules);
        let mut arguments = vec!["replay", "--json", &rules];
        arguments.extend(logs);
        let (code, json, error) = said(&leapgate(&arguments, input));
        assert_eq!((code, error.as_str()), (Some(0), ""), "{logs:?}");
        json
    };
    let expected = report(&[&path(plain)], b"");
    assert!(expected.contains("\"requests\":3000"), "{expected}");
    assert_eq!(report(&[&path(members)], b""), expected);
    assert_eq!(report(&[&path(first), &path("rest.log")], b""), expected);
    assert_eq!(report(&["-"], &all), expected);
    assert_eq!(report(&["-"], &packed(&all)), expected);
    // An archive that is broken off is read as far as it goes.
    let whole = packed(&all);
    let rules = path(rules);
    let (code, json, error) = said(&leapgate(
        &["replay", "--json", &rules, "-"],
        &whole[..whole.len() / 2],
    ));
    assert_eq!(code, Some(0));
    assert!(
        error.starts_with("leapgate: `-` is read up to a fault only ("),
        "{error}"
    );
    assert!(json.contains("\"lines\":"), "{json}");
}

#[test]
fn what_cannot_be_replayed_is_one_sentence() {
    let folder = folder("faults");
    let rules = folder.join("rules.json");
    let rules = rules.to_str().unwrap();
    let cases: [(&[&str], &[u8], &str); 3] = [
        (
            &["replay", "-", "-"],
            b"",
            "leapgate: `-` is given twice, and there is one standard input; give the path of a file\n",
        ),
        (
            &["replay", rules, "no.log"],
            b"",
            "leapgate: `no.log` cannot be read (No such file or directory (os error 2)); give the path of a log, packed by gzip or not, or `-` for standard input\n",
        ),
        (
            &["replay", rules, "-", "--fields", "$a$b"],
            b"",
            "leapgate: --fields: `$b` follows another value at once; put a character between the two\n",
        ),
    ];
    for (arguments, input, sentence) in cases {
        assert_eq!(
            said(&leapgate(arguments, input)),
            (Some(1), String::new(), sentence.into())
        );
    }
    let (code, _, error) = said(&leapgate(&["replay", rules, "-"], b"hello\n"));
    assert_eq!((code, error.lines().count()), (Some(1), 1), "{error}");
}

/// The most memory that the process has had, in kB.
#[cfg(target_os = "linux")]
fn peak_kb(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(target_os = "linux")]
#[test]
fn memory_does_not_grow_with_the_log() {
    let folder = folder("memory");
    let mut program = Command::new(env!("CARGO_BIN_EXE_leapgate"))
        .args(["replay", folder.join("rules.json").to_str().unwrap(), "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // 120 MB of 100 requests in a second, of a new client each.
    let mut input = program.stdin.take().unwrap();
    let (mut written, mut at_a_third, mut at_the_end) = (0, None, None);
    for i in 0.. {
        let line = line(i);
        written += line.len();
        input.write_all(line.as_bytes()).unwrap();
        if written > 40_000_000 && at_a_third.is_none() {
            at_a_third = peak_kb(program.id());
        }
        if written > 120_000_000 {
            at_the_end = peak_kb(program.id());
            break;
        }
    }
    drop(input);
    assert!(program.wait().unwrap().success());
    let (third, end) = (at_a_third.unwrap(), at_the_end.unwrap());
    // What grows is the trace of requests for the smallest limit, 12 bytes each, up to 48 MB.
    assert!(
        end < third + 12_000,
        "{third} kB after a third, {end} kB at the end"
    );
    assert!(end < 100_000, "{end} kB");
}
