//! How `topology` changes: each function gives the whole next record. Nothing else builds one.

use std::collections::BTreeMap;

use super::action::{Op, Path, Record};
use super::case::Case;
use super::gtid::GtidSet;
use super::reason::Reason;
use super::records::{AgentRecord, Durability, DurabilityMode, Handover, Member, MemberState, Mode, Topology};

/// The first record of a running replica set: we are the primary, the agents that follow us are its replicas.
#[must_use]
pub fn adopted(case: &Case<'_>, reason: Reason) -> Option<Topology> {
    let own = &case.view.own;
    let facts = case.facts()?;
    let mut members: BTreeMap<String, Member> = case
        .others()
        .filter_map(|agent| Some((agent.name.clone(), replica_member(agent, &facts.server_uuid)?)))
        .collect();
    members.insert(own.name.clone(), own_member(case, MemberState::ReadWrite)?);
    let mut topology = Topology {
        format: Topology::FORMAT,
        cluster: own.cluster.clone(),
        // 1; more where the cluster ran before and its `topology` was deleted: no epoch, and no node of `history`, comes twice.
        epoch: case.lease_node().map_or(1, |lease| lease.record.epoch + 1),
        primary: Some(own.name.clone()),
        since: case.view.wall.clone(),
        reason,
        members,
        last_writer: Some(own.name.clone()),
        durability: Durability {
            // Until commits wait for acknowledgements, what is acknowledged may be here alone.
            degraded: own.durability == DurabilityMode::Lossless
                && !facts.semi_sync.waits_for(own.sync_replicas.max(1)),
            ..Durability::without_members(own.terms())
        },
        handover: None,
        forced: None,
        kept_since: None,
        lost: GtidSet::new(),
    };
    // Every replica may acknowledge: an operator may have set it so.
    if own.durability == DurabilityMode::Lossless {
        topology.durability.sync = topology.members.keys().filter(|name| **name != own.name).cloned().collect();
        note_incarnations(&mut topology.durability, case);
    }
    Some(topology)
}

/// The primary is lost or has given up: nobody takes writes. S, floor and last writer stay as they are.
#[must_use]
pub fn without_primary(topology: &Topology, case: &Case<'_>, reason: Reason) -> Topology {
    let mut next = topology.clone();
    if let Some(primary) = next.primary.take() {
        // It was named, so the history of its epoch tells what had been lost.
        next.lost = GtidSet::new();
        if let Some(lost) = next.members.get_mut(&primary) {
            lost.state = MemberState::Na;
        }
    }
    next.since = case.view.wall.clone();
    next.reason = reason;
    next.handover = None;
    next
}

/// The primary has become read-only for a planned switch and hands over.
#[must_use]
pub fn handed_over(topology: &Topology, case: &Case<'_>, handover: Handover) -> Topology {
    let mut next = without_primary(topology, case, Reason::Switchover);
    if let Some(own) = next.members.get_mut(case.me()) {
        own.state = MemberState::Read;
    }
    // Where too few are left to acknowledge to the target, it is to be us. Nothing of ours can be missing from its quorum
    // then: the target takes over with the whole final set.
    let durability = &mut next.durability;
    let others = durability.sync.iter().filter(|name| **name != handover.to).count();
    if durability.mode == DurabilityMode::Lossless && !durability.is_enough(others) {
        durability.sync.push(case.me().to_owned());
        durability.floor = handover.final_set.clone();
    }
    next.handover = Some(handover);
    next
}

/// The primary of the present epoch holds `master` again; members, S and floor stay as they are until its lease holds.
#[must_use]
pub fn taken_back(topology: &Topology, case: &Case<'_>) -> Topology {
    let mut next = topology.clone();
    if next.primary.is_none() {
        next.since = case.view.wall.clone();
        next.reason = Reason::Failsafe;
    }
    next.primary = Some(case.me().to_owned());
    next.last_writer = next.primary.clone();
    next.handover = None;
    if let Some(own) = next.members.get_mut(case.me()) {
        own.state = MemberState::ReadWrite;
    }
    next
}

/// We hold `master` of the next epoch and do not take writes yet. The last writer stays: until we open, the old
/// one may still be the only server with all writes (interleaving 13). The lease that names it is replaced by the same
/// transaction, so `topology` takes it over here.
#[must_use]
pub fn claimed(topology: &Topology, case: &Case<'_>, reason: Reason) -> Topology {
    let mut next = topology.clone();
    next.epoch += 1;
    next.primary = None;
    next.since = case.view.wall.clone();
    next.reason = reason;
    next.handover = None;
    next.last_writer = case.last_writer().map(str::to_owned);
    // `mark_forced` takes it back.
    next.kept_since = match topology.durability.mode {
        DurabilityMode::Lossless => topology.kept_since.or(Some(topology.epoch)),
        DurabilityMode::Async => None,
    };
    next.durability.sync.extend(shut_out_by_others(topology, case));
    if let Some(facts) = case.facts() {
        // What the winner holds is the least that any later candidate must hold (interleaving 5).
        next.durability.floor = facts.executed.clone();
        note_lives_at_claim(&mut next.durability, case);
        next.lost = expected(topology, case).subtract(&facts.executed);
    }
    next
}

/// Members that an earlier primary has shut out, and whose agents are not back. They are locked on that one's server alone: a member
/// that stands still may be pointed at ours, and acknowledges to us when it thaws (found by simulation). So they count again, from
/// before we open, until we have shut them out ourselves.
fn shut_out_by_others(topology: &Topology, case: &Case<'_>) -> Vec<String> {
    let durability = &topology.durability;
    let silent = |name: &String| {
        let server = case.agent(name).and_then(|agent| agent.server.as_ref());
        server.is_some_and(|server| server.acknowledges == Some(false))
    };
    let counts = |name: &&String| {
        topology.members.contains_key(*name) && *name != case.me() && !durability.sync.contains(name) && !silent(name)
    };
    match durability.mode {
        DurabilityMode::Lossless => durability.shut_out.keys().filter(counts).cloned().collect(),
        DurabilityMode::Async => Vec::new(),
    }
}

/// What the last primary had acknowledged as far as is known.
#[must_use]
pub fn acknowledged(topology: &Topology, case: &Case<'_>) -> GtidSet {
    let watermark = case.lease_node().map(|lease| lease.record.watermark.clone()).unwrap_or_default();
    watermark.union(&topology.durability.floor)
}

/// The same, and what had been lost before it was named.
#[must_use]
pub fn expected(topology: &Topology, case: &Case<'_>) -> GtidSet {
    acknowledged(topology, case).union(&topology.lost)
}

/// The epoch that this transaction begins was forced: acknowledged writes may be missing in it.
pub fn mark_forced(ops: &mut [Op], epoch: u64) {
    for op in ops {
        if let Op::Set(Path::Topology, Record::Topology(topology), _) = op {
            topology.forced = Some(epoch);
            topology.kept_since = None;
        }
    }
}

/// Our server takes writes.
#[must_use]
pub fn published(topology: &Topology, case: &Case<'_>) -> Topology {
    let mut next = topology.clone();
    next.primary = Some(case.me().to_owned());
    next.last_writer = next.primary.clone();
    next.since = case.view.wall.clone();
    next.members = members_now(topology, case);
    // S as it was carried over: whoever else follows is recorded before it may acknowledge.
    next.durability.forget(case.me());
    next.durability.retiring.clear();
    note_incarnations(&mut next.durability, case);
    next
}

/// In which life each member of S is counted on. Whoever joins is taken as it stands: it has acknowledged nothing yet that is
/// asked of it, and what it acknowledges once it is recorded it receives in this life or a later one (interleaving 7). A known one
/// changes only in row D12.
pub fn note_incarnations(durability: &mut Durability, case: &Case<'_>) {
    if durability.mode == DurabilityMode::Async {
        durability.incarnations.clear();
        return;
    }
    let Durability { sync, incarnations, shut_out, .. } = durability;
    incarnations.retain(|name, _| sync.contains(name) || shut_out.contains_key(name));
    for name in sync.iter().filter(|name| *name != case.me()) {
        match case.agent(name).and_then(|agent| agent.server.as_ref()).map(|server| &server.incarnation) {
            Some(Some(life)) => drop(incarnations.entry(name.clone()).or_insert_with(|| life.clone())),
            // An agent of an earlier version has come instead: counted as it always was.
            Some(None) => drop(incarnations.remove(name)),
            None => {}
        }
    }
    note_own_incarnation(durability, case);
}

/// At a claim: nobody has acknowledged anything to the claimer yet. A member without an entry is the old primary of a planned
/// switch, which is to acknowledge from now on: until here it was the last writer, in whichever life (had it been recorded when it
/// handed over, a loss of power everywhere left nobody whose vote counted; found by simulation). One whose agent is gone
/// may be back before anybody looks again, acknowledge, and crash: it counts once it has caught up (row D12).
fn note_lives_at_claim(durability: &mut Durability, case: &Case<'_>) {
    note_incarnations(durability, case);
    if durability.mode == DurabilityMode::Async {
        return;
    }
    let Durability { sync, incarnations, .. } = durability;
    for name in sync.iter().filter(|name| *name != case.me() && case.agent(name).is_none()) {
        incarnations.entry(name.clone()).or_default();
    }
}

/// Whoever takes writes has executed what it acknowledges, in whichever life: the last writer needs nobody (interleaving 13).
/// But where its commits are not synced its host's crash may lose the last of them.
fn note_own_incarnation(durability: &mut Durability, case: &Case<'_>) {
    let Some(facts) = case.facts() else { return };
    durability.incarnations.remove(case.me());
    if durability.mode == DurabilityMode::Async {
        return;
    }
    if !facts.synced_commits {
        durability.incarnations.insert(case.me().to_owned(), facts.life());
    } else if facts.losses > 0 {
        durability.incarnations.insert(case.me().to_owned(), Durability::any_boot(facts.losses));
    }
}

/// Members and their states as the primary sees them; none where nothing changed. `elsewhere`: enough members of S in other
/// rooms acknowledge, so that nobody in ours is to join it.
#[must_use]
pub fn members_changed(topology: &Topology, case: &Case<'_>, elsewhere: bool) -> Option<Topology> {
    let mut next = topology.clone();
    next.members = members_now(topology, case);
    let durability = &mut next.durability;
    if durability.mode == DurabilityMode::Lossless {
        // More members in S need more votes; nothing acknowledged before can be missing from those.
        let joins = |(name, member): (&String, &Member)| {
            let knows = case.agent(name).is_some_and(|agent| {
                let acknowledges = agent.server.as_ref().and_then(|server| server.acknowledges);
                // Nobody switches an observed server on: it counts where its operator has.
                if agent.mode == Mode::Observe { acknowledges == Some(true) } else { acknowledges.is_some() }
            });
            // Who receives nothing (what it lacks is purged here) acknowledges nothing, and its vote would be waited for.
            let receives = case.agent(name).is_some_and(receives);
            let left_out = elsewhere && case.in_our_room(name);
            let wanted = knows && receives && !left_out;
            let joins = member.state == MemberState::Read && wanted && !durability.sync.contains(name);
            (name != case.me() && joins).then(|| name.clone())
        };
        let joining: Vec<String> = next.members.iter().filter_map(joins).collect();
        durability.sync.extend(joining);
        note_incarnations(durability, case);
    }
    (next != *topology).then_some(next)
}

fn members_now(topology: &Topology, case: &Case<'_>) -> BTreeMap<String, Member> {
    let mut members = topology.members.clone();
    let Some(own) = own_member(case, MemberState::ReadWrite) else { return members };
    let own_uuid = own.server_uuid.clone();
    for (name, member) in &mut members {
        // An agent that is gone says nothing of its server any more.
        member.state = match case.agent(name) {
            Some(agent) if follows(agent, &own_uuid) => MemberState::Read,
            _ => MemberState::Na,
        };
    }
    for agent in case.others().filter(|agent| follows(agent, &own_uuid)) {
        let Some(member) = replica_member(agent, &own_uuid) else { continue };
        // A second agent of one server, or a copied server, is refused (row S2), and its short presence must leave
        // nothing behind: recorded, it would keep out the member whose UUID it has, and be waited for in every race.
        let twin = members.iter().any(|(name, known)| *name != agent.name && known.server_uuid == member.server_uuid);
        if !twin {
            members.insert(agent.name.clone(), member);
        }
    }
    members.insert(case.me().to_owned(), own);
    members
}

/// Whether an agent's server replicates from the server with this UUID and can be read from.
#[must_use]
pub fn follows(agent: &AgentRecord, primary_uuid: &str) -> bool {
    agent.server.as_ref().is_some_and(|server| {
        server.healthy
            && server.errant.is_empty()
            && !server.writable
            && server
                .source
                .as_ref()
                .is_some_and(|source| source.server_uuid.as_deref() == Some(primary_uuid) && source.sql_running)
    })
}

/// Whether its IO thread runs.
#[must_use]
pub fn receives(agent: &AgentRecord) -> bool {
    agent.server.as_ref().and_then(|server| server.source.as_ref()).is_some_and(|source| source.io_running)
}

fn replica_member(agent: &AgentRecord, primary_uuid: &str) -> Option<Member> {
    let server = agent.server.as_ref()?;
    let state = if follows(agent, primary_uuid) { MemberState::Read } else { MemberState::Na };
    Some(Member { address: agent.address.clone(), server_uuid: server.server_uuid.clone(), state })
}

fn own_member(case: &Case<'_>, state: MemberState) -> Option<Member> {
    let facts = case.facts()?;
    Some(Member { address: case.view.own.address.clone(), server_uuid: facts.server_uuid.clone(), state })
}
