//! `prestop` ahead of the SIGTERM that systemd sends, on the real server and with the program itself.

use std::process::Output;
use std::time::{Duration, Instant};

use crate::control::pair;
use crate::fence::{hanging, server, session};
use crate::probe::no_acknowledgement;
use crate::server::{LONG, Server};

const WAITS: &str = "Waiting for semi-sync ACK";
/// It holds no shutdown up for longer; the rest is for a busy machine.
const BOUND: Duration = Duration::from_secs(10);

/// Runs the verb with a file that names this server's socket and nothing else that exists.
async fn prestop(server: &Server, password: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("agent.yaml");
    let path = folder.path().display();
    let socket = server.socket();
    let config = format!(
        "cluster: c\nname: db1\nzookeeper: {{hosts: ['127.0.0.1:1']}}\nfailover: {{durability: lossless}}\n\
         state_dir: {path}/state\nrun_dir: {path}/run\n\
         mysql: {{socket: {}, user: agent, password: {password}, advertise: '127.0.0.1:3306', \
         replication: {{user: repl, password: x}}}}\n",
        socket.display()
    );
    std::fs::write(&file, config).unwrap();
    let mut verb = tokio::process::Command::new(env!("CARGO_BIN_EXE_mysql-ha-agent"));
    let begun = Instant::now();
    let output = verb.arg("--config").arg(&file).arg("prestop").kill_on_drop(true).output().await.unwrap();
    assert!(begun.elapsed() < BOUND, "{:?}: {output:?}", begun.elapsed());
    assert!(!folder.path().join("state").exists(), "it leaves no marker: {output:?}");
    output
}

fn said(output: &Output) -> String {
    format!(
        "{:?} {}{}",
        output.status.code(),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A client that `offline_mode` cuts, and an administrator whom it spares, both with a commit that nobody acknowledges. A plain stop
/// answers OK to at least one of them, or this test shows nothing; after the verb neither gets one.
#[tokio::test]
async fn interleaving_08_a_stop_answers_ok_and_prestop_ahead_of_it_does_not() {
    for ahead in [false, true] {
        let server = server().await;
        no_acknowledgement(&server).await;
        let client = hanging(&server, &server.app(), "INSERT INTO app.x VALUES (1)", WAITS).await;
        let two = "INSERT INTO app.x VALUES (2)";
        let mut admin = session(&server.root(), &[]).await;
        let admin = tokio::spawn(async move { admin.run(two, LONG * 10).await });
        // One commit after the other: the second waits behind the first, and its state says nothing of acknowledgements.
        let waiting = format!(
            "(SELECT COUNT(*) FROM performance_schema.processlist \
             WHERE STATE LIKE '{WAITS}%' OR STATE LIKE 'waiting for handler commit%') = 2"
        );
        server.until(&waiting).await;
        if ahead {
            let output = prestop(&server, "agent-secret").await;
            assert!(said(&output).starts_with("Some(0) mysqld was killed"), "{}", said(&output));
        }
        server.signal("TERM"); // to the zombie, where it was killed
        let answers = [client.await.unwrap(), admin.await.unwrap()];
        assert_eq!(answers.iter().any(Result::is_ok), !ahead, "prestop: {ahead}, {answers:?}");
    }
}

/// A primary whose replica acknowledges, busy until the end: every OK is earned, mysqld ends cleanly, and its next start knows of nothing.
#[tokio::test]
async fn interleaving_08_without_waiting_commits_mysqld_ends_cleanly() {
    let mut server = server().await;
    let mut client = session(&server.app(), &["INSERT INTO app.x VALUES (1)"]).await;
    let _locks = session(&server.root(), &["LOCK TABLES app.x WRITE"]).await;
    let output = prestop(&server, "agent-secret").await;
    assert!(said(&output).starts_with("Some(0) no commit waits"), "{}", said(&output));
    assert!(client.run("SELECT 1", LONG).await.is_err(), "a client is left, and could commit before the end");
    assert_eq!(server.value("@@global.offline_mode").await, "1");
    assert!(server.terminate().await.success(), "it did not end in an orderly way");
    assert!(said(&prestop(&server, "agent-secret").await).starts_with("Some(0) mysqld is not running"));
    server.restart().await;
    assert_eq!(server.value("CONCAT(@@global.offline_mode, @@global.super_read_only)").await, "00", "it was persisted");
}

/// Its clients stay until mysqld itself ends.
#[tokio::test]
async fn interleaving_08_a_replica_is_left_as_it_is() {
    let (_primary, mut replica) = pair().await;
    let mut reader = session(&replica.app(), &["SELECT 1"]).await;
    let output = prestop(&replica, "agent-secret").await;
    assert!(said(&output).starts_with("Some(0) no commit waits"), "{}", said(&output));
    reader.run("SELECT 1", LONG).await.unwrap();
    let flags = "CONCAT(@@global.offline_mode, @@global.super_read_only)";
    assert_eq!(replica.value(flags).await, "01");
    assert!(replica.terminate().await.success());
}

/// Nobody can look: a server that is silent may have waiting commits, one that refuses us is left alone and that is said.
#[tokio::test]
async fn interleaving_08_who_cannot_look_kills_only_what_is_silent() {
    let mut server = server().await;
    let refused = said(&prestop(&server, "wrong").await);
    assert!(refused.starts_with("Some(4) mysqld was left as it is") && refused.contains("access denied"), "{refused}");
    server.signal("STOP");
    let silent = said(&prestop(&server, "agent-secret").await);
    assert!(silent.starts_with("Some(0) mysqld was killed"), "{silent}");
    assert!(!server.terminate().await.success());
}
