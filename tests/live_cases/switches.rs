//! Planned switches.

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, says};
use crate::support::{Cluster, run, wait_for};

/// To db2 and back, by name and by choice, under a writer.
#[test]
fn planned_switch_to_and_fro() {
    run("switch_to_and_fro", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.verb("db3", &["promote", "db2", "--dry-run"]).await.expect_code(0);
        assert_eq!(epoch(&scene.cluster).await, before, "a dry run changed something");
        scene.cluster.verb("db3", &["promote", "db2"]).await.expect_code(0);
        // At once: the old primary is on its way back, which is no problem.
        scene.cluster.verb("db3", &["status"]).await.expect_code(0);
        at_rest(&scene.cluster, "db2").await;
        scene.cluster.verb("db1", &["promote", "db1"]).await.expect_code(0);
        at_rest(&scene.cluster, "db1").await;
        assert_eq!(epoch(&scene.cluster).await, before + 2);
        let history = scene.cluster.verb("db2", &["history", "--json"]).await.expect_code(0).json();
        let causes: Vec<&str> =
            history.as_array().expect("a list").iter().filter_map(|record| record["cause"].as_str()).collect();
        assert_eq!(causes, ["switchover", "switchover"]);
        scene.cluster.verb("db2", &["status"]).await.expect_code(0);
        let (_, written) = scene.end().await;
        assert_eq!(written.counts().2, 0, "a write's outcome is unknown after a planned switch");
    });
}

/// The target is behind: nothing is touched, the old primary takes writes all the while.
#[test]
fn planned_switch_whose_target_is_behind() {
    run("switch_target_behind", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        // Receives (and acknowledges), but applies nothing.
        let db2 = scene.cluster.host("db2");
        db2.execute(&["STOP REPLICA SQL_THREAD"]).await;
        let refused = scene.cluster.verb("db1", &["promote", "db2", "--timeout", "4s"]).await;
        assert!([1, 5].contains(&refused.code), "exit code {}: {}", refused.code, refused.stderr);
        assert_eq!(epoch(&scene.cluster).await, before);
        assert!(scene.cluster.host("db1").is_writable().await.expect("db1 answers"));
        db2.execute(&["START REPLICA SQL_THREAD"]).await;
        at_rest(&scene.cluster, "db1").await;
        scene.end().await;
    });
}

/// Somebody sits on a lock that read-only would have to wait for: named, nothing is touched, nobody's writes are held up; and once the
/// lock is given back the switch goes on, however long that took.
#[test]
fn planned_switch_waits_for_a_lock_on_the_primary_and_names_its_holder() {
    run("switch_blocked", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        let db1 = cluster.host("db1");
        db1.execute(&["CREATE TABLE app.locked (id INT PRIMARY KEY)"]).await;
        let lock = db1.hold("LOCK TABLES app.locked WRITE").await;
        let session = format!("session {} of root", lock.id());
        sits(cluster, lock.id()).await;
        let refused = cluster.verb("db1", &["promote", "db2", "--timeout", "4s"]).await.expect_code(5);
        assert!(refused.stderr.contains(&session), "{}", refused.stderr);
        assert_eq!(refused.stderr.matches("nothing was").count(), 1, "{}", refused.stderr);
        assert_eq!(epoch(cluster).await, before);
        let waits = async {
            wait_for("the primary waits for the lock", LIMIT, async || {
                let agent = cluster.tree.get("agents/db1").await?.ok_or("the agent of db1 is not there")?;
                let detail = agent["detail"].as_str().unwrap_or_default();
                if detail.contains(&session) { Ok(()) } else { Err(agent.to_string()) }
            })
            .await;
            drop(lock);
        };
        let (promoted, ()) = tokio::join!(cluster.verb("db1", &["promote", "db2", "--timeout", "50s"]), waits);
        promoted.expect_code(0);
        at_rest(cluster, "db2").await;
        let (_, written) = scene.end().await;
        assert_eq!(written.counts().2, 0, "a write's outcome is unknown after a planned switch");
    });
}

/// A read lock holds the heartbeat up, so that the target looks as if it were behind: who holds the lock is named, by `promote` and by
/// `check`, and not the target.
#[test]
fn planned_switch_under_a_read_lock_names_its_holder() {
    run("switch_read_lock", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        let lock = cluster.host("db1").hold("FLUSH TABLES WITH READ LOCK").await;
        let session = format!("session {} of root", lock.id());
        says(cluster, "db1", "blocked").await;
        let plan = cluster.verb("db2", &["promote", "db2", "--dry-run"]).await.expect_code(0);
        assert!(plan.stdout.contains("does not finish") && plan.stdout.contains(&session), "{}", plan.stdout);
        let refused = cluster.verb("db2", &["promote", "db2", "--timeout", "4s"]).await.expect_code(5);
        assert!(refused.stderr.contains(&session) && !refused.stderr.contains("behind"), "{}", refused.stderr);
        let check = cluster.verb("db1", &["check", "--json"]).await.expect_code(1).json();
        let of_writes = check["findings"].as_array().expect("a list").iter().find(|one| one["rule"] == "writes-finish");
        let of_writes = of_writes.unwrap_or_else(|| panic!("no such rule: {check}"));
        assert!(of_writes["verdict"] == "fail" && of_writes["found"].to_string().contains(&session), "{of_writes}");
        assert_eq!(epoch(cluster).await, before);
        drop(lock);
        at_rest(cluster, "db1").await;
        scene.end().await;
    });
}

/// Idle for longer than an ordinary statement's moment, as the server rounds it.
async fn sits(cluster: &Cluster, session: u32) {
    let sql = format!("SELECT TIME >= 2 FROM performance_schema.processlist WHERE ID = {session}");
    wait_for("the session has been idle for a while", LIMIT, async || {
        match cluster.host("db1").try_query::<(bool,)>(&sql).await?.first() {
            Some((true,)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}
