//! Networks that fail. All need namespaces; with loopback addresses they say so and pass over.

use crate::scene::{LIMIT, Scene, cannot, epoch, lossless, nothing_happened, renewed};
use crate::support::{Kind, run};

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
        // A commit that waited for its acknowledgement when the fence came has cost its mysqld its life.
        scene.returns("db1", &primary).await;
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
        renewed(&scene.cluster, 30).await;
        nothing_happened(scene, before).await;
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
        renewed(&scene.cluster, 30).await;
        nothing_happened(scene, before).await;
    });
}
