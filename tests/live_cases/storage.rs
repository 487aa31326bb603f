//! Disks that fill up.

use crate::scene::{Scene, cannot, lossless};
use crate::support::{ClusterOptions, run};

/// m1: the disk under the primary's data directory is full. Its server is fenced (at the last killed), another takes
/// over, and it comes back as a replica once there is room.
#[test]
fn m1_disk_full() {
    run("m1_disk_full", async |stage| {
        if cannot(&stage) {
            return;
        }
        let options = ClusterOptions { small_disks: Some(400), ..lossless() };
        let scene = Scene::start(&stage, options).await;
        scene.cluster.fill_disk("db1");
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.empty_disk("db1");
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}
