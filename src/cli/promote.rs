//! `promote`: a planned switch. The verb writes a request; the primary's agent carries it out and answers in it.

use std::time::Duration;

use serde::Serialize;

use super::exit::Exit;
use super::loss;
use super::session::Tree;
use crate::core::action::{Op, Path, Record};
use crate::core::case::Case;
use crate::core::reason::Reason;
use crate::core::records::{Progress, SwitchoverRequest, Topology};
use crate::core::rows::switchover::{caught_up_within, unfit};
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
    /// What keeps writes of the primary from finishing at this moment: waited for, and named if it lasts.
    pub held_up: Option<String>,
    /// Every other member with what speaks for or against it.
    pub candidates: Vec<Candidate>,
    /// A planned switch waits for everything to be applied, and a promotion after a loss for enough votes: nothing. With
    /// `--allow-data-loss` what is known to be missing.
    pub would_be_lost: String,
    /// There is no primary that could hand over: a race in which nobody but `to` may lead.
    pub after_loss: bool,
    /// `--allow-data-loss`: neither votes nor the last watermark are asked for.
    pub forced: bool,
    /// Why a second writer cannot be excluded; none where the old primary is proven read-only or waited for.
    pub second_writer: Option<String>,
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
pub fn plan(own: &Own, ensemble: &Ensemble, wanted: Option<&str>, force: bool) -> Plan {
    let view = View {
        own: own.clone(),
        ensemble: ensemble.clone(),
        server: Server::default(),
        held: None,
        wall: clock::wall(),
    };
    let case = Case { view: &view, now: clock::now() };
    let mut plan = Plan {
        from: None,
        to: None,
        refused: None,
        held_up: None,
        candidates: Vec::new(),
        would_be_lost: "nothing".to_owned(),
        after_loss: false,
        forced: force,
        second_writer: None,
    };
    let Some(topology) = ensemble.topology.record() else {
        plan.refused =
            Some("there is no readable topology: the replica set has not been adopted yet (see 'status')".to_owned());
        return plan;
    };
    if !loss::hands_over(&case, topology) {
        return loss::plan(plan, &case, topology, wanted);
    }
    plan.from = topology.primary.clone();
    plan.held_up = plan.from.as_ref().and_then(|name| case.agent(name)?.server.as_ref()?.blocked.clone());
    plan.candidates = candidates(&case, topology);
    plan.refused = if force {
        Some("a planned switch without any loss is possible: leave out --allow-data-loss".to_owned())
    } else {
        wanted.and_then(|name| unfit(&case, topology, name))
    };
    if plan.refused.is_none() {
        plan.to = wanted.map(str::to_owned).or_else(|| best(&case, &plan.candidates));
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

/// The best of those that are fit: one that has caught up before one that has not (the least lag first), then the highest priority,
/// then the name. Among those that have caught up the heartbeat's age is noise, and so is what each had received when it was last
/// heard of: they would be chosen by when they published.
fn best(case: &Case<'_>, candidates: &[Candidate]) -> Option<String> {
    let key = |name: &String| {
        let agent = case.agent(name);
        let lag = agent.and_then(|agent| agent.server.as_ref()?.lag_ms).map_or(Duration::MAX, Duration::from_millis);
        let behind = if lag <= caught_up_within(case) { Duration::ZERO } else { lag };
        (behind, std::cmp::Reverse(agent.map_or(0, |agent| agent.priority)), name.clone())
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
                let verb = if self.after_loss { "promote" } else { "switch" };
                format!("would {verb} from {from} to {to}; would be lost: {}\n", self.would_be_lost)
            }
            _ => String::new(),
        };
        if let (Some(by), Some(from)) = (&self.held_up, &self.from) {
            text.push_str(&format!(
                "at this moment a write of {from} does not finish: {by}; a switch waits for that, up to --timeout\n"
            ));
        }
        if let Some(why) = &self.second_writer {
            text.push_str(&format!("A SECOND WRITER CANNOT BE EXCLUDED: {why}\n"));
        }
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
        after_loss: plan.after_loss,
        force: plan.forced,
    };
    let started = clock::now();
    if let Err(answer) = submit(tree, &request).await {
        return answer;
    }
    let operation = request.operation.clone();
    let answer = answered(tree, &request, timeout).await;
    let ms = clock::now().since(started).as_secs_f64() * 1000.0;
    match answer {
        Some(seen) if seen.operation != operation => (
            Exit::Unknown,
            format!("another request ({} to {}) has replaced this one: see 'status'\n", seen.from, seen.to),
        ),
        Some(seen) => match seen.progress {
            Progress::Done if plan.after_loss => (Exit::Done, format!("{to} is the primary ({ms:.0} ms)\n")),
            Progress::Done => (Exit::Done, format!("{to} is the primary; {from} follows ({ms:.0} ms)\n")),
            // A race was faster, and its epoch has ended the request; it may have been won by whom it named.
            Progress::Requested if is_primary(tree, to) => (
                Exit::Done,
                format!("{to} is the primary: the others had taken over from {from} already ({ms:.0} ms)\n"),
            ),
            Progress::Requested => (Exit::No, "another server was promoted meanwhile: see 'status'\n".to_owned()),
            Progress::Refused if plan.after_loss => (Exit::No, format!("not promoted: {}\n", seen.detail)),
            Progress::Refused => (Exit::Refused, format!("refused, nothing was changed: {}\n", seen.detail)),
            _ => (Exit::No, format!("tried and undone: {}\n", seen.detail)),
        },
        None => (Exit::Unknown, "no answer in time: see 'status' for who is primary\n".to_owned()),
    }
}

fn is_primary(tree: &Tree, name: &str) -> bool {
    tree.now().topology.record().is_some_and(|topology| topology.primary.as_deref() == Some(name))
}

/// What a finished switch takes longer than its limit, undoing included.
const GRACE: Duration = Duration::from_secs(15);

/// After this long without an answer the verb says whom it waits for.
const SILENCE: Duration = Duration::from_secs(2);

/// Who has not answered yet, and what is known of them: an agent that was killed just now still has its nodes.
fn waits_for(ensemble: &Ensemble, request: &SwitchoverRequest) -> String {
    if request.after_loss {
        return format!("waits for the agent of {} to win the race ...", request.to);
    }
    // It has begun, and says what it waits for itself.
    let says = ensemble.agents.get(&request.from).map(|seen| &seen.record);
    if let Some(agent) = says.filter(|agent| agent.reason == Reason::Switchover) {
        return format!("{}: {} ...", request.from, agent.detail);
    }
    let seen = ensemble.lease.here().filter(|lease| lease.record.name == request.from && !lease.record.released);
    let renewed = seen.map_or_else(
        || "it holds no lease any more".to_owned(),
        |lease| {
            let (ago, ttl) = (clock::now().since(lease.first_seen), Duration::from_millis(lease.record.ttl_ms));
            format!(
                "last renewal seen {:.1} s ago; if that agent is gone, the others take over {:.0} s after it by themselves",
                ago.as_secs_f64(),
                ttl.as_secs_f64()
            )
        },
    );
    format!("waits for the agent of {} to hand over ({renewed}) ...", request.from)
}

/// Waits for the answer. A request that nobody has begun to carry out by the limit is withdrawn: what is claimed for it
/// changes it in the same transaction, so a withdrawn one cannot be carried out any more.
async fn answered(tree: &mut Tree, request: &SwitchoverRequest, limit: Duration) -> Option<SwitchoverRequest> {
    let over = |ensemble: &Ensemble| {
        let seen = ensemble.switchover.record()?;
        let open = match seen.progress {
            Progress::Requested => ensemble.topology.record().is_none_or(|topology| topology.epoch == request.epoch),
            Progress::Released => true,
            _ => false,
        };
        (seen.operation != request.operation || !open).then(|| seen.clone())
    };
    let first = if request.after_loss { limit } else { limit + GRACE };
    if let Some(answer) = tree.wait(SILENCE.min(first), over).await {
        return Some(answer);
    }
    eprintln!("{}", waits_for(&tree.now(), request));
    if let Some(answer) = tree.wait(first.saturating_sub(SILENCE), over).await {
        return Some(answer);
    }
    withdraw(tree, request).await;
    tree.wait(GRACE, over).await
}

async fn withdraw(tree: &Tree, request: &SwitchoverRequest) {
    let ensemble = tree.now();
    let Some(seen) = ensemble.switchover.here() else { return };
    if seen.record.operation != request.operation || seen.record.progress != Progress::Requested {
        return;
    }
    let says = ensemble.agents.get(&request.to).map_or("its agent is not running", |agent| &agent.record.detail);
    let detail = format!("not carried out in time and withdrawn; {}: {says}", request.to);
    let record = SwitchoverRequest { progress: Progress::Refused, detail, ..seen.record.clone() };
    // Refused: it is being carried out after all, and the answer comes.
    let _ = tree.write(Op::Set(Path::Switchover, Record::Switchover(record), seen.version)).await;
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
/// Nor does one stand in the way that waits for a race: whoever has asked for it may be gone.
fn under_way(request: &SwitchoverRequest, ensemble: &Ensemble) -> bool {
    let epoch = ensemble.topology.record().map_or(0, |topology| topology.epoch);
    if request.after_loss && request.progress == Progress::Requested {
        return false;
    }
    request.epoch == epoch && matches!(request.progress, Progress::Requested | Progress::Released)
}
