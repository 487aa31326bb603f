//! The ensemble is lost as a whole, or for the primary alone (promise 7, `failover.failsafe`).

use std::time::Duration;

use mysql_ha_agent::host::clock::now;

use super::guard::{closes, guarded, lease_of};
use crate::scene::{LIMIT, Scene, at_rest, cannot, epoch, lossless, nothing_happened, renewed};
use crate::support::{Cluster, ClusterOptions, Host, Kind, Way, run};

/// Longer than in most tests, and so is a heartbeat's limit: P is 5 s then, which a machine that is busy with everybody's tests needs.
const T: Duration = Duration::from_secs(10);
/// Two of them and more, and five of P.
const OUTAGE: Duration = Duration::from_secs(25);

fn options() -> ClusterOptions {
    lossless().set("*", "zookeeper.session_timeout", "10s").set("*", "heartbeat.timeout", "1500ms")
}

/// Writes go on without ZooKeeper: so many are acknowledged while it is away.
async fn goes_on(scene: &Scene) {
    let before = scene.writer.so_far().acknowledged_ids().len();
    // The fault's length.
    tokio::time::sleep(OUTAGE).await;
    scene.writer.wait_for_acknowledged(before + 500).await;
}

/// The ensemble is lost for several session timeouts and comes back: no write fails, no role changes.
async fn is_none_of_mysql(scene: Scene, lost: impl Fn(&Cluster, &Host), back: impl Fn(&Cluster, &Host)) {
    let before = epoch(&scene.cluster).await;
    for host in &scene.cluster.hosts {
        lost(&scene.cluster, host);
    }
    goes_on(&scene).await;
    let check = scene.cluster.verb("db1", &["check"]).await;
    assert!(check.stdout.contains("may take writes for"), "{}", check.stdout);
    for host in &scene.cluster.hosts {
        back(&scene.cluster, host);
    }
    renewed(&scene.cluster, 10).await;
    at_rest(&scene.cluster, "db1").await;
    nothing_happened(scene, before).await;
}

/// Every member is killed, and started again: the sessions live on in what they wrote.
#[test]
fn the_whole_ensemble_killed_and_started_again() {
    run("ensemble_killed", async |stage| {
        let scene = guarded(&stage, options()).await;
        is_none_of_mysql(scene, |_, host| host.kill(Kind::Zookeeper), |_, host| host.start(Kind::Zookeeper)).await;
    });
}

/// Every member stands still (a storage that hangs): what was connected stays connected.
#[test]
fn the_whole_ensemble_frozen() {
    run("ensemble_frozen", async |stage| {
        let scene = guarded(&stage, options()).await;
        is_none_of_mysql(scene, |_, host| host.pause(Kind::Zookeeper), |_, host| host.resume(Kind::Zookeeper)).await;
    });
}

/// In the midst of it the replicas lose the way to the primary for a moment, just when they would stop receiving from a dead one:
/// whoever has stopped goes on as soon as it answers, without ZooKeeper.
#[test]
fn a_moment_without_the_primary_in_an_outage_of_the_ensemble() {
    run("outage_and_a_moment", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = guarded(&stage, options()).await;
        let before = epoch(&scene.cluster).await;
        for host in &scene.cluster.hosts {
            host.kill(Kind::Zookeeper);
        }
        // Into the stretch from T − P to T after the last renewal.
        tokio::time::sleep(T * 6 / 10).await;
        for replica in ["db2", "db3"] {
            scene.cluster.cut_mysql("db1", replica, &[Way::In, Way::Out]);
        }
        // The fault's length: two looks that find nobody, and two heartbeats that do not come.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        scene.cluster.heal("db1");
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        scene.writer.wait_for_acknowledged(acknowledged + 500).await;
        for host in &scene.cluster.hosts {
            host.start(Kind::Zookeeper);
        }
        renewed(&scene.cluster, 10).await;
        at_rest(&scene.cluster, "db1").await;
        nothing_happened(scene, before).await;
    });
}

/// The ensemble lives and nobody reaches it: every session expires, and `master` with them.
#[test]
fn the_whole_ensemble_cut_off_from_all() {
    run("ensemble_cut_off", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = guarded(&stage, options()).await;
        let cut = |cluster: &Cluster, host: &Host| cluster.cut_zookeeper(&host.name);
        is_none_of_mysql(scene, cut, |cluster, host| cluster.heal(&host.name)).await;
    });
}

/// a3: the primary alone. The others close its server while they acknowledge: it is read-only before another opens (the probe),
/// its mysqld lives, and it comes back without a transaction of its own.
#[test]
fn a3_the_primary_alone_is_closed_by_the_others() {
    run("a3_closed_by_others", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = guarded(&stage, options()).await;
        let db1 = scene.cluster.host("db1");
        let mysqld = db1.pid(Kind::Mysqld);
        scene.cluster.cut_zookeeper("db1");
        let primary = scene.failed_over_from("db1").await;
        scene.cluster.heal("db1");
        let absolved = scene.cluster.takes_back("db1", &primary, LIMIT).await;
        assert_eq!(absolved, 0, "commits were left hanging on db1");
        let log = scene.cluster.host(&primary).log_tail(Kind::Agent, 400);
        assert!(!log.contains("reason=frozen_early"), "a host that answers is not frozen for: {log}");
        assert!(db1.is_running(Kind::Mysqld) && db1.pid(Kind::Mysqld) == mysqld, "its mysqld was killed");
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// a4: a dead host has its quorum frozen before its session ends, so that nothing is waited for on top of that; the others found
/// that nobody is there.
#[test]
fn a4_a_dead_host_is_frozen_for_early() {
    run("a4_frozen_early", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, options()).await;
        scene.cluster.kill_host("db1");
        scene.failed_over_from("db1").await;
        for replica in ["db2", "db3"] {
            let log = scene.cluster.host(replica).log_tail(Kind::Agent, 200);
            assert!(log.contains("reason=frozen_early"), "{log}");
        }
        let history = scene.cluster.tree.get("history/2").await.expect("ZooKeeper answers");
        println!("phases: {}", history.expect("history is written")["phases"]);
        scene.end().await;
    });
}

/// Ensemble *and* replicas gone: read-only within the session timeout.
#[test]
fn without_ensemble_and_replicas_it_is_read_only_within_the_session_timeout() {
    run("all_gone", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = guarded(&stage, options()).await;
        let db1 = scene.cluster.host("db1");
        for host in &scene.cluster.hosts {
            host.kill(Kind::Zookeeper);
        }
        // Some way into the outage it writes on acknowledgements alone; then those end too.
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        tokio::time::sleep(T * 2).await;
        scene.writer.wait_for_acknowledged(acknowledged + 100).await;
        scene.cluster.cut_host("db1");
        let gone = now();
        let (last_open, _) = closes(db1).await;
        let until = lease_of(&scene.cluster, db1);
        assert!(until <= gone + T, "allowed to write {:?} longer than the session timeout", until.since(gone + T));
        assert!(last_open <= until, "open {:?} after that", last_open.since(until));
        for host in &scene.cluster.hosts {
            host.start(Kind::Zookeeper);
        }
        scene.cluster.heal("db1");
        db1.start_if_ended(Kind::Mysqld);
        let topology = scene
            .cluster
            .wait_for_topology("a server takes writes", LIMIT, |topology| topology["primary"].is_string())
            .await;
        let primary = topology["primary"].as_str().unwrap_or_default().to_owned();
        for host in &scene.cluster.hosts {
            if host.name != primary {
                scene.cluster.takes_back(&host.name, &primary, LIMIT).await;
            }
        }
        scene.end().await;
    });
}

/// `failover.failsafe: false`, or `async`: as without it, read-only at the end of the lease.
#[test]
fn without_the_failsafe_an_outage_of_the_ensemble_closes_the_primary() {
    run("no_failsafe", async |stage| {
        let scene = Scene::start(&stage, options().set("*", "failover.failsafe", false)).await;
        let db1 = scene.cluster.host("db1");
        for host in &scene.cluster.hosts {
            host.kill(Kind::Zookeeper);
        }
        let gone = now();
        let (last_open, _) = closes(db1).await;
        assert!(last_open <= gone + T, "open {:?} after the session timeout", last_open.since(gone + T));
        for host in &scene.cluster.hosts {
            host.start(Kind::Zookeeper);
        }
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        scene.writer.wait_for_acknowledged(acknowledged + 50).await;
        scene.end().await;
    });
}
