//! Old primaries that died with commits in flight (`prestart`).

use mysql_async::prelude::Queryable;

use crate::scene::{LIMIT, Scene, at_rest, cannot, lossless};
use crate::support::{Cluster, Kind, Way, run, wait_for};

/// Ids that the writing client does not use.
const OWN: u64 = 1 << 60;

/// Commits wait on `primary` for acknowledgements that cannot come, then its mysqld is killed. Another takes over; its name.
async fn dies_with_commits_in_flight(scene: &Scene, primary: &str) -> String {
    let cluster = &scene.cluster;
    let host = cluster.host(primary);
    wait_for("its agent has noted that it writes in lossless", LIMIT, async || {
        let note =
            std::fs::read_to_string(host.config().with_file_name("state/server.json")).map_err(|e| e.to_string())?;
        let note: serde_json::Value = serde_json::from_str(&note).map_err(|error| error.to_string())?;
        let topology = cluster.tree.get("topology").await?.ok_or("there is no topology")?;
        let wrote = &note["wrote"];
        let noted = wrote["epoch"] == topology["epoch"] && wrote["lossless"] == true && wrote["waited"] == true;
        if noted { Ok(()) } else { Err(note.to_string()) }
    })
    .await;
    for other in cluster.hosts.iter().filter(|other| other.name != primary) {
        cluster.cut_mysql(primary, &other.name, &Way::BOTH);
    }
    for id in 0..3 {
        let mut session = host.connect(false).await.expect("it lets us in");
        tokio::spawn(async move { session.query_drop(format!("INSERT INTO app.t (id) VALUES ({})", OWN + id)).await });
    }
    let waiting = "SELECT COUNT(*) FROM performance_schema.processlist WHERE STATE LIKE 'Waiting for semi-sync ACK%'";
    wait_for("a commit waits", LIMIT, async || match host.try_query::<(u64,)>(waiting).await?.first() {
        Some((count,)) if *count > 0 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    host.kill(Kind::Mysqld);
    let next = scene.failed_over_from(primary).await;
    cluster.heal(primary);
    next
}

/// What `host` has beyond the server of `primary`.
async fn beyond(cluster: &Cluster, host: &str, primary: &str) -> String {
    // The old one first: what it has received of the new one must not count.
    let has: String = cluster.host(host).value("SELECT @@global.gtid_executed").await;
    cluster.host(primary).value(&format!("SELECT GTID_SUBTRACT('{has}', @@global.gtid_executed)")).await
}

/// The issue in one test. The old primary comes back by itself, without a clone, and with nothing that the new one does not have; the same
/// death of the next one, started as it is, gives transactions of its own, and it stays out and is named.
#[test]
fn interleaving_11_in_flight_commits_are_taken_back_after_a_promotion() {
    run("rewind", async |stage| {
        if cannot(&stage) {
            return;
        }
        let scene = Scene::start(&stage, lossless().set("*", "degrade.allow_times", 0)).await;
        let cluster = &scene.cluster;
        let running = cluster.verb("db1", &["prestart"]).await.expect_code(5);
        assert!(running.stderr.contains("mysqld runs"), "{running:?}");

        let primary = dies_with_commits_in_flight(&scene, "db1").await;
        let would = cluster.verb("db1", &["--json", "prestart", "--dry-run"]).await.expect_code(0).json();
        assert!(would["cut"] == true && would["copy"].is_null(), "{would}");
        let begun = std::time::Instant::now();
        let done = cluster.verb("db1", &["--json", "prestart"]).await.expect_code(0).json();
        eprintln!("prestart took {:?}: {done}", begun.elapsed());
        assert!(done["cut"] == true && done["gtids"] == would["gtids"] && done["warnings"].is_null(), "{done}");
        assert!(std::path::Path::new(done["copy"].as_str().expect("a path")).exists(), "{done}");
        let incidents = cluster.tree.children("incidents").await.expect("ZooKeeper answers");
        assert!(incidents.values().any(|incident| incident["kind"] == "rewound"), "{incidents:?}");
        cluster.start_mysqld("db1").await;
        assert_eq!(beyond(cluster, "db1", &primary).await, "");
        at_rest(cluster, &primary).await;
        let rows = format!("SELECT COUNT(*) FROM app.t WHERE id >= {OWN}");
        assert_eq!(cluster.host("db1").value::<u64>(&rows).await, 0);
        // Nothing is in flight on a replica: it says so and changes nothing.
        cluster.host("db1").kill(Kind::Mysqld);
        let replica = cluster.verb("db1", &["--json", "prestart"]).await.expect_code(0).json();
        assert!(replica["cut"] == false && replica["row"] == "L7", "{replica}");
        cluster.start_mysqld("db1").await;
        at_rest(cluster, &primary).await;

        let next = dies_with_commits_in_flight(&scene, &primary).await;
        cluster.start_mysqld(&primary).await;
        assert_ne!(beyond(cluster, &primary, &next).await, "");
        wait_for("it stays out and is named", LIMIT, async || {
            let topology = cluster.tree.get("topology").await?.ok_or("there is no topology")?;
            let agent = cluster.tree.get(&format!("agents/{primary}")).await?.ok_or("it has no agent")?;
            match topology["members"][&primary]["state"] == "NA" && agent["reason"] == "diverged" {
                true => Ok(()),
                false => Err(format!("{topology}; {agent}")),
            }
        })
        .await;
        scene.end().await;
    });
}
