//! Where each record stands and how it is written down: node paths and JSON, in both directions.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::core::action::{Path, Record};
use crate::core::records::Topology;

pub(super) const AGENTS: &str = "agents";
pub(super) const ELECTION: &str = "election";
pub(super) const INCIDENTS: &str = "incidents";
pub(super) const HISTORY: &str = "history";
const CONTROL: &str = "control";

const LOCK_PREFIX: &str = "election/lock-";
const INCIDENT_PREFIX: &str = "incidents/incident-";

/// The tree of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    base: String,
    cluster: String,
}

impl Tree {
    /// The tree of `cluster` below `root` (`zookeeper.root`, an absolute path; a trailing slash is ignored).
    #[must_use]
    pub fn new(root: &str, cluster: &str) -> Self {
        Tree { base: format!("{}/{cluster}", root.trim_end_matches('/')), cluster: cluster.to_owned() }
    }

    /// `<root>/<cluster>`.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The replica set's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// Where `path` stands. [`Path::NewLock`] and [`Path::NewIncident`] give the prefix that the server completes.
    #[must_use]
    pub fn node(&self, path: &Path) -> String {
        let base = &self.base;
        match path {
            Path::Topology => format!("{base}/topology"),
            Path::Master => format!("{base}/master"),
            Path::Lease => format!("{base}/lease"),
            Path::Agent(name) => format!("{base}/{AGENTS}/{name}"),
            Path::Lock(sequence) => format!("{base}/{LOCK_PREFIX}{sequence:010}"),
            Path::NewLock => format!("{base}/{LOCK_PREFIX}"),
            Path::NewIncident => format!("{base}/{INCIDENT_PREFIX}"),
            Path::History(epoch) => format!("{base}/{HISTORY}/{epoch}"),
            Path::Switchover => format!("{base}/{CONTROL}/switchover"),
            Path::Pause => format!("{base}/{CONTROL}/pause"),
        }
    }

    /// What stands at `node`; none for directories, for incidents (nobody decides by them) and for what is not ours.
    #[must_use]
    pub fn path(&self, node: &str) -> Option<Path> {
        let below = node.strip_prefix(&self.base)?.strip_prefix('/')?;
        match below {
            "topology" => Some(Path::Topology),
            "master" => Some(Path::Master),
            "lease" => Some(Path::Lease),
            "control/switchover" => Some(Path::Switchover),
            "control/pause" => Some(Path::Pause),
            _ => {
                if let Some(sequence) = below.strip_prefix(LOCK_PREFIX) {
                    return sequence.parse().ok().map(Path::Lock);
                }
                match below.split_once('/')? {
                    (AGENTS, name) if !name.contains('/') => Some(Path::Agent(name.to_owned())),
                    (HISTORY, epoch) => epoch.parse().ok().map(Path::History),
                    _ => None,
                }
            }
        }
    }

    /// Where the directory `name` stands.
    pub(super) fn directory(&self, name: &str) -> String {
        format!("{}/{name}", self.base)
    }

    /// Every node that must be there before the first record is written, parents first.
    pub(super) fn parents(&self) -> Vec<String> {
        let mut nodes: Vec<String> =
            self.base.match_indices('/').skip(1).map(|(end, _)| self.base[..end].to_owned()).collect();
        nodes.push(self.base.clone());
        nodes.extend([AGENTS, ELECTION, INCIDENTS, HISTORY, CONTROL].map(|name| self.directory(name)));
        nodes
    }

    /// The `topology` in `bytes`.
    ///
    /// # Errors
    /// In words, for [`crate::core::view::Node::Unreadable`]: not JSON, of a newer format, of another cluster.
    pub fn topology(&self, bytes: &[u8]) -> Result<Topology, String> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        // The format is looked at on its own: a newer one may not even have the fields of this one.
        let Format { format } = decode(bytes)?;
        if format > Topology::FORMAT {
            return Err(format!(
                "format {format} is newer than this program understands ({}): upgrade the agent",
                Topology::FORMAT
            ));
        }
        let topology: Topology = decode(bytes)?;
        if topology.cluster != self.cluster {
            return Err(format!(
                "it belongs to cluster \"{}\", not \"{}\": check `cluster` and `zookeeper.root`",
                topology.cluster, self.cluster
            ));
        }
        Ok(topology)
    }
}

/// The record in `bytes`.
///
/// # Errors
/// In words: not JSON, or JSON that is no such record, with line and column.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() { format!("not such a record: {error}") } else { format!("not JSON: {error}") }
    })
}

/// The bytes of `record`. Field order is that of the types, so equal records are equal bytes.
#[must_use]
pub fn encode(record: &Record) -> Vec<u8> {
    match record {
        Record::Topology(record) => serde_json::to_vec(record),
        Record::Master(record) => serde_json::to_vec(record),
        Record::Lease(record) => serde_json::to_vec(record),
        Record::Agent(record) => serde_json::to_vec(record),
        Record::Vote(record) => serde_json::to_vec(record),
        Record::Incident(record) => serde_json::to_vec(record),
        Record::History(record) => serde_json::to_vec(record),
        Record::Switchover(record) => serde_json::to_vec(record),
        Record::Pause(record) => serde_json::to_vec(record),
    }
    .expect("records are plain data with text keys, which JSON can always express")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPOLOGY: &str = r#"{"format": 1, "cluster": "orders", "epoch": 7, "primary": "db2",
        "since": "2026-11-30T10:00:00.123Z", "reason": "mysql_down",
        "members": {"db1": {"address": "10.0.0.11:3306", "server_uuid": "7c2c3a1e-0000-4000-8000-000000000001", "state": "NA"},
                    "db2": {"address": "10.0.0.12:3306", "server_uuid": "7c2c3a1e-0000-4000-8000-000000000002", "state": "READ_WRITE"},
                    "db3": {"address": "10.0.0.13:3306", "server_uuid": "7c2c3a1e-0000-4000-8000-000000000003", "state": "READ"}},
        "last_writer": "db2",
        "durability": {"mode": "lossless", "degraded": false, "sync": ["db3"], "sync_replicas": 1, "floor": ""}}"#;

    fn tree() -> Tree {
        Tree::new("/mysql-ha", "orders")
    }

    #[test]
    fn the_topology_of_the_contract_is_read_and_written_back_unchanged() {
        let topology = tree().topology(TOPOLOGY.as_bytes()).unwrap();
        assert_eq!(topology.epoch, 7);
        assert!(topology.durability.floor.is_empty());
        let bytes = encode(&Record::Topology(Box::new(topology.clone())));
        assert_eq!(tree().topology(&bytes).unwrap(), topology);
        let as_written: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(as_written, serde_json::from_str::<serde_json::Value>(TOPOLOGY).unwrap());
    }

    #[test]
    fn fields_of_a_newer_agent_are_passed_over() {
        let text = TOPOLOGY.replacen('{', r#"{"colour": "green", "#, 1);
        assert!(tree().topology(text.as_bytes()).is_ok());
    }

    #[test]
    fn what_cannot_be_read_says_why() {
        let why = |text: &str| tree().topology(text.as_bytes()).unwrap_err();
        assert_eq!(
            why(r#"{"format": 2, "servers": []}"#),
            "format 2 is newer than this program understands (1): upgrade the agent"
        );
        assert!(why("db2").starts_with("not JSON: "), "{}", why("db2"));
        assert!(why("").starts_with("not JSON: "), "{}", why(""));
        assert!(why("{}").contains("missing field `format`"), "{}", why("{}"));
        assert!(why(r#"{"format": 1}"#).starts_with("not such a record: "));
        assert!(why(&TOPOLOGY.replace("orders", "billing")).contains("cluster \"billing\", not \"orders\""));
    }

    #[test]
    fn paths_lead_there_and_back() {
        let tree = tree();
        for path in [
            Path::Topology,
            Path::Master,
            Path::Lease,
            Path::Agent("db1".into()),
            Path::Lock(17),
            Path::History(7),
            Path::Switchover,
            Path::Pause,
        ] {
            assert_eq!(tree.path(&tree.node(&path)).as_ref(), Some(&path), "{}", tree.node(&path));
        }
        assert_eq!(tree.node(&Path::Lock(17)), "/mysql-ha/orders/election/lock-0000000017");
        for foreign in
            ["/mysql-ha/orders", "/mysql-ha/orders/agents", "/mysql-ha/orders2/master", "/mysql-ha/orders/x/y"]
        {
            assert_eq!(tree.path(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn parents_come_before_their_children() {
        assert_eq!(Tree::new("/a/b/", "c").parents()[..4], ["/a", "/a/b", "/a/b/c", "/a/b/c/agents"]);
        assert_eq!(Tree::new("/", "c").parents()[..2], ["/c", "/c/agents"]);
    }
}
