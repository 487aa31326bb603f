//! m4: rooms.

use crate::scene::{Scene, at_rest, epoch, lossless};
use crate::support::{ClusterOptions, run};

/// Three rooms, 2 + 2 + 1 hosts, each with a ZooKeeper member; the primary's room loses its power. Every commit waits for
/// two replicas, one of which is thus in another room (the sync set knows of no rooms yet).
#[test]
fn m4_the_room_of_the_primary_dies() {
    run("m4_room", async |stage| {
        let mut options = ClusterOptions { hosts: 5, ..lossless() }.set("*", "failover.sync_replicas", 2);
        for (host, room) in [("db1", "a"), ("db2", "a"), ("db3", "b"), ("db4", "b"), ("db5", "c")] {
            options = options.set(host, "zone", room);
        }
        let scene = Scene::start(&stage, options).await;
        let before = epoch(&scene.cluster).await;
        for host in ["db1", "db2"] {
            scene.cluster.kill_host(host);
        }
        let primary = scene.failed_over_from("db1").await;
        assert_eq!(epoch(&scene.cluster).await, before + 1);
        for host in ["db1", "db2"] {
            scene.cluster.start_host(host, true).await;
            scene.cluster.takes_back(host, &primary, crate::scene::LIMIT).await;
        }
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}
