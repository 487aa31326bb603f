//! Disks that fill up, and disks that hang.

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

/// The disk under every agent's `state_dir` hangs: the primary that loses ZooKeeper is fenced in time, another takes over, and the
/// old one follows. A FIFO that nobody reads holds up whoever writes a note, as such a disk does.
#[test]
fn state_dir_hangs() {
    run("state_dir_hangs", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        for host in &scene.cluster.hosts {
            for note in ["fenced", "opened", "epoch"] {
                let path = host.config().with_file_name("state").join(note);
                host.run(&["rm", "-f", path.to_str().expect("a path in UTF-8")]);
                host.run(&["mkfifo", path.to_str().expect("a path in UTF-8")]);
            }
        }
        scene.cluster.cut_zookeeper("db1");
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.heal("db1");
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}
