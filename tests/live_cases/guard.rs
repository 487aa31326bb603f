//! a1: agents that are killed, hang or are never started again, and the guard that fences in their place.

use std::time::Duration;

use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::host::clock::now;
use mysql_ha_agent::host::lease_file;
use serde_json::Value;

use crate::scene::{LIMIT, Scene, at_rest, cannot, epoch, lossless, two_leases_pass};
use crate::support::{Cluster, ClusterOptions, Host, Kind, Stage, assert_nothing_lost, run, wait_for};

/// `fencing.budget` of [`lossless`].
const BUDGET: Duration = Duration::from_millis(500);

/// A cluster under agents and guards, each seen by the other.
pub(crate) async fn guarded(stage: &Stage, options: ClusterOptions) -> Scene {
    let scene = Scene::start(stage, options).await;
    for host in &scene.cluster.hosts {
        host.start(Kind::Guard);
    }
    for host in &scene.cluster.hosts {
        sees_guard(&scene.cluster, &host.name, true).await;
    }
    scene
}

/// Waits until the agent of `host` publishes whether a guard runs beside it.
async fn sees_guard(cluster: &Cluster, host: &str, runs: bool) {
    wait_for(&format!("the agent of {host} sees its guard: {runs}"), LIMIT, async || {
        let agent = cluster.tree.get(&format!("agents/{host}")).await?.ok_or("no agent")?;
        if agent["guard"] == Value::Bool(runs) { Ok(()) } else { Err(agent["guard"].to_string()) }
    })
    .await;
}

/// The lease's end as the guard reads it.
pub(crate) fn lease_of(cluster: &Cluster, host: &Host) -> Moment {
    let path =
        host.log(Kind::Guard).with_file_name("run").join(format!("{}-{}.lease", cluster.options.name, host.name));
    let state =
        lease_file::read(&path).expect("the lease file can be read").expect("it is there").expect("it is whole");
    state.until.expect("the primary holds a lease")
}

/// Waits until the server of `host` takes no writes; when it was asked last with the answer "it does", and when it said that
/// it does not (or was gone).
pub(crate) async fn closes(host: &Host) -> (Moment, Moment) {
    let mut last_open = Moment(0);
    let closed = wait_for(&format!("the server of {} is read-only", host.name), LIMIT, async || {
        let asked = now();
        match host.try_query::<(bool,)>("SELECT @@global.super_read_only").await {
            Ok(rows) if rows.first().is_some_and(|row| !row.0) => {
                last_open = asked;
                Err("it takes writes".to_owned())
            }
            Ok(_) => Ok(now()),
            Err(_) if !host.is_running(Kind::Mysqld) => Ok(now()),
            // It may be fenced and let nobody in; read-only has to be seen.
            Err(failure) => Err(failure),
        }
    })
    .await;
    (last_open, closed)
}

/// Waits until the guard has said so: the variable reads ON while its statement still waits.
async fn guard_fenced(host: &Host) {
    wait_for(&format!("the guard of {} says that it has fenced", host.name), LIMIT, async || {
        let log = host.log_tail(Kind::Guard, 30);
        if log.contains("event=\"fenced\"") { Ok(()) } else { Err(log) }
    })
    .await;
}

/// The agent is killed and kept down: the guard fences within the lease's last `fencing.budget`, before another opens.
#[test]
fn a1_agent_killed_and_kept_down() {
    run("a1_agent_kept_down", async |stage| {
        let scene = guarded(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        db1.kill(Kind::Agent);
        let until = lease_of(&scene.cluster, db1);
        let (last_open, closed) = closes(db1).await;
        assert!(closed >= until - BUDGET, "fenced {:?} too early", (until - BUDGET).since(closed));
        assert!(last_open <= until, "open {:?} after its lease", last_open.since(until));
        guard_fenced(db1).await;
        let primary = scene.failed_over_from("db1").await;
        // The agent comes back in the end, and its server follows. Nobody calls its read-only one set by hand.
        db1.start(Kind::Agent);
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// The same on a host that nobody else reaches: the winner of the race cannot fence it over the network, the guard alone does.
#[test]
fn a1_agent_killed_on_a_host_that_is_cut_off() {
    run("a1_agent_cut_off", async |stage| {
        if !stage.can_partition() {
            eprintln!("skipped: the network cannot be cut with loopback addresses; run as root");
            return;
        }
        let scene = guarded(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        let until = lease_of(&scene.cluster, db1);
        db1.kill(Kind::Agent);
        scene.cluster.cut_host("db1");
        let until = until.max(lease_of(&scene.cluster, db1));
        let (last_open, _) = closes(db1).await;
        assert!(last_open <= until, "open {:?} after its lease", last_open.since(until));
        guard_fenced(db1).await;
        scene.failed_over_from("db1").await;
        scene.end().await;
    });
}

/// The agent hangs with a valid lease: fenced by the guard; thawed, it takes its server into the new primary's fold.
#[test]
fn a1_agent_frozen() {
    run("a1_agent_frozen", async |stage| {
        let scene = guarded(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        db1.pause(Kind::Agent);
        let until = lease_of(&scene.cluster, db1);
        let (last_open, closed) = closes(db1).await;
        assert!(closed >= until - BUDGET && last_open <= until, "{last_open:?} {closed:?} {until:?}");
        guard_fenced(db1).await;
        let primary = scene.failed_over_from("db1").await;
        db1.resume(Kind::Agent);
        at_rest(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// The agent hangs until just before its lease's end, and thaws when the guard has fenced and nobody has taken over yet:
/// its lease may still be renewed. Either it opens its server again or another takes over; nobody calls it set by hand.
#[test]
fn a1_agent_frozen_and_back_before_another_takes_over() {
    run("a1_agent_back_late", async |stage| {
        let scene = guarded(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        // A commit that waits when replicas have frozen would rightly cost db1 its mysqld.
        let paused = scene.writer.pause_between_writes().await;
        db1.pause(Kind::Agent);
        closes(db1).await;
        db1.resume(Kind::Agent);
        drop(paused);
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        scene.writer.wait_for_acknowledged(acknowledged + 50).await;
        let topology = scene
            .cluster
            .wait_for_topology("a server takes writes", LIMIT, |topology| topology["primary"].is_string())
            .await;
        at_rest(&scene.cluster, topology["primary"].as_str().unwrap_or_default()).await;
        scene.end().await;
    });
}

/// Agent *and* guard frozen, on a host that nobody reaches: the server stays open (and can acknowledge nothing), and is closed
/// within a second of their thawing.
#[test]
fn a1_agent_and_guard_frozen_and_thawed() {
    run("a1_both_frozen", async |stage| {
        if !stage.can_partition() {
            eprintln!("skipped: the network cannot be cut with loopback addresses; run as root");
            return;
        }
        let scene = guarded(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        // No commit may wait when the host is cut off: it would rightly come back as one of db1's own.
        let paused = scene.writer.pause_between_writes().await;
        db1.pause(Kind::Agent);
        db1.pause(Kind::Guard);
        scene.cluster.cut_host("db1");
        drop(paused);
        let primary = scene.failed_over_from("db1").await;
        assert!(db1.is_writable().await.expect("db1 answers"), "there is nobody who could have fenced it");
        let thawed = now();
        db1.resume(Kind::Guard);
        db1.resume(Kind::Agent);
        let (last_open, _) = closes(db1).await;
        assert!(last_open <= thawed + Duration::from_secs(1), "open {:?} after thawing", last_open.since(thawed));
        scene.cluster.heal("db1");
        scene
            .cluster
            .wait_for_topology("the roles stay", LIMIT, |topology| topology["primary"] == primary.as_str())
            .await;
        // Not `end`: db1 was open beside the new primary, without a lease and without acknowledging anything.
        let written = scene.writer.stop().await;
        scene.probe.stop().await;
        assert_nothing_lost(&scene.cluster, &written).await;
    });
}

/// Paused, and ZooKeeper out of reach for longer than any session lasts: neither agent nor guard fences, not when the
/// guard is restarted meanwhile, and not when the agent is killed for as long again and comes back.
#[test]
fn paused_neither_agent_nor_guard_fences() {
    run("pause_guarded", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = guarded(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        cluster.verb("db2", &["pause"]).await.expect_code(0);
        for host in &cluster.hosts {
            cluster.cut_zookeeper(&host.name);
        }
        two_leases_pass().await;
        let db1 = cluster.host("db1");
        db1.kill(Kind::Guard);
        db1.start(Kind::Guard);
        db1.kill(Kind::Agent);
        two_leases_pass().await;
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        scene.writer.wait_for_acknowledged(acknowledged + 50).await;
        for kind in [Kind::Agent, Kind::Guard] {
            let log = db1.log_tail(kind, 1000);
            assert!(log.contains("event=") && !log.contains("event=\"fenc"), "{log}");
        }
        db1.start(Kind::Agent);
        for host in &cluster.hosts {
            cluster.heal(&host.name);
        }
        at_rest(cluster, "db1").await;
        assert_eq!(epoch(cluster).await, before, "a role changed during the pause");
        cluster.verb("db3", &["resume"]).await.expect_code(0);
        let (_, written) = scene.end().await;
        let (_, failed, unknown) = written.counts();
        assert_eq!((failed, unknown), (0, 0), "writes failed during the pause");
    });
}

/// The guard alone is killed: nothing happens, and it is shown; a new one is seen; a second one is refused.
#[test]
fn guard_alone_killed() {
    run("guard_killed", async |stage| {
        let scene = guarded(&stage, lossless()).await;
        let (cluster, db1) = (&scene.cluster, scene.cluster.host("db1"));
        let before = epoch(cluster).await;
        let status = cluster.verb("db2", &["status"]).await.expect_code(0);
        assert!(!status.stdout.contains('~'), "{}", status.stdout);
        assert!(cluster.verb("db1", &["check"]).await.stdout.contains("the guard runs"));

        db1.kill(Kind::Guard);
        sees_guard(cluster, "db1", false).await;
        let status = cluster.verb("db2", &["status"]).await.expect_code(0);
        assert!(status.stdout.contains("~  db1: no guard runs there"), "{}", status.stdout);
        let check = cluster.verb("db1", &["check"]).await.expect_code(0);
        assert!(check.stdout.contains("WARN  guard"), "{}", check.stdout);

        db1.start(Kind::Guard);
        sees_guard(cluster, "db1", true).await;
        let second = cluster.verb("db1", &["guard"]).await.expect_code(5);
        assert!(second.stderr.contains("another guard"), "{}", second.stderr);
        assert_eq!(epoch(cluster).await, before, "a role changed");
        let (_, written) = scene.end().await;
        let (_, failed, unknown) = written.counts();
        assert_eq!((failed, unknown), (0, 0), "writes failed");
    });
}

/// The host crashes and comes up with its server writable (somebody has undone what keeps it read-only) and without an agent:
/// the guard closes it, again whenever somebody opens it by hand.
#[test]
fn a1_agent_never_started_after_a_crash() {
    run("a1_never_started", async |stage| {
        let scene = guarded(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        for kind in [Kind::Agent, Kind::Guard] {
            db1.kill(kind);
        }
        db1.execute(&["RESET PERSIST super_read_only", "RESET PERSIST IF EXISTS read_only"]).await;
        scene.cluster.kill_host("db1");
        scene.failed_over_from("db1").await;
        scene.cluster.start_host("db1", false).await;
        db1.start(Kind::Guard);
        closes(db1).await;
        db1.execute(&["SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF"]).await;
        closes(db1).await;
        guard_fenced(db1).await;
        // Not `end`: db1 was open beside the new primary, by hand.
        let written = scene.writer.stop().await;
        scene.probe.stop().await;
        assert_nothing_lost(&scene.cluster, &written).await;
    });
}

/// An agent that is restarted in time, with its guard watching: nothing happens.
#[test]
fn a1_agent_restarted_in_time_under_the_guard() {
    run("a1_restarted_guarded", async |stage| {
        let scene = guarded(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let db1 = scene.cluster.host("db1");
        for _ in 0..3 {
            db1.kill(Kind::Agent);
            let until = lease_of(&scene.cluster, db1);
            db1.start(Kind::Agent);
            wait_for("the lease is renewed by the new process", LIMIT, async || {
                let renewed = lease_of(&scene.cluster, db1);
                if renewed > until { Ok(()) } else { Err(format!("{renewed:?}")) }
            })
            .await;
        }
        at_rest(&scene.cluster, "db1").await;
        assert_eq!(epoch(&scene.cluster).await, before, "a role changed");
        let (_, written) = scene.end().await;
        let (_, failed, unknown) = written.counts();
        assert_eq!((failed, unknown), (0, 0), "writes failed");
    });
}
