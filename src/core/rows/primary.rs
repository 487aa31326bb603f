//! We hold `master` and the lease of the present epoch: finish a promotion, keep the role, or give it up.

use std::time::Duration;

use super::adoption::{own_lease, own_master};
use super::durability;
use super::{incident, operator, rooms, shut_out, terms};
use crate::core::action::{Action, MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::consent::{OPEN_WITHIN, paused_lease};
use crate::core::failsafe;
use crate::core::memory::{Memory, Promotion, Reached};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{
    DurabilityMode, HistoryRecord, Incident, Lease, Member, MemberState, Phases, Progress, Role, SwitchoverRequest,
    Topology,
};
use crate::core::time::Moment;
use crate::core::view::{Health, Held, IoThread, Seen, ServerFacts};

/// The nodes of our dead predecessor: the role goes on where it stopped.
pub fn take_over(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let master = case.predecessors_master()?;
    let topology = case.topology()?;
    let lease = case.lease_node()?;
    let ours = lease.record.name == case.me() && lease.record.epoch == topology.record.epoch && !lease.record.released;
    if !ours || master.record.epoch != topology.record.epoch || case.now >= case.lease_over_at() {
        return None;
    }
    let mut next = lease.record.clone();
    next.sequence += 1;
    Some(
        Outcome::wait(Role::Primary, Reason::AgentRestarted, "takes over the lease of this agent's last process")
            .write(
                Purpose::TakeOver,
                vec![
                    // The version of topology says that no other epoch has begun; that of the lease, that nobody renewed it.
                    Op::Check(Path::Topology, topology.version),
                    Op::Delete(Path::Master, master.version),
                    Op::Create(Path::Master, Record::Master(own_master(case, topology.record.epoch)?)),
                    Op::Set(Path::Lease, Record::Lease(next), lease.version),
                ],
            )
            .urgent(),
    )
}

/// The case of a primary: our `master`, our lease, the present epoch.
pub(super) fn holder<'a>(case: &Case<'a>) -> Option<(&'a Seen<Topology>, &'a Held)> {
    let topology = case.topology()?;
    let held = case.view.held.as_ref()?;
    let ours = case.own_master()?.record.epoch == topology.record.epoch && held.epoch == topology.record.epoch;
    ours.then_some((topology, held))
}

fn is_published(case: &Case<'_>, topology: &Topology) -> bool {
    topology.primary.as_deref() == Some(case.me())
}

/// The holder of `master` is read-only because an operator wants it so.
fn kept_read_only(topology: &Topology) -> bool {
    topology.primary.is_none() && topology.reason == Reason::ReadOnlyByHand
}

/// mysqld is gone: proven dead, so the role can pass on at once.
pub fn mysqld_exited(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, held) = holder(case)?;
    let failed = matches!(case.view.server.health, Health::Failed { .. });
    if !case.exited() || !failed {
        return None;
    }
    memory.promotion = None;
    if let Some(stays) = operator::keeps_role(case, "mysqld has exited") {
        return Some(stays);
    }
    // A restart of mysqld would come up writable where read-only is not persisted: then the lease has to run out,
    // and the writer is fenced when it is back.
    let proven = held.opened && case.facts().is_some_and(|facts| facts.persisted_read_only);
    // What `topology` and `history` give as the cause is what led to it, not the last rung of our own ladder.
    let cause = case.view.server.exit_cause();
    let text = match cause {
        Reason::MysqlDown => "mysqld has exited: giving the lease up".to_owned(),
        _ => format!("mysqld was ended by a fence ({cause}): giving the lease up"),
    };
    let outcome = Outcome::wait(Role::Replica, cause, text);
    Some(outcome.write(Purpose::Release, release_ops(case, topology, cause, proven)?).urgent())
}

/// mysqld lives and does not answer: it is fenced (at the last by SIGKILL), and the role passes on once that is proven.
pub fn mysqld_silent(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, held) = holder(case)?;
    let Health::Failed { since, why } = &case.view.server.health else { return None };
    if let Some(stays) = operator::keeps_role(case, why) {
        return Some(stays);
    }
    // The fence has returned, not only begun: while its statement waits for commits the variable reads ON already.
    let server = &case.view.server;
    let seen = case.facts_at().max(server.fenced_at).is_some_and(|at| at > *since);
    let read_only_since = server.fenced.is_some() && seen && !case.writable();
    if read_only_since {
        memory.promotion = None;
        let outcome =
            Outcome::wait(Role::Replica, Reason::MysqlSilent, format!("{why}; read-only now: giving the lease up"));
        return Some(
            outcome.write(Purpose::Release, release_ops(case, topology, Reason::MysqlSilent, held.opened)?).urgent(),
        );
    }
    if !case.somebody_could_take_over() {
        let text = format!("{why}; no other healthy server could take over, so it is left as it is");
        return Some(Outcome::wait(Role::Primary, Reason::MysqlSilent, text));
    }
    let text = format!("{why}: making sure that it takes no writes");
    Some(Outcome::wait(Role::Primary, Reason::MysqlSilent, text).act(Action::Fence(Reason::MysqlSilent)).urgent())
}

/// Gives the role up. `proven` says that this server had opened and is certainly read-only or dead (interleaving 2).
pub(super) fn release_ops(case: &Case<'_>, topology: &Seen<Topology>, reason: Reason, proven: bool) -> Option<Vec<Op>> {
    let master = case.own_master()?;
    let next = changes::without_primary(&topology.record, case, reason);
    let mut ops = vec![Op::set_topology(next, topology.version), Op::Delete(Path::Master, master.version)];
    if proven {
        ops.push(released_lease(case)?);
    }
    Some(ops)
}

/// The lease, given up in so many words. Its version is the keeper's, not the view's: a renewal may be under way.
pub(super) fn released_lease(case: &Case<'_>) -> Option<Op> {
    let lease = case.lease_node()?;
    let released = Lease { released: true, sequence: lease.record.sequence + 1, ..lease.record.clone() };
    Some(Op::Set(Path::Lease, Record::Lease(released), lease.version))
}

/// A promotion whose memory was lost (a restart between claiming and opening) waits a full T from now.
fn promotion<'m>(case: &Case<'_>, memory: &'m mut Memory, topology: &Topology) -> Option<&'m mut Promotion> {
    let stale = memory.promotion.as_ref().is_none_or(|promotion| promotion.epoch != topology.epoch);
    if stale {
        let race = memory.race.take();
        let claim = race.as_ref().and_then(|race| race.claim);
        let (_, granted) = case.connected()?;
        let proof = Duration::from_millis(case.lease_node().map_or(0, |lease| lease.record.proof_ms));
        let noticed = race.as_ref().map_or(case.now, |race| race.noticed);
        let led = race.as_ref().and_then(|race| race.led).unwrap_or(noticed);
        let caught_up = race.as_ref().and_then(|race| race.caught_up).unwrap_or(led);
        memory.promotion = Some(Promotion {
            epoch: topology.epoch,
            cause: topology.reason,
            from: race.as_ref().and_then(|race| race.from.clone()).or_else(|| topology.last_writer.clone()),
            received: race.as_ref().map(|race| race.received.clone()).unwrap_or_default(),
            expected: race.as_ref().map_or_else(|| topology.lost.clone(), |race| race.expected.clone()),
            wait_until: claim.map_or(case.now + granted.max(proof), |claim| claim.wait_until),
            lease_over: claim.map_or(case.now + granted, |claim| claim.lease_over),
            last: case.now,
            phases: Phases {
                raced: ms(led.since(noticed)),
                caught_up: ms(caught_up.since(led)),
                claimed: ms(case.now.since(caught_up)),
                ..Phases::default()
            },
            remote_fence: None,
            reached: Reached::Claimed,
        });
    }
    memory.promotion.as_mut()
}

fn ms(length: Duration) -> f64 {
    (length.as_secs_f64() * 100_000.0).round() / 100.0
}

/// Ends a phase of the promotion now.
fn reach(promotion: &mut Promotion, reached: Reached, now: Moment) {
    if promotion.reached >= reached {
        return;
    }
    let length = ms(now.since(promotion.last));
    match reached {
        Reached::Claimed => {}
        Reached::Waited => promotion.phases.waited = length,
        Reached::Opened => promotion.phases.promoted = length,
    }
    promotion.reached = reached;
    promotion.last = now;
}

/// What fencing the old primary over the network may cost where its lease is over and nothing else is waited for.
const REMOTE_FENCE: Duration = Duration::from_millis(200);
/// How often it is tried again afterwards, and what each try may cost: the lane is taken meanwhile.
const FENCE_AGAIN: Duration = Duration::from_secs(5);
const FENCE_LATER: Duration = Duration::from_millis(500);
/// How often it is tried again while opening waits for it.
const PROVE_AGAIN: Duration = Duration::from_secs(1);

/// `master` is ours; the server stays read-only until the lease that was replaced cannot be in use any more.
///
/// A lease that nobody gave up (its agent is gone) is as a rule over when its holder's session is: nothing is left to wait for,
/// yet nobody says that the old server is read-only. It is fenced over the network before ours opens, where it answers.
///
/// Its holder may also write on acknowledgements (promise 7), until P after our quorum had stopped. That wait ends early where its
/// server is proven read-only by a fence begun after its lease was over: from then on nothing opens it again.
pub fn wait_old_lease(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, held) = holder(case)?;
    if is_published(case, &topology.record) || kept_read_only(&topology.record) {
        return None;
    }
    let promotion = promotion(case, memory, &topology.record)?;
    let proven = proven_after_lease(case, promotion);
    let waits = !held.opened && case.now < promotion.wait_until && !proven;
    let for_proof = waits && case.now >= promotion.lease_over;
    let old = promotion.from.clone().filter(|name| name != case.me());
    // Over before the wait is: the action that opens must not find its lane taken by a host that is gone.
    let rest = promotion.wait_until.until(case.now);
    let limit = if waits { (rest * 3 / 4).min(Duration::from_secs(1)) } else { REMOTE_FENCE };
    let asked = promotion.remote_fence;
    // A busy lane drops an action: asked for until an answer is noted, or for as long as one may take.
    let tried = asked.is_some_and(|asked| remote_fence(case, asked).is_some() || case.now >= asked + limit * 2);
    let again = asked.is_some_and(|asked| asked < promotion.lease_over || (tried && case.now >= asked + PROVE_AGAIN));
    let tried = tried && !(for_proof && again);
    promotion.remote_fence = asked.filter(|_| tried || !(for_proof && again));
    let unproven = !proven && promotion.cause == Reason::AgentLost && !case.writable() && case.healthy();
    let old = old.filter(|_| !tried).and_then(|name| Some((name.clone(), topology.record.members.get(&name)?)));
    if !waits && (old.is_none() || !unproven) {
        return None;
    }
    let text = match waits {
        true if for_proof => format!(
            "promoted; waits {:.1} s until no acknowledgement can let the old primary write, or its server is proven read-only",
            rest.as_secs_f64()
        ),
        true => format!("promoted; waits {:.1} s until the old primary's lease cannot be in use", rest.as_secs_f64()),
        false => "promoted; the old primary's agent is gone: makes that server read-only over the network".to_owned(),
    };
    let outcome = Outcome::wait(Role::Replica, Reason::WaitingOldLease, text).urgent();
    Some(match old {
        // An agent that died may have left it writable.
        Some((name, old)) => {
            promotion.remote_fence.get_or_insert(case.now);
            memory.unfenced = Some(name);
            outcome.mysql(fence_remote(old, limit))
        }
        None => outcome,
    })
}

/// The last writer's server was made read-only over the network, begun when its lease was over (failsafe, interleaving 9).
fn proven_after_lease(case: &Case<'_>, promotion: &Promotion) -> bool {
    let last_writer = case.topology().and_then(|topology| {
        let topology = &topology.record;
        topology.members.get(topology.last_writer.as_ref()?)
    });
    let proven = case.view.server.fenced_remote.as_ref();
    proven.zip(last_writer).is_some_and(|((uuid, begun), last)| {
        uuid.eq_ignore_ascii_case(&last.server_uuid) && *begun >= promotion.lease_over
    })
}

fn fence_remote(old: &Member, limit: Duration) -> MysqlAction {
    MysqlAction::FenceRemote {
        address: old.address.clone(),
        server_uuid: old.server_uuid.clone(),
        limit,
        acknowledged: false,
    }
}

/// How the last remote fence since `asked` came out: whether that server is proven read-only.
fn remote_fence(case: &Case<'_>, asked: Moment) -> Option<bool> {
    case.view.server.came_of(MysqlKind::FenceRemote, asked).map(|came| came.is_ok())
}

/// The old primary whose agent was lost, as long as nobody says that its server is read-only: neither its agent, come back,
/// nor a fence over the network, tried again and again.
fn unfenced(case: &Case<'_>, memory: &mut Memory) -> Option<(String, Option<MysqlAction>)> {
    let name = memory.unfenced.clone().filter(|name| name != case.me())?;
    let by_agent = case.agent(&name).and_then(|agent| agent.server.as_ref()).is_some_and(|server| !server.writable);
    let member = case.topology()?.record.members.get(&name);
    let (Some(member), false) = (member, by_agent || remote_fence(case, Moment(0)) == Some(true)) else {
        memory.unfenced = None;
        return None;
    };
    let last = case.view.server.failure.as_ref().filter(|failure| failure.kind == MysqlKind::FenceRemote);
    let due = last.is_none_or(|failure| case.now.since(failure.at) >= FENCE_AGAIN);
    Some((name, due.then(|| fence_remote(member, FENCE_LATER))))
}

/// The server is to take writes: `opened` is recorded first, then the statement, which carries the lease's end.
pub fn open(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    if is_published(case, &topology.record) || kept_read_only(&topology.record) || case.writable() || !case.healthy() {
        return None;
    }
    let now = case.now;
    reach(promotion(case, memory, &topology.record)?, Reached::Waited, now);
    let outcome = Outcome::wait(Role::Replica, Reason::Opening, "makes this server writable").urgent();
    Some(match case.lease() {
        Some(held) if held.opened => outcome.mysql(open_action(case, held, &topology.record)),
        // `opened` rides in the next renewal (`Decision::want_opened`).
        _ => outcome,
    })
}

fn open_action(case: &Case<'_>, held: &Held, topology: &Topology) -> MysqlAction {
    let durability = &topology.durability;
    let acknowledgements = match durability.mode {
        DurabilityMode::Lossless if !durability.degraded => durability.sync_replicas,
        _ => 0,
    };
    // A paused lease is long, and what was decided long ago must not land (interleaving 14).
    let end = held.until - case.view.own.fencing_budget;
    let not_after = if paused_lease(case) { end.min(case.now + OPEN_WITHIN) } else { end };
    MysqlAction::Open { not_after, acknowledgements }
}

/// The server takes writes: name it.
pub fn publish(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    // On acknowledgements alone nothing is published: `topology` would be rewritten in turn with members that name nobody.
    if is_published(case, &topology.record) || !case.writable() || !case.leased() {
        return None;
    }
    memory.opened_incarnation = case.facts().map(|facts| facts.incarnation.clone());
    memory.clients_to_end = None;
    let now = case.now;
    reach(promotion(case, memory, &topology.record)?, Reached::Opened, now);
    let next = changes::published(&topology.record, case);
    let mut ops = vec![Op::set_topology(next, topology.version)];
    ops.extend(finished_request(case));
    ops.extend(case.own_locks().map(|(sequence, lock)| Op::Delete(Path::Lock(sequence), lock.version)));
    Some(
        Outcome::wait(Role::Primary, Reason::Opening, "writable: naming it in topology")
            .write(Purpose::Publish, ops)
            .urgent(),
    )
}

/// The request that a promotion fulfils or undoes is answered in the same transaction that names the primary.
fn finished_request(case: &Case<'_>) -> Option<Op> {
    let seen = case.view.ensemble.switchover.here()?;
    if seen.record.progress != Progress::Released {
        return None;
    }
    let progress = if seen.record.to == case.me() { Progress::Done } else { Progress::Undone };
    let detail = match progress {
        Progress::Undone => format!("{} did not take over in time; {} takes writes again", seen.record.to, case.me()),
        _ => String::new(),
    };
    let record = SwitchoverRequest { progress, detail, ..seen.record.clone() };
    Some(Op::Set(Path::Switchover, Record::Switchover(record), seen.version))
}

/// A finished promotion is written down.
pub fn record_history(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    if !is_published(case, &topology.record) {
        return None;
    }
    memory.race = None;
    let mut promotion = memory.promotion.take()?;
    promotion.phases.published = ms(case.now.since(promotion.last));
    let executed = case.facts()?.executed.clone();
    let record = HistoryRecord {
        epoch: promotion.epoch,
        at: case.view.wall.clone(),
        cause: promotion.cause,
        from: promotion.from,
        to: case.me().to_owned(),
        phases: promotion.phases,
        received: promotion.received,
        lost: promotion.expected.subtract(&executed),
        executed,
    };
    let text =
        format!("is the primary of epoch {}, {:.0} ms after the loss was noticed", record.epoch, record.phases.total());
    let lost = (!record.lost.is_empty()).then(|| {
        let old = record.from.as_deref().unwrap_or("the old primary");
        let detail = format!(
            "epoch {} begins without {} transactions that {old} had executed: {}; whatever it executed after its last \
             renewal is named when its server comes back",
            record.epoch,
            record.lost.count(),
            record.lost
        );
        incident(case, Reason::TransactionsLost, old, detail)
    });
    let ops = vec![Op::Create(Path::History(record.epoch), Record::History(Box::new(record)))];
    let outcome = Outcome::wait(Role::Primary, Reason::Primary, text).write(Purpose::History, ops).urgent();
    Some(match lost {
        Some(note) => outcome.write(Purpose::Incident, vec![note]),
        None => outcome,
    })
}

/// Read-only though it should take writes: opened again where we did it, respected where an operator did.
pub fn read_only_primary(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    let facts = case.facts()?;
    let named = is_published(case, &topology.record) || kept_read_only(&topology.record);
    if !named || case.writable() || !case.healthy() {
        return None;
    }
    // A switch has made it so, or is about to.
    if memory.switch.as_ref().is_some_and(|switch| switch.closing.is_some()) {
        return None;
    }
    let restarted = memory.opened_incarnation.as_ref().is_some_and(|life| *life != facts.incarnation);
    let server = &case.view.server;
    // `offline_mode` is set by fences alone: by ours, also one that was not needed any more, and by one over the network that
    // its host sent late, when it thawed. None of them may leave the primary closed for ever (found by simulation).
    let ours = server.fenced.is_some() || server.fence_begun.is_some() || facts.offline_mode;
    if !restarted && !ours {
        let text = "super_read_only was set by hand on the primary: no server takes writes until it is cleared \
                    (SET GLOBAL super_read_only=OFF, read_only=OFF)";
        let outcome = Outcome::wait(Role::Primary, Reason::ReadOnlyByHand, text);
        if !is_published(case, &topology.record) {
            return Some(outcome);
        }
        let mut next = changes::without_primary(&topology.record, case, Reason::ReadOnlyByHand);
        if let Some(own) = next.members.get_mut(case.me()) {
            own.state = MemberState::Read;
        }
        return Some(outcome.write(Purpose::Members, vec![Op::set_topology(next, topology.version)]));
    }
    let outcome =
        Outcome::wait(Role::Primary, Reason::Opening, "still holds the lease: making the server writable again")
            .urgent();
    Some(match case.lease() {
        Some(held) if held.opened => outcome.mysql(open_action(case, held, &topology.record)),
        _ => outcome,
    })
}

/// Named again after the operator cleared what was set by hand.
pub fn name_again(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    if !kept_read_only(&topology.record) || !case.writable() || !case.leased() {
        return None;
    }
    memory.promotion = None;
    let mut next = changes::published(&topology.record, case);
    next.reason = Reason::Primary;
    let ops = vec![Op::set_topology(next, topology.version)];
    Some(
        Outcome::wait(Role::Primary, Reason::Opening, "writable again: naming it in topology")
            .write(Purpose::Publish, ops)
            .urgent(),
    )
}

/// Locks left from the race that made us the primary.
pub fn drop_own_locks(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    holder(case)?;
    let (sequence, lock) = case.own_locks().next()?;
    let ops = vec![Op::Delete(Path::Lock(sequence), lock.version)];
    Some(Outcome::wait(Role::Primary, Reason::Primary, "removes its lock of the race").write(Purpose::Withdraw, ops))
}

/// Steady: keep what a restart needs, record members, report.
pub fn steady(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let (topology, _) = holder(case)?;
    let facts = case.facts()?;
    if memory.opened_incarnation.is_none() && case.writable() {
        memory.opened_incarnation = Some(facts.incarnation.clone());
    }
    let (reason, text) = match &case.view.server.health {
        Health::Blocked { by } => {
            (Reason::Blocked, format!("takes writes, but one does not finish: {by}; roles stay as they are"))
        }
        Health::Unreachable { why } => (Reason::Unhealthy, format!("{why}; roles stay as they are")),
        Health::Unknown => (Reason::Starting, "waits for the first answer of this host's server".to_owned()),
        Health::Healthy | Health::Failed { .. } => {
            (Reason::Primary, format!("primary of epoch {}", topology.record.epoch))
        }
    };
    let (reason, text) = match durability::note(case) {
        Some(note) if reason == Reason::Primary => (Reason::Degraded, format!("{text}; {note}")),
        Some(note) => (reason, format!("{text}; {note}")),
        None => (reason, text),
    };
    let text = terms::note(case).map_or_else(|| text.clone(), |note| format!("{text}; {note}"));
    let text = shut_out::note(case).map_or_else(|| text.clone(), |note| format!("{text}; {note}"));
    let unfenced = unfenced(case, memory);
    let (reason, text) = match &unfenced {
        Some((old, _)) => (
            if reason == Reason::Primary { Reason::OldPrimaryUnfenced } else { reason },
            format!(
                "{text}; the server of {old} may still take writes: its agent was lost and nobody has seen it read-only \
                 (tried again every {} s; if that host is off, all is well)",
                FENCE_AGAIN.as_secs()
            ),
        ),
        None => (reason, text),
    };
    let mut outcome = Outcome::wait(Role::Primary, reason, text);
    // Not while the server does not answer: a silent one would be declared NA by ourselves and back again.
    if let Some(since) = memory.on_acknowledgements.take_if(|_| case.leased()) {
        outcome = outcome.write(Purpose::Incident, vec![outage_is_over(case, since)]);
    }
    if case.healthy()
        && case.writable()
        && case.leased()
        && let Some(next) = changes::members_changed(&topology.record, case, rooms::enough_elsewhere(case, memory))
    {
        outcome = outcome.write(Purpose::Members, vec![Op::set_topology(next, topology.version)]);
    }
    let retry =
        case.view.server.failure.as_ref().is_none_or(|failure| case.now.since(failure.at) > Duration::from_secs(10));
    if case.healthy() && !facts.persisted_read_only && retry {
        outcome = outcome.mysql(MysqlAction::PersistReadOnly);
    } else if case.healthy() && !facts.heartbeat_table && retry {
        outcome = outcome.mysql(MysqlAction::CreateHeartbeatTable);
    } else if case.healthy() && case.writable() && retry && left_over_channel(&topology.record, facts) {
        outcome = outcome.mysql(MysqlAction::ForgetSource);
    } else if let Some((_, Some(fence))) = unfenced {
        outcome = outcome.mysql(fence);
    }
    Some(outcome)
}

/// How long writes have gone on without ZooKeeper, for whoever asks later.
fn outage_is_over(case: &Case<'_>, since: Moment) -> Op {
    let length = case.now.since(since).as_secs_f64();
    Op::Create(
        Path::NewIncident,
        Record::Incident(Incident {
            at: case.view.wall.clone(),
            kind: Reason::Failsafe,
            subject: case.me().to_owned(),
            noticed_by: case.me().to_owned(),
            detail: format!("ZooKeeper could not be used: took writes on acknowledgements alone for {length:.1} s"),
        }),
    )
}

/// The channel to an earlier primary, stopped when this server was opened. One that points elsewhere is an operator's.
fn left_over_channel(topology: &Topology, facts: &ServerFacts) -> bool {
    // Not while clients may still wait for the first acknowledgement: what is deleted and synced would hold it up.
    !facts.replicas.is_empty()
        && facts.channel.as_ref().is_some_and(|channel| {
            channel.io == IoThread::No && topology.members.values().any(|member| member.address == channel.source)
        })
}

/// A lease for a claim: opened at once where nothing has to be waited for, which saves a renewal.
pub(super) fn claim_lease(case: &Case<'_>, epoch: u64, wait_until: Moment) -> Option<Lease> {
    let lease = own_lease(case, epoch, case.now >= wait_until)?;
    Some(Lease { proof_ms: failsafe::claimed(case), ..lease })
}
