//! Replicas that are behind, broken or gone when the primary is lost.

use serde_json::json;

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

/// A replica is emptied by a copy that was broken off, and the servers that have everything have no binary logs of the past any more,
/// since they were cloned themselves. It says that it has to be rebuilt, it lives anew, it leaves the sync set, and when it leads the
/// race nevertheless it gives way to who has everything (found by chaos).
#[test]
fn interleaving_07_a_replica_whose_copy_was_broken_off_leads_nobody_astray() {
    run("broken_copy", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let db2 = cluster.host("db2");
        let stopped = db2.stop(Kind::Agent).await;
        assert!(stopped.success(), "{stopped}");
        db2.execute(&["STOP REPLICA", "RESET REPLICA ALL", "RESET BINARY LOGS AND GTIDS"]).await;
        for host in ["db1", "db3"] {
            let purge = "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY";
            cluster.host(host).execute(&["FLUSH BINARY LOGS", purge]).await;
        }
        db2.start(Kind::Agent);
        says(cluster, "db2", "replication_broken").await;
        let agent = cluster.tree.get("agents/db2").await.expect("ZooKeeper answers").expect("its agent is there");
        assert!(agent["detail"].to_string().contains("rebuild it"), "{agent}");
        let life = agent["server"]["incarnation"].as_str().unwrap_or_default();
        assert!(life.ends_with("+1"), "its data was replaced, and it passes for the same life: {life}");
        cluster
            .wait_for_topology("db2 has left the sync set", LIMIT, |t| t["durability"]["sync"] == json!(["db3"]))
            .await;
        // Its lock is the lowest.
        cluster.host("db3").pause(Kind::Agent);
        cluster.host("db1").kill(Kind::Mysqld);
        wait_for("db2 leads the race", LIMIT, async || {
            let agent = cluster.tree.get("agents/db2").await?.ok_or("db2 has no agent")?;
            if agent["reason"] == "no_quorum" { Ok(()) } else { Err(agent.to_string()) }
        })
        .await;
        cluster.host("db3").resume(Kind::Agent);
        assert_eq!(scene.failed_over_from("db1").await, "db3");
        cluster.start_mysqld("db1").await;
        cluster.takes_back("db1", "db3", LIMIT).await;
        assert!(db2.stop(Kind::Agent).await.success());
        cluster.rebuild("db2", "db3").await.expect("it is copied");
        wait_for("mysqld of db2 has ended after the copy", LIMIT, async || {
            if db2.is_running(Kind::Mysqld) { Err("it runs".to_owned()) } else { Ok(()) }
        })
        .await;
        cluster.start_mysqld("db2").await;
        db2.start(Kind::Agent);
        at_rest(cluster, "db3").await;
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
