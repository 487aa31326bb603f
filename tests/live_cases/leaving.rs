//! Servers that leave the product's care.

use crate::scene::{LIMIT, Scene, at_rest, lossless};
use crate::support::{Cluster, ClusterOptions, Kind, next_heartbeat, run, wait_for};

const PERSISTED: &str = "SELECT COUNT(*) FROM performance_schema.persisted_variables";

/// A replica of two leaves under load: it acknowledges nothing any more, and the other alone is enough for a promotion in
/// which nothing is lost.
#[test]
fn a_replica_leaves_and_nothing_acknowledged_depends_on_it() {
    run("leave_replica", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        cluster.verb("db3", &["leave"]).await.expect_code(5); // its agent runs
        cluster.host("db1").stop(Kind::Agent).await;
        cluster.verb("db1", &["leave"]).await.expect_code(5); // the primary
        cluster.host("db1").start(Kind::Agent);
        at_rest(cluster, "db1").await;

        // db2 is not there to acknowledge: undone, and db3 goes on acknowledging.
        cluster.host("db3").stop(Kind::Agent).await;
        cluster.host("db2").execute(&["STOP REPLICA IO_THREAD"]).await;
        cluster.host("db2").pause(Kind::Agent);
        let undone = cluster.verb("db3", &["leave"]).await.expect_code(1);
        assert!(undone.stderr.contains("undone"), "{}", undone.stderr);
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        scene.writer.wait_for_acknowledged(acknowledged + 20).await;
        cluster.host("db2").resume(Kind::Agent);
        wait_for("db2 receives again", LIMIT, async || {
            let sql = "SELECT SERVICE_STATE FROM performance_schema.replication_connection_status";
            match cluster.host("db2").try_query::<(String,)>(sql).await?.first() {
                Some((state,)) if state == "ON" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;

        cluster.verb("db3", &["leave"]).await.expect_code(0);
        let topology = cluster.wait_for_topology("there is one", LIMIT, |_| true).await;
        assert!(topology["members"]["db3"].is_null(), "{topology}");
        assert_eq!(topology["durability"]["sync"], serde_json::json!(["db2"]), "{topology}");
        let db3 = cluster.host("db3");
        assert_eq!(db3.value::<u64>(PERSISTED).await, 0);
        assert!(!db3.value::<bool>("SELECT @@global.rpl_semi_sync_replica_enabled").await);
        cluster.wait_for_replica("db3", "db1").await;
        cluster.verb("db2", &["status"]).await.expect_code(0);

        next_heartbeat(cluster.host("db1")).await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        // db2 is the only member left that could acknowledge: writes wait until the old primary is back.
        cluster.wait_for_topology("db2 is named", LIMIT, |topology| topology["primary"] == "db2").await;
        cluster.start_mysqld("db1").await;
        scene.end().await;
    });
}

/// The last server leaves, and nothing is left of the cluster.
#[test]
fn the_last_server_leaves_nothing_behind() {
    run("leave_last", async |stage| {
        let options = ClusterOptions { hosts: 2, semi_sync: false, ..ClusterOptions::default() };
        let cluster = Cluster::start(&stage, options).await;
        cluster.start_agents();
        at_rest(&cluster, "db1").await;
        for host in ["db2", "db1"] {
            cluster.host(host).stop(Kind::Agent).await;
            cluster.verb(host, &["leave"]).await.expect_code(0);
            assert_eq!(cluster.host(host).value::<u64>(PERSISTED).await, 0, "{host}");
        }
        for node in ["topology", "lease", "history", "control"] {
            assert!(cluster.tree.get(node).await.is_ok_and(|found| found.is_none()), "{node} is left");
        }
        assert!(cluster.host("db1").is_writable().await.expect("db1 answers"));
        let schemas: u64 = cluster
            .host("db1")
            .value("SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'mysql_ha'")
            .await;
        assert_eq!(schemas, 0);
        let left =
            std::fs::read_dir(cluster.host("db1").config().with_file_name("state")).expect("it is there").count();
        assert_eq!(left, 0, "state_dir is not empty");
    });
}
