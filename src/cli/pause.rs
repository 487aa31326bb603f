//! `pause` and `resume`: the verbs write `control/pause`; in force, or over, is what the primary's lease says.

use std::time::Duration;

use super::exit::Exit;
use super::session::Tree;
use crate::config::Config;
use crate::core::action::{Op, Path, Record};
use crate::core::records::Pause;
use crate::core::view::Ensemble;
use crate::host::clock;
use crate::zookeeper::writer::Outcome;

/// How long the primary's agent may take to answer: it renews at once, else with its next renewal.
fn patience(config: &Config) -> Duration {
    config.zookeeper.renew_interval * 2 + config.zookeeper.op_timeout * 3 + Duration::from_secs(2)
}

fn carries(ensemble: &Ensemble, operation: &str) -> bool {
    ensemble.lease.record().is_some_and(|lease| lease.paused.as_deref() == Some(operation) && !lease.released)
}

/// Asks for a pause and returns when it is in force; the answer for people and the exit code. What is not acknowledged is
/// taken back: either the pause is in force, or there is none.
pub async fn pause(config: &Config, tree: &mut Tree, length: Option<Duration>, reason: &str) -> (Exit, String) {
    let ensemble = tree.now();
    let Some(topology) = ensemble.topology.record() else {
        return (
            Exit::Refused,
            "there is no readable topology, so there is nothing to pause (see 'status')\n".to_owned(),
        );
    };
    let paused_already = ensemble.lease.record().is_some_and(|lease| lease.paused.is_some() && !lease.released);
    if topology.primary.is_none() && !paused_already {
        let text = "no server takes writes, so nobody could acknowledge a pause, and a failover may be under way: see 'status'\n";
        return (Exit::Refused, text.to_owned());
    }
    let pause = Pause {
        operation: clock::new_instance().unwrap_or_else(|_| clock::wall().0),
        at: clock::wall(),
        for_ms: length.map(|length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX)),
        reason: reason.to_owned(),
    };
    let record = Record::Pause(pause.clone());
    let (op, version) = match ensemble.pause.here() {
        Some(seen) => (Op::Set(Path::Pause, record, seen.version), seen.version + 1),
        None => (Op::Create(Path::Pause, record), 0),
    };
    match tree.write(op).await {
        Outcome::Done { .. } => {}
        Outcome::Unknown { why } => {
            return (Exit::Unknown, format!("no answer from ZooKeeper to the pause ({why}): see 'status'\n"));
        }
        Outcome::Rejected { why, .. } => {
            return (Exit::Refused, format!("another pause or resume came at the same time ({why}): try again\n"));
        }
        Outcome::NotDone { why } => {
            return (Exit::ZooKeeperUnreachable, format!("the pause could not be sent: {why}\n"));
        }
    }
    if tree.wait(patience(config), |ensemble| carries(ensemble, &pause.operation).then_some(())).await.is_some() {
        let until = length.map_or("until 'resume'".to_owned(), |length| format!("for {} s", length.as_secs()));
        return (
            Exit::Done,
            format!("paused {until}: no automatic role change, no fencing for lost ZooKeeper contact\n"),
        );
    }
    take_back(tree, version).await
}

async fn take_back(tree: &Tree, version: i32) -> (Exit, String) {
    let why = "the primary's agent did not acknowledge it (is it running, and connected to ZooKeeper? see 'status')";
    match tree.write(Op::Delete(Path::Pause, version)).await {
        Outcome::Done { .. } => (Exit::No, format!("NOT paused: {why}; the request was taken back\n")),
        _ => (Exit::Unknown, format!("not known whether paused: {why}; run 'resume' and try again\n")),
    }
}

/// Ends a pause and returns when the primary goes on under the usual terms.
pub async fn resume(config: &Config, tree: &mut Tree) -> (Exit, String) {
    let ensemble = tree.now();
    let free = |ensemble: &Ensemble| {
        ensemble.lease.record().is_none_or(|lease| lease.paused.is_none() || lease.released).then_some(())
    };
    let Some(seen) = ensemble.pause.here().map(|seen| seen.version) else {
        return match free(&ensemble) {
            Some(()) => (Exit::Done, "there is no pause\n".to_owned()),
            None => resumed(config, tree, free).await,
        };
    };
    match tree.write(Op::Delete(Path::Pause, seen)).await {
        Outcome::Done { .. } => resumed(config, tree, free).await,
        Outcome::Unknown { why } => (Exit::Unknown, format!("no answer from ZooKeeper ({why}): run 'resume' again\n")),
        Outcome::Rejected { why, .. } => {
            (Exit::Refused, format!("another pause or resume came at the same time ({why}): see 'status'\n"))
        }
        Outcome::NotDone { why } => (Exit::ZooKeeperUnreachable, format!("could not be sent: {why}\n")),
    }
}

async fn resumed(config: &Config, tree: &mut Tree, free: impl Fn(&Ensemble) -> Option<()>) -> (Exit, String) {
    match tree.wait(patience(config), free).await {
        Some(()) => (Exit::Done, "resumed: failover is automatic again, as failover.mode says\n".to_owned()),
        None => {
            let text = "the pause is ended, but the primary's agent has not renewed its lease since, and may still take writes \
                        under it: nobody is promoted before it has. If its host is lost for good: 'promote NAME'\n";
            (Exit::No, text.to_owned())
        }
    }
}
