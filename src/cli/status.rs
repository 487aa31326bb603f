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
            agent.map_or_else(dash, |agent| shortened(&agent.detail)),
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
