//! The sync set, degrading and restoring. The agents alone switch semi-sync here.

use mysql_async::prelude::Queryable;
use serde_json::Value;

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, renewed};
use crate::support::{ClusterOptions, Kind, next_heartbeat, run, wait_for};

fn quick() -> ClusterOptions {
    lossless().set("*", "degrade.check_period", "300ms").set("*", "degrade.allow_times", 5)
}

fn degraded(topology: &Value) -> bool {
    topology["durability"]["degraded"] == true
}

async fn commits_wait(scene: &Scene) {
    wait_for("commits wait", LIMIT, async || {
        let agent = scene.cluster.tree.get("agents/db1").await?.ok_or("db1 has no agent")?;
        if agent["reason"] == "blocked" { Ok(()) } else { Err(agent["detail"].to_string()) }
    })
    .await;
}

async fn writes_go_on(scene: &Scene) {
    scene.writer.wait_for_acknowledged(50).await;
}

/// No replica acknowledges: recorded as degraded, writes go on, and all is restored by itself.
#[test]
fn degrades_while_nobody_acknowledges_and_is_restored() {
    run("degrade", async |stage| {
        let scene = Scene::start(&stage, quick()).await;
        for replica in ["db2", "db3"] {
            scene.cluster.host(replica).kill(Kind::Mysqld);
        }
        scene.cluster.wait_for_topology("degraded", LIMIT, degraded).await;
        writes_go_on(&scene).await;
        let status = scene.cluster.verb("db2", &["status"]).await;
        assert_eq!(status.code, 1, "{}", status.stdout);
        assert!(status.stdout.contains("degraded"), "{}", status.stdout);
        for replica in ["db2", "db3"] {
            scene.cluster.start_mysqld(replica).await;
        }
        at_rest(&scene.cluster, "db1").await;
        scene.end().await;
    });
}

/// `degrade.allow_times: 0`: blocks. A replica that comes back ends it, though it had received before it died all that waits.
#[test]
fn interleaving_16_blocks_without_degrading_and_goes_on_when_a_replica_is_back() {
    run("block", async |stage| {
        let scene = Scene::start(&stage, quick().set("*", "degrade.allow_times", 0)).await;
        for replica in ["db2", "db3"] {
            scene.cluster.host(replica).kill(Kind::Mysqld);
        }
        commits_wait(&scene).await;
        scene.cluster.start_mysqld("db3").await;
        writes_go_on(&scene).await;
        let topology = scene.cluster.wait_for_topology("there is one", LIMIT, |_| true).await;
        assert!(!degraded(&topology), "{topology}");
        scene.cluster.start_mysqld("db2").await;
        at_rest(&scene.cluster, "db1").await;
        scene.end().await;
    });
}

/// An account statement waits for its acknowledgement like a commit, with the server's lock on accounts in its hand: nobody can log
/// in. The agent, whose role is active in its open sessions, takes that for what it is: commits that wait. They are let go by
/// degrading; mysqld, epoch and every write stay.
#[test]
fn interleaving_16_an_account_statement_without_acknowledgement_is_no_silent_server() {
    run("accounts_wait", async |stage| {
        let scene = Scene::start(&stage, quick().set("*", "degrade.allow_times", 0)).await;
        let before = epoch(&scene.cluster).await;
        let db1 = scene.cluster.host("db1");
        let mysqld = db1.pid(Kind::Mysqld);
        let mut root = db1.hold("DO 1").await;
        for replica in ["db2", "db3"] {
            scene.cluster.host(replica).kill(Kind::Mysqld);
        }
        let statement = tokio::spawn(async move { root.query_drop("CREATE USER late").await });
        wait_for("the agent names what waits", LIMIT, async || {
            let agent = scene.cluster.tree.get("agents/db1").await?.ok_or("db1 has no agent")?;
            let said = agent["detail"].as_str().unwrap_or_default();
            if said.contains("lets nobody log in") { Ok(()) } else { Err(said.to_owned()) }
        })
        .await;
        assert!(db1.connect(true).await.is_err(), "the server lets somebody in: this test shows nothing");
        // For as long as a server that does not answer would have been given up many times.
        renewed(&scene.cluster, 30).await;
        assert!(!statement.is_finished());
        db1.reload_with("degrade.allow_times", 5);
        scene.cluster.wait_for_topology("degraded", LIMIT, degraded).await;
        statement.await.expect("it does not panic").expect("the statement comes to its end");
        writes_go_on(&scene).await;
        assert_eq!(
            (db1.pid(Kind::Mysqld), epoch(&scene.cluster).await),
            (mysqld, before),
            "nothing was restarted or moved"
        );
        for replica in ["db2", "db3"] {
            scene.cluster.start_mysqld(replica).await;
        }
        at_rest(&scene.cluster, "db1").await;
        scene.end().await;
    });
}

/// Commits that wait for ever (`degrade.allow_times: 0`) are let go by a SIGHUP that allows degrading, and a file that cannot work
/// changes nothing.
#[test]
fn degrading_is_switched_on_by_a_reload_while_commits_wait() {
    run("reload", async |stage| {
        let scene = Scene::start(&stage, quick().set("*", "degrade.allow_times", 0)).await;
        for replica in ["db2", "db3"] {
            scene.cluster.host(replica).kill(Kind::Mysqld);
        }
        commits_wait(&scene).await;
        let primary = scene.cluster.host("db1");
        let says = |text: &'static str| {
            wait_for("the log says it", LIMIT, async move || {
                let log = std::fs::read_to_string(primary.log(Kind::Agent)).map_err(|error| error.to_string())?;
                if log.contains(text) { Ok(()) } else { Err(format!("not yet: {text}")) }
            })
        };
        primary.reload_with("degrade.allow_times", "often");
        says("the configuration stays as it was").await;
        assert!(!degraded(&scene.cluster.wait_for_topology("there is one", LIMIT, |_| true).await));
        primary.reload_with("degrade.allow_times", 5);
        scene.cluster.wait_for_topology("degraded", LIMIT, degraded).await;
        writes_go_on(&scene).await;
        for replica in ["db2", "db3"] {
            scene.cluster.start_mysqld(replica).await;
        }
        at_rest(&scene.cluster, "db1").await;
        scene.end().await;
    });
}

/// A replica whose server is down leaves the sync set, so that the other alone is a quorum; it joins again by itself.
#[test]
fn a_replica_that_is_down_leaves_the_sync_set_and_the_other_alone_can_take_over() {
    run("sync_set", async |stage| {
        let scene = Scene::start(&stage, quick()).await;
        scene.cluster.host("db3").kill(Kind::Mysqld);
        let alone = |topology: &Value| topology["durability"]["sync"] == serde_json::json!(["db2"]);
        scene.cluster.wait_for_topology("db3 has left the sync set", LIMIT, alone).await;
        writes_go_on(&scene).await;
        next_heartbeat(scene.cluster.host("db1")).await;
        let paused = scene.writer.pause_between_writes().await;
        scene.cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        let primary = scene.cluster.wait_for_topology("db2 takes over", LIMIT, |it| it["primary"] == "db2").await;
        assert_eq!(primary["durability"]["sync"], serde_json::json!([]), "nobody else may acknowledge: {primary}");
        for host in ["db1", "db3"] {
            scene.cluster.start_mysqld(host).await;
        }
        at_rest(&scene.cluster, "db2").await;
        scene.end().await;
    });
}
