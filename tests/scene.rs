//! A cluster under its agents, with a client and a probe, and the checks that every live test ends with.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{
    Cluster, ClusterOptions, Host, ReadOnlyProbe, Span, Stage, Writer, WriterOptions, Written, assert_nothing_lost,
    wait_for,
};

/// When a test gives up. Not how fast something has to be: the benchmark measures that.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// The options of most tests: acknowledged writes must survive. Semi-sync is the agents' business.
pub(crate) fn lossless() -> ClusterOptions {
    ClusterOptions { semi_sync: false, ..ClusterOptions::default() }.set("*", "failover.durability", "lossless")
}

/// A running cluster with its client and its probe.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) writer: Writer,
    pub(crate) probe: ReadOnlyProbe,
    forgiven: Vec<(String, Span)>,
    others: Vec<Written>,
}

impl Scene {
    /// Starts everything and waits until the replica set is adopted and at rest.
    pub(crate) async fn start(stage: &Stage, options: ClusterOptions) -> Self {
        Self::of(Cluster::start(stage, options).await).await
    }

    /// The same with servers that run already, without their agents.
    pub(crate) async fn of(cluster: Cluster) -> Self {
        cluster.start_agents();
        at_rest(&cluster, "db1").await;
        let writer = Writer::start(&cluster, WriterOptions::default());
        let probe = ReadOnlyProbe::start(&cluster);
        writer.wait_for_acknowledged(50).await;
        Self { cluster, writer, probe, forgiven: Vec::new(), others: Vec::new() }
    }

    /// Waits until another server than `old` takes writes, and the client's writes go there.
    pub(crate) async fn failed_over_from(&self, old: &str) -> String {
        let topology = self
            .cluster
            .wait_for_topology("another server takes writes", LIMIT, |topology| {
                topology["primary"].is_string() && topology["primary"] != old
            })
            .await;
        self.writer.wait_for_acknowledged(50).await;
        topology["primary"].as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the server of `old` is back as a replica of `primary` and everything is at rest. It may hold what was in
    /// flight when it died: then the operator decides.
    pub(crate) async fn returns(&self, old: &str, primary: &str) {
        self.cluster.takes_back(old, primary, LIMIT).await;
        at_rest(&self.cluster, primary).await;
    }

    /// A stretch in which this server may seem writable beside another: the second that a thawed host has to fence itself.
    pub(crate) fn forgive(&mut self, host: &str, span: Span) {
        self.forgiven.push((host.to_owned(), span));
    }

    /// What another client has written is to be there in the end, too.
    pub(crate) fn remember(&mut self, written: Written) {
        self.others.push(written);
    }

    /// Ends client and probe and checks what every test promises: one writer at every instant, nothing lost.
    pub(crate) async fn end(self) -> (Cluster, Written) {
        self.writer.wait_for_acknowledged(20).await;
        let written = self.writer.stop().await;
        let probed = self.probe.stop().await;
        let probed = self.forgiven.iter().fold(probed, |probed, (host, span)| probed.without(host, *span));
        probed.assert_one_writer();
        for written in self.others.iter().chain([&written]) {
            assert_nothing_lost(&self.cluster, written).await;
        }
        (self.cluster, written)
    }
}

/// Whether the network cannot be cut here; says so.
pub(crate) fn cannot(stage: &Stage) -> bool {
    if !stage.can_partition() {
        eprintln!("skipped: the network cannot be cut with loopback addresses; run as root");
    }
    !stage.can_partition()
}

/// For what is to be tried while time passes: two leases, longer than any session lasts.
pub(crate) async fn two_leases_pass() {
    let since = Instant::now();
    wait_for("two leases have passed", LIMIT, async || match since.elapsed() {
        passed if passed > Duration::from_secs(6) => Ok(()),
        passed => Err(format!("{passed:?}")),
    })
    .await;
}

/// Waits until `primary` is named, all others follow it, and everything has been seen once: heartbeats on the
/// replicas, read-only persisted on all.
pub(crate) async fn at_rest(cluster: &Cluster, primary: &str) {
    wait_for(&format!("{primary} is the primary and all others follow"), LIMIT, async || {
        let topology = cluster.tree.get("topology").await?.ok_or("there is no topology")?;
        if topology["primary"] != primary || topology["durability"]["degraded"] != false {
            return Err(topology.to_string());
        }
        let sync = in_sync_set(cluster, primary, &topology).await?;
        if topology["durability"]["mode"] == "lossless" && topology["durability"]["sync"] != serde_json::json!(sync) {
            return Err(format!("{sync:?} are to acknowledge: {topology}"));
        }
        for host in &cluster.hosts {
            let expected = if host.name == primary { "READ_WRITE" } else { "READ" };
            let state = &topology["members"][&host.name]["state"];
            if state != expected {
                return Err(format!("{} is {state}", host.name));
            }
            let agent = cluster.tree.get(&format!("agents/{}", host.name)).await?.ok_or("an agent is missing")?;
            let server = &agent["server"];
            if host.name != primary
                && !(server["lag_ms"].is_u64() && server["source"]["io_running"] == Value::Bool(true))
            {
                return Err(format!("{} has seen no heartbeat yet: {agent}", host.name));
            }
            if sync.contains(&host.name) && topology["durability"]["mode"] == "lossless" {
                acknowledges(host).await?;
            }
        }
        persisted(cluster).await
    })
    .await;
}

/// Who belongs into the sync set, in the record's order: all replicas, without those of the primary's room where enough stand in
/// others.
async fn in_sync_set(cluster: &Cluster, primary: &str, topology: &Value) -> Result<Vec<String>, String> {
    let agents = cluster.tree.children("agents").await?;
    let room = |name: &str| agents.get(name).map_or(Value::Null, |agent| agent["zone"].clone());
    let replicas: Vec<String> =
        cluster.hosts.iter().map(|host| host.name.clone()).filter(|name| name != primary).collect();
    let elsewhere: Vec<String> = replicas.iter().filter(|name| room(name) != room(primary)).cloned().collect();
    let k = topology["durability"]["sync_replicas"].as_u64().unwrap_or(1);
    let mut expected = if elsewhere.len() as u64 >= k { elsewhere } else { replicas };
    // Whoever joined later stands later.
    let recorded = topology["durability"]["sync"].as_array().cloned().unwrap_or_default();
    expected.sort_by_key(|name| recorded.iter().position(|member| member == name));
    Ok(expected)
}

async fn acknowledges(host: &Host) -> Result<(), String> {
    const STATUS: &str = "SELECT VARIABLE_VALUE FROM performance_schema.global_status \
                          WHERE VARIABLE_NAME = 'Rpl_semi_sync_replica_status'";
    match host.try_query::<(String,)>(STATUS).await?.first() {
        Some((status,)) if status == "ON" => Ok(()),
        other => Err(format!("{} acknowledges nothing: {other:?}", host.name)),
    }
}

async fn persisted(cluster: &Cluster) -> Result<(), String> {
    const COUNT: &str = "SELECT COUNT(*) FROM performance_schema.persisted_variables \
                         WHERE VARIABLE_NAME IN ('super_read_only', 'skip_replica_start')";
    for host in &cluster.hosts {
        match host.try_query::<(u64,)>(COUNT).await?.first() {
            Some((2,)) => {}
            other => return Err(format!("read-only is not persisted on {}: {other:?}", host.name)),
        }
    }
    Ok(())
}

/// The epoch now.
pub(crate) async fn epoch(cluster: &Cluster) -> u64 {
    let topology = cluster.wait_for_topology("there is one", LIMIT, |_| true).await;
    topology["epoch"].as_u64().expect("the epoch is a number")
}

/// The number of the lease's last renewal.
async fn sequence(cluster: &Cluster) -> Result<u64, String> {
    let lease = cluster.tree.get("lease").await?.ok_or("there is no lease")?;
    lease["sequence"].as_u64().ok_or_else(|| format!("no sequence in {lease}"))
}

/// Waits until the lease has been renewed so many times.
pub(crate) async fn renewed(cluster: &Cluster, times: u64) {
    let start = wait_for("the lease can be read", LIMIT, async || sequence(cluster).await).await;
    wait_for("the lease goes on being renewed", LIMIT, async || match sequence(cluster).await? {
        now if now >= start + times => Ok(()),
        now => Err(format!("at {now}, from {start}")),
    })
    .await;
}

/// What the agent of a host says now: reason and text.
async fn said(cluster: &Cluster, host: &str) -> Result<(String, String), String> {
    let agent = cluster.tree.get(&format!("agents/{host}")).await?.ok_or("its agent is missing")?;
    let word = |key: &str| agent[key].as_str().unwrap_or_default().to_owned();
    Ok((word("reason"), word("detail")))
}

/// Waits until the agent of `host` gives this reason.
pub(crate) async fn says(cluster: &Cluster, host: &str, reason: &str) {
    wait_for(&format!("{host} says {reason}"), LIMIT, async || match said(cluster, host).await? {
        (now, _) if now == reason => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
}

/// Ends a test in which nothing may have happened: no role changed since the epoch `before`, no write failed.
pub(crate) async fn nothing_happened(scene: Scene, before: u64) {
    assert_eq!(epoch(&scene.cluster).await, before, "a role changed");
    let (_, written) = scene.end().await;
    let (_, failed, unknown) = written.counts();
    assert_eq!((failed, unknown), (0, 0), "writes failed");
}
