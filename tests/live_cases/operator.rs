//! What an operator does: modes, cooldown, pauses, fences, promotions by hand after a loss.

use serde_json::Value;

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, two_leases_pass};
use crate::support::{
    Cluster, ClusterOptions, Kind, ReadOnlyProbe, Writer, WriterOptions, next_heartbeat, run, wait_for,
};

/// Waits until `status` on a host says all of `parts`.
async fn status_says(cluster: &Cluster, host: &str, parts: &[&str]) {
    wait_for(&format!("status on {host} says {parts:?}"), LIMIT, async || {
        let status = cluster.verb(host, &["status"]).await;
        match parts.iter().all(|part| status.stdout.contains(part)) {
            true => Ok(()),
            false => Err(status.stdout),
        }
    })
    .await;
}

async fn agent(cluster: &Cluster, host: &str) -> Result<Value, String> {
    cluster.tree.get(&format!("agents/{host}")).await?.ok_or_else(|| format!("the agent of {host} is not there"))
}

/// The role change that began this epoch, as soon as it is written down.
async fn history(cluster: &Cluster, epoch: u64) -> Value {
    wait_for("the history is written", LIMIT, async || {
        cluster.tree.get(&format!("history/{epoch}")).await?.ok_or_else(|| "not yet".to_owned())
    })
    .await
}

async fn no_locks(cluster: &Cluster) {
    let locks = cluster.tree.children("election").await.expect("ZooKeeper answers");
    assert!(locks.is_empty(), "somebody has voted: {locks:?}");
}

async fn io_runs(cluster: &Cluster, host: &str) -> bool {
    let sql = "SELECT SERVICE_STATE FROM performance_schema.replication_connection_status";
    let state: String = cluster.host(host).value(sql).await;
    state != "OFF"
}

/// `manual`: a restarted mysqld gets its role back, a lost one keeps it until `promote NAME`, which needs the votes.
#[test]
fn manual_promotes_only_when_told() {
    run("manual", async |stage| {
        let scene = Scene::start(&stage, lossless().set("*", "failover.mode", "manual")).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        next_heartbeat(cluster.host("db1")).await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        status_says(cluster, "db2", &["no server takes writes (mysql_down)", "failover.mode is manual"]).await;
        no_locks(cluster).await;
        cluster.start_mysqld("db1").await;
        at_rest(cluster, "db1").await;
        assert_eq!(epoch(cluster).await, before, "a role changed by itself");

        next_heartbeat(cluster.host("db1")).await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.kill_host("db1");
        drop(paused);
        // Nobody races, nobody freezes: long after the lease is over.
        wait_for("db2 waits to be told", LIMIT, async || match agent(cluster, "db2").await? {
            agent if agent["reason"] == "not_automatic" => Ok(()),
            agent => Err(agent.to_string()),
        })
        .await;
        no_locks(cluster).await;
        assert!(io_runs(cluster, "db2").await && io_runs(cluster, "db3").await, "a replica was frozen");
        cluster.verb("db3", &["promote", "db3", "--dry-run"]).await.expect_code(0);
        cluster.verb("db3", &["promote", "db3"]).await.expect_code(0);
        cluster.wait_for_topology("db3 is named", LIMIT, |topology| topology["primary"] == "db3").await;
        assert_eq!(epoch(cluster).await, before + 1);
        assert_eq!(history(cluster, 2).await["cause"], "promoted_by_hand");
        scene.end().await;
    });
}

/// `observe`: agents on a running replica set send no statement that changes anything, write nothing but their own node,
/// and say what they would do when the primary is lost.
#[test]
fn observers_change_nothing() {
    run("observe", async |stage| {
        // Semi-sync as a careful operator has it: there is nothing that an agent would want to change.
        let options = ClusterOptions { semi_sync: true, ..lossless() };
        let cluster = Cluster::start(&stage, options.set("*", "failover.mode", "observe")).await;
        let mut before = Vec::new();
        for host in &cluster.hosts {
            host.execute(&["SET GLOBAL log_output='TABLE'", "SET GLOBAL general_log=ON"]).await;
            before.push(host.value::<String>("SELECT @@global.gtid_executed").await);
        }
        cluster.start_agents();
        let said = async |host: &str, part: &str| {
            wait_for(&format!("{host} says {part}"), LIMIT, async || {
                let agent = agent(&cluster, host).await?;
                let detail = agent["detail"].as_str().unwrap_or_default();
                if detail.contains("observes only") && detail.contains(part) { Ok(()) } else { Err(agent.to_string()) }
            })
            .await;
        };
        said("db1", "primary of epoch 1").await;
        said("db2", "follows db1").await;
        for (host, executed) in cluster.hosts.iter().zip(&before) {
            let now: String = host.value("SELECT @@global.gtid_executed").await;
            assert_eq!(now, *executed, "{}: transactions were written", host.name);
            let sql = "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log WHERE user_host LIKE 'agent%' \
                       AND command_type IN ('Query', 'Execute') \
                       AND CONVERT(argument USING utf8mb4) NOT REGEXP '^(SELECT|SHOW|SET SESSION|SET NAMES|DO) ?'";
            let statements = host.query::<(String,)>(sql).await;
            assert!(statements.is_empty(), "{}: {statements:?}", host.name);
            let seen: u64 = host.value("SELECT COUNT(*) FROM mysql.general_log WHERE user_host LIKE 'agent%'").await;
            assert!(seen > 0, "{}: the log does not show the agent at all", host.name);
        }
        for node in ["topology", "master", "lease"] {
            assert_eq!(cluster.tree.get(node).await.expect("ZooKeeper answers"), None, "{node} was written");
        }
        cluster.host("db1").kill(Kind::Mysqld);
        said("db2", "would do: StopIo on MySQL").await;
        assert!(io_runs(&cluster, "db2").await, "the observer stopped replication");
        no_locks(&cluster).await;
    });
}

/// `failover.cooldown`: the second failover waits, unfrozen, says how long, and goes on by itself.
#[test]
fn cooldown_delays_the_second_failover() {
    run("cooldown", async |stage| {
        let scene = Scene::start(&stage, lossless().set("*", "failover.cooldown", "20s")).await;
        let cluster = &scene.cluster;
        next_heartbeat(cluster.host("db1")).await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        // Nothing is waited for: no failover has been seen.
        let second = scene.failed_over_from("db1").await;
        cluster.start_mysqld("db1").await;
        at_rest(cluster, &second).await;
        next_heartbeat(cluster.host(&second)).await;
        let paused = scene.writer.pause_between_writes().await;
        cluster.kill_host(&second);
        drop(paused);
        status_says(cluster, "db1", &["no server takes writes", "failover.cooldown", "goes on by itself in"]).await;
        no_locks(cluster).await;
        assert!(io_runs(cluster, "db1").await, "a replica stays frozen");
        let third = scene.failed_over_from(&second).await;
        assert_ne!(third, second);
        scene.end().await;
    });
}

/// `pause`: the whole ensemble's sessions expire, the agent and mysqld are restarted: no role changes, no write fails for
/// want of ZooKeeper. Afterwards failover is automatic again.
#[test]
fn paused_nothing_changes_and_resumed_everything_is_as_before() {
    run("pause", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        cluster.verb("db2", &["pause", "--reason", "disk swap"]).await.expect_code(0);
        status_says(cluster, "db3", &["paused since", "disk swap"]).await;
        // The ensemble is away for longer than any session lasts.
        for host in &cluster.hosts {
            host.kill(Kind::Zookeeper);
        }
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        two_leases_pass().await;
        scene.writer.wait_for_acknowledged(acknowledged + 50).await;
        for host in &cluster.hosts {
            host.start(Kind::Zookeeper);
        }
        at_rest(cluster, "db1").await;
        let between = scene.writer.pause_between_writes().await;
        let (_, failed, unknown) = scene.writer.so_far().counts();
        drop(between);
        assert_eq!((failed, unknown), (0, 0), "writes failed during the pause");

        // Agent and server restarted.
        cluster.host("db1").kill(Kind::Agent);
        cluster.host("db1").start(Kind::Agent);
        at_rest(cluster, "db1").await;
        next_heartbeat(cluster.host("db1")).await;
        let between = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(between);
        status_says(cluster, "db2", &["paused since", "no server takes writes (mysql_down)"]).await;
        cluster.start_mysqld("db1").await;
        at_rest(cluster, "db1").await;
        assert_eq!(epoch(cluster).await, before, "a role changed during the pause");

        cluster.verb("db3", &["resume"]).await.expect_code(0);
        cluster.verb("db3", &["resume"]).await.expect_code(0);
        next_heartbeat(cluster.host("db1")).await;
        let between = scene.writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(between);
        scene.failed_over_from("db1").await;
        scene.end().await;
    });
}

/// Interleaving 12: a pause that the primary cannot hear of is not in force; one that it cannot hear the end of holds until it
/// does, or until it is proven fenced.
#[test]
fn interleaving_12_resume_after_a_partition_has_one_writer() {
    run("resume_partition", async |stage| {
        if !stage.can_partition() {
            eprintln!("skipped: the network cannot be cut with loopback addresses; run as root");
            return;
        }
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let before = epoch(cluster).await;
        cluster.verb("db2", &["pause"]).await.expect_code(0);
        cluster.cut_zookeeper("db1");
        wait_for("the session of db1 expires", LIMIT, async || match cluster.tree.get("master").await? {
            None => Ok(()),
            Some(master) => Err(master.to_string()),
        })
        .await;
        let resumed = cluster.verb("db2", &["resume"]).await.expect_code(1);
        assert!(resumed.stderr.contains("has not renewed"), "{}", resumed.stderr);
        status_says(cluster, "db2", &["has not renewed its lease since"]).await;
        // It still takes writes, and nobody else does.
        let acknowledged = scene.writer.so_far().acknowledged_ids().len();
        scene.writer.wait_for_acknowledged(acknowledged + 50).await;
        assert_eq!(epoch(cluster).await, before);
        // By hand: its server is proven read-only first.
        cluster.verb("db2", &["promote", "db2"]).await.expect_code(0);
        assert_eq!(scene.failed_over_from("db1").await, "db2");
        cluster.heal("db1");
        at_rest(cluster, "db2").await;
        scene.end().await;
    });
}

/// A pause that nobody can acknowledge is taken back, and says so.
#[test]
fn a_pause_that_is_not_acknowledged_is_not_in_force() {
    run("pause_unheard", async |stage| {
        let scene = Scene::start(&stage, lossless().set("*", "zookeeper.session_timeout", "20s")).await;
        let cluster = &scene.cluster;
        cluster.host("db1").pause(Kind::Agent);
        let answer = cluster.verb("db2", &["pause"]).await.expect_code(1);
        assert!(answer.stderr.contains("NOT paused"), "{}", answer.stderr);
        assert_eq!(cluster.tree.get("control/pause").await.expect("ZooKeeper answers"), None);
        cluster.host("db1").resume(Kind::Agent);
        at_rest(cluster, "db1").await;
        scene.end().await;
    });
}

/// `fence` on the primary: read-only at once, another takes over, it follows and is no candidate until `unfence`.
#[test]
fn fenced_by_hand_another_takes_over() {
    run("fence", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let cluster = &scene.cluster;
        let lock = cluster.host("db1").hold("LOCK TABLES app.t WRITE").await;
        let fenced = cluster.verb("db1", &["fence", "--json"]).await.expect_code(0).json();
        drop(lock);
        assert_eq!(fenced["marked"], true, "{fenced}");
        let says = fenced["text"].as_str().unwrap_or_default();
        assert!(fenced["lease"] == "given_up" && says.contains("the lease is given up"), "{fenced}");
        if cluster.host("db1").is_running(Kind::Mysqld) {
            assert!(!cluster.host("db1").is_writable().await.expect("db1 answers"), "still writable");
        } else {
            cluster.start_mysqld("db1").await;
        }
        let primary = scene.failed_over_from("db1").await;
        status_says(cluster, "db2", &["db1: fenced by hand"]).await;
        cluster.verb("db2", &["promote", "db1"]).await.expect_code(5);
        // A restarted agent knows.
        cluster.host("db1").kill(Kind::Agent);
        cluster.host("db1").start(Kind::Agent);
        at_rest(cluster, &primary).await;
        cluster.verb("db2", &["promote", "db1"]).await.expect_code(5);
        cluster.verb("db1", &["unfence"]).await.expect_code(0);
        wait_for("db1 is a candidate again", LIMIT, async || {
            match cluster.verb("db2", &["promote", "db1", "--dry-run"]).await {
                done if done.code == 0 => Ok(()),
                refused => Err(refused.stdout),
            }
        })
        .await;
        scene.end().await;
    });
}

/// Neither an agent nor ZooKeeper is needed.
#[test]
fn fence_works_alone() {
    run("fence_alone", async |stage| {
        let options = ClusterOptions { hosts: 1, replicate: false, semi_sync: false, ..lossless() };
        let cluster = Cluster::start(&stage, options).await;
        cluster.host("db1").kill(Kind::Zookeeper);
        assert!(cluster.host("db1").is_writable().await.expect("db1 answers"));
        let fenced = cluster.verb("db1", &["fence"]).await.expect_code(0);
        assert!(
            fenced.stdout.contains("read-only") && fenced.stdout.contains("ZooKeeper cannot be reached"),
            "{fenced:?}"
        );
        assert!(!cluster.host("db1").is_writable().await.expect("db1 answers"));
        cluster.verb("db1", &["unfence"]).await.expect_code(0);
    });
}

/// Two of three hosts are gone: refused without loss, forced with what is lost named; the epoch is marked.
#[test]
fn a_disaster_is_answered_by_allow_data_loss_alone() {
    run("data_loss", async |stage| {
        let cluster = Cluster::start(&stage, lossless()).await;
        cluster.start_agents();
        at_rest(&cluster, "db1").await;
        let writer = Writer::start(&cluster, WriterOptions::default());
        let probe = ReadOnlyProbe::start(&cluster);
        writer.wait_for_acknowledged(50).await;
        cluster.verb("db3", &["promote", "db3", "--allow-data-loss"]).await.expect_code(5);
        // ZooKeeper stays: the servers and agents of two hosts are what is lost.
        for host in ["db1", "db2"] {
            cluster.host(host).kill(Kind::Agent);
            cluster.host(host).kill(Kind::Mysqld);
        }
        let gone = ["waits for votes: 1 of 2", "db1: its agent is not running", "db2: its agent is not running"];
        status_says(&cluster, "db3", &gone).await;
        let refused = cluster.verb("db3", &["promote", "db3"]).await.expect_code(5);
        assert!(refused.stderr.contains("1 of 2 votes"), "{}", refused.stderr);
        let plan =
            cluster.verb("db3", &["promote", "--allow-data-loss", "--dry-run", "--json"]).await.expect_code(0).json();
        assert_eq!((&plan["to"], &plan["forced"]), (&"db3".into(), &Value::Bool(true)), "{plan}");
        assert!(plan["second_writer"].is_string(), "{plan}");
        cluster.verb("db3", &["promote", "--allow-data-loss"]).await.expect_code(0);
        let topology = cluster.wait_for_topology("db3 is named", LIMIT, |topology| topology["primary"] == "db3").await;
        assert_eq!(topology["forced"], topology["epoch"], "{topology}");
        assert_eq!(history(&cluster, 2).await["cause"], "forced");
        assert!(cluster.host("db3").is_writable().await.expect("db3 answers"));
        probe.stop().await.assert_one_writer();
        writer.stop().await;
    });
}
