//! `status` and `history` for people, and their exit codes. What they say is made in [`crate::core::status`].

use comfy_table::{ContentArrangement, Table, presets};

use super::exit::Exit;
use crate::core::records::HistoryRecord;
use crate::core::status::Status;

/// 0 healthy, 1 not.
#[must_use]
pub fn exit(status: &Status) -> Exit {
    if status.healthy { Exit::Done } else { Exit::No }
}

/// For people: what is wrong first, then a table.
#[must_use]
pub fn text(status: &Status) -> String {
    let mut text = String::new();
    for problem in &status.problems {
        text.push_str(&format!("!  {problem}\n"));
    }
    for warning in &status.warnings {
        text.push_str(&format!("~  {warning}\n"));
    }
    let primary = status.primary.as_deref().unwrap_or("none");
    text.push_str(&format!("cluster {}   epoch {}   primary {primary}", status.cluster, status.epoch));
    if let (Some(since), Some(reason)) = (&status.since, &status.reason) {
        text.push_str(&format!("   since {since} ({reason})"));
    }
    text.push('\n');
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["server", "address", "state", "role", "lag", "unapplied", "version", "why"]);
    for member in &status.members {
        let agent = member.agent.as_ref();
        let server = agent.and_then(|agent| agent.server.as_ref());
        let dash = || "-".to_owned();
        table.add_row([
            member.name.clone(),
            member.address.clone(),
            member.state.map_or_else(dash, |state| state.to_string()),
            agent.map_or_else(|| "no agent".to_owned(), |agent| agent.role.to_string()),
            server.and_then(|server| server.lag_ms).map_or_else(dash, |ms| format!("{:.1} s", ms as f64 / 1000.0)),
            member.unapplied.map_or_else(dash, |count| count.to_string()),
            server.map_or_else(dash, |server| server.version.clone()),
            shortened(&member.says()),
        ]);
    }
    text.push_str(&table.to_string());
    text.push('\n');
    text
}

/// A long text would break the table; whatever is wrong stands above it in full, and everything in `--json`.
fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// `history` for people, newest last.
#[must_use]
pub fn history_text(records: &[HistoryRecord]) -> String {
    if records.is_empty() {
        return "no role change yet\n".to_owned();
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["epoch", "at", "cause", "from", "to", "phases (ms)", "total (ms)", "lost"]);
    for record in records {
        let phases =
            record.phases.in_order().iter().map(|(name, ms)| format!("{name} {ms:.1}")).collect::<Vec<_>>().join(", ");
        table.add_row([
            record.epoch.to_string(),
            record.at.0.clone(),
            record.cause.to_string(),
            record.from.clone().unwrap_or_else(|| "-".to_owned()),
            record.to.clone(),
            phases,
            format!("{:.1}", record.phases.total()),
            if record.lost.is_empty() { "nothing".to_owned() } else { shortened(&record.lost.to_string()) },
        ]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::status::{Ages, status};
    use crate::core::time::{Moment, Wall};
    use crate::core::view::{Ensemble, Node, Seen};
    use crate::host::clock;

    fn seen<T>(record: T) -> Seen<T> {
        Seen { record, version: 0, owner: 0, created: 1, first_seen: Moment(0) }
    }

    fn at(second: u32) -> Wall {
        Wall(format!("2026-11-30T10:00:{second:02}.000Z"))
    }

    /// db2 has just taken over from db1, whose agent says `reason`; both were written at second 10.
    fn switched(reason: &str) -> Ensemble {
        let member = |state: &str| serde_json::json!({"address": "10.0.0.1:3306", "server_uuid": "u", "state": state});
        let topology = serde_json::json!({
            "format": 1, "cluster": "c", "epoch": 2, "primary": "db2", "since": at(10), "reason": "switchover",
            "members": {"db1": member("NA"), "db2": member("READ_WRITE")}, "last_writer": "db2",
            "durability": {"mode": "async", "sync_replicas": 1},
        });
        let agent = |name: &str, reason: &str| {
            let json = serde_json::json!({
                "name": name, "address": "10.0.0.1:3306", "boot_id": "b", "instance": "i", "agent_version": "0", "at": at(10),
                "priority": 100, "role": "replica", "row": "F5", "reason": reason, "detail": "points its replication at db2",
                "server": {"server_uuid": name, "server_id": 1, "version": "9.7.0", "healthy": true, "writable": false,
                           "executed": "", "retrieved": ""},
            });
            (name.to_owned(), seen(serde_json::from_value(json).unwrap()))
        };
        Ensemble {
            topology: Node::Here(seen(serde_json::from_value(topology).unwrap())),
            agents: [agent("db1", reason), agent("db2", "primary")].into(),
            complete: true,
            ..Ensemble::default()
        }
    }

    fn said_at(ensemble: &Ensemble, second: u32, lives_within: u64) -> Status {
        let lives_within = Duration::from_secs(lives_within);
        status("c", ensemble, &Ages { now: at(second), between: clock::between, lives_within })
    }

    fn seen_at(ensemble: &Ensemble, second: u32) -> Status {
        said_at(ensemble, second, 30)
    }

    #[test]
    fn a_member_that_returns_after_a_switch_is_no_problem_for_seconds() {
        let status = seen_at(&switched("repointing"), 12);
        assert!(status.healthy && status.warnings[0].contains("comes back as a replica"), "{status:?}");
        let late = seen_at(&switched("repointing"), 21);
        assert!(!late.healthy && late.problems == ["db1: points its replication at db2"], "{late:?}");
        assert!(!seen_at(&switched("diverged"), 12).healthy, "something keeps it from it");
    }

    #[test]
    fn a_last_word_says_how_old_it_is() {
        let ensemble = switched("diverged");
        let said = |second, lives_within| {
            let status = said_at(&ensemble, second, lives_within);
            (status.problems[0].clone(), status.members[0].last_word_ms)
        };
        assert_eq!(said(14, 4), ("db1: points its replication at db2".into(), None));
        let text = "db1: its agent's last word, 17 s ago: points its replication at db2".to_owned();
        assert_eq!(said(27, 4), (text, Some(17_000)));
        assert_eq!(said(5, 4).1, None, "a clock that is ahead says nothing");
    }
}
