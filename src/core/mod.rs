//! Every decision of the agent, as pure functions of what was observed.
//!
//! What lives here: the records of the tree in ZooKeeper ([`records`]), what an agent observes ([`view`]), what it can
//! do ([`action`]), why ([`reason`]), the step from the one to the other ([`table`]), and the same for the
//! guard, which decides much less ([`guard`]). What may not: clocks, I/O, async, logging, randomness, or any crate but `serde` (derives) and `thiserror`. Time is a [`time::Moment`] that is
//! passed in. A test (`layers`) reads the sources and holds this rule.

pub mod action;
pub mod case;
pub mod changes;
pub mod consent;
pub mod degrade;
pub mod duration;
pub mod election;
pub mod failsafe;
pub mod fenced;
pub mod fencing;
pub mod gtid;
pub mod guard;
pub mod health;
pub mod holdings;
pub mod memory;
pub mod observe;
pub mod outcome;
pub mod phase;
pub mod prospects;
pub mod reason;
pub mod records;
pub mod rewind;
pub mod rows;
pub mod serving;
pub mod status;
pub mod table;
pub mod time;
pub mod timing;
pub mod view;
