//! The command of the study runs, natively and in V8.

use std::process::Command;

use leapgate_study::cases::Structure::{Leapgate, List, TokenBucket};

#[test]
fn the_study_measures_windows_natively_and_in_v8() {
    let module = std::env::var_os("LEAPGATE_STUDY_WASM");
    let module = module.expect(
        "`./build.sh test study` builds the study's module, and names it in LEAPGATE_STUDY_WASM",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_leapgate-bench"))
        .args(["study", "smoke"])
        .env("LEAPGATE_STUDY_WASM", module)
        .output()
        .unwrap();
    let (printed, said) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}");
    let structures = [Leapgate, List, TokenBucket];
    for table in ["buckets, ns\n", "buckets, wasm ns\n"] {
        let (_, rows) = printed.split_once(table).unwrap();
        let rows: Vec<&str> = rows.lines().skip(2).take(structures.len()).collect();
        for (structure, row) in structures.iter().zip(rows) {
            let nanos = row.strip_prefix(structure.name()).unwrap().trim();
            let nanos: f64 = nanos.replace(' ', "").parse().unwrap();
            assert!(nanos > 0.0, "{row}");
        }
    }
    assert!(printed.ends_with("docs/study.md stays as it is: not all of it was measured.\n"));
}
