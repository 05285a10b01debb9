//! What JavaScript calls: numbers in, numbers out. A case is known by its place in [`cases::all`].

use std::cell::RefCell;

use crate::cases::{self, Run};

thread_local! {
    static RUNS: RefCell<Vec<Box<dyn Run>>> = const { RefCell::new(Vec::new()) };
}

/// Makes a case, and brings it to where it stays; its number among those made, or -1.
#[unsafe(no_mangle)]
extern "C" fn make(case: u32) -> i32 {
    let cases = cases::all();
    let Some((case, mut run)) = cases
        .get(case as usize)
        .and_then(|case| Some((case, case.make()?)))
    else {
        return -1;
    };
    run.run(case.to_fill());
    RUNS.with_borrow_mut(|runs| {
        runs.push(run);
        (runs.len() - 1) as i32
    })
}

/// Calls `f` with a case that was made.
fn with<R>(run: u32, f: impl FnOnce(&mut dyn Run) -> R) -> Option<R> {
    RUNS.with_borrow_mut(|runs| runs.get_mut(run as usize).map(|run| f(&mut **run)))
}

/// How many decisions follow each `prepare`; 0 if any number may.
#[unsafe(no_mangle)]
extern "C" fn batch(run: u32) -> u32 {
    with(run, |run| run.batch()).flatten().unwrap_or(0) as u32
}

/// Brings about what the next decisions are to find.
#[unsafe(no_mangle)]
extern "C" fn prepare(run: u32) {
    with(run, |run| run.prepare());
}

/// Decides so many times; how many decisions were as meant.
#[unsafe(no_mangle)]
extern "C" fn run(run: u32, times: u32) -> u32 {
    with(run, |run| run.run(times.into())).unwrap_or(0) as u32
}

/// Makes so many limiters of a case of [`cases::held`], and keeps them for good: the memory grows.
#[unsafe(no_mangle)]
extern "C" fn hold(case: u32, count: u32) {
    if let Some(case) = cases::held().get(case as usize) {
        (0..count)
            .filter_map(|_| case.hold())
            .for_each(std::mem::forget);
    }
}
