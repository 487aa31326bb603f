//! The cluster at one moment as people and scripts read it: `status --json` and `/status` alike.

use std::time::Duration;

use serde::Serialize;

use super::gtid::GtidSet;
use super::reason::Reason;
use super::records::{AgentRecord, DurabilityMode, HistoryRecord, MemberState, Mode, Topology};
use super::rows::shut_out;
use super::time::Wall;
use super::view::{Ensemble, Node};

/// The cluster at one moment; the JSON form of `status --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// The cluster's name.
    pub cluster: String,
    /// Whether nothing is wrong.
    pub healthy: bool,
    /// What is wrong, worst first.
    pub problems: Vec<String>,
    /// What should be mended and harms nothing at this moment.
    pub warnings: Vec<String>,
    /// The epoch; 0 before adoption.
    pub epoch: u64,
    /// Who takes writes.
    pub primary: Option<String>,
    /// Since when roles are as they are.
    pub since: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// `topology` whole, as clients see it.
    pub topology: Option<Topology>,
    /// What the old primary is known to have executed and the present epoch began without.
    pub lost: GtidSet,
    /// Each server, recorded or not.
    pub members: Vec<MemberStatus>,
}

/// One server.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MemberStatus {
    /// Its agent's name.
    pub name: String,
    /// Where it is reached.
    pub address: String,
    /// What clients may do with it; none when it is not recorded.
    pub state: Option<MemberState>,
    /// Its agent's observation; none when no agent is present.
    pub agent: Option<AgentRecord>,
    /// Received and not yet applied transactions.
    pub unapplied: Option<u64>,
    /// How long ago `agent` was written, where that is longer than an agent that lives would let pass: its last word, then. By the
    /// wall clocks of two hosts, so for people alone. Unit: milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_word_ms: Option<u64>,
}

impl MemberStatus {
    /// What its agent says; of one that has fallen silent, its last word and how old that is.
    #[must_use]
    pub fn says(&self) -> String {
        let detail = self.agent.as_ref().map_or("-", |agent| &agent.detail);
        match self.last_word_ms {
            Some(ms) => format!("its agent's last word, {:.0} s ago: {detail}", ms as f64 / 1000.0),
            None => detail.to_owned(),
        }
    }
}

/// How old is what hosts have written: for people alone, as it goes by the wall clocks of two hosts.
#[derive(Debug, Clone)]
pub struct Ages {
    /// When this is asked.
    pub now: Wall,
    /// What lies between two moments; none where the second is not later, or one makes no sense.
    pub between: fn(&Wall, &Wall) -> Option<Duration>,
    /// How old a record may be before it counts as an agent's last word: it writes one with each renewal.
    pub lives_within: Duration,
}

/// How long a member may take to follow after a planned switch before that is a problem.
const RETURNING: Duration = Duration::from_secs(10);

/// Builds the status from the tree.
#[must_use]
pub fn status(cluster: &str, ensemble: &Ensemble, ages: &Ages) -> Status {
    let topology = ensemble.topology.record();
    let mut names: Vec<&String> = topology.map(|topology| topology.members.keys().collect()).unwrap_or_default();
    names.extend(ensemble.agents.keys());
    names.sort_unstable();
    names.dedup();
    let mut members: Vec<MemberStatus> = names.into_iter().map(|name| member(name, ensemble)).collect();
    for member in &mut members {
        let age = member.agent.as_ref().and_then(|agent| (ages.between)(&agent.at, &ages.now));
        let last = age.filter(|age| *age > ages.lives_within);
        member.last_word_ms = last.and_then(|age| u64::try_from(age.as_millis()).ok());
    }
    let switched = topology.is_some_and(|topology| {
        let planned = matches!(topology.reason, Reason::Switchover | Reason::SwitchoverUndone);
        planned && (ages.between)(&topology.since, &ages.now).is_some_and(|age| age < RETURNING)
    });
    let (returning, others): (Vec<&MemberStatus>, Vec<&MemberStatus>) =
        members.iter().partition(|member| switched && returns(member));
    let problems = problems(ensemble, &others);
    let warnings = returning
        .iter()
        .map(|member| format!("{}: comes back as a replica after the switch: {}", member.name, member.says()))
        .chain(warnings(&members))
        .collect();
    Status {
        cluster: cluster.to_owned(),
        healthy: problems.is_empty(),
        problems,
        warnings,
        epoch: topology.map_or(0, |topology| topology.epoch),
        primary: topology.and_then(|topology| topology.primary.clone()),
        since: topology.map(|topology| topology.since.0.clone()),
        reason: topology.map(|topology| topology.reason.code().to_owned()),
        topology: topology.cloned(),
        lost: GtidSet::new(),
        members,
    }
}

fn member(name: &str, ensemble: &Ensemble) -> MemberStatus {
    let recorded = ensemble.topology.record().and_then(|topology| topology.members.get(name));
    let agent = ensemble.agents.get(name).map(|seen| seen.record.clone());
    let server = agent.as_ref().and_then(|agent| agent.server.as_ref());
    MemberStatus {
        name: name.to_owned(),
        address: recorded
            .map(|member| member.address.clone())
            .or_else(|| agent.as_ref().map(|agent| agent.address.clone()))
            .unwrap_or_default(),
        state: recorded.map(|member| member.state),
        unapplied: server.map(|server| server.retrieved.subtract(&server.executed).count()),
        agent,
        last_word_ms: None,
    }
}

/// A member that does not follow the new primary yet, and that nothing keeps from it.
fn returns(member: &MemberStatus) -> bool {
    let Some(agent) = member.agent.as_ref().filter(|_| member.last_word_ms.is_none()) else { return false };
    let on_its_way = matches!(
        agent.reason,
        Reason::Switchover | Reason::HeldBack | Reason::WaitingForPrimary | Reason::Repointing | Reason::Following
    );
    let server = agent.server.as_ref();
    member.state == Some(MemberState::Na)
        && on_its_way
        && !agent.fenced_by_hand
        && server.is_some_and(|server| server.healthy && server.errant.is_empty())
}

/// What to do with a `topology` that is no valid record (the node can be written by whoever may).
pub const UNREADABLE_TOPOLOGY: &str = "no role changes until it can: put the record back, or delete the node while \
     the primary takes writes, and the running set is adopted anew";

fn problems(ensemble: &Ensemble, members: &[&MemberStatus]) -> Vec<String> {
    let mut problems = Vec::new();
    let leaderless = ensemble.topology.record().is_some_and(|topology| topology.primary.is_none());
    match &ensemble.topology {
        Node::Absent => problems.push("no topology yet: the replica set has not been adopted".to_owned()),
        Node::Unreadable { why, .. } => {
            problems.push(format!("the node topology cannot be read: {why}; {UNREADABLE_TOPOLOGY}"));
        }
        Node::Here(topology) if topology.record.primary.is_none() => {
            problems.push(format!("no server takes writes ({})", topology.record.reason));
        }
        Node::Here(topology) if topology.record.durability.degraded => {
            problems.push("degraded: writes are not acknowledged by a replica".to_owned())
        }
        Node::Here(_) => {}
    }
    problems.extend(paused(ensemble));
    problems.extend(mixed_modes(ensemble));
    problems.extend(other_terms(ensemble));
    let kept_out = ensemble.topology.record().map(|topology| shut_out::words(topology, &ensemble.agents));
    let kept_out = kept_out.unwrap_or_default();
    for member in members {
        match (&member.agent, member.state) {
            (None, _) => {
                let more = kept_out.get(&member.name).map(|text| format!("; {text}")).unwrap_or_default();
                problems.push(format!("{}: its agent is not running{more}", member.name));
            }
            (Some(agent), _)
                if matches!(
                    agent.reason,
                    Reason::OldPrimaryUnfenced
                        | Reason::NotAutomatic
                        | Reason::FencedByHand
                        | Reason::Blocked
                        | Reason::ReplicationBroken
                ) =>
            {
                problems.push(format!("{}: {}", member.name, member.says()));
            }
            (Some(agent), _) if agent.fenced_by_hand => {
                problems.push(format!(
                    "{}: fenced by hand, no candidate until 'unfence'; {}",
                    member.name,
                    member.says()
                ));
            }
            (Some(_), Some(MemberState::Na) | None) => problems.push(format!("{}: {}", member.name, member.says())),
            (Some(agent), Some(_))
                if agent.server.as_ref().is_none_or(|server| !server.healthy || !server.errant.is_empty()) =>
            {
                problems.push(format!("{}: {}", member.name, member.says()));
            }
            // Who waits for what, in full: the table has no room for it.
            (Some(_), Some(_)) if leaderless => problems.push(format!("{}: {}", member.name, member.says())),
            _ => {}
        }
    }
    problems
}

/// No problem: roles, writes and failovers go on without a guard, and one that is restarted must not page anybody.
fn warnings(members: &[MemberStatus]) -> Vec<String> {
    let unguarded =
        members.iter().filter(|member| member.agent.as_ref().is_some_and(|agent| agent.guard == Some(false)));
    unguarded
        .map(|member| {
            format!(
                "{}: no guard runs there: should its agent fail while it is the primary, nobody on that host makes it \
                 read-only (start mysql-ha-guard.service)",
                member.name
            )
        })
        .collect()
}

/// A pause is a problem for `status`: nothing is worse than one that was forgotten.
fn paused(ensemble: &Ensemble) -> Option<String> {
    let lease = ensemble.lease.record().filter(|lease| lease.paused.is_some());
    match (lease, ensemble.pause.record()) {
        (Some(lease), Some(pause)) if lease.paused.as_ref() == Some(&pause.operation) => {
            let why = if pause.reason.is_empty() { String::new() } else { format!(" ({})", pause.reason) };
            let end = match pause.for_ms {
                Some(ms) => format!("for {} s", ms / 1000),
                None => "until 'resume'".to_owned(),
            };
            Some(format!("paused since {}{why} {end}: no automatic role change", pause.at.0))
        }
        (_, Some(pause)) => Some(format!(
            "a pause was asked for at {} and is NOT in force: the primary has not acknowledged it",
            pause.at.0
        )),
        (Some(lease), None) if !lease.released => Some(format!(
            "the pause was ended, but {} has not renewed its lease since: nobody is promoted before it has ('promote NAME' if \
             its host is lost)",
            lease.name
        )),
        _ => None,
    }
}

/// Each agent's mode counts for what it does itself, and nobody expects two of them in one cluster.
fn mixed_modes(ensemble: &Ensemble) -> Option<String> {
    let mode = |name: &String| ensemble.agents.get(name).map(|seen| seen.record.mode);
    let differs = ensemble.agents.keys().any(|name| mode(name) != ensemble.agents.keys().next().and_then(mode));
    let list = || ensemble.agents.iter().map(|(name, seen)| format!("{name} {:?}", seen.record.mode).to_lowercase());
    differs.then(|| format!("failover.mode differs between the agents: {}", list().collect::<Vec<_>>().join(", ")))
}

/// The primary's file decides, and nobody expects another to say something else until that host is the primary.
fn other_terms(ensemble: &Ensemble) -> Option<String> {
    let durability = &ensemble.topology.record()?.durability;
    let list: Vec<String> = ensemble
        .agents
        .values()
        .map(|seen| &seen.record)
        .filter(|agent| agent.mode != Mode::Observe)
        .filter_map(|agent| Some((&agent.name, agent.proposes.filter(|terms| !durability.is_as(terms))?)))
        .map(|(name, terms)| format!("{name} {} with {}", terms.durability, terms.sync_replicas))
        .collect();
    let in_force = match durability.mode {
        DurabilityMode::Lossless => format!("lossless with failover.sync_replicas {}", durability.k()),
        DurabilityMode::Async => "async".to_owned(),
    };
    (!list.is_empty()).then(|| {
        format!(
            "failover.durability: {in_force} is in force, the files of some hosts say otherwise: {}; make them alike and reload \
             (the primary's file decides)",
            list.join(", ")
        )
    })
}

impl Status {
    /// The same with what the newest role change says, where that is how the present epoch began.
    #[must_use]
    pub fn with_newest(mut self, newest: Option<&HistoryRecord>) -> Self {
        let Some(record) = newest.filter(|record| record.epoch == self.epoch && !record.lost.is_empty()) else {
            return self;
        };
        self.lost = record.lost.clone();
        self.warnings.push(format!(
            "epoch {} began without {} transactions that {} had executed: {}",
            record.epoch,
            record.lost.count(),
            record.from.as_deref().unwrap_or("the old primary"),
            record.lost
        ));
        self
    }
}
