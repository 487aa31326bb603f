//! Networks that fail. All need namespaces; with loopback addresses they say so and pass over.

use crate::scene::{LIMIT, Scene, at_rest, cannot, epoch, lossless};
use crate::support::{Kind, run, wait_for};

/// a3: the primary's agent loses ZooKeeper. Its server is read-only before another takes writes, and follows later.
#[test]
fn a3_zookeeper_traffic_of_the_primary_dropped() {
    run("a3_zookeeper_dropped", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        scene.cluster.cut_zookeeper("db1");
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.heal("db1");
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// m3: the primary's host is cut off from everything.
#[test]
fn m3_host_cut_off() {
    run("m3_host_cut_off", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        scene.cluster.cut_host("db1");
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.heal("db1");
        // What was in flight when the cable was cut may make it diverge; it must stay read-only either way.
        scene
            .cluster
            .wait_for_topology("the roles stay", LIMIT, |topology| topology["primary"] == primary.as_str())
            .await;
        scene.end().await;
    });
}

/// The ZooKeeper member that the primary's agent uses goes silent: no role changes, no write fails.
#[test]
fn silent_zookeeper_member() {
    run("silent_member", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        for member in scene.cluster.members_used_by("db1").await {
            scene.cluster.silence_member("db1", &member);
        }
        no_write_fails_for_three_leases(scene, before).await;
    });
}

/// The ensemble's leader is killed: no role changes, no write fails.
#[test]
fn zookeeper_leader_killed() {
    run("leader_killed", async |stage| {
        // Longer than an election takes, as it has to be in production.
        let options = lossless().set("*", "zookeeper.session_timeout", "8s").set("*", "zookeeper.op_timeout", "900ms");
        let scene = Scene::start(&stage, options).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.zookeeper_leader().await.kill(Kind::Zookeeper);
        no_write_fails_for_three_leases(scene, before).await;
    });
}

/// Writes go on until the lease must have been renewed many times over by other members.
async fn no_write_fails_for_three_leases(scene: Scene, before: u64) {
    let sequence = async || {
        let lease = scene.cluster.tree.get("lease").await?.ok_or("there is no lease")?;
        lease["sequence"].as_u64().ok_or_else(|| format!("no sequence in {lease}"))
    };
    let start = wait_for("the lease can be read", LIMIT, sequence).await;
    wait_for("the lease goes on being renewed", LIMIT, async || match sequence().await? {
        now if now > start + 30 => Ok(()),
        now => Err(format!("at {now}, from {start}")),
    })
    .await;
    assert_eq!(epoch(&scene.cluster).await, before, "a role changed");
    let (_, written) = scene.end().await;
    let (_, failed, unknown) = written.counts();
    assert_eq!((failed, unknown), (0, 0), "writes failed");
}
