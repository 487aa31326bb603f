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
//! - A member whose agent is gone confirms nothing: it stays in S, unless it has a replication account of its own and is shut out
//!   by it ([`super::shut_out`]).
//! - A member's host crashes, and what it had acknowledged and not synced is lost; back again it votes with less (interleaving 7).
//!   → S records the life in which each member is counted on, and a vote from another one does not count. The primary records
//!   the new life once a heartbeat sent after that life was known here has been acknowledged, and the member has received what
//!   was executed before it ([`count_anew`]). By then k members hold each acknowledged write in a life that counts: what was
//!   written before the heartbeat those that acknowledged it, which have received all before it; what came later cannot have
//!   been acknowledged in the old life.
//! - The end of being degraded is recorded, the answer does not come, acknowledgements are missing again, and nobody is
//!   waited for; then the record lands: not degraded, and acknowledged writes are here alone. → What says *degraded* is replaced
//!   by the same before waiting ends, so that nothing older can land ([`degrade`]).
//! - The source side is off, or gave up by itself, or waits for too few (interleaving 9). → It is checked with each
//!   reading; what cannot be kept is recorded as degraded, and nobody is promoted automatically then.

use std::time::Duration;

use super::{incident, rooms, shut_out, terms};
use crate::core::action::{MysqlAction, MysqlKind, Op, Path, Purpose};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::degrade::Seen;
use crate::core::gtid::GtidSet;
use crate::core::memory::{Anew, Marker, Memory, Setting};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{AgentRecord, Durability, DurabilityMode, Role, Topology};
use crate::core::time::Moment;
use crate::core::view::{self, IoThread};

/// How long a failed action rests before it is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// As the primary that takes writes.
pub(super) fn writing<'a>(case: &Case<'a>) -> Option<&'a view::Seen<Topology>> {
    case.own_master()?;
    let topology = case.topology()?;
    let named = topology.record.primary.as_deref() == Some(case.me());
    (named && case.leased() && case.writable() && case.healthy()).then_some(topology)
}

/// The same in `lossless`.
pub(super) fn primary<'a>(case: &Case<'a>) -> Option<&'a view::Seen<Topology>> {
    writing(case).filter(|topology| topology.record.durability.mode == DurabilityMode::Lossless)
}

pub(super) fn rested(case: &Case<'_>) -> bool {
    case.view.server.failure.as_ref().is_none_or(|failure| case.now.since(failure.at) > RETRY)
}

/// The agent of a member that follows us.
pub(super) fn follower<'a>(case: &Case<'a>, name: &str) -> Option<&'a AgentRecord> {
    let facts = case.facts()?;
    case.agent(name).filter(|agent| changes::follows(agent, &facts.server_uuid))
}

/// Whether a member acknowledges as it should: it follows, and its agent says so.
fn counts(case: &Case<'_>, name: &str) -> bool {
    follower(case, name)
        .filter(|agent| changes::receives(agent))
        .and_then(|agent| agent.server.as_ref())
        .is_some_and(|server| server.acknowledging)
}

/// The members of S that acknowledge as they should.
pub(super) fn able<'a>(case: &'a Case<'_>, durability: &'a Durability) -> impl Iterator<Item = &'a String> {
    durability.sync.iter().filter(|name| counts(case, name))
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
            record.is_some_and(|record| record.received().contains(set))
        };
        durability.is_enough(able(case, durability).filter(has).count())
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
        if !on || memory.degrade.may_restore(policy) || !rested(case) {
            return None;
        }
        if let Some(first) = certainly_degraded(memory, topology) {
            return Some(first);
        }
        let text = "degraded: commits wait for no acknowledgement any more";
        let action = MysqlAction::AwaitAcknowledgements { count: 0 };
        return Some(Outcome::wait(Role::Primary, Reason::Degraded, text).mysql(action));
    }
    if !on || !memory.degrade.too_many_failures(policy) {
        return None;
    }
    memory.degrade.degraded();
    memory.degraded_over = Some(topology.version);
    let (times, period) = (policy.times.unwrap_or(0), policy.period.as_secs_f64());
    let text = format!(
        "no acknowledgement {times} times in a row ({period:.1} s each): degrades to asynchronous; acknowledged writes may be \
         here alone, and nobody is promoted automatically until it is restored"
    );
    let next = Durability { degraded: true, ..durability.clone() };
    let note = incident(case, Reason::Degraded, case.me(), text.clone());
    Some(record(topology, next, Vec::new(), text).write(Purpose::Incident, vec![note]))
}

/// Before commits that waited wait for nobody any more. A record of ours that ends being degraded may be on its way, its answer
/// lost: it would land beside commits that are acknowledged by nobody (found by simulation). So what says *degraded* is replaced
/// by the same first, which makes any such fail. None: that has been done.
pub fn certainly_degraded(memory: &mut Memory, topology: &view::Seen<Topology>) -> Option<Outcome> {
    let version = topology.version;
    if memory.degraded_over.is_some_and(|over| over < version) && memory.restored_over < Some(version) {
        return None;
    }
    memory.degraded_over = Some(version);
    let text = "degraded: makes sure that it is recorded before nobody is waited for".to_owned();
    Some(record(topology, topology.record.durability.clone(), Vec::new(), text))
}

/// Commits wait, and a member has begun to acknowledge since: it does so only for what comes after (interleaving 16).
pub fn mark(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    memory.marked.retain(|name, _| durability.sync.contains(name) && counts(case, name));
    if case.view.server.unacknowledged.is_none() {
        // Whatever is committed from here on is a marker by itself.
        memory.marked = able(case, durability).map(|name| (name.clone(), Marker::Sent)).collect();
        return None;
    }
    let new = able(case, durability).find(|name| memory.marked.get(*name) != Some(&Marker::Sent))?;
    let marker = memory.marked.entry(new.clone()).or_insert(Marker::Asked(case.now));
    let Marker::Asked(asked) = *marker else { return None };
    if case.view.server.came_of(MysqlKind::CommitMarker, asked).is_some() {
        *marker = Marker::Sent;
        return None;
    }
    let text = format!("{new} acknowledges again while commits wait: commits one more, with which it acknowledges all");
    Some(Outcome::wait(Role::Primary, Reason::Blocked, text).mysql(MysqlAction::CommitMarker))
}

/// The next record with this durability.
pub(super) fn record(
    topology: &view::Seen<Topology>,
    durability: Durability,
    mut checks: Vec<Op>,
    text: String,
) -> Outcome {
    let next = Topology { durability, ..topology.record.clone() };
    checks.push(Op::set_topology(next, topology.version));
    Outcome::wait(Role::Primary, Reason::Primary, text).write(Purpose::Members, checks)
}

/// Commits do not wait as the record says, or as it is about to say.
pub fn keep_waiting(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let count = terms::higher_k(case, durability).unwrap_or(durability.k());
    if durability.degraded || case.facts()?.semi_sync.waits_for_exactly(count) || !rested(case) {
        return None;
    }
    let text = format!("commits are to wait for {count} acknowledgements and do not: sets semi-sync accordingly");
    Some(Outcome::wait(Role::Primary, Reason::Primary, text).mysql(MysqlAction::AwaitAcknowledgements { count }))
}

/// Since when commits certainly wait for `count` acknowledgements (0: for none); before that, what is to be done, if anything.
///
/// A reading alone says too little: an action that sets another number may be on its way, asked for under an earlier
/// record or an earlier file. The lane does one thing at a time, so an action asked for now comes after it; what is read
/// after it has come back holds until this agent asks for something else.
pub(super) fn settled(case: &Case<'_>, memory: &mut Memory, count: u32) -> Result<Moment, Option<MysqlAction>> {
    let Some((facts, read)) = &case.view.server.facts else { return Err(None) };
    let asked = memory.setting.filter(|setting| setting.count == count);
    let setting = memory.setting.insert(asked.unwrap_or(Setting { count, asked: case.now, since: None }));
    let source = facts.semi_sync.source;
    let as_asked = match count {
        0 => source.is_none_or(|source| !source.on),
        _ => facts.semi_sync.waits_for_exactly(count),
    };
    let of = |(kind, at): (MysqlKind, Moment)| {
        (kind == MysqlKind::AwaitAcknowledgements && at >= setting.asked).then_some(at)
    };
    let came_back = case.view.server.done.and_then(of);
    let read_since = came_back.is_some_and(|at| *read > at);
    setting.since = setting.since.or(read_since.then_some(*read)).filter(|_| as_asked);
    match setting.since {
        Some(since) => Ok(since),
        None if came_back.is_some() && !read_since => Err(None),
        None => Err(rested(case).then_some(MysqlAction::AwaitAcknowledgements { count })),
    }
}

/// The last heartbeat, where it was sent after `since` and has been acknowledged: what had been executed before it.
pub(super) fn acknowledged_since<'a>(case: &Case<'a>, since: Moment) -> Option<&'a GtidSet> {
    let beat = case.view.server.heartbeat.as_ref()?;
    (beat.sent > since).then_some(&beat.executed)
}

/// Why this primary is degraded, in words; none where it is not.
#[must_use]
pub fn note(case: &Case<'_>) -> Option<String> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    if !durability.degraded {
        return None;
    }
    let able = able(case, durability).count();
    let waits = case.facts()?.semi_sync.waits_for(durability.k());
    Some(match (durability.is_enough(able), waits) {
        (false, _) => format!(
            "degraded: {able} of {} replicas could acknowledge, commits wait for none, nobody is promoted automatically",
            durability.k()
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
    if !durability.degraded || terms::gives_up(case, durability) {
        return None;
    }
    let enough = durability.is_enough(able(case, durability).count());
    if !enough || !memory.degrade.may_restore(case.view.own.degrade) {
        memory.setting = None;
        return None;
    }
    let since = match settled(case, memory, durability.k()) {
        Ok(since) => since,
        Err(action) => {
            let text = "enough replicas acknowledge: lets commits wait for them";
            return action.map(|action| Outcome::wait(Role::Primary, Reason::Degraded, text).mysql(action));
        }
    };
    let watermark = acknowledged_since(case, since)?;
    memory.setting = None;
    memory.restored_over = Some(topology.version);
    let next = Durability { degraded: false, floor: watermark.clone(), ..durability.clone() };
    Some(record(topology, next, Vec::new(), "acknowledged again: no longer degraded".to_owned()).urgent())
}

/// Asks a member that cannot be counted on for longer than T, or that stands in our room ([`rooms`]), to leave S, or takes
/// that back, where enough others are left.
pub fn retire(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let (_, granted) = case.connected()?;
    let elsewhere = rooms::enough_elsewhere(case, memory);
    let left_out = |name: &str| elsewhere && case.in_our_room(name);
    // One that follows and receives nothing would be asked and taken back in turn for ever (found by a live test).
    // Where its account is locked here it cannot receive before it counts again: then it is let in.
    let locked = |name: &str| durability.is_locked_at(name, case.me());
    let receives = |name: &str| follower(case, name).is_some_and(|agent| locked(name) || changes::receives(agent));
    // Also while degraded: otherwise nobody would be left to be restored with.
    let comes_back = |name: &&String| receives(name) && !left_out(name);
    if let Some(back) = durability.retiring.iter().find(comes_back) {
        let mut next = durability.clone();
        next.retiring.retain(|name| name != back);
        memory.missed.remove(back);
        return Some(record(topology, next, Vec::new(), format!("{back} follows again and stays in the sync set")));
    }
    if durability.degraded {
        return None;
    }
    for name in &durability.sync {
        if counts(case, name) {
            memory.missed.remove(name);
        } else {
            memory.missed.entry(name.clone()).or_insert(case.now);
        }
    }
    memory.missed.retain(|name, _| durability.sync.contains(name));
    let able_without = |leaving: &String| able(case, durability).filter(|name| *name != leaving).count();
    let settled = rooms::settled(case, memory, elsewhere, granted);
    let missed = |name: &str| memory.missed.get(name).is_some_and(|since| case.now.since(*since) > granted);
    let leaving = durability.sync.iter().find(|name| {
        !durability.retiring.contains(name)
            && (missed(name) || (settled && case.in_our_room(name)))
            && durability.is_enough(able_without(name))
    });
    let name = leaving?;
    let why = if missed(name) {
        "does not acknowledge"
    } else {
        "stands in the primary's room, and enough elsewhere acknowledge"
    };
    let text = format!("{name} {why}: it is to leave the sync set");
    let mut next = durability.clone();
    next.retiring.push(name.clone());
    Some(record(topology, next, Vec::new(), text))
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
    let watermark = acknowledged_since(case, since)?;
    // It counts only while commits have been waiting all along (interleaving 9).
    if durability.degraded || !case.facts()?.semi_sync.waits_for(durability.k()) {
        return None;
    }
    let mut next = durability.clone();
    next.forget(name);
    next.floor = watermark.clone();
    let checks = vec![Op::Check(Path::Agent(name.clone()), seen.version)];
    Some(record(topology, next, checks, format!("{name} has left the sync set")))
}

/// A member of S lives anew and may have lost what it had acknowledged: it is counted on again once it has received what we had
/// executed when a heartbeat was sent *after* that was known here, and acknowledged.
pub fn count_anew(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    if durability.degraded || !case.facts()?.semi_sync.waits_for(durability.k()) {
        memory.anew.clear();
        return None;
    }
    let life = |name: &str| case.agent(name)?.server.as_ref()?.incarnation.as_deref();
    let anew = |name: &String| life(name).filter(|life| !durability.kept_all(name, life));
    memory.anew.retain(|name, known| durability.sync.contains(name) && anew(name) == Some(&known.life));
    for (name, life) in durability.sync.iter().filter_map(|name| Some((name, anew(name)?))) {
        let first = Anew { life: life.to_owned(), since: case.now, watermark: None };
        let known = memory.anew.entry(name.clone()).or_insert(first);
        known.watermark = known.watermark.take().or_else(|| acknowledged_since(case, known.since).cloned());
    }
    let (name, known, seen) = memory.anew.iter().find_map(|(name, known)| {
        let seen = case.view.ensemble.agents.get(name)?;
        let received = seen.record.server.as_ref()?.received();
        received.contains(known.watermark.as_ref()?).then_some((name, known, seen))
    })?;
    let mut next = durability.clone();
    next.incarnations.insert(name.clone(), known.life.clone());
    let checks = vec![Op::Check(Path::Agent(name.clone()), seen.version)];
    let text = format!("{name} was restarted and has caught up: its vote counts again");
    Some(record(topology, next, checks, text))
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
    let durability = case.topology().map(|topology| &topology.record.durability);
    durability.is_some_and(|durability| durability.counts_on(case.me()) && shut_out::covered(case, durability))
}

/// Our own record, as ZooKeeper has it, says that we acknowledge: then the `topology` beside it in the view is no older.
#[must_use]
pub fn said_so(case: &Case<'_>) -> bool {
    case.agent(case.me())
        .and_then(|agent| agent.server.as_ref())
        .is_some_and(|server| server.acknowledges == Some(true))
}
