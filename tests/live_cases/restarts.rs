//! Agents that stop and start again.

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, nothing_happened, renewed};
use crate::support::{Cluster, Kind, run, wait_for};

/// a1: an agent that is killed and started again in time takes its own lease over: nothing changes, no write fails.
#[test]
fn a1_agent_killed_and_back_in_time() {
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

/// The agents are restarted one by one, as in an upgrade, while a replica is down: nothing changes, no write fails.
#[test]
fn agents_restarted_one_by_one_while_a_replica_is_down() {
    run("agents_one_by_one", async |stage| {
        let options = lossless().set("*", "zookeeper.session_timeout", "6s");
        let scene = Scene::start(&stage, options).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.host("db3").kill(Kind::Mysqld);
        for host in ["db3", "db2", "db1"] {
            let old = instance_of(&scene.cluster, &format!("agents/{host}")).await;
            scene.cluster.host(host).stop(Kind::Agent).await;
            scene.cluster.host(host).start(Kind::Agent);
            wait_for("the new process has its name", LIMIT, async || {
                let new = instance_of(&scene.cluster, &format!("agents/{host}")).await;
                if !new.is_empty() && new != old { Ok(()) } else { Err(format!("it is {new}")) }
            })
            .await;
        }
        renewed(&scene.cluster, 20).await;
        scene.cluster.start_mysqld("db3").await;
        scene.returns("db3", "db1").await;
        nothing_happened(scene, before).await;
    });
}

async fn instance(cluster: &Cluster) -> String {
    instance_of(cluster, "master").await
}

/// Which process of the agent made this node; empty while there is none.
async fn instance_of(cluster: &Cluster, node: &str) -> String {
    let master = cluster.tree.get(node).await.ok().flatten();
    master.and_then(|master| master["instance"].as_str().map(str::to_owned)).unwrap_or_default()
}

/// mysqld of a busy primary is stopped as systemd does it with the drop-in, its agent running: every OK is earned, another
/// takes over at once, and the old one comes back as a replica like any other, with no marker to be lifted.
#[test]
fn interleaving_08_a_busy_primary_is_stopped_in_an_orderly_way() {
    run("orderly_stop", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        let said = scene.cluster.verb("db1", &["prestop"]).await.expect_code(0);
        assert!(said.stdout.contains("no commit waits"), "{said:?}");
        // It closes its socket first. Where the rest takes longer than the probes' patience its agent, which cannot see whether it is
        // read-only, ends it.
        db1.stop(Kind::Mysqld).await;
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.start_mysqld("db1").await;
        scene.returns("db1", &primary).await;
        assert!(!db1.value::<bool>("SELECT @@global.offline_mode").await, "its clients are still kept out");
        scene.end().await;
    });
}
