//! mysql-ha-agent: a failover agent for MySQL replica sets.
//!
//! | module | holds | may use |
//! | --- | --- | --- |
//! | [`core`] | every decision, pure | std, serde derives |
//! | [`binlog`] | binary log files, read from their bytes | core types |
//! | [`zookeeper`] | the tree, the only user of the ZooKeeper client crate | core types |
//! | [`mysql`] | probes and control, the only user of the MySQL client crate | core types |
//! | [`config`] | the file as typed → the validated configuration | core |
//! | [`agent`] | observe → step → execute → publish | all of these |
//! | [`guard`] | the third party on the host that fences when the lease ends | config, mysql, host, parts of agent |
//! | [`cli`] | verbs, rendering, exit codes | agent, config |
//! | [`host`] | the host: clock, process, systemd, state directory | core types |
//! | [`http`] | pure path and status → answer, the metrics' text, the sockets | core |

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "agent")]
pub mod binlog;
#[cfg(feature = "agent")]
pub mod cli;
#[cfg(feature = "agent")]
pub mod config;
pub mod core;
#[cfg(feature = "agent")]
pub mod guard;
#[cfg(feature = "agent")]
pub mod host;
#[cfg(feature = "agent")]
pub mod http;
#[cfg(feature = "agent")]
pub mod mysql;
#[cfg(feature = "datasource")]
pub mod zookeeper;
