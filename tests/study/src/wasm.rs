//! What JavaScript calls: numbers in, numbers out. A case is known by its place in [`cases::all`].

use std::cell::RefCell;

use crate::cases::{self, Run};

thread_local! {
    static RUNS: RefCell<Vec<Box<dyn Run>>> = const { RefCell::new(Vec::new()) };
}

/// Makes a case; its number among those made, or -1.
#[unsafe(no_mangle)]
extern "C" fn make(case: u32) -> i32 {
    let run = cases::all().get(case as usize).and_then(cases::Case::make);
    run.map_or(-1, |run| {
        RUNS.with_borrow_mut(|runs| {
            runs.push(run);
            (runs.len() - 1) as i32
        })
    })
}

/// How many decisions follow each `prepare`; 0 if as many as one likes.
#[unsafe(no_mangle)]
extern "C" fn batch(run: u32) -> u32 {
    RUNS.with_borrow(|runs| {
        runs.get(run as usize)
            .and_then(|run| run.batch())
            .map_or(0, |batch| batch as u32)
    })
}

/// Prepares.
#[unsafe(no_mangle)]
extern "C" fn prepare(run: u32) {
    RUNS.with_borrow_mut(|runs| {
        if let Some(run) = runs.get_mut(run as usize) {
            run.prepare();
        }
    });
}

/// Decides so many times; how many decisions were as meant.
#[unsafe(no_mangle)]
extern "C" fn run(run: u32, times: u32) -> u32 {
    RUNS.with_borrow_mut(|runs| {
        runs.get_mut(run as usize)
            .map_or(0, |run| run.run(times.into()) as u32)
    })
}

/// Fills so many windows of a case of [`cases::held`] and keeps them: the memory grows.
#[unsafe(no_mangle)]
extern "C" fn hold(case: u32, count: u32) {
    let held = cases::held();
    let Some(case) = held.get(case as usize) else {
        return;
    };
    for mut run in (0..count).filter_map(|_| case.make()) {
        run.run(case.to_fill());
        RUNS.with_borrow_mut(|runs| runs.push(run));
    }
}
