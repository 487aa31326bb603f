//! The agent: observe → step → execute → publish.
//!
//! | module | holds |
//! | --- | --- |
//! | [`run`] | start-up, the tasks, the orderly stop |
//! | [`turn`] | the decision loop: assembles a view, steps the core, hands actions to lanes |
//! | [`lanes`] | one thing at a time on MySQL, one on ZooKeeper, and the notes that nobody waits for |
//! | [`renewal`] | the lease's renewals, the observation riding in them |
//! | [`watcher`] | our own server: probes, readings, the process |
//! | [`fencer`] | makes the server read-only: a task, a connection and a deadline of its own |
//! | [`acquaint`] | makes our replication account known where it will be needed |
//! | [`kept`] | what the operator's rules need to outlive a restart |
//! | [`count`] | role changes as the metrics count them |
//! | [`http`] | what is said over HTTP, on a thread of its own |
//! | [`reload`] | SIGHUP |
//! | [`note`] | the lines kept in `state_dir`, and their one writer |
//! | [`shared`] | what the tasks share, and who writes which part |
//! | [`last_seen`] | what `prestart` has to know of our server once it is dead |
//! | [`record`] | what is published of our server |
//! | [`log`] | where the records of `tracing` go |
//!
//! Renewal, observation, execution and fencing are tasks of their own, so that a MySQL that hangs stops no renewal and
//! a ZooKeeper that hangs stops no fence. What may not live here: a decision. Those are in [`crate::core`].

pub mod acquaint;
pub mod count;
pub mod fencer;
pub mod http;
pub mod kept;
pub mod lanes;
pub mod last_seen;
pub mod log;
pub mod note;
pub mod record;
pub mod reload;
pub mod renewal;
pub mod run;
pub mod shared;
pub mod turn;
pub mod watcher;
