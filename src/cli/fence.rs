//! `fence` and `unfence`: on this host, with its own connections; neither ZooKeeper nor a running agent is needed.
//!
//! The marker comes first, so that an agent that sees the server become read-only knows already that it must not open it
//! again; the ladder comes whatever became of the marker. A running agent sees the marker within 100 ms, proves for itself that
//! the server is read-only, and gives the lease up; without one the lease runs out.

use std::time::Duration;

use serde::Serialize;
use tokio::time::timeout;

use super::exit::Exit;
use super::session;
use crate::agent::watcher::{self, Watched};
use crate::config::Config;
use crate::core::fencing::Rung;
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
    let (lease, text) = lease(config).await;
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

/// Waits for the agent to give the lease up, where it holds it.
async fn lease(config: &Config) -> (&'static str, String) {
    let Ok(mut tree) = session::open(config).await else {
        let text =
            "ZooKeeper cannot be reached: the lease, if this server has it, is given up when it can, or runs out\n";
        return ("unknown", text.to_owned());
    };
    let holds = |ensemble: &Ensemble| ensemble.master.record().is_some_and(|master| master.name == config.name);
    if !holds(&tree.now()) {
        return ("not_held", String::new());
    }
    match tree.wait(GIVE_UP, |ensemble| (!holds(ensemble)).then_some(())).await {
        Some(()) => ("given_up", "the lease is given up: another server can take over\n".to_owned()),
        None => {
            let text = "the lease is not given up yet (is the agent running?): another server takes over when it has run out\n";
            ("held", text.to_owned())
        }
    }
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
