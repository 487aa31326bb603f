//! Agent and guard at rest: no client, nothing wrong.

use std::time::{Duration, Instant};

use crate::support::{Cluster, Kind};

/// How long it is watched.
const LENGTH: Duration = Duration::from_secs(20);

/// `USER_HZ`: 100 on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;

/// What was found.
pub(crate) struct Rest {
    /// Agent by agent.
    pub(crate) agents: Vec<AgentAtRest>,
    /// How long it was watched.
    pub(crate) length: Duration,
    /// Transactions of the ensemble meanwhile, by its zxid: all agents' writes, and whatever else there was.
    pub(crate) transactions: u64,
}

/// One agent.
pub(crate) struct AgentAtRest {
    /// Its host.
    pub(crate) name: String,
    /// `VmRSS`, in kB.
    pub(crate) resident_kb: u64,
    /// Processor time used, as a share of one core.
    pub(crate) cpu: f64,
    /// Writes of its node below `agents`: one in each renewal.
    pub(crate) renewals: u64,
    /// `VmRSS` of the guard beside it, in kB.
    pub(crate) guard_kb: u64,
}

/// Watches the agents of a cluster at rest, and their guards.
pub(crate) async fn measure(cluster: &Cluster) -> Rest {
    let before = snapshot(cluster).await;
    let started = Instant::now();
    tokio::time::sleep(LENGTH).await;
    let after = snapshot(cluster).await;
    let length = started.elapsed();
    let agents = cluster.hosts.iter().zip(before.agents.iter().zip(&after.agents)).map(|(host, (before, after))| {
        let ticks = after.0 - before.0;
        let cpu = f64::from(u32::try_from(ticks).unwrap_or(u32::MAX)) / TICKS_PER_SECOND / length.as_secs_f64();
        let guard = host.pid(Kind::Guard).expect("the guard runs");
        AgentAtRest {
            name: host.name.clone(),
            resident_kb: resident_kb(pid(host)),
            cpu,
            renewals: after.1 - before.1,
            guard_kb: resident_kb(guard),
        }
    });
    Rest { agents: agents.collect(), length, transactions: after.zxid - before.zxid }
}

struct Snapshot {
    zxid: u64,
    /// Processor time in ticks, and the version of the agent's node.
    agents: Vec<(u64, u64)>,
}

async fn snapshot(cluster: &Cluster) -> Snapshot {
    // The session is made first: that is a transaction too.
    let client = cluster.tree.client().await.unwrap_or_else(|failure| panic!("{failure}"));
    let leader = cluster.zookeeper_leader().await;
    let answer = cluster.four_letters(&leader.name, "srvr").await.unwrap_or_else(|failure| panic!("{failure}"));
    let zxid = answer.lines().find_map(|line| line.strip_prefix("Zxid: 0x")).expect("srvr shows the zxid");
    let mut agents = Vec::new();
    for host in &cluster.hosts {
        let node = format!("{}/agents/{}", cluster.options.node(), host.name);
        let stat = client.check_stat(&node).await.unwrap_or_else(|error| panic!("{node}: {error}"));
        let version = stat.unwrap_or_else(|| panic!("there is no {node}")).version;
        agents.push((cpu_ticks(pid(host)), u64::try_from(version).unwrap_or(0)));
    }
    Snapshot { zxid: u64::from_str_radix(zxid.trim(), 16).expect("a zxid is hexadecimal"), agents }
}

fn pid(host: &crate::support::Host) -> u32 {
    host.pid(Kind::Agent).expect("the agent runs")
}

fn resident_kb(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has a resident size");
    line.trim().trim_end_matches(" kB").parse().expect("a size is a number")
}

/// `utime + stime`.
fn cpu_ticks(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the agent runs");
    // The name, in brackets, may contain anything.
    let (_, fields) = text.rsplit_once(')').expect("the name is in brackets");
    let mut numbers = fields.split_whitespace().skip(11).map(|field| field.parse::<u64>().expect("a number"));
    numbers.next().expect("utime") + numbers.next().expect("stime")
}
