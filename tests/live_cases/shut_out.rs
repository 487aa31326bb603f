//! A replica's host dies for long: with an account of its own it is shut out, and another failover is possible without it.

use serde_json::{Value, json};

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, renewed};
use crate::support::{ClusterOptions, Kind, run, wait_for};

fn own_accounts() -> ClusterOptions {
    ClusterOptions { own_accounts: true, ..lossless() }
}

/// A cluster at rest in which each replica has gone over to its own account, and that is recorded.
async fn each_by_its_own(scene: &Scene) {
    let recorded =
        |topology: &Value| topology["durability"]["accounts"] == json!({"db2": ["repl_db2"], "db3": ["repl_db3"]});
    scene.cluster.wait_for_topology("each replicates by its own account", LIMIT, recorded).await;
    at_rest(&scene.cluster, "db1").await;
}

fn sync(expected: Value) -> impl Fn(&Value) -> bool {
    move |topology| topology["durability"]["sync"] == expected && topology["primary"].is_string()
}

/// db3's host dies; the sync set is db2 alone. Then db1's mysqld dies: db2 takes over, though nobody knows what db3 has. db3 counts
/// for db2 again until it is shut out there too; when its host is back it follows, and joins again.
#[test]
fn interleaving_06_a_dead_host_leaves_the_sync_set_and_the_other_alone_can_take_over() {
    run("shut_out", async |stage| {
        let scene = Scene::start(&stage, own_accounts()).await;
        let cluster = &scene.cluster;
        each_by_its_own(&scene).await;
        cluster.kill_host("db3");
        let topology = cluster.wait_for_topology("db3 is shut out", LIMIT, sync(json!(["db2"]))).await;
        assert_eq!(topology["durability"]["shut_out"], json!({"db3": ["db1"]}), "{topology}");
        let status = cluster.verb("db1", &["status"]).await;
        assert!(status.code == 1 && status.stdout.contains("db3 was shut out"), "{status:?}");
        assert!(status.stdout.contains("db3: its agent is not running; was shut out"), "{status:?}");
        scene.writer.wait_for_acknowledged(50).await;

        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        let topology = cluster.wait_for_topology("db2 takes over", LIMIT, |it| it["primary"] == "db2").await;
        assert_eq!(topology["durability"]["sync"], json!(["db3"]), "locked at db1 alone: {topology}");
        cluster.start_mysqld("db1").await;
        cluster.wait_for_topology("db3 is shut out again", LIMIT, sync(json!(["db1"]))).await;
        scene.writer.wait_for_acknowledged(50).await;

        cluster.start_host("db3", true).await;
        at_rest(cluster, "db2").await;
        let by_db1 = json!({"db3": ["db1"]});
        let let_in = |topology: &Value| topology["durability"]["shut_out"] == by_db1;
        cluster.wait_for_topology("db2 has let it in", LIMIT, let_in).await;
        cluster.verb("db2", &["promote", "db1"]).await.expect_code(0);
        at_rest(cluster, "db1").await;
        let topology = cluster.wait_for_topology("db1 too", LIMIT, |it| it["durability"]["shut_out"].is_null()).await;
        assert_eq!(topology["primary"], "db1");
        scene.end().await;
    });
}

/// All replicate by one account: it cannot be locked. The dead one stays in the sync set, `status` and `check` say what that costs.
#[test]
fn interleaving_06_a_dead_host_with_a_shared_account_stays_in_the_sync_set_and_is_reported() {
    run("shut_out_shared", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        cluster.kill_host("db3");
        wait_for("status says that it stays", LIMIT, async || {
            let status = cluster.verb("db1", &["status"]).await;
            let said = status.stdout.contains("its replication account 'repl' is also that of db1, db2");
            if said { Ok(()) } else { Err(status.stdout) }
        })
        .await;
        // For longer than an account of its own would have let it stay.
        renewed(cluster, 20).await;
        let topology = cluster.wait_for_topology("there is one", LIMIT, |_| true).await;
        assert_eq!(topology["durability"]["sync"], json!(["db2", "db3"]), "{topology}");
        assert!(topology["durability"]["shut_out"].is_null(), "{topology}");
        let check = cluster.verb("db1", &["check"]).await;
        assert!(check.stdout.contains("'repl' is the replication account of db2 too"), "{check:?}");
        cluster.start_host("db3", true).await;
        at_rest(cluster, "db1").await;
        assert_eq!(epoch(cluster).await, before);
        scene.end().await;
    });
}
