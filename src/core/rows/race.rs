//! Nobody takes writes: the race, from stopping the IO thread to the vote; whoever leads goes on in [`super::lead`]
//! (design section 2, "Race"). Each row leaves a state from which any other agent can go on.

use std::time::Duration;

use super::incident;
use super::lead::claim;
use super::replica;
use crate::core::action::{Action, MysqlAction, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::consent;
use crate::core::election::{self, Lock, Standing};
use crate::core::failsafe;
use crate::core::gtid::GtidSet;
use crate::core::memory::{Memory, Race};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{AgentRecord, MemberState, Mode, Progress, Role, ServerRecord, Topology, Vote};
use crate::core::view::{Health, IoThread, Seen, ServerFacts};

/// What each place behind in the ranking costs.
const RANK_DELAY: Duration = Duration::from_millis(25);
/// One try's limit for waiting on MySQL; the row asks again.
pub(super) const SLICE: Duration = Duration::from_millis(500);

/// Why there is no primary; none while there is one.
pub(super) fn vacancy(case: &Case<'_>, memory: &Memory) -> Option<Reason> {
    let topology = case.topology()?;
    let (since, _) = case.connected()?;
    if case.own_master().is_some() {
        return None;
    }
    let known = topology.record.primary.is_none() && case.lease_node().is_none_or(|lease| lease.record.released);
    let cause = if known { topology.record.reason } else { Reason::AgentLost };
    if case.view.ensemble.master.here().is_none() {
        return Some(cause);
    }
    // The node outlives the lease when the ensemble was busy electing: sessions then start anew, leases do not. The
    // claim names the lease version that was seen unrenewed, so a primary that renews after all makes it fail.
    let settled = case.now >= since + patience(case, memory, 2) || fell_silent_early(case, memory);
    (case.now >= case.lease_over_at() && settled).then_some(cause)
}

/// The lease is over, and its holder's writes had stopped reaching us in the first half of its life: its host or its
/// network died, and waiting for it after a break of the session helps nobody (the killed host's ZooKeeper member led
/// the ensemble). A holder that merely lost ZooKeeper with us went on writing until its fence, near the lease's end.
/// Where we have not seen it write at all, or it had nothing to say, this says no: then it gets its moment.
fn fell_silent_early(case: &Case<'_>, memory: &Memory) -> bool {
    let Some((lease, ((_, granted), wrote))) = case.lease_node().zip(case.connected().zip(memory.growth.grew())) else {
        return false;
    };
    let half = granted.saturating_sub(case.view.own.fencing_budget) / 2;
    case.now >= case.lease_over_at() && wrote <= lease.first_seen + half
}

/// How long after a break of our session a primary gets to be back before anybody races.
///
/// With the failsafe it may have gone on writing, with a lease long over, and each freezing would block its commits. So it gets
/// one call more; and all of T as long as what we receive grows: writes go on then, and waiting costs nobody anything.
fn patience(case: &Case<'_>, memory: &Memory, calls: u32) -> Duration {
    let own = &case.view.own;
    let failsafe = case.lease_node().is_some_and(|lease| lease.record.proof_ms > 0);
    let moment = own.renew_interval + own.op_timeout * if failsafe { 2 } else { calls };
    let lately = own.heartbeat_interval * 3;
    let writes = memory.growth.grew().is_some_and(|grew| case.now.since(grew) <= lately);
    match case.connected() {
        Some((_, granted)) if failsafe && writes => moment.max(granted),
        _ => moment,
    }
}

/// The race of this agent under the present version of `topology`, begun when it first saw that nobody holds the role.
pub(super) fn enter<'m>(case: &Case<'_>, memory: &'m mut Memory, cause: Reason) -> Option<&'m mut Race> {
    let topology = &case.topology()?.record;
    let race = memory.race.get_or_insert_with(|| Race {
        noticed: case.now,
        cause,
        from: topology.primary.clone().or_else(|| case.last_writer().map(str::to_owned)),
        led: None,
        received: GtidSet::new(),
        caught_up: None,
        expected: GtidSet::new(),
        claim: None,
        fetching: None,
        proving: None,
        proven: false,
        requeued: false,
        closing: None,
    });
    Some(race)
}

/// After a break of the session the primary gets a moment to take its node back before anybody races.
pub fn settle(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    vacancy(case, memory)?;
    let (since, _) = case.connected()?;
    let released = case.lease_node().is_some_and(|lease| lease.record.released);
    let settled = case.now >= since + patience(case, memory, 1) || fell_silent_early(case, memory);
    if released || settled || case.last_writer() == Some(case.me()) {
        return None;
    }
    Some(
        Outcome::wait(
            Role::Replica,
            Reason::Settling,
            "ZooKeeper has just come back: gives the primary a moment to renew",
        )
        .urgent(),
    )
}

/// A lost primary is not named any longer than it takes to notice: the first agent that sees it says so (promise 4).
pub fn name_nobody(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let topology = case.topology()?;
    let lost = topology.record.primary.clone()?;
    enter(case, memory, cause)?;
    let next = changes::without_primary(&topology.record, case, cause);
    let detail = format!("the primary of epoch {} is lost", topology.record.epoch);
    let ops = vec![Op::set_topology(next, topology.version), incident(case, cause, &lost, detail)];
    Some(
        Outcome::wait(Role::Replica, cause, format!("{lost} is lost: names nobody in topology"))
            .write(Purpose::Members, ops)
            .urgent(),
    )
}

/// A planned switch names another: hold back until its time is over on our own clock.
pub fn held_back(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    vacancy(case, memory)?;
    let topology = case.topology()?;
    let handover = topology.record.handover.as_ref()?;
    let giving = memory.switch.as_ref().filter(|switch| switch.operation == handover.operation);
    let until = match &giving {
        Some(switch) => switch.deadline,
        None => topology.first_seen + Duration::from_millis(handover.hold_ms),
    };
    if handover.to == case.me() || case.now >= until {
        return None;
    }
    let text = format!("planned switch: {} takes over", handover.to);
    let outcome = Outcome::wait(Role::Replica, Reason::HeldBack, text).urgent();
    Some(match replica::follow_target(case, memory, handover) {
        Some(follow) => outcome.mysql(follow),
        None => outcome,
    })
}

/// The target of a planned switch needs no race: it has everything as soon as it has applied the final set.
pub fn take_handover(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let topology = case.topology()?;
    let handover = topology.record.handover.as_ref().filter(|handover| handover.to == case.me())?;
    if case.view.server.fenced_by_hand {
        return None; // since it was named; the old primary takes the role back
    }
    if case.now >= topology.first_seen + Duration::from_millis(handover.hold_ms) || !case.healthy() {
        return None;
    }
    let facts = case.facts()?;
    let now = case.now;
    let race = enter(case, memory, cause)?;
    race.led.get_or_insert(now);
    race.received = handover.final_set.clone();
    if !facts.executed.contains(&handover.final_set) {
        let text = "planned switch: applies the last of the old primary's transactions";
        let wait = MysqlAction::WaitApplied { set: handover.final_set.clone(), limit: SLICE };
        return Some(Outcome::wait(Role::Replica, Reason::CatchingUp, text).mysql(wait).urgent());
    }
    let outcome = claim(case, memory, cause, &[])?;
    // There is nothing more to receive. Opening would have to wait for the IO thread's end; now it ends beside the claim.
    let receives = case.facts()?.channel.as_ref().is_some_and(|channel| channel.io != IoThread::No);
    Some(if receives { outcome.mysql(MysqlAction::StopIo) } else { outcome })
}

/// Past the deadline the old primary takes the role back: first `master`, only then writes (interleaving 19).
pub fn undo_handover(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    vacancy(case, memory)?;
    let topology = case.topology()?;
    let handover = topology.record.handover.as_ref()?;
    let mine = memory.switch.as_ref().is_some_and(|switch| switch.operation == handover.operation);
    let request = case.view.ensemble.switchover.record();
    let released = request
        .is_some_and(|request| request.operation == handover.operation && request.progress == Progress::Released);
    if !mine
        || !released
        || !case.healthy()
        || case.view.server.fenced_by_hand
        || !case.facts()?.executed.contains(&handover.final_set)
    {
        return None;
    }
    enter(case, memory, Reason::SwitchoverUndone)?.cause = Reason::SwitchoverUndone;
    claim(case, memory, Reason::SwitchoverUndone, &[])
}

/// Takes no part: not a member, no answer, or transactions of its own.
pub fn unfit(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    enter(case, memory, cause)?;
    let (reason, text) = if case.member().is_none() {
        (Reason::NotMember, "this server is no member of the cluster: it takes no part in the race".to_owned())
    } else if !case.healthy() {
        (
            Reason::Unhealthy,
            format!("this host's server does not answer ({}): it takes no part in the race", why_unhealthy(case)),
        )
    } else if let Some(extra) = own_transactions(case) {
        (Reason::Diverged, format!("holds transactions of its own ({extra}): it takes no part in the race"))
    } else {
        return None;
    };
    let outcome = Outcome::wait(Role::Replica, reason, text).urgent();
    Some(match case.own_locks().next() {
        Some((sequence, lock)) => {
            outcome.write(Purpose::Withdraw, vec![Op::Delete(Path::Lock(sequence), lock.version)])
        }
        None => outcome,
    })
}

fn why_unhealthy<'a>(case: &Case<'a>) -> &'a str {
    match &case.view.server.health {
        Health::Failed { why, .. } | Health::Unreachable { why } => why,
        Health::Unknown => "not seen yet",
        Health::Healthy | Health::Blocked { .. } => "mysqld has exited",
    }
}

/// Transactions of our own: found by comparing with a primary, or such as nobody can have received from the last one.
///
/// The second needs no memory and no primary to ask: an agent that was restarted, or whose server came back too late to be
/// compared with a primary that is lost by now, must not bring the leader to fetch what died unacknowledged with an
/// earlier primary. All that a member may hold is what the last claim held (the floor), what the last primary was known
/// to hold (the watermark), and what that one numbered itself.
fn own_transactions(case: &Case<'_>) -> Option<GtidSet> {
    let compared = &case.view.server.errant;
    if !compared.is_empty() {
        return Some(compared.clone());
    }
    let topology = &case.topology()?.record;
    let floor = &topology.durability.floor;
    let writer = topology.members.get(case.last_writer()?)?;
    // No claim yet: what was there before the adoption is unknown.
    if floor.is_empty() {
        return None;
    }
    let watermark = case.lease_node().map(|lease| lease.record.watermark.clone()).unwrap_or_default();
    let extra = case.facts()?.received().subtract(&floor.union(&watermark)).of_others(&writer.server_uuid);
    (!extra.is_empty()).then_some(extra)
}

/// Receives and acknowledges nothing more: only then is what it has received a vote (interleaving 4).
pub fn freeze(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let noticed = enter(case, memory, cause)?.noticed;
    let facts = case.facts()?;
    // A server that takes writes must not vote: what it acknowledges after its vote would be in nobody's count (a holder
    // whose `master` was removed behind its back; found by simulation). In the life in which we opened it, read-only
    // counts once our fence has returned: until then its commits may still end.
    if !facts.super_read_only || case.may_still_commit(memory) {
        let text = "no primary, and this server took writes: makes sure that it does not any more";
        return Some(Outcome::wait(Role::Replica, cause, text).act(Action::Fence(cause)).urgent());
    }
    let channel = facts.channel.as_ref();
    let stopped = channel.is_none_or(|channel| channel.io == IoThread::No);
    // A reading from before the race may show an IO thread that has been started since; one from before the fence's end lacks
    // what was acknowledged while the fence waited for it, and the last writer's vote counts as all it has ever acknowledged
    // (interleaving 13; found by simulation).
    if stopped && case.facts_at()? >= noticed && case.read_since_fence() {
        return None;
    }
    Some(
        Outcome::wait(Role::Replica, Reason::Racing, "no primary: stops its IO thread")
            .mysql(MysqlAction::StopIo)
            .urgent(),
    )
}

/// One vote under the present version of `topology`; older ones are withdrawn.
pub fn vote(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let topology = case.topology()?;
    let noticed = enter(case, memory, cause)?.noticed;
    let mut own: Vec<Lock<'_>> = case.own_locks().collect();
    let priority = consent::priority(case, memory);
    let valid = |lock: &Seen<Vote>| {
        let vote = &lock.record;
        // Told to lead or not to lead since: the vote says which. In another life we may hold less (interleaving 7).
        let lives = case.facts().is_none_or(|facts| facts.life() == vote.incarnation);
        vote.topology_version == topology.version && vote.priority == priority && lives && is_ours(case, lock)
    };
    if own.last().is_some_and(|(_, lock)| valid(lock)) {
        own.pop();
    } else {
        let facts = case.facts()?;
        let (voted, _) = counted(case)?;
        let rank = rank(case, facts);
        // Over as soon as those ahead have voted: theirs are the lower locks then, which is all the delay is for.
        let all_ahead_voted = u32::try_from(voted.len()).is_ok_and(|voted| voted >= rank);
        if own.is_empty() && !all_ahead_voted && case.now < noticed + RANK_DELAY * rank {
            let text = "another replica has received as much or more: gives it a moment's start";
            return Some(Outcome::wait(Role::Replica, Reason::Racing, text).urgent());
        }
        if own.is_empty() {
            // A vote that lands late, after the primary has renewed and opened again, would still count: opening again does
            // not rewrite `topology`, and this member, which sees no lock of its own, follows and acknowledges meanwhile
            // (interleaving 3, found by the exhaustive check). So it lands only beside what it was decided upon.
            let mut ops = vec![Op::Check(Path::Topology, topology.version)];
            ops.extend(case.lease_node().map(|lease| Op::Check(Path::Lease, lease.version)));
            ops.push(Op::Create(Path::NewLock, Record::Vote(own_vote(case, memory, facts, priority)?)));
            return Some(
                Outcome::wait(Role::Replica, Reason::Racing, "votes with what it has received")
                    .write(Purpose::Vote, ops)
                    .urgent(),
            );
        }
    }
    let (sequence, lock) = own.first()?;
    let ops = vec![Op::Delete(Path::Lock(*sequence), lock.version)];
    Some(
        Outcome::wait(Role::Replica, Reason::Racing, "withdraws an outdated vote")
            .write(Purpose::Withdraw, ops)
            .urgent(),
    )
}

/// A lock of our predecessor's session vanishes with it: it must not be counted on.
fn is_ours(case: &Case<'_>, lock: &Seen<Vote>) -> bool {
    matches!(case.view.ensemble.session, crate::core::view::Session::Connected { id, .. } if id == lock.owner)
}

fn own_vote(case: &Case<'_>, memory: &Memory, facts: &ServerFacts, priority: u32) -> Option<Vote> {
    Some(Vote {
        name: case.me().to_owned(),
        received: facts.received(),
        priority,
        topology_version: case.topology()?.version,
        incarnation: facts.life(),
        frozen: true,
        frozen_ms: failsafe::milliseconds(failsafe::frozen_for(case, memory)),
    })
}

fn rank(case: &Case<'_>, facts: &ServerFacts) -> u32 {
    let others: Vec<Standing<'_>> = case
        .others()
        .filter(|agent| case.topology().is_some_and(|topology| is_candidate(&topology.record, agent)))
        .filter_map(|agent| {
            let server = agent.server.as_ref()?;
            Some(Standing { name: &agent.name, priority: agent.priority, received: server.received() })
        })
        .collect();
    let published = case.agent(case.me()).and_then(|agent| agent.server.as_ref());
    // Compared as all see it, by what was published: a fresher reading of our own would put every agent first.
    let received = published.map_or_else(|| facts.received(), ServerRecord::received);
    election::rank(&Standing { name: case.me(), priority: case.view.own.priority, received }, &others)
}

/// Likely to vote. The lost primary is `NA` in `topology` before its own record says that it is ill.
pub(super) fn is_candidate(topology: &Topology, agent: &AgentRecord) -> bool {
    topology.members.get(&agent.name).is_some_and(|member| member.state != MemberState::Na)
        && agent.mode != Mode::Observe
        && agent.server.as_ref().is_some_and(|server| server.healthy && server.errant.is_empty())
}

/// The locks that count now.
pub(super) fn counted<'a>(case: &Case<'a>) -> Option<(Vec<Lock<'a>>, &'a Seen<Topology>)> {
    let topology = case.topology()?;
    let locks = case.view.ensemble.locks.iter().map(|(sequence, lock)| (*sequence, lock));
    Some((election::counted(locks, topology.version), topology))
}

/// Another candidate's lock is lower. Meanwhile this one applies what it has received: the leader fetches from its binary
/// log, which holds only what is executed. A mysqld that came back during the race has its applier stopped (we persist
/// that), and so has one stopped by hand: where the acknowledged transactions were in its relay log alone, the leader would
/// fetch for ever (found by a live test). Nothing more is received by that, so the vote stays what it is.
pub fn another_leads(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    enter(case, memory, cause)?;
    let (counted, _) = counted(case)?;
    let leader = election::leader(&counted);
    let text = match leader {
        Some((_, lock)) if lock.record.name == case.me() => return None,
        Some((_, lock)) => format!("{} leads the race", lock.record.name),
        None => "no candidate may be promoted (failover.priority 0)".to_owned(),
    };
    let reason = if leader.is_some() { Reason::AnotherLeads } else { Reason::NeverPromoted };
    let outcome = Outcome::wait(Role::Replica, reason, text).urgent();
    Some(if has_idle_applier(case) { outcome.mysql(MysqlAction::StartApplier) } else { outcome })
}

/// Something received is not applied, and the applier has stopped without an error: one with an error needs a person.
fn has_idle_applier(case: &Case<'_>) -> bool {
    let Some(facts) = case.facts() else { return false };
    let idle = facts.channel.as_ref().is_some_and(|channel| !channel.sql_running && channel.sql_error.is_empty());
    idle && !facts.executed.contains(&facts.received())
}
