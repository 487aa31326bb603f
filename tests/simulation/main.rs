//! The real decision core in a simulated world (design section 4): seeded, so that a failing run can be looked at again.
//!
//! `SIM_SEEDS=N` runs N seeds from 0 on; `SIM_SEED=S` runs one and prints what happened in it.

mod agent;
mod chance;
mod ensemble;
mod hands;
mod keeper;
mod mysqld;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use world::World;

/// How many lines of a failed run are printed.
const LINES: usize = 200;

/// Runs one seed; what was wrong with the trace ahead of it, or how many promotions there were.
fn run(seed: u64) -> Result<(u64, String), String> {
    let mut world = World::new(seed);
    let outcome = catch_unwind(AssertUnwindSafe(|| world.run()));
    let skip = world.trace.len().saturating_sub(LINES);
    let trace = world.trace[skip..].join("\n");
    match outcome {
        Ok(()) => Ok((world.promotions, trace)),
        Err(cause) => {
            let text = cause.downcast_ref::<String>().cloned();
            let text = text.or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Err(format!("{trace}\n{:>6} SIM_SEED={seed}: {}", world.t, text.unwrap_or_default()))
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn promises_hold_under_faults() {
    if let Some(seed) = number("SIM_SEED") {
        match run(seed) {
            Ok((promotions, trace)) => println!("{trace}\n{promotions} promotions, nothing wrong"),
            Err(trace) => panic!("{trace}"),
        }
        return;
    }
    let seeds = number("SIM_SEEDS").unwrap_or(300);
    let (next, promotions) = (AtomicU64::new(0), AtomicU64::new(0));
    let failures = std::thread::scope(|scope| {
        let work = || {
            let mut failures = Vec::new();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds {
                    return failures;
                }
                match run(seed) {
                    Ok((count, _)) => drop(promotions.fetch_add(count, Ordering::Relaxed)),
                    Err(trace) => failures.push((seed, trace)),
                }
            }
        };
        let threads = [scope.spawn(work), scope.spawn(work)];
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let mut failed: Vec<u64> = failures.iter().map(|(seed, _)| *seed).collect();
    failed.sort_unstable();
    let first = failures.iter().min_by_key(|(seed, _)| *seed);
    assert!(failed.is_empty(), "{}\n{} of {seeds} seeds failed: {failed:?}", first.unwrap().1, failed.len());
    // A simulation in which nothing happens shows nothing.
    assert!(promotions.load(Ordering::Relaxed) > seeds, "hardly any promotion: the faults do nothing");
}
