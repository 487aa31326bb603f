//! Servers and hosts that die or freeze.

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless};
use crate::support::{Kind, next_heartbeat, run, wait_for};

/// m1: mysqld of the primary is killed. Its restart comes up read-only and follows.
#[test]
fn m1_mysqld_killed_and_back_as_a_replica() {
    run("m1_mysqld_killed", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        // Between two commits, of the client and of the agent: one in flight may come back as a transaction of the old
        // primary's own, and then it rightly stays out.
        next_heartbeat(scene.cluster.host("db1")).await;
        let paused = scene.writer.pause_between_writes().await;
        scene.cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        let primary = scene.failed_over_from("db1").await;
        let history =
            scene.cluster.tree.get("history/2").await.expect("ZooKeeper answers").expect("history is written");
        assert_eq!((&history["cause"], &history["from"]), (&"mysql_down".into(), &"db1".into()), "{history}");
        scene.cluster.start_mysqld("db1").await;
        assert!(!scene.cluster.host("db1").is_writable().await.expect("db1 answers"), "a restart came up writable");
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// m1: mysqld of the primary is frozen. It is killed before another takes writes.
#[test]
fn m1_mysqld_frozen() {
    run("m1_mysqld_frozen", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        scene.cluster.host("db1").pause(Kind::Mysqld);
        scene.failed_over_from("db1").await;
        wait_for("the frozen mysqld is ended", LIMIT, async || {
            match scene.cluster.host("db1").is_running(Kind::Mysqld) {
                false => Ok(()),
                true => Err("it still exists".to_owned()),
            }
        })
        .await;
        scene.end().await;
    });
}

/// a4, m2: the host of the primary loses its power, its ZooKeeper member included.
#[test]
fn a4_m2_host_killed() {
    run("a4_m2_host_killed", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.kill_host("db1");
        scene.failed_over_from("db1").await;
        assert_eq!(epoch(&scene.cluster).await, before + 1);
        scene.end().await;
    });
}

/// A lower lock that has received less fetches the rest from the other candidate before it promotes.
#[test]
fn a_lower_lock_that_has_received_less_fetches_the_rest() {
    run("lower_lock_fetches", async |stage| {
        // db3 has the lower priority and will have received more: db2 is asked first only by priority.
        let scene = Scene::start(&stage, lossless()).await;
        let paused = scene.writer.pause_between_writes().await;
        // db2 receives nothing more; the next writes are acknowledged by db3 alone.
        scene.cluster.host("db2").pause(Kind::Agent);
        scene.cluster.host("db2").execute(&["STOP REPLICA IO_THREAD"]).await;
        drop(paused);
        scene.writer.wait_for_acknowledged(50).await;
        // db3's agent is slower than db2's, so that db2 draws the lower lock.
        let paused = scene.writer.pause_between_writes().await;
        scene.cluster.host("db3").pause(Kind::Agent);
        scene.cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        scene.cluster.host("db2").resume(Kind::Agent);
        wait_for("db2 votes first", LIMIT, async || {
            let locks = scene.cluster.tree.children("election").await?;
            match locks.values().any(|lock| lock["name"] == "db2") {
                true => Ok(()),
                false => Err(format!("{locks:?}")),
            }
        })
        .await;
        scene.cluster.host("db3").resume(Kind::Agent);
        assert_eq!(scene.failed_over_from("db1").await, "db2");
        scene.end().await;
    });
}
