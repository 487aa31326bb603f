//! The decision table, row by row: a world, the row that decides in it, its reason and its actions.

#![allow(clippy::unwrap_used)] // a test ends by it

#[path = "decisions/details.rs"]
mod details;
#[path = "decisions/durability.rs"]
mod durability;
#[path = "decisions/failsafe.rs"]
mod failsafe;
#[path = "decisions/fences.rs"]
mod fences;
#[path = "decisions/operator.rs"]
mod operator;
#[path = "decisions/prestart.rs"]
mod prestart;
#[path = "decisions/scenarios.rs"]
mod scenarios;
#[path = "decisions/shut_out.rs"]
mod shut_out;
#[path = "decisions/world.rs"]
mod world;

use std::collections::BTreeSet;

use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::Phases;
use mysql_ha_agent::core::table::TABLE;

#[test]
fn every_scenario_decides_as_written() {
    let mut wrong = Vec::new();
    for scenario in scenarios::all() {
        let mut world = scenario.world.clone();
        let decision = world.step();
        let found = (decision.row, decision.outcome.reason.code(), world::names(&decision).join(" "));
        if found != (scenario.row, scenario.reason, scenario.actions.to_owned()) {
            wrong.push(format!(
                "{}\n  expected {} {} [{}]\n  decided  {} {} [{}]: {}",
                scenario.name,
                scenario.row,
                scenario.reason,
                scenario.actions,
                found.0,
                found.1,
                found.2,
                decision.outcome.detail
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn ids_are_unique_and_every_row_has_a_scenario() {
    let ids: BTreeSet<&str> = TABLE.iter().map(|row| row.id).collect();
    assert_eq!(ids.len(), TABLE.len(), "an id is used twice");
    // W0 and D0 never decide: they forget and count, and pass. `details` and the scenarios of D5 show that they do.
    let decided: BTreeSet<&str> = scenarios::all().iter().map(|scenario| scenario.row).chain(["W0", "D0"]).collect();
    assert_eq!(ids.difference(&decided).collect::<Vec<_>>(), Vec::<&&str>::new(), "rows without a scenario");
}

/// The README's lists are the program's own: a reason or a phase that is added or worded anew has to stand there, too.
#[test]
fn the_readme_lists_every_reason_and_every_phase() {
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let rows: Vec<String> =
        Reason::ALL.iter().map(|reason| format!("| `{}` | {} |", reason.code(), reason.says())).collect();
    let table = format!("| code | meaning |\n| --- | --- |\n{}\n\n", rows.join("\n"));
    assert!(readme.contains(&table), "the README is to have this table, and no other row in it:\n{table}");
    let phases = readme.split("| phase | ends when |\n| --- | --- |\n").nth(1).expect("the table of phases");
    let listed: Vec<&str> = phases.lines().map_while(|row| row.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(listed, Phases::default().in_order().map(|(name, _)| name));
}
