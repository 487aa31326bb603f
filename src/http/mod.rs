//! What the agent says over HTTP (contract, section 4).
//!
//! | module | holds |
//! | --- | --- |
//! | [`answer`] | one pure function: method, target, what is known, now → status and body |
//! | [`query`] | the target of a request: path, and what a reader asks of a replica |
//! | [`metrics`] | the same for `/metrics`: the text of every metric |
//! | [`tally`] | what is counted while the agent runs: histograms and counters |
//! | [`server`] | sockets: reads a head, writes an answer, closes; everything bounded |
//!
//! What may not live here: a decision (whether this server takes writes is [`crate::core::serving`]'s word), anything that waits for
//! MySQL or ZooKeeper, and anything that changes something. Nobody in the agent waits for anything here.

pub mod answer;
pub mod metrics;
pub mod query;
pub mod server;
pub mod tally;
