//! a2: the agent cannot talk to a MySQL that lives. Nothing of this changes a role.

use std::time::Duration;

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::scene::{LIMIT, Scene, epoch, lossless, nothing_happened, renewed, says};
use crate::support::{Kind, run, wait_for};

/// Ends every connection of the agent on this server, by one of root's.
async fn kill_agents_connections(root: &mut Conn) {
    let theirs = "SELECT ID FROM performance_schema.processlist WHERE USER = 'agent'";
    let all: Vec<u64> = root.query(theirs).await.expect("root may look");
    for id in all {
        // One that has ended meanwhile is none.
        let _ = root.query_drop(format!("KILL {id}")).await;
    }
}

/// Its connections are killed again and again: they are simply opened again.
#[test]
fn a2_connections_killed_again_and_again() {
    run("a2_connections_killed", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        for _ in 0..25 {
            for host in &scene.cluster.hosts {
                kill_agents_connections(&mut host.hold("DO 1").await).await;
            }
            // The fault's rhythm: several times between two heartbeats.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        renewed(&scene.cluster, 5).await;
        nothing_happened(scene, before).await;
    });
}

/// Its password is changed, and its connections are killed: reported. With the right password all is well again.
#[test]
fn a2_password_rotated() {
    run("a2_password_rotated", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let db1 = scene.cluster.host("db1");
        db1.execute(&["ALTER USER agent IDENTIFIED BY 'another'"]).await;
        kill_agents_connections(&mut db1.hold("DO 1").await).await;
        says(&scene.cluster, "db1", "unhealthy").await;
        // For as long as a server that does not answer would have been given up many times.
        renewed(&scene.cluster, 30).await;
        db1.execute(&["ALTER USER agent IDENTIFIED BY 'agent-secret'"]).await;
        says(&scene.cluster, "db1", "primary").await;
        nothing_happened(scene, before).await;
    });
}

/// The replication account's password is changed: a replica that connects again is not let in, says what to do, and follows again
/// once its agent's file has the new one.
#[test]
fn a2_replication_password_rotated() {
    run("a2_replication_password", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        scene.cluster.host("db1").execute(&["ALTER USER repl IDENTIFIED BY 'another'"]).await;
        let db3 = scene.cluster.host("db3");
        let has_it = "SELECT COUNT(*) FROM performance_schema.replication_connection_status WHERE SERVICE_STATE = 'ON'";
        db3.execute(&["STOP REPLICA IO_THREAD", "START REPLICA IO_THREAD"]).await;
        says(&scene.cluster, "db3", "replication_broken").await;
        let agent = scene.cluster.tree.get("agents/db3").await.expect("ZooKeeper answers").expect("its agent is there");
        let detail = agent["detail"].to_string();
        assert!(detail.contains("Access denied") && detail.contains("mysql.replication"), "{detail}");
        db3.kill(Kind::Agent);
        db3.configure("mysql.replication.password", "another");
        db3.start(Kind::Agent);
        says(&scene.cluster, "db3", "following").await;
        assert_eq!(db3.value::<u32>(has_it).await, 1, "it receives again");
        nothing_happened(scene, before).await;
    });
}

/// All connections of the primary are taken, the agent's own are killed, and it is not let in again: reported.
#[test]
fn m1_all_connections_taken() {
    run("m1_connections_taken", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let before = epoch(&scene.cluster).await;
        let db1 = scene.cluster.host("db1");
        db1.execute(&["SET GLOBAL max_connections = 20"]).await;
        let mut taken: Vec<Conn> = Vec::new();
        let mut root = db1.hold("DO 1").await;
        let fill = async |taken: &mut Vec<Conn>| {
            while let Ok(conn) = db1.connect(true).await {
                taken.push(conn);
            }
        };
        wait_for("the agent is not let in", LIMIT, async || {
            fill(&mut taken).await;
            kill_agents_connections(&mut root).await;
            fill(&mut taken).await;
            let agent = scene.cluster.tree.get("agents/db1").await?.ok_or("its agent is missing")?;
            if agent["reason"] == "unhealthy" { Ok(()) } else { Err(agent.to_string()) }
        })
        .await;
        renewed(&scene.cluster, 30).await;
        drop(taken);
        says(&scene.cluster, "db1", "primary").await;
        nothing_happened(scene, before).await;
    });
}
