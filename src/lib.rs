//! mysql-ha-agent: a failover agent for MySQL replica sets.
//!
//! | module | holds | may use |
//! | --- | --- | --- |
//! | [`core`] | every decision, pure | std, serde derives |
//! | [`config`] | the file as typed → the validated configuration, all faults at once | core |
//! | [`zookeeper`] | the tree, the only user of the ZooKeeper client crate | core types |
//! | [`mysql`] | probes and control, the only user of the MySQL client crate | core types |
//! | [`host`] | the host: clock, process, systemd, state directory | core types |
//! | [`cli`] | verbs, rendering, exit codes | all above, config |

pub mod core;
#[cfg(feature = "agent")]
pub mod cli;
#[cfg(feature = "agent")]
pub mod config;
#[cfg(feature = "agent")]
pub mod mysql;
#[cfg(feature = "datasource")]
pub mod zookeeper;
#[cfg(feature = "agent")]
pub mod host;
