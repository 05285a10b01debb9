//! Several processes at a time.

use std::sync::Mutex;

use anyhow::{Result, anyhow};

/// The results of all jobs, in their order: as many are done at a time as there are cores.
pub(crate) fn map<J: Sync>(
    jobs: &[J],
    work: impl Fn(&J) -> Result<f64> + Sync,
) -> Result<Vec<f64>> {
    let (left, found) = (Mutex::new(jobs.iter().enumerate()), Mutex::new(Vec::new()));
    let take = || left.lock().ok()?.next();
    let worker = || {
        while let Some((index, job)) = take() {
            let value = work(job)?;
            if let Ok(mut found) = found.lock() {
                found.push((index, value));
            }
        }
        anyhow::Ok(())
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| {
            let done = worker.join();
            done.map_err(|_| anyhow!("a worker panicked"))?
        })
    })?;
    let mut found = found
        .into_inner()
        .map_err(|_| anyhow!("a worker panicked"))?;
    found.sort_by_key(|(index, _)| *index);
    Ok(found.into_iter().map(|(_, value)| value).collect())
}
