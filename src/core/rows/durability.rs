//! What protects acknowledged writes in `lossless`: the recorded sync set S, and semi-sync kept in step with it.
//!
//! **S always contains every server that can acknowledge.** Interleavings, and the rule against each:
//!
//! - A replica acknowledges before it is recorded; its vote is not asked for, and the write it alone holds is lost. → The
//!   primary records S ∪ {r} first ([`crate::core::changes`]); r switches its semi-sync on only when it sees itself recorded,
//!   in a live session ([`acknowledge`]).
//! - r decides to switch on while the primary removes it (interleaving 18). → r publishes `acknowledges: true` first and acts
//!   only on a `topology` it has read after that was to be seen; the removing transaction checks the version of `agents/r` that
//!   says `false`. Whichever is later fails.
//! - r is removed though it can still acknowledge: switched off without a restart of its IO thread it goes on (interleaving
//!   4). → A member is asked first (`retiring`), it counts in S meanwhile, and is removed only when its own agent confirms with
//!   both the variable and the status off, or that its mysqld has exited: a restart comes up with replication stopped.
//! - A write acknowledged by r alone just before is in no other member's count (interleaving 5). → The removal is recorded
//!   only after a heartbeat *sent after* the confirmation has been acknowledged: by a member of the smaller set then, which
//!   has received everything before it; the smaller quorum contains one such member. Its watermark becomes the floor.
//! - A member whose agent is gone confirms nothing: it stays in S.
//! - The source side is off, or gave up by itself, or waits for too few (interleaving 9). → It is checked with each
//!   reading; what cannot be kept is recorded as degraded, and nobody is promoted automatically then.

use std::time::Duration;

use crate::core::action::{MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::degrade::Seen;
use crate::core::gtid::GtidSet;
use crate::core::memory::Memory;
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{Durability, DurabilityMode, Incident, Role, Topology};
use crate::core::time::Moment;
use crate::core::view::{self, IoThread};

/// How long a failed action rests before it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// As the primary that takes writes, in `lossless`.
fn primary<'a>(case: &Case<'a>) -> Option<&'a view::Seen<Topology>> {
    case.own_master()?;
    let topology = case.topology()?;
    let ours = topology.record.primary.as_deref() == Some(case.me())
        && topology.record.durability.mode == DurabilityMode::Lossless
        && case.leased()
        && case.writable()
        && case.healthy();
    ours.then_some(topology)
}

fn rested(case: &Case<'_>) -> bool {
    case.view.server.failure.as_ref().is_none_or(|failure| case.now.since(failure.at) > RETRY)
}

/// Whether a member acknowledges as it should: it follows, and its agent says so.
fn counts(case: &Case<'_>, name: &str) -> bool {
    let Some(facts) = case.facts() else { return false };
    case.agent(name).is_some_and(|agent| {
        changes::follows(agent, &facts.server_uuid)
            && agent.server.as_ref().is_some_and(|server| {
                server.acknowledging && server.source.as_ref().is_some_and(|source| source.io_running)
            })
    })
}

/// Counts acknowledgements that came and that are missing.
pub fn count(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let server = &case.view.server;
    let executed = &case.facts()?.executed;
    let acknowledged = server.heartbeat.as_ref().map(|beat| beat.sent);
    let seen = Seen { acknowledged, missing: server.unacknowledged, executed };
    let received = |set: &GtidSet| {
        let has = |name: &&String| {
            let record = case.agent(name).and_then(|agent| agent.server.as_ref());
            counts(case, name) && record.is_some_and(|record| record.executed.union(&record.retrieved).contains(set))
        };
        durability.sync.iter().filter(has).count() >= k(durability)
    };
    memory.degrade.observe(case.view.own.degrade, durability.degraded, seen, received, case.now);
    None
}

/// Too many acknowledgements in a row are missing: recorded first, and only then is nobody waited for any more.
pub fn degrade(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let policy = case.view.own.degrade;
    let on = case.facts()?.semi_sync.source.is_some_and(|source| source.on);
    if durability.degraded {
        let idle = !on || memory.degrade.may_restore(policy) || !rested(case);
        let text = "degraded: commits wait for no acknowledgement any more";
        let action = MysqlAction::AwaitAcknowledgements { count: 0 };
        return (!idle).then(|| Outcome::wait(Role::Primary, Reason::Degraded, text).mysql(action));
    }
    if !on || !memory.degrade.too_many_failures(policy) {
        return None;
    }
    memory.degrade.degraded();
    let (times, period) = (policy.times.unwrap_or(0), policy.period.as_secs_f64());
    let text = format!(
        "no acknowledgement {times} times in a row ({period:.1} s each): degrades to asynchronous; acknowledged writes may be \
         here alone, and nobody is promoted automatically until it is restored"
    );
    let next = Durability { degraded: true, ..durability.clone() };
    let outcome = record(topology, next, Vec::new(), text.clone());
    Some(incident(case, outcome, Reason::Degraded, text))
}

/// Commits wait, and a member has begun to acknowledge since: it does so only for what comes after (interleaving 16).
pub fn mark(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let sync = &topology.record.durability.sync;
    memory.marked.retain(|name, _| sync.contains(name) && counts(case, name));
    if case.view.server.unacknowledged.is_none() {
        // Whatever is committed from here on is a marker by itself.
        memory.marked = sync.iter().filter(|name| counts(case, name)).map(|name| (name.clone(), Moment(0))).collect();
        return None;
    }
    let new = sync.iter().find(|name| counts(case, name) && memory.marked.get(*name) != Some(&Moment(0)))?;
    let asked = *memory.marked.entry(new.clone()).or_insert(case.now);
    let of = |kind, at| kind == MysqlKind::CommitMarker && at >= asked;
    let server = &case.view.server;
    let failed = server.failure.as_ref().is_some_and(|failure| of(failure.kind, failure.at));
    if failed || server.done.is_some_and(|(kind, at)| of(kind, at)) {
        memory.marked.insert(new.clone(), Moment(0));
        return None;
    }
    let text = format!("{new} acknowledges again while commits wait: commits one more, with which it acknowledges all");
    Some(Outcome::wait(Role::Primary, Reason::Blocked, text).mysql(MysqlAction::CommitMarker))
}

fn incident(case: &Case<'_>, outcome: Outcome, kind: Reason, detail: String) -> Outcome {
    let incident = Incident {
        at: case.view.wall.clone(),
        kind,
        subject: case.me().to_owned(),
        noticed_by: case.me().to_owned(),
        detail,
    };
    outcome.write(Purpose::Incident, vec![Op::Create(Path::NewIncident, Record::Incident(incident))])
}

fn k(durability: &Durability) -> usize {
    usize::try_from(durability.sync_replicas.max(1)).unwrap_or(usize::MAX)
}

/// The next record with this durability.
fn record(topology: &view::Seen<Topology>, durability: Durability, mut checks: Vec<Op>, text: String) -> Outcome {
    let next = Topology { durability, ..topology.record.clone() };
    checks.push(Op::Set(Path::Topology, Record::Topology(next), topology.version));
    Outcome::wait(Role::Primary, Reason::Primary, text).write(Purpose::Members, checks)
}

/// Commits do not wait as the record says: degraded, or switched on, whichever can be kept.
pub fn keep_waiting(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let waits = case.facts()?.semi_sync.waits_for(durability.sync_replicas.max(1));
    if durability.degraded || waits || !rested(case) {
        return None;
    }
    let text = "commits do not wait for acknowledgements as they should: switching semi-sync on";
    let action = MysqlAction::AwaitAcknowledgements { count: durability.sync_replicas.max(1) };
    Some(Outcome::wait(Role::Primary, Reason::Primary, text).mysql(action))
}

/// Why this primary is degraded, in words; none where it is not.
#[must_use]
pub fn note(case: &Case<'_>) -> Option<String> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    if !durability.degraded {
        return None;
    }
    let able = durability.sync.iter().filter(|name| counts(case, name)).count();
    let waits = case.facts()?.semi_sync.waits_for(durability.sync_replicas.max(1));
    Some(match (able >= k(durability), waits) {
        (false, _) => format!(
            "degraded: {able} of {} replicas could acknowledge, commits wait for none, nobody is promoted automatically",
            k(durability)
        ),
        (true, false) => "degraded: commits are about to wait for acknowledgements".to_owned(),
        (true, true) => "degraded: commits wait, the first acknowledgement is still to come".to_owned(),
    })
}

/// Degraded (since adoption, or since acknowledgements were missing): switched on again once enough members acknowledge,
/// and recorded once a heartbeat has been acknowledged under it.
pub fn restore(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let able = durability.sync.iter().filter(|name| counts(case, name)).count();
    if !durability.degraded || able < k(durability) || !memory.degrade.may_restore(case.view.own.degrade) {
        memory.restoring = None;
        return None;
    }
    let (facts, read) = case.view.server.facts.as_ref()?;
    if !facts.semi_sync.waits_for(durability.sync_replicas.max(1)) {
        memory.restoring = None;
        let text = "enough replicas acknowledge: lets commits wait for them";
        let action = MysqlAction::AwaitAcknowledgements { count: durability.sync_replicas.max(1) };
        return rested(case).then(|| Outcome::wait(Role::Primary, Reason::Degraded, text).mysql(action));
    }
    let since = *memory.restoring.get_or_insert(*read);
    let beat = case.view.server.heartbeat.as_ref().filter(|beat| beat.sent > since)?;
    memory.restoring = None;
    let next = Durability { degraded: false, floor: beat.executed.clone(), ..durability.clone() };
    Some(record(topology, next, Vec::new(), "acknowledged again: no longer degraded".to_owned()).urgent())
}

/// A member of S that cannot be counted on for longer than this is asked to acknowledge nothing more.
fn patience(granted: Duration) -> Duration {
    granted
}

/// Asks a member to leave S, or takes that back, where enough others are left.
pub fn retire(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let (_, granted) = case.connected()?;
    if durability.degraded {
        return None;
    }
    let back = durability.retiring.iter().find(|name| {
        let record = case.agent(name);
        record.is_some_and(|agent| {
            changes::follows(agent, &case.facts().map(|f| f.server_uuid.clone()).unwrap_or_default())
        })
    });
    if let Some(back) = back {
        let mut next = durability.clone();
        next.retiring.retain(|name| name != back);
        memory.missed.remove(back);
        return Some(record(topology, next, Vec::new(), format!("{back} follows again and stays in the sync set")));
    }
    for name in &durability.sync {
        if counts(case, name) {
            memory.missed.remove(name);
        } else {
            memory.missed.entry(name.clone()).or_insert(case.now);
        }
    }
    memory.missed.retain(|name, _| durability.sync.contains(name));
    let able = |without: &str| durability.sync.iter().filter(|name| *name != without && counts(case, name)).count();
    let missed = memory.missed.iter().find(|(name, since)| {
        !durability.retiring.contains(name)
            && case.now.since(**since) > patience(granted)
            && able(name) >= k(durability)
    });
    let (name, _) = missed?;
    let mut next = durability.clone();
    next.retiring.push(name.clone());
    Some(record(topology, next, Vec::new(), format!("{name} does not acknowledge: it is to leave the sync set")))
}

/// A retiring member that certainly acknowledges nothing more, with a heartbeat acknowledged by the others since.
pub fn remove(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let confirmed = durability.retiring.iter().find_map(|name| {
        let seen = case.view.ensemble.agents.get(name)?;
        (seen.record.server.as_ref()?.acknowledges == Some(false)).then_some((name, seen))
    });
    let Some((name, seen)) = confirmed else {
        memory.confirmed = None;
        return None;
    };
    // From when this process saw it on, in whichever version of its record: each one that says so will do for the check.
    let since = match &memory.confirmed {
        Some((who, since)) if who == name => *since,
        _ => case.now,
    };
    memory.confirmed = Some((name.clone(), since));
    let beat = case.view.server.heartbeat.as_ref()?;
    // It counts only while commits have been waiting all along (interleaving 9).
    let waits = case.facts()?.semi_sync.waits_for(durability.sync_replicas.max(1));
    if beat.sent <= since || durability.degraded || !waits {
        return None;
    }
    let mut next = durability.clone();
    next.sync.retain(|member| member != name);
    next.retiring.retain(|member| member != name);
    next.floor = beat.executed.clone();
    let checks = vec![Op::Check(Path::Agent(name.clone()), seen.version)];
    Some(record(topology, next, checks, format!("{name} has left the sync set")))
}

/// The replica's part: acknowledges exactly while it is recorded, and only after having said so.
pub fn acknowledge(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let master = case.others_master()?;
    let topology = &case.topology()?.record;
    let facts = case.facts()?;
    let channel = facts.channel.as_ref()?;
    let replica = facts.semi_sync.replica?;
    if master.record.epoch != topology.epoch || channel.source != master.record.address || !case.healthy() {
        return None;
    }
    let lossless = topology.durability.mode == DurabilityMode::Lossless;
    let on = lossless && may(case);
    let as_it_should = match on {
        // Connecting: the status is off until the source has let it in.
        true => channel.io != IoThread::Yes || (replica.enabled && replica.active),
        false => !replica.enabled && !replica.active,
    };
    // In `async` the replica's side is the operator's: nothing waits for it.
    if as_it_should || !lossless || !rested(case) {
        return None;
    }
    if on && !said_so(case) {
        let text = "is recorded as one that acknowledges: says so before it does";
        return Some(Outcome::wait(Role::Replica, Reason::Following, text).urgent());
    }
    let text = match on {
        true => "acknowledges from now on what it receives",
        false => "is not recorded as one that acknowledges: switches semi-sync off",
    };
    Some(Outcome::wait(Role::Replica, Reason::Following, text).mysql(MysqlAction::Acknowledge { on }))
}

/// Whether `topology` lets this server acknowledge.
#[must_use]
pub fn may(case: &Case<'_>) -> bool {
    case.topology().is_some_and(|topology| topology.record.durability.counts_on(case.me()))
}

/// Our own record, as ZooKeeper has it, says that we acknowledge: then the `topology` beside it in the view is no older.
#[must_use]
pub fn said_so(case: &Case<'_>) -> bool {
    case.agent(case.me())
        .and_then(|agent| agent.server.as_ref())
        .is_some_and(|server| server.acknowledges == Some(true))
}
