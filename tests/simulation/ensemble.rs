//! ZooKeeper: versions, ephemeral and sequential nodes, transactions, sessions that expire in buckets.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use mysql_ha_agent::core::action::{Op, Path, Record};
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::core::timing::sent_by;
use mysql_ha_agent::core::view::{Ensemble, Node, Seen, Session};

/// T, milliseconds.
pub(crate) const T: u64 = 3000;
/// Sessions are looked at in these steps, milliseconds.
const TICK: u64 = 200;

#[derive(Clone)]
pub(crate) struct ZNode {
    pub(crate) record: Record,
    pub(crate) version: i32,
    pub(crate) owner: i64,
    created: i64,
}

/// Which operation was refused, and whether for a node's absence or version.
pub(crate) type Refused = (Path, &'static str);

#[derive(Default)]
pub(crate) struct Zookeeper {
    pub(crate) nodes: BTreeMap<Path, Rc<ZNode>>,
    /// When each session was heard of last.
    pub(crate) sessions: BTreeMap<i64, u64>,
    zxid: i64,
    next_session: i64,
    next_lock: i64,
    /// Counts changes.
    pub(crate) revision: u64,
}

impl Zookeeper {
    pub(crate) fn open_session(&mut self, now: u64) -> i64 {
        self.next_session += 1;
        self.sessions.insert(self.next_session, now);
        self.next_session
    }

    pub(crate) fn expire(&mut self, now: u64) {
        let late = now / TICK * TICK;
        let over: Vec<i64> = self.sessions.iter().filter(|(_, heard)| **heard + T <= late).map(|(id, _)| *id).collect();
        for id in over {
            self.sessions.remove(&id);
            self.nodes.retain(|_, node| node.owner != id);
            self.revision += 1;
        }
    }

    /// All of `ops` or none. A version of -1 fits any.
    pub(crate) fn transact(&mut self, session: i64, ops: &[Op]) -> Result<(), Refused> {
        if !self.sessions.contains_key(&session) {
            return Err((Path::Topology, "expired"));
        }
        let mut nodes = self.nodes.clone();
        let zxid = self.zxid + 1;
        for op in ops {
            match op {
                Op::Check(path, version) => drop(at(&nodes, path, *version)?),
                Op::Set(path, record, version) => {
                    let old = at(&nodes, path, *version)?;
                    let new = ZNode { record: record.clone(), version: old.version + 1, ..(*old).clone() };
                    nodes.insert(path.clone(), Rc::new(new));
                }
                Op::Delete(path, version) => {
                    at(&nodes, path, *version)?;
                    nodes.remove(path);
                }
                Op::Create(Path::NewIncident, _) => {}
                Op::Create(path, record) => {
                    let path = match path {
                        Path::NewLock => {
                            self.next_lock += 1;
                            Path::Lock(self.next_lock)
                        }
                        path => path.clone(),
                    };
                    if nodes.contains_key(&path) {
                        return Err((path, "exists"));
                    }
                    let ephemeral = matches!(path, Path::Master | Path::Agent(_) | Path::Lock(_));
                    let owner = if ephemeral { session } else { 0 };
                    nodes.insert(path, Rc::new(ZNode { record: record.clone(), version: 0, owner, created: zxid }));
                }
            }
        }
        self.nodes = nodes;
        self.zxid = zxid;
        self.revision += 1;
        Ok(())
    }

    /// What an agent reads at `now`; moments of first sight are kept from what it saw before.
    pub(crate) fn view(&self, before: &Ensemble, session: Session, now: Moment) -> Ensemble {
        let back = !before.complete;
        let mut view = Ensemble { session, complete: true, ..Ensemble::default() };
        for (path, node) in &self.nodes {
            match (path, &node.record) {
                (Path::Topology, Record::Topology(r)) => view.topology = here(node, r, before.topology.here(), now),
                (Path::Master, Record::Master(r)) => view.master = here(node, r, before.master.here(), now),
                (Path::Lease, Record::Lease(r)) => {
                    let before = before.lease.here();
                    let mut lease = seen(node, r, before, now);
                    if lease.first_seen == now {
                        lease.first_seen = sent_by(before, r, back, now);
                    }
                    view.lease = Node::Here(lease);
                }
                (Path::Switchover, Record::Switchover(r)) => {
                    view.switchover = here(node, r, before.switchover.here(), now);
                }
                (Path::Pause, Record::Pause(r)) => view.pause = here(node, r, before.pause.here(), now),
                (Path::Agent(name), Record::Agent(r)) => {
                    let seen = seen(node, r.as_ref(), before.agents.get(name), now);
                    view.agents.insert(name.clone(), seen);
                }
                (Path::Lock(sequence), Record::Vote(r)) => {
                    view.locks.insert(*sequence, seen(node, r, before.locks.get(sequence), now));
                }
                _ => {}
            }
        }
        view
    }
}

fn at(nodes: &BTreeMap<Path, Rc<ZNode>>, path: &Path, version: i32) -> Result<Rc<ZNode>, Refused> {
    let node = nodes.get(path).ok_or((path.clone(), "no node"))?;
    if version != -1 && node.version != version { Err((path.clone(), "version")) } else { Ok(node.clone()) }
}

fn seen<R: Clone>(node: &ZNode, record: &R, before: Option<&Seen<R>>, now: Moment) -> Seen<R> {
    let same = before.filter(|seen| (seen.version, seen.created) == (node.version, node.created));
    Seen {
        record: record.clone(),
        version: node.version,
        owner: node.owner,
        created: node.created,
        first_seen: same.map_or(now, |seen| seen.first_seen),
    }
}

fn here<R: Clone>(node: &ZNode, record: &R, before: Option<&Seen<R>>, now: Moment) -> Node<R> {
    Node::Here(seen(node, record, before, now))
}

/// T as the core takes it.
pub(crate) const GRANTED: Duration = Duration::from_millis(T);
