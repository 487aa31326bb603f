//! How a real server behaves where a rule of the design rests on it (`tests/interleavings.rs` has the list), and that the rule answers it.

use mysql_ha_agent::core::action::MysqlAction;
use mysql_ha_agent::core::fencing::Rung;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::health::Outcome;
use mysql_ha_agent::core::view::ServerFacts;
use mysql_ha_agent::mysql::connect::Connection;
use mysql_ha_agent::mysql::facts::Reading;
use mysql_ha_agent::mysql::fence::Fenced;
use std::time::Duration;

use crate::control::{act, executed, held_back, pair, status};
use crate::fence::{fence_of, hanging, server};
use crate::probe::{LIMIT, no_acknowledgement, outcome, primary, prober, reading, tried};
use crate::server::{LONG, Server};

/// The state of a session whose commit waits.
pub(crate) const WAITS: &str = "Waiting for semi-sync ACK";
pub(crate) const ACKNOWLEDGES: &str = "(SELECT VARIABLE_VALUE FROM performance_schema.global_status \
                            WHERE VARIABLE_NAME = 'Rpl_semi_sync_replica_status') = 'ON'";
const IO_RUNS: &str = "(SELECT SERVICE_STATE FROM performance_schema.replication_connection_status) = 'ON'";

/// A primary whose commits wait for its one replica, which acknowledges.
pub(crate) async fn acknowledging_pair() -> (Server, Server) {
    let (primary, replica) = pair().await;
    act(&replica, MysqlAction::Acknowledge { on: true }).await.unwrap();
    replica.until(ACKNOWLEDGES).await;
    act(&primary, MysqlAction::AwaitAcknowledgements { count: 1 }).await.unwrap();
    (primary, replica)
}

/// A commit that is acknowledged.
async fn commits(server: &Server, id: u32) {
    let mut client = Connection::open(&server.app(), LONG).await.unwrap();
    client.run(&format!("INSERT INTO app.x VALUES ({id})"), LONG).await.unwrap();
}

#[tokio::test]
async fn interleaving_04_switched_off_alone_it_goes_on_acknowledging() {
    let (primary, replica) = acknowledging_pair().await;
    replica.root_runs(&["SET GLOBAL rpl_semi_sync_replica_enabled=OFF"]).await;
    commits(&primary, 1).await;
    act(&replica, MysqlAction::Acknowledge { on: false }).await.unwrap();
    replica.until(IO_RUNS).await;
    let commit = hanging(&primary, &primary.app(), "INSERT INTO app.x VALUES (2)", WAITS).await;
    assert!(!commit.is_finished());
}

/// Why a member leaves S only when its own agent has confirmed, or after all three in this order.
#[tokio::test]
async fn interleaving_06_a_locked_account_or_an_ended_dump_thread_alone_stops_no_acknowledgement() {
    let (primary, replica) = acknowledging_pair().await;
    let end_dump = async || {
        let dump =
            "SELECT CAST(ID AS CHAR) AS id FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'";
        let id = primary.row(dump).await.text_or_empty("id");
        primary.root_runs(&[&format!("KILL {id}")]).await;
        primary.until(&format!("NOT EXISTS (SELECT 1 FROM performance_schema.processlist WHERE ID = {id})")).await;
    };
    primary.root_runs(&["ALTER USER repl ACCOUNT LOCK"]).await;
    commits(&primary, 1).await;
    primary.root_runs(&["ALTER USER repl ACCOUNT UNLOCK"]).await;
    end_dump().await;
    commits(&primary, 2).await;
    primary.root_runs(&["ALTER USER repl ACCOUNT LOCK"]).await;
    end_dump().await;
    replica.until("(SELECT LAST_ERROR_NUMBER FROM performance_schema.replication_connection_status) <> 0").await;
    let commit = hanging(&primary, &primary.app(), "INSERT INTO app.x VALUES (3)", WAITS).await;
    assert!(!commit.is_finished());
}

#[tokio::test]
async fn interleaving_07_relay_log_recovery_throws_away_what_was_acknowledged() {
    let (mut primary, mut keeps) = acknowledging_pair().await;
    let mut loses = Server::start().await;
    loses.replicate_from(&primary).await;
    for replica in [&keeps, &loses] {
        act(replica, MysqlAction::PersistReadOnly).await.unwrap();
    }
    let locks = (held_back(&primary, &keeps, 1).await, held_back_too(&primary, &loses).await);
    let acknowledged = executed(&primary).await;
    primary.kill();
    for (replica, recovery) in [(&mut keeps, "OFF"), (&mut loses, "ON")] {
        replica.kill();
        replica.restart_with(&[&format!("--relay-log-recovery={recovery}")]).await;
        let retrieved: GtidSet = status(replica, "Retrieved_Gtid_Set").await.parse().unwrap();
        let has_all = retrieved.union(&executed(replica).await).contains(&acknowledged);
        assert_eq!(has_all, recovery == "OFF", "relay_log_recovery={recovery}");
    }
    drop(locks);
}

/// The second replica of [`held_back`]: what the first was sent, and more.
async fn held_back_too(primary: &Server, replica: &Server) -> Connection {
    primary.root_runs(&["DELETE FROM app.x"]).await;
    held_back(primary, replica, 1).await
}

/// In which life a server counts on keeping what it has received, and whether a crash of its host loses commits.
#[tokio::test]
async fn interleaving_07_what_a_restart_may_lose_is_known() {
    let mut server = server().await;
    let facts = async |server: &Server| match reading(server).await {
        Reading::Facts(facts) => *facts,
        Reading::Unsupported(why) => panic!("{why}"),
    };
    let keeps = ServerFacts { incarnation: "boot/start/pid".into(), ..facts(&server).await };
    assert_eq!((keeps.life().as_str(), keeps.synced_commits), ("boot", true));
    server.root_runs(&["SET GLOBAL sync_binlog=0"]).await;
    assert!(!facts(&server).await.synced_commits);
    server.kill();
    server.restart_with(&["--relay-log-recovery=ON"]).await;
    let loses = ServerFacts { incarnation: "boot/start/pid".into(), ..facts(&server).await };
    assert_eq!((loses.life().as_str(), loses.synced_commits), ("boot/start/pid", true));
}

#[test]
fn interleaving_07_the_shipped_settings_keep_relay_logs() {
    let settings = include_str!("../../packaging/mysql-ha.cnf");
    let kept = settings.lines().any(|line| line.replace(' ', "") == "relay_log_recovery=OFF");
    assert!(kept, "packaging/mysql-ha.cnf: a killed replica would lose what it has acknowledged");
}

/// What an orderly shutdown does to a commit that nobody has acknowledged, and what the ladder does to the same commit of an
/// administrator, whom `offline_mode` does not cut.
#[tokio::test]
async fn interleaving_08_a_shutdown_answers_ok_and_the_ladder_does_not() {
    for fenced in [false, true] {
        let server = server().await;
        no_acknowledgement(&server).await;
        let commit = hanging(&server, &server.root(), "INSERT INTO app.x VALUES (1)", WAITS).await;
        if fenced {
            let report = fence_of(&server, true).await.climb(Duration::from_secs(2), || true).await;
            assert_eq!((&report.fenced, report.rung), (&Fenced::Dead, Some(Rung::KillProcess)), "{report:?}");
        } else {
            server.signal("TERM");
        }
        assert_eq!(commit.await.unwrap().is_ok(), !fenced, "fenced: {fenced}");
    }
}

#[tokio::test]
async fn interleaving_09_semi_sync_gives_up_by_itself_unless_it_is_told_not_to() {
    let (gives_up, waits) = tokio::join!(server(), server());
    let semi_sync = async |server: &Server| {
        let Reading::Facts(facts) = reading(server).await else { panic!("unsupported") };
        facts.semi_sync
    };
    for server in [&gives_up, &waits] {
        server.root_runs(&["SET GLOBAL rpl_semi_sync_source_timeout=50"]).await;
    }
    gives_up.root_runs(&["SET GLOBAL rpl_semi_sync_source_enabled=ON"]).await;
    let source = semi_sync(&gives_up).await.source.unwrap();
    assert!(source.on && !source.strict, "such a setting must not count as one that protects: {source:?}");
    // Nobody has it, and the client gets its OK.
    commits(&gives_up, 1).await;
    assert!(!semi_sync(&gives_up).await.source.unwrap().on);

    act(&waits, MysqlAction::AwaitAcknowledgements { count: 1 }).await.unwrap();
    assert!(semi_sync(&waits).await.waits_for(1));
    let settings = "CONCAT_WS(' ', @@global.rpl_semi_sync_source_timeout, @@global.rpl_semi_sync_source_wait_no_replica, \
                    @@global.rpl_semi_sync_source_wait_point, @@global.rpl_semi_sync_source_wait_for_replica_count)";
    assert_eq!(waits.value(settings).await, "4294967295 1 AFTER_SYNC 1");
    let commit = hanging(&waits, &waits.app(), "INSERT INTO app.x VALUES (2)", WAITS).await;
    assert!(!commit.is_finished());
}

/// With both threads stopped even a change of a retry setting empties the relay log; with the applier running it is kept.
#[tokio::test]
async fn interleaving_15_a_change_with_both_threads_stopped_purges() {
    for kept in [true, false] {
        let (primary, replica) = pair().await;
        let lock = if kept {
            Some(held_back(&primary, &replica, 2).await)
        } else {
            replica.root_runs(&["STOP REPLICA SQL_THREAD"]).await;
            primary.root_runs(&["INSERT INTO app.x VALUES (1)"]).await;
            None
        };
        let all = executed(&primary).await;
        let received = async || {
            let retrieved: GtidSet = status(&replica, "Retrieved_Gtid_Set").await.parse().unwrap();
            retrieved.union(&executed(&replica).await)
        };
        while !received().await.contains(&all) {
            tokio::task::yield_now().await;
        }
        replica.root_runs(&["STOP REPLICA IO_THREAD", "CHANGE REPLICATION SOURCE TO SOURCE_RETRY_COUNT=7"]).await;
        assert_eq!(received().await.contains(&all), kept, "the applier runs: {kept}");
        drop(lock);
    }
}

/// It has received the commit before it was told to acknowledge: that one alone it never acknowledges.
#[tokio::test]
async fn interleaving_16_a_replica_enabled_late_acknowledges_with_the_next_commit() {
    let (primary, replica) = pair().await;
    act(&primary, MysqlAction::CreateHeartbeatTable).await.unwrap();
    act(&primary, MysqlAction::AwaitAcknowledgements { count: 1 }).await.unwrap();
    let commit = hanging(&primary, &primary.app(), "INSERT INTO app.x VALUES (1)", WAITS).await;
    replica.until("EXISTS (SELECT 1 FROM app.x)").await;
    act(&replica, MysqlAction::Acknowledge { on: true }).await.unwrap();
    replica.until(ACKNOWLEDGES).await;
    assert!(!commit.is_finished(), "acknowledged after all: the marker would be needed no more");
    act(&primary, MysqlAction::CommitMarker).await.unwrap();
    tokio::time::timeout(LONG, commit).await.expect("acknowledged with the marker").unwrap().unwrap();
}

/// An account statement that waits for its acknowledgement holds the lock that every login needs, the replica's too: no
/// acknowledgement can come any more. What the probes see of it then; the ladder ends it.
async fn seen_while_an_account_statement_waits(server: &Server) -> Outcome {
    let mut prober = prober(server);
    outcome(&mut prober, LONG).await;
    let mut fence = fence_of(server, true).await;
    no_acknowledgement(server).await;
    let root = server.root();
    let mut looks = Connection::open(&root, LONG).await.unwrap();
    let mut creates = Connection::open(&root, LONG).await.unwrap();
    let account = tokio::spawn(async move { creates.run("CREATE USER waits@localhost", LONG * 10).await });
    let mut count = async |state: &str| {
        let of = format!("SELECT COUNT(*) AS n FROM performance_schema.processlist WHERE STATE LIKE '{state}%'");
        looks.row(&of, LONG).await.unwrap().number("n")
    };
    while count(WAITS).await != Some(1) {
        tokio::task::yield_now().await;
    }
    let app = server.app();
    let login = tokio::spawn(async move { Connection::open(&app, LONG * 10).await.map(drop) });
    while count("Waiting for acl cache lock").await != Some(1) {
        tokio::task::yield_now().await;
    }
    let shown = outcome(&mut prober, LIMIT).await;
    let report = fence.climb(Duration::from_secs(2), || true).await;
    assert_eq!((&report.fenced, report.rung), (&Fenced::Dead, Some(Rung::KillProcess)), "{report:?}");
    assert!(account.await.unwrap().is_err() && login.await.unwrap().is_err(), "nobody was told that it is done");
    shown
}

/// Sessions with an active role have their privileges with them.
#[tokio::test]
async fn interleaving_16_sessions_with_an_active_role_see_the_account_statement_that_waits() {
    let shown = seen_while_an_account_statement_waits(&primary().await).await;
    assert!(matches!(&shown, Outcome::Blocked { by } if by.contains("lets nobody log in")), "{shown:?}");
}

/// Others hang in most statements too: the probes see a server that has failed.
#[tokio::test]
async fn interleaving_16_an_account_statement_that_waits_lets_nobody_in_until_mysqld_is_killed() {
    let server = primary().await;
    let mut root = Connection::open(&server.root(), LONG).await.unwrap();
    for sql in [
        "SET sql_log_bin=0",
        "GRANT RELOAD, PROCESS, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO agent",
        "GRANT SYSTEM_VARIABLES_ADMIN, SESSION_VARIABLES_ADMIN, CONNECTION_ADMIN, SYSTEM_USER ON *.* TO agent",
        "GRANT ALL ON mysql_ha.* TO agent",
        "GRANT SELECT ON performance_schema.* TO agent",
        "ALTER USER agent DEFAULT ROLE NONE",
    ] {
        root.run(sql, LONG).await.unwrap();
    }
    let shown = seen_while_an_account_statement_waits(&server).await;
    assert!(matches!(shown, Outcome::Failure { .. }), "{shown:?}");
}

#[tokio::test]
async fn interleaving_17_after_a_crash_executed_holds_what_nobody_acknowledged() {
    let mut server = primary().await;
    let mut prober = prober(&server);
    outcome(&mut prober, LONG).await;
    let watermark = tried(&mut prober, LONG).await.heartbeat.unwrap().executed;
    no_acknowledgement(&server).await;
    let before = executed(&server).await;
    let _commit = hanging(&server, &server.app(), "INSERT INTO app.x VALUES (1)", WAITS).await;
    assert_eq!(executed(&server).await, before, "not executed while it waits");
    server.kill();
    server.restart().await;
    let after = executed(&server).await;
    assert_eq!(after.subtract(&before).count(), 1, "recovery commits what stands in the binary log");
    assert!(before.contains(&watermark), "what is promised to be on the next primary holds none of it");
}
