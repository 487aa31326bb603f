//! The agent on real servers, each test one of the conditions that the product exists for.

mod support;

use std::time::Duration;

use support::{Cluster, ClusterOptions, Kind, ReadOnlyProbe, Writer, WriterOptions, assert_nothing_lost, run};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn m1_mysqld_killed() {
    run("m1_mysqld_killed", async |stage| {
        let cluster = Cluster::start(&stage, ClusterOptions::default()).await;
        cluster.start_agents();
        cluster.wait_for_topology("db1 is adopted", LONG, |t| t["primary"] == "db1").await;
        let writer = Writer::start(&cluster, WriterOptions::default());
        let probe = ReadOnlyProbe::start(&cluster);
        cluster.host("db1").kill(Kind::Mysqld);
        cluster
            .wait_for_topology("db2 or db3 writes", LONG, |t| t["primary"] != "db1" && t["primary"].is_string())
            .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        probe.stop().await.assert_one_writer();
        let written = writer.stop().await;
        eprintln!("gap {:?}", written.longest_gap());
        assert_nothing_lost(&cluster, &written).await;
    });
}
