//! What was read, put into the core's picture of the ensemble.

use serde::de::DeserializeOwned;
use tracing::warn;
use zookeeper_client::Stat;

use super::tree::{Tree, decode};
use crate::core::action::Path;
use crate::core::time::Moment;
use crate::core::timing::sent_by;
use crate::core::view::{Ensemble, Node, Seen};

/// What stands at a node.
#[derive(Debug)]
pub(super) enum Answer {
    Here(Vec<u8>, Stat),
    Absent,
    /// There may be one, but we are not allowed to read it.
    Denied,
}

/// Puts `answer` into `ensemble`.
pub(super) fn apply(ensemble: &mut Ensemble, tree: &Tree, path: &Path, answer: &Answer, now: Moment) {
    match path {
        Path::Topology => put(&mut ensemble.topology, answer, now, |bytes| tree.topology(bytes)),
        Path::Master => put(&mut ensemble.master, answer, now, decode),
        Path::Lease => {
            let before = ensemble.lease.here().cloned();
            put(&mut ensemble.lease, answer, now, decode);
            if let Node::Here(lease) = &mut ensemble.lease
                && lease.first_seen == now
            {
                lease.first_seen = sent_by(before.as_ref(), &lease.record, !ensemble.complete, now);
            }
        }
        Path::Switchover => put(&mut ensemble.switchover, answer, now, decode),
        Path::Pause => put(&mut ensemble.pause, answer, now, decode),
        Path::Agent(name) => {
            let before = ensemble.agents.remove(name);
            ensemble.agents.extend(listed(before, path, answer, now).map(|seen| (name.clone(), seen)));
        }
        Path::Lock(sequence) => {
            let before = ensemble.locks.remove(sequence);
            ensemble.locks.extend(listed(before, path, answer, now).map(|seen| (*sequence, seen)));
        }
        // Nobody decides by these.
        Path::NewLock | Path::NewIncident | Path::History(_) => {}
    }
}

fn put<T>(node: &mut Node<T>, answer: &Answer, now: Moment, decode: impl FnOnce(&[u8]) -> Result<T, String>) {
    *node = match (std::mem::take(node), answer) {
        (_, Answer::Absent) => Node::Absent,
        (_, Answer::Denied) => Node::Unreadable {
            why: "not allowed to read it: check zookeeper.auth and the node's ACL".to_owned(),
            version: -1,
        },
        (before, Answer::Here(bytes, stat)) => match decode(bytes) {
            Ok(record) => {
                let before = match before {
                    Node::Here(seen) => Some(seen),
                    _ => None,
                };
                Node::Here(seen(before, record, stat, now))
            }
            Err(why) => Node::Unreadable { why, version: stat.version },
        },
    };
}

fn listed<T: DeserializeOwned>(before: Option<Seen<T>>, path: &Path, answer: &Answer, now: Moment) -> Option<Seen<T>> {
    match answer {
        Answer::Here(bytes, stat) => match decode(bytes) {
            Ok(record) => Some(seen(before, record, stat, now)),
            Err(why) => {
                warn!(?path, why, "a record that cannot be read counts as absent");
                None
            }
        },
        Answer::Absent => None,
        Answer::Denied => {
            warn!(?path, "not allowed to read it: it counts as absent; check zookeeper.auth");
            None
        }
    }
}

/// The moment is kept as long as the node is the same in the same version, however often it is read: the waiting for
/// a lease counts from it, and must not begin anew because of a reconnection.
fn seen<T>(before: Option<Seen<T>>, record: T, stat: &Stat, now: Moment) -> Seen<T> {
    let first_seen = before
        .filter(|before| (before.created, before.version) == (stat.czxid, stat.version))
        .map_or(now, |before| before.first_seen);
    Seen { record, version: stat.version, owner: stat.ephemeral_owner, created: stat.czxid, first_seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: &str = r#"{"name": "db1", "epoch": 1, "sequence": 5, "ttl_ms": 10000, "opened": true}"#;

    fn here(text: &str, created: i64, version: i32) -> Answer {
        Answer::Here(
            text.as_bytes().to_vec(),
            Stat {
                czxid: created,
                mzxid: created,
                pzxid: created,
                ctime: 0,
                mtime: 0,
                version,
                cversion: 0,
                aversion: 0,
                ephemeral_owner: 0,
                data_length: 0,
                num_children: 0,
            },
        )
    }

    fn first_seen(ensemble: &Ensemble) -> Moment {
        ensemble.lease.here().unwrap().first_seen
    }

    #[test]
    fn the_first_sight_of_a_version_is_kept_over_further_readings() {
        let tree = Tree::new("/mysql-ha", "orders");
        let mut ensemble = Ensemble::default();
        let mut read = |answer, now| {
            apply(&mut ensemble, &tree, &Path::Lease, &answer, Moment(now));
            first_seen(&ensemble)
        };
        assert_eq!(read(here(LEASE, 7, 3), 100), Moment(100));
        assert_eq!(read(here(LEASE, 7, 3), 200), Moment(100), "same version: same moment");
        assert_eq!(read(here(LEASE, 7, 4), 300), Moment(300), "another version");
        assert_eq!(read(here(LEASE, 9, 4), 400), Moment(400), "another node with the same version");
    }

    /// The ensemble elected for two seconds, and its followers had a renewal of before in their logs.
    #[test]
    fn a_renewal_that_is_seen_after_a_break_counts_from_when_it_was_sent() {
        let tree = Tree::new("/mysql-ha", "orders");
        let sent = |at_us: u64| LEASE.replace("}", &format!(r#", "sent": {{"instance": "a", "at_us": {at_us}}}}}"#));
        let ms = |at: u64| Moment(at * 1_000_000);
        let mut ensemble = Ensemble::default();
        let mut read = |complete, text: &str, version, now| {
            ensemble.complete = complete;
            apply(&mut ensemble, &tree, &Path::Lease, &here(text, 7, version), now);
            first_seen(&ensemble)
        };
        assert_eq!(read(true, &sent(70_000), 3, ms(1000)), ms(1000));
        let after = read(false, &sent(570_000), 4, ms(3001));
        assert!((ms(1500)..ms(1511)).contains(&after), "half a second after the other, and the drift: {after:?}");
        assert_eq!(read(true, &sent(570_000), 4, ms(3500)), after, "the same version");
        assert_eq!(read(true, &sent(1_070_000), 5, ms(4000)), ms(4000), "watched since");
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_absent() {
        let tree = Tree::new("/mysql-ha", "orders");
        let mut ensemble = Ensemble::default();
        apply(&mut ensemble, &tree, &Path::Topology, &here("db2", 1, 6), Moment(1));
        assert!(matches!(&ensemble.topology, Node::Unreadable { why, version: 6 } if why.starts_with("not JSON")));
        apply(&mut ensemble, &tree, &Path::Topology, &Answer::Denied, Moment(1));
        assert!(matches!(&ensemble.topology, Node::Unreadable { .. }));
        apply(&mut ensemble, &tree, &Path::Topology, &Answer::Absent, Moment(1));
        assert_eq!(ensemble.topology, Node::Absent);
    }

    #[test]
    fn locks_and_agents_come_and_go_by_themselves() {
        let tree = Tree::new("/mysql-ha", "orders");
        let mut ensemble = Ensemble::default();
        let vote = r#"{"name": "db1", "received": "", "priority": 100, "topology_version": 2, "incarnation": "b", "frozen": true}"#;
        apply(&mut ensemble, &tree, &Path::Lock(3), &here(vote, 1, 0), Moment(1));
        apply(&mut ensemble, &tree, &Path::Lock(4), &here("?", 1, 0), Moment(1));
        assert_eq!(ensemble.locks.keys().copied().collect::<Vec<_>>(), [3]);
        apply(&mut ensemble, &tree, &Path::Lock(3), &Answer::Absent, Moment(2));
        assert!(ensemble.locks.is_empty());
    }
}
