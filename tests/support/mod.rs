//! Real clusters for the live tests, the demo and the benchmark: some hosts, each with a real mysqld, a real ZooKeeper
//! member and the agent under test, in one process tree that ends with the test.
//!
//! A test reads like this:
//!
//! ```ignore
//! #[test]
//! fn primary_killed() {
//!     support::run("primary_killed", async |stage| {
//!         let cluster = Cluster::start(&stage, ClusterOptions::default()).await;
//!         cluster.start_agents();
//!         let writer = Writer::start(&cluster, WriterOptions::default()).await;
//!         let probe = ReadOnlyProbe::start(&cluster);
//!         cluster.kill("db1", Kind::Mysqld);
//!         cluster.wait_for_topology("db2 or db3 writes", SECONDS_30, |t| t["primary"] != "db1").await;
//!         probe.stop().await.assert_one_writer();
//!         assert_nothing_lost(&cluster, &writer.stop().await).await;
//!     });
//! }
//! ```
//!
//! As root every host is a network namespace on a bridge in one more namespace, the hub, in which the test itself
//! lives; else, or with `MYSQL_HA_NET=loopback`, every host is a loopback address and nothing can be cut off
//! ([`Stage::can_partition`]). Helpers panic with what happened and where to look: everything here is used by tests.
//! Nothing looks inside the agent: files, verbs, ZooKeeper's tree and SQL are all it knows.

// Each test target compiles this module for itself and uses only part of it.
#![allow(dead_code, unused_imports, reason = "shared by several targets, each of which uses a part")]

mod balancer;
mod checks;
mod cluster;
mod faults;
mod host;
mod http;
mod line;
mod network;
mod operator;
mod options;
mod probe;
mod process;
mod sql;
mod stage;
mod tree;
mod verbs;
mod writer;

pub(crate) use balancer::Balancer;
pub(crate) use checks::{assert_nothing_lost, missing, next_heartbeat, wait_for};
pub(crate) use cluster::Cluster;
pub(crate) use host::{Host, Kind};
pub(crate) use http::{Said, ask, open_connection};
pub(crate) use network::{MYSQL_PORT, Way, ZOOKEEPER_PORT};
pub(crate) use options::ClusterOptions;
pub(crate) use probe::{Probed, ReadOnlyProbe, Span};
pub(crate) use stage::{Stage, repository, run, run_kept};
pub(crate) use tree::Tree;
pub(crate) use verbs::{VerbOutput, binary};
pub(crate) use writer::{Follow, Gap, Outcome, Paused, Write, Writer, WriterOptions, Written};
