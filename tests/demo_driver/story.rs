//! What happens in the demo, step by step.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::live;
use super::report::{Mark, RoleChange};
use super::screen::Screen;
use crate::scene::{LIMIT, at_rest};
use crate::support::{
    Cluster, ClusterOptions, Host, Kind, ReadOnlyProbe, Stage, Writer, WriterOptions, missing, next_heartbeat, wait_for,
};

/// Writes between two steps: some two seconds at the client's pace.
const A_WHILE: usize = 400;

/// A promise and whether it held.
pub(crate) struct Verdict {
    what: String,
    held: bool,
}

/// Everything that the story found out.
#[derive(Default)]
pub(crate) struct Verdicts(Vec<Verdict>);

impl Verdicts {
    fn add(&mut self, what: impl Into<String>, held: bool) {
        self.0.push(Verdict { what: what.into(), held });
    }

    /// Whether everything held.
    pub(crate) fn all_held(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|verdict| verdict.held)
    }

    /// One line for each.
    pub(crate) fn text(&self) -> String {
        let line =
            |verdict: &Verdict| format!("  {}  {}\n", if verdict.held { "ok    " } else { "FAILED" }, verdict.what);
        self.0.iter().map(line).collect()
    }
}

/// Starts the three hosts; replication from db1 runs, and no agent yet.
pub(crate) async fn set_up(screen: &Screen, stage: &Stage) -> Cluster {
    let kind = if stage.can_partition() { "network namespaces" } else { "loopback addresses" };
    screen.say(&format!("starting three hosts ({kind}), each with mysqld and a ZooKeeper member"));
    let options = ClusterOptions { name: "demo".into(), ..ClusterOptions::default() };
    let cluster = Cluster::start(stage, options.set("*", "failover.durability", "lossless")).await;
    for host in &cluster.hosts {
        let role = if host.name == "db1" { "primary" } else { "replica of db1" };
        screen.say(&format!(
            "  {}  {:<12}  MySQL {}, {role}",
            host.name,
            host.address.to_string(),
            version(host).await
        ));
    }
    cluster
}

async fn version(host: &Host) -> String {
    host.value("SELECT VERSION()").await
}

/// Plays the whole story; the verdicts.
pub(crate) async fn play(screen: &Screen, cluster: &Cluster) -> Verdicts {
    let writer = OnceLock::new();
    let mut verdicts = Verdicts::default();
    let probe = tokio::select! {
        probe = changes(screen, cluster, &writer, &mut verdicts) => probe,
        () = live::show(screen, cluster, &writer) => unreachable!("the table is drawn until it is dropped"),
    };
    screen.leave_table();
    close(cluster, writer, probe, &mut verdicts).await;
    verdicts
}

/// Adoption, failover, return, planned switch.
async fn changes(
    screen: &Screen,
    cluster: &Cluster,
    writer: &OnceLock<Writer>,
    verdicts: &mut Verdicts,
) -> ReadOnlyProbe {
    screen.say("starting an agent on every host");
    cluster.start_agents();
    at_rest(cluster, "db1").await;
    screen.say("the agents have adopted the replica set as it stood: db1 is the primary, db2 and db3 follow");
    let probe = ReadOnlyProbe::start(cluster);
    let writer = writer.get_or_init(|| Writer::start(cluster, WriterOptions::default()));
    screen.say("a client writes 200 rows a second; every server is asked 100 times a second whether it takes writes");
    writer.wait_for_acknowledged(A_WHILE).await;

    let primary = failover(screen, cluster, writer, verdicts).await;
    come_back(screen, cluster, &primary, verdicts).await;
    writer.wait_for_acknowledged(A_WHILE).await;
    switch_back(screen, cluster, writer, &primary, verdicts).await;
    probe
}

/// Kills the primary's mysqld; the name of the server that took over.
async fn failover(screen: &Screen, cluster: &Cluster, writer: &Writer, verdicts: &mut Verdicts) -> String {
    let before = Instant::now();
    // A few writes, so that the gap is seen to begin within the time looked at.
    writer.wait_for_acknowledged(20).await;
    // Between two commits, of the client and of the agent. One that waits for its acknowledgement when its server dies was
    // never answered, so nobody is promised anything; but the restarted server may hold it as a transaction of its own, and
    // then it is kept out until somebody decides. Taking such commits back is the part of `prestart`, a verb of a later
    // version.
    next_heartbeat(cluster.host("db1")).await;
    let paused = writer.pause_between_writes().await;
    let begin = Mark::now();
    cluster.host("db1").kill(Kind::Mysqld);
    drop(paused);
    screen.say("kill -9 of mysqld on db1, the primary (between two commits)");
    let topology = cluster
        .wait_for_topology("another server takes writes", LIMIT, |topology| {
            topology["primary"].is_string() && topology["primary"] != "db1"
        })
        .await;
    let primary = topology["primary"].as_str().unwrap_or_default().to_owned();
    screen.say(&format!("{primary} takes writes"));
    writer.wait_for_acknowledged(A_WHILE).await;
    let figures = Figures { screen, cluster, writer, title: "failover", from_what: "the kill", begin, before };
    figures.show(&topology, verdicts).await;
    primary
}

/// Restarts the old primary.
async fn come_back(screen: &Screen, cluster: &Cluster, primary: &str, verdicts: &mut Verdicts) {
    screen.say("starting mysqld on db1 again");
    cluster.start_mysqld("db1").await;
    at_rest(cluster, primary).await;
    cluster.wait_for_replica("db1", primary).await;
    let read_only = cluster.host("db1").is_writable().await == Ok(false);
    screen.say(&format!("db1 is back: read-only, a replica of {primary}"));
    verdicts.add(format!("the old primary db1, restarted, is read-only and follows {primary}"), read_only);
}

/// A planned switch back to db1.
async fn switch_back(screen: &Screen, cluster: &Cluster, writer: &Writer, primary: &str, verdicts: &mut Verdicts) {
    let before = Instant::now();
    writer.wait_for_acknowledged(20).await;
    screen.say("planned switch: mysql-ha-agent promote db1");
    let begin = Mark::now();
    let answer = cluster.verb(primary, &["promote", "db1"]).await;
    let words = format!("{}{}", answer.stdout, answer.stderr);
    screen.say(&format!("exit code {}: {}", answer.code, words.trim()));
    verdicts.add("promote ended with exit code 0", answer.code == 0);
    if answer.code != 0 {
        return;
    }
    at_rest(cluster, "db1").await;
    writer.wait_for_acknowledged(A_WHILE).await;
    let topology = cluster.wait_for_topology("db1 takes writes", LIMIT, |topology| topology["primary"] == "db1").await;
    let figures = Figures { screen, cluster, writer, title: "planned switch", from_what: "the command", begin, before };
    figures.show(&topology, verdicts).await;
}

/// What is needed to tell of a role change.
struct Figures<'a> {
    screen: &'a Screen,
    cluster: &'a Cluster,
    writer: &'a Writer,
    title: &'a str,
    from_what: &'a str,
    begin: Mark,
    /// Before the last writes before it.
    before: Instant,
}

impl Figures<'_> {
    /// Prints the timeline of the change that `topology` shows.
    async fn show(&self, topology: &Value, verdicts: &mut Verdicts) {
        let primary = topology["primary"].as_str().unwrap_or_default();
        let record = self.record(topology["epoch"].as_u64().unwrap_or_default()).await;
        // First what was acknowledged, then what is there: a write between the two cannot count as lost.
        let written = self.writer.so_far();
        let acknowledged = written.acknowledged_ids();
        let lost = lost(self.cluster, primary, &acknowledged).await;
        let change = RoleChange {
            from_what: self.from_what,
            begin: self.begin,
            record: &record,
            gap: written.longest_gap_since(self.before),
            acknowledged: acknowledged.len(),
            lost,
        };
        self.screen.print(&change.text());
        self.screen.print("\n");
        verdicts
            .add(format!("{}: no acknowledged write lost ({lost} of {})", self.title, acknowledged.len()), lost == 0);
    }

    /// The record of an epoch, which is written a moment after clients are told.
    async fn record(&self, epoch: u64) -> Value {
        wait_for(&format!("history/{epoch} is written"), LIMIT, async || {
            self.cluster.tree.get(&format!("history/{epoch}")).await?.ok_or_else(|| "it is not there".to_owned())
        })
        .await
    }
}

async fn lost(cluster: &Cluster, host: &str, acknowledged: &BTreeSet<u64>) -> usize {
    missing(cluster.host(host), acknowledged).await.unwrap_or_else(|failure| panic!("{failure}")).len()
}

/// Ends client and probe, and looks at everything once more at rest.
async fn close(cluster: &Cluster, writer: OnceLock<Writer>, probe: ReadOnlyProbe, verdicts: &mut Verdicts) {
    let Some(writer) = writer.into_inner() else { panic!("the client was never started") };
    let acknowledged = writer.stop().await.acknowledged_ids();
    let probed = probe.stop().await;
    let answers: usize = cluster.hosts.iter().map(|host| probed.answers(&host.name)).sum();
    let all_answered = cluster.hosts.iter().all(|host| probed.answers(&host.name) > 0);
    let what = match probed.overlap() {
        None => format!("one writer at a time, as far as {answers} looks at the servers can tell"),
        Some((one, other, _)) => format!("one writer at a time: {one} and {other} took writes at once"),
    };
    verdicts.add(what, probed.overlap().is_none() && all_answered);
    for host in &cluster.hosts {
        let lost = settled(cluster, &host.name, &acknowledged).await;
        verdicts.add(format!("{} has all {} acknowledged writes", host.name, acknowledged.len()), lost == 0);
    }
}

/// How many are missing on a server that has had the time to apply what it receives.
async fn settled(cluster: &Cluster, host: &str, acknowledged: &BTreeSet<u64>) -> usize {
    let since = Instant::now();
    loop {
        let lost = lost(cluster, host, acknowledged).await;
        if lost == 0 || since.elapsed() > LIMIT {
            return lost;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
