//! The failsafe (promise 7): a primary that has lost ZooKeeper writes on as long as its replicas acknowledge.
//!
//! **The idea.** A heartbeat sent at t that k members of S have acknowledged proves that those had not stopped their IO threads
//! at t. Whoever wins a race needs votes of |S| − k + 1 members that have, so one of those k is among them and stopped after
//! t. So the primary may write until t + P − drift(P), and a winner opens no earlier than P after its quorum had stopped. P
//! is [`super::timing::proof_length`]; it stands in the record `lease` (`proof_ms`) like T, and everybody goes by
//! the record. The exhaustive check has judged this (`tests/exhaustive/failsafe.rs`: fourteen rules, each needed); here is how the
//! agents keep it.
//!
//! # The interleavings, and the rule against each
//!
//! 1. **A heartbeat is late.** It counts from before it was sent ([`Heartbeat::sent`]), however late it comes back.
//! 2. **It returned without its acknowledgement**: semi-sync gave up, was switched off, waits for fewer (interleaving 9 of the
//!    design). → It counts only if commits waited for the recorded k, whatever came, both before it was sent and after it had
//!    returned ([`Heartbeat::acknowledged_by`]).
//! 3. **It was written in an earlier epoch.** → It carries the epoch of its lease, and counts in that alone.
//! 4. **`topology` changes while its primary cannot read it.** Another epoch: the winner has waited P. S or k: only the holder of
//!    `master` changes them, in the orders of [`super::rows::durability`], so that any record its own ambiguous write may have
//!    left has an S that contains all who acknowledge. Degraded without knowing it yet: nobody is promoted then.
//! 5. **P shrinks** (a restart with another file) **while the answer is lost.** → As with the lease: from sending the smaller one
//!    on the holder relies on no more ([`super::view::Held::proof`]). **A claim replaces the lease of a primary that writes
//!    on**, its winner dies, the next one reads the winner's P. → Until a holder has opened, its record keeps the larger of both
//!    ([`super::rows::lead`], `LeaseKeeper`).
//! 6. **The lease is over, and the agent of a primary that writes on sees ZooKeeper again**: its old session lives (it renews:
//!    nothing has happened), or is gone, with or without its node `master` still there. → Row P12: one transaction on the
//!    versions of `topology` and `lease` that *rewrites* `topology` and makes `master` anew; the epoch stays. Whoever loses it
//!    against a claim sees the next epoch and fences (S4). Before its lease holds again a primary publishes nothing else (`leased`):
//!    it would rewrite `topology` in turn with members that name nobody.
//! 7. **The ensemble is back, and the members see it before the primary does**: no `master`, a lease long over. Each freezing would
//!    block the commits of a primary that is well. → They hold back (R1, [`super::rows::race`]), and for all of T while what
//!    they receive still grows: nothing is lost by that, writes go on.
//! 8. **The primary alone is cut off.** It cannot tell that from an outage of the ensemble, and would learn of the race by missing
//!    acknowledgements: read-only waits for commits that nobody acknowledges any more, and the ladder ends in SIGKILL, with
//!    commits in its binary log that nobody else has. → Before a member freezes it makes that server read-only over the network
//!    while it still acknowledges (row R15, bounded): commits in flight end as they should. Where that fails P is what keeps two
//!    from writing.
//! 9. **It is opened again after such a fence.** Its own agent may do so, under its lease. → For the winner the fence counts as
//!    proof, in place of the wait for P, only if it was begun after that lease was over; a proof of acknowledgements opens
//!    nothing (P6 and P7 need the lease itself). Its agent may be back in time and finds it read-only: `offline_mode`, which a
//!    fence over the network leaves on, tells it from an operator's read-only.
//! 10. **A dead host must not cost P on top of T.** → A member that sees the lease unchanged for T − P, receives nothing and finds
//!     nobody who accepts a connection at its holder's server freezes early (row F10); its vote says for how long it has been
//!     frozen. P has passed when T has. The ensemble's leader died with that host: members lose ZooKeeper at the same
//!     moment, for as long as electing takes, and would freeze only afterwards (measured: 4.9 s instead of 3.1 s). → Until the
//!     lease is over they freeze without a session as well (row F11): stopping is always safe.
//!     What it costs where that host is well, and only the way to it was lost for a moment: in a session nothing, a lease that is
//!     renewed after all lets the member follow again (F5). **Without one nobody would ever let it**, and the primary of an outage
//!     that is none of MySQL would be left without acknowledgements. → Two looks and a longer silence are needed then, and it
//!     follows again as soon as that host answers.
//! 11. **The frozen member's IO thread is started after all**, by its agent, a restart, a person. → [`Frozen`]: the time
//!     counts from a stop that came to its end after everything that may have started it, in one life of the server, and ends with
//!     the first reading that shows it running.
//! 12. **The agent is restarted during the outage.** The new process knows no `topology`, so no heartbeat proves anything to it: its
//!     server is fenced at the end that the lease file says. When ZooKeeper is back its own vote is enough (interleaving 13 of
//!     the design) and it takes its role back in the next epoch.
//! 13. **mysqld is restarted during the outage.** It comes up read-only, and stays so until there is a lease.
//! 14. **Paused, planned switch, released, the last writer's own vote**: nobody else can have a proof, nothing is waited for.
//! 15. **`promote --allow-data-loss` without votes**: P from the claim on, and no proof; the old primary is fenced over the
//!     network or the verb says that a second writer cannot be excluded.
//! 16. **Agent or fencing task hang, or the agent dies.** Fencing task and lease file hold the later of both ends; both come from the
//!     decision loop, so that a loop that hangs extends nothing. The guard goes by the file.

use std::time::Duration;

use super::action::{Action, MysqlKind};
use super::case::Case;
use super::election::{self, Lock};
use super::memory::{Frozen, Memory};
use super::outcome::Outcome;
use super::records::{DurabilityMode, Topology};
use super::time::Moment;
use super::timing::{lease_length, proof_length};
use super::view::{Heartbeat, IoThread};

/// P as our lease is to carry it: zero where there is no failsafe.
#[must_use]
pub fn length(case: &Case<'_>) -> Duration {
    let own = &case.view.own;
    let lossless = case.topology().is_some_and(|topology| topology.record.durability.mode == DurabilityMode::Lossless);
    let (true, true, Some((_, granted))) = (own.failsafe, lossless, case.connected()) else { return Duration::ZERO };
    proof_length(granted, own.heartbeat_interval, own.heartbeat_timeout, own.fencing_budget).unwrap_or_default()
}

/// The same in a record.
#[must_use]
pub fn milliseconds(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// What the record of a claim carries: until its holder has opened, the one before may be writing under its own P.
#[must_use]
pub fn claimed(case: &Case<'_>) -> u64 {
    let replaced = case.lease_node().filter(|lease| !lease.record.released).map_or(0, |lease| lease.record.proof_ms);
    milliseconds(length(case)).max(replaced)
}

/// Until when the last acknowledged heartbeat lets our server take writes, whatever becomes of the lease; none: it does not.
#[must_use]
pub fn until(case: &Case<'_>) -> Option<Moment> {
    let held = case.view.held.as_ref().filter(|held| held.opened && !held.inherited && !held.proof.is_zero())?;
    let topology = &case.topology()?.record;
    let beat = case.view.server.heartbeat.as_ref()?;
    let counts = case.view.own.failsafe
        && topology.epoch == held.epoch
        && case.others_master().is_none()
        && proves(topology, beat);
    counts.then(|| beat.sent + lease_length(held.proof))
}

/// Acknowledged by k members of S, in this epoch.
fn proves(topology: &Topology, beat: &Heartbeat) -> bool {
    let durability = &topology.durability;
    durability.mode == DurabilityMode::Lossless
        && !durability.degraded
        && !durability.sync.is_empty()
        && beat.epoch == topology.epoch
        && beat.acknowledged_by == Some(durability.sync_replicas.max(1))
}

/// Until when whoever holds the lease as it stands may take writes on acknowledgements, as the votes tell. Not before its own end
/// has been waited for too.
#[must_use]
pub fn over_at(case: &Case<'_>, counted: &[Lock<'_>]) -> Moment {
    let Some(lease) = case.lease_node().filter(|lease| !lease.record.released && lease.record.proof_ms > 0) else {
        return Moment(0);
    };
    // Its own vote says that it is read-only, and nobody else can have a proof.
    if case.last_writer().is_some_and(|last| counted.iter().any(|(_, lock)| lock.record.name == last)) {
        return Moment(0);
    }
    let proof = Duration::from_millis(lease.record.proof_ms);
    let Some(durability) = &case.counted_by() else { return case.now + proof };
    // Forced: without a quorum the votes say nothing of those who are absent.
    if election::quorum_missing(counted, durability, None).is_some() {
        return case.now + proof;
    }
    let frozen = counted
        .iter()
        .filter(|(_, lock)| durability.sync.contains(&lock.record.name))
        .map(|(_, lock)| lock.first_seen - Duration::from_millis(lock.record.frozen_ms));
    frozen.max().unwrap_or(case.now) + proof
}

/// For how long our IO thread has certainly been stopped.
#[must_use]
pub fn frozen_for(case: &Case<'_>, memory: &Memory) -> Duration {
    memory.frozen.since.as_ref().map_or(Duration::ZERO, |(since, _)| case.now.since(*since))
}

/// Takes note, ahead of a decision, of what stops and starts our IO thread, and of a primary that has begun to write on
/// acknowledgements alone.
pub fn note(case: &Case<'_>, memory: &mut Memory) {
    if case.lease().is_none() && case.may_write() && case.writable() {
        memory.on_acknowledgements.get_or_insert(case.now);
    } else if case.lease().is_none() {
        // Fenced, or the role is another's: that has its own record.
        memory.on_acknowledgements = None;
    }
    note_frozen(case, &mut memory.frozen);
}

fn note_frozen(case: &Case<'_>, frozen: &mut Frozen) {
    let Some((facts, at)) = &case.view.server.facts else { return };
    let runs = facts.channel.as_ref().is_some_and(|channel| channel.io != IoThread::No);
    if runs {
        frozen.thawed = frozen.thawed.max(Some(*at));
    }
    let lives = |(since, life): &(Moment, String)| {
        !case.exited() && *life == facts.incarnation && frozen.thawed.is_none_or(|thawed| thawed < *since)
    };
    if frozen.since.as_ref().is_some_and(|since| !lives(since)) {
        frozen.since = None;
        // Another life of the server begins with a stop of its own.
        frozen.thawed = frozen.thawed.max(Some(case.now));
    }
    let stopped = case.view.server.done.filter(|(kind, _)| *kind == MysqlKind::StopIo).map(|(_, at)| at);
    if let Some(stopped) = stopped.filter(|stopped| !case.exited() && frozen.thawed.is_none_or(|at| at < *stopped)) {
        frozen.since.get_or_insert_with(|| (stopped, facts.incarnation.clone()));
    }
}

/// The same, after it: what may start our IO thread is about to be done.
pub fn note_decided(case: &Case<'_>, memory: &mut Memory, outcome: &Outcome) {
    let starts = |action: &Action| {
        let Action::Mysql(action) = action else { return false };
        matches!(
            action.kind(),
            MysqlKind::Follow | MysqlKind::FollowTarget | MysqlKind::Fetch | MysqlKind::Acknowledge | MysqlKind::Open
        )
    };
    if outcome.actions.iter().any(starts) {
        memory.frozen = Frozen { since: None, thawed: Some(case.now) };
    }
}
