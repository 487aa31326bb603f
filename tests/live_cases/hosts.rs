//! Hosts come and go by an operator's verbs.

use serde_json::json;

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, says};
use crate::support::{Cluster, ClusterOptions, run};

/// Nothing replicates yet: `bootstrap` makes one server the primary, and only where nobody else could be meant. The others join as they
/// replicate from it.
#[test]
fn bootstrap_makes_a_cluster_of_servers_that_do_not_replicate() {
    run("bootstrap", async |stage| {
        let cluster = Cluster::start(&stage, lossless()).await;
        for host in ["db2", "db3"] {
            cluster.host(host).execute(&["STOP REPLICA", "RESET REPLICA ALL"]).await;
        }
        let without_agent = cluster.verb("db1", &["bootstrap"]).await.expect_code(5);
        assert!(without_agent.stderr.contains("agent does not run"), "{without_agent:?}");
        cluster.start_agents();
        says(&cluster, "db1", "nothing_follows").await;
        let elsewhere = cluster.verb("db2", &["bootstrap"]).await.expect_code(5);
        assert!(elsewhere.stderr.contains("the server of db1 takes writes"), "{elsewhere:?}");
        assert_eq!(cluster.tree.get("topology").await, Ok(None), "a refused verb has touched something");
        let done = cluster.verb("db1", &["bootstrap"]).await.expect_code(0);
        assert!(done.stdout.contains("db1 is the primary"), "{done:?}");
        assert!(cluster.host("db1").is_writable().await.expect("db1 answers"));
        let again = cluster.verb("db1", &["bootstrap"]).await.expect_code(5);
        assert!(again.stderr.contains("is there already"), "{again:?}");
        for host in ["db2", "db3"] {
            cluster.follow(host, "db1").await;
        }
        at_rest(&cluster, "db1").await;
    });
}

/// A host that is gone for good is removed where nobody could count on it: in `async`. In `lossless` it is shut out by its account,
/// which has to stay recorded.
#[test]
fn a_dead_host_is_removed_where_nobody_counts_on_it() {
    run("remove", async |stage| {
        let scene = Scene::start(&stage, ClusterOptions { own_accounts: true, ..lossless() }).await;
        let cluster = &scene.cluster;
        let recorded = json!({"db2": ["repl_db2"], "db3": ["repl_db3"]});
        cluster.wait_for_topology("accounts are known", LIMIT, |it| it["durability"]["accounts"] == recorded).await;
        at_rest(cluster, "db1").await;
        for (name, why) in [("db3", "'leave' on that host"), ("db1", "agent of db1 runs"), ("db9", "no member")] {
            let refused = cluster.verb("db2", &["remove", name]).await.expect_code(5);
            assert!(refused.stderr.contains(why), "{refused:?}");
        }
        cluster.kill_host("db3");
        cluster.wait_for_topology("db3 is shut out", LIMIT, |it| it["durability"]["sync"] == json!(["db2"])).await;
        let refused = cluster.verb("db2", &["remove", "db3"]).await.expect_code(5);
        assert!(refused.stderr.contains("was shut out"), "{refused:?}");
        for host in ["db1", "db2"] {
            cluster.host(host).reload_with("failover.durability", "async");
        }
        cluster.wait_for_topology("async is in force", LIMIT, |it| it["durability"]["mode"] == "async").await;
        let before = epoch(cluster).await;
        cluster.verb("db2", &["remove", "db3"]).await.expect_code(0);
        cluster.wait_for_topology("db3 is gone", LIMIT, |it| it["members"]["db3"].is_null()).await;
        scene.writer.wait_for_acknowledged(50).await;
        assert_eq!(epoch(cluster).await, before);
        scene.end().await;
    });
}

/// Before its host goes down the primary hands over; a replica has nothing to hand over.
#[test]
fn handover_switches_only_where_the_primary_is() {
    run("handover", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        let nothing = cluster.verb("db2", &["handover"]).await.expect_code(0);
        assert!(nothing.stdout.contains("db2 is not the primary"), "{nothing:?}");
        assert_eq!(epoch(cluster).await, before);
        cluster.verb("db1", &["handover"]).await.expect_code(0);
        let topology = cluster.wait_for_topology("another is the primary", LIMIT, |it| it["primary"].is_string()).await;
        let primary = topology["primary"].as_str().unwrap_or_default().to_owned();
        assert_ne!(primary, "db1");
        at_rest(cluster, &primary).await;
        assert_eq!(epoch(cluster).await, before + 1);
        scene.end().await;
    });
}
