//! How fast, on real servers: `cargo bench --bench failover [-- --runs N] [--only CASE] [--timeline]`.
//!
//! Three hosts, each with mysqld, a ZooKeeper member and the release build of the agent; session timeout 3 s, heartbeat
//! 500 ms, renewals 300 ms, ZooKeeper's tick 200 ms, `lossless` with semi-sync. A client writes 200 rows a second all the
//! while, follows `topology` by a watch and keeps a connection open to every server. Printed are Markdown tables.
//!
//! **What is measured how.** The *gap* is the client's: the longest time without an acknowledged write, as a rule
//! that from its last on the old primary to its first on the new one, which the phases divide. *raced*, *caught up*, *claimed*, *waited*, *promoted* and *published* are the winner's own, from
//! `history/<epoch>`. *noticed* is what lies before them (from the last acknowledged write to the winner's noticing that
//! there is no primary), *writing again* what comes after, by the wall clock that all processes of one machine share (the
//! record has it in whole milliseconds). The percentiles of each row are its own: they do not add up. When mysqld is
//! killed, most of *noticed* is the kernel's: a process counts as dead when all its memory and threads are gone
//! (`--timeline` shows when the agent's watch on it fired). A host is killed with its ZooKeeper member, the cable first.
//!
//! Nothing is asserted about time. Acknowledged writes that were lost and servers that were writable at once are
//! counted in every run and printed; both have to be 0.

mod cases;
mod rest;
#[path = "../support/mod.rs"]
mod support;
// Used for its waiting; the live tests use the rest of it.
#[allow(dead_code, reason = "shared with the live tests")]
#[path = "../scene.rs"]
mod scene;
mod table;

use clap::Parser;

use cases::{Bench, Case};

/// What may be chosen.
#[derive(Parser)]
struct Options {
    /// Runs of each case.
    #[arg(long, default_value_t = 20)]
    runs: u32,
    /// One case alone.
    #[arg(long, value_enum)]
    only: Option<Case>,
    /// Print what the agents logged during each gap, on stderr.
    #[arg(long)]
    timeline: bool,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    support::run("bench", async |stage| {
        let mut bench = Bench::start(&stage, options.timeline).await;
        eprintln!("the agent is {}", support::binary().display());
        if options.only.is_none() {
            let rest = rest::measure(&bench.cluster).await;
            table::print_rest(&rest);
        }
        for case in Case::ALL.into_iter().filter(|case| options.only.is_none_or(|only| only == *case)) {
            let mut runs = Vec::new();
            for number in 1..=options.runs {
                let run = bench.run(case).await;
                eprintln!("{case}, run {number} of {}: {run}", options.runs);
                runs.push(run);
            }
            table::print_case(case, &runs);
        }
    });
}
