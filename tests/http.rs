//! What the agent says over HTTP (contract, section 4): every path in every role, sockets under bad input, the metrics, and what is
//! packaged for those who read them.

#![allow(clippy::unwrap_used)] // a test ends by it

#[path = "http/answers.rs"]
mod answers;
#[path = "http/metrics.rs"]
mod metrics;
#[path = "http/packaging.rs"]
mod packaging;
#[path = "http/sockets.rs"]
mod sockets;
#[allow(dead_code, reason = "the decision table needs more of it")]
#[path = "decisions/world.rs"]
mod world;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use mysql_ha_agent::core::records::HistoryRecord;
use mysql_ha_agent::core::serving::Sight;
use mysql_ha_agent::core::status::Ages;
use mysql_ha_agent::core::time::{Moment, Wall};
use mysql_ha_agent::core::view::Server;
use mysql_ha_agent::http::answer::{Answer, Known, answer};
use mysql_ha_agent::http::tally::Tally;

/// An agent that is asked: its last turn, and what came since.
struct Asked {
    sight: Option<Sight>,
    server: Server,
    history: Option<Vec<HistoryRecord>>,
    guard: Option<bool>,
    tally: Tally,
    now: Moment,
}

impl Asked {
    /// Right after a turn of its loop.
    fn of(mut world: world::World) -> Self {
        let decision = world.step();
        let server = world.view.server.clone();
        let sight = Some(Sight { view: world.view, decision, at: world.now, cooldown: None });
        Self { sight, server, history: Some(Vec::new()), guard: Some(true), tally: Tally::default(), now: world.now }
    }

    fn ask(&self, method: &str, target: &str) -> Answer {
        // The world's records have no time of day.
        let ages = Ages { now: Wall::default(), between: |_, _| None, lives_within: Duration::ZERO };
        let known = Known {
            sight: self.sight.as_ref(),
            server: &self.server,
            history: self.history.as_deref(),
            guard: self.guard,
            tally: &self.tally,
            ages: &ages,
            now: self.now,
        };
        answer(method, target, &known)
    }

    fn code(&self, target: &str) -> u16 {
        self.ask("GET", target).status
    }
}

/// A program that `tests/servers` provides; fetched where it is missing.
fn tool(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("target/servers/bin").join(name);
    if !path.exists() {
        let status = Command::new(root.join("tests/servers")).status().expect("tests/servers can be started");
        assert!(status.success() && path.exists(), "tests/servers did not provide {name}");
    }
    path
}
