//! The harness of the live tests, tried on real servers without any agent: what it offers has to work before anything is
//! judged by it.

mod support;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use support::{
    Cluster, ClusterOptions, Follow, Kind, Outcome, ReadOnlyProbe, Writer, WriterOptions, assert_nothing_lost, wait_for,
};

const LIMIT: Duration = Duration::from_secs(30);

fn fixed(host: &str) -> WriterOptions {
    WriterOptions { follow: Follow::Fixed(host.into()), ..WriterOptions::default() }
}

#[test]
fn replication_and_semi_sync_work() {
    support::run("replication", async |stage| {
        let started = Instant::now();
        let cluster = Cluster::start(&stage, ClusterOptions::default()).await;
        println!("three hosts started in {:.1} s", started.elapsed().as_secs_f64());
        let probe = ReadOnlyProbe::start(&cluster);
        let writer = Writer::start(&cluster, fixed("db1"));
        writer.wait_for_acknowledged(200).await;

        // A commit waits for one acknowledgement: with one replica left it goes on, with none it hangs.
        cluster.host("db2").kill(Kind::Mysqld);
        writer.wait_for_acknowledged(50).await;
        cluster.host("db3").pause(Kind::Mysqld);
        let waiting = "SELECT VARIABLE_VALUE FROM performance_schema.global_status \
            WHERE VARIABLE_NAME = 'Rpl_semi_sync_source_wait_sessions'";
        wait_for("a commit waits for its acknowledgement", LIMIT, async || {
            let sessions: String = cluster.host("db1").value(waiting).await;
            if sessions == "1" { Ok(()) } else { Err(sessions) }
        })
        .await;
        cluster.host("db3").resume(Kind::Mysqld);
        writer.wait_for_acknowledged(50).await;

        cluster.start_mysqld("db2").await;
        cluster.wait_for_replica("db2", "db1").await;
        writer.wait_for_acknowledged(50).await;
        cluster.host("db2").execute(&["SET GLOBAL super_read_only = ON"]).await;
        let written = writer.stop().await;
        assert_nothing_lost(&cluster, &written).await;
        assert_eq!(cluster.replicas_of("db1").await.len(), 2);
        let probed = probe.stop().await;
        assert!(!probed.writable_spans("db1").is_empty() && probed.writable_spans("db3").is_empty());
        // db2 has come back without read-only, as nothing on its command line says so and no agent has persisted it.
        // Which of the two is named first depends on whose answer happened to lie within the other's stretch.
        let (one, other, _) = probed.overlap().expect("two writable servers are seen");
        assert_eq!(
            [&one, &other].iter().map(|name| name.as_str()).collect::<std::collections::BTreeSet<_>>(),
            ["db1", "db2"].into()
        );
    });
}

#[test]
fn a_paused_writer_has_nothing_in_flight() {
    support::run("paused", async |stage| {
        let cluster = Cluster::start(&stage, ClusterOptions { hosts: 2, ..ClusterOptions::default() }).await;
        let writer = Writer::start(&cluster, WriterOptions { workers: 4, rate: None, ..fixed("db1") });
        writer.wait_for_acknowledged(200).await;
        let paused = writer.pause_between_writes().await;
        cluster.host("db1").kill(Kind::Mysqld);
        drop(paused);
        cluster.start_mysqld("db1").await;
        writer.wait_for_acknowledged(0).await;
        let written = writer.stop().await;
        let (acknowledged, _, _) = written.counts();
        let rows: u64 = cluster.host("db1").value("SELECT COUNT(*) FROM app.t").await;
        assert!(rows >= acknowledged as u64, "{rows} rows, {acknowledged} acknowledged");
        assert!(written.longest_gap().length() > Duration::ZERO);
    });
}

/// What the agents will do, by hand: the old primary freezes with a write in flight, another is opened and published.
#[test]
fn the_writer_follows_the_topology() {
    use zookeeper_client::{Acls, CreateMode, Error};
    support::run("follows", async |stage| {
        let cluster = Cluster::start(&stage, ClusterOptions::default()).await;
        let publish = async |primary: &str| {
            let client = cluster.tree.client().await.expect("ZooKeeper answers");
            let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
            client.mkdir("/mysql-ha/live", &options).await.expect("the folders can be made");
            let topology = serde_json::json!({
                "format": 1, "cluster": "live", "epoch": 1, "primary": primary, "since": "2026-11-30T10:00:00.123Z",
                "reason": "adopted", "members": {}, "last_writer": primary,
                "durability": {"mode": "async", "degraded": false, "sync": [], "sync_replicas": 1, "floor": ""},
            });
            let (path, text) = ("/mysql-ha/live/topology", topology.to_string());
            match client.create(path, text.as_bytes(), &options).await {
                Err(Error::NodeExists) => {
                    client.set_data(path, text.as_bytes(), None).await.expect("the node can be written");
                }
                created => drop(created.expect("the node can be made")),
            }
        };
        // Before there is a topology the writer waits for one.
        let writer = Writer::start(&cluster, WriterOptions::default());
        publish("db1").await;
        writer.wait_for_acknowledged(100).await;
        let probe = ReadOnlyProbe::start(&cluster);

        let frozen = Instant::now();
        cluster.host("db1").pause(Kind::Mysqld);
        wait_for("a write hangs", LIMIT, async || {
            // Also one that was sent just before: with one worker none is sent while it hangs.
            let hangs = |write: &support::Write| {
                write.outcome == Outcome::Unknown && write.sent.elapsed() > Duration::from_millis(200)
            };
            if writer.so_far().writes.values().any(hangs) { Ok(()) } else { Err("all are answered".into()) }
        })
        .await;
        for host in ["db2", "db3"] {
            cluster.host(host).execute(&["STOP REPLICA IO_THREAD"]).await;
        }
        let received = "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status";
        let (two, three): (String, String) =
            (cluster.host("db2").value(received).await, cluster.host("db3").value(received).await);
        // An acknowledged write is on one of the two at least, so on the one that has received more.
        let behind = format!("SELECT GTID_SUBSET('{two}', '{three}')");
        let new = if cluster.host("db2").value::<bool>(&behind).await { "db3" } else { "db2" };
        let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', 30)", if new == "db2" { &two } else { &three });
        assert_eq!(cluster.host(new).value::<u8>(&wait).await, 0, "{new} applies what it has received");
        cluster
            .host(new)
            .execute(&[
                "STOP REPLICA",
                "RESET REPLICA ALL",
                "SET GLOBAL super_read_only = OFF",
                "SET GLOBAL read_only = OFF",
            ])
            .await;
        publish(new).await;
        writer.wait_for_acknowledged(100).await;

        let written = writer.so_far();
        let gap = written.longest_gap_since(frozen);
        assert!(written.writes.values().any(|write| write.host == new) && gap.to > frozen);
        assert!(cluster.tree.get("topology").await.expect("ZooKeeper answers").is_some_and(|t| t["primary"] == new));
        // The thawed server is to be found by the probe: nobody has made it read-only.
        cluster.host("db1").resume(Kind::Mysqld);
        writer.wait_for_acknowledged(100).await;
        assert!(probe.stop().await.overlap().is_some(), "two writable servers are seen");
        // It cannot be made read-only now: a commit there waits for an acknowledgement that will not come, and SET would too.
        cluster.host("db1").kill(Kind::Mysqld);
        assert_nothing_lost(&cluster, &writer.stop().await).await;
    });
}

#[test]
fn partitions_cut_what_they_say() {
    support::run("partitions", async |stage| {
        if !stage.can_partition() {
            eprintln!("skipped: the network cannot be cut without namespaces (run as root)");
            return;
        }
        let cluster = Cluster::start(&stage, ClusterOptions::default()).await;
        cluster.host("db1").execute(&["CREATE TABLE app.cut (id INT PRIMARY KEY)"]).await;
        let io_state = "SELECT SERVICE_STATE FROM performance_schema.replication_connection_status";

        // MySQL's traffic passes while ZooKeeper's does not.
        cluster.cut_zookeeper("db2");
        let reach = |from: &str, to: &str, port: u16| {
            let pid = cluster.host(from).pid(Kind::Zookeeper).expect("ZooKeeper runs");
            let address = cluster.host(to).address;
            let script = format!("timeout 1 bash -c ': < /dev/tcp/{address}/{port}'");
            let status = std::process::Command::new("nsenter")
                .args([format!("--net=/proc/{pid}/ns/net"), "bash".into(), "-c".into(), script])
                .stderr(std::process::Stdio::null())
                .status();
            status.expect("nsenter starts").success()
        };
        for to in ["db1", "db2", "db3"] {
            assert!(!reach("db2", to, support::ZOOKEEPER_PORT), "db2 reaches ZooKeeper on {to}");
        }
        assert!(reach("db2", "db1", support::MYSQL_PORT) && reach("db1", "db2", support::ZOOKEEPER_PORT));
        cluster.heal("db2");
        cluster.silence_member("db2", "db3");
        assert!(!reach("db2", "db3", support::ZOOKEEPER_PORT) && reach("db2", "db1", support::ZOOKEEPER_PORT));
        cluster.heal("db2");

        // A host without its cable gets nothing, and catches up afterwards.
        cluster.cut_host("db2");
        cluster.host("db1").execute(&["INSERT INTO app.cut VALUES (1)"]).await;
        assert!(!reach("db2", "db1", support::MYSQL_PORT));
        assert_eq!(cluster.host("db2").value::<u64>("SELECT COUNT(*) FROM app.cut").await, 0, "{io_state}");
        cluster.heal("db2");
        wait_for("db2 catches up", LIMIT, async || {
            match cluster.host("db2").try_query::<(u64,)>("SELECT COUNT(*) FROM app.cut").await?.as_slice() {
                [(1,)] => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;

        // The leader's host dies; the ensemble goes on, and the host comes back.
        let leader = cluster.zookeeper_leader().await.name.clone();
        cluster.kill_host(&leader);
        assert_ne!(cluster.zookeeper_leader().await.name, leader);
        cluster.start_host(&leader, false).await;
        assert_eq!(cluster.tree.get("topology").await, Ok(None));
    });
}

/// Everything that mentions the stage's folder or sockets: processes and files.
fn leftovers(folder: &std::path::Path, sockets: &std::path::Path) -> Vec<String> {
    let mut all: Vec<String> =
        [folder, sockets].iter().filter(|path| path.exists()).map(|path| path.display().to_string()).collect();
    for entry in std::fs::read_dir("/proc").expect("/proc can be read").flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(&folder.display().to_string()) {
            all.push(line);
        }
    }
    all
}

#[test]
fn nothing_is_left_behind() {
    for fails in [false, true] {
        let places: Arc<Mutex<Option<(PathBuf, PathBuf)>>> = Arc::default();
        let told = Arc::clone(&places);
        let result = std::panic::catch_unwind(move || {
            support::run("cleanup", async |stage| {
                let cluster = Cluster::start(&stage, ClusterOptions { hosts: 2, ..ClusterOptions::default() }).await;
                *told.lock().expect("not poisoned") = Some((stage.folder().into(), stage.sockets().into()));
                assert!(!leftovers(stage.folder(), stage.sockets()).is_empty(), "the search finds what is there");
                let _writer = Writer::start(&cluster, fixed("db1"));
                assert!(!fails, "on purpose: the test for what a failure leaves behind");
            });
        });
        assert_eq!(result.is_err(), fails);
        let (folder, sockets) = places.lock().expect("not poisoned").take().expect("the body ran");
        let expected: Vec<String> = if fails { vec![folder.display().to_string()] } else { vec![] };
        assert_eq!(leftovers(&folder, &sockets), expected, "a failed test keeps its files and nothing else");
        std::fs::remove_dir_all(&folder).unwrap_or_default();
    }
}

#[test]
fn a_server_is_rebuilt_from_another() {
    support::run("rebuilt", async |stage| {
        let options = ClusterOptions { hosts: 2, semi_sync: false, ..ClusterOptions::default() };
        let cluster = Cluster::start(&stage, options).await;
        let db2 = cluster.host("db2");
        db2.execute(&[
            "SET PERSIST super_read_only = OFF",
            "CREATE TABLE app.extra (id INT PRIMARY KEY)",
            "SET PERSIST super_read_only = ON",
        ])
        .await;
        cluster.host("db1").execute(&["INSERT INTO app.t (id) VALUES (77)"]).await;
        cluster.rebuild("db2", "db1").await.expect("it can be cloned");
        wait_for(
            "mysqld ends",
            LIMIT,
            async || if db2.is_running(Kind::Mysqld) { Err("it runs".into()) } else { Ok(()) },
        )
        .await;
        cluster.start_mysqld("db2").await;
        assert_eq!(db2.value::<u64>("SELECT COUNT(*) FROM app.t WHERE id = 77").await, 1);
        let extra = "SELECT COUNT(*) FROM information_schema.tables WHERE TABLE_NAME = 'extra'";
        assert_eq!(db2.value::<u64>(extra).await, 0, "what it had of its own is gone");
        assert!(!db2.is_writable().await.expect("it answers"), "what was persisted is kept");
    });
}
