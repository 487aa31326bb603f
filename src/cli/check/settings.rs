//! The server's variables: what has to be set, and what a restart would bring.

use super::{LIMIT, Report, Verdict};
use crate::config::Config;
use crate::core::records::DurabilityMode;
use crate::core::view::ServerFacts;
use crate::mysql::connect::{Line, Row};
use crate::mysql::grants;

const SETTINGS: &str = "SELECT @@global.sync_binlog AS sync_binlog, @@global.innodb_flush_log_at_trx_commit AS flush, \
    @@global.relay_log_recovery AS relay_log_recovery, @@global.replica_net_timeout AS net_timeout, \
    @@global.enforce_gtid_consistency AS consistency, @@global.gtid_mode AS gtid_mode, @@global.log_bin AS log_bin, \
    @@global.log_replica_updates AS log_replica_updates, \
    (SELECT COUNT(*) FROM performance_schema.variables_info WHERE VARIABLE_NAME IN ('super_read_only', 'read_only') \
     AND VARIABLE_SOURCE = 'COMMAND_LINE') AS command_line, \
    (SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME LIKE 'rpl_semi_sync_%' AND PLUGIN_STATUS='ACTIVE') AS semisync";

pub(super) async fn settings(config: &Config, line: &mut Line, report: &mut Report, facts: &ServerFacts) {
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
            active_role(line, report).await;
        }
    }
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

/// While an account statement waits for its acknowledgement, only sessions with an active role can read and change the server
/// (interleaving 16).
async fn active_role(line: &mut Line, report: &mut Report) {
    const RULE: &str = "active-role";
    const MEND: &str = "run packaging/grants.sql on the primary and restart the agents: without it a server where an account statement \
                        (CREATE USER, GRANT) waits for an acknowledgement is taken for one that does not answer, and killed";
    match grants::active_roles(line, LIMIT).await {
        Ok(Some(roles)) => {
            report.should(RULE, true, format!("the agent's sessions have the role {roles} with them"), MEND)
        }
        Ok(None) => report.should(RULE, false, "the agent's privileges are granted to its account alone", MEND),
        Err(fault) => report.should(RULE, false, fault.to_string(), MEND),
    }
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
