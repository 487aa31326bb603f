//! The configuration from outside: whole files in, configurations or faults out.

mod example;
mod faults;
mod secrets;
mod whole;

use super::{Config, Faults, parse};

/// The least a file must have.
pub(super) const LEAST: &str = "\
cluster: orders
name: db1
zookeeper:
  hosts: [zk1:2181, zk2:2181]
mysql:
  user: agent
  password: hunter2
  advertise: db1:3306
  replication:
    user: repl
    password: hunter3
failover:
  durability: lossless
";

/// Reads `text` as `agent.yaml` with an environment that holds `SET=from-env` alone.
pub(super) fn read(text: &str) -> Result<Config, Faults> {
    parse(text, "agent.yaml", &|name| (name == "SET").then(|| "from-env".to_owned()))
}

/// [`LEAST`] with one line replaced by others.
pub(super) fn least_with(line: &str, others: &str) -> String {
    assert!(LEAST.contains(line), "{line}");
    LEAST.replacen(line, others, 1)
}
