//! Another `failover.durability` or `failover.sync_replicas` in the file of a running cluster: the file proposes, the
//! primary records, and what stands in `topology` is in force for all, whatever their files say (interleaving 5).
//!
//! | interleaving | rule |
//! | --- | --- |
//! | k is raised in the record first; a commit that waits for fewer is acknowledged, and the smaller quorum lacks it | the server first, then the record: not before a heartbeat sent under the new number is acknowledged; what was executed before it is the floor |
//! | a statement that sets the old number is on its way while the new one is read (`durability::settled`) | the new number is set by an action of its own, and read after that has come back |
//! | k is raised to what the replicas cannot give: every commit waits | not before so many members of S acknowledge; if one fails before the record, the server goes back to the number in force |
//! | k is lowered on the server first; a commit acknowledged by fewer is in no vote of the smaller quorum | the record first (a larger quorum), then the server |
//! | `async`: commits stop waiting, and the record still promises a quorum | recorded as degraded first, so that nobody is promoted by votes; then the server stops waiting, by an action of its own; then `async` with S empty |
//! | the agent dies in between | degraded stands in the record: whoever goes on finds it there, and does what its own file asks for |
//! | `lossless`: the record promises a quorum, and commits do not wait yet | recorded as degraded, with every member in S (any of them may acknowledge: a left-over of earlier times, an operator's setting), then restored like any degraded cluster |
//! | one host's old file asks for `async`, and that host becomes the primary | `lossless` is given up only where no present agent's file asks for it. Anything else the primary's file decides alone: it gives up no promise |
//! | degraded, and k is changed | lowered at once: nobody counts votes. Raised only after it was restored: it would have to wait for more |

use std::collections::BTreeMap;

use super::durability::{able, acknowledged_since, certainly_degraded, follower, primary, record, settled, writing};
use super::incident;
use crate::core::action::Purpose;
use crate::core::case::Case;
use crate::core::changes;
use crate::core::degrade::Counters;
use crate::core::memory::Memory;
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{Durability, DurabilityMode, Mode, Role, Topology};
use crate::core::view::Seen;

/// Whether `lossless` is to be given up: our file says so, and no present agent's says otherwise.
#[must_use]
pub(super) fn gives_up(case: &Case<'_>, durability: &Durability) -> bool {
    durability.mode == DurabilityMode::Lossless
        && case.view.own.durability == DurabilityMode::Async
        && keepers(case).next().is_none()
}

/// The other agents whose files ask for `lossless`. An observer has no say.
fn keepers<'a>(case: &Case<'a>) -> impl Iterator<Item = &'a str> {
    let keeps = |terms: crate::core::records::Terms| terms.durability == DurabilityMode::Lossless;
    case.others()
        .filter(move |agent| agent.mode != Mode::Observe && agent.proposes.is_some_and(keeps))
        .map(|agent| agent.name.as_str())
}

/// The larger k that our file asks for, where so many members of S acknowledge.
#[must_use]
pub(super) fn higher_k(case: &Case<'_>, durability: &Durability) -> Option<u32> {
    let wanted = Durability { sync_replicas: case.view.own.sync_replicas, ..durability.clone() };
    (wanted.k() > durability.k() && wanted.is_enough(able(case, durability).count())).then(|| wanted.k())
}

/// Why `async` cannot become `lossless` now, in words.
fn not_yet(case: &Case<'_>) -> Option<String> {
    let topology = &case.topology()?.record;
    if case.facts()?.semi_sync.source.is_none() {
        return Some("the semi-sync plugin is not loaded here (packaging/mysql-ha.cnf)".to_owned());
    }
    let wanted = Durability { sync_replicas: case.view.own.sync_replicas, ..topology.durability.clone() };
    let follow = topology.members.keys().filter(|name| follower(case, name).is_some()).count();
    (!wanted.is_enough(follow)).then(|| format!("{follow} replicas follow, {} are to acknowledge", wanted.k()))
}

/// From `lossless` to `async` and back.
pub fn change_mode(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = writing(case)?;
    let durability = &topology.record.durability;
    match (durability.mode, case.view.own.durability) {
        (DurabilityMode::Lossless, DurabilityMode::Async) if gives_up(case, durability) => {
            give_up(case, memory, topology)
        }
        (DurabilityMode::Async, DurabilityMode::Lossless) if not_yet(case).is_none() => {
            memory.degrade = Counters::default();
            memory.setting = None;
            let mut next = Durability {
                mode: DurabilityMode::Lossless,
                degraded: true,
                sync: topology.record.members.keys().filter(|name| *name != case.me()).cloned().collect(),
                sync_replicas: case.view.own.sync_replicas,
                retiring: Vec::new(),
                incarnations: BTreeMap::new(),
                ..durability.clone()
            };
            changes::note_incarnations(&mut next, case);
            let text = "failover.durability is lossless from now on: nobody is promoted automatically until commits are acknowledged";
            Some(recorded(case, topology, next, text.to_owned()))
        }
        _ => None,
    }
}

fn give_up(case: &Case<'_>, memory: &mut Memory, topology: &Seen<Topology>) -> Option<Outcome> {
    let durability = &topology.record.durability;
    if !durability.degraded {
        memory.setting = None;
        memory.degraded_over = Some(topology.version);
        let next = Durability { degraded: true, ..durability.clone() };
        let text = "failover.durability is async: commits are about to wait for no acknowledgement, from now on";
        return Some(recorded(case, topology, next, text.to_owned()));
    }
    if let Some(first) = certainly_degraded(memory, topology) {
        return Some(first);
    }
    let text = "failover.durability is async: lets commits wait for no acknowledgement";
    match settled(case, memory, 0) {
        Err(action) => action.map(|action| Outcome::wait(Role::Primary, Reason::DurabilityChanged, text).mysql(action)),
        Ok(_) => {
            memory.setting = None;
            let next = Durability {
                mode: DurabilityMode::Async,
                degraded: false,
                sync: Vec::new(),
                sync_replicas: case.view.own.sync_replicas,
                retiring: Vec::new(),
                incarnations: BTreeMap::new(),
                accounts: Default::default(),
                ..durability.clone()
            };
            Some(record(
                topology,
                next,
                Vec::new(),
                "commits wait for no acknowledgement: recorded as async".to_owned(),
            ))
        }
    }
}

/// Another number of acknowledgements.
pub fn change_k(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let next = Durability { sync_replicas: case.view.own.sync_replicas, ..durability.clone() };
    let (from, to) = (durability.k(), next.k());
    let text = format!("failover.sync_replicas: {to} acknowledgements from now on, {from} before");
    if to < from {
        return Some(recorded(case, topology, next, text));
    }
    if durability.degraded {
        return None;
    }
    if higher_k(case, durability).is_none() {
        memory.setting = None;
        return None;
    }
    let since = match settled(case, memory, to) {
        Ok(since) => since,
        Err(action) => {
            let text = format!("failover.sync_replicas: lets commits wait for {to} acknowledgements");
            return action.map(|action| Outcome::wait(Role::Primary, Reason::DurabilityChanged, text).mysql(action));
        }
    };
    let floor = acknowledged_since(case, since)?.clone();
    memory.setting = None;
    Some(recorded(case, topology, Durability { floor, ..next }, text))
}

/// The next record, and the note for those who look later.
fn recorded(case: &Case<'_>, topology: &Seen<Topology>, next: Durability, text: String) -> Outcome {
    let note = incident(case, Reason::DurabilityChanged, case.me(), text.clone());
    record(topology, next, Vec::new(), text).write(Purpose::Incident, vec![note]).urgent()
}

/// What our file asks for and is not in force, in words; none where it is.
#[must_use]
pub fn note(case: &Case<'_>) -> Option<String> {
    let durability = &writing(case)?.record.durability;
    let own = case.view.own.terms();
    if durability.is_as(&own) {
        return None;
    }
    match (durability.mode, own.durability) {
        (DurabilityMode::Lossless, DurabilityMode::Async) => {
            let keepers: Vec<&str> = keepers(case).collect();
            (!keepers.is_empty()).then(|| {
                format!(
                    "failover.durability: this host's file says async, lossless is in force: the files of {} ask for it still",
                    keepers.join(", ")
                )
            })
        }
        (DurabilityMode::Async, DurabilityMode::Lossless) => {
            let why = not_yet(case)?;
            Some(format!("failover.durability: this host's file says lossless, in force is async: {why}"))
        }
        _ => Some(format!(
            "failover.sync_replicas is {} in this host's file and {} in force: {} replicas acknowledge",
            own.sync_replicas,
            durability.k(),
            able(case, durability).count()
        )),
    }
}
