//! What the tasks share. Each part has one writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Notify, watch};

use crate::core::gtid::GtidSet;
use crate::core::outcome::Decision;
use crate::core::reason::Reason;
use crate::core::time::Moment;
use crate::core::view::{Own, Server};
use crate::host::clock;

/// Our own server as last seen. The watcher writes health and process; whoever has read the server writes the facts.
#[derive(Debug, Clone)]
pub struct ServerCell {
    sender: Arc<watch::Sender<Server>>,
}

impl ServerCell {
    /// Nothing seen yet, but what a predecessor left behind: that it had fenced the server.
    #[must_use]
    pub fn new(fenced: Option<Reason>) -> Self {
        Self { sender: Arc::new(watch::Sender::new(Server { fenced, ..Server::default() })) }
    }

    /// A copy of what is known now.
    #[must_use]
    pub fn get(&self) -> Server {
        self.sender.borrow().clone()
    }

    /// Whether clients could write when it was read last.
    #[must_use]
    pub fn writable(&self) -> bool {
        self.sender.borrow().facts.as_ref().is_some_and(|(facts, _)| facts.writable())
    }

    /// Every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Server> {
        self.sender.subscribe()
    }

    /// Changes a part; those who wait are woken only where something differs.
    pub fn change(&self, edit: impl FnOnce(&mut Server)) {
        self.sender.send_if_modified(|server| {
            let before = server.clone();
            edit(server);
            *server != before
        });
    }
}

/// Everything the tasks have in common.
#[derive(Debug, Clone)]
pub struct Shared {
    /// Who we are; replaced whole by a reload.
    pub own: watch::Receiver<Arc<Own>>,
    /// Our server.
    pub server: ServerCell,
    /// The present decision; none before the first step.
    pub decision: watch::Receiver<Option<Arc<Decision>>>,
    /// Executed, read before the last acknowledged heartbeat was sent (interleaving 17).
    pub watermark: watch::Receiver<GtidSet>,
    /// Where the fence's reason is kept over a restart.
    pub fence_note: Arc<Note>,
}

/// Until when our server may take writes, for those who must wait for nobody: the lease's end or, with the failsafe, that of the
/// last acknowledged heartbeat, whichever is later. Without a lease acknowledgements prolong nothing.
#[derive(Debug, Clone)]
pub struct Deadline {
    /// The lease's end in nanoseconds, 0 for none; written by the renewals.
    lease: Arc<AtomicU64>,
    /// The same of acknowledgements; written by the decision loop.
    acknowledged: Arc<AtomicU64>,
}

impl Deadline {
    /// With the lease as the renewals write it.
    #[must_use]
    pub fn new(lease: Arc<AtomicU64>) -> Self {
        Self { lease, acknowledged: Arc::default() }
    }

    /// The later end; none without a lease.
    #[must_use]
    pub fn get(&self) -> Option<Moment> {
        let lease = self.lease.load(Ordering::Acquire);
        (lease != 0).then(|| Moment(lease.max(self.acknowledged.load(Ordering::Acquire))))
    }

    /// What acknowledgements allow from now on.
    pub fn acknowledged(&self, until: Option<Moment>) {
        self.acknowledged.store(until.map_or(0, |until| until.0), Ordering::Release);
    }
}

/// One line kept in `state_dir` over restarts of the agent.
#[derive(Debug)]
pub struct Note {
    path: PathBuf,
}

impl Note {
    /// The reason of a fence: a restarted agent must know that the server's read-only is ours.
    #[must_use]
    pub fn of_fence(state_dir: &std::path::Path) -> Self {
        Self { path: state_dir.join("fenced") }
    }

    /// The life of the server that was opened: a restarted agent must know whether mysqld was restarted meanwhile.
    #[must_use]
    pub fn of_opening(state_dir: &std::path::Path) -> Self {
        Self { path: state_dir.join("opened") }
    }

    /// The present epoch and when it was first seen opened (see [`super::kept`]).
    #[must_use]
    pub fn of_epoch(state_dir: &std::path::Path) -> Self {
        Self { path: state_dir.join("epoch") }
    }

    /// What was noted.
    #[must_use]
    pub fn read(&self) -> Option<String> {
        let text = std::fs::read_to_string(&self.path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// Notes or clears. A full disk is no reason to stop: the note only spares an operator one command.
    pub fn write(&self, text: Option<&str>) {
        let result = match text {
            Some(text) => std::fs::write(&self.path, text),
            None => std::fs::remove_file(&self.path).or_else(|error| match error.kind() {
                std::io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        if let Err(error) = result {
            tracing::warn!(path = %self.path.display(), %error, "cannot be noted; after a restart of this agent a read-only primary may count as set by hand, and failover.cooldown counts anew");
        }
    }
}

/// A lane: one thing at a time; a second one is turned away and comes again with the next step.
#[derive(Debug, Clone, Default)]
pub struct Busy {
    flag: Arc<AtomicBool>,
    freed: Arc<Notify>,
}

impl Busy {
    /// Takes the lane; `None` where it is taken.
    #[must_use]
    pub fn take(&self) -> Option<Taken> {
        (!self.flag.swap(true, Ordering::AcqRel)).then(|| Taken(self.clone()))
    }

    /// Waits until the lane has been freed.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }
}

/// A lane that is taken; free again when this is dropped, also by a panic or a cancelled task.
#[derive(Debug)]
pub struct Taken(Busy);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.flag.store(false, Ordering::Release);
        self.0.freed.notify_one();
    }
}

/// Now, on the clock that decisions use.
#[must_use]
pub fn now() -> Moment {
    clock::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_the_later_end_and_none_without_a_lease() {
        let lease = Arc::new(AtomicU64::new(0));
        let deadline = Deadline::new(lease.clone());
        deadline.acknowledged(Some(Moment(9)));
        assert_eq!(deadline.get(), None);
        for (until, acknowledged, expected) in [(5, Some(9), 9), (12, Some(9), 12), (5, None, 5)] {
            lease.store(until, Ordering::Release);
            deadline.acknowledged(acknowledged.map(Moment));
            assert_eq!(deadline.get(), Some(Moment(expected)));
        }
    }
}
