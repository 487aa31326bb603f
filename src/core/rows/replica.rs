//! Another agent holds `master`: follow it, or say why not.

use std::time::Duration;

use super::durability;
use crate::core::action::{Action, MysqlAction, MysqlKind, Op, Path, Purpose};
use crate::core::case::Case;
use crate::core::memory::{FollowAttempt, Memory};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{Handover, Master, Member, MemberState, Progress, Role};
use crate::core::view::{Channel, Health, IoThread, ServerFacts};

/// How long after a failed attempt the next one comes.
const RETRY: Duration = Duration::from_secs(1);
/// How often a replica that the primary does not let in tries the file's password again.
const REFUSED_AGAIN: Duration = Duration::from_secs(5);
/// How long an attempt to replicate by another account than before rests where it has failed.
const ACCOUNT_AGAIN: Duration = Duration::from_secs(60);
/// How often a diverged server is compared again.
const COMPARE_AGAIN: Duration = Duration::from_secs(10);

/// The holder of the present epoch.
fn primary<'a>(case: &Case<'a>) -> Option<&'a Master> {
    let master = &case.others_master()?.record;
    (master.epoch == case.topology()?.record.epoch).then_some(master)
}

/// A lock left over from a race that is decided is removed first: only a member whose lock is known to be gone may
/// receive, and so acknowledge, again (interleaving 3).
pub fn withdraw(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    primary(case)?;
    memory.race = None;
    memory.promotion = None;
    if let Some(outcome) = end_clients(case, memory) {
        return Some(outcome);
    }
    let (sequence, lock) = case.own_locks().next()?;
    let ops = vec![Op::Delete(Path::Lock(sequence), lock.version)];
    Some(
        Outcome::wait(Role::Replica, Reason::Repointing, "the race is decided: withdraws its lock")
            .write(Purpose::Withdraw, ops)
            .urgent(),
    )
}

/// After a planned switch, on the old primary: asked for until it has been done or has failed, as a busy lane drops it.
fn end_clients(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let asked = memory.clients_to_end.filter(|_| case.healthy())?;
    if case.view.server.came_of(MysqlKind::EndClientConnections, asked).is_some() {
        memory.clients_to_end = None;
        return None;
    }
    let text = "the role has passed on: ends the client connections here";
    Some(Outcome::wait(Role::Replica, Reason::Switchover, text).mysql(MysqlAction::EndClientConnections).urgent())
}

/// Our server does not answer.
pub fn unhealthy(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    primary(case)?;
    let text = match &case.view.server.health {
        Health::Failed { why, .. } | Health::Unreachable { why } => why.clone(),
        Health::Unknown => "waits for the first answer of this host's server".to_owned(),
        Health::Healthy | Health::Blocked { .. } if case.healthy() => return None,
        _ => "mysqld has exited".to_owned(),
    };
    Some(Outcome::wait(Role::Replica, Reason::Unhealthy, text))
}

/// A server that is not recorded and does not replicate from the primary is not touched.
pub fn stranger(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let primary = primary(case)?;
    if case.member().is_some() {
        return None;
    }
    let follows = case.facts()?.channel.as_ref().is_some_and(|channel| channel.source == primary.address);
    let text = if follows {
        format!("replicates from {}, which will record it as a member", primary.name)
    } else {
        format!(
            "this server is no member of the cluster: make it replicate from {} ({}) and it joins",
            primary.name, primary.address
        )
    };
    Some(Outcome::wait(Role::Replica, Reason::NotMember, text))
}

/// Replicates from `primary`, acknowledging where this member may.
pub(super) fn follow(case: &Case<'_>, memory: &mut Memory, primary: &Master, reason: Reason, text: String) -> Outcome {
    let incarnation = case.facts().map(|facts| facts.incarnation.clone()).unwrap_or_default();
    memory.follow = Some(FollowAttempt { source: primary.address.clone(), incarnation, at: case.now, ran: false });
    let action = MysqlAction::Follow {
        address: primary.address.clone(),
        server_uuid: primary.server_uuid.clone(),
        acknowledge: durability::may(case) && durability::said_so(case),
    };
    Outcome::wait(Role::Replica, reason, text).mysql(action).urgent()
}

/// The target of a planned switch is followed as soon as it is named: the first write that it takes waits for an
/// acknowledgement, so its replicas had better be there. None where nothing is to be done.
///
/// The old primary does it too where there are not enough others: then it has the acknowledgement that is waited for. Else it
/// waits until the new one is named (see [`repoint`]): making its channel takes as long as all the rest of the switch.
///
/// Nothing is risked: this server votes in no race (interleaving 3), the old primary is read-only and its final set is
/// all that there is to receive, and the target writes nothing before it holds `master`. If it never claims, the switch
/// is undone or raced for, and [`repoint`] or a vote's freezing ends this as it would end following any primary.
pub(super) fn follow_target(case: &Case<'_>, memory: &mut Memory, handover: &Handover) -> Option<MysqlAction> {
    let target = case.topology()?.record.members.get(&handover.to)?;
    let facts = case.facts().filter(|_| case.healthy() && case.view.server.errant.is_empty())?;
    let gives = memory.switch.as_ref().is_some_and(|switch| switch.operation == handover.operation);
    if gives && enough_others(case, &handover.to) {
        return None;
    }
    // A channel that does not run is somebody's wish or broken: not now; that of a primary is what an earlier life left.
    // More than the final set: for the check of the transactions against the new primary's.
    let runs = match &facts.channel {
        Some(channel) if channel.source == target.address && channel.io != IoThread::No => return None,
        Some(channel) => gives || (channel.io != IoThread::No && channel.sql_running && channel.auto_position),
        None => gives,
    };
    let tried = memory
        .follow
        .as_ref()
        .is_some_and(|attempt| attempt.source == target.address && case.now.since(attempt.at) < RETRY);
    if !runs || tried || case.own_locks().next().is_some() || !handover.final_set.contains(&facts.received()) {
        return None;
    }
    memory.follow = Some(FollowAttempt {
        source: target.address.clone(),
        incarnation: facts.incarnation.clone(),
        at: case.now,
        ran: false,
    });
    Some(MysqlAction::FollowTarget {
        address: target.address.clone(),
        server_uuid: target.server_uuid.clone(),
        final_set: handover.final_set.clone(),
        acknowledge: durability::may(case) && durability::said_so(case),
    })
}

/// Whether enough servers besides us can acknowledge the first write of `primary`.
fn enough_others(case: &Case<'_>, primary: &str) -> bool {
    let Some(topology) = case.topology() else { return false };
    let readable = |(name, member): (&String, &Member)| {
        member.state == MemberState::Read && name != primary && name != case.me() && case.agent(name).is_some()
    };
    topology.record.durability.is_enough(topology.record.members.iter().filter(|member| readable(*member)).count())
}

fn last_attempt_age(case: &Case<'_>, memory: &Memory, primary: &Master) -> Option<Duration> {
    let attempt = memory.follow.as_ref().filter(|attempt| attempt.source == primary.address)?;
    Some(case.now.since(attempt.at))
}

/// Transactions of its own: stays read-only and is named; compared again now and then.
pub fn diverged(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let primary = primary(case)?;
    let errant = &case.view.server.errant;
    if errant.is_empty() {
        return None;
    }
    let text = format!(
        "holds {} transactions that {} does not have ({errant}): stays read-only and is not promoted; rebuild it from a backup \
         or a clone of the primary, or inject empty transactions on the primary if they may be dropped",
        errant.count(),
        primary.name
    );
    let due = last_attempt_age(case, memory, primary).is_none_or(|age| age > COMPARE_AGAIN);
    Some(if due {
        follow(case, memory, primary, Reason::Diverged, text)
    } else {
        Outcome::wait(Role::Replica, Reason::Diverged, text)
    })
}

/// Not replicating from the primary, or not at all: re-point and start.
pub fn repoint(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let primary = primary(case)?;
    let facts = case.facts()?;
    if !wants_follow(facts, memory, primary) {
        return None;
    }
    // Our last process died in the midst of its fence: the statement still waits for commits that nobody will acknowledge, and
    // would for ever. The ladder's last rung ends it (found by simulation).
    if case.may_still_commit(memory) {
        let text = "another is primary, and this server took writes: makes sure that it does not any more";
        let fence = Action::Fence(Reason::LeaseLost);
        return Some(Outcome::wait(Role::Replica, Reason::Repointing, text).act(fence).urgent());
    }
    let gives = memory.switch.as_ref().is_some_and(|switch| switch.closing.is_some() && case.now < switch.deadline);
    if gives && case.topology()?.record.primary.is_none() && enough_others(case, &primary.name) {
        let text = format!("planned switch: follows {} as soon as it takes writes", primary.name);
        return Some(Outcome::wait(Role::Replica, Reason::Repointing, text).urgent());
    }
    let failed = case.view.server.failure.as_ref().filter(|failure| failure.kind == MysqlKind::Follow);
    let text = match failed {
        Some(failure) => {
            format!("points its replication at {}: the last attempt failed: {}", primary.name, failure.why)
        }
        None => format!("points its replication at {}", primary.name),
    };
    if last_attempt_age(case, memory, primary).is_some_and(|age| age < RETRY) {
        return Some(Outcome::wait(Role::Replica, Reason::Repointing, text).urgent());
    }
    Some(follow(case, memory, primary, Reason::Repointing, text))
}

fn wants_follow(facts: &ServerFacts, memory: &Memory, primary: &Master) -> bool {
    if facts.offline_mode {
        return true; // a fence of ours, to be lifted now that the role is known
    }
    let Some(channel) = &facts.channel else { return true };
    if channel.source != primary.address || !channel.auto_position {
        return true;
    }
    let both_stopped = channel.io == IoThread::No && !channel.sql_running;
    let same_life = memory.follow.as_ref().is_some_and(|attempt| {
        attempt.source == primary.address && attempt.incarnation == facts.incarnation && attempt.ran
    });
    // Both threads stopped without an error in a life in which they had run: an operator's STOP REPLICA.
    let by_hand = both_stopped && same_life && channel.io_error.is_empty() && channel.sql_error.is_empty();
    let broken = !channel.sql_error.is_empty() || is_purged(channel);
    channel.io == IoThread::No && !by_hand && !broken
}

/// Replicates from the right server, but a thread does not run, or is not let in: the password of the replication account was
/// rotated, and the channel has the old one. The file may have the new one by now, which only setting it shows.
pub fn broken(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let primary = primary(case)?;
    let channel = case.facts()?.channel.as_ref()?;
    let mut text = what_is_broken(channel)?;
    let durability = &case.topology()?.record.durability;
    if channel.io != IoThread::Yes && durability.is_locked_at(case.me(), &primary.name) {
        text = format!(
            "was shut out while its agent was gone: {} unlocks its replication account as soon as it sees this agent ({text})",
            primary.name
        );
    }
    let rested = last_attempt_age(case, memory, primary).is_none_or(|age| age > REFUSED_AGAIN);
    if channel.sql_running && (is_refused(channel) || is_purged(channel)) && rested {
        return Some(follow(case, memory, primary, Reason::ReplicationBroken, text));
    }
    Some(Outcome::wait(Role::Replica, Reason::ReplicationBroken, text))
}

/// The primary has no binary logs any more of what this server lacks (error 1236, in the words of 8.0 and later).
fn is_purged(channel: &Channel) -> bool {
    channel.io == IoThread::No && channel.io_error.contains("error 1236") && channel.io_error.contains("purged")
}

/// The primary refuses the replication account (error 1045, in the server's own words).
fn is_refused(channel: &Channel) -> bool {
    channel.io == IoThread::Connecting && channel.io_error.contains("Access denied")
}

fn what_is_broken(channel: &Channel) -> Option<String> {
    if !channel.sql_error.is_empty() {
        return Some(format!("the applier stopped: {}; mend it and START REPLICA", channel.sql_error));
    }
    if !channel.sql_running {
        return Some("replication was stopped by hand: START REPLICA lets it go on".to_owned());
    }
    if is_purged(channel) {
        return Some(format!(
            "lacks transactions that the primary has no binary logs of any more (as after a copy that was not completed): rebuild it \
             from a backup or a clone of the primary; {}",
            channel.io_error
        ));
    }
    if channel.io == IoThread::Connecting && !channel.io_error.is_empty() {
        let mend = if is_refused(channel) {
            "; check user and password under mysql.replication in this host's configuration file (restart the agent after a \
             change; it tries the file's password again and again), and that account on the primary"
        } else {
            ""
        };
        return Some(format!("cannot connect to the primary: {}{mend}", channel.io_error));
    }
    None
}

/// Steady: follows.
pub fn following(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let primary = primary(case)?;
    let facts = case.facts()?;
    if memory.follow.as_ref().is_none_or(|attempt| {
        attempt.source != primary.address || attempt.incarnation != facts.incarnation || !attempt.ran
    }) {
        // Found running: from now on a stop of both threads in this life is somebody's wish.
        memory.follow = Some(FollowAttempt {
            source: primary.address.clone(),
            incarnation: facts.incarnation.clone(),
            at: case.now,
            ran: true,
        });
    }
    if let Some(outcome) = other_account(case, memory, primary) {
        return Some(outcome);
    }
    // A replica now: that this life of the server was opened once says nothing any more.
    memory.opened_incarnation = None;
    let outcome = Outcome::wait(Role::Replica, Reason::Following, format!("follows {}", primary.name));
    let retry = case.view.server.failure.as_ref().is_none_or(|failure| case.now.since(failure.at) > COMPARE_AGAIN);
    if !facts.persisted_read_only && retry {
        return Some(outcome.mysql(MysqlAction::PersistReadOnly));
    }
    Some(if named_by_a_switch(case) { outcome.mysql(MysqlAction::FlushBinaryLog) } else { outcome })
}

/// The file names another replication account than the channel uses: an account of its own, as a rule. Replication is pointed at the
/// same server by it, once that is recorded where this server acknowledges ([`super::shut_out`]); where it is not let in by it, all
/// stays as it is.
fn other_account(case: &Case<'_>, memory: &mut Memory, primary: &Master) -> Option<Outcome> {
    let channel = case.facts()?.channel.as_ref()?;
    let wanted = &case.view.own.replication_user;
    let failed = case.view.server.failure.as_ref().filter(|failure| failure.kind == MysqlKind::Follow);
    let rested = failed.is_none_or(|failure| case.now.since(failure.at) > ACCOUNT_AGAIN);
    if wanted.is_empty() || channel.user == *wanted || channel.io != IoThread::Yes || !channel.sql_running {
        return None;
    }
    let text = match failed {
        Some(failure) => format!("follows {}, as '{}' still: {}", primary.name, channel.user, failure.why),
        None => format!("follows {}, from now on as '{wanted}'", primary.name),
    };
    // A switch to us is under way: it has better uses for the lane.
    if !rested || named_by_a_switch(case) {
        return failed.is_some().then(|| Outcome::wait(Role::Replica, Reason::Following, text));
    }
    Some(follow(case, memory, primary, Reason::Following, text))
}

/// A planned switch to us has been asked for and its preparation is not done: what can be done before the primary becomes
/// read-only need not be done after it.
fn named_by_a_switch(case: &Case<'_>) -> bool {
    let Some(request) = case.view.ensemble.switchover.here() else { return false };
    let prepared = case.view.server.came_of(MysqlKind::FlushBinaryLog, request.first_seen).is_some();
    request.record.progress == Progress::Requested && request.record.to == case.me() && !prepared
}

/// None of the rows above: `master` and `topology` are of different epochs for the moment, or a vacancy is settling.
pub fn between(_: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    Some(
        Outcome::wait(Role::Replica, Reason::WaitingForPrimary, "roles are changing: waits for the next record")
            .urgent(),
    )
}
