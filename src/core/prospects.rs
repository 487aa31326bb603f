//! Whether a failover would succeed now, as this agent sees the cluster: what `failover_ready` says.
//!
//! A forecast, judged by what the agents have published. The race itself goes by votes.

use super::case::Case;
use super::consent;
use super::records::{AgentRecord, DurabilityMode, Mode, Topology};
use super::rows::switchover::unfit_to_lead;

/// What a failover would come to now. The codes are labels of a metric and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prospect {
    /// Another server would take over by itself.
    Ready,
    /// This agent cannot use ZooKeeper at this moment, and does not know.
    NoZookeeper,
    /// Nothing is adopted yet.
    NotAdopted,
    /// No server takes writes: a failover is under way, or waits for something.
    NoPrimary,
    /// A pause is in force.
    Paused,
    /// Acknowledged writes may be on the primary alone.
    Degraded,
    /// No other server could lead a race.
    NoCandidate,
    /// Those that could are told not to by themselves (`failover.mode`).
    NotAutomatic,
    /// `async`: all that could are older than `failover.max_lag`.
    TooFarBehind,
    /// `lossless`: too few members of the sync set could vote.
    NoQuorum,
    /// `failover.cooldown`: it would begin only later.
    Cooldown,
}

impl Prospect {
    /// All of them.
    pub const ALL: [Prospect; 11] = [
        Prospect::Ready,
        Prospect::NoZookeeper,
        Prospect::NotAdopted,
        Prospect::NoPrimary,
        Prospect::Paused,
        Prospect::Degraded,
        Prospect::NoCandidate,
        Prospect::NotAutomatic,
        Prospect::TooFarBehind,
        Prospect::NoQuorum,
        Prospect::Cooldown,
    ];

    /// The label.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Prospect::Ready => "ready",
            Prospect::NoZookeeper => "no_zookeeper",
            Prospect::NotAdopted => "not_adopted",
            Prospect::NoPrimary => "no_primary",
            Prospect::Paused => "paused",
            Prospect::Degraded => "degraded",
            Prospect::NoCandidate => "no_candidate",
            Prospect::NotAutomatic => "not_automatic",
            Prospect::TooFarBehind => "too_far_behind",
            Prospect::NoQuorum => "no_quorum",
            Prospect::Cooldown => "cooldown",
        }
    }
}

/// Were the primary lost now. `cooling`: `failover.cooldown` is not over.
#[must_use]
pub fn failover(case: &Case<'_>, cooling: bool) -> Prospect {
    if case.connected().is_none() {
        return Prospect::NoZookeeper;
    }
    let Some(topology) = case.topology().map(|seen| &seen.record) else { return Prospect::NotAdopted };
    let Some(primary) = &topology.primary else { return Prospect::NoPrimary };
    if consent::paused_lease(case) {
        return Prospect::Paused;
    }
    let lossless = topology.durability.mode == DurabilityMode::Lossless;
    if lossless && (topology.durability.degraded || topology.durability.sync.is_empty()) {
        return Prospect::Degraded;
    }
    let fit = |name: &&String| *name != primary && unfit_to_lead(case, topology, name).is_none();
    let candidates: Vec<&AgentRecord> =
        topology.members.keys().filter(fit).filter_map(|name| case.agent(name)).collect();
    if candidates.is_empty() {
        return Prospect::NoCandidate;
    }
    let automatic: Vec<&AgentRecord> = candidates.into_iter().filter(|agent| agent.mode == Mode::Automatic).collect();
    if automatic.is_empty() {
        return Prospect::NotAutomatic;
    }
    if lossless && !enough_votes(case, topology) {
        return Prospect::NoQuorum;
    }
    let lag = |agent: &AgentRecord| agent.server.as_ref().and_then(|server| server.lag_ms);
    let most = case.view.own.max_lag.as_millis();
    if !lossless && !automatic.iter().any(|agent| lag(agent).is_some_and(|lag| u128::from(lag) <= most)) {
        return Prospect::TooFarBehind;
    }
    if cooling { Prospect::Cooldown } else { Prospect::Ready }
}

/// Members of S whose servers answer, in the life in which they are counted on: |S| − k + 1 of them.
fn enough_votes(case: &Case<'_>, topology: &Topology) -> bool {
    let durability = &topology.durability;
    let votes = |name: &&String| {
        let agent = case.agent(name).filter(|agent| agent.mode != Mode::Observe);
        let server = agent.and_then(|agent| agent.server.as_ref()).filter(|server| server.healthy);
        server.is_some_and(|server| durability.kept_all(name, server.incarnation.as_deref().unwrap_or_default()))
    };
    durability.sync.iter().filter(votes).count() >= durability.votes_needed()
}

/// How many members of S acknowledge to this primary at this moment, as their agents say and as its own reading shows them
/// connected. None on a server that is not the primary.
#[must_use]
pub fn acknowledging(case: &Case<'_>) -> Option<usize> {
    let topology = &case.topology()?.record;
    let (facts, lossless) = (case.facts()?, topology.durability.mode == DurabilityMode::Lossless);
    if topology.primary.as_deref() != Some(case.me()) || !lossless {
        return None;
    }
    let connected = |name: &&String| {
        let server = case.agent(name).and_then(|agent| agent.server.as_ref());
        server.is_some_and(|server| {
            server.acknowledging && facts.replicas.iter().any(|uuid| uuid.eq_ignore_ascii_case(&server.server_uuid))
        })
    };
    Some(topology.durability.sync.iter().filter(connected).count())
}
