//! `promote`: a planned switch. The verb writes a request; the primary's agent carries it out and answers in it.

use std::time::Duration;

use serde::Serialize;

use super::exit::Exit;
use super::session::Tree;
use crate::core::action::{Op, Path, Record};
use crate::core::case::Case;
use crate::core::records::{Progress, SwitchoverRequest, Topology};
use crate::core::rows::switchover::unfit;
use crate::core::view::{Ensemble, Own, Server, View};
use crate::host::clock;
use crate::zookeeper::writer::Outcome;

/// What `promote` would do; the JSON form of `promote --dry-run --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Who gives the role away.
    pub from: Option<String>,
    /// Who gets it.
    pub to: Option<String>,
    /// Why nothing can be done.
    pub refused: Option<String>,
    /// Every other member with what speaks for or against it.
    pub candidates: Vec<Candidate>,
    /// A planned switch waits for everything to be applied: nothing.
    pub would_be_lost: String,
}

/// A candidate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Whether it could take over.
    pub fit: bool,
    /// Why, or why not.
    pub why: String,
}

/// Looks at every candidate.
#[must_use]
pub fn plan(own: &Own, ensemble: &Ensemble, wanted: Option<&str>) -> Plan {
    let view = View {
        own: own.clone(),
        ensemble: ensemble.clone(),
        server: Server::default(),
        held: None,
        wall: clock::wall(),
    };
    let case = Case { view: &view, now: clock::now() };
    let mut plan =
        Plan { from: None, to: None, refused: None, candidates: Vec::new(), would_be_lost: "nothing".to_owned() };
    let Some(topology) = ensemble.topology.record() else {
        plan.refused =
            Some("there is no readable topology: the replica set has not been adopted yet (see 'status')".to_owned());
        return plan;
    };
    plan.from = topology.primary.clone();
    plan.candidates = candidates(&case, topology);
    plan.refused = refusal(&case, topology, wanted);
    if plan.refused.is_none() {
        plan.to = wanted.map(str::to_owned).or_else(|| best(ensemble, &plan.candidates));
        if plan.to.is_none() {
            plan.refused = Some("no replica could take over".to_owned());
        }
    }
    plan
}

fn candidates(case: &Case<'_>, topology: &Topology) -> Vec<Candidate> {
    let others = topology.members.keys().filter(|name| topology.primary.as_ref() != Some(name));
    others
        .map(|name| {
            let against = unfit(case, topology, name);
            let lag = case.agent(name).and_then(|agent| agent.server.as_ref()?.lag_ms);
            let why = against.clone().unwrap_or_else(|| match lag {
                Some(ms) => format!("follows, newest heartbeat {ms} ms old"),
                None => "follows, lag unknown".to_owned(),
            });
            Candidate { name: name.clone(), fit: against.is_none(), why }
        })
        .collect()
}

fn refusal(case: &Case<'_>, topology: &Topology, wanted: Option<&str>) -> Option<String> {
    let Some(primary) = &topology.primary else {
        return Some(format!(
            "no server takes writes ({}), so there is none to switch from: see 'status'",
            topology.reason
        ));
    };
    if case.agent(primary).is_none() {
        return Some(format!(
            "the agent of the primary {primary} is not running: start it, or let the failover happen"
        ));
    }
    wanted.and_then(|name| unfit(case, topology, name))
}

/// The fit one with the highest priority, then the least lag.
fn best(ensemble: &Ensemble, candidates: &[Candidate]) -> Option<String> {
    let key = |name: &str| {
        let agent = ensemble.agents.get(name).map(|seen| &seen.record);
        let lag = agent.and_then(|agent| agent.server.as_ref()?.lag_ms).unwrap_or(u64::MAX);
        (std::cmp::Reverse(agent.map_or(0, |agent| agent.priority)), lag, name.to_owned())
    };
    candidates
        .iter()
        .filter(|candidate| candidate.fit)
        .map(|candidate| &candidate.name)
        .min_by_key(|name| key(name))
        .cloned()
}

impl Plan {
    /// For people.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = match (&self.refused, &self.from, &self.to) {
            (Some(why), _, _) => format!("refused: {why}\n"),
            (None, Some(from), Some(to)) => {
                format!("would switch from {from} to {to}; would be lost: {}\n", self.would_be_lost)
            }
            _ => String::new(),
        };
        for candidate in &self.candidates {
            let verdict = if candidate.fit { "can take over" } else { "cannot" };
            text.push_str(&format!("  {:<16} {verdict}: {}\n", candidate.name, candidate.why));
        }
        text
    }
}

/// Carries the plan out; the answer for people and the exit code.
pub async fn promote(tree: &mut Tree, plan: &Plan, timeout: Duration) -> (Exit, String) {
    let (Some(from), Some(to)) = (&plan.from, &plan.to) else {
        return (Exit::Refused, plan.text());
    };
    let ensemble = tree.now();
    let Some(topology) = ensemble.topology.record() else { return (Exit::Refused, plan.text()) };
    let request = SwitchoverRequest {
        operation: clock::new_instance().unwrap_or_else(|_| clock::wall().0),
        epoch: topology.epoch,
        from: from.clone(),
        to: to.clone(),
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        at: clock::wall(),
        progress: Progress::Requested,
        detail: String::new(),
        after_loss: false,
        force: false,
    };
    let started = clock::now();
    if let Err(answer) = submit(tree, &request).await {
        return answer;
    }
    // The agent answers by the deadline; what it undoes at the deadline takes a moment more.
    let limit = timeout + Duration::from_secs(15);
    let operation = request.operation.clone();
    let answer = tree
        .wait(limit, |ensemble| {
            let seen = ensemble.switchover.record()?;
            let over = !matches!(seen.progress, Progress::Requested | Progress::Released);
            (seen.operation != operation || over).then(|| seen.clone())
        })
        .await;
    let ms = clock::now().since(started).as_secs_f64() * 1000.0;
    match answer {
        Some(seen) if seen.operation != operation => (
            Exit::Unknown,
            format!("another request ({} to {}) has replaced this one: see 'status'\n", seen.from, seen.to),
        ),
        Some(seen) => match seen.progress {
            Progress::Done => (Exit::Done, format!("{to} is the primary; {from} follows ({ms:.0} ms)\n")),
            Progress::Refused => (Exit::Refused, format!("refused, nothing was changed: {}\n", seen.detail)),
            _ => (Exit::No, format!("tried and undone: {}\n", seen.detail)),
        },
        None => {
            (Exit::Unknown, format!("no answer within {:.0} s: see 'status' for who is primary\n", limit.as_secs_f64()))
        }
    }
}

/// Puts the request where the primary's agent sees it; one that is still being carried out is not replaced.
async fn submit(tree: &Tree, request: &SwitchoverRequest) -> Result<(), (Exit, String)> {
    let ensemble = tree.now();
    let record = Record::Switchover(request.clone());
    let op = match ensemble.switchover.here() {
        Some(seen) if under_way(&seen.record, &ensemble) => {
            let text = format!(
                "a switch from {} to {} is under way already: wait for it (see 'status')\n",
                seen.record.from, seen.record.to
            );
            return Err((Exit::Refused, text));
        }
        Some(seen) => Op::Set(Path::Switchover, record, seen.version),
        None => Op::Create(Path::Switchover, record),
    };
    match tree.write(op).await {
        Outcome::Done { .. } => {
            // Until the view has it, an earlier request would look like one that came after ours.
            let _ = tree.viewer.refresh(vec![Path::Switchover]).await;
            Ok(())
        }
        Outcome::Rejected { why, .. } => {
            Err((Exit::Refused, format!("another request came at the same time ({why}): see 'status' and try again\n")))
        }
        Outcome::Unknown { why } => Err((
            Exit::Unknown,
            format!("no answer from ZooKeeper to the request ({why}): see 'status' for what became of it\n"),
        )),
        Outcome::NotDone { why } => {
            Err((Exit::ZooKeeperUnreachable, format!("the request could not be sent: {why}\n")))
        }
    }
}

/// A request of the present epoch that has no answer yet. One of an epoch that has ended is void (interleaving 19).
fn under_way(request: &SwitchoverRequest, ensemble: &Ensemble) -> bool {
    let epoch = ensemble.topology.record().map_or(0, |topology| topology.epoch);
    request.epoch == epoch && matches!(request.progress, Progress::Requested | Progress::Released)
}
