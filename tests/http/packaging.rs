//! What is packaged for load balancers and monitoring: valid by their own tools, and true to what the agent says.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use mysql_ha_agent::core::phase::phase_code;
use mysql_ha_agent::core::prospects::Prospect;
use mysql_ha_agent::core::reason::Reason;
use serde_json::Value;

use crate::metrics::{families, full};
use crate::tool;

fn packaged(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging").join(name).display().to_string()
}

/// Runs it, and expects it to find nothing wrong.
fn approves(program: &str, words: &[&str]) {
    let output = Command::new(tool(program)).args(words).output().unwrap();
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success() && !said.contains("WARNING"), "{program} {words:?}: {said}");
}

#[test]
fn haproxy_accepts_its_configuration() {
    approves("haproxy", &["-c", "-V", "-f", &packaged("haproxy.cfg")]);
}

#[test]
fn promtool_accepts_the_alert_rules_and_their_tests() {
    approves("promtool", &["check", "rules", "--lint-fatal", &packaged("prometheus-rules.yml")]);
    approves("promtool", &["test", "rules", &packaged("prometheus-rules.test.yml")]);
}

/// Every alert is in the tests: one that is not could never fire.
#[test]
fn every_alert_is_tested() {
    let [rules, tests] = ["prometheus-rules.yml", "prometheus-rules.test.yml"]
        .map(|name| std::fs::read_to_string(packaged(name)).unwrap());
    let alerts: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for alert in alerts {
        assert!(tests.contains(alert), "{alert} is not tested");
    }
}

/// The metrics that a text speaks of, without the suffixes of a histogram.
fn spoken_of(text: &str) -> BTreeSet<String> {
    let end = |rest: &str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
    let names = text.split("mysql_ha_").skip(1).map(|rest| rest[..end(rest)].to_owned());
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

#[test]
fn rules_and_dashboard_speak_of_metrics_that_there_are() {
    let there: BTreeSet<String> = full().iter().flat_map(|page| families(page)).collect();
    for file in ["prometheus-rules.yml", "prometheus-rules.test.yml", "grafana-dashboard.json"] {
        let spoken = spoken_of(&std::fs::read_to_string(packaged(file)).unwrap());
        assert!(spoken.is_subset(&there), "{file}: {:?}", spoken.difference(&there).collect::<Vec<_>>());
        if file.ends_with("json") {
            assert_eq!(spoken, there, "the dashboard shows all of them");
        }
    }
}

/// `failover_ready{reason!~…}` leaves out what is nobody's to mend.
#[test]
fn the_reasons_that_an_alert_leaves_out_exist() {
    let rules = std::fs::read_to_string(packaged("prometheus-rules.yml")).unwrap();
    let (_, rest) = rules.split_once("reason!~\"").unwrap();
    for reason in rest.split('"').next().unwrap().split('|') {
        assert!(Prospect::ALL.iter().any(|prospect| prospect.code() == reason), "{reason}");
    }
}

#[test]
fn the_dashboard_is_whole() {
    let text = std::fs::read_to_string(packaged("grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "an id is used twice: {panel}");
        assert!(panel["title"].is_string() && panel["gridPos"].is_object(), "{panel}");
        let targets = panel["targets"].as_array().map_or(0, Vec::len);
        assert_eq!(targets == 0, panel["type"] == "row", "{panel}");
    }
    // The names of phases in it are the code's.
    let phases = panels.iter().find(|panel| panel["title"] == "What each agent says").unwrap();
    let names = &phases["fieldConfig"]["defaults"]["mappings"][0]["options"];
    for reason in Reason::ALL {
        assert_eq!(names[phase_code(*reason).to_string()]["text"], reason.code());
    }
}
