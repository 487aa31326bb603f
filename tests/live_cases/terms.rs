//! `failover.durability` and `failover.sync_replicas` of a running cluster: the file proposes, the primary records.

use serde_json::Value;

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless};
use crate::support::{Cluster, Kind, next_heartbeat, run, wait_for};

fn reload(cluster: &Cluster, hosts: &[&str], key: &str, value: impl Into<Value> + Clone) {
    for host in hosts {
        cluster.host(host).reload_with(key, value.clone());
    }
}

/// Waits until `status` names what the file of `host` asks for.
async fn status_names(cluster: &Cluster, host: &str, asked: &str) {
    let words = format!("{host} {asked}");
    wait_for(&format!("status says '{words}'"), LIMIT, async || {
        let status = cluster.verb("db1", &["status"]).await;
        let said = status.code == 1 && status.stdout.contains("failover.durability") && status.stdout.contains(&words);
        if said { Ok(()) } else { Err(format!("{}: {}", status.code, status.stdout)) }
    })
    .await;
}

async fn waits_for(cluster: &Cluster, host: &str, count: u32) {
    const COUNT: &str =
        "SELECT @@global.rpl_semi_sync_source_enabled * @@global.rpl_semi_sync_source_wait_for_replica_count";
    wait_for(&format!("commits on {host} wait for {count}"), LIMIT, async || {
        match cluster.host(host).try_query::<(u32,)>(COUNT).await?.first() {
            Some((now,)) if *now == count => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

fn k(count: u64) -> impl Fn(&Value) -> bool {
    move |topology| topology["durability"]["sync_replicas"] == count && topology["durability"]["degraded"] == false
}

/// 1 → 2 → 1 under load. With 2, the primary and a replica die at one stroke, and the other replica alone has everything.
#[test]
fn sync_replicas_are_raised_and_lowered_while_clients_write() {
    run("terms_k", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        reload(cluster, &["db2", "db3"], "failover.sync_replicas", 2);
        status_names(cluster, "db3", "lossless with 2").await;
        cluster.wait_for_topology("the primary's file decides", LIMIT, k(1)).await;
        reload(cluster, &["db1"], "failover.sync_replicas", 2);
        let raised = cluster.wait_for_topology("two acknowledge", LIMIT, k(2)).await;
        assert!(raised["durability"]["floor"].as_str().is_some_and(|floor| !floor.is_empty()), "{raised}");
        waits_for(cluster, "db1", 2).await;
        scene.writer.wait_for_acknowledged(100).await;
        let paused = scene.writer.pause_between_writes().await;
        for host in ["db1", "db3"] {
            cluster.host(host).kill(Kind::Mysqld);
        }
        drop(paused);
        cluster.wait_for_topology("db2 alone takes over", LIMIT, |topology| topology["primary"] == "db2").await;
        for host in ["db1", "db3"] {
            cluster.start_mysqld(host).await;
            cluster.takes_back(host, "db2", LIMIT).await;
        }
        at_rest(cluster, "db2").await;
        waits_for(cluster, "db2", 2).await;
        reload(cluster, &["db1", "db2", "db3"], "failover.sync_replicas", 1);
        cluster.wait_for_topology("one acknowledges", LIMIT, k(1)).await;
        waits_for(cluster, "db2", 1).await;
        cluster.host("db3").kill(Kind::Mysqld);
        scene.writer.wait_for_acknowledged(100).await;
        cluster.start_mysqld("db3").await;
        at_rest(cluster, "db2").await;
        assert_eq!(epoch(cluster).await, before + 1);
        scene.end().await;
    });
}

/// `lossless` is given up once nobody's file asks for it, and comes back as it was.
#[test]
fn lossless_becomes_async_and_lossless_again_while_clients_write() {
    run("terms_mode", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        let mode = |mode: &'static str| move |topology: &Value| topology["durability"]["mode"] == mode;
        reload(cluster, &["db1"], "failover.durability", "async");
        status_names(cluster, "db1", "async").await;
        next_heartbeat(cluster.host("db1")).await;
        cluster.wait_for_topology("one file alone does not give lossless up", LIMIT, mode("lossless")).await;
        waits_for(cluster, "db1", 1).await;
        reload(cluster, &["db2", "db3"], "failover.durability", "async");
        let asynchronous = cluster.wait_for_topology("async is recorded", LIMIT, mode("async")).await;
        assert_eq!(asynchronous["durability"]["sync"], serde_json::json!([]), "{asynchronous}");
        waits_for(cluster, "db1", 0).await;
        for host in ["db2", "db3"] {
            cluster.host(host).kill(Kind::Mysqld);
        }
        scene.writer.wait_for_acknowledged(100).await;
        for host in ["db2", "db3"] {
            cluster.start_mysqld(host).await;
        }
        at_rest(cluster, "db1").await;
        reload(cluster, &["db1", "db2", "db3"], "failover.durability", "lossless");
        cluster.wait_for_topology("lossless is recorded", LIMIT, mode("lossless")).await;
        at_rest(cluster, "db1").await;
        waits_for(cluster, "db1", 1).await;
        assert_eq!(epoch(cluster).await, before, "a role changed");
        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        let primary = scene.failed_over_from("db1").await;
        cluster.start_mysqld("db1").await;
        scene.returns("db1", &primary).await;
        scene.end().await;
    });
}
