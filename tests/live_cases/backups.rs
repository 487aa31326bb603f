//! Backups that lock the primary: reported, and nothing happens. They hold their locks for many times what a server that does
//! not answer is given (`heartbeat`'s timeout, retries and all: 3 s here), not for the minute of a real one.

use crate::scene::{Scene, epoch, lossless, nothing_happened, renewed, says};
use crate::support::run;

/// `FLUSH TABLES WITH READ LOCK`: every write waits for it.
#[test]
fn a_backup_holds_the_global_read_lock() {
    run("backup_read_lock", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let lock = scene.cluster.host("db1").hold("FLUSH TABLES WITH READ LOCK").await;
        says(&scene.cluster, "db1", "blocked").await;
        renewed(&scene.cluster, 40).await;
        drop(lock);
        says(&scene.cluster, "db1", "primary").await;
        nothing_happened(scene, before).await;
    });
}

/// `LOCK INSTANCE FOR BACKUP`: writes go on.
#[test]
fn a_backup_holds_the_instance_lock() {
    run("backup_instance_lock", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let lock = scene.cluster.host("db1").hold("LOCK INSTANCE FOR BACKUP").await;
        renewed(&scene.cluster, 40).await;
        scene.writer.wait_for_acknowledged(50).await;
        drop(lock);
        nothing_happened(scene, before).await;
    });
}
