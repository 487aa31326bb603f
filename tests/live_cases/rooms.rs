//! m4: rooms.

use serde_json::{Value, json};

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless};
use crate::support::{ClusterOptions, Kind, run};

fn in_rooms(hosts: u8, rooms: &[(&str, &str)]) -> ClusterOptions {
    let options = ClusterOptions { hosts, ..lossless() };
    rooms.iter().fold(options, |options, (host, room)| options.set(host, "zone", *room))
}

/// Three rooms, 2 + 2 + 1 hosts, each with a ZooKeeper member; the primary's room loses its power. One acknowledgement is
/// waited for, and the replica beside the primary would be the first to give it: it is not in the sync set.
#[test]
fn m4_the_room_of_the_primary_dies() {
    run("m4_room", async |stage| {
        let rooms = [("db1", "a"), ("db2", "a"), ("db3", "b"), ("db4", "b"), ("db5", "c")];
        let scene = Scene::start(&stage, in_rooms(5, &rooms)).await;
        let before = epoch(&scene.cluster).await;
        for host in ["db1", "db2"] {
            scene.cluster.kill_host(host);
        }
        let primary = scene.failed_over_from("db1").await;
        assert_eq!(epoch(&scene.cluster).await, before + 1);
        for host in ["db1", "db2"] {
            scene.cluster.start_host(host, true).await;
            scene.cluster.takes_back(host, &primary, LIMIT).await;
        }
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// The only replica outside the primary's room dies: the one inside joins the sync set, so that commits go on, and leaves it
/// again when the other is back. Nobody is promoted, nothing degrades.
#[test]
fn the_primarys_room_steps_in_while_nobody_elsewhere_acknowledges() {
    run("room_steps_in", async |stage| {
        let options = in_rooms(3, &[("db1", "a"), ("db2", "a"), ("db3", "b")]);
        let scene = Scene::start(&stage, options.set("*", "degrade.check_period", "500ms")).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.host("db3").kill(Kind::Mysqld);
        let joined =
            |topology: &Value| topology["durability"]["sync"].as_array().is_some_and(|s| s.contains(&json!("db2")));
        let topology = scene.cluster.wait_for_topology("db2 joins the sync set", LIMIT, joined).await;
        assert_eq!(topology["durability"]["degraded"], false, "{topology}");
        scene.writer.wait_for_acknowledged(50).await;
        scene.cluster.start_mysqld("db3").await;
        at_rest(&scene.cluster, "db1").await;
        scene.writer.wait_for_acknowledged(50).await;
        assert_eq!(epoch(&scene.cluster).await, before);
        scene.end().await;
    });
}
