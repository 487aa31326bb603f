//! The program behind `tests/chaos`: random faults on real servers under writers, for as long as asked, and every promise
//! checked after each round.
//!
//! Ends with 0 only if everything held; with 1 if not (the files of all hosts are kept, and how to repeat it is printed), 2
//! for a wrong option. `MYSQL_HA_AGENT` is the agent's binary (else `target/release/mysql-ha-agent`).

mod chaos_driver {
    #[path = "../simulation/chance.rs"]
    pub(crate) mod chance;
    pub(crate) mod ensemble;
    #[path = "../demo_driver/interrupt.rs"]
    pub(crate) mod interrupt;
    pub(crate) mod plan;
    pub(crate) mod report;
    pub(crate) mod run;
    pub(crate) mod strike;
}
#[allow(dead_code, reason = "the tests' way to begin and end is not that of a long run")]
mod scene;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::time::Duration;

use chaos_driver::interrupt::Interrupt;
use chaos_driver::run::{Order, Story, run};
use clap::Parser;

/// Random faults on real servers under writers; every promise is checked after each round.
#[derive(Parser)]
#[command(name = "tests/chaos")]
struct Options {
    /// For how long; a round that has begun is brought to its end.
    #[arg(long, default_value_t = 3)]
    minutes: u64,
    /// Decides what happens, where and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many hosts: 3 or 5.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=5))]
    hosts: u8,
}

fn main() {
    let options = Options::parse();
    let Options { minutes, seed, hosts } = options;
    let interrupt = Interrupt::listen();
    let (story, mut places) = (Story::default(), Vec::new());
    println!("chaos: seed {seed}, {hosts} hosts, {minutes} min");
    let order = Order { length: Duration::from_secs(60 * minutes), seed, hosts };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        support::run(&format!("chaos_{seed}"), async |stage| {
            places.extend([stage.folder().to_owned(), stage.sockets().to_owned()]);
            if !stage.can_partition() {
                eprintln!("tests/chaos: the network cannot be cut with loopback addresses; run it as root");
                return 2;
            }
            tokio::select! {
                figures = run(&stage, order, &story) => {
                    println!("seed {seed}, {hosts} hosts, {minutes} min: {figures}");
                    i32::from(!figures.all_kept())
                }
                code = interrupt.raised() => code,
            }
        })
    }));
    if interrupt.is_raised() {
        // A copy that was under way may have gone on after the stage was cleared.
        places.iter().for_each(|place| drop(std::fs::remove_dir_all(place)));
    }
    std::process::exit(outcome.unwrap_or_else(|_| {
        eprintln!("\nchaos failed. What was done until then:");
        story.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|line| eprintln!("{line}"));
        eprintln!("\nRepeat it: tests/chaos --minutes {minutes} --seed {seed} --hosts {hosts}");
        1
    }));
}
