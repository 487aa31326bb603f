//! The decision loop: assembles a view, asks the core, hands its actions to the lanes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tracing::{info, warn};

use super::count::RoleChanges;
use super::kept::keep_opened_epoch;
use super::lanes::{MysqlLane, ZookeeperLane, is_note};
use super::note::Kept;
use super::shared::{Deadline, Shared, now};
use crate::core::action::{Action, Write};
use crate::core::case::Case;
use crate::core::consent::cooldown_left;
use crate::core::memory::Memory;
use crate::core::outcome::Decision;
use crate::core::reason::Reason;
use crate::core::records::Mode;
use crate::core::serving::Sight;
use crate::core::table::step;
use crate::core::time::Moment;
use crate::core::view::{Ensemble, Held, View};
use crate::host::clock;
use crate::host::notify::Notifier;
use crate::host::state_dir::{Member, StateDir};

/// Between two looks while something is under way whose next step may come by itself.
const URGENT: Duration = Duration::from_millis(5);
/// Between two looks at rest.
const REST: Duration = Duration::from_millis(200);

/// The decision loop.
#[derive(Debug)]
pub struct Turn {
    /// What the tasks share.
    pub shared: Shared,
    /// ZooKeeper as last seen.
    pub ensemble: watch::Receiver<Arc<Ensemble>>,
    /// Our lease, once it is in the file that the guard reads ([`super::renewal::mirror`]).
    pub held: watch::Receiver<Option<Held>>,
    /// The lease that a predecessor's file told of, until a transaction confirms or replaces it.
    pub inherited: Option<Held>,
    /// What acknowledgements allow, for the fencing task.
    pub deadline: Deadline,
    /// The same for the file that the guard reads.
    pub acknowledged: watch::Sender<Option<Moment>>,
    /// Where decisions go.
    pub decisions: watch::Sender<Option<Arc<Decision>>>,
    /// Writes to ZooKeeper.
    pub zookeeper: ZookeeperLane,
    /// What was seen and decided, whole, for those who only tell of it.
    pub sights: watch::Sender<Option<Arc<Sight>>>,
    /// Statements on MySQL.
    pub mysql: MysqlLane,
    /// Notes for ZooKeeper.
    pub notes: mpsc::Sender<Write>,
    /// Orders to the fencing task.
    pub fence: mpsc::Sender<Reason>,
    /// Asks for a renewal or publication now.
    pub hurry: mpsc::Sender<()>,
    /// The marker that this server is under our care.
    pub state_dir: Arc<StateDir>,
    /// systemd.
    pub notifier: Notifier,
    /// What an earlier process noted for this one.
    pub remembered: Memory,
    /// Which life of the server was opened.
    pub opened_note: Kept,
    /// When the present epoch was first seen opened.
    pub epoch_note: Kept,
    /// The marker has been written.
    pub marked: bool,
}

impl Turn {
    /// Runs until the core refuses to go on; returns why.
    pub async fn run(mut self) -> String {
        let mut memory = std::mem::take(&mut self.remembered);
        let mut server = self.shared.server.changes();
        let mut changes = RoleChanges::default();
        loop {
            let (view, at) = (self.view(), now());
            let (opened, epoch) = (memory.opened_incarnation.clone(), memory.opened_epoch.clone());
            let decision = step(&mut memory, &view, at);
            // An observer leaves nothing behind that a later life in another mode would go by.
            let keeps = view.own.mode != Mode::Observe;
            if keeps && memory.opened_incarnation != opened {
                self.opened_note.set(memory.opened_incarnation.as_deref());
                // Before the server is opened: a successor that does not know of this life would take a read-only that still
                // waits for commits for a closed server.
                self.opened_note.settle().await;
            }
            if let Some(seen) = memory.opened_epoch.as_ref().filter(|seen| keeps && epoch.as_ref() != Some(*seen)) {
                keep_opened_epoch(&self.epoch_note, &view.own.boot_id, seen);
            }
            self.extend(decision.acknowledged_until);
            if let Some(refusal) = self.dispatch(&decision) {
                return refusal;
            }
            self.mark_managed(&view);
            self.notifier.turned(now());
            let pause = if decision.outcome.urgent { URGENT } else { REST };
            let left = cooldown_left(&Case { view: &view, now: at }, &memory);
            changes.note(&view, &self.shared.tally);
            self.publish(&decision, &view);
            self.sights.send_replace(Some(Arc::new(Sight {
                view,
                decision,
                at,
                cooldown: left.map(|left| at + left),
            })));
            tokio::select! {
                // ZooKeeper changed, or its session did.
                _ = self.ensemble.changed() => {}
                // Our lease was taken, renewed or lost.
                _ = self.held.changed() => {}
                // Our server was read, failed, or its process exited.
                _ = server.changed() => {}
                // A lane can take the next action.
                () = self.zookeeper.busy.freed() => {}
                () = self.mysql.busy.freed() => {}
                // Time alone: waits that end, ages that grow.
                () = sleep(pause) => {}
            }
        }
    }

    fn view(&mut self) -> View {
        let held = self.held.borrow_and_update().clone();
        if held.is_some() {
            self.inherited = None;
        }
        View {
            own: self.shared.own.borrow().as_ref().clone(),
            ensemble: self.ensemble.borrow_and_update().as_ref().clone(),
            server: self.shared.server.get(),
            held: held.or_else(|| self.inherited.clone()),
            wall: clock::wall(),
        }
    }

    /// A heartbeat was acknowledged, or counts no more.
    fn extend(&self, until: Option<Moment>) {
        self.deadline.acknowledged(until);
        self.acknowledged.send_if_modified(|before| std::mem::replace(before, until) != until);
    }

    /// Hands the actions to their lanes; a refusal ends the loop.
    fn dispatch(&self, decision: &Decision) -> Option<String> {
        for action in &decision.outcome.actions {
            match action.clone() {
                Action::Refuse(why) => return Some(why),
                // A full queue means that a fence is being ordered already.
                Action::Fence(reason) => drop(self.fence.try_send(reason)),
                Action::Mysql(action) => self.mysql.start(action),
                Action::Write(write) if is_note(&write) => {
                    if self.notes.try_send(write).is_err() {
                        warn!("too many notes wait for ZooKeeper: one is dropped");
                    }
                }
                Action::Write(write) => self.zookeeper.start(write),
            }
        }
        None
    }

    fn publish(&self, decision: &Decision, view: &View) {
        let last = self.decisions.borrow().clone();
        let changed =
            last.as_ref().is_none_or(|last| last.row != decision.row || last.outcome.reason != decision.outcome.reason);
        if changed {
            let epoch = view.ensemble.topology.record().map_or(0, |topology| topology.epoch);
            let outcome = &decision.outcome;
            self.notifier.status(&format!("{}: {}", outcome.role, outcome.detail));
            info!(event = "decided", row = decision.row, reason = %outcome.reason, role = %outcome.role, epoch, "{}", outcome.detail);
        }
        let opened = view.held.as_ref().is_some_and(|held| !held.inherited && decision.want_opened != held.opened);
        // `opened` must be recorded before the server is: the promotion waits for it.
        let hurry = opened || (changed && !decision.outcome.urgent);
        self.decisions.send_replace(Some(Arc::new(decision.clone())));
        if hurry {
            let _ = self.hurry.try_send(());
        }
    }

    /// Marks the server as ours once it stands in `topology`: from then on it may not take writes without a lease,
    /// also when the next start finds no ZooKeeper.
    fn mark_managed(&mut self, view: &View) {
        if self.marked || view.own.mode == Mode::Observe {
            return;
        }
        let Some(topology) = view.ensemble.topology.record() else { return };
        let Some((facts, _)) = &view.server.facts else { return };
        let ours = topology.members.get(&view.own.name).is_some_and(|member| member.server_uuid == facts.server_uuid);
        // Adoption: the guard fences a marked server that takes writes without a lease in its file, and ZooKeeper tells of
        // `topology` before it has answered the transaction that gave us the lease.
        let guarded = facts.super_read_only || view.held.as_ref().is_some_and(|held| held.opened);
        if ours && guarded {
            let marker =
                Member { cluster: view.own.cluster.clone(), server_uuid: facts.server_uuid.clone(), adopted: true };
            let state_dir = self.state_dir.clone();
            tokio::task::spawn_blocking(move || {
                if let Err(error) = state_dir.set_member(&marker) {
                    warn!(%error, "cannot mark this server as managed: a start without ZooKeeper would not fence it");
                }
            });
            self.marked = true;
        }
    }
}
