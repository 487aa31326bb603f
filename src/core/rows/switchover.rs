//! A planned switch, on the side of the primary that gives its role away (design section 2, "Planned switch").
//!
//! Interleavings: the request is for an epoch that has ended (void); the target dies after the release (we take the
//! role back past the deadline, first `master`, only then writes); we die after the release (the others race when
//! the hold has passed on their clocks); read-only does not come (a long statement: undone, nothing else was moved).
//!
//! Two times bound it. The request's own limit is for the whole, and mostly waiting: for the target to catch up, for a lock to be
//! given back. Clients' writes are held up for a short time alone: `CLOSE_WITHIN` for a try to become read-only, after which they
//! go on and it is tried again, and `HAND_OVER_WITHIN` from then until the target has taken over, after which it is undone.

use std::time::Duration;

use super::primary::released_lease;
use crate::core::action::{MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::memory::{FailedClose, Memory, Switch};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{Handover, MemberState, Mode, Progress, Role, SwitchoverRequest, Topology};
use crate::core::time::Moment;
use crate::core::view::{Failure, Health, Seen, ServerFacts};

/// How long a try to become read-only may hold writes up.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// How long writes go on between two such tries.
const TRY_AGAIN: Duration = Duration::from_secs(4);
/// The same where somebody was in the way and nothing has been tried.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long the target may take from the final set to the claim; it was caught up before.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(5);

/// A request that waits for us.
fn pending<'a>(case: &Case<'a>) -> Option<(&'a Seen<SwitchoverRequest>, &'a Seen<Topology>)> {
    case.own_master()?;
    let request = case.view.ensemble.switchover.here()?;
    let topology = case.topology()?;
    let ours = request.record.progress == Progress::Requested && topology.record.primary.as_deref() == Some(case.me());
    ours.then_some((request, topology))
}

fn answer(seen: &Seen<SwitchoverRequest>, progress: Progress, detail: String) -> Op {
    let record = SwitchoverRequest { progress, detail, ..seen.record.clone() };
    Op::Set(Path::Switchover, Record::Switchover(record), seen.version)
}

/// The answer says whether anything was tried: a refused request has held up nobody's writes.
fn refuse(case: &Case<'_>, memory: &mut Memory, seen: &Seen<SwitchoverRequest>, why: String) -> Outcome {
    let switch = memory.switch.take();
    let tries = switch.as_ref().and_then(|switch| switch.failed.as_ref()).map_or(0, |failed| failed.tries);
    // The answer may get lost, and the next one is to say the same: row W0 forgets the tries once it is seen. Not where the
    // server is read-only: it is to be opened at once (row P6).
    memory.switch = switch.filter(|_| tries > 0 && case.writable());
    let (progress, reason, word) = match tries {
        0 => (Progress::Refused, Reason::SwitchoverRefused, "refused"),
        _ => (Progress::Undone, Reason::SwitchoverUndone, "undone"),
    };
    Outcome::wait(Role::Primary, reason, format!("planned switch to {} {word}: {why}", seen.record.to))
        .write(Purpose::Progress, vec![answer(seen, progress, why)])
        .urgent()
}

/// Not now: waited for as long as the request's limit allows, then refused for that. Writes go on.
fn wait_or_refuse(case: &Case<'_>, memory: &mut Memory, seen: &Seen<SwitchoverRequest>, why: String) -> Outcome {
    if memory.switch.as_ref().is_none_or(|switch| case.now >= switch.deadline) {
        return refuse(case, memory, seen, why);
    }
    Outcome::wait(Role::Primary, Reason::Switchover, format!("planned switch to {}: waits: {why}", seen.record.to))
        .urgent()
}

/// Why `to` could not take over now, in words; none where it could. Also used by `promote --dry-run`.
#[must_use]
pub fn unfit(case: &Case<'_>, topology: &Topology, to: &str) -> Option<String> {
    if topology.primary.as_deref() == Some(to) {
        return Some(format!("{to} is the primary already"));
    }
    if let Some(why) = unfit_to_lead(case, topology, to) {
        return Some(why);
    }
    let source = case.agent(to)?.server.as_ref()?.source.as_ref();
    if let Some(error) = source.and_then(|source| source.error.as_ref()) {
        return Some(format!("replication of {to} has failed: {error}"));
    }
    let reads = topology.members.get(to)?.state == MemberState::Read;
    if !reads || !source.is_some_and(|source| source.io_running && source.sql_running) {
        return Some(format!("{to} does not replicate from the primary"));
    }
    None
}

/// The same where there is no primary to replicate from: why `to` could not lead a race.
#[must_use]
pub fn unfit_to_lead(case: &Case<'_>, topology: &Topology, to: &str) -> Option<String> {
    if !topology.members.contains_key(to) {
        return Some(format!(
            "{to} is no member of the cluster (members: {})",
            topology.members.keys().cloned().collect::<Vec<_>>().join(", ")
        ));
    }
    let Some(agent) = case.agent(to) else { return Some(format!("no agent of {to} is present")) };
    let Some(server) = agent.server.as_ref() else {
        return Some(format!("the agent of {to} has not seen its server yet"));
    };
    if agent.mode == Mode::Observe {
        return Some(format!("{to} is only observed (failover.mode: observe)"));
    }
    if agent.fenced_by_hand {
        return Some(format!("{to} was fenced by hand: run 'mysql-ha-agent unfence' there first"));
    }
    if agent.priority == 0 {
        return Some(format!("{to} has failover.priority 0: it is never promoted"));
    }
    if !server.healthy {
        return Some(format!("the server of {to} does not answer"));
    }
    if !server.errant.is_empty() {
        return Some(format!("{to} holds transactions of its own: {}", server.errant));
    }
    None
}

/// How old the target's newest heartbeat may be: it is written every interval and seen by a probe every interval.
pub(crate) fn caught_up_within(case: &Case<'_>) -> Duration {
    case.view.own.heartbeat_interval * 2 + Duration::from_secs(1)
}

/// A new request: refused at once where it cannot work, and left waiting where the target has yet to catch up.
pub fn consider(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (request, topology) = pending(case)?;
    let wanted = &request.record;
    if wanted.epoch != topology.record.epoch || wanted.from != case.me() {
        return Some(refuse(
            case,
            memory,
            request,
            format!("it was meant for epoch {}, this is epoch {}", wanted.epoch, topology.record.epoch),
        ));
    }
    let known = memory.switch.as_ref().is_some_and(|switch| switch.operation == wanted.operation);
    if !known {
        memory.switch = Some(Switch {
            operation: wanted.operation.clone(),
            to: wanted.to.clone(),
            started: case.now,
            // From first sight: one that has waited while we were not named is not carried out long after it was asked for.
            deadline: request.first_seen + Duration::from_millis(wanted.timeout_ms),
            closing: None,
            failed: None,
        });
    }
    let switch = memory.switch.as_ref()?;
    if switch.closing.is_some() {
        return None;
    }
    // Not by this switch: restarted, fenced, or by hand. It is opened or reported (row P6), and nothing is waited for meanwhile.
    if !case.writable() {
        let why = format!("the server of {} is read-only at this moment", case.me());
        return Some(refuse(case, memory, request, why));
    }
    if let Some(why) = unfit(case, &topology.record, &wanted.to) {
        return Some(refuse(case, memory, request, why));
    }
    if case.now >= switch.deadline
        && let Some(failed) = &switch.failed
    {
        let times = if failed.tries > 1 { format!(" (tried {} times)", failed.tries) } else { String::new() };
        let why = format!("{}{times}", failed.why);
        return Some(refuse(case, memory, request, why));
    }
    // Before anything is said of the target: its newest heartbeat is old because ours is not written.
    if let Health::Blocked { by } = &case.view.server.health {
        let why = format!("a write of {} does not finish: {by}", case.me());
        return Some(wait_or_refuse(case, memory, request, why));
    }
    behind(case, memory, request)
}

/// The target has yet to catch up: it is waited for. Passes where it has.
fn behind(case: &Case<'_>, memory: &mut Memory, request: &Seen<SwitchoverRequest>) -> Option<Outcome> {
    let (to, switch) = (&request.record.to, memory.switch.as_ref()?);
    // What was published before the request may be out of date, and so may what was published within a heartbeat after
    // it: the target is judged by a reading made after the request. Writes go on meanwhile.
    let fresh = switch.started + case.view.own.heartbeat_interval;
    let late = case.now >= switch.deadline;
    if case.view.ensemble.agents.get(to).is_none_or(|seen| seen.first_seen <= fresh) && !late {
        let text = format!("planned switch: waits for a fresh reading of {to}");
        return Some(Outcome::wait(Role::Primary, Reason::Switchover, text).urgent());
    }
    let lag = case.agent(to)?.server.as_ref()?.lag_ms.map(Duration::from_millis);
    if lag.is_some_and(|lag| lag <= caught_up_within(case)) {
        let why = "its time was over before it could be carried out".to_owned();
        return late.then(|| refuse(case, memory, request, why));
    }
    let behind =
        lag.map_or_else(|| "its lag is unknown".to_owned(), |lag| format!("it is {:.1} s behind", lag.as_secs_f64()));
    Some(wait_or_refuse(case, memory, request, format!("{to} has not caught up ({behind})")))
}

/// Nothing else is moved before the primary is read-only.
pub fn close(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (request, _) = pending(case)?;
    let switch = memory.switch.as_mut()?;
    match switch.closing {
        Some(closing) => {
            let failure = case.view.server.failure.as_ref();
            if let Some(failure) = failure.filter(|failure| failure.kind == MysqlKind::Close && failure.at >= closing) {
                give_up_for_now(switch, failure, case.now);
            } else if closed(case, switch).is_some() {
                return None;
            }
        }
        None if switch.failed.as_ref().is_none_or(|failed| case.now >= failed.again) => switch.closing = Some(case.now),
        None => {}
    }
    let to = &request.record.to;
    if let (None, Some(failed)) = (switch.closing, &switch.failed) {
        let text = format!("planned switch to {to}: tries again until its time is over: {}", failed.why);
        return Some(Outcome::wait(Role::Primary, Reason::Switchover, text).urgent());
    }
    let limit = (switch.deadline.until(case.now) / 2).min(CLOSE_WITHIN);
    let text = format!("planned switch to {to}: becomes read-only");
    Some(Outcome::wait(Role::Primary, Reason::Switchover, text).mysql(MysqlAction::Close { limit }).urgent())
}

/// The server takes writes as before, the heartbeat's too, until the next try.
fn give_up_for_now(switch: &mut Switch, failure: &Failure, now: Moment) {
    let before = switch.failed.as_ref().map_or(0, |failed| failed.tries);
    let (tries, pause) = if failure.touched { (before + 1, TRY_AGAIN) } else { (before, LOOK_AGAIN) };
    switch.closing = None;
    switch.failed = Some(FailedClose { why: failure.why.clone(), tries, again: now + pause });
}

/// The final reading: read-only, read after it was asked for, and the statement has *returned* (only then is the fence
/// noted). While `SET GLOBAL super_read_only=ON` still waits for commits in flight the variable reads ON already (seen
/// on 9.7): a probe's reading would hand over a set that lacks the last of them.
fn closed<'a>(case: &Case<'a>, switch: &Switch) -> Option<&'a ServerFacts> {
    case.view.server.fenced?;
    let facts = case.facts().filter(|facts| facts.super_read_only && case.read_since_fence())?;
    (case.facts_at()? > switch.closing?).then_some(facts)
}

/// Read-only: the final set is known, the lease goes to the target in one transaction.
pub fn release(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (request, topology) = pending(case)?;
    let switch = memory.switch.as_mut()?;
    let facts = closed(case, switch)?;
    switch.deadline = switch.deadline.min(switch.closing? + HAND_OVER_WITHIN);
    if case.now >= switch.deadline {
        // Nothing was released, so `master` is still ours: the row of a read-only primary opens it again.
        let why = "the deadline passed before the role could be released".to_owned();
        memory.switch = None;
        let ops = vec![answer(request, Progress::Undone, why)];
        return Some(
            Outcome::wait(Role::Primary, Reason::SwitchoverUndone, "planned switch undone")
                .write(Purpose::Progress, ops)
                .urgent(),
        );
    }
    let rest = switch.deadline.until(case.now);
    // The others hold back a little longer than we wait ourselves: whoever undoes it, does it without a race.
    let hold = rest + case.view.own.op_timeout * 2;
    let handover = Handover {
        operation: switch.operation.clone(),
        to: switch.to.clone(),
        final_set: facts.executed.clone(),
        hold_ms: u64::try_from(hold.as_millis()).unwrap_or(u64::MAX),
    };
    let next = changes::handed_over(&topology.record, case, handover);
    let ops = vec![
        Op::set_topology(next, topology.version),
        Op::Delete(Path::Master, case.own_master()?.version),
        released_lease(case)?,
        answer(request, Progress::Released, String::new()),
    ];
    let text = format!("planned switch: read-only, hands over to {}", switch.to);
    Some(Outcome::wait(Role::Replica, Reason::Switchover, text).write(Purpose::Release, ops).urgent())
}

/// A request whose answer is known, or that came to nothing: forget it.
pub fn forget(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let switch = memory.switch.as_ref()?;
    let named = case.topology().is_some_and(|topology| topology.record.primary.as_deref() == Some(case.me()));
    if !named && switch.closing.is_none() && case.own_master().is_some() {
        // Read-only for another reason meanwhile: that is for row P6 to judge (found by simulation).
        memory.switch = None;
        return None;
    }
    let request = case.view.ensemble.switchover.record();
    let over = request.is_none_or(|request| {
        request.operation != switch.operation
            || matches!(request.progress, Progress::Done | Progress::Refused | Progress::Undone)
    });
    if over {
        // Only now: they find the new primary at once, and nothing competes with its opening.
        let another = case
            .topology()
            .is_some_and(|topology| topology.record.primary.as_deref().is_some_and(|primary| primary != case.me()));
        let to_end = another && switch.closing.is_some() && case.view.own.kill_connections;
        memory.clients_to_end = to_end.then_some(case.now);
        memory.switch = None;
    }
    None
}
