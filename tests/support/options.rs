//! What a test may choose about its cluster, and the two configuration files that follow from it.

use std::net::Ipv4Addr;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::network::{MYSQL_PORT, ZOOKEEPER_PORT};

/// What a test may choose about its cluster. The defaults are those of most live tests: three hosts, semi-synchronous
/// replication, a session timeout of 3 s.
#[derive(Clone, Debug)]
pub(crate) struct ClusterOptions {
    /// The cluster's name: its folder, and its node in ZooKeeper.
    pub(crate) name: String,
    /// How many hosts, named db1, db2, …; db1 starts as the primary.
    pub(crate) hosts: u8,
    /// Whether the others replicate from db1, which is writable, at the start. Without, every server is writable.
    pub(crate) replicate: bool,
    /// Whether semi-sync is switched on by hand at the start: db1 waits, the others (and db1 as a replica) acknowledge.
    pub(crate) semi_sync: bool,
    /// Whether each host has a replication account of its own (`repl_db1`, …), named in its agent's file. Replication is set up by
    /// hand with the one for all, as in a cluster that has run before: the agents go over to their own.
    pub(crate) own_accounts: bool,
    /// ZooKeeper's tick in ms: sessions are expired in steps of it.
    pub(crate) tick_ms: u32,
    /// Gives every mysqld a disk of its own of so many MB for its data directory; needs namespaces.
    pub(crate) small_disks: Option<u32>,
    /// More options for every mysqld; a later one beats an earlier.
    pub(crate) mysqld: Vec<String>,
    /// Changes to the agents' configuration, in order ([`ClusterOptions::set`]): host (`*` for all), key with dots, value.
    pub(crate) settings: Vec<(String, String, Value)>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        let settings = [
            ("zookeeper.session_timeout", json!("3s")),
            // 0.3 + 3 × 0.5 + 0.5 + 0.06 s of 3 s: the rule of the contract's section 1.
            ("zookeeper.renew_interval", json!("300ms")),
            ("zookeeper.op_timeout", json!("500ms")),
            ("fencing.budget", json!("500ms")),
            ("heartbeat.interval", json!("500ms")),
            ("heartbeat.timeout", json!("500ms")),
            ("failover.durability", json!("async")),
            // Tests fail over more than once.
            ("failover.cooldown", json!("0s")),
        ];
        Self {
            name: "live".into(),
            hosts: 3,
            replicate: true,
            semi_sync: true,
            own_accounts: false,
            tick_ms: 200,
            small_disks: None,
            mysqld: Vec::new(),
            settings: settings.into_iter().map(|(key, value)| ("*".into(), key.into(), value)).collect(),
        }
    }
}

impl ClusterOptions {
    /// Sets a key of the agents' configuration (contract, section 1) on `host`, or on all by `*`.
    pub(crate) fn set(mut self, host: &str, key: &str, value: impl Into<Value>) -> Self {
        self.settings.push((host.into(), key.into(), value.into()));
        self
    }

    /// The replication account in the file of a host's agent.
    pub(crate) fn account(&self, host: &str) -> String {
        if self.own_accounts { format!("repl_{host}") } else { "repl".into() }
    }

    /// The node in ZooKeeper below which the cluster's tree stands.
    pub(crate) fn node(&self) -> String {
        format!("/mysql-ha/{}", self.name)
    }

    /// The text of `agent.yaml` for one host, which has its folder and socket.
    pub(super) fn agent_yaml(
        &self,
        host: &str,
        ensemble: &[Ipv4Addr],
        address: Ipv4Addr,
        folder: &Path,
        socket: &Path,
    ) -> String {
        let members: Vec<String> = ensemble.iter().map(|member| format!("{member}:{ZOOKEEPER_PORT}")).collect();
        let mut file = json!({
            "cluster": self.name,
            "name": host,
            "zookeeper": {"hosts": members},
            "mysql": {
                "socket": socket,
                "user": "agent",
                "password": "agent-secret",
                "advertise": format!("{address}:{MYSQL_PORT}"),
                "replication": {"user": self.account(host), "password": "repl-secret"},
            },
            "http": {"listen": format!("{address}:8008")},
            "state_dir": folder.join("state"),
            "run_dir": folder.join("run"),
        });
        for (_, key, value) in self.settings.iter().filter(|(of, ..)| of == "*" || of == host) {
            put(&mut file, key, value.clone());
        }
        serde_yaml::to_string(&file).expect("JSON can be written as YAML")
    }

    /// The text of ZooKeeper's configuration for one member.
    pub(super) fn zoo_cfg(&self, ensemble: &[Ipv4Addr], address: Ipv4Addr, folder: &Path) -> String {
        let servers: String =
            (1..).zip(ensemble).map(|(id, member)| format!("server.{id}={member}:12888:13888\n")).collect();
        // A member that waits long for a dead one would make an election last longer than what is tested.
        format!(
            "dataDir={}\ntickTime={}\ninitLimit=50\nsyncLimit=10\ncnxTimeout=500\n\
             minSessionTimeout={}\nmaxSessionTimeout=60000\nclientPort={ZOOKEEPER_PORT}\nclientPortAddress={address}\n\
             maxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=srvr,stat,mntr,ruok,cons\n{servers}",
            folder.join("zookeeper").display(),
            self.tick_ms,
            2 * self.tick_ms,
        )
    }
}

/// Changes a key of an agent's configuration file.
pub(super) fn change(file: &Path, key: &str, value: Value) {
    let text = std::fs::read_to_string(file).expect("the configuration can be read");
    let mut tree: Value = serde_yaml::from_str(&text).expect("the configuration is YAML");
    put(&mut tree, key, value);
    std::fs::write(file, serde_yaml::to_string(&tree).expect("JSON can be written as YAML"))
        .expect("it can be written");
}

/// Sets `key` (with dots) in a tree of objects, making those that are missing.
pub(super) fn put(tree: &mut Value, key: &str, value: Value) {
    match key.split_once('.') {
        None => tree[key] = value,
        Some((first, rest)) => {
            if !tree[first].is_object() {
                tree[first] = Value::Object(Map::new());
            }
            put(&mut tree[first], rest, value);
        }
    }
}
