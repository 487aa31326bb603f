//! Shutting a replica out by its account, and letting it in again, on real servers.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_ha_agent::core::action::MysqlAction;
use mysql_ha_agent::mysql::connect::{Connection, Place, Target};
use mysql_ha_agent::mysql::control::{ControlError, Done};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::control::{act, executed, pair, status};
use crate::fence::hanging;
use crate::interleavings::{ACKNOWLEDGES, WAITS, acknowledging_pair};
use crate::server::{LONG, Server};

const CONNECTED: &str = "EXISTS (SELECT 1 FROM performance_schema.processlist WHERE USER LIKE 'repl%')";
const LOCKED: &str = "(SELECT account_locked FROM mysql.user WHERE User = 'repl' AND Host = '%') = 'Y'";

fn users(users: &[&str]) -> BTreeSet<String> {
    users.iter().map(|user| (*user).to_owned()).collect()
}

async fn shut_out(server: &Server, of: &[&str]) -> Result<Done, ControlError> {
    act(server, MysqlAction::ShutOut { member: "db3".into(), users: users(of) }).await
}

async fn let_in(server: &Server, member: &str) {
    act(server, MysqlAction::LetIn { member: member.into() }).await.unwrap();
}

/// It is done while a commit could not be acknowledged by anybody else, waits for nothing and logs nothing. Let in, the
/// replica acknowledges what waits with the next commit.
#[tokio::test]
async fn interleaving_06_a_connected_replica_acknowledges_nothing_more_and_is_let_in_again() {
    let (primary, replica) = acknowledging_pair().await;
    act(&primary, MysqlAction::CreateHeartbeatTable).await.unwrap();
    let before = executed(&primary).await;
    for _ in 0..2 {
        assert_eq!(shut_out(&primary, &["repl"]).await.unwrap(), Done::Done);
        assert_eq!(primary.value(CONNECTED).await, "0");
        assert_eq!(primary.value(LOCKED).await, "1");
    }
    replica.until("(SELECT LAST_ERROR_NUMBER FROM performance_schema.replication_connection_status) <> 0").await;
    let commit = hanging(&primary, &primary.app(), "INSERT INTO app.x VALUES (1)", WAITS).await;
    assert_eq!(primary.value(CONNECTED).await, "0");
    // Also while a commit waits: nothing of ours does.
    shut_out(&primary, &["repl"]).await.unwrap();
    let_in(&primary, "db2").await;
    assert_eq!(primary.value(LOCKED).await, "1", "it was locked for another member");
    let_in(&primary, "db3").await;
    assert_eq!(executed(&primary).await, before, "nothing of it is in the binary log");
    replica.until(ACKNOWLEDGES).await;
    act(&primary, MysqlAction::CommitMarker).await.unwrap();
    tokio::time::timeout(LONG, commit).await.expect("acknowledged again").unwrap().unwrap();
}

/// The replica's host stands still while it is shut out, and goes on afterwards with all that its connection had in store.
#[tokio::test]
async fn interleaving_06_a_replica_that_was_frozen_acknowledges_nothing_when_it_thaws() {
    let (primary, replica) = acknowledging_pair().await;
    replica.signal("STOP");
    let commit = hanging(&primary, &primary.app(), "INSERT INTO app.x VALUES (1)", WAITS).await;
    shut_out(&primary, &["repl"]).await.unwrap();
    replica.signal("CONT");
    // It has received what was under way, and has been refused since.
    replica.until("(SELECT LAST_ERROR_NUMBER FROM performance_schema.replication_connection_status) <> 0").await;
    replica.until("EXISTS (SELECT 1 FROM app.x)").await;
    let late = hanging(&primary, &primary.app(), "INSERT INTO app.x VALUES (2)", WAITS).await;
    assert!(!commit.is_finished() && !late.is_finished());
    assert_eq!(primary.value(CONNECTED).await, "0");
}

#[tokio::test]
async fn what_was_locked_by_hand_stays_so() {
    let server = Server::start().await;
    server
        .root_runs(&[
            "CREATE USER repl@'10.0.0.%' IDENTIFIED BY 'x' ATTRIBUTE '{\"team\": \"a\"}'",
            "CREATE USER 're''pl'@localhost ACCOUNT LOCK",
            "ALTER USER repl ACCOUNT LOCK",
        ])
        .await;
    let locked = "(SELECT GROUP_CONCAT(account_locked ORDER BY Host) FROM mysql.user WHERE User = 'repl')";
    assert_eq!(server.value(locked).await, "Y,N");
    shut_out(&server, &["repl", "re'pl"]).await.unwrap();
    assert_eq!(server.value(locked).await, "Y,Y", "for every host");
    let_in(&server, "db3").await;
    assert_eq!(server.value(locked).await, "Y,N", "the one that an operator had locked stays locked");
    let attribute =
        "(SELECT ATTRIBUTE FROM information_schema.USER_ATTRIBUTES WHERE USER = 'repl' AND HOST = '10.0.0.%')";
    assert_eq!(server.value(attribute).await, "{\"team\": \"a\"}", "nothing of ours is left, all else is");
}

#[tokio::test]
async fn what_cannot_be_made_certain_fails() {
    let server = Server::start().await;
    let missing = shut_out(&server, &["nobody"]).await.unwrap_err().to_string();
    assert!(missing.contains("no account 'nobody'"), "{missing}");
    let own = shut_out(&server, &["agent"]).await.unwrap_err().to_string();
    assert!(own.contains("mysql.user"), "{own}");
    server.root_runs(&["REVOKE CREATE USER ON *.* FROM mysql_ha_agent"]).await;
    assert!(shut_out(&server, &["repl"]).await.is_err());
    assert_eq!(server.value(LOCKED).await, "0");
    server.root_runs(&["GRANT CREATE USER ON *.* TO mysql_ha_agent", "SET GLOBAL super_read_only=ON"]).await;
    assert!(shut_out(&server, &["repl"]).await.is_err(), "a read-only server takes no account statement");
}

/// An earlier change may be under way still, sent by a process of ours that is dead: it is waited for, not overtaken.
#[tokio::test]
async fn two_changes_of_accounts_do_not_cross() {
    let server = Server::start().await;
    let mut other = Connection::open(&server.root(), LONG).await.unwrap();
    other.row("SELECT GET_LOCK('mysql_ha_agent.accounts', 0) AS got", LONG).await.unwrap();
    assert!(shut_out(&server, &["repl"]).await.is_err());
    assert_eq!(server.value(LOCKED).await, "0");
    other.row("SELECT RELEASE_LOCK('mysql_ha_agent.accounts') AS released", LONG).await.unwrap();
    shut_out(&server, &["repl"]).await.unwrap();
    // The session that holds the lock ends with the action: the next one finds it free.
    let_in(&server, "db3").await;
}

/// Whoever was logging in when the account was locked has no name yet, and may be let in: waited for, and ended if need be.
#[tokio::test]
async fn who_was_about_to_log_in_is_ended_too() {
    let server = Server::start().await;
    let mut entering = TcpStream::connect(server.address()).await.unwrap();
    let mut greeting = [0; 16];
    entering.read_exact(&mut greeting).await.unwrap();
    let nameless =
        "EXISTS (SELECT 1 FROM performance_schema.processlist WHERE USER = 'unauthenticated user' OR USER IS NULL)";
    server.until(nameless).await;
    let began = std::time::Instant::now();
    shut_out(&server, &["repl"]).await.unwrap();
    assert!(began.elapsed() >= Duration::from_millis(400), "it was given a moment");
    assert_eq!(server.value(nameless).await, "0");
    let place = Place::tcp(&server.address()).unwrap();
    assert!(Connection::open(&Target::new(place, "repl", "repl-secret"), LONG).await.is_err(), "locked");
}

/// A server that was the primary and has shut us out is read-only now and can let nobody in: what it has is fetched by the agents'
/// own account.
#[tokio::test]
async fn what_a_server_has_that_shut_us_out_is_fetched_all_the_same() {
    let (primary, replica) = pair().await;
    shut_out(&primary, &["repl"]).await.unwrap();
    primary.root_runs(&["INSERT INTO app.x VALUES (1)", "SET GLOBAL super_read_only=ON"]).await;
    let set = executed(&primary).await;
    let fetch = MysqlAction::Fetch { from: primary.address(), set: set.clone(), limit: LONG };
    assert_eq!(act(&replica, fetch).await.unwrap(), Done::Done);
    assert_eq!(status(&replica, "Source_User").await, "agent");
    replica.until("EXISTS (SELECT 1 FROM app.x)").await;
}

/// The file names another account than the channel uses: taken where it is let in, and nothing is touched where it is not.
#[tokio::test]
async fn a_replica_goes_over_to_the_account_of_its_file_where_it_is_let_in() {
    let (primary, replica) = pair().await;
    let create = ["CREATE USER old IDENTIFIED BY 'repl-secret'", "GRANT REPLICATION SLAVE ON *.* TO old"];
    primary.root_runs(&create).await;
    let change = "CHANGE REPLICATION SOURCE TO SOURCE_USER='old'";
    replica.root_runs(&["STOP REPLICA IO_THREAD", change, "START REPLICA IO_THREAD"]).await;
    replica.until("(SELECT SERVICE_STATE FROM performance_schema.replication_connection_status) = 'ON'").await;
    primary.root_runs(&["ALTER USER repl ACCOUNT LOCK"]).await;
    let server_uuid = primary.uuid().await;
    let follow = MysqlAction::Follow { address: primary.address(), server_uuid, acknowledge: false };
    let refused = act(&replica, follow.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("goes on by the present one"), "{refused}");
    assert_eq!(status(&replica, "Source_User").await, "old");
    assert_eq!(status(&replica, "Replica_IO_Running").await, "Yes");
    primary.root_runs(&["ALTER USER repl ACCOUNT UNLOCK"]).await;
    act(&replica, follow).await.unwrap();
    assert_eq!(status(&replica, "Source_User").await, "repl");
    replica.catch_up(&primary).await;
}
