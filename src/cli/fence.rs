//! `fence` and `unfence`: on this host, with its own connections; neither ZooKeeper nor a running agent is needed.
//!
//! The marker comes first, so that an agent that sees the server become read-only knows already that it must not open it
//! again; the ladder comes whatever became of the marker. A running agent sees the marker within 100 ms, proves for itself that
//! the server is read-only, and gives the lease up; without one the lease runs out.

use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use super::exit::Exit;
use super::session::{self, may_write_for};
use crate::agent::watcher::{self, Watched};
use crate::config::Config;
use crate::core::fencing::Rung;
use crate::core::records::Mode;
use crate::core::view::Ensemble;
use crate::host::state_dir::{clear_fence_marker, set_fence_marker};
use crate::mysql::fence::Fenced;

/// How long the process behind the socket is looked for. It is needed for the last rung alone.
const FIND: Duration = Duration::from_millis(300);
/// How long the agent may take to give the lease up.
const GIVE_UP: Duration = Duration::from_secs(5);

/// What `fence` came to; its JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// `read_only`, `dead`, `unreachable` or `failed`.
    pub server: &'static str,
    /// The last rung of the ladder that was needed.
    pub rung: Option<&'static str>,
    /// Whether the marker stands that keeps the agent from opening the server again.
    pub marked: bool,
    /// `given_up`, `not_held`, `held`, or `unknown` without ZooKeeper.
    pub lease: &'static str,
    /// In words.
    pub text: String,
    #[serde(skip)]
    exit: Option<Exit>,
}

impl Answer {
    /// The exit code.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit.unwrap_or(Exit::Done)
    }
}

/// Makes this host's server read-only now, with the whole ladder.
pub async fn fence(config: &Config) -> Answer {
    // Before the marker: the agent gives the lease up within a moment, and then nothing tells any more that it was here.
    let held = may_write_for(config).is_some();
    let marked = set_fence_marker(&config.state_dir);
    let mut mysqld = watcher::watch_process(config);
    let known = timeout(FIND, mysqld.wait_for(Option::is_some)).await.is_ok_and(|found| found.is_ok());
    let (server, rung, text, exit) = climb(config, mysqld, known).await;
    let mut answer = Answer { server, rung, marked: marked.is_ok(), lease: "unknown", text: format!("{text}\n"), exit };
    if let Err(error) = marked {
        answer
            .text
            .push_str(&format!("NOT MARKED: {error}; a running agent may make the server writable again: stop it\n"));
        answer.exit.get_or_insert(Exit::No);
    }
    let (lease, text) = lease(config, held).await;
    answer.lease = lease;
    answer.text.push_str(&text);
    answer
}

async fn climb(
    config: &Config,
    mysqld: Watched,
    known: bool,
) -> (&'static str, Option<&'static str>, String, Option<Exit>) {
    let mut fence = watcher::fence(config, mysqld);
    let open = fence.keep_open(config.fencing.budget.max(Duration::from_secs(1))).await;
    if let (Err(fault), false) = (&open, known) {
        let text = format!(
            "the server cannot be reached and no process is known to kill: {fault}; it is marked as fenced, and a running agent \
             makes it read-only as soon as it can"
        );
        return ("unreachable", None, text, Some(Exit::MysqlUnreachable));
    }
    let report = fence.climb(config.fencing.budget, || true).await;
    let rung = report.rung.map(Rung::code);
    let why = if report.trouble.is_empty() { String::new() } else { format!(" ({})", report.trouble.join("; ")) };
    match report.fenced {
        Fenced::ReadOnly => ("read_only", rung, format!("the server is read-only{why}"), None),
        Fenced::Dead => ("dead", rung, format!("mysqld is not running any more; it comes back read-only{why}"), None),
        // Nothing here withdraws a fence that an operator has asked for.
        Fenced::Withdrawn => ("failed", rung, "the fence was given up half way\n".to_owned(), Some(Exit::Unknown)),
        Fenced::Failed(failed) => {
            let text = format!("THE SERVER MAY STILL TAKE WRITES: {failed}{why}");
            ("failed", rung, text, Some(Exit::Unknown))
        }
    }
}

/// Waits for the agent to give the lease up, where it holds it (`held`: it did before).
async fn lease(config: &Config, held: bool) -> (&'static str, String) {
    let Ok(mut tree) = session::open(config).await else {
        let text = "ZooKeeper cannot be reached: the lease, if this server has it, is given up when it can, or runs out; then another \
             server can take over\n";
        return ("unknown", text.to_owned());
    };
    let name = config.name.clone();
    let holds = move |ensemble: &Ensemble| ensemble.master.record().is_some_and(|master| master.name == name);
    let held = held || holds(&tree.now());
    tree.wait(GIVE_UP, |ensemble| (!holds(ensemble)).then_some(())).await;
    let ensemble = tree.now();
    let lease = match (held, holds(&ensemble)) {
        (_, true) => "held",
        (true, false) => "given_up",
        (false, false) => "not_held",
    };
    (lease, what_follows(&config.name, lease, &ensemble))
}

/// What has become of the role, and what comes next, a line each.
fn what_follows(name: &str, lease: &str, ensemble: &Ensemble) -> String {
    let topology = ensemble.topology.record();
    let another = topology.and_then(|topology| topology.primary.as_deref()).filter(|primary| *primary != name);
    let others = || ensemble.agents.values().map(|seen| &seen.record).filter(|agent| agent.name != name);
    let paused = ensemble.lease.record().is_some_and(|lease| lease.paused.is_some());
    let automatic = others().any(|agent| agent.mode == Mode::Automatic && agent.priority > 0 && !agent.fenced_by_hand);
    let next = match another {
        Some(primary) if lease == "given_up" => format!("{primary} has taken over"),
        Some(primary) => format!("{primary} is the primary"),
        None if paused => "a pause is in force: nobody takes over before 'resume' or 'promote NAME'".to_owned(),
        None if !automatic => {
            "nobody takes over by itself (no other agent with failover.mode automatic is here): 'promote NAME'"
                .to_owned()
        }
        None => "the other agents choose the best replica and promote it by themselves, within moments".to_owned(),
    };
    let role = match lease {
        "given_up" => format!("the lease is given up: this server is not the primary any more; {next}"),
        "held" => format!("the lease is not given up yet (is the agent running?); when it has run out: {next}"),
        _ => format!("this server did not hold the lease, so no role changes; {next}"),
    };
    format!(
        "{role} (see 'mysql-ha-agent status')\nuntil 'mysql-ha-agent unfence' this server follows and votes, and is no candidate\n"
    )
}

/// Lets the server take part again.
pub fn unfence(config: &Config) -> (Exit, String) {
    match clear_fence_marker(&config.state_dir) {
        Ok(true) => {
            let text = "takes part again: its agent decides whether it becomes writable (without a running agent it stays \
                        read-only, and offline_mode as it is)\n";
            (Exit::Done, text.to_owned())
        }
        Ok(false) => (Exit::Done, "it was not fenced by hand\n".to_owned()),
        Err(error) => (Exit::No, format!("still fenced: {error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::records::AgentRecord;
    use crate::core::time::Moment;
    use crate::core::view::{Node, Seen};

    fn seen<T>(record: T) -> Seen<T> {
        Seen { record, version: 0, owner: 0, created: 1, first_seen: Moment(0) }
    }

    /// db1 was fenced; db2 is there.
    fn ensemble(primary: Option<&str>, mode: &str) -> Ensemble {
        let topology = serde_json::json!({
            "format": 1, "cluster": "c", "epoch": 2, "primary": primary, "since": "", "reason": "fenced_by_hand",
            "members": {}, "last_writer": "db1", "durability": {"mode": "async", "sync_replicas": 1},
        });
        let agent: AgentRecord = serde_json::from_value(serde_json::json!({
            "name": "db2", "address": "", "boot_id": "", "instance": "", "agent_version": "", "at": "", "priority": 100,
            "mode": mode, "role": "replica", "row": "", "reason": "following", "detail": "",
        }))
        .unwrap();
        Ensemble {
            topology: Node::Here(seen(serde_json::from_value(topology).unwrap())),
            agents: [("db2".to_owned(), seen(agent))].into(),
            ..Ensemble::default()
        }
    }

    #[test]
    fn says_what_becomes_of_the_role() {
        for (lease, primary, mode, parts) in [
            ("given_up", None, "automatic", ["lease is given up", "promote it by themselves"]),
            ("given_up", None, "manual", ["lease is given up", "'promote NAME'"]),
            ("given_up", Some("db2"), "manual", ["lease is given up", "db2 has taken over"]),
            ("held", Some("db1"), "automatic", ["not given up yet", "when it has run out"]),
            ("not_held", Some("db2"), "automatic", ["no role changes", "db2 is the primary"]),
        ] {
            let text = what_follows("db1", lease, &ensemble(primary, mode));
            assert!(parts.iter().all(|part| text.contains(part)) && text.contains("unfence"), "{lease}: {text}");
        }
    }
}
