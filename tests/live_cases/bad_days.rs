//! Bad input: one clear message, the exit code of the contract, nothing changed.

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless};
use crate::support::{Cluster, ClusterOptions, Kind, run, wait_for};

/// Waits until the agent of `host` has ended, and returns its exit code and the end of its log.
async fn ended(cluster: &Cluster, host: &str) -> (Option<i32>, String) {
    let host = cluster.host(host);
    let status = wait_for(&format!("the agent of {} ends", host.name), LIMIT, async || {
        host.exit_status(Kind::Agent).ok_or_else(|| host.log_tail(Kind::Agent, 5))
    })
    .await;
    (status.code(), host.log_tail(Kind::Agent, 5))
}

/// Two writable servers at adoption: both agents leave and name both; nothing is changed.
#[test]
fn two_writable_servers_are_refused() {
    run("two_writable", async |stage| {
        let options = ClusterOptions { semi_sync: false, ..lossless() };
        let cluster = Cluster::start(&stage, options).await;
        cluster
            .host("db3")
            .execute(&[
                "STOP REPLICA",
                "RESET REPLICA ALL",
                "SET GLOBAL super_read_only=OFF",
                "SET GLOBAL read_only=OFF",
            ])
            .await;
        cluster.start_agents();
        for host in ["db1", "db3"] {
            let (code, log) = ended(&cluster, host).await;
            assert_eq!(code, Some(5), "{log}");
            assert!(log.contains("db1, db3"), "{log}");
            assert!(cluster.host(host).is_writable().await.expect("the server answers"), "{host} was changed");
        }
        assert_eq!(cluster.tree.get("topology").await.expect("ZooKeeper answers"), None);
    });
}

/// A second agent of the same name on another host is refused; the first goes on.
#[test]
fn a_second_agent_of_the_same_name_is_refused() {
    run("second_agent", async |stage| {
        let options = lossless().set("db3", "name", "db2");
        let cluster = Cluster::start(&stage, options).await;
        for host in ["db1", "db2"] {
            cluster.host(host).start(Kind::Agent);
        }
        cluster.wait_for_topology("db1 is adopted", LIMIT, |topology| topology["primary"] == "db1").await;
        cluster.host("db3").start(Kind::Agent);
        let (code, log) = ended(&cluster, "db3").await;
        assert_eq!(code, Some(5), "{log}");
        assert!(cluster.host("db2").is_running(Kind::Agent));
    });
}

/// A second agent for the same server on the same host, with directories of its own: the lock on `state_dir` does not keep it
/// away, and it must not take the living one for its dead predecessor, nor fence the server that holds the lease.
#[test]
fn a_second_agent_of_the_same_name_beside_the_primarys_is_refused() {
    run("second_agent_beside", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let file = scene.cluster.host("db1").config();
        let text = std::fs::read_to_string(&file).expect("the agent's file can be read");
        let other: Vec<String> = text
            .lines()
            .map(|line| if line.contains("_dir:") { format!("{line}-of-another") } else { line.to_owned() })
            .collect();
        std::fs::write(&file, other.join("\n")).expect("the agent's file can be written");
        let second = scene.cluster.verb("db1", &["run"]).await;
        assert_eq!(second.code, 5, "{}", second.stderr);
        std::fs::write(&file, text).expect("the agent's file can be written");
        assert_eq!(epoch(&scene.cluster).await, before, "a role changed");
        let (_, written) = scene.end().await;
        let (_, failed, unknown) = written.counts();
        assert_eq!((failed, unknown), (0, 0), "writes failed");
    });
}

/// A `topology` that is no valid record, or of a newer format: roles stay, it is said, nothing is overwritten.
#[test]
fn an_unreadable_topology_changes_nothing() {
    run("unreadable_topology", async |stage| {
        let cluster = Cluster::start(&stage, lossless()).await;
        cluster.start_agents();
        at_rest(&cluster, "db1").await;
        let good = cluster.tree.get("topology").await.expect("ZooKeeper answers").expect("it is there");
        for (bad, word) in [("not JSON", "JSON"), (r#"{"format": 99, "cluster": "live"}"#, "format")] {
            cluster.tree.put("topology", bad).await;
            wait_for("the agent says so", LIMIT, async || {
                let status = cluster.verb("db2", &["status"]).await;
                let said = status.stdout.contains(word) && status.code == 1;
                if said { Ok(()) } else { Err(status.stdout) }
            })
            .await;
            assert!(cluster.host("db1").is_writable().await.expect("db1 answers"), "a role changed");
        }
        cluster.tree.put("topology", &good.to_string()).await;
        at_rest(&cluster, "db1").await;
    });
}

/// A wrong password, a server that is not there: the verb says which and leaves with 4; the agent changes no role.
#[test]
fn a_wrong_password_is_reported_and_changes_nothing() {
    run("wrong_password", async |stage| {
        let options = lossless().set("db2", "mysql.password", "wrong");
        let cluster = Cluster::start(&stage, options).await;
        cluster.start_agents();
        cluster.wait_for_topology("db1 is adopted", LIMIT, |topology| topology["primary"] == "db1").await;
        let check = cluster.verb("db2", &["check"]).await;
        assert_eq!(check.code, 4, "{}", check.stdout);
        assert!(check.stdout.contains("access denied"), "{}", check.stdout);
        cluster.verb("db1", &["check"]).await.expect_code(0);
        cluster.host("db2").kill(Kind::Mysqld);
        let check = cluster.verb("db2", &["check", "--json"]).await;
        assert_eq!(check.code, 4, "{}", check.stdout);
    });
}

/// A broken file: every fault at once, exit code 2.
#[test]
fn a_broken_configuration_stops_every_verb() {
    run("broken_configuration", async |stage| {
        let options = ClusterOptions { hosts: 1, replicate: false, semi_sync: false, ..lossless() };
        let options = options.set("db1", "heartbeat.interva", "1s").set("db1", "zookeeper.session_timeout", "1s");
        let cluster = Cluster::start(&stage, options).await;
        for verb in ["run", "status", "check"] {
            let end = cluster.verb("db1", &[verb]).await;
            assert_eq!(end.code, 2, "{}", end.stderr);
            assert!(end.stderr.contains("did you mean") && end.stderr.contains("op_timeout"), "{}", end.stderr);
        }
    });
}
