//! The plan of `promote` where no primary could hand over: a race that only the named server may lead, with enough votes; or,
//! after a disaster, `--allow-data-loss` without them.

use super::promote::{Candidate, Plan};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::election;
use crate::core::gtid::GtidSet;
use crate::core::records::{AgentRecord, DurabilityMode, Topology, Vote};
use crate::core::rows::switchover::unfit_to_lead;
use crate::core::time::Moment;
use crate::core::view::Seen;

/// Whether there is a primary whose agent could carry out a planned switch.
pub(super) fn hands_over(case: &Case<'_>, topology: &Topology) -> bool {
    let primary = topology.primary.as_ref().and_then(|name| case.agent(name));
    primary.and_then(|agent| agent.server.as_ref()).is_some_and(|server| server.healthy)
}

/// Completes the plan.
pub(super) fn plan(mut plan: Plan, case: &Case<'_>, topology: &Topology, wanted: Option<&str>) -> Plan {
    let old = case.last_writer().map(str::to_owned);
    plan.after_loss = true;
    plan.from = Some(old.clone().unwrap_or_else(|| "nobody".to_owned()));
    plan.candidates = topology.members.keys().map(|name| candidate(case, topology, name)).collect();
    let fit: Vec<&AgentRecord> = case
        .view
        .ensemble
        .agents
        .values()
        .map(|seen| &seen.record)
        .filter(|agent| unfit_to_lead(case, topology, &agent.name).is_none())
        .collect();
    let missing = missing(case, topology, &fit);
    plan.refused = match (wanted.and_then(|name| unfit_to_lead(case, topology, name)), &missing, plan.forced) {
        (Some(why), ..) => Some(why),
        (None, Some(why), false) => Some(format!(
            "not possible without losing acknowledged writes: {why}; bring those servers back, or look at \
             --allow-data-loss --dry-run"
        )),
        (None, None, true) => Some("a promotion without any loss is possible: leave out --allow-data-loss".to_owned()),
        (None, ..) => None,
    };
    if plan.refused.is_none() {
        plan.to = wanted.map(str::to_owned).or_else(|| best(&fit));
        if plan.to.is_none() {
            plan.refused = Some("no server is present that could take over".to_owned());
        }
    }
    if plan.forced || topology.durability.mode == DurabilityMode::Async {
        plan.would_be_lost = would_be_lost(case, topology, &fit);
    }
    if plan.forced {
        plan.second_writer = second_writer(case, old.as_deref());
    }
    plan
}

fn candidate(case: &Case<'_>, topology: &Topology, name: &str) -> Candidate {
    let against = unfit_to_lead(case, topology, name);
    let received = case
        .agent(name)
        .and_then(|agent| agent.server.as_ref())
        .map(|server| format!("has received {}", server.received()));
    let why = against.clone().or(received).unwrap_or_default();
    Candidate { name: name.to_owned(), fit: against.is_none(), why }
}

/// What would keep the race from ending without a loss, if those who are here vote as they are.
fn missing(case: &Case<'_>, topology: &Topology, fit: &[&AgentRecord]) -> Option<String> {
    let votes: Vec<Seen<Vote>> = fit.iter().filter_map(|agent| vote(agent)).collect();
    let counted: Vec<election::Lock<'_>> = (0..).zip(&votes).collect();
    if let Some(missing) = election::quorum_missing(&counted, &case.counted_by()?, case.last_writer()) {
        return Some(missing);
    }
    if topology.durability.mode == DurabilityMode::Async {
        return None;
    }
    let lacking = changes::acknowledged(topology, case).subtract(&election::received(&counted));
    (!lacking.is_empty()).then(|| format!("nobody here has {lacking}, which the last primary had acknowledged"))
}

/// As this agent would vote now.
fn vote(agent: &AgentRecord) -> Option<Seen<Vote>> {
    let server = agent.server.as_ref()?;
    let record = Vote {
        name: agent.name.clone(),
        received: server.received(),
        priority: agent.priority,
        topology_version: 0,
        incarnation: server.incarnation.clone().unwrap_or_default(),
        frozen: true,
        frozen_ms: 0,
    };
    Some(Seen { record, version: 0, owner: 0, created: 0, first_seen: Moment(0) })
}

fn would_be_lost(case: &Case<'_>, topology: &Topology, fit: &[&AgentRecord]) -> String {
    let here = fit
        .iter()
        .filter_map(|agent| agent.server.as_ref())
        .fold(GtidSet::new(), |all, server| all.union(&server.received()));
    let lost = changes::acknowledged(topology, case).subtract(&here);
    let known = if lost.is_empty() { "nothing that is known of".to_owned() } else { lost.to_string() };
    format!(
        "{known}; besides, whatever was acknowledged after the last primary's last renewal and is on absent servers alone"
    )
}

fn best(fit: &[&AgentRecord]) -> Option<String> {
    let received = |agent: &AgentRecord| agent.server.as_ref().map_or(0, |server| server.received().count());
    fit.iter().max_by_key(|agent| (received(agent), agent.priority)).map(|agent| agent.name.clone())
}

/// Without a released lease, or an agent that sees the old server read-only, nobody knows.
fn second_writer(case: &Case<'_>, old: Option<&str>) -> Option<String> {
    let released = case.lease_node().is_some_and(|lease| lease.record.released);
    let read_only = old.and_then(|name| case.agent(name)).and_then(|agent| agent.server.as_ref());
    if released || read_only.is_some_and(|server| !server.writable) {
        return None;
    }
    let old = old.unwrap_or("the old primary");
    Some(format!(
        "nobody has proven that the server of {old} is read-only; it is waited for until its lease is over and fenced over the network \
         if it answers; make sure yourself that it is off"
    ))
}
