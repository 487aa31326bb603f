//! The actions, each on real servers.

use std::time::Duration;

use mysql_ha_agent::core::action::MysqlAction;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::host::clock;
use mysql_ha_agent::mysql::connect::{Connection, Line, Target};
use mysql_ha_agent::mysql::control::{Control, ControlError, Done, Settings};
use mysql_ha_agent::mysql::{grants, open};

use crate::server::{LONG, Server};

/// For what is expected not to come.
const SHORT: Duration = Duration::from_millis(300);

pub(crate) fn control(server: &Server) -> Control {
    let settings = Settings {
        schema: "mysql_ha".into(),
        replication_user: "repl".into(),
        replication_password: "repl-secret".into(),
        replication_tls: false,
        spare_users: vec!["root".into()],
    };
    Control::new(server.agent(), settings)
}

pub(crate) async fn act(server: &Server, action: MysqlAction) -> Result<Done, ControlError> {
    control(server).execute(&action).await
}

async fn follow(server: &Server, primary: &Server) -> Result<Done, ControlError> {
    let action =
        MysqlAction::Follow { address: primary.address(), server_uuid: primary.uuid().await, acknowledge: false };
    act(server, action).await
}

async fn fetch(server: &Server, from: &Server, set: &GtidSet, limit: Duration) -> Result<Done, ControlError> {
    act(server, MysqlAction::Fetch { from: from.address(), set: set.clone(), limit }).await
}

async fn open_until(server: &Server, not_after: Moment) -> Result<Done, ControlError> {
    act(server, MysqlAction::Open { not_after, acknowledgements: 0 }).await
}

pub(crate) async fn executed(server: &Server) -> GtidSet {
    server.value("@@global.gtid_executed").await.parse().unwrap()
}

pub(crate) async fn status(server: &Server, column: &str) -> String {
    server.row("SHOW REPLICA STATUS").await.text_or_empty(column)
}

async fn is_read_only(server: &Server) -> bool {
    server.value("@@global.super_read_only").await == "1"
}

async fn hold(target: &Target, statements: &[&str]) -> Connection {
    let mut session = Connection::open(target, LONG).await.unwrap();
    for sql in statements {
        session.run(sql, LONG).await.unwrap();
    }
    session
}

/// A primary with `app.x`, and a replica of it.
pub(crate) async fn pair() -> (Server, Server) {
    let (primary, replica) = tokio::join!(Server::start(), Server::start());
    primary.root_runs(&["CREATE TABLE app.x (id INT PRIMARY KEY)"]).await;
    replica.replicate_from(&primary).await;
    (primary, replica)
}

/// Rows that the replica receives and cannot apply while the returned session lives.
pub(crate) async fn held_back(primary: &Server, replica: &Server, rows: u32) -> Connection {
    let lock = hold(&replica.root(), &["LOCK TABLES app.x READ"]).await;
    for id in 1..=rows {
        primary.root_runs(&[&format!("INSERT INTO app.x VALUES ({id})")]).await;
    }
    let all = executed(primary).await;
    let retrieved = async {
        while !status(replica, "Retrieved_Gtid_Set").await.parse::<GtidSet>().unwrap().contains(&all) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, retrieved).await.expect("the replica receives while its applier waits");
    lock
}

#[tokio::test]
async fn the_io_thread_stops_and_the_applier_starts_and_both_can_be_repeated() {
    let (primary, replica) = pair().await;
    for _ in 0..2 {
        assert_eq!(act(&replica, MysqlAction::StopIo).await.unwrap(), Done::Done);
        assert_eq!(status(&replica, "Replica_IO_Running").await, "No");
        assert_eq!(status(&replica, "Replica_SQL_Running").await, "Yes");
    }
    replica.root_runs(&["STOP REPLICA"]).await;
    for _ in 0..2 {
        act(&replica, MysqlAction::StartApplier).await.unwrap();
        assert_eq!(status(&replica, "Replica_SQL_Running").await, "Yes");
        assert_eq!(status(&replica, "Replica_IO_Running").await, "No");
    }
    assert_eq!(act(&primary, MysqlAction::StopIo).await.unwrap(), Done::Done);
}

#[tokio::test]
async fn waiting_for_the_applier_ends_by_success_limit_or_its_error() {
    let (primary, replica) = pair().await;
    let lock = held_back(&primary, &replica, 2).await;
    let set = executed(&primary).await;
    let wait = |limit| MysqlAction::WaitApplied { set: set.clone(), limit };
    let missing = set.subtract(&executed(&replica).await);
    assert_eq!(act(&replica, wait(SHORT)).await.unwrap(), Done::NotYet { missing });
    drop(lock);
    assert_eq!(act(&replica, wait(LONG)).await.unwrap(), Done::Done);

    // A row that is there already stops the applier with an error: waiting on would be for nothing.
    replica
        .root_runs(&["SET GLOBAL super_read_only=OFF", "SET SESSION sql_log_bin=0", "INSERT INTO app.x VALUES (77)"])
        .await;
    primary.root_runs(&["INSERT INTO app.x VALUES (77)"]).await;
    let error = act(&replica, MysqlAction::WaitApplied { set: executed(&primary).await, limit: LONG * 20 }).await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("failed executing transaction"), "{text}");
}

/// What was received and not applied survives re-pointing, even where the old source is gone for good.
#[tokio::test]
async fn interleaving_15_repointing_keeps_what_was_received() {
    let (mut old, replica) = pair().await;
    let new = Server::start().await;
    new.replicate_from(&old).await;
    let lock = held_back(&old, &replica, 5).await;
    let acknowledged = executed(&old).await;
    new.catch_up(&old).await;
    old.kill();
    new.root_runs(&["STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL super_read_only=OFF", "SET GLOBAL read_only=OFF"])
        .await;
    assert_eq!(follow(&replica, &new).await.unwrap(), Done::Done);
    assert!(!executed(&replica).await.contains(&acknowledged), "the applier was to be held back");
    let retrieved: GtidSet = status(&replica, "Retrieved_Gtid_Set").await.parse().unwrap();
    assert!(retrieved.union(&executed(&replica).await).contains(&acknowledged), "received transactions were purged");
    drop(lock);
    act(&replica, MysqlAction::WaitApplied { set: acknowledged, limit: LONG }).await.unwrap();
    assert_eq!(replica.value("(SELECT COUNT(*) FROM app.x)").await, "5");
    assert_eq!(status(&replica, "Source_Port").await, new.address().rsplit_once(':').unwrap().1);
}

#[tokio::test]
async fn a_new_server_follows_and_following_again_changes_nothing() {
    let (primary, _) = pair().await;
    let fresh = Server::start().await;
    fresh.root_runs(&["SET GLOBAL offline_mode=ON"]).await;
    assert_eq!(follow(&fresh, &primary).await.unwrap(), Done::Done);
    fresh.catch_up(&primary).await;
    assert!(is_read_only(&fresh).await);
    assert_eq!(fresh.value("@@global.offline_mode").await, "0");
    // Not by the server's default, which is TLS in 9.x.
    assert_eq!(status(&fresh, "Source_SSL_Allowed").await, "No");
    let relay_log = status(&fresh, "Relay_Log_File").await;
    assert_eq!(follow(&fresh, &primary).await.unwrap(), Done::Done);
    assert_eq!(status(&fresh, "Relay_Log_File").await, relay_log);
}

#[tokio::test]
async fn a_server_with_extra_transactions_is_named_diverged_and_left_as_it_is() {
    let (primary, replica) = pair().await;
    let before = executed(&primary).await;
    replica.root_runs(&["SET GLOBAL super_read_only=OFF", "INSERT INTO app.x VALUES (9)", "STOP REPLICA"]).await;
    let extra = executed(&replica).await.subtract(&before);
    assert_eq!(extra.count(), 1);
    assert_eq!(follow(&replica, &primary).await.unwrap(), Done::Diverged { extra });
    assert_eq!(status(&replica, "Replica_IO_Running").await, "No");
}

#[tokio::test]
async fn another_server_at_the_address_is_refused() {
    let (primary, replica) = pair().await;
    let server_uuid = "11111111-1111-1111-1111-111111111111".to_owned();
    let address = primary.address();
    let actions = [
        MysqlAction::Follow { address: address.clone(), server_uuid: server_uuid.clone(), acknowledge: false },
        MysqlAction::FenceRemote { address, server_uuid, limit: LONG, acknowledged: false },
    ];
    for action in actions {
        let error = act(&replica, action).await.unwrap_err();
        assert!(matches!(&error, ControlError::WrongServer { .. }), "{error}");
    }
    assert!(!is_read_only(&primary).await);
    assert_eq!(primary.value("@@global.offline_mode").await, "0");
}

/// A lower lock that has received less gets the rest from another candidate, and is frozen again afterwards.
#[tokio::test]
async fn what_another_candidate_has_received_more_is_fetched() {
    let (mut primary, ahead) = pair().await;
    let behind = Server::start().await;
    behind.replicate_from(&primary).await;
    act(&behind, MysqlAction::StopIo).await.unwrap();
    primary.root_runs(&["INSERT INTO app.x VALUES (1)"]).await;
    ahead.catch_up(&primary).await;
    let all = executed(&primary).await;
    primary.kill();
    assert_eq!(fetch(&behind, &ahead, &all, LONG).await.unwrap(), Done::Done);
    assert_eq!(status(&behind, "Replica_IO_Running").await, "No");
    act(&behind, MysqlAction::WaitApplied { set: all.clone(), limit: LONG }).await.unwrap();

    let nobody_has: GtidSet = "11111111-1111-1111-1111-111111111111:1".parse().unwrap();
    let not_there = fetch(&behind, &ahead, &nobody_has, SHORT).await.unwrap();
    assert_eq!(not_there, Done::NotYet { missing: nobody_has });
    assert_eq!(status(&behind, "Replica_IO_Running").await, "No");
}

#[tokio::test]
async fn opening_ends_replication_and_takes_writes() {
    let (_primary, replica) = pair().await;
    replica.root_runs(&["SET GLOBAL offline_mode=ON"]).await;
    for _ in 0..2 {
        open_until(&replica, clock::now() + LONG).await.unwrap();
        assert_eq!(
            replica.value("CONCAT(@@global.read_only, @@global.super_read_only, @@global.offline_mode)").await,
            "000"
        );
    }
    assert_eq!(status(&replica, "Replica_IO_Running").await, "No");
    for _ in 0..2 {
        act(&replica, MysqlAction::ForgetSource).await.unwrap();
    }
    let channels = "(SELECT COUNT(*) FROM performance_schema.replication_connection_configuration)";
    assert_eq!(replica.value(channels).await, "0");
    Connection::open(&replica.app(), LONG).await.unwrap().run("INSERT INTO app.x VALUES (1)", LONG).await.unwrap();
}

/// The lease had ended when the server got the statement.
#[tokio::test]
async fn interleaving_14_a_lease_that_has_ended_opens_nothing() {
    let (_primary, replica) = pair().await;
    let error = open_until(&replica, clock::now() - Duration::from_millis(1)).await.unwrap_err();
    assert!(matches!(error, ControlError::TooLate), "{error}");
    assert!(is_read_only(&replica).await);
}

/// The agent was paused between composing the statement and sending it: the server itself sees that it comes late.
#[tokio::test]
async fn interleaving_14_a_statement_that_arrives_late_leaves_the_server_read_only() {
    let server = Server::start().await;
    server.root_runs(&["SET GLOBAL super_read_only=ON"]).await;
    let mut agent = hold(&server.agent(), &[]).await;
    let composed = agent.row("SELECT UTC_TIMESTAMP(6) AS now", LONG).await.unwrap().text_or_empty("now");
    let both = "CONCAT(@@global.read_only, @@global.super_read_only)";
    agent.run(&open::statement(&composed, Duration::ZERO), LONG).await.unwrap();
    assert_eq!(server.value(both).await, "11");
    agent.run(&open::statement(&composed, LONG * 20), LONG).await.unwrap();
    assert_eq!(server.value(both).await, "00");
}

#[tokio::test]
async fn interleaving_14_a_server_that_thaws_after_the_leases_end_stays_read_only() {
    let (_primary, replica) = pair().await;
    let mut control = control(&replica);
    assert!(control.warm(LONG).await);
    replica.signal("STOP");
    let until = clock::now() + SHORT;
    let opening =
        tokio::spawn(
            async move { control.execute(&MysqlAction::Open { not_after: until, acknowledgements: 0 }).await },
        );
    while clock::now() < until {
        tokio::time::sleep(until.until(clock::now())).await;
    }
    replica.signal("CONT");
    let result = opening.await.unwrap();
    assert!(matches!(result, Err(ControlError::TooLate)), "{result:?}");
    assert!(is_read_only(&replica).await);
}

#[tokio::test]
async fn opening_is_refused_while_something_received_is_not_applied() {
    let (primary, replica) = pair().await;
    let _lock = held_back(&primary, &replica, 1).await;
    let error = open_until(&replica, clock::now() + LONG).await.unwrap_err();
    assert!(matches!(&error, ControlError::Unapplied { missing, .. } if missing.count() == 1), "{error}");
    assert!(is_read_only(&replica).await);
    let retrieved: GtidSet = status(&replica, "Retrieved_Gtid_Set").await.parse().unwrap();
    assert!(retrieved.contains(&executed(&primary).await.subtract(&executed(&replica).await)));
}

/// Enabling an event must change neither whose rights it has nor how its statement is read.
#[tokio::test]
async fn events_are_enabled_with_their_definer_and_sql_mode() {
    let (primary, replica) = pair().await;
    primary
        .root_runs(&[
            "GRANT SET_ANY_DEFINER ON *.* TO agent",
            "SET SESSION sql_mode='ANSI_QUOTES', time_zone='+05:00'",
            "CREATE EVENT app.e ON SCHEDULE EVERY 1 DAY DO INSERT INTO app.x VALUES (1)",
        ])
        .await;
    replica.catch_up(&primary).await;
    let event =
        "(SELECT CONCAT_WS('|', DEFINER, SQL_MODE, TIME_ZONE) FROM information_schema.EVENTS WHERE EVENT_NAME='e')";
    let before = replica.value(event).await;
    open_until(&replica, clock::now() + LONG).await.unwrap();
    replica.until("(SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME='e') = 'ENABLED'").await;
    assert_eq!(replica.value(event).await, before);
    assert!(before.contains("ANSI_QUOTES|+05:00"), "{before}");
}

#[tokio::test]
async fn closing_waits_for_nobody_longer_than_its_limit_and_then_leaves_the_server_writable() {
    let server = Server::start().await;
    server.root_runs(&["CREATE TABLE app.x (id INT PRIMARY KEY)"]).await;
    let mut lock = hold(&server.app(), &["LOCK TABLES app.x WRITE"]).await;
    let error = loop {
        // Seen to do something just now; on a machine that stalls it may be seen later, and then it is not even tried.
        lock.run("DO 1", LONG).await.unwrap();
        match act(&server, MysqlAction::Close { limit: SHORT }).await.unwrap_err() {
            ControlError::HeldUp { .. } => {}
            error => break error,
        }
    };
    assert!(matches!(&error, ControlError::NotClosed { .. }) && error.touched(), "{error}");
    assert!(error.to_string().contains("app"), "{error}");
    assert_eq!(server.value("CONCAT(@@global.read_only, @@global.super_read_only)").await, "00");
    // Nothing of it is left waiting to come true later.
    server.until("NOT EXISTS (SELECT 1 FROM performance_schema.processlist WHERE INFO LIKE 'SET GLOBAL super%')").await;
    drop(lock);
    for _ in 0..2 {
        let done = act(&server, MysqlAction::Close { limit: LONG }).await.unwrap();
        assert!(matches!(done, Done::Closed { .. }), "{done:?}");
        assert!(is_read_only(&server).await);
    }
}

/// Whoever sits on a lock is named before anything is tried: trying would hold up everybody's writes for the length of the limit.
#[tokio::test]
async fn closing_is_not_tried_while_somebody_sits_on_a_lock() {
    let server = Server::start().await;
    server.root_runs(&["CREATE TABLE app.x (id INT PRIMARY KEY)"]).await;
    for (statement, target) in
        [("LOCK TABLES app.x WRITE", server.app()), ("FLUSH TABLES WITH READ LOCK", server.root())]
    {
        let lock = hold(&target, &[statement]).await;
        let idle = format!("SELECT 1 FROM performance_schema.processlist WHERE ID = {} AND TIME >= 2", lock.id());
        server.until(&format!("EXISTS ({idle})")).await;
        let error = act(&server, MysqlAction::Close { limit: LONG }).await.unwrap_err();
        assert!(matches!(&error, ControlError::HeldUp { .. }) && !error.touched(), "{statement}: {error}");
        let session = format!("session {} of {}", lock.id(), target.user());
        assert!(error.to_string().contains(&session), "{statement}: {error}");
        assert_eq!(server.value("CONCAT(@@global.read_only, @@global.super_read_only)").await, "00");
    }
    // A long transaction that is idle holds nothing that read-only waits for.
    let idle = hold(&server.app(), &["BEGIN", "INSERT INTO app.x VALUES (1)"]).await;
    let since = format!("SELECT 1 FROM performance_schema.processlist WHERE ID = {} AND TIME >= 2", idle.id());
    server.until(&format!("EXISTS ({since})")).await;
    assert!(matches!(act(&server, MysqlAction::Close { limit: LONG }).await, Ok(Done::Closed { .. })));
}

/// A role's privileges count where the role is active, and only there.
#[tokio::test]
async fn what_an_account_may_do_by_its_roles_is_read_alike() {
    let server = Server::start().await;
    server
        .root_runs(&[
            "CREATE ROLE 'a role'",
            "GRANT RELOAD, SYSTEM_USER ON *.* TO 'a role'",
            "GRANT INSERT ON `mysql\\_ha`.* TO 'a role'",
            "GRANT SELECT (User, Host) ON mysql.user TO 'a role'",
            "CREATE USER active IDENTIFIED BY 'x'",
            "CREATE USER idle IDENTIFIED BY 'x'",
            "GRANT 'a role' TO active, idle",
            "GRANT PROCESS ON *.* TO active, idle",
            "SET DEFAULT ROLE 'a role' TO active",
        ])
        .await;
    for (user, active) in [("active", true), ("idle", false)] {
        let mut line = Line::new(Target::new(server.agent().place().clone(), user, "x"));
        let grants = grants::of_session(&mut line, LONG).await.unwrap();
        assert!(grants.has("PROCESS") && !grants.has("SHUTDOWN"), "{user}: {grants:?}");
        for by_role in [
            grants.has("RELOAD"),
            grants.has("SYSTEM_USER"),
            grants.has_on("mysql_ha", "INSERT"),
            grants.reads("mysql", "user", &["User", "Host"]),
        ] {
            assert_eq!(by_role, active, "{user}: {grants:?}");
        }
        assert!(!grants.has_on("mysqlxha", "INSERT") && !grants.reads("mysql", "user", &["plugin"]), "{grants:?}");
    }
}

/// The failsafe looks whether a primary's host is there at all: no login, since one may hang.
#[tokio::test]
async fn a_host_is_reached_by_whoever_may_log_in_there_or_not() {
    let (primary, replica) = pair().await;
    let reach = |address: String| MysqlAction::Reach { address, limit: LONG };
    primary.root_runs(&["ALTER USER agent ACCOUNT LOCK"]).await;
    assert_eq!(act(&replica, reach(primary.address())).await.unwrap(), Done::Done);
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = act(&replica, reach(nobody.to_string())).await.unwrap_err();
    assert!(error.to_string().contains("primary's host"), "{error}");
}

#[tokio::test]
async fn the_old_primary_is_fenced_over_the_network() {
    let (primary, replica) = pair().await;
    let server_uuid = primary.uuid().await;
    let action = MysqlAction::FenceRemote { address: primary.address(), server_uuid, limit: LONG, acknowledged: true };
    assert_eq!(act(&replica, action).await.unwrap(), Done::Done);
    assert!(is_read_only(&primary).await);
    // Its own agent, back in time, tells it by this from an operator's read-only (row P6).
    assert_eq!(primary.value("@@global.offline_mode").await, "1");
}

#[tokio::test]
async fn a_restarted_server_comes_up_read_only_and_does_not_replicate() {
    let (primary, mut replica) = pair().await;
    for _ in 0..2 {
        act(&replica, MysqlAction::PersistReadOnly).await.unwrap();
    }
    replica.root_runs(&["SET GLOBAL super_read_only=OFF", "SET GLOBAL read_only=OFF"]).await;
    replica.kill();
    replica.restart().await;
    assert!(is_read_only(&replica).await);
    assert_eq!(status(&replica, "Replica_IO_Running").await, "No");
    assert_eq!(status(&replica, "Replica_SQL_Running").await, "No");
    assert_eq!(follow(&replica, &primary).await.unwrap(), Done::Done);
    replica.catch_up(&primary).await;
}

#[tokio::test]
async fn the_heartbeat_table_is_made_once_and_costs_no_transaction_afterwards() {
    let server = Server::start().await;
    act(&server, MysqlAction::CreateHeartbeatTable).await.unwrap();
    let before = executed(&server).await;
    assert!(!before.is_empty());
    act(&server, MysqlAction::CreateHeartbeatTable).await.unwrap();
    assert_eq!(executed(&server).await, before);
    assert_eq!(server.value("(SELECT COUNT(*) FROM mysql_ha.heartbeat)").await, "0");
}

#[tokio::test]
async fn interleaving_04_a_restart_never_acknowledges_by_itself() {
    let (_primary, replica) = pair().await;
    act(&replica, MysqlAction::Acknowledge { on: true }).await.unwrap();
    let status = "(SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Rpl_semi_sync_replica_status')";
    replica.until(&format!("{status} = 'ON'")).await;
    act(&replica, MysqlAction::PersistReadOnly).await.unwrap();
    let persisted = "(SELECT VARIABLE_VALUE FROM performance_schema.persisted_variables \
                     WHERE VARIABLE_NAME = 'rpl_semi_sync_replica_enabled')";
    assert_eq!(replica.value(persisted).await, "OFF");
    assert_eq!(replica.value("@@global.rpl_semi_sync_replica_enabled").await, "1", "it goes on in this life");
    act(&replica, MysqlAction::Acknowledge { on: false }).await.unwrap();
    replica.until(&format!("{status} = 'OFF'")).await;
}

#[tokio::test]
async fn interleaving_04_a_frozen_replica_acknowledges_nothing_when_somebody_starts_its_io_thread() {
    let (_primary, replica) = pair().await;
    act(&replica, MysqlAction::Acknowledge { on: true }).await.unwrap();
    act(&replica, MysqlAction::StopIo).await.unwrap();
    replica.root_runs(&["START REPLICA IO_THREAD"]).await;
    replica.until("(SELECT SERVICE_STATE FROM performance_schema.replication_connection_status) = 'ON'").await;
    let status = "(SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Rpl_semi_sync_replica_status')";
    assert_eq!(replica.value(status).await, "OFF", "interleaving 4");
}

#[tokio::test]
async fn a_long_binary_log_file_is_ended_before_others_follow_and_a_short_one_is_kept() {
    let (primary, replica) = pair().await;
    let file = async || replica.row("SHOW BINARY LOG STATUS").await;
    let before = file().await.text_or_empty("File");
    act(&replica, MysqlAction::FlushBinaryLog).await.unwrap();
    assert_eq!(file().await.text_or_empty("File"), before, "short: nothing is gained");
    primary
        .root_runs(&["CREATE TABLE app.long (x LONGTEXT)", "INSERT INTO app.long VALUES (REPEAT('x', 100 * 1024))"])
        .await;
    replica.catch_up(&primary).await;
    let all = executed(&replica).await;
    act(&replica, MysqlAction::FlushBinaryLog).await.unwrap();
    let after = file().await;
    assert_ne!(after.text_or_empty("File"), before);
    assert!(after.number("Position").unwrap() < 1024, "{after:?}");
    assert_eq!(executed(&replica).await, all, "not logged itself, though the server is read-only");
}

#[tokio::test]
async fn closing_tells_all_that_the_server_will_ever_have_executed_as_the_primary() {
    let (primary, _replica) = pair().await;
    for _ in 0..2 {
        let done = act(&primary, MysqlAction::Close { limit: LONG }).await.unwrap();
        assert_eq!(done, Done::Closed { executed: executed(&primary).await }, "also where it was closed already");
    }
}

#[tokio::test]
async fn clients_are_ended_and_replicas_and_spared_accounts_are_not() {
    let (primary, replica) = pair().await;
    let mut client = hold(&primary.app(), &["SELECT 1"]).await;
    let mut spared = hold(&primary.root(), &["SELECT 1"]).await;
    act(&primary, MysqlAction::EndClientConnections).await.unwrap();
    assert!(client.run("SELECT 1", LONG).await.is_err());
    spared.run("INSERT INTO app.x VALUES (3)", LONG).await.unwrap();
    replica.catch_up(&primary).await;
}
