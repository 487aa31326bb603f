//! Planned switches.

use crate::scene::{Scene, at_rest, epoch, lossless};
use crate::support::run;

/// To db2 and back, by name and by choice, under a writer.
#[test]
fn planned_switch_to_and_fro() {
    run("switch_to_and_fro", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.verb("db3", &["promote", "db2", "--dry-run"]).await.expect_code(0);
        assert_eq!(epoch(&scene.cluster).await, before, "a dry run changed something");
        scene.cluster.verb("db3", &["promote", "db2"]).await.expect_code(0);
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

/// A transaction that holds read-only up: the switch is given up and the old primary goes on.
#[test]
fn planned_switch_that_cannot_become_read_only_is_undone() {
    run("switch_blocked", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let lock = scene.cluster.host("db1").hold("LOCK TABLES app.t WRITE").await;
        let refused = scene.cluster.verb("db1", &["promote", "db2", "--timeout", "4s"]).await;
        assert!([1, 5].contains(&refused.code), "exit code {}: {}", refused.code, refused.stderr);
        drop(lock);
        assert_eq!(epoch(&scene.cluster).await, before);
        at_rest(&scene.cluster, "db1").await;
        scene.end().await;
    });
}
