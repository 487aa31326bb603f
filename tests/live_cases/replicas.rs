//! Replicas that are behind, broken or gone when the primary is lost.

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, says};
use crate::support::{Cluster, Kind, run, wait_for};

/// A replica that stopped long ago is not promoted, although it is the last one alive; `status` says why. Once one that
/// holds what was acknowledged since is back, the cluster goes on.
#[test]
fn a_replica_that_stopped_long_ago_is_not_promoted() {
    run("stopped_long_ago", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        cluster.host("db3").kill(Kind::Mysqld);
        scene.writer.wait_for_acknowledged(200).await;
        let paused = scene.writer.pause_between_writes().await;
        for host in ["db2", "db1"] {
            cluster.host(host).kill(Kind::Mysqld);
        }
        drop(paused);
        cluster.start_mysqld("db3").await;
        says(cluster, "db3", "no_quorum").await;
        let status = cluster.verb("db3", &["status"]).await;
        assert!(status.code == 1 && status.stdout.contains("waits for votes"), "{}", status.stdout);
        assert!(!cluster.host("db3").is_writable().await.expect("db3 answers"), "it takes writes");
        assert_eq!(epoch(cluster).await, before, "it was promoted");
        cluster.start_mysqld("db2").await;
        let primary = scene.failed_over_from("db1").await;
        assert_eq!(epoch(cluster).await, before + 1);
        cluster.start_mysqld("db1").await;
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}

/// The new primary dies as soon as it takes writes, before anything is at rest. When both servers are back, one of
/// the three is the primary and has everything.
#[test]
fn the_new_primary_is_killed_at_once() {
    run("new_primary_killed", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        cluster.host("db1").kill(Kind::Mysqld);
        let topology = cluster
            .wait_for_topology("another server takes writes", LIMIT, |topology| {
                topology["primary"].is_string() && topology["primary"] != "db1"
            })
            .await;
        let second = topology["primary"].as_str().unwrap_or_default().to_owned();
        cluster.host(&second).kill(Kind::Mysqld);
        for host in ["db1", &second] {
            cluster.start_mysqld(host).await;
        }
        let epoch = topology["epoch"].as_u64();
        let topology = cluster
            .wait_for_topology("a server takes writes again", LIMIT, |topology| {
                topology["primary"].is_string() && topology["epoch"].as_u64() > epoch
            })
            .await;
        let third = topology["primary"].as_str().unwrap_or_default().to_owned();
        for host in ["db1", "db2", "db3"].into_iter().filter(|host| *host != third) {
            cluster.takes_back(host, &third, LIMIT).await;
        }
        at_rest(cluster, &third).await;
        scene.end().await;
    });
}

/// A replica that has received everything and applies nothing is no obstacle, and none that loses anything.
#[test]
fn a_replica_whose_applier_was_stopped() {
    run("applier_stopped", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        cluster.host("db2").execute(&["STOP REPLICA SQL_THREAD"]).await;
        // db3 acknowledges nothing: all that is acknowledged from here on is in relay logs of db2 alone.
        cluster.host("db3").pause(Kind::Agent);
        cluster.host("db3").execute(&["STOP REPLICA IO_THREAD"]).await;
        scene.writer.wait_for_acknowledged(100).await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        cluster.host("db3").resume(Kind::Agent);
        let primary = scene.failed_over_from("db1").await;
        cluster.start_mysqld("db1").await;
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}

/// A replica whose applier fails with an error gives way to another.
#[test]
fn a_replica_whose_applier_is_broken_is_not_promoted() {
    run("applier_broken", async |stage| {
        let options = lossless().set("db2", "failover.priority", 200);
        let cluster = Cluster::start(&stage, options).await;
        cluster
            .host("db2")
            .execute(&[
                "SET GLOBAL super_read_only=OFF",
                "SET sql_log_bin=0",
                "CREATE TABLE app.in_the_way (id INT PRIMARY KEY)",
                "SET GLOBAL super_read_only=ON",
            ])
            .await;
        let scene = Scene::of(cluster).await;
        let cluster = &scene.cluster;
        cluster.host("db1").execute(&["CREATE TABLE app.in_the_way (id INT PRIMARY KEY)"]).await;
        says(cluster, "db2", "replication_broken").await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        assert_eq!(scene.failed_over_from("db1").await, "db3");
        scene.end().await;
    });
}

/// As the README has it: a host is added by its agent alone once its server replicates, and replaced by leaving, new data, and joining.
#[test]
fn a_host_is_added_and_replaced() {
    run("added", async |stage| {
        let cluster = Cluster::start(&stage, lossless()).await;
        for host in ["db1", "db2"] {
            cluster.host(host).start(Kind::Agent);
        }
        let adopted = cluster
            .wait_for_topology("adopted without db3", LIMIT, |topology| topology["members"]["db2"]["state"] == "READ")
            .await;
        assert!(adopted["members"]["db3"].is_null(), "{adopted}");
        let db3 = cluster.host("db3");
        db3.start(Kind::Agent);
        at_rest(&cluster, "db1").await;

        db3.kill(Kind::Agent);
        cluster.verb("db3", &["leave"]).await.expect_code(0);
        cluster.rebuild("db3", "db1").await.expect("it can be cloned");
        wait_for("mysqld ends", LIMIT, async || match db3.is_running(Kind::Mysqld) {
            true => Err("it runs".to_owned()),
            false => Ok(()),
        })
        .await;
        cluster.start_mysqld("db3").await;
        db3.execute(&["SET GLOBAL super_read_only = ON"]).await;
        cluster.follow("db3", "db1").await;
        db3.start(Kind::Agent);
        at_rest(&cluster, "db1").await;
        cluster.verb("db3", &["promote", "db3"]).await.expect_code(0);
        at_rest(&cluster, "db3").await;
    });
}
