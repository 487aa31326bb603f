//! The protocol of design section 2 for three servers, searched exhaustively: every order in which the steps can come,
//! within bounds, with every rule in force; and, with one rule taken out at a time, the shortest way to a broken promise.
//!
//! This is a model of the rules, not the code: a function here names the row or function of `src/core` whose rule it is, so
//! that both can be compared. What is modelled and what is left out stands in `world.rs`, the steps in `step.rs` and the files
//! it names, the rules in `rules.rs`, the promises in `promises.rs`.
//!
//! - `whole.rs`: all rules in force; the search is complete for its bounds and nothing is broken.
//! - `each_rule.rs`: a rule is missing, and the search must notice. `--nocapture` prints how it goes wrong.
//! - `failsafe.rs`: the verdict on "acknowledgements as a lease", with the rule that passes.
//!
//! `EXHAUSTIVE=full` takes the larger bounds (some minutes more, and a few GB); `cargo test --test exhaustive -- --nocapture`
//! prints the number of states and the time of each search.
//!
//! # Bounds
//!
//! Three servers, S = {db2, db3} at first, k = 1 or 2. T is 2 ticks (3 in one search), a lease may be renewed without end. One
//! client write (2 in full), two epochs (3 in some), one fault (2 in full) beyond what needs none: a lease that is not renewed,
//! an agent, a message or a ZooKeeper connection that is slow for as long as you like, a planned switch, a changed S.
//!
//! # Measured
//!
//! States (generated ones) of the searches in `whole.rs`, in millions: crashes and expiries 0.56 (2.2), three epochs 0.14 (0.6), k = 2
//! 0.39 (1.6), relay logs 0.66 (2.9), pauses 0.43 (1.8), switches 0.34 (1.2), late answers 0.74 (3.3), late claims 0.69 (3.7), late
//! votes 0.62 (3.1), late renewals 0.53 (2.4), changes of S 0.19 (0.8), no fence 0.42 (1.6). Those of `failsafe.rs`: 0.01 to 0.17 each.
//! All tests together: 68 s of processor time, 300 MB at the most for two at a time, on a Xeon shared with others.
//!
//! Larger bounds, each run once with nothing broken: two writes 3.1 (12.5), three epochs with a fault 2.9 (11.5), two faults 2.6 (12.4),
//! late removals from S 2.0 (10.3), late renewals with a lost answer 4.3 (22.4), late answers with crashes 1.4 (6.2), relay logs with
//! expiries 0.9 (4.1).
//!
//! # Found
//!
//! - A vote that lands after the primary is back counts without what its member has acknowledged since
//!   (`each_rule::interleaving_03_a_vote_that_lands_after_the_primary_is_back`): row R8's transaction has to check `topology` and `lease`.
//! - The S that a new primary records must keep the members of the carried-over S that follow it already.
//! - With the failsafe, a primary that publishes on its proof alone fights for ever with members that name nobody.
//!
//! # Not modelled
//!
//! Degrading and restoring (interleavings 5 in part and 16), the removal of an unreachable member by account lock and killed dump
//! thread (6), the guard as a process of its own (that the server is read-only at the lease's end is one rule here, whoever
//! does it), semi-sync's own time limit (9), `prestart` (11), `pause` (12), `async`, watermarks (17), and anything that several
//! channels, zones or priorities bring in. These are for the simulation and the live tests.

#![allow(clippy::unwrap_used)] // a test ends by it

#[path = "exhaustive/each_rule.rs"]
mod each_rule;
#[path = "exhaustive/ensemble.rs"]
mod ensemble;
#[path = "exhaustive/failsafe.rs"]
mod failsafe;
#[path = "exhaustive/faults.rs"]
mod faults;
#[path = "exhaustive/mysql.rs"]
mod mysql;
#[path = "exhaustive/promises.rs"]
mod promises;
#[path = "exhaustive/proof.rs"]
mod proof;
#[path = "exhaustive/race.rs"]
mod race;
#[path = "exhaustive/role.rs"]
mod role;
#[path = "exhaustive/rules.rs"]
mod rules;
#[path = "exhaustive/search.rs"]
mod search;
#[path = "exhaustive/step.rs"]
mod step;
#[path = "exhaustive/symmetry.rs"]
mod symmetry;
#[path = "exhaustive/sync_set.rs"]
mod sync_set;
#[path = "exhaustive/time.rs"]
mod time;
#[path = "exhaustive/whole.rs"]
mod whole;
#[path = "exhaustive/world.rs"]
mod world;
