//! No `topology` yet: a running replica set is adopted as it stands, or refused (design section 2, "Brownfield").

use crate::core::action::{Action, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::failsafe;
use crate::core::memory::Memory;
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{AgentRecord, Lease, Master, Role};
use crate::core::view::Node;

fn not_adopted(case: &Case<'_>) -> bool {
    case.view.ensemble.topology == Node::Absent
}

fn takes_writes(agent: &AgentRecord) -> bool {
    agent.server.as_ref().is_some_and(|server| server.writable)
}

/// Nothing is known of our server yet.
pub fn not_seen_yet(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    if !not_adopted(case) || (case.healthy() && case.view.ensemble.agents.contains_key(case.me())) {
        return None;
    }
    Some(Outcome::wait(Role::Unknown, Reason::Starting, "waits for the first answer of this host's server"))
}

/// Two servers take writes: which one is right, no program can know.
pub fn two_writable(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    if !not_adopted(case) {
        return None;
    }
    let mut writable: Vec<&str> =
        case.others().filter(|agent| takes_writes(agent)).map(|agent| agent.name.as_str()).collect();
    if case.writable() {
        writable.push(case.me());
    }
    if writable.len() < 2 {
        return None;
    }
    writable.sort_unstable();
    let text = format!(
        "{} servers take writes: {}; make all but the right one read-only (SET PERSIST super_read_only=ON) and replicate \
         from it, then start the agents again; nothing was changed",
        writable.len(),
        writable.join(", ")
    );
    let outcome = Outcome::wait(Role::Unknown, Reason::TwoWritableServers, text.clone());
    // Only the writable ones leave: the others have nothing to decide and go on by themselves once it is mended.
    Some(if case.writable() { outcome.act(Action::Refuse(text)) } else { outcome })
}

/// Our server is the one that takes writes and that others follow.
pub fn adopt(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    if !not_adopted(case) || !case.writable() {
        return None;
    }
    let facts = case.facts()?;
    if facts.channel.is_some() {
        let text = "takes writes and is configured as a replica: RESET REPLICA ALL if it is the primary, SET GLOBAL super_read_only=ON if not";
        return Some(Outcome::wait(Role::Unknown, Reason::TwoWritableServers, text));
    }
    let followers: Vec<&AgentRecord> =
        case.others().filter(|agent| changes::follows(agent, &facts.server_uuid)).collect();
    if followers.is_empty() {
        let text = "this server takes writes, but no other agent's server follows it yet: start the agents of its replicas, \
                    or run 'mysql-ha-agent bootstrap' if this is the first server of a new cluster";
        return Some(Outcome::wait(Role::Unknown, Reason::NothingFollows, text));
    }
    // Replicas that are connected belong to the cluster: their agents get one session timeout to appear, so that
    // the first record is complete; one that comes later joins then.
    let (since, granted) = case.connected()?;
    let known = |uuid: &String| {
        followers.iter().any(|agent| agent.server.as_ref().is_some_and(|server| server.server_uuid == *uuid))
    };
    let unknown = facts.replicas.iter().filter(|uuid| !known(uuid)).count();
    if unknown > 0 && case.now < since + granted {
        let text = format!("waits for the agents of {unknown} connected replicas before the replica set is adopted");
        return Some(Outcome::wait(Role::Unknown, Reason::WaitingForAdoption, text).urgent());
    }
    memory.opened_incarnation = Some(facts.incarnation.clone());
    let text =
        format!("adopts the running replica set: this server is its primary, {} replicas follow", followers.len());
    Some(
        Outcome::wait(Role::Unknown, Reason::Adopted, text)
            .write(Purpose::Adopt, adoption_ops(case, Reason::Adopted)?)
            .urgent(),
    )
}

/// The transaction that makes us the primary of the first epoch.
fn adoption_ops(case: &Case<'_>, reason: Reason) -> Option<Vec<Op>> {
    let topology = changes::adopted(case, reason)?;
    let lease = own_lease(case, topology.epoch, true)?;
    let mut ops = vec![Op::Create(Path::Topology, Record::Topology(Box::new(topology.clone())))];
    // Of a running cluster whose `topology` somebody deleted.
    ops.extend(case.own_master().map(|master| Op::Delete(Path::Master, master.version)));
    ops.push(Op::Create(Path::Master, Record::Master(own_master(case, topology.epoch)?)));
    ops.push(write_lease(case, lease));
    Some(ops)
}

/// Our `master` node for an epoch.
#[must_use]
pub fn own_master(case: &Case<'_>, epoch: u64) -> Option<Master> {
    let own = &case.view.own;
    Some(Master {
        name: own.name.clone(),
        epoch,
        address: own.address.clone(),
        server_uuid: case.facts()?.server_uuid.clone(),
        boot_id: own.boot_id.clone(),
        instance: own.instance.clone(),
    })
}

/// The first record of a lease of ours. `watermark` is all we hold: a later candidate must hold it too.
#[must_use]
pub fn own_lease(case: &Case<'_>, epoch: u64, opened: bool) -> Option<Lease> {
    let (_, granted) = case.connected()?;
    Some(Lease {
        name: case.me().to_owned(),
        epoch,
        sequence: 0,
        ttl_ms: u64::try_from(granted.as_millis()).unwrap_or(u64::MAX),
        proof_ms: failsafe::milliseconds(failsafe::length(case)),
        opened,
        watermark: case.facts()?.executed.clone(),
        released: false,
        paused: None,
        // The keeper of the lease marks what it sends.
        sent: None,
    })
}

/// Replaces exactly the version of `lease` that this case has seen.
#[must_use]
pub fn write_lease(case: &Case<'_>, lease: Lease) -> Op {
    match case.lease_node() {
        Some(seen) => Op::Set(Path::Lease, Record::Lease(lease), seen.version),
        None => Op::Create(Path::Lease, Record::Lease(lease)),
    }
}

/// A replica before adoption, or a set without any writable server.
pub fn wait_for_adoption(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    if !not_adopted(case) {
        return None;
    }
    Some(match case.others().find(|agent| takes_writes(agent)) {
        Some(primary) => Outcome::wait(
            Role::Unknown,
            Reason::WaitingForAdoption,
            format!("waits for {} (the server that takes writes) to adopt the replica set", primary.name),
        ),
        None => Outcome::wait(
            Role::Unknown,
            Reason::NoWritableServer,
            "no server of the agents present takes writes, so none can be adopted as the primary: start the primary's \
             agent, or make the right server writable (SET GLOBAL super_read_only=OFF, read_only=OFF); nothing was changed",
        ),
    })
}
