//! `failover.mode: observe`: the table is asked as ever, nothing of what it says is done, and all of it is said.
//!
//! Where no agent has adopted the replica set (all of them observe), there is no `topology` to decide by. Then the roles
//! are assumed as adoption would find them, from what the agents publish: one server that takes writes, which others
//! follow. So an observer of a cluster that nobody manages says what would be done when that server is lost. It
//! sees no more than the first step: what it says is not done, so nothing comes after it.
//!
//! In a cluster with other modes an observer goes by the real `topology`. It holds no lease and no lock; its server is a
//! member like any other if it follows the primary. Its semi-sync is the operator's: where that is on it counts in S, since it
//! acknowledges, but nobody freezes it and it has no vote. So with `lossless` and k = 1 one such observer among the replicas is
//! enough to keep the others from being promoted automatically: observe with all agents, or with none.

use std::collections::BTreeMap;
use std::time::Duration;

use super::action::{Action, MysqlAction};
use super::case::Case;
use super::changes::follows;
use super::gtid::GtidSet;
use super::memory::Memory;
use super::outcome::Decision;
use super::reason::Reason;
use super::records::{AgentRecord, Durability, Master, Member, MemberState, Topology};
use super::rows::shut_out::told;
use super::table::decide;
use super::time::Moment;
use super::view::{Held, Node, Seen, Session, View};

/// What the table says, with nothing to do.
pub(super) fn step(memory: &mut Memory, view: &View, now: Moment) -> Decision {
    let decision = match assumed(memory, view, now) {
        Some(view) => decide(memory, &view, now),
        None => decide(memory, view, now),
    };
    only_said(decision)
}

/// Strips a decision of everything that has an effect.
fn only_said(mut decision: Decision) -> Decision {
    let would: Vec<String> = decision.outcome.actions.drain(..).map(|action| in_words(&action)).collect();
    let said = if would.is_empty() { "nothing".to_owned() } else { would.join(", ") };
    decision.outcome.detail = format!("observes only; would do: {said} ({})", decision.outcome.detail);
    // What is not done brings no next step.
    decision.outcome.urgent = false;
    Decision {
        heartbeat_write: false,
        want_opened: false,
        may_acknowledge: false,
        pause: None,
        proof: None,
        acknowledged_until: None,
        epoch: 0,
        ..decision
    }
}

fn in_words(action: &Action) -> String {
    match action {
        Action::Fence(_) => "make this server read-only".to_owned(),
        Action::Mysql(MysqlAction::Follow { address, .. }) => format!("replicate from {address}"),
        Action::Mysql(action) => format!("{:?} on MySQL", action.kind()),
        Action::Write(write) => format!("{:?} in ZooKeeper", write.purpose),
        Action::Refuse(_) => "end with exit code 5".to_owned(),
    }
}

/// The view as it would be after adoption; none where there is a `topology`, or nothing that could be adopted.
fn assumed(memory: &mut Memory, view: &View, now: Moment) -> Option<View> {
    let case = Case { view, now };
    case.connected()?;
    if view.ensemble.topology != Node::Absent {
        return None;
    }
    let agents: Vec<&AgentRecord> = view.ensemble.agents.values().map(|seen| &seen.record).collect();
    let writable: Vec<&AgentRecord> =
        agents.iter().copied().filter(|agent| agent.server.as_ref().is_some_and(|server| server.writable)).collect();
    if let [primary] = writable[..]
        && memory.assumed.as_ref().is_none_or(|known| known.primary.as_ref() != Some(&primary.name))
    {
        memory.assumed = adopted(view, primary, &agents, memory.assumed.as_ref().map_or(1, |known| known.epoch + 1));
    }
    let mut topology = memory.assumed.clone()?;
    let name = topology.primary.clone()?;
    // As they would stand there by now: what is written one by one would else be all that is ever said.
    let told = |agent: &&AgentRecord| Some((agent.name.clone(), told(agent)??));
    topology.durability.accounts = agents.iter().filter(|agent| agent.name != name).filter_map(told).collect();
    let mut next = view.clone();
    let mine = name == view.own.name;
    // The agent of a lost primary may still be there: what it publishes of its server counts.
    let alive =
        agents.iter().any(|agent| agent.name == name && agent.server.as_ref().is_some_and(|server| server.healthy));
    if alive || mine {
        let owner = match view.ensemble.session {
            Session::Connected { id, .. } if mine => id,
            _ => 0,
        };
        let member = topology.members.get(&name)?;
        let master = Master {
            name: name.clone(),
            epoch: topology.epoch,
            address: member.address.clone(),
            server_uuid: member.server_uuid.clone(),
            boot_id: view.own.boot_id.clone(),
            instance: view.own.instance.clone(),
        };
        next.ensemble.master = Node::Here(seen(master, owner, now));
        let until = now + view.own.cooldown.max(view.own.fencing_budget * 4);
        next.held = mine.then_some(Held {
            epoch: topology.epoch,
            until,
            opened: true,
            inherited: false,
            proof: Duration::ZERO,
        });
    } else {
        topology.primary = None;
        topology.reason = Reason::MysqlDown;
    }
    next.ensemble.topology = Node::Here(seen(topology, 0, now));
    Some(next)
}

fn seen<T>(record: T, owner: i64, now: Moment) -> Seen<T> {
    Seen { record, version: 0, owner, created: 0, first_seen: now }
}

/// The first `topology` as the agent of `primary` would write it.
fn adopted(view: &View, primary: &AgentRecord, agents: &[&AgentRecord], epoch: u64) -> Option<Topology> {
    let uuid = &primary.server.as_ref()?.server_uuid;
    let mut members: BTreeMap<String, Member> = BTreeMap::new();
    for agent in agents {
        let Some(server) = &agent.server else { continue };
        let state = match agent.name == primary.name {
            true => MemberState::ReadWrite,
            false if follows(agent, uuid) => MemberState::Read,
            false => MemberState::Na,
        };
        let member = Member { address: agent.address.clone(), server_uuid: server.server_uuid.clone(), state };
        members.insert(agent.name.clone(), member);
    }
    // As with adoption: a server that nobody follows is no primary yet.
    members.values().any(|member| member.state == MemberState::Read).then(|| Topology {
        format: Topology::FORMAT,
        cluster: view.own.cluster.clone(),
        epoch,
        primary: Some(primary.name.clone()),
        since: view.wall.clone(),
        reason: Reason::Adopted,
        durability: Durability {
            sync: members.keys().filter(|name| **name != primary.name).cloned().collect(),
            ..Durability::without_members(view.own.terms())
        },
        members,
        last_writer: Some(primary.name.clone()),
        handover: None,
        forced: None,
        kept_since: None,
        lost: GtidSet::new(),
    })
}
