//! `check`: examines what the agent needs, a line a rule, each with its mend.

use std::time::Duration;

use serde::Serialize;

use super::exit::Exit;
use super::listens;
use super::session;
use crate::agent::run::own_target;
use crate::config::Config;
use crate::core::records::{DurabilityMode, Terms};
use crate::core::status::{UNREADABLE_TOPOLOGY, status};
use crate::core::view::{Ensemble, Node, ServerFacts, Session};
use crate::host::clock;
use crate::host::lease_file::{self, LeaseFile, LeaseState};
use crate::host::presence;
use crate::mysql::accounts;
use crate::mysql::connect::{Line, Row, Target};
use crate::mysql::facts::{self, Reading};
use crate::mysql::fault::Fault;

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
        // One line, and no bar: what follows one counts as performance data.
        let line = format!("{word}: {named}{others}").replace(['\n', '|'], " ");
        (code, format!("{line}\n"))
    }
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
    let reading = match line.open(LIMIT).await {
        Ok(connection) => facts::Reader::new(&config.heartbeat.schema).read(connection, "check", LIMIT).await,
        Err(fault) => Err(fault),
    };
    match reading {
        Ok(Reading::Facts(facts)) => {
            report.must("mysql-connection", true, format!("MySQL {} answers at {}", facts.version, target.place()), "");
            settings(config, &mut line, report, &facts).await;
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

const SETTINGS: &str = "SELECT @@global.sync_binlog AS sync_binlog, @@global.innodb_flush_log_at_trx_commit AS flush, \
    @@global.relay_log_recovery AS relay_log_recovery, @@global.replica_net_timeout AS net_timeout, \
    @@global.enforce_gtid_consistency AS consistency, @@global.gtid_mode AS gtid_mode, @@global.log_bin AS log_bin, \
    @@global.log_replica_updates AS log_replica_updates, \
    (SELECT COUNT(*) FROM performance_schema.variables_info WHERE VARIABLE_NAME IN ('super_read_only', 'read_only') \
     AND VARIABLE_SOURCE = 'COMMAND_LINE') AS command_line, \
    (SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME LIKE 'rpl_semi_sync_%' AND PLUGIN_STATUS='ACTIVE') AS semisync";

async fn settings(config: &Config, line: &mut Line, report: &mut Report, facts: &ServerFacts) {
    let row = match line.row(SETTINGS, LIMIT).await {
        Ok(row) => row,
        Err(fault) => {
            return report.must("mysql-settings", false, fault.to_string(), "grant what packaging/grants.sql grants");
        }
    };
    let on = |name: &str| row.is_on(name);
    let gtid = row.text_or_empty("gtid_mode") == "ON" && row.text_or_empty("consistency") == "ON";
    report.must(
        "gtid-mode",
        gtid,
        format!(
            "gtid_mode={}, enforce_gtid_consistency={}",
            row.text_or_empty("gtid_mode"),
            row.text_or_empty("consistency")
        ),
        "set both to ON in my.cnf",
    );
    report.must(
        "binary-log",
        on("log_bin") && on("log_replica_updates"),
        format!(
            "log_bin={}, log_replica_updates={}",
            row.text_or_empty("log_bin"),
            row.text_or_empty("log_replica_updates")
        ),
        "set both to ON in my.cnf and restart mysqld",
    );
    durability(config, report, &row);
    let clean = row.number("command_line") == Some(0);
    report.must(
        "read-only-command-line",
        clean,
        if clean {
            "read-only is not on mysqld's command line"
        } else {
            "read_only or super_read_only is on mysqld's command line"
        },
        "remove it there: it beats the persisted value",
    );
    report.should(
        "read-only-at-boot",
        facts.persisted_read_only,
        if facts.persisted_read_only {
            "a restart comes up read-only, replication stopped"
        } else {
            "super_read_only and skip_replica_start are not persisted"
        },
        "the agent persists them once it manages the server; until then a restart may come up writable",
    );
    let net = row.number("net_timeout").unwrap_or(60);
    report.should(
        "replica-net-timeout",
        net <= 10,
        format!("replica_net_timeout={net} s"),
        "set it to 5 in my.cnf: a silent source is noticed only after it",
    );
    report.must(
        "server-id",
        facts.server_id > 0,
        format!("server_id={}", facts.server_id),
        "give each server its own server_id in my.cnf",
    );
    let plugins = row.number("semisync").unwrap_or(0) >= 2;
    if config.failover.durability == DurabilityMode::Lossless {
        report.must(
            "semi-sync",
            plugins,
            if plugins { "both semi-sync plugins are loaded" } else { "the semi-sync plugins are not loaded" },
            "include packaging/mysql-ha.cnf in my.cnf and restart mysqld",
        );
        if plugins {
            acknowledgements(line, report, facts.writable()).await;
        }
    }
    privileges(line, report).await;
}

/// In `lossless` the server that takes writes waits for acknowledgements without end, and no replica gives them by itself.
async fn acknowledgements(line: &mut Line, report: &mut Report, writable: bool) {
    let sql = "SELECT VARIABLE_NAME AS name, VARIABLE_VALUE AS value FROM performance_schema.global_variables \
               WHERE VARIABLE_NAME LIKE 'rpl_semi_sync_%_enabled' OR VARIABLE_NAME LIKE 'rpl_semi_sync_%_timeout'";
    let rows = match line.rows(sql, LIMIT).await {
        Ok(rows) => rows,
        Err(fault) => return report.must("acknowledgements", false, fault.to_string(), "see packaging/grants.sql"),
    };
    let value = |names: [&str; 2]| {
        let named = rows.iter().find(|row| names.contains(&row.text_or_empty("name").as_str()));
        named.map(|row| row.text_or_empty("value")).unwrap_or_default()
    };
    let source = value(["rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"]);
    let timeout = value(["rpl_semi_sync_source_timeout", "rpl_semi_sync_master_timeout"]);
    // A day: whoever set less has the source go on alone when no replica answers.
    let endless = timeout.parse::<u64>().is_ok_and(|ms| ms >= 24 * 3_600_000);
    if writable {
        report.should(
            "acknowledgements",
            source == "ON" && endless,
            format!("takes writes with rpl_semi_sync_source_enabled={source}, timeout {timeout} ms"),
            "the agent switches it on as soon as enough replicas acknowledge; until then acknowledged writes can be lost, and \
             `status` says degraded",
        );
    }
    let sql = "SELECT VARIABLE_SOURCE AS source FROM performance_schema.variables_info \
               WHERE VARIABLE_NAME IN ('rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled') \
               AND VARIABLE_SOURCE = 'COMMAND_LINE'";
    let by_itself = line.rows(sql, LIMIT).await.is_ok_and(|rows| !rows.is_empty());
    report.must(
        "acknowledges-by-itself",
        !by_itself,
        match by_itself {
            true => "rpl_semi_sync_replica_enabled is on mysqld's command line",
            false => "acknowledges nothing by itself after a restart",
        },
        "remove it there: it beats the persisted value, and a returning replica could acknowledge without being asked for it",
    );
}

fn durability(config: &Config, report: &mut Report, row: &Row) {
    let lossless = config.failover.durability == DurabilityMode::Lossless;
    let verdict = if lossless { Verdict::Fail } else { Verdict::Warn };
    let safe = row.number("sync_binlog") == Some(1) && row.number("flush") == Some(1);
    let found = format!(
        "sync_binlog={}, innodb_flush_log_at_trx_commit={}",
        row.text_or_empty("sync_binlog"),
        row.text_or_empty("flush")
    );
    report.add(
        "durable-commits",
        safe,
        verdict,
        found,
        "set both to 1 in my.cnf: otherwise a crash of the host loses acknowledged writes",
    );
    let recovery = row.is_on("relay_log_recovery");
    report.add(
        "relay-log-recovery",
        !recovery,
        verdict,
        format!("relay_log_recovery={}", if recovery { "ON" } else { "OFF" }),
        "set it to OFF in my.cnf: a killed replica otherwise throws away what it has acknowledged",
    );
}

/// What packaging/grants.sql grants, as far as the server names it.
const PRIVILEGES: [&str; 8] = [
    "RELOAD",
    "PROCESS",
    "REPLICATION CLIENT",
    "REPLICATION SLAVE",
    "REPLICATION_SLAVE_ADMIN",
    "SYSTEM_VARIABLES_ADMIN",
    "PERSIST_RO_VARIABLES_ADMIN",
    "CONNECTION_ADMIN",
];

async fn privileges(line: &mut Line, report: &mut Report) {
    let sql = "SELECT DISTINCT PRIVILEGE_TYPE AS privilege FROM information_schema.USER_PRIVILEGES \
               WHERE GRANTEE = (SELECT CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), ''''))";
    let rows = match line.rows(sql, LIMIT).await {
        Ok(rows) => rows,
        Err(fault) => {
            return report.must("privileges", false, fault.to_string(), "run packaging/grants.sql on the primary");
        }
    };
    let have: Vec<String> = rows.iter().filter_map(|row| row.text("privilege")).collect();
    let missing: Vec<&str> = PRIVILEGES.into_iter().filter(|name| !have.iter().any(|have| have == name)).collect();
    let found = if missing.is_empty() {
        "the agent's account has what it needs".to_owned()
    } else {
        format!("missing: {}", missing.join(", "))
    };
    report.must("privileges", missing.is_empty(), found, "run packaging/grants.sql on the primary");
    shutting_out(line, report, &have).await;
}

/// What it takes to shut a member out by its account. Without it all works as before, and such a member stays in S.
async fn shutting_out(line: &mut Line, report: &mut Report, have: &[String]) {
    let has = |name: &str| have.iter().any(|have| have == name);
    let mut missing: Vec<&str> =
        ["CREATE USER", "SYSTEM_USER", "CONNECTION_ADMIN"].into_iter().filter(|name| !has(name)).collect();
    if !has("SYSTEM_VARIABLES_ADMIN") && !has("SESSION_VARIABLES_ADMIN") {
        missing.push("SESSION_VARIABLES_ADMIN");
    }
    if line.rows("SELECT User, Host, account_locked FROM mysql.user LIMIT 0", LIMIT).await.is_err() {
        missing.push("SELECT (User, Host, account_locked) ON mysql.user");
    }
    let found = if missing.is_empty() {
        "a replica whose agent is gone can be shut out by its own account".to_owned()
    } else {
        format!("a replica whose agent is gone cannot be shut out: missing: {}", missing.join(", "))
    };
    report.should(
        "shut-out-privileges",
        missing.is_empty(),
        found,
        "run packaging/grants.sql on the primary; without it such a replica stays in the sync set, and its vote may be missing for \
         a promotion",
    );
}

/// In `lossless` each host had better have a replication account of its own.
fn replication_accounts(config: &Config, report: &mut Report, ensemble: &Ensemble) {
    if config.failover.durability != DurabilityMode::Lossless {
        return;
    }
    let ours = &config.mysql.replication.user;
    let others = ensemble.agents.values().map(|seen| &seen.record).filter(|agent| agent.name != config.name);
    let sharing: Vec<&str> =
        others.filter(|agent| agent.replication_user.as_ref() == Some(ours)).map(|agent| agent.name.as_str()).collect();
    let found = match sharing.is_empty() {
        true => format!("'{ours}' is the replication account of no other host"),
        false => format!(
            "'{ours}' is the replication account of {} too: should one of these hosts die, it stays in the sync set, and nobody may be \
             promoted when the primary dies next",
            sharing.join(", ")
        ),
    };
    report.should(
        "own-replication-account",
        sharing.is_empty(),
        found,
        "create an account for each host on the primary (packaging/grants.sql), name it under mysql.replication in that host's \
         file, restart its agent",
    );
}

/// Accounts of this server that are locked for a member although nobody has recorded it: a restored backup, a deleted `topology`.
async fn left_locked(config: &Config, report: &mut Report, ensemble: &Ensemble) {
    let Ok(locked) = accounts::locked_for_members(&mut Line::new(own_target(config)), LIMIT).await else { return };
    let recorded = |member: &str| {
        let by = ensemble.topology.record().and_then(|topology| topology.durability.shut_out.get(member));
        by.is_some_and(|by| by.contains(&config.name))
    };
    let left: Vec<String> =
        locked.into_iter().filter(|(_, member)| !recorded(member)).map(|(account, _)| account).collect();
    let found = match left.is_empty() {
        true => "no replication account is left locked on this server".to_owned(),
        false => format!("locked on this server for a member, and nobody will unlock it: {}", left.join(", ")),
    };
    report.should(
        "locked-accounts",
        left.is_empty(),
        found,
        "once that host's agent runs, on this server while it is the primary: SET SESSION sql_log_bin=0; ALTER USER … ACCOUNT UNLOCK",
    );
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
    match Line::new(target).rows("SHOW GRANTS", LIMIT).await {
        Ok(rows) => {
            let granted =
                rows.iter().any(|row| row.any_contains("REPLICATION SLAVE") || row.any_contains("ALL PRIVILEGES"));
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
            without_zookeeper(config, report);
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
        unique(config, report, &ensemble, facts);
        left_locked(config, report, &ensemble).await;
    }
    replication_accounts(config, report, &ensemble);
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
    let status = status(&config.cluster, &ensemble);
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

/// Without ZooKeeper the lease file alone tells until when this host's server may take writes.
fn without_zookeeper(config: &Config, report: &mut Report) {
    let path = LeaseFile::path_in(&config.run_dir, &config.cluster, &config.name);
    let state = lease_file::read(&path).ok().flatten().and_then(Result::ok);
    let same_boot = |state: &LeaseState| clock::boot_id().is_ok_and(|boot_id| boot_id == state.boot_id);
    let until = state.filter(same_boot).and_then(|state| state.until).filter(|until| *until > clock::now());
    if let Some(until) = until {
        let left = until.until(clock::now()).as_secs_f64();
        let found = format!(
            "this host's server may take writes for {left:.1} s more; with failover.failsafe each heartbeat that replicas acknowledge \
             moves that on"
        );
        report.should("failsafe", true, found, "");
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

/// `server_uuid` and `server_id` within the cluster.
fn unique(config: &Config, report: &mut Report, ensemble: &Ensemble, facts: &ServerFacts) {
    let others = || {
        ensemble
            .agents
            .values()
            .filter(|seen| seen.record.name != config.name)
            .filter_map(|seen| Some((seen.record.name.as_str(), seen.record.server.as_ref()?)))
    };
    let uuid = others().find(|(_, server)| server.server_uuid == facts.server_uuid).map(|(name, _)| name);
    report.must(
        "unique-server-uuid",
        uuid.is_none(),
        format!("{}{}", facts.server_uuid, uuid.map(|name| format!(" is also {name}'s")).unwrap_or_default()),
        "stop mysqld, remove auto.cnf from the copied data directory, start it",
    );
    let id = others().find(|(_, server)| server.server_id == facts.server_id).map(|(name, _)| name);
    report.must(
        "unique-server-id",
        id.is_none(),
        format!("{}{}", facts.server_id, id.map(|name| format!(" is also {name}'s")).unwrap_or_default()),
        "give each server its own server_id in my.cnf",
    );
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
    }
}
