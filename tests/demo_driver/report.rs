//! A role change in figures: its timeline from `history`, and what the client saw of it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;

use crate::support::Gap;

/// One instant on both clocks: the records of the agents carry the wall's, the client measures with the other.
/// All hosts of the demo are one machine, so the wall clocks agree.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    instant: Instant,
    wall: Timestamp,
}

impl Mark {
    /// This moment.
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), wall: Timestamp::now() }
    }
}

/// A role change, failover or planned.
pub(crate) struct RoleChange<'a> {
    /// What the times are counted from, in words: "the kill".
    pub(crate) from_what: &'a str,
    /// That instant.
    pub(crate) begin: Mark,
    /// `history/<epoch>`.
    pub(crate) record: &'a Value,
    /// The longest stretch in which the client had no write acknowledged.
    pub(crate) gap: Gap,
    /// Acknowledged writes so far.
    pub(crate) acknowledged: usize,
    /// How many of them the new primary does not have.
    pub(crate) lost: usize,
}

impl RoleChange<'_> {
    /// The timeline and the figures, as text of whole lines.
    pub(crate) fn text(&self) -> String {
        let record = self.record;
        let word = |key: &str| record[key].as_str().unwrap_or("?");
        let mut text = format!(
            "\n  epoch {}, cause {}: {} gives the role to {}\n\n",
            record["epoch"],
            word("cause"),
            word("from"),
            word("to")
        );
        let _ = writeln!(
            text,
            "  {:<11} {:>9} {:>10}   (ms; \"at\" is counted from {})",
            "phase", "took", "at", self.from_what
        );
        for row in self.rows() {
            let _ = writeln!(text, "  {:<11} {:>9.1} {:>10.1}   {}", row.phase, row.took, row.at, row.what);
        }
        let _ = writeln!(text, "\n  client's write gap          {:.0} ms", millis(self.gap.length()));
        let _ = writeln!(text, "  acknowledged writes lost    {} of {}", self.lost, self.acknowledged);
        text
    }

    fn rows(&self) -> Vec<Row> {
        let record = self.record;
        let (from, to) = (record["from"].as_str().unwrap_or("?"), record["to"].as_str().unwrap_or("?"));
        let planned = record["cause"] == "switchover";
        let phase = |name: &str| record["phases"][name].as_f64().unwrap_or(0.0);
        let total: f64 = PHASES.iter().map(|name| phase(name)).sum();
        // `at` is the end of the last phase; the first one begins when the winner's agent notices.
        let noticed = self.at_of_record() - total;
        let (first, what) = match planned {
            true => ("released", format!("{from} is read-only and has given its lease to {to}")),
            false => ("noticed", format!("{to}'s agent knows that {from} takes no writes any more")),
        };
        let mut rows = vec![Row { phase: first, took: noticed, at: noticed, what }];
        for name in PHASES {
            let (took, at) = (phase(name), rows[rows.len() - 1].at + phase(name));
            rows.push(Row {
                phase: if name == "caught_up" { "caught up" } else { name },
                took,
                at,
                what: explain(name, planned, to),
            });
        }
        // Of the longest gap, which is the role change's; not the first write that the new primary has acknowledged to anybody.
        let gap_over = millis(self.gap.to.saturating_duration_since(self.begin.instant));
        let published = rows[rows.len() - 1].at;
        rows.push(Row {
            phase: "client",
            // It watches `topology` as the winner does, and may be the first to see it.
            took: (gap_over - published).max(0.0),
            at: gap_over,
            what: "the end of the client's longest gap: a write is acknowledged again".into(),
        });
        rows
    }

    /// When the record was written, in ms since the beginning.
    fn at_of_record(&self) -> f64 {
        let at = self.record["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
        let at = at.unwrap_or_else(|| panic!("the history record has no time: {}", self.record));
        at.duration_since(self.begin.wall).as_secs_f64() * 1000.0
    }
}

struct Row {
    phase: &'static str,
    took: f64,
    at: f64,
    what: String,
}

/// The phases of a record, in their order in time.
const PHASES: [&str; 6] = ["raced", "caught_up", "claimed", "waited", "promoted", "published"];

fn explain(phase: &str, planned: bool, to: &str) -> String {
    match phase {
        "raced" if planned => format!("{to} alone was named and leads at once"),
        "raced" => format!("the replicas stop receiving and say what they have; {to} leads"),
        "caught_up" => format!("{to} has applied all that was received"),
        "claimed" => format!("{to} holds the new epoch in ZooKeeper"),
        "waited" => "the old primary's lease cannot be in use any more".into(),
        "promoted" => format!("{to} takes writes"),
        _ => "clients are told, in ZooKeeper's topology".into(),
    }
}

fn millis(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}
