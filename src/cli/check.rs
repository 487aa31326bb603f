//! `check`: examines what the agent needs, a line a rule, each with its mend. Here the report, this host and its server;
//! `settings` reads the server's variables, `privileges` what the account may do, `members` compares with the rest of the cluster.

mod members;
mod privileges;
mod settings;

use std::time::Duration;

use serde::Serialize;

use super::exit::Exit;
use super::listens;
use super::session;
use crate::agent::run::own_target;
use crate::config::Config;
use crate::core::records::{DurabilityMode, Terms};
use crate::core::status::{UNREADABLE_TOPOLOGY, status};
use crate::core::view::{Node, ServerFacts, Session};
use crate::host::presence;
use crate::mysql::connect::{Line, Target};
use crate::mysql::facts::{self, Reading};
use crate::mysql::fault::Fault;
use crate::mysql::grants;

/// One statement's limit.
const LIMIT: Duration = Duration::from_secs(5);

/// How a rule came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Pass,
    /// Works, but not as it should.
    Warn,
    /// Does not work, or breaks a promise.
    Fail,
}

/// A rule and how it came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The rule's name; stable.
    pub rule: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do; empty where it passed.
    pub mend: String,
}

/// All findings, and what could not even be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// In the order they were examined.
    pub findings: Vec<Finding>,
    #[serde(skip)]
    unreachable: Option<Exit>,
}

impl Report {
    fn add(
        &mut self,
        rule: &'static str,
        good: bool,
        otherwise: Verdict,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) {
        let verdict = if good { Verdict::Pass } else { otherwise };
        let mend = if good { String::new() } else { mend.into() };
        self.findings.push(Finding { rule, verdict, found: found.into(), mend });
    }

    fn must(&mut self, rule: &'static str, good: bool, found: impl Into<String>, mend: impl Into<String>) {
        self.add(rule, good, Verdict::Fail, found, mend);
    }

    fn should(&mut self, rule: &'static str, good: bool, found: impl Into<String>, mend: impl Into<String>) {
        self.add(rule, good, Verdict::Warn, found, mend);
    }

    fn worst(&self) -> Verdict {
        self.findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Pass)
    }

    /// 0 when nothing failed, 1 when something did, 3 or 4 when ZooKeeper or MySQL could not be reached.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match (self.unreachable, self.worst()) {
            (Some(exit), _) => exit,
            (None, Verdict::Fail) => Exit::No,
            (None, _) => Exit::Done,
        }
    }

    /// The plain text, a line a rule.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let verdict = match finding.verdict {
                Verdict::Pass => "pass",
                Verdict::Warn => "WARN",
                Verdict::Fail => "FAIL",
            };
            text.push_str(&format!("{verdict}  {:<22} {}\n", finding.rule, finding.found));
            if !finding.mend.is_empty() {
                text.push_str(&format!("      {:<22} mend: {}\n", "", finding.mend));
            }
        }
        text
    }

    /// One line and the exit code of a Nagios plugin: the worst finding in words, the names of the others. A server that does not
    /// answer is critical like any other failed rule; what cannot be examined at all (3) is a configuration that cannot be read.
    #[must_use]
    pub fn nagios(&self) -> (u8, String) {
        let worst = self.worst();
        let (code, word) = match worst {
            Verdict::Fail => (2, "CRITICAL"),
            Verdict::Warn => (1, "WARNING"),
            Verdict::Pass => return (0, format!("OK: {} rules\n", self.findings.len())),
        };
        let mut rest = self.findings.iter().filter(|finding| finding.verdict != Verdict::Pass).collect::<Vec<_>>();
        // Stable: among equals the first stands first.
        rest.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
        let named = rest.first().map_or_else(String::new, |first| format!("{}: {}", first.rule, first.found));
        let others: Vec<&str> = rest.iter().skip(1).map(|finding| finding.rule).collect();
        let others = if others.is_empty() { String::new() } else { format!("; also: {}", others.join(", ")) };
        (code, format!("{}\n", in_one_line(&format!("{word}: {named}{others}"))))
    }
}

/// The same line where nothing could be examined at all (exit code 3): what `text` says, in one line.
#[must_use]
pub fn unknown(text: &str) -> (u8, String) {
    (3, format!("UNKNOWN: {}\n", in_one_line(text)))
}

/// No bar either: what follows one counts as performance data.
fn in_one_line(text: &str) -> String {
    text.replace(['\n', '|'], " ")
}

/// Examines everything.
pub async fn check(config: &Config) -> Report {
    let mut report = Report::default();
    let unused = config.not_yet_in_force();
    let found = if unused.is_empty() {
        "no key without effect in this version is set to other than its default".to_owned()
    } else {
        format!("without effect in this version: {}", unused.join(", "))
    };
    report.should("configuration", unused.is_empty(), found, "remove them, so that nobody counts on them");
    guard(config, &mut report);
    let (good, found, mend) = listens::http(config).await;
    report.should("http", good, found, mend);
    let facts = mysql(config, &mut report).await;
    zookeeper(config, &mut report, facts.as_ref()).await;
    report
}

/// Whether the guard of this host's server runs.
fn guard(config: &Config, report: &mut Report) {
    let path = presence::guard_path(&config.run_dir, &config.cluster, &config.name);
    let found = match presence::holder(&path) {
        Some(pid) => (true, format!("the guard runs (pid {pid})")),
        None => (false, "no guard runs on this host".to_owned()),
    };
    report.should(
        "guard",
        found.0,
        found.1,
        "systemctl enable --now mysql-ha-guard: without it an agent that fails leaves its server writable beyond the lease",
    );
}

async fn mysql(config: &Config, report: &mut Report) -> Option<ServerFacts> {
    let target = own_target(config);
    let mut line = Line::new(target.clone());
    match facts::once(&mut line, &config.heartbeat.schema, LIMIT).await {
        Ok(Reading::Facts(facts)) => {
            report.must("mysql-connection", true, format!("MySQL {} answers at {}", facts.version, target.place()), "");
            settings::settings(config, &mut line, report, &facts).await;
            privileges::privileges(config, &mut line, report).await;
            replication_account(config, &mut line, report, &facts).await;
            Some(*facts)
        }
        Ok(Reading::Unsupported(why)) => {
            report.must("mysql-server", false, why, "this server cannot be managed as it is");
            None
        }
        Err(fault) => {
            report.must(
                "mysql-connection",
                false,
                fault.to_string(),
                "start mysqld, or mend mysql.socket, mysql.host, mysql.user and mysql.password",
            );
            // A server that answers and refuses was reached: what it refused is the finding.
            if matches!(fault, Fault::Server { .. }) {
                None
            } else {
                report.unreachable = Some(Exit::MysqlUnreachable);
                None
            }
        }
    }
}

/// Whether the replication account can log in at the source: by replicating with it, or by trying.
async fn replication_account(config: &Config, line: &mut Line, report: &mut Report, facts: &ServerFacts) {
    const RULE: &str = "replication-account";
    const MEND: &str = "create the account mysql.replication.user on the primary with REPLICATION SLAVE and this password (packaging/grants.sql)";
    let replication = &config.mysql.replication;
    let place =
        facts.channel.as_ref().map_or_else(|| config.mysql.advertise.to_string(), |channel| channel.source.clone());
    let account = Target::new(line.target().place().clone(), &replication.user, replication.password.reveal());
    let target = match account.at(&place) {
        Ok(target) => target,
        Err(bad) => return report.must(RULE, false, bad.to_string(), MEND),
    };
    match grants::of_session(&mut Line::new(target), LIMIT).await {
        Ok(grants) => {
            let granted = grants.has("REPLICATION SLAVE");
            report.must(RULE, granted, format!("{} can log in at {place}", replication.user), MEND);
        }
        // In the fault's own words it would be the agent's account.
        Err(Fault::RefusedPassword { message, .. }) => {
            let found = format!("{place} refuses mysql.replication.user and its password ({message})");
            report.must(RULE, false, found, MEND);
        }
        Err(fault) => report.must(RULE, false, format!("{}: {fault}", replication.user), MEND),
    }
    // On a server that takes writes a channel is left over from its time as a replica; its agent forgets it. Nobody must start it.
    if let Some(channel) = facts.channel.as_ref().filter(|_| !facts.writable()) {
        let running = channel.sql_running && channel.io == crate::core::view::IoThread::Yes;
        let found =
            format!("replicates from {}{}", channel.source, if running { "" } else { ", but a thread does not run" });
        report.must("replication", running, found, "SHOW REPLICA STATUS says why; then START REPLICA");
        report.must(
            "auto-position",
            channel.auto_position,
            format!("SOURCE_AUTO_POSITION={}", u8::from(channel.auto_position)),
            "STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_AUTO_POSITION=1; START REPLICA",
        );
    }
}

async fn zookeeper(config: &Config, report: &mut Report, facts: Option<&ServerFacts>) {
    let tree = match session::open(config).await {
        Ok(tree) => tree,
        Err((exit, text)) => {
            report.must("zookeeper", false, text, "start ZooKeeper, or mend zookeeper.hosts");
            // The lease file alone tells then.
            if let Some(left) = session::may_write_for(config) {
                report.should("failsafe", true, session::in_words(Some(left)), "");
            }
            report.unreachable = Some(exit);
            return;
        }
    };
    let ensemble = tree.now();
    if let Session::Connected { granted, .. } = ensemble.session {
        report.must(
            "zookeeper",
            true,
            format!("connected, session timeout granted: {:.1} s", granted.as_secs_f64()),
            "",
        );
        let timing = config.timing(granted);
        let fault = timing.check().err();
        let found = fault.as_ref().map_or_else(
            || format!("needs {:.2} s of {:.2} s", timing.sum().as_secs_f64(), granted.as_secs_f64()),
            |fault| fault.what(),
        );
        report.must("timing", fault.is_none(), found, fault.map(|fault| fault.mend()).unwrap_or_default());
        failsafe(config, report, granted);
    }
    if let Some(facts) = facts {
        members::name(config, report, &ensemble, facts);
        members::unique(config, report, &ensemble, facts);
        members::left_locked(config, report, &ensemble).await;
        members::writes_finish(report, &ensemble, &facts.server_uuid);
    }
    members::replication_accounts(config, report, &ensemble);
    if let Some(topology) = ensemble.topology.record() {
        let terms = Terms { durability: config.failover.durability, sync_replicas: config.failover.sync_replicas };
        let Terms { durability, sync_replicas } = terms;
        report.should(
            "durability-in-force",
            topology.durability.is_as(&terms),
            format!(
                "the file asks for {durability} with failover.sync_replicas {sync_replicas}, in force is {} with {}",
                topology.durability.mode,
                topology.durability.k()
            ),
            "make the files of all hosts alike and reload: the primary's file decides",
        );
    }
    let status = status(&config.cluster, &ensemble, &session::ages(config));
    if let Node::Unreadable { why, .. } = &ensemble.topology {
        report.must("topology", false, format!("the node topology cannot be read: {why}"), UNREADABLE_TOPOLOGY);
    } else if status.topology.is_some() {
        let found = status.primary.as_ref().map_or_else(
            || "no server takes writes".to_owned(),
            |name| format!("primary {name}, epoch {}", status.epoch),
        );
        report.must("topology", status.primary.is_some(), found, "'mysql-ha-agent status' says why");
    } else {
        report.should("topology", false, "the replica set is not adopted yet", "start the agents: they adopt it");
    }
}

/// Whether a primary of this file can write on while the whole ensemble is lost.
fn failsafe(config: &Config, report: &mut Report, granted: Duration) {
    if !config.failover.failsafe || config.failover.durability != DurabilityMode::Lossless {
        return;
    }
    let found = match config.proof_length(granted) {
        Some(length) => format!(
            "without ZooKeeper an acknowledged heartbeat lets the primary write for {:.2} s more",
            length.as_secs_f64()
        ),
        None => format!(
            "no failsafe: heartbeat.interval + 2 × heartbeat.timeout + fencing.budget do not fit into {:.2} s",
            granted.as_secs_f64()
        ),
    };
    let mend =
        "lower heartbeat.interval or heartbeat.timeout; until then an outage of ZooKeeper makes the primary read-only";
    report.should("failsafe", config.proof_length(granted).is_some(), found, mend);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_is_told_the_worst_in_words() {
        let mut report = Report::default();
        report.must("clocks", true, "alike", "");
        assert_eq!(report.nagios(), (0, "OK: 1 rules\n".to_owned()));
        report.should("guard", false, "no guard runs", "start it");
        assert_eq!(report.nagios(), (1, "WARNING: guard: no guard runs\n".to_owned()));
        report.must("mysql", false, "nobody listens\non /run/s | refused", "start it");
        report.unreachable = Some(Exit::MysqlUnreachable);
        let line = "CRITICAL: mysql: nobody listens on /run/s   refused; also: guard\n".to_owned();
        assert_eq!(report.nagios(), (2, line), "a server that is down is no unknown state");
        assert_eq!(report.exit(), Exit::MysqlUnreachable);
        assert_eq!(unknown("a.yaml:1: is\nno | YAML"), (3, "UNKNOWN: a.yaml:1: is no   YAML\n".to_owned()));
    }
}
