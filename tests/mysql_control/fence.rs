//! The ladder against everything that holds `super_read_only` up.

use std::sync::Arc;
use std::time::Duration;

use mysql_ha_agent::core::fencing::Rung;
use mysql_ha_agent::host::process::Mysqld;
use mysql_ha_agent::mysql::connect::{Connection, Target};
use mysql_ha_agent::mysql::fault::Fault;
use mysql_ha_agent::mysql::fence::{Fence, Fenced, Report};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::server::{LONG, Server};

/// Far more than the ladder needs, so that a rung is taken for its reason and not because the machine was busy.
const BUDGET: Duration = Duration::from_secs(5);

pub(crate) async fn server() -> Server {
    let server = Server::start().await;
    server.root_runs(&["CREATE TABLE app.x (id INT PRIMARY KEY)"]).await;
    server
}

pub(crate) async fn fence_of(server: &Server, known: bool) -> Fence {
    let mysqld = known.then(|| Arc::new(Mysqld::behind(&server.socket()).unwrap()));
    let (_, receiver) = watch::channel(mysqld);
    let mut fence = Fence::new(&server.agent(), vec!["spared".into()], receiver);
    fence.keep_open(LONG).await.unwrap();
    fence
}

/// A session that has executed `statements` and stays.
pub(crate) async fn session(target: &Target, statements: &[&str]) -> Connection {
    let mut session = Connection::open_waiting(target, LONG, 1000).await.unwrap();
    for sql in statements {
        session.run(sql, LONG).await.unwrap();
    }
    session
}

/// A statement that hangs, seen hanging in `state`.
pub(crate) async fn hanging(
    server: &Server,
    target: &Target,
    sql: &'static str,
    state: &str,
) -> JoinHandle<Result<(), Fault>> {
    let mut connection = session(target, &[]).await;
    let statement = tokio::spawn(async move { connection.run(sql, LONG * 10).await });
    server.until(&format!("EXISTS (SELECT 1 FROM performance_schema.processlist WHERE STATE LIKE '{state}%')")).await;
    statement
}

async fn assert_read_only(server: &Server, report: &Report, rung: Rung) {
    assert_eq!((&report.fenced, report.rung), (&Fenced::ReadOnly, Some(rung)), "{report:?}");
    assert_eq!(server.value("@@global.super_read_only").await, "1");
}

#[tokio::test]
async fn an_idle_server_is_closed_at_once_and_its_clients_are_cut() {
    let server = server().await;
    let mut client = session(&server.app(), &["SELECT 1"]).await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_read_only(&server, &report, Rung::ReadOnly).await;
    assert!(client.run("SELECT 1", LONG).await.is_err());
    assert!(Connection::open(&server.app(), LONG).await.is_err());
}

#[tokio::test]
async fn a_read_only_server_is_left_alone() {
    let server = server().await;
    server.root_runs(&["SET GLOBAL super_read_only=ON"]).await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_eq!((report.fenced, report.rung), (Fenced::ReadOnly, None));
    assert_eq!(server.value("@@global.offline_mode").await, "0");
}

#[tokio::test]
async fn a_client_with_locked_tables_goes_when_clients_are_cut() {
    let server = server().await;
    let _client = session(&server.app(), &["LOCK TABLES app.x WRITE"]).await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_read_only(&server, &report, Rung::Offline).await;
}

#[tokio::test]
async fn an_administrator_with_locked_tables_is_killed() {
    let server = server().await;
    let _admin = session(&server.root(), &["LOCK TABLES app.x WRITE"]).await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_read_only(&server, &report, Rung::KillSessions).await;
}

#[tokio::test]
async fn a_global_read_lock_of_an_administrator_does_not_keep_it_writable() {
    let server = server().await;
    let _admin = session(&server.root(), &["FLUSH TABLES WITH READ LOCK"]).await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_eq!(report.fenced, Fenced::ReadOnly, "{report:?}");
}

#[tokio::test]
async fn ddl_that_waits_for_a_metadata_lock_is_killed() {
    let server = server().await;
    let _reader = session(&server.root(), &["BEGIN", "SELECT * FROM app.x"]).await;
    let alter =
        hanging(&server, &server.root(), "ALTER TABLE app.x ADD c INT", "Waiting for table metadata lock").await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_read_only(&server, &report, Rung::KillSessions).await;
    assert!(alter.await.unwrap().is_err());
}

#[tokio::test]
async fn a_spared_account_is_spared_until_it_is_in_the_way() {
    let server = server().await;
    server.root_runs(&["CREATE USER spared@localhost", "GRANT ALL ON *.* TO spared@localhost"]).await;
    let spared = Target::new(server.root().place().clone(), "spared", "");
    let mut idle = session(&spared, &["SELECT 1"]).await;
    let mut holder = session(&spared, &["LOCK TABLES app.x WRITE"]).await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_read_only(&server, &report, Rung::KillSessions).await;
    assert!(holder.run("SELECT 1", LONG).await.is_err());
    idle.run("SELECT 1", LONG).await.unwrap();
}

/// Interleaving 10: whatever rung it takes, the commit must not return success.
#[tokio::test]
async fn interleaving_10_a_commit_that_waits_for_an_acknowledgement_never_returns_ok() {
    let server = server().await;
    let never = ["SET GLOBAL rpl_semi_sync_source_timeout=1000000000", "SET GLOBAL rpl_semi_sync_source_enabled=ON"];
    server.root_runs(&never).await;
    let commit = hanging(&server, &server.app(), "INSERT INTO app.x VALUES (1)", "Waiting for semi-sync ACK").await;
    let mysqld = Mysqld::behind(&server.socket()).unwrap();
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert!(commit.await.unwrap().is_err(), "an unacknowledged commit returned success");
    match report.fenced {
        Fenced::Dead => assert!(mysqld.has_exited()),
        Fenced::ReadOnly => assert_eq!(server.value("@@global.super_read_only").await, "1"),
        other => panic!("{other:?}"),
    }
}

/// The usual fence: clients commit all the while and a replica acknowledges. Whatever cuts the replica off while a commit is
/// under way leaves that commit waiting for ever, and the process to be killed for it.
#[tokio::test]
async fn a_busy_primary_with_a_healthy_replica_is_not_killed() {
    let (server, replica) = tokio::join!(server(), Server::start());
    replica.root_runs(&["SET GLOBAL rpl_semi_sync_replica_enabled=ON"]).await;
    replica.replicate_from(&server).await;
    let on = ["SET GLOBAL rpl_semi_sync_source_timeout=1000000000", "SET GLOBAL rpl_semi_sync_source_enabled=ON"];
    server.root_runs(&on).await;
    for round in 0..5 {
        let mut fence = fence_of(&server, true).await;
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let app = server.app();
                tokio::spawn(async move {
                    let mut connection = session(&app, &[]).await;
                    let mut written = 0;
                    let first = (round * 4 + client) * 100_000;
                    while connection.run(&format!("INSERT INTO app.x VALUES ({})", first + written), LONG).await.is_ok()
                    {
                        written += 1;
                    }
                    written
                })
            })
            .collect();
        server.until("(SELECT COUNT(*) FROM app.x) > 0").await;
        let report = fence.climb(BUDGET, || true).await;
        assert_eq!((&report.fenced, report.rung), (&Fenced::ReadOnly, Some(Rung::ReadOnly)), "{report:?}");
        for client in clients {
            client.await.unwrap();
        }
        server
            .root_runs(&["SET GLOBAL super_read_only=OFF", "SET GLOBAL read_only=OFF, GLOBAL offline_mode=OFF"])
            .await;
        server.until("@@global.rpl_semi_sync_source_enabled AND (SELECT VARIABLE_VALUE FROM performance_schema.global_status \
             WHERE VARIABLE_NAME = 'Rpl_semi_sync_source_clients') = '1'").await;
        server.root_runs(&["DELETE FROM app.x"]).await;
    }
}

/// What another ladder has begun and left hanging (an agent that froze in the midst of it) is finished, not believed.
#[tokio::test]
async fn a_read_only_that_still_waits_is_not_taken_for_done() {
    let server = server().await;
    let never = ["SET GLOBAL rpl_semi_sync_source_timeout=1000000000", "SET GLOBAL rpl_semi_sync_source_enabled=ON"];
    server.root_runs(&never).await;
    let _commit = hanging(&server, &server.app(), "INSERT INTO app.x VALUES (1)", "Waiting for semi-sync ACK").await;
    let _other = hanging(&server, &server.agent(), "SET GLOBAL super_read_only = ON", "").await;
    server.until("@@global.super_read_only").await;
    let report = fence_of(&server, true).await.climb(BUDGET, || true).await;
    assert_eq!((&report.fenced, report.rung), (&Fenced::Dead, Some(Rung::KillProcess)), "{report:?}");
}

/// A lease that was renewed in the midst of the fence: nothing is killed, and nothing of the fence closes the server later.
#[tokio::test]
async fn a_fence_that_is_not_needed_any_more_kills_nothing() {
    let server = server().await;
    let never = ["SET GLOBAL rpl_semi_sync_source_timeout=1000000000", "SET GLOBAL rpl_semi_sync_source_enabled=ON"];
    server.root_runs(&never).await;
    let _commit = hanging(&server, &server.root(), "INSERT INTO app.x VALUES (1)", "Waiting for semi-sync ACK").await;
    let mysqld = Mysqld::behind(&server.socket()).unwrap();
    let report = fence_of(&server, true).await.climb(BUDGET, || false).await;
    assert_eq!((&report.fenced, report.rung), (&Fenced::Withdrawn, Some(Rung::KillSessions)), "{report:?}");
    assert!(!mysqld.has_exited());
    let closers = "(SELECT COUNT(*) FROM performance_schema.processlist WHERE INFO LIKE 'SET GLOBAL super_read_only%')";
    server.until(&format!("{closers} = 0")).await;
    assert_eq!(server.value("@@global.super_read_only").await, "0");
}

#[tokio::test]
async fn a_frozen_server_is_killed() {
    let server = server().await;
    let mut fence = fence_of(&server, true).await;
    let mysqld = Mysqld::behind(&server.socket()).unwrap();
    server.signal("STOP");
    let report = fence.climb(Duration::from_secs(1), || true).await;
    assert_eq!((&report.fenced, report.rung), (&Fenced::Dead, Some(Rung::KillProcess)), "{report:?}");
    assert!(mysqld.has_exited());
}

#[tokio::test]
async fn a_frozen_server_whose_process_is_not_known_is_not_called_fenced() {
    let server = server().await;
    let mut fence = fence_of(&server, false).await;
    server.signal("STOP");
    let fenced = fence.climb(Duration::from_millis(500), || true).await.fenced;
    assert!(matches!(&fenced, Fenced::Failed(why) if why.contains("mysqld_pid_file")), "{fenced:?}");
}

#[tokio::test]
async fn a_server_that_has_exited_is_dead() {
    let mut server = server().await;
    let mut fence = fence_of(&server, true).await;
    server.kill();
    let report = fence.climb(BUDGET, || true).await;
    assert_eq!((report.fenced, report.rung), (Fenced::Dead, None));
}

/// A fence whose connections were killed meanwhile opens new ones.
#[tokio::test]
async fn killed_connections_are_opened_again() {
    let server = server().await;
    let mut fence = fence_of(&server, true).await;
    let ids = "SELECT GROUP_CONCAT(ID) AS ids FROM performance_schema.processlist WHERE USER='agent'";
    for id in server.row(ids).await.text_or_empty("ids").split(',') {
        server.root_runs(&[&format!("KILL {id}")]).await;
    }
    let report = fence.climb(BUDGET, || true).await;
    assert_read_only(&server, &report, Rung::ReadOnly).await;
}
