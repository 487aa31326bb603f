//! What a try of the heartbeat shows, on real servers: a missing acknowledgement, a backup's lock or a refusal is no
//! dead server, and a dead one is not excused.

use std::time::Duration;

use mysql_ha_agent::core::action::MysqlAction;
use mysql_ha_agent::core::health::Outcome;
use mysql_ha_agent::host::process::Mysqld;
use mysql_ha_agent::mysql::connect::{Connection, Target};
use mysql_ha_agent::mysql::control::{Control, Settings};
use mysql_ha_agent::mysql::facts::{self, Reading};
use mysql_ha_agent::mysql::probe::{Beat, Prober, Try};
use tokio::task::JoinHandle;

use crate::server::{LONG, Server};

/// A try's limit where the write is expected to hang.
pub(crate) const LIMIT: Duration = Duration::from_millis(500);

fn settings() -> Settings {
    Settings {
        schema: "mysql_ha".into(),
        replication_user: "repl".into(),
        replication_password: "repl-secret".into(),
        replication_tls: false,
        spare_users: Vec::new(),
    }
}

/// A writable server with the heartbeat table.
pub(crate) async fn primary() -> Server {
    let server = Server::start().await;
    Control::new(server.agent(), settings()).execute(&MysqlAction::CreateHeartbeatTable).await.unwrap();
    server.root_runs(&["CREATE TABLE app.x (id INT PRIMARY KEY)"]).await;
    server
}

pub(crate) fn prober(server: &Server) -> Prober {
    Prober::new(server.agent(), None, "mysql_ha".into())
}

pub(crate) async fn tried(prober: &mut Prober, limit: Duration) -> Try {
    let beat = Beat { name: "db1".into(), epoch: 7 };
    prober.probe(Some(&beat), "life", limit).await
}

pub(crate) async fn outcome(prober: &mut Prober, limit: Duration) -> Outcome {
    tried(prober, limit).await.outcome
}

fn blocked_by(outcome: &Outcome, part: &str) -> bool {
    matches!(outcome, Outcome::Blocked { by } if by.contains(part))
}

async fn session(target: &Target, statements: &[&str]) -> Connection {
    let mut session = Connection::open_waiting(target, LONG, 60).await.unwrap();
    for sql in statements {
        session.run(sql, LONG).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
    }
    session
}

/// Commits wait for an acknowledgement that never comes: there is no replica.
pub(crate) async fn no_acknowledgement(server: &Server) {
    let sql = "SET GLOBAL rpl_semi_sync_source_enabled=ON, GLOBAL rpl_semi_sync_source_timeout=4294967295, \
               GLOBAL rpl_semi_sync_source_wait_no_replica=ON";
    server.root_runs(&[sql]).await;
}

/// A client's commit, left waiting for its acknowledgement.
async fn waiting_commit(server: &Server, id: u32) -> JoinHandle<()> {
    let mut client = Connection::open(&server.app(), LONG).await.unwrap();
    let waiting =
        tokio::spawn(async move { drop(client.run(&format!("INSERT INTO app.x VALUES ({id})"), LONG).await) });
    server
        .until(
            "(SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE LIKE 'Waiting for semi-sync ACK%') > 0",
        )
        .await;
    waiting
}

async fn sessions_of_the_agent(server: &Server) -> String {
    server.value("(SELECT COUNT(*) FROM performance_schema.processlist WHERE USER = 'agent')").await
}

#[tokio::test]
async fn interleaving_17_the_watermark_lies_before_the_heartbeat_that_proves_it() {
    let server = primary().await;
    let mut prober = prober(&server);
    let before = server.value("@@global.gtid_executed").await;
    let first = tried(&mut prober, LONG).await;
    assert_eq!(first.outcome, Outcome::Success);
    assert_eq!(first.heartbeat.unwrap().executed, before.parse().unwrap());
    let row = server.row("SELECT name, epoch, sequence FROM mysql_ha.heartbeat").await;
    assert_eq!(
        (row.text_or_empty("name"), row.number("epoch"), row.number("sequence")),
        ("db1".into(), Some(7), Some(1))
    );
    let second = tried(&mut prober, LONG).await;
    assert!(second.facts.unwrap().0.heartbeat_age.is_some());
}

/// Interleaving 9, and what the failsafe rests on: a heartbeat that came back says whether it was waited for.
#[tokio::test]
async fn a_heartbeat_counts_as_acknowledged_only_while_semi_sync_stays_on() {
    let server = primary().await;
    let mut prober = prober(&server);
    let heartbeat = tried(&mut prober, LONG).await.heartbeat.unwrap();
    assert_eq!((heartbeat.acknowledged_by, heartbeat.epoch), (None, 7), "semi-sync is off");
    no_acknowledgement(&server).await;
    assert!(tried(&mut prober, LIMIT).await.heartbeat.is_none());
    // What nobody does to a real one (interleaving 10): it comes back, and nobody has acknowledged it.
    server.root_runs(&["SET GLOBAL rpl_semi_sync_source_enabled=OFF"]).await;
    let waiting = "(SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'REPLACE INTO%.heartbeat %')";
    server.until(&format!("{waiting} = 0")).await;
    let back = tried(&mut prober, LONG).await.heartbeat.unwrap();
    assert_eq!(back.acknowledged_by, None);
}

#[tokio::test]
async fn without_a_beat_nothing_is_written() {
    let server = primary().await;
    let before = server.value("@@global.gtid_executed").await;
    assert_eq!(prober(&server).probe(None, "life", LONG).await.outcome, Outcome::Success);
    assert_eq!(server.value("@@global.gtid_executed").await, before);
}

#[tokio::test]
async fn a_missing_acknowledgement_is_no_failure_and_ends_by_itself() {
    let server = primary().await;
    let mut prober = prober(&server);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    no_acknowledgement(&server).await;
    for _ in 0..4 {
        let shown = outcome(&mut prober, LIMIT).await;
        assert!(blocked_by(&shown, "acknowledges"), "{shown:?}");
    }
    let waiting = "(SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'REPLACE INTO%.heartbeat %')";
    assert_eq!(server.value(waiting).await, "1", "one heartbeat at a time");
    // What nobody does to a real one (interleaving 10): here it ends the waiting.
    server.root_runs(&["SET GLOBAL rpl_semi_sync_source_enabled=OFF"]).await;
    server.until(&format!("{waiting} = 0")).await;
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
}

/// Behind a client's commit that waits already, the heartbeat's own state is only `waiting for handler commit`.
#[tokio::test]
async fn a_heartbeat_behind_a_commit_that_waits_for_its_acknowledgement_is_no_failure() {
    let server = primary().await;
    let mut prober = prober(&server);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    no_acknowledgement(&server).await;
    let waiting = waiting_commit(&server, 1).await;
    for _ in 0..4 {
        let shown = outcome(&mut prober, LIMIT).await;
        assert!(blocked_by(&shown, "acknowledges"), "{shown:?}");
    }
    assert!(!waiting.is_finished());
    let count: u32 = sessions_of_the_agent(&server).await.parse().unwrap();
    assert!(count <= 4, "{count} sessions: a probe that hangs must not open more and more");
}

#[tokio::test]
async fn a_backups_locks_are_no_failure() {
    let server = primary().await;
    let mut prober = prober(&server);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    let global = session(&server.root(), &["FLUSH TABLES WITH READ LOCK"]).await;
    for _ in 0..3 {
        let shown = outcome(&mut prober, LIMIT).await;
        assert!(blocked_by(&shown, "global read lock"), "{shown:?}");
    }
    drop(global);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    let _instance = session(&server.root(), &["LOCK INSTANCE FOR BACKUP"]).await;
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
}

#[tokio::test]
async fn a_backups_lock_while_an_acknowledgement_is_missing_is_no_failure_either() {
    let server = primary().await;
    let mut prober = prober(&server);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    // The local write, which is to prove the engine alive, waits for this lock.
    let _lock = session(&server.root(), &["LOCK TABLES mysql_ha.local READ"]).await;
    no_acknowledgement(&server).await;
    let _waiting = waiting_commit(&server, 1).await;
    for _ in 0..3 {
        let shown = outcome(&mut prober, LIMIT).await;
        assert!(matches!(shown, Outcome::Blocked { .. }), "{shown:?}");
    }
    let count: u32 = sessions_of_the_agent(&server).await.parse().unwrap();
    assert!(count <= 4, "{count} sessions: a probe that hangs must not open more and more");
}

/// The binary log cannot be written: commits hang in it, nothing waits for a replica, and reads go on as ever.
#[tokio::test]
async fn a_commit_that_hangs_in_the_server_itself_is_a_failure() {
    let server = primary().await;
    let mut prober = prober(&server);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    // A delay within the group commit stands for the disk that does not come back.
    let slow = "SET GLOBAL binlog_group_commit_sync_delay=1000000, GLOBAL binlog_group_commit_sync_no_delay_count=0";
    server.root_runs(&[slow]).await;
    let shown = outcome(&mut prober, Duration::from_millis(200)).await;
    assert!(matches!(shown, Outcome::Failure { .. }), "{shown:?}");
}

#[tokio::test]
async fn killed_connections_are_opened_again_and_are_no_failure() {
    let server = primary().await;
    let mut prober = prober(&server);
    for _ in 0..3 {
        assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
        let mut root = Connection::open(&server.root(), LONG).await.unwrap();
        let sql = "SELECT ID AS id FROM performance_schema.processlist WHERE USER = 'agent'";
        for row in root.rows(sql, LONG).await.unwrap() {
            root.run(&format!("KILL {}", row.text_or_empty("id")), LONG).await.unwrap();
        }
    }
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
}

#[tokio::test]
async fn a_wrong_password_is_reported_and_no_failure() {
    let server = primary().await;
    let wrong = Target::new(server.agent().place().clone(), "agent", "wrong");
    let shown = Prober::new(wrong, None, "mysql_ha".into()).probe(None, "life", LONG).await.outcome;
    assert!(matches!(&shown, Outcome::Refused { why } if why.contains("mysql.password")), "{shown:?}");
}

#[tokio::test]
async fn a_revoked_privilege_is_reported_and_no_failure() {
    let server = primary().await;
    let mut prober = prober(&server);
    let revoke = "REVOKE INSERT, DELETE, UPDATE ON mysql_ha.* FROM mysql_ha_agent";
    server.root_runs(&[revoke]).await;
    let shown = outcome(&mut prober, LONG).await;
    assert!(matches!(shown, Outcome::Refused { .. }), "{shown:?}");
}

#[tokio::test]
async fn a_saturated_server_is_reported_and_no_failure() {
    let server = primary().await;
    server.root_runs(&["SET GLOBAL max_connections=10"]).await;
    // Sessions that are closing still count: wait until only the one that looks is there.
    server.until("(SELECT COUNT(*) FROM performance_schema.processlist WHERE USER IN ('root', 'agent')) = 1").await;
    let mut sessions = Vec::new();
    while let Ok(client) = Connection::open(&server.app(), LONG).await {
        sessions.push(client);
    }
    // And the reserved one, for accounts with CONNECTION_ADMIN.
    while let Ok(root) = Connection::open(&server.root(), LONG).await {
        sessions.push(root);
    }
    let shown = outcome(&mut prober(&server), LONG).await;
    assert!(matches!(&shown, Outcome::Refused { why } if why.contains("mysql.admin")), "{shown:?}");
}

#[tokio::test]
async fn a_frozen_server_is_a_failure() {
    let server = primary().await;
    let mut prober = prober(&server);
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
    server.signal("STOP");
    for _ in 0..2 {
        let shown = outcome(&mut prober, LIMIT).await;
        assert!(matches!(shown, Outcome::Failure { .. }), "{shown:?}");
    }
    server.signal("CONT");
    assert_eq!(outcome(&mut prober, LONG).await, Outcome::Success);
}

#[tokio::test]
async fn the_process_is_found_through_the_socket_and_its_exit_is_noticed() {
    let mut server = primary().await;
    let mysqld = Mysqld::behind(&server.socket()).unwrap();
    assert!(!mysqld.has_exited());
    server.kill();
    mysqld.exited().await;
    let shown = outcome(&mut prober(&server), LONG).await;
    assert!(matches!(shown, Outcome::Failure { .. }), "{shown:?}");
    server.restart().await;
    let next = Mysqld::behind(&server.socket()).unwrap();
    assert_ne!(next.incarnation("boot"), mysqld.incarnation("boot"));
}

pub(crate) async fn reading(server: &Server) -> Reading {
    let mut connection = Connection::open(&server.agent(), LONG).await.unwrap();
    facts::Reader::new("mysql_ha").read(&mut connection, "life", LONG).await.unwrap()
}

#[tokio::test]
async fn facts_of_a_primary_and_of_its_replica() {
    let (primary, replica) = tokio::join!(primary(), Server::start());
    replica.replicate_from(&primary).await;
    let (Reading::Facts(source), Reading::Facts(copy)) = (reading(&primary).await, reading(&replica).await) else {
        panic!("unsupported")
    };
    assert!(source.writable() && source.channel.is_none() && source.heartbeat_table && !source.persisted_read_only);
    assert_eq!(source.replicas, [replica.uuid().await]);
    let channel = copy.channel.clone().unwrap();
    assert_eq!((channel.source, channel.source_uuid), (primary.address(), primary.uuid().await));
    assert!(!copy.writable() && copy.super_read_only && channel.auto_position && channel.sql_running);
    assert_eq!(copy.received(), source.executed);
}

/// By one reader that knows the plugins' names from before: what changes is seen, also that a plugin is gone.
#[tokio::test]
async fn semi_sync_is_read_as_it_is_now() {
    let server = primary().await;
    let mut control = Control::new(server.agent(), settings());
    // Only then are the names kept.
    control.execute(&MysqlAction::PersistReadOnly).await.unwrap();
    let mut reader = facts::Reader::new("mysql_ha");
    let mut connection = Connection::open(&server.agent(), LONG).await.unwrap();
    let mut semi_sync = async || match reader.read(&mut connection, "life", LONG).await.unwrap() {
        Reading::Facts(facts) => facts.semi_sync,
        Reading::Unsupported(why) => panic!("{why}"),
    };
    let seen = semi_sync().await;
    assert!(!seen.source.unwrap().on && !seen.replica.unwrap().enabled);
    control.execute(&MysqlAction::AwaitAcknowledgements { count: 2 }).await.unwrap();
    let source = semi_sync().await.source.unwrap();
    assert!(source.on && source.strict && source.count == 2, "{source:?}");
    server.root_runs(&["SET GLOBAL rpl_semi_sync_source_timeout=10000, GLOBAL rpl_semi_sync_replica_enabled=ON"]).await;
    let seen = semi_sync().await;
    assert!(!seen.source.unwrap().strict);
    let replica = seen.replica.unwrap();
    assert!(replica.enabled && !replica.active, "nothing is received: {replica:?}");
    control.execute(&MysqlAction::AwaitAcknowledgements { count: 0 }).await.unwrap();
    assert!(!semi_sync().await.source.unwrap().on);
    server.root_runs(&["UNINSTALL PLUGIN rpl_semi_sync_source"]).await;
    let seen = semi_sync().await;
    assert!(seen.source.is_none() && seen.replica.is_some(), "{seen:?}");
    // Nothing to switch off is as asked; nothing to switch on is not.
    control.execute(&MysqlAction::AwaitAcknowledgements { count: 0 }).await.unwrap();
    let refused = control.execute(&MysqlAction::AwaitAcknowledgements { count: 1 }).await.unwrap_err().to_string();
    assert!(refused.contains("plugin is not loaded"), "{refused}");
}

#[tokio::test]
async fn more_channels_than_one_are_not_for_us() {
    let server = Server::start().await;
    server.root_runs(&["CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1' FOR CHANNEL 'other'"]).await;
    let Reading::Unsupported(why) = reading(&server).await else { panic!("supported") };
    assert!(why.contains("FOR CHANNEL") && why.contains("other"), "{why}");
}
