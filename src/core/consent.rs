//! Whether this agent may promote its server now: what the operator has said about it (`failover.mode`, `fence`, `pause`,
//! `promote`), and `failover.cooldown`.
//!
//! **One principle:** whoever may not be promoted says so by voting with priority 0, and never by not voting: of every
//! member of S the leader needs the vote (interleaving 4). The last writer is different from all others: when it takes
//! its own role back nothing changes, so mode and cooldown do not keep it from doing so.
//!
//! **Nobody freezes before somebody may lead.** Where the mode or the cooldown keeps everybody from racing, no IO thread
//! is stopped and no vote is cast (row O6). What a replica goes on receiving, and acknowledging, from a server that has
//! lost its role is in its received set when it votes later, so it is in the quorum's union (interleaving 3 is about what
//! is acknowledged *after* the vote). Nothing is started either: a thread that was stopped stays stopped (interleaving 4).
//! A member that has voted and finds that nobody leads any more removes its lock, and only following a primary
//! starts its IO thread again.
//!
//! **Cooldown** counts on this agent's own monotonic clock, from when it first saw the present epoch opened; wall clocks,
//! `topology.since` among them, may jump. A restart of the agent finds the moment again in `state_dir` if it is of the same boot;
//! else it counts from its first look, which is later: it may wait too long, by one cooldown at most, and never too short.
//!
//! **Pause** is in force when the primary's *lease* carries it: such a lease is as long as the pause (`ttl_ms`), so
//! neither its holder fences nor do the others race for want of renewals, also when sessions expire. What was thought
//! through before the code:
//!
//! | interleaving | rule |
//! | --- | --- |
//! | pause set while the primary is cut off from ZooKeeper | its lease does not carry it: it fences itself at the end of T, the others race; the verb says that the pause is not in force |
//! | the answer to the renewal that acknowledges is lost | the holder counts on the old end until it knows; the others wait the long one |
//! | resumed, or its time is up, while the primary is cut off | the others wait until a renewal without the pause is seen and T after *that*; or the lease is released; or its own `ttl_ms` is over; or (by hand) the old server is proven read-only over the network before the claim |
//! | the first renewal after `resume` shortens the lease, its answer is lost | the holder counts on the shorter end from sending it (`LeaseKeeper`) |
//! | the agent is restarted, or its session expires, during the pause | row O1: whoever is named in the unexpired paused lease makes `master` anew in the same epoch; the version of `topology` shows that nobody else has begun one |
//! | the host reboots during the pause | the same; its server came up read-only and is opened again |
//! | a second pause, longer or shorter | a new operation id: acknowledged by a new renewal; a shorter one shortens the lease as a resume does |
//! | mysqld of the primary is restarted during the pause | the role stays (rows P2, P3), and the server is opened again when it is back |
//! | `fence` on the primary during the pause | the lease is released and nobody races until `resume` or `promote` |
//! | by hand past a paused lease, and commits of the old primary wait for an acknowledgement when it is to become read-only | nobody freezes before the named candidate has proven it read-only (rows O6, O8) |
//! | the old primary's agent comes back to ZooKeeper after the proof, before the claim | it renews, or makes `master` anew: the claim names the version of `lease` it replaces, and fails |
//! | the old primary's agent has an open statement on its way while it is proven read-only for a claim | an open statement lasts only [`OPEN_WITHIN`], and row O8 looks again after that |

use std::time::Duration;

use super::case::Case;
use super::memory::{Memory, OpenedEpoch, PauseTerm};
use super::reason::Reason;
use super::records::{AgentRecord, Mode, Progress, SwitchoverRequest};
use super::time::Moment;
use super::view::Seen;

/// The longest that a statement which opens the server may be on its way, however long the lease is.
pub const OPEN_WITHIN: Duration = Duration::from_secs(5);

/// Why this agent is not to promote its server now.
pub type Bar = (Reason, String);

/// A promotion by hand that waits to be carried out by a race: there is no primary, or none that could hand over.
#[must_use]
pub fn by_hand<'a>(case: &Case<'a>) -> Option<&'a Seen<SwitchoverRequest>> {
    let request = case.view.ensemble.switchover.here()?;
    let pending = request.record.after_loss
        && request.record.progress == Progress::Requested
        && request.record.epoch == case.topology()?.record.epoch
        && case.now < request.first_seen + Duration::from_millis(request.record.timeout_ms);
    pending.then_some(request)
}

/// The same, where it names this server.
#[must_use]
pub fn told<'a>(case: &Case<'a>) -> Option<&'a Seen<SwitchoverRequest>> {
    by_hand(case).filter(|request| request.record.to == case.me())
}

/// The lease as it stands carries a pause, and its holder may still rely on it.
#[must_use]
pub fn paused_lease(case: &Case<'_>) -> bool {
    case.lease_node()
        .is_some_and(|lease| lease.record.paused.is_some() && !lease.record.released && case.now < case.lease_over_at())
}

/// A pause is in force, in words.
#[must_use]
pub fn paused(case: &Case<'_>) -> Option<String> {
    let lease = &case.lease_node()?.record;
    let operation = lease.paused.as_ref()?;
    let asked = case.view.ensemble.pause.record().filter(|pause| pause.operation == *operation);
    match asked {
        Some(pause) if lease.released || paused_lease(case) => {
            let why = if pause.reason.is_empty() { String::new() } else { format!(" ({})", pause.reason) };
            Some(format!("paused since {}{why}: roles stay as they are until 'resume'", pause.at.0))
        }
        None if paused_lease(case) => Some(format!(
            "the pause was ended, but {} has not renewed its lease since and may still take writes under it: nobody is \
             promoted before it has, or 'promote' has proven its server read-only",
            lease.name
        )),
        _ => None,
    }
}

/// What keeps this agent from promoting its server by itself; none where nothing does. A promotion by hand asks nobody.
#[must_use]
pub fn barred(case: &Case<'_>, memory: &Memory) -> Option<Bar> {
    let own = &case.view.own;
    if let Some(why) = paused(case) {
        return Some((Reason::Paused, why));
    }
    if case.view.server.fenced_by_hand {
        return Some((Reason::FencedByHand, "fenced by hand: no candidate until 'unfence'".to_owned()));
    }
    if case.last_writer() == Some(case.me()) {
        return None;
    }
    if own.mode == Mode::Manual {
        let text = "failover.mode is manual: nobody is promoted before 'promote NAME' says so".to_owned();
        return Some((Reason::NotAutomatic, text));
    }
    let left = cooldown_left(case, memory)?;
    let text = format!(
        "failover.cooldown: the last failover is too recent; goes on by itself in {} s ('promote NAME' does not wait)",
        left.as_secs_f64().ceil()
    );
    Some((Reason::NotAutomatic, text))
}

/// What is left of `failover.cooldown`.
#[must_use]
pub fn cooldown_left(case: &Case<'_>, memory: &Memory) -> Option<Duration> {
    let topology = &case.topology()?.record;
    let opened = memory.opened_epoch.as_ref()?;
    // What an operator has fenced is to be taken over: it is no fault that travels with the role.
    let asked_for = topology.primary.is_none() && topology.reason == Reason::FencedByHand;
    let left = (opened.at + case.view.own.cooldown).until(case.now);
    (opened.failover && !asked_for && !left.is_zero()).then_some(left)
}

/// Takes note of the first sight of an epoch in which a server takes writes.
pub fn note_opened(case: &Case<'_>, memory: &mut Memory) {
    let Some(topology) = case.connected().and_then(|_| case.topology()) else { return };
    let topology = &topology.record;
    let known = memory.opened_epoch.as_ref();
    // One that died before it was named had recorded in its lease that it opens.
    let lease = case.lease_node().map(|lease| &lease.record);
    let unnamed = lease.filter(|lease| lease.opened && lease.epoch == topology.epoch).map(|lease| &lease.name);
    let who = topology.primary.as_ref().or(unnamed);
    if known.is_some_and(|known| known.epoch >= topology.epoch || who.is_none()) {
        return;
    }
    // Lost by now, `reason` says why it was lost: how the epoch began is not known, so it may have been a failover.
    let failover = topology.reason.is_failover();
    let same = who.is_some() && known.is_some_and(|known| who == Some(&known.primary));
    memory.opened_epoch = Some(OpenedEpoch {
        epoch: topology.epoch,
        primary: who.cloned().unwrap_or_default(),
        at: case.now,
        failover: failover && !same,
    });
}

/// The priority with which this agent votes: 0 where it may not lead now.
#[must_use]
pub fn priority(case: &Case<'_>, memory: &Memory) -> u32 {
    let own = case.view.own.priority;
    match by_hand(case) {
        Some(request) if request.record.to == case.me() => own.max(1),
        Some(_) => 0,
        None if barred(case, memory).is_some() => 0,
        None => own,
    }
}

/// A primary whose server fails keeps its role, in words why: nobody would be promoted without being told.
#[must_use]
pub fn role_stays(case: &Case<'_>) -> Option<Bar> {
    if by_hand(case).is_some() || case.view.server.fenced_by_hand {
        return None;
    }
    if let Some(why) = paused(case) {
        return Some((Reason::Paused, why));
    }
    let manual = case.view.own.mode == Mode::Manual;
    let text = "failover.mode is manual: the role stays here until 'promote NAME', and the server is opened again when it is back";
    manual.then(|| (Reason::NotAutomatic, text.to_owned()))
}

/// The pause that our lease is to carry: what stands in `control/pause`, while it lasts. Only a complete view changes it: a
/// break of the connection must not take a pause back.
pub fn acknowledge(case: &Case<'_>, memory: &mut Memory) -> Option<PauseTerm> {
    if case.connected().is_none() {
        return memory.pause.clone();
    }
    let lease = case.lease_node().filter(|lease| lease.record.name == case.me() && !lease.record.released);
    memory.pause = lease.and_then(|lease| {
        let pause = case.view.ensemble.pause.here()?;
        let end = |since: Moment, ms: u64| since + Duration::from_millis(ms.min(super::records::Lease::FOREVER_MS));
        let asked = end(pause.first_seen, pause.record.for_ms.unwrap_or(super::records::Lease::FOREVER_MS));
        // Acknowledged by our predecessor: what it left of it counts, not the whole anew.
        let carried = lease.record.paused.as_ref() == Some(&pause.record.operation);
        let until = if carried { asked.min(end(lease.first_seen, lease.record.ttl_ms)) } else { asked };
        let known = memory.pause.as_ref().filter(|known| known.operation == pause.record.operation);
        let until = known.map_or(until, |known| known.until);
        (case.now < until).then(|| PauseTerm { operation: pause.record.operation.clone(), until })
    });
    memory.pause.clone()
}

/// Whether an agent could be promoted by itself, as far as the operator is concerned.
#[must_use]
pub fn is_candidate(agent: &AgentRecord) -> bool {
    agent.priority > 0 && agent.mode != Mode::Observe && !agent.fenced_by_hand
}
