//! Our own name among the agents: taking it at the start, and publishing observations under it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tracing::info;
use zookeeper_client::Stat;

use super::Clock;
use super::session::Live;
use super::tree::decode;
use super::writer::{Outcome, Refusal, Writer};
use crate::core::action::{Op, Path, Record};
use crate::core::records::AgentRecord;
use crate::core::time::Moment;
use crate::core::view::Ensemble;

/// Any version: nobody else writes this node as long as the name is ours.
const ANY: i32 = -1;

/// Why the name could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Another agent uses it (exit code 5).
    #[error(
        "another agent named \"{name}\" is running ({other}): stop it, or give this one a `name` of its own (is its configuration \
         file a copy of that host's?); if it was stopped just now, start again in a moment"
    )]
    Taken {
        /// The name.
        name: String,
        /// Who uses it, as far as can be read.
        other: String,
    },
    /// The server does not allow it.
    #[error("creating {node}: {why}")]
    Refused {
        /// The node.
        node: String,
        /// Why.
        why: Refusal,
    },
    /// ZooKeeper did not answer. To be tried again when it is connected; a name that was taken without our knowing is
    /// then found to be ours.
    #[error("taking our name: {0}")]
    NoAnswer(String),
}

/// `agents/<name>`, our own.
#[derive(Debug)]
pub struct Name {
    writer: Writer,
    clock: Clock,
    name: String,
    /// The session in which it was taken; 0 for none.
    session: AtomicI64,
}

/// What the node says of its owner.
enum Owner {
    /// Present session.
    Ours,
    /// An earlier session of this process, or our dead predecessor.
    Former,
    Stranger(String),
}

impl Name {
    /// For the agent `name`. Nothing is written yet.
    #[must_use]
    pub fn new(writer: Writer, name: String, clock: Clock) -> Self {
        Name { writer, clock, name, session: AtomicI64::new(0) }
    }

    /// Takes the name: at the start, and again in every new session (an ephemeral node cannot change its owner).
    ///
    /// A node of a former session of this process is replaced at once; so is one with our boot id and address when
    /// `predecessor_is_dead` (the caller holds the lock on `state_dir`). Any other gets the time within which a dead
    /// agent's session must end; when it is still there by then, or is being refreshed, its owner lives.
    /// `view` only wakes this up.
    ///
    /// # Errors
    /// [`NameError`]; nothing was changed.
    pub async fn claim(
        &self,
        own: &AgentRecord,
        predecessor_is_dead: bool,
        view: &mut watch::Receiver<Arc<Ensemble>>,
    ) -> Result<(), NameError> {
        let path = Path::Agent(self.name.clone());
        let node = self.writer.tree.node(&path);
        let mut stranger: Option<(Stat, Moment)> = None;
        loop {
            view.mark_unchanged();
            let live = self.writer.link.live().map_err(NameError::NoAnswer)?;
            let found = live.read_back(&node).await.map_err(|error| NameError::NoAnswer(error.to_string()))?;
            let record = || Record::Agent(Box::new(own.clone()));
            let ops = match &found {
                None => vec![Op::Create(path.clone(), record())],
                Some((bytes, stat)) => match owner(own, predecessor_is_dead, bytes, stat, &live) {
                    Owner::Ours => vec![Op::Set(path.clone(), record(), stat.version)],
                    Owner::Former => {
                        vec![Op::Delete(path.clone(), stat.version), Op::Create(path.clone(), record())]
                    }
                    Owner::Stranger(other) => {
                        let known = stranger.is_some();
                        let (first, since) = stranger.get_or_insert((*stat, (self.clock)()));
                        let left = (*since + patience(&live)).until((self.clock)());
                        if refreshed(first, stat) || left.is_zero() {
                            return Err(NameError::Taken { name: self.name.clone(), other });
                        }
                        if !known {
                            info!(node, other, "waiting for another agent's node to vanish");
                        }
                        // Whatever ends the waiting, the node is looked at again.
                        let _ = timeout(left, view.changed()).await;
                        continue;
                    }
                },
            };
            match self.writer.transact(&live, &ops).await {
                Outcome::Done { .. } => {
                    self.session.store(live.id, Ordering::Release);
                    return Ok(());
                }
                Outcome::Rejected { why: Refusal::NodeExists | Refusal::BadVersion, .. } => {}
                // It vanished since; but without its parent a create says the same.
                Outcome::Rejected { why: Refusal::NoNode, .. } if found.is_some() => {}
                Outcome::Rejected { why, .. } => return Err(NameError::Refused { node, why }),
                Outcome::Unknown { why } | Outcome::NotDone { why } => return Err(NameError::NoAnswer(why)),
            }
        }
    }

    /// Publishes an observation: for agents that hold no lease (with one it rides along in the renewal).
    pub async fn publish(&self, record: &AgentRecord) -> Outcome {
        let live = match self.writer.link.live() {
            Ok(live) => live,
            Err(why) => return Outcome::NotDone { why },
        };
        let Some(set) = self.carried(record, &live) else {
            return Outcome::NotDone { why: "the name is not taken in this session yet".to_owned() };
        };
        match self.writer.transact(&live, &[set]).await {
            Outcome::Rejected { why: Refusal::NoNode, .. } => {
                self.writer.transact(&live, &[self.created(record)]).await
            }
            outcome => outcome,
        }
    }

    /// The operation that publishes `record`; none while the name is not taken in this session.
    pub(super) fn carried(&self, record: &AgentRecord, live: &Live) -> Option<Op> {
        let taken = self.session.load(Ordering::Acquire) == live.id;
        taken.then(|| Op::Set(Path::Agent(self.name.clone()), Record::Agent(Box::new(record.clone())), ANY))
    }

    /// The same for a node that has vanished (somebody removed it by hand).
    pub(super) fn created(&self, record: &AgentRecord) -> Op {
        Op::Create(Path::Agent(self.name.clone()), Record::Agent(Box::new(record.clone())))
    }
}

fn owner(own: &AgentRecord, predecessor_is_dead: bool, bytes: &[u8], stat: &Stat, live: &Live) -> Owner {
    if stat.ephemeral_owner == live.id {
        return Owner::Ours;
    }
    match decode::<AgentRecord>(bytes) {
        Ok(other) => {
            // The address as well: several agents on one host (containers, namespaces) share its boot id.
            // Another state_dir: the lock that proves the predecessor dead is not the one that we hold.
            let same_home = other.home.is_none() || other.home == own.home;
            let same_place = same_home && (&other.boot_id, &other.address) == (&own.boot_id, &own.address);
            if other.instance == own.instance || (predecessor_is_dead && same_place) {
                Owner::Former
            } else {
                Owner::Stranger(format!("{}, instance {}", other.address, other.instance))
            }
        }
        Err(why) => Owner::Stranger(format!("its record cannot be read: {why}")),
    }
}

/// Whether the owner is alive. One more version may have been under way when it died; a second one was not.
fn refreshed(first: &Stat, now: &Stat) -> bool {
    now.czxid != first.czxid || now.version > first.version.saturating_add(1)
}

/// A session ends T after its last sign of life, rounded up to a tick of the ensemble, which a client cannot learn but
/// which is at the most half of the shortest T that the ensemble grants.
fn patience(live: &Live) -> Duration {
    live.granted * 3 / 2
}
