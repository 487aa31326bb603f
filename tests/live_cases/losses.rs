//! `async`: what a promotion costs is bounded by `failover.max_lag`, and reported.

use serde_json::Value;

use crate::scene::{LIMIT, Scene, at_rest, epoch, renewed};
use crate::support::{ClusterOptions, Kind, run, wait_for};

fn asynchronous() -> ClusterOptions {
    ClusterOptions { semi_sync: false, ..ClusterOptions::default() }
}

/// Both replicas stand still while clients write on.
async fn fall_behind(scene: &Scene) {
    for host in ["db2", "db3"] {
        scene.cluster.host(host).execute(&["STOP REPLICA"]).await;
    }
    scene.writer.wait_for_acknowledged(100).await;
    renewed(&scene.cluster, 3).await;
}

/// No replica has what the primary wrote last: the best is promoted all the same, and what is lost is named as a GTID set, in
/// `history`, as an incident, in `status`, and once the old primary is back by its agent.
#[test]
fn what_a_promotion_loses_is_named() {
    run("async_lost", async |stage| {
        let scene = Scene::start(&stage, asynchronous()).await;
        let cluster = &scene.cluster;
        fall_behind(&scene).await;
        let lease = cluster.tree.get("lease").await.expect("ZooKeeper answers").expect("there is a lease");
        let watermark = lease["watermark"].as_str().expect("a set").to_owned();
        cluster.host("db1").kill(Kind::Mysqld);
        let primary = scene.failed_over_from("db1").await;
        let server = cluster.host(&primary);
        let epoch = epoch(cluster).await;
        let history = wait_for("the role change is written down", LIMIT, async || {
            cluster.tree.get(&format!("history/{epoch}")).await?.ok_or_else(|| "not yet".to_owned())
        })
        .await;
        let lost = history["lost"].as_str().expect("something is lost").to_owned();
        let none_here = format!("SELECT GTID_SUBTRACT('{lost}', @@global.gtid_executed) = GTID_SUBTRACT('{lost}', '')");
        assert!(server.value::<bool>(&none_here).await, "{primary} has some of {lost}");
        let known = format!("SELECT GTID_SUBSET(GTID_SUBTRACT('{watermark}', @@global.gtid_executed), '{lost}')");
        assert!(server.value::<bool>(&known).await, "of {watermark} more is missing than {lost}");
        let incidents = cluster.tree.children("incidents").await.expect("ZooKeeper answers");
        let incident = incidents.values().find(|incident| incident["kind"] == "transactions_lost");
        let detail = incident.map_or(Value::Null, |incident| incident["detail"].clone());
        assert!(detail.as_str().is_some_and(|detail| detail.contains(&lost)), "{incidents:?}");
        let status = cluster.verb("db2", &["--json", "status"]).await.json();
        assert_eq!(status["lost"], lost.as_str(), "{status}");

        cluster.start_mysqld("db1").await;
        let agent = wait_for("db1 is named with its own transactions", LIMIT, async || {
            let agent = cluster.tree.get("agents/db1").await?.ok_or("db1 has no agent")?;
            if agent["reason"] == "diverged" { Ok(agent) } else { Err(agent["detail"].to_string()) }
        })
        .await;
        let errant = agent["server"]["errant"].as_str().expect("a set").to_owned();
        let all = format!("SELECT GTID_SUBSET('{lost}', '{errant}')");
        assert!(cluster.host("db1").value::<bool>(&all).await, "of {lost} only {errant} is on db1");
        assert!(!cluster.host("db1").is_writable().await.expect("db1 answers"), "it takes writes");
        scene.probe.stop().await.assert_one_writer();
    });
}

/// All replicas are older than `failover.max_lag`: nobody is promoted, and `status` says why. When the old primary returns, whoever
/// leads goes on with all that it has.
#[test]
fn nobody_older_than_max_lag_is_promoted() {
    run("async_max_lag", async |stage| {
        let scene = Scene::start(&stage, asynchronous().set("*", "failover.max_lag", "2s")).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        fall_behind(&scene).await;
        wait_for("both replicas lag by more than max_lag", LIMIT, async || {
            for host in ["agents/db2", "agents/db3"] {
                let lag = cluster.tree.get(host).await?.ok_or("no agent")?["server"]["lag_ms"].clone();
                if lag.as_u64().is_none_or(|lag| lag < 4_000) {
                    return Err(format!("{host}: {lag}"));
                }
            }
            Ok(())
        })
        .await;
        cluster.host("db1").kill(Kind::Mysqld);
        wait_for("a candidate says too_far_behind", LIMIT, async || {
            let agents = cluster.tree.children("agents").await?;
            let says = agents.values().any(|agent| agent["reason"] == "too_far_behind");
            if says { Ok(()) } else { Err(format!("{agents:?}")) }
        })
        .await;
        let status = cluster.verb("db2", &["status"]).await;
        assert!(status.code == 1 && status.stdout.contains("failover.max_lag"), "{}", status.stdout);
        assert_eq!(epoch(cluster).await, before, "one was promoted");
        cluster.start_mysqld("db1").await;
        // Whoever leads fetches from db1 what it lacks.
        let again = |topology: &Value| topology["primary"].is_string() && topology["epoch"].as_u64() > Some(before);
        let topology = cluster.wait_for_topology("a server takes writes again", LIMIT, again).await;
        let primary = topology["primary"].as_str().expect("a name").to_owned();
        // What was stopped by hand is started by hand.
        for host in ["db2", "db3"].into_iter().filter(|host| *host != primary) {
            cluster.host(host).execute(&["START REPLICA"]).await;
        }
        if primary != "db1" {
            cluster.takes_back("db1", &primary, LIMIT).await;
        }
        at_rest(cluster, &primary).await;
        scene.end().await;
    });
}
