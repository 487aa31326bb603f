//! What the tasks share. Each part has one writer.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Mutex, Notify, watch};
use tracing::warn;

use super::note::Kept;
use crate::core::fenced::{Told, Word};
use crate::core::gtid::GtidSet;
use crate::core::holdings::Holdings;
use crate::core::outcome::Decision;
use crate::core::reason::Reason;
use crate::core::time::Moment;
use crate::core::view::{Own, Server, ServerFacts};
use crate::host::beside::Beside;
use crate::host::{clock, presence};
use crate::http::tally::Tally;

/// What is noted of a fence that may not have returned: its statement may be waiting still when the next process looks, or may
/// have made the server read-only by then, and neither is anybody's hand (interleaving 9 of [`crate::core::fenced`]).
const BEGUN: &str = "begun";

/// What the next process is to know.
fn noted(server: &Server) -> Option<&'static str> {
    server.fenced.map(Reason::code).or(server.fence_begun.map(|_| BEGUN))
}

/// Our own server as last seen. The watcher writes health and process; whoever has read the server writes the facts.
#[derive(Debug, Clone)]
pub struct ServerCell {
    sender: Arc<watch::Sender<Server>>,
    notes: Option<Notes>,
}

/// What of it outlives a restart.
#[derive(Debug, Clone)]
pub struct Notes {
    /// [`Server::fenced`], or that a fence has begun.
    pub fence: Kept,
    /// [`Server::holdings`].
    pub holdings: Kept,
}

impl ServerCell {
    /// Nothing seen yet, but what a predecessor noted: that it had fenced the server, or was about to, and what that held. `notes`:
    /// where this is kept.
    #[must_use]
    pub fn new(noted: Option<&str>, holdings: Holdings, notes: Option<Notes>) -> Self {
        let mut server = Server { holdings, ..Server::default() };
        match noted {
            Some(BEGUN) => server.fence_begins(now()),
            noted => server.fenced = noted.map(Reason::from_code),
        }
        Self { sender: Arc::new(watch::Sender::new(server)), notes }
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

    /// Whether we have made it read-only.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.sender.borrow().fenced.is_some()
    }

    /// Whether the marker of the verb `fence` was there when it was looked for last.
    #[must_use]
    pub fn is_fenced_by_hand(&self) -> bool {
        self.sender.borrow().fenced_by_hand
    }

    /// Every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Server> {
        self.sender.subscribe()
    }

    /// Notes what the server has shown to hold.
    pub fn note_holdings(&self) {
        if let Some(notes) = &self.notes {
            let text = self.sender.borrow().holdings.text();
            notes.holdings.set(text.as_deref());
        }
    }

    /// Waits until the notes are on the disk, or the disk hangs: for whoever is about to end the process.
    pub async fn settle(&self) {
        self.note_holdings();
        if let Some(notes) = &self.notes {
            notes.fence.settle().await;
            notes.holdings.settle().await;
        }
    }

    /// Changes a part; those who wait are woken only where something differs.
    pub fn change(&self, edit: impl FnOnce(&mut Server)) {
        self.sender.send_if_modified(|server| {
            let before = server.clone();
            edit(server);
            // In here, so that the note is handed over in the order of the changes (interleaving 11 of `core::fenced`).
            if let Some(notes) = self.notes.as_ref().filter(|_| noted(server) != noted(&before)) {
                notes.fence.set(noted(server));
            }
            // At once: the next process must not count this life as the one before.
            if server.holdings.losses() != before.holdings.losses() {
                warn!(
                    event = "data_replaced",
                    "the server holds less than it has shown before (a clone, an older backup, a reset?): its vote counts again once \
                     it has caught up with the primary"
                );
                if let Some(notes) = &self.notes {
                    notes.holdings.set(server.holdings.text().as_deref());
                }
            }
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
    /// Where the guard says what it has fenced.
    pub guard: GuardsFile,
    /// What `/metrics` counts.
    pub tally: Arc<Tally>,
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

/// The guard's own file, as the agent reads it.
#[derive(Debug, Clone)]
pub struct GuardsFile {
    path: PathBuf,
    boot_id: String,
    reading: Arc<Mutex<Beside<Option<String>>>>,
}

impl GuardsFile {
    /// At `path`; what it says counts in this boot alone.
    #[must_use]
    pub fn new(path: PathBuf, boot_id: &str) -> Self {
        Self { path, boot_id: boot_id.to_owned(), reading: Arc::default() }
    }

    /// What the guard says of its last fence.
    async fn word(&self) -> Option<Word> {
        let path = self.path.clone();
        let line = self.reading.lock().await.run(move || presence::line(&path)).await.flatten()?;
        Told::of(&line, &self.boot_id).word
    }
}

impl Shared {
    /// The guard's word on a reading, where it matters: read-only, and not by us. Before the view is locked, since it reads a file.
    pub async fn guards_word(&self, facts: Option<&ServerFacts>) -> Option<Word> {
        let matters = facts.is_some_and(|facts| facts.super_read_only) && !self.server.is_fenced();
        if matters { self.guard.word().await } else { None }
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
