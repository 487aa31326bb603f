//! What the tasks share. Each part has one writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    /// Nothing seen yet, but what a predecessor or the guard left behind: that it had fenced the server.
    #[must_use]
    pub fn new(note: Option<FenceNote>) -> Self {
        let mut server = Server::default();
        if let Some(note) = note {
            note.tell(&mut server, now());
        }
        Self { sender: Arc::new(watch::Sender::new(server)) }
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

/// What the note of a fence says.
///
/// The guard writes it before its fence, so that an agent which sees the first rungs does not take them for somebody else's.
/// Until the fence has returned that proves nothing: the variable reads ON while its statement still waits for commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceNote {
    /// It may have come to its end or not.
    Begun(Reason),
    /// The server was read-only or dead.
    Ended(Reason),
}

impl FenceNote {
    /// For the file. No two are the same: who has opened the server takes back only the one that was there before.
    #[must_use]
    pub fn text(self) -> String {
        let at = now().0;
        match self {
            FenceNote::Begun(reason) => format!("{} begun {at}", reason.code()),
            FenceNote::Ended(reason) => format!("{} ended {at}", reason.code()),
        }
    }

    fn read(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let reason = Reason::from_code(words.next()?);
        Some(if words.next() == Some("begun") { FenceNote::Begun(reason) } else { FenceNote::Ended(reason) })
    }

    /// What an agent that finds it at `now` knows by it. A reading from before may lack the last commits.
    pub fn tell(self, server: &mut Server, now: Moment) {
        match self {
            FenceNote::Begun(reason) => server.fence_begun = Some(reason),
            FenceNote::Ended(reason) => {
                server.fenced = Some(reason);
                server.fenced_at = Some(now);
            }
        }
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

    /// What the note of a fence says.
    #[must_use]
    pub fn fence(&self) -> Option<FenceNote> {
        FenceNote::read(&self.read()?)
    }

    /// Clears what read `before` at an earlier moment, and nothing that was written since.
    pub fn clear(&self, before: Option<&str>) {
        if self.read().as_deref() == before {
            self.write(None);
        }
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
    fn a_note_says_whether_the_fence_has_returned() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::of_fence(folder.path());
        assert_eq!(note.fence(), None);
        for says in [FenceNote::Begun(Reason::LeaseLost), FenceNote::Ended(Reason::MysqlSilent)] {
            note.write(Some(&says.text()));
            assert_eq!(note.fence(), Some(says));
        }
        note.write(Some("lease_lost"));
        assert_eq!(note.fence(), Some(FenceNote::Ended(Reason::LeaseLost)), "of an earlier version");
        let mut server = Server::default();
        FenceNote::Begun(Reason::LeaseLost).tell(&mut server, Moment(7));
        assert_eq!((server.fenced, server.fence_begun, server.fenced_at), (None, Some(Reason::LeaseLost), None));
    }

    /// The guard fences between an opening and the taking back of the note that was there before.
    #[test]
    fn a_note_that_was_written_since_is_not_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let note = Note::of_fence(folder.path());
        note.write(Some(&FenceNote::Ended(Reason::LeaseLost).text()));
        let before = note.read();
        note.write(Some(&FenceNote::Ended(Reason::LeaseLost).text()));
        note.clear(before.as_deref());
        assert_eq!(note.fence(), Some(FenceNote::Ended(Reason::LeaseLost)));
        note.clear(note.read().as_deref());
        assert_eq!(note.fence(), None);
    }
}
