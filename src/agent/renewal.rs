//! The lease's renewals: a task of its own, that waits for nothing but ZooKeeper.
//!
//! The observation of our server rides in the renewal's transaction, so that an agent at rest writes once each
//! `zookeeper.renew_interval` and not more. An agent without a lease publishes its observation in the same rhythm.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use super::record::agent_record;
use super::run::End;
use super::shared::{Shared, now};
use crate::cli::exit::Exit;
use crate::core::records::AgentRecord;
use crate::core::time::Moment;
use crate::core::view::Held;
use crate::core::view::{Ensemble, Session};
use crate::host::clock;
use crate::host::lease_file::LeaseFile;
use crate::host::presence;
use crate::zookeeper::lease_keeper::{LeaseKeeper, Renewal, Wanted};
use crate::zookeeper::name::{Name, NameError};
use crate::zookeeper::writer::Writer;

/// Between two looks at whether a guard runs.
const GUARD: std::time::Duration = std::time::Duration::from_secs(1);

/// The renewal task.
#[derive(Debug)]
pub struct Renewals {
    /// What the tasks share.
    pub shared: Shared,
    /// Our lease.
    pub keeper: Arc<LeaseKeeper>,
    /// Our node below `agents`.
    pub name: Arc<Name>,
    /// ZooKeeper as last seen: a new session needs our node anew.
    pub ensemble: watch::Receiver<Arc<Ensemble>>,
    /// Creates the directories.
    pub writer: Writer,
    /// Ends the agent: its name is another's.
    pub fatal: mpsc::Sender<End>,
    /// The session in which the name was taken last.
    pub session: i64,
    /// Whether a guard runs on this host; none while not looked for yet.
    pub guard: watch::Receiver<Option<bool>>,
    /// Asked for by the decision loop: something changed that the others should see now.
    pub hurry: mpsc::Receiver<()>,
}

impl Renewals {
    /// Runs until the program ends.
    pub async fn run(mut self) {
        let mut rhythm = interval(self.shared.own.borrow().renew_interval);
        rhythm.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                // The regular renewal.
                _ = rhythm.tick() => {}
                // Something that others wait for: `opened`, a changed role, a server that came or went.
                Some(()) = self.hurry.recv() => {
                    // What was asked for while the last one was under way is answered by this one.
                    while self.hurry.try_recv().is_ok() {}
                }
            }
            let retry = self.once().await;
            if retry {
                // A renewal that failed is repeated within the interval, not a whole interval later: the time that
                // is left shrinks, and the next connection may stand already.
                let pause = self.shared.own.borrow().renew_interval / 4;
                sleep(pause).await;
                let _ = self.once().await;
            }
        }
    }

    fn record(&self) -> AgentRecord {
        let decision = self.shared.decision.borrow().clone();
        let record = agent_record(
            &self.shared.own.borrow(),
            &self.shared.server.get(),
            decision.as_deref(),
            clock::wall(),
            now(),
        );
        AgentRecord { guard: *self.guard.borrow(), ..record }
    }

    /// A new session starts without our node below `agents`: the old one goes with its session.
    async fn keep_name(&mut self, record: &AgentRecord) {
        let Session::Connected { id, .. } = self.ensemble.borrow().session else { return };
        if id == self.session {
            return;
        }
        if let Err(why) = self.writer.prepare().await {
            debug!(%why, "the directories could not be created yet");
            return;
        }
        match self.name.claim(record, true, &mut self.ensemble).await {
            Ok(()) => self.session = id,
            Err(NameError::NoAnswer(why)) => debug!(%why, "our name was not taken yet"),
            Err(error @ NameError::Taken { .. }) => {
                let _ = self.fatal.send((Exit::Refused, error.to_string())).await;
            }
            Err(error) => {
                let _ = self.fatal.send((Exit::ZooKeeperUnreachable, error.to_string())).await;
            }
        }
    }

    /// One renewal, or one publication where no lease is held; whether it should be tried again at once.
    async fn once(&mut self) -> bool {
        let record = self.record();
        self.keep_name(&record).await;
        let decision = self.shared.decision.borrow().clone();
        let wanted = decision.as_ref().map_or_else(Wanted::default, |decision| Wanted {
            opened: decision.want_opened,
            pause: decision.pause.as_ref(),
            proof: decision.proof,
        });
        let watermark = self.shared.watermark.borrow().clone();
        match self.keeper.renew(&record, &watermark, wanted).await {
            Renewal::Renewed { took } => {
                self.shared.tally.renewals.observe(took);
                debug!(ms = took.as_secs_f64() * 1000.0, "lease renewed");
                false
            }
            Renewal::NotHeld => {
                let outcome = self.name.publish(&record).await;
                debug!(?outcome, "observation published");
                false
            }
            Renewal::OtherSession => {
                info!(
                    event = "new_session",
                    "a new session: the node master has to be made anew before the next renewal"
                );
                false
            }
            Renewal::Lost { why } => {
                warn!(event = "lease_lost", "the lease is lost: {why}");
                false
            }
            Renewal::Unknown { why } => {
                info!(event = "renewal_unknown", "no answer to a renewal of the lease: {why}");
                true
            }
            Renewal::NotDone { why } => {
                debug!("renewal not done: {why}");
                true
            }
        }
    }
}

/// Mirrors the lease's end into the file that the guard and a restarted agent read, and passes the lease on.
///
/// The guard fences a server that takes writes without a lease in the file. So the decisions learn of a lease that allows more
/// than before (taken, opened, another epoch) only after it is there, whatever becomes of the file. A renewal of one that
/// is known goes to them first: a `run_dir` that hangs must not make a renewed lease look as if it ended. A lease that
/// has not opened allows no writes and stands in the file as none.
///
/// With the failsafe the file holds the later of the lease's end and that of the last acknowledged heartbeat.
pub async fn mirror(
    mut held: watch::Receiver<Option<Held>>,
    mut acknowledged: watch::Receiver<Option<Moment>>,
    mut file: Option<LeaseFile>,
    on: watch::Sender<Option<Held>>,
) {
    let mut complained = false;
    let mut written = None;
    loop {
        tokio::select! {
            // Taken, renewed, given up, lost.
            changed = held.changed() => if changed.is_err() { return },
            // A heartbeat was acknowledged, which changes the later end only while the lease is not renewed.
            Ok(()) = acknowledged.changed() => {
                let lease = held.borrow().clone();
                if later_end(lease.as_ref(), *acknowledged.borrow_and_update()) == written {
                    continue;
                }
            }
        }
        let lease = held.borrow_and_update().clone();
        let known = lease.as_ref().zip(on.borrow().as_ref()).is_some_and(|(new, old)| allows_no_more(new, old));
        if known {
            on.send_replace(lease.clone());
        }
        written = later_end(lease.as_ref(), *acknowledged.borrow_and_update());
        match file.as_mut().map_or(Ok(()), |file| file.write(written)) {
            Ok(()) => complained = false,
            Err(error) if !complained => {
                complained = true;
                warn!(%error, "the lease file cannot be written: a restart of this agent, and its guard, will fence its server");
            }
            Err(_) => {}
        }
        if !known {
            on.send_replace(lease);
        }
    }
}

/// Until when the server may take writes; none without a lease that has opened.
fn later_end(lease: Option<&Held>, acknowledged: Option<Moment>) -> Option<Moment> {
    let until = lease.filter(|held| held.opened)?.until;
    Some(acknowledged.map_or(until, |acknowledged| until.max(acknowledged)))
}

fn allows_no_more(new: &Held, old: &Held) -> bool {
    new.epoch == old.epoch && new.opened == old.opened && new.inherited == old.inherited
}

/// Looks every now and then whether a guard runs beside this agent, on a thread of its own: for the record that is
/// published, and for the log.
pub async fn look_for_guard(path: std::path::PathBuf, guard: watch::Sender<Option<bool>>) {
    loop {
        let looked = path.clone();
        let holder = tokio::task::spawn_blocking(move || presence::holder(&looked)).await;
        let runs = holder.is_ok_and(|holder| holder.is_some());
        let before = guard.send_replace(Some(runs));
        match (before, runs) {
            (Some(before), runs) if before == runs => {}
            (_, true) => info!(event = "guard_present", "a guard watches over this host's server"),
            (_, false) => warn!(
                event = "guard_missing",
                "no guard runs on this host: if this agent fails while its server is the primary, nobody here makes it \
                 read-only (start mysql-ha-guard.service)"
            ),
        }
        sleep(GUARD).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::lease_file;

    fn held(until: u64, opened: bool) -> Option<Held> {
        Some(Held { epoch: 1, until: Moment(until), opened, inherited: false, proof: Duration::ZERO })
    }

    /// Interleaving 6 of the guard: whoever sees the lease here finds it in the file.
    #[tokio::test]
    async fn a_lease_is_in_the_file_before_anything_is_decided_by_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let file = LeaseFile::open(&path, "boot", "agent").unwrap();
        let (leases, from) = watch::channel(None);
        let (on, mut passed) = watch::channel(None);
        tokio::spawn(mirror(from, watch::channel(None).1, Some(file), on));
        for (lease, expected) in [(held(5, false), None), (held(5, true), Some(Moment(5))), (None, None)] {
            leases.send_replace(lease.clone());
            passed.changed().await.unwrap();
            assert_eq!(*passed.borrow_and_update(), lease);
            let state = lease_file::read(&path).unwrap().unwrap().unwrap();
            assert_eq!(state.until, expected, "{lease:?}");
        }
    }

    /// The guard must see what the fencing task sees: the later end, and nothing without a lease.
    #[tokio::test]
    async fn the_file_holds_the_later_end_of_lease_and_acknowledgements() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lease");
        let file = LeaseFile::open(&path, "boot", "agent").unwrap();
        let (leases, from) = watch::channel(None);
        let (acknowledgements, acknowledged) = watch::channel(None);
        let (on, mut passed) = watch::channel(None);
        tokio::spawn(mirror(from, acknowledged, Some(file), on));
        let said = || lease_file::read(&path).unwrap().unwrap().unwrap().until;
        leases.send_replace(held(5, true));
        passed.changed().await.unwrap();
        assert_eq!(said(), Some(Moment(5)));
        for (acknowledged, expected) in [(Some(9), 9), (Some(12), 12), (None, 5)] {
            acknowledgements.send_replace(acknowledged.map(Moment));
            passed.changed().await.unwrap();
            assert_eq!(said(), Some(Moment(expected)));
        }
        acknowledgements.send_replace(Some(Moment(20)));
        passed.changed().await.unwrap();
        leases.send_replace(held(15, true));
        passed.changed().await.unwrap();
        assert_eq!(said(), Some(Moment(20)), "a renewal takes nothing away");
        leases.send_replace(None);
        passed.changed().await.unwrap();
        assert_eq!(said(), None, "without a lease acknowledgements prolong nothing");
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_holds_nothing_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run/lease");
        let file = LeaseFile::open(&path, "boot", "agent").unwrap();
        std::fs::remove_dir_all(folder.path().join("run")).unwrap();
        std::fs::write(folder.path().join("run"), "in the way").unwrap();
        let (leases, from) = watch::channel(None);
        let (on, mut passed) = watch::channel(None);
        tokio::spawn(mirror(from, watch::channel(None).1, Some(file), on));
        for lease in [held(5, true), held(6, true), None] {
            leases.send_replace(lease.clone());
            tokio::time::timeout(Duration::from_secs(30), passed.changed()).await.unwrap().unwrap();
            assert_eq!(*passed.borrow_and_update(), lease);
        }
    }
}
