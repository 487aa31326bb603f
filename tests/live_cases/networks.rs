//! Networks that fail in part, or one way only.

use std::time::Duration;

use crate::scene::{LIMIT, Scene, cannot, epoch, lossless, nothing_happened, renewed};
use crate::support::{Way, run, wait_for};

/// The primary's requests to ZooKeeper are lost; the answers would come through.
#[test]
fn a3_requests_to_zookeeper_lost() {
    one_way("a3_requests_lost", Way::Out);
}

/// Its requests arrive, and are obeyed, and no answer comes back: what it takes for lost has landed.
#[test]
fn a3_answers_of_zookeeper_lost() {
    one_way("a3_answers_lost", Way::In);
}

fn one_way(name: &str, way: Way) {
    run(name, async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        scene.cluster.cut_zookeeper_one_way("db1", way);
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.heal("db1");
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}

/// a3: the primary's network to ZooKeeper comes and goes, never for as long as its lease: nothing changes, no write fails.
#[test]
fn a3_zookeeper_intermittent() {
    run("a3_intermittent", async |stage| {
        if cannot(&stage) {
            return;
        }
        // Longer than the shortest, for a network that is lost for a second at a time.
        let options = lossless().set("*", "zookeeper.session_timeout", "6s");
        let scene = Scene::start(&stage, options).await;
        let before = epoch(&scene.cluster).await;
        for _ in 0..4 {
            scene.cluster.cut_zookeeper("db1");
            // The fault's length.
            tokio::time::sleep(Duration::from_secs(1)).await;
            scene.cluster.heal("db1");
            renewed(&scene.cluster, 1).await;
        }
        nothing_happened(scene, before).await;
    });
}

/// The primary and one of its two replicas cannot reach each other; both reach everything else. The other acknowledges.
#[test]
fn primary_and_one_replica_apart() {
    run("one_replica_apart", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.cut_mysql("db1", "db2", &Way::BOTH);
        renewed(&scene.cluster, 20).await;
        scene.writer.wait_for_acknowledged(100).await;
        scene.cluster.heal("db1");
        scene.returns("db2", "db1").await;
        nothing_happened(scene, before).await;
    });
}

/// The primary and all its replicas cannot reach each other, but ZooKeeper: commits wait, no role changes. A missing
/// acknowledgement is no dead primary.
#[test]
fn primary_and_all_replicas_apart() {
    apart("all_replicas_apart", &Way::BOTH);
}

/// The same one way: the primary sends to its replicas, and their acknowledgements are lost.
#[test]
fn acknowledgements_lost() {
    apart("acknowledgements_lost", &[Way::In]);
}

fn apart(name: &str, ways: &[Way]) {
    run(name, async move |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        for replica in ["db2", "db3"] {
            scene.cluster.cut_mysql("db1", replica, ways);
        }
        wait_for("commits wait", LIMIT, async || {
            let agent = scene.cluster.tree.get("agents/db1").await?.ok_or("its agent is missing")?;
            if agent["reason"] == "blocked" { Ok(()) } else { Err(agent.to_string()) }
        })
        .await;
        renewed(&scene.cluster, 20).await;
        scene.cluster.heal("db1");
        for replica in ["db2", "db3"] {
            scene.returns(replica, "db1").await;
        }
        nothing_happened(scene, before).await;
    });
}
