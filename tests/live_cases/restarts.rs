//! Agents that stop and start again.

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless};
use crate::support::{Cluster, Kind, run, wait_for};

/// An agent that is killed and started again in time takes its own lease over: nothing changes, no write fails.
#[test]
fn agent_restarted_in_time() {
    run("agent_restarted", async |stage| {
        let options = lossless().set("*", "zookeeper.session_timeout", "6s");
        let scene = Scene::start(&stage, options).await;
        let before = epoch(&scene.cluster).await;
        let old = instance(&scene.cluster).await;
        scene.cluster.host("db1").kill(Kind::Agent);
        scene.cluster.host("db1").start(Kind::Agent);
        wait_for("the new process holds master", LIMIT, async || {
            let new = instance(&scene.cluster).await;
            if !new.is_empty() && new != old { Ok(()) } else { Err(format!("master is of {new}")) }
        })
        .await;
        at_rest(&scene.cluster, "db1").await;
        assert_eq!(epoch(&scene.cluster).await, before, "a role changed");
        let (_, written) = scene.end().await;
        let (_, failed, unknown) = written.counts();
        assert_eq!((failed, unknown), (0, 0), "writes failed");
    });
}

/// The same with an orderly stop (SIGTERM), which leaves the lease behind.
#[test]
fn agent_stopped_and_started_in_time() {
    run("agent_stopped", async |stage| {
        let options = lossless().set("*", "zookeeper.session_timeout", "6s");
        let scene = Scene::start(&stage, options).await;
        let before = epoch(&scene.cluster).await;
        let status = scene.cluster.host("db1").stop(Kind::Agent).await;
        assert_eq!(status.code(), Some(0));
        scene.cluster.host("db1").start(Kind::Agent);
        at_rest(&scene.cluster, "db1").await;
        assert_eq!(epoch(&scene.cluster).await, before, "a role changed");
        let (_, written) = scene.end().await;
        assert_eq!(written.counts().1, 0, "writes failed");
    });
}

async fn instance(cluster: &Cluster) -> String {
    let master = cluster.tree.get("master").await.ok().flatten();
    master.and_then(|master| master["instance"].as_str().map(str::to_owned)).unwrap_or_default()
}
