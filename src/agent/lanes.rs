//! The lanes: each does one thing at a time, and what it changed is read back before it is free again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::shared::{Busy, Shared, Taken, now};
use super::watcher::Hands;
use crate::core::action::{MysqlAction, MysqlKind, Purpose, Write};
use crate::core::view::{Failure, Server};
use crate::mysql::control::Done;
use crate::zookeeper::lease_keeper::LeaseKeeper;
use crate::zookeeper::viewer::Viewer;
use crate::zookeeper::writer::{Outcome, Writer};

/// How often a note is tried before it is given up.
const NOTE_TRIES: u32 = 5;

/// Writes to ZooKeeper.
#[derive(Debug, Clone)]
pub struct ZookeeperLane {
    /// One at a time.
    pub busy: Busy,
    /// Through the lease's mutex, where a write touches the lease.
    pub keeper: Arc<LeaseKeeper>,
    /// For reading back.
    pub viewer: Viewer,
    /// How many writes in a row were refused.
    pub refused: Arc<AtomicU32>,
}

/// The pause after so many refusals in a row: none for the few that a race brings, then doubling up to a second. What is
/// refused for good (a node set by hand, an access list) must not become a flood.
fn pause_after(refused: u32) -> Duration {
    Duration::from_millis(10).saturating_mul(1 << refused.saturating_sub(3).min(7)).min(Duration::from_secs(1))
        * u32::from(refused > 3)
}

impl ZookeeperLane {
    /// Starts a write, unless one is under way.
    pub fn start(&self, write: Write) {
        if let Some(taken) = self.busy.take() {
            tokio::spawn(self.clone().run(write, taken));
        }
    }

    async fn run(self, write: Write, taken: Taken) {
        let started = now();
        let outcome = self.keeper.commit(&write).await;
        let ms = now().since(started).as_secs_f64() * 1000.0;
        let purpose = write.purpose;
        // A refresh that fails leaves the view incomplete until everything was read again: nothing is decided by it.
        match &outcome {
            Outcome::Done { .. } => {
                info!(event = "written", ?purpose, ms, "wrote to ZooKeeper");
                self.refused.store(0, Ordering::Relaxed);
                let _ = self.viewer.refresh(outcome.touched(&write)).await;
            }
            Outcome::Rejected { path, why, .. } => {
                // Somebody was faster: the next step sees what stands there now.
                info!(event = "rejected", ?purpose, ?path, %why, "ZooKeeper refused a write; looking again");
                let _ = self.viewer.refresh_all().await;
                let refused = self.refused.fetch_add(1, Ordering::Relaxed).saturating_add(1);
                tokio::time::sleep(pause_after(refused)).await;
            }
            Outcome::Unknown { why } => {
                // It may have landed or may yet: nothing is decided before everything was read again (interleaving 20).
                warn!(event = "unknown", ?purpose, %why, "no answer to a write to ZooKeeper; reading back");
                let _ = self.viewer.refresh_all().await;
            }
            Outcome::NotDone { why } => {
                info!(event = "not_done", ?purpose, %why, "a write to ZooKeeper was not done");
                tokio::time::sleep(Duration::from_millis(50)).await; // no connection: the next step would ask again at once
            }
        }
        drop(taken);
    }
}

/// Notes (incidents, history): nobody waits for them, none is dropped while there is room.
pub async fn write_notes(writer: Writer, mut notes: mpsc::Receiver<Write>) {
    while let Some(note) = notes.recv().await {
        for attempt in 1..=NOTE_TRIES {
            match writer.commit(&note).await {
                Outcome::Done { .. } => break,
                Outcome::Rejected { why, .. } => {
                    info!(%why, purpose = ?note.purpose, "a note was refused");
                    break;
                }
                Outcome::Unknown { why } | Outcome::NotDone { why } if attempt == NOTE_TRIES => {
                    warn!(%why, purpose = ?note.purpose, "a note could not be written and is given up");
                }
                Outcome::Unknown { .. } | Outcome::NotDone { .. } => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }
}

/// How often the connections for actions are looked at.
const KEEP_OPEN: Duration = Duration::from_secs(5);
/// How long that may take for each.
const WARM: Duration = Duration::from_millis(300);

/// Whether a write is a note.
#[must_use]
pub fn is_note(write: &Write) -> bool {
    matches!(write.purpose, Purpose::Incident | Purpose::History)
}

/// Statements on MySQL.
#[derive(Debug, Clone)]
pub struct MysqlLane {
    /// One at a time.
    pub busy: Busy,
    /// The connection for it.
    pub hands: Arc<tokio::sync::Mutex<Hands>>,
    /// Where the result goes.
    pub shared: Shared,
}

impl MysqlLane {
    /// Keeps the connections open, since a new one takes longer than most actions: at the start, and whenever the
    /// server has been away. The lane stays free: an action that comes meanwhile waits a moment instead of being dropped.
    pub async fn keep_open(self) {
        loop {
            // A server that does not answer is the probes' business.
            let _ = self.hands.lock().await.control().warm(WARM).await;
            tokio::time::sleep(KEEP_OPEN).await;
        }
    }

    /// Starts an action, unless one is under way.
    pub fn start(&self, action: MysqlAction) {
        if let Some(taken) = self.busy.take() {
            // At once, so that no step in between takes what it is about to undo for done.
            self.shared.server.change(|server| server.action_begins(&action));
            tokio::spawn(self.clone().run(action, taken));
        }
    }

    async fn run(self, action: MysqlAction, taken: Taken) {
        let kind = action.kind();
        let started = now();
        let mut hands = self.hands.lock().await;
        if kind == MysqlKind::Close {
            // It is ours also if this process dies, or its time is over, while the statement waits.
            self.shared.server.change(|server| server.fence_begins(started));
        }
        let result = hands.control().execute(&action).await;
        let ms = now().since(started).as_secs_f64() * 1000.0;
        if kind != MysqlKind::WaitApplied {
            match &result {
                Ok(_) => info!(event = "done", action = ?kind, ms, "on MySQL"),
                Err(error) => warn!(event = "failed", action = ?kind, ms, %error, "on MySQL"),
            }
        }
        if let Ok(done @ (Done::Done | Done::Closed { .. })) = &result {
            self.shared.server.change(|server| {
                anticipate(server, &action, done);
                match kind {
                    MysqlKind::Close => server.closed_for_switch(),
                    // Not `FollowTarget`: a switch that is undone or raced for finds what `Close` has noted.
                    MysqlKind::Open | MysqlKind::Follow => server.lift_fence(started),
                    _ => {}
                }
            });
        }
        let asked = now();
        let facts = hands.facts().await;
        drop(hands);
        let word = self.shared.guards_word(facts.as_ref()).await;
        self.shared.server.change(|server| {
            server.action_returns(asked);
            match &result {
                Ok(done) => {
                    server.failure = None;
                    server.done = Some((kind, now()));
                    server.accounts_changed(&action, started, now());
                    if let MysqlAction::FenceRemote { server_uuid, .. } = &action {
                        server.fenced_remote = Some((server_uuid.clone(), started));
                    }
                    if let Done::Diverged { extra } = done {
                        server.errant = extra.clone();
                    } else if matches!(kind, MysqlKind::Follow | MysqlKind::FollowTarget) {
                        server.errant = Default::default();
                    }
                }
                Err(error) => {
                    let touched = error.touched();
                    server.failure = Some(Failure { kind, why: error.to_string(), at: now(), touched });
                }
            }
            if let Some(facts) = facts {
                server.take_reading(facts, asked, word.as_ref(), now());
            }
        });
        drop(taken);
    }
}

/// What an action itself has proven by reading it back (never that receiving has ended without what was received by then: a
/// vote would lack it) goes into the view at once, ahead of the complete reading: clients
/// wait for the next step (the claim, the publication), which goes through the other lane.
fn anticipate(server: &mut Server, action: &MysqlAction, done: &Done) {
    let Some((facts, at)) = &mut server.facts else { return };
    match action {
        MysqlAction::Close { .. } => {
            if let Done::Closed { executed } = done {
                facts.read_only = true;
                facts.super_read_only = true;
                facts.executed = executed.clone();
                *at = now();
            }
        }
        MysqlAction::WaitApplied { set, .. } => facts.executed = facts.executed.union(set),
        MysqlAction::Open { .. } => {
            facts.read_only = false;
            facts.super_read_only = false;
            facts.offline_mode = false;
            // A probe that asked before must not overwrite it.
            *at = now();
        }
        _ => {}
    }
}
