//! What an operator has asked for: `failover.mode`, `failover.cooldown`, `pause`, `fence`, and a promotion by hand after a
//! loss. The reasons stand in [`crate::core::consent`].

use std::time::Duration;

use super::adoption::own_master;
use super::primary::{holder, release_ops};
use super::race::{counted, enter, vacancy};
use crate::core::action::{Action, MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::consent::{self, OPEN_WITHIN};
use crate::core::election;
use crate::core::memory::Memory;
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{Progress, Role, SwitchoverRequest};

/// What one try to make the old primary read-only before a claim may cost.
const FENCE_FIRST: Duration = Duration::from_secs(2);

/// Between two tries.
const FENCE_AGAIN: Duration = Duration::from_secs(1);

/// A pause keeps our lease valid though our session, and `master` with it, is gone: the node is made anew.
pub fn take_again(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    case.connected()?;
    case.member()?;
    let topology = case.topology()?;
    let lease = case.lease_node().filter(|lease| lease.record.name == case.me())?;
    let ours = consent::paused_lease(case) && lease.record.epoch == topology.record.epoch;
    if !ours || case.view.ensemble.master.here().is_some() {
        return None;
    }
    let mut next = lease.record.clone();
    next.sequence += 1;
    let ops = vec![
        // The version of topology says that no other epoch has begun.
        Op::Check(Path::Topology, topology.version),
        Op::Create(Path::Master, Record::Master(own_master(case, topology.record.epoch)?)),
        Op::Set(Path::Lease, Record::Lease(next), lease.version),
    ];
    let text = "paused: the session was lost, the role was not; makes its node master anew";
    Some(Outcome::wait(Role::Primary, Reason::Paused, text).write(Purpose::TakeOver, ops).urgent())
}

/// Nobody is named, raced for or frozen while a paused lease may be in use, unless by hand.
pub fn paused(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    vacancy(case, memory)?;
    if !consent::paused_lease(case) || consent::by_hand(case).is_some() {
        return None;
    }
    let role = if case.may_write() { Role::Primary } else { Role::Replica };
    memory.race = None;
    Some(withdrawing(case, Outcome::wait(role, Reason::Paused, consent::paused(case)?)))
}

/// Nothing keeps a vote alive that this agent is not frozen for.
fn withdrawing(case: &Case<'_>, outcome: Outcome) -> Outcome {
    match case.own_locks().next() {
        Some((sequence, lock)) => {
            outcome.write(Purpose::Withdraw, vec![Op::Delete(Path::Lock(sequence), lock.version)]).urgent()
        }
        None => outcome,
    }
}

/// The primary was fenced by hand: proven read-only it gives its lease up, so that another takes over.
pub fn fenced_primary(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, held) = holder(case)?;
    if !case.view.server.fenced_by_hand {
        return None;
    }
    // The fence has returned, not only begun: while its statement waits for commits the variable reads ON already.
    let read_only = case.view.server.fenced.is_some() && case.facts().is_some_and(|facts| facts.super_read_only);
    if !read_only {
        let text = "fenced by hand: makes sure that it takes no writes";
        return Some(
            Outcome::wait(Role::Primary, Reason::FencedByHand, text).act(Action::Fence(Reason::FencedByHand)).urgent(),
        );
    }
    memory.promotion = None;
    memory.switch = None;
    let text = "fenced by hand and read-only: gives the lease up";
    let ops = release_ops(case, topology, Reason::FencedByHand, held.opened)?;
    Some(Outcome::wait(Role::Replica, Reason::FencedByHand, text).write(Purpose::Release, ops).urgent())
}

/// The primary's server fails and the role stays. One that has exited is not named meanwhile (promise 4); one that is
/// silent is left as it is: it may take writes at any moment.
pub(super) fn keeps_role(case: &Case<'_>, why: &str) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    let (reason, stays) = consent::role_stays(case)?;
    let outcome = Outcome::wait(Role::Primary, reason, format!("{why}; {stays}"));
    if topology.record.primary.is_none() || !case.exited() {
        return Some(outcome);
    }
    let next = changes::without_primary(&topology.record, case, Reason::MysqlDown);
    Some(outcome.write(Purpose::Members, vec![Op::set_topology(next, topology.version)]))
}

/// A pause whose time is over is removed by the primary that had acknowledged it.
pub fn end_pause(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    holder(case)?;
    case.connected()?;
    let pause = case.view.ensemble.pause.here()?;
    // Acknowledged, then not any more: `consent::acknowledge` has let go of it.
    let carried = case.lease_node().is_some_and(|lease| lease.record.paused.as_ref() == Some(&pause.record.operation));
    if pause.record.for_ms.is_none() || !carried || memory.pause.is_some() {
        return None;
    }
    let text = "the pause is over: failover is automatic again";
    let ops = vec![Op::Delete(Path::Pause, pause.version)];
    Some(Outcome::wait(Role::Primary, Reason::Primary, text).write(Purpose::Progress, ops))
}

/// Mode, cooldown, pause or fence keep this agent from leading, and nobody else leads: it neither freezes nor votes.
pub fn not_told(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    vacancy(case, memory)?;
    let (counted, _) = counted(case)?;
    let (reason, why) = match consent::by_hand(case) {
        Some(request) if consent::paused_lease(case) && request.record.to != case.me() => {
            let to = &request.record.to;
            if counted.iter().any(|(_, lock)| lock.record.name == *to) {
                return None;
            }
            // Frozen, commits of the old primary would wait, and read-only with them.
            (Reason::Paused, format!("{to} proves the old primary read-only before anybody freezes"))
        }
        Some(_) => return None,
        None => consent::barred(case, memory)?,
    };
    if election::leader(&counted).is_some_and(|(_, lock)| lock.record.name != case.me()) {
        return None;
    }
    // What it had led before, it has to lead anew.
    memory.race = None;
    Some(withdrawing(case, Outcome::wait(Role::Replica, reason, why)))
}

/// By hand although the last primary may rely on a paused lease: its server is proven read-only before anything is claimed,
/// and before anybody freezes: commits that wait for an acknowledgement would keep read-only from coming. A second look comes after the time that a statement of its agent to open it could still be on its way.
pub fn prove_fenced(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let request = consent::told(case)?;
    if !consent::paused_lease(case) {
        return None;
    }
    let race = enter(case, memory, cause)?;
    let old = race.from.clone()?;
    let member = case.topology()?.record.members.get(&old)?;
    if race.proven {
        return None;
    }
    let started = *race.proving.get_or_insert(case.now);
    let came = case.view.server.came_of(MysqlKind::FenceRemote, started);
    race.proven = match came {
        Some(Ok(at)) => at >= started + OPEN_WITHIN,
        Some(Err(_)) => request.record.force,
        None => false,
    };
    if race.proven {
        return None;
    }
    let last = came.map(|came| came.unwrap_or_else(|failure| failure.at));
    let text = match came.and_then(Result::err) {
        Some(failure) => format!(
            "{old} may take writes under a paused lease and cannot be made read-only over the network ({}): not promoted; \
             bring it back, or 'promote --allow-data-loss' if that host is certainly off",
            failure.why
        ),
        None => format!("{old} may take writes under a paused lease: makes its server read-only first"),
    };
    let fence = MysqlAction::FenceRemote {
        address: member.address.clone(),
        server_uuid: member.server_uuid.clone(),
        limit: FENCE_FIRST,
        acknowledged: true,
    };
    let outcome = Outcome::wait(Role::Replica, Reason::Paused, text).urgent();
    Some(if last.is_none_or(|at| case.now >= at + FENCE_AGAIN) { outcome.mysql(fence) } else { outcome })
}

/// The request that a claim fulfils is answered in the same transaction, so that it can be withdrawn only before.
pub(super) fn carried_out(case: &Case<'_>) -> Option<(Reason, Op)> {
    let request = consent::told(case)?;
    let reason = if request.record.force { Reason::Forced } else { Reason::PromotedByHand };
    let record = SwitchoverRequest { progress: Progress::Released, ..request.record.clone() };
    Some((reason, Op::Set(Path::Switchover, Record::Switchover(record), request.version)))
}
