//! What comes before everything else: a server that must not take writes, an ensemble that cannot be asked.

use crate::core::action::{Action, Op, Path, Purpose};
use crate::core::case::Case;
use crate::core::failsafe;
use crate::core::memory::Memory;
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::Role;
use crate::core::view::Node;

/// A server this agent cannot manage: leave before anything is changed.
pub fn unsupported(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let why = case.view.server.unsupported.as_ref()?;
    let outcome = Outcome::wait(Role::Unknown, Reason::Unsupported, why.clone());
    // A member that was managed before keeps its agent: it has a lease to keep or a server to fence.
    if case.member().is_some() { None } else { Some(outcome.act(Action::Refuse(why.clone()))) }
}

/// Another server of the cluster has our `server_uuid`: their GTIDs cannot be told apart.
pub fn duplicate_uuid(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let uuid = &case.facts()?.server_uuid;
    case.connected()?;
    let recorded = case.topology().and_then(|topology| {
        topology
            .record
            .members
            .iter()
            .find(|(name, member)| *name != case.me() && member.server_uuid == *uuid)
            .map(|(name, _)| name.clone())
    });
    let present = || {
        let twin = case.others().find(|agent| agent.server.as_ref().is_some_and(|server| server.server_uuid == *uuid));
        twin.map(|agent| agent.name.clone())
    };
    if case.member().is_some() && recorded.is_none() {
        return None; // the one that came later has to go
    }
    let twin = recorded.or_else(present)?;
    let copy = "one of the two data directories is a copy of the other; stop mysqld, remove auto.cnf from the copy's data \
                directory, start it and this agent again";
    let mend = match case.agent(&twin) {
        Some(agent) if agent.boot_id == case.view.own.boot_id => {
            "its agent runs on this very host: two agents watch one server; stop one of them".to_owned()
        }
        Some(_) => copy.to_owned(),
        None => format!(
            "whose agent is not running: where this is the same server under another name, set name: {twin} in agent.yaml; \
             else {copy}"
        ),
    };
    let text = format!("server_uuid {uuid} is also that of {twin}: {mend}; nothing was changed");
    Some(Outcome::wait(Role::Unknown, Reason::DuplicateUuid, text.clone()).act(Action::Refuse(text)))
}

/// A writable server that never belonged to this cluster's roles: the operator has to say what it is.
pub fn foreign_writable(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let topology = &case.topology()?.record;
    if case.member().is_some() || !case.writable() || case.view.own.managed {
        return None;
    }
    let text = format!(
        "this server takes writes, but cluster {} already has its servers ({}), and this is none of them: make it \
         read-only and replicate from the primary ({}), then start the agent again; nothing was changed",
        topology.cluster,
        topology.members.keys().cloned().collect::<Vec<_>>().join(", "),
        topology.primary.as_deref().unwrap_or("none at this moment"),
    );
    Some(Outcome::wait(Role::Unknown, Reason::NotMember, text.clone()).act(Action::Refuse(text)))
}

/// Promise 1: a server under our care that takes writes without a lease that still holds is made read-only, whatever
/// else is going on. The fencing task does the same on its own at the lease's end; this row sees the other ways into
/// that state (a restart after T, an operator's `SET GLOBAL`, a lease that another took).
pub fn writable_without_lease(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    // Ours: by the marker, by a lease of this process, or because our name is. Who has none of them may be a second agent beside
    // the one that holds the lease. The lease counts before the name is taken in a new session: what is read first then may be
    // that another epoch has begun, and a primary on acknowledgements ends there (failsafe; found by simulation). And who has had
    // one once has had it: a lease that is found lost in a new session says no end any more, and where ZooKeeper is lost again
    // before anything could be read, nobody would ever fence (found by simulation).
    memory.had_lease |= case.view.held.as_ref().is_some_and(|held| held.opened && !held.inherited);
    let ours = case.view.own.managed || memory.had_lease || (case.topology().is_some() && case.connected().is_some());
    // Offline alone is not enough: an account with CONNECTION_ADMIN still writes, and commits that wait for an
    // acknowledgement keep read-only from coming until the ladder's last rung ends them.
    let read_only = case.exited() || case.facts().is_none_or(|facts| facts.super_read_only);
    if !ours || read_only || case.may_write() {
        return None;
    }
    let (reason, why) = match (&case.view.held, case.topology()) {
        (Some(held), Some(topology)) if held.epoch != topology.record.epoch => (
            Reason::LeaseLost,
            format!("epoch {} has begun, our lease is of epoch {}", topology.record.epoch, held.epoch),
        ),
        (Some(held), _) if held.opened => (Reason::LeaseLost, "the lease ends and could not be renewed".to_owned()),
        _ => (Reason::WritableWithoutLease, "the server takes writes and this agent holds no lease".to_owned()),
    };
    Some(
        Outcome::wait(Role::Replica, reason, format!("{why}: making it read-only")).act(Action::Fence(reason)).urgent(),
    )
}

/// Nothing can be asked of ZooKeeper: nothing is decided but what safety needs.
pub fn no_zookeeper(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    if case.connected().is_some() {
        return None;
    }
    Some(match case.lease() {
        Some(held) if held.opened => Outcome::wait(
            Role::Primary,
            Reason::NoZookeeper,
            match &memory.pause {
                Some(_) => "paused: ZooKeeper cannot be used at this moment, and writes go on all the same".to_owned(),
                None => format!(
                    "ZooKeeper cannot be used at this moment; writes go on for {:.1} s at the most, then {}",
                    (held.until - case.view.own.fencing_budget).until(case.now).as_secs_f64(),
                    match failsafe::until(case) {
                        Some(_) => "as long as replicas acknowledge them (failover.failsafe)",
                        None => "the server is made read-only",
                    }
                ),
            },
        ),
        _ if case.may_write() && case.writable() => {
            Outcome::wait(Role::Primary, Reason::Failsafe, on_acknowledgements(case))
        }
        _ if case.view.ensemble.complete => {
            Outcome::wait(Role::Unknown, Reason::Starting, "takes its name in ZooKeeper").urgent()
        }
        _ => Outcome::wait(
            Role::Unknown,
            Reason::NoZookeeper,
            "no answer from ZooKeeper; nothing is changed until it is back",
        ),
    })
}

/// The lease is over, and heartbeats are acknowledged.
fn on_acknowledgements(case: &Case<'_>) -> String {
    let sync = case.topology().map(|topology| topology.record.durability.sync.join(", ")).unwrap_or_default();
    let left = failsafe::until(case).map(|until| (until - case.view.own.fencing_budget).until(case.now));
    format!(
        "ZooKeeper cannot be used; writes go on as long as {sync} acknowledge them (failover.failsafe); without another \
         acknowledgement the server is made read-only in {:.1} s",
        left.unwrap_or_default().as_secs_f64()
    )
}

/// `topology` is there and cannot be read: nobody may act on a guess.
pub fn unreadable_topology(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let Node::Unreadable { why, .. } = &case.view.ensemble.topology else { return None };
    let role = if case.may_write() { Role::Primary } else { Role::Unknown };
    Some(Outcome::wait(
        role,
        Reason::UnreadableRecord,
        format!("the node topology cannot be read: {why}; roles stay as they are"),
    ))
}

/// Interleaving 20: a transaction of ours whose answer never came may land late. A `master` of our own session with
/// no lease behind it is of no use to anyone and keeps the others waiting.
pub fn stray_master(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let master = case.own_master()?;
    // Our own release is under way, or its effect not read yet: it takes the node with it.
    if memory.switch.as_ref().is_some_and(|switch| switch.closing.is_some() && case.now < switch.deadline) {
        return None;
    }
    let epoch = case.topology().map(|topology| topology.record.epoch);
    let ours =
        case.view.held.as_ref().is_some_and(|held| Some(held.epoch) == epoch && master.record.epoch == held.epoch);
    if ours {
        return None;
    }
    memory.promotion = None;
    // Every claim rewrites `topology`, and `master` starts with version 0 each time: without the check of `topology` this
    // would delete the node that the next holder has just created in place of ours (interleaving 1; found by simulation).
    let topology = case.topology()?;
    // The lease is left to run out: only one that had opened and is proven read-only may release (interleaving 2).
    Some(
        Outcome::wait(Role::Replica, Reason::StrayMaster, "holds the node master without a lease: removing it")
            .write(
                Purpose::DropStrayMaster,
                vec![Op::Check(Path::Topology, topology.version), Op::Delete(Path::Master, master.version)],
            )
            .urgent(),
    )
}
