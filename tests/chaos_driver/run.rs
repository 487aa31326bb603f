//! A run: rounds of faults under several writers, and what has to hold after each.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;

use super::ensemble;
use super::plan::{Fault, Plan, Round};
use super::report::Figures;
use super::strike::{Strike, Struck, Why, host_of, supervise};
use crate::scene::{at_rest, lossless};
use crate::support::{Cluster, ClusterOptions, Kind, Probed, ReadOnlyProbe, Stage, Writer, WriterOptions, missing};

/// How long the cluster may take to come back to one primary with all others following, once every fault is over: some
/// session timeouts, mysqld's crash recovery, and a rebuilt server, on a machine that does other things too.
const HEALED: Duration = Duration::from_secs(90);
/// Clients that write all the while, each with so many connections and rows a second.
const WRITERS: usize = 3;
const WORKERS: u32 = 2;
const RATE: u32 = 60;

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// For how long; a round that has begun is brought to its end.
    pub(crate) length: Duration,
    /// Decides the plan.
    pub(crate) seed: u64,
    /// 3 or 5.
    pub(crate) hosts: u8,
}

/// What has happened so far: for the report of a failure, which comes out of a panic.
pub(crate) type Story = Arc<Mutex<Vec<String>>>;

/// A run under way.
struct Run<'a> {
    cluster: &'a Cluster,
    struck: &'a Struck,
    story: &'a Story,
    figures: Figures,
    acknowledged: BTreeSet<u64>,
    epoch: u64,
    started: Instant,
}

/// A cluster in which all is well.
#[derive(Clone, Debug)]
struct Rest {
    primary: String,
    epoch: u64,
    renewals: u64,
}

/// Runs rounds until the time is over; the figures. Panics with what was broken, so that the files are kept.
pub(crate) async fn run(stage: &Stage, order: Order, story: &Story) -> Figures {
    let options = ClusterOptions { name: "chaos".into(), hosts: order.hosts, ..lossless() };
    // With five hosts the loss of one replica and the primary must leave a quorum: |S| - k + 1 = 3 of 4.
    let options = options.set("*", "failover.sync_replicas", if order.hosts > 3 { 2 } else { 1 });
    let cluster = Cluster::start(stage, options).await;
    cluster.start_agents();
    at_rest(&cluster, "db1").await;
    let guards = cluster.hosts.iter().any(|host| host.was_started(Kind::Guard));
    let mut plan = Plan::new(order.seed, order.hosts, guards);
    let struck = Struck::default();
    let mut run = Run {
        cluster: &cluster,
        struck: &struck,
        story,
        figures: Figures::default(),
        acknowledged: BTreeSet::new(),
        epoch: 1,
        started: Instant::now(),
    };
    let rounds = async {
        while run.started.elapsed() < order.length {
            run.round(&plan.round()).await;
        }
        run.everywhere().await;
    };
    tokio::select! {
        () = rounds => {}
        () = supervise(&cluster, &struck) => unreachable!("the supervision is dropped when the rounds are over"),
        fault = epochs_grow(&cluster) => panic!("{fault}"),
    }
    run.figures
}

/// Follows `topology` and ends only when its epoch went backwards.
async fn epochs_grow(cluster: &Cluster) -> String {
    let mut topology = cluster.tree.follow_topology();
    let mut highest = 0;
    loop {
        if topology.changed().await.is_err() {
            return std::future::pending().await;
        }
        let now = topology.borrow_and_update().as_ref().and_then(|topology| topology["epoch"].as_u64());
        match now {
            Some(now) if now < highest => return format!("epoch {highest} was followed by epoch {now}"),
            Some(now) => highest = now,
            None => {}
        }
    }
}

impl Run<'_> {
    fn tell(&self, line: String) {
        println!("{line}");
        self.story.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    /// One round, from rest to rest.
    async fn round(&mut self, faults: &Round) {
        let number = self.figures.rounds + 1;
        let at = self.started.elapsed().as_secs();
        self.tell(format!("round {number} ({}:{:02})", at / 60, at % 60));
        let probe = ReadOnlyProbe::start(self.cluster);
        let options = WriterOptions {
            workers: WORKERS,
            rate: Some(RATE),
            timeout: Duration::from_secs(10),
            ..WriterOptions::default()
        };
        let writers: Vec<Writer> = (0..WRITERS).map(|_| Writer::start(self.cluster, options.clone())).collect();
        join_all(writers.iter().map(|writer| writer.wait_for_acknowledged(10))).await;

        join_all(faults.iter().map(|fault| self.strike(fault))).await;
        for fault in faults {
            *self.figures.faults.entry(fault.what.name()).or_default() += 1;
        }
        self.heal().await;
        // The clients get on again, all of them.
        join_all(writers.iter().map(|writer| writer.wait_for_acknowledged(10))).await;

        for written in join_all(writers.into_iter().map(Writer::stop)).await {
            self.acknowledged.extend(written.acknowledged_ids());
        }
        self.figures.acknowledged = self.acknowledged.len();
        self.one_writer(probe.stop().await);
        self.nothing_lost().await;
        self.count_role_changes().await;
        self.figures.rounds += 1;
    }

    async fn strike(&self, fault: &Fault) {
        tokio::time::sleep(fault.after).await;
        let host = host_of(self.cluster, fault.place).await;
        self.tell(format!("  {fault} (on {})", host.name));
        Strike { cluster: self.cluster, struck: self.struck, host, fault }.run().await;
    }

    /// All faults are over: everything comes back by itself, but for what an operator has to decide. The primary.
    ///
    /// What is published may be older than the last fault, which may yet have its consequences: all has to be well, with the
    /// same primary in the same epoch, for so many renewals of its lease.
    async fn heal(&mut self) -> String {
        const RENEWALS: u64 = 10;
        let mut over = Instant::now();
        let mut looked_at_ensemble = false;
        let mut well: Option<(Instant, Rest)> = None;
        loop {
            let seen = match self.look().await {
                Ok(now) => {
                    let (since, first) = match well.take() {
                        Some((since, first)) if first.primary == now.primary && first.epoch == now.epoch => {
                            (since, first)
                        }
                        _ => (Instant::now(), now.clone()),
                    };
                    if now.renewals >= first.renewals + RENEWALS {
                        let took = since.duration_since(over);
                        self.figures.longest_healing = self.figures.longest_healing.max(took);
                        let seconds = took.as_secs_f64();
                        self.tell(format!(
                            "  healed {seconds:.1} s after the last fault: {} in epoch {}",
                            now.primary, now.epoch
                        ));
                        return now.primary;
                    }
                    well = Some((since, first));
                    "all is well, and the lease is not renewed".to_owned()
                }
                Err(seen) => {
                    well = None;
                    seen
                }
            };
            if !looked_at_ensemble && over.elapsed() > HEALED / 3 {
                looked_at_ensemble = true;
                if let Some(leader) = ensemble::stands_still(self.cluster).await {
                    self.tell(format!(
                        "  ZooKeeper stands still: its leader, on {}, is restarted ({seen})",
                        leader.name
                    ));
                    self.figures.stood_still += 1;
                    leader.kill(Kind::Zookeeper);
                    leader.start(Kind::Zookeeper);
                    over = Instant::now();
                }
            }
            if over.elapsed() > HEALED {
                self.figures.unhealed += 1;
                self.tell(self.figures.to_string());
                panic!("not healed {HEALED:?} after the last fault: {seen}");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The primary, if all is well; else what is not.
    async fn look(&mut self) -> Result<Rest, String> {
        let tree = &self.cluster.tree;
        let topology = tree.get("topology").await?.ok_or("there is no topology")?;
        let primary = topology["primary"].as_str().ok_or_else(|| topology.to_string())?.to_owned();
        for host in &self.cluster.hosts {
            let name = &host.name;
            let agent = tree.get(&format!("agents/{name}")).await?.ok_or_else(|| format!("{name}: no agent"))?;
            let (reason, detail) = (&agent["reason"], &agent["detail"]);
            // Transactions of its own; or the host that it was being copied from was struck meanwhile, and it has nothing.
            let words = detail.as_str().unwrap_or_default();
            if (*reason == "diverged" || words.contains("copy that was not completed")) && *name != primary {
                self.struck.without_agent(host, self.cluster.rebuild(name, &primary)).await?;
                self.tell(format!("  {name} was rebuilt from {primary}: {detail}"));
                self.figures.rebuilt += 1;
            }
            let (state, expected) = (&topology["members"][name]["state"], *name == primary);
            let well = match expected {
                true => *state == "READ_WRITE" && *reason == "primary",
                false => {
                    let receives = agent["server"]["source"]["io_running"] == Value::Bool(true);
                    *state == "READ" && *reason == "following" && receives
                }
            };
            if !well {
                return Err(format!("{name} is {state}: {reason}: {detail} (primary {primary})"));
            }
        }
        // Protected again, too: undegraded, and every replica may acknowledge.
        let durability = &topology["durability"];
        let sync = durability["sync"].as_array().map_or(0, Vec::len);
        if durability["degraded"] != false || sync + 1 != self.cluster.hosts.len() {
            return Err(format!("not protected as it should be: {durability}"));
        }
        let lease = tree.get("lease").await?.ok_or("there is no lease")?;
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        Ok(Rest { primary, epoch: number(&topology["epoch"]), renewals: number(&lease["sequence"]) })
    }

    /// Never two servers writable at once, but for what is forgiven.
    fn one_writer(&mut self, probed: Probed) {
        let forgiven = self.struck.take_forgiven();
        let but_for = |probed: Probed, why: Why| {
            let spans = forgiven.iter().filter(|(_, _, its)| *its == why);
            spans.fold(probed, |probed, (host, span, _)| probed.without(host, *span))
        };
        let all = probed.overlapping();
        let probed = but_for(probed, Why::Thawed);
        let unthawed = probed.overlapping();
        let probed = but_for(probed, Why::NoGuard);
        let left = probed.overlapping();
        self.figures.thawed += all.saturating_sub(unthawed);
        self.figures.unguarded += unthawed.saturating_sub(left);
        self.figures.two_writers += left;
        if !left.is_zero() {
            self.tell(self.figures.to_string());
        }
        probed.assert_one_writer();
    }

    /// The primary has every acknowledged write. It may be lost once more before it can be asked: on a machine whose disk stands
    /// still for seconds a server is rightly given up that no fault has struck. Then its successor is asked.
    async fn nothing_lost(&mut self) {
        let (primary, missing) = loop {
            let primary = self.heal().await;
            match missing(self.cluster.host(&primary), &self.acknowledged).await {
                Ok(missing) => break (primary, missing),
                Err(failure) => self.tell(format!("  {primary} was lost again: {failure}")),
            }
        };
        self.figures.lost += missing.len();
        if !missing.is_empty() {
            self.tell(self.figures.to_string());
            let some: Vec<&u64> = missing.iter().take(10).collect();
            panic!("{} acknowledged writes are not on the primary {primary}: {some:?} …", missing.len());
        }
    }

    /// In the end every server has everything.
    async fn everywhere(&mut self) {
        for host in &self.cluster.hosts {
            crate::support::wait_for(&format!("{} has every acknowledged write", host.name), HEALED, async || {
                match missing(host, &self.acknowledged).await?.len() {
                    0 => Ok(()),
                    count => Err(format!("{count} are missing")),
                }
            })
            .await;
        }
    }

    async fn count_role_changes(&mut self) {
        let topology = self.cluster.tree.get("topology").await.ok().flatten().unwrap_or_default();
        let now = topology["epoch"].as_u64().unwrap_or(self.epoch);
        for epoch in self.epoch + 1..=now {
            let history = self.cluster.tree.get(&format!("history/{epoch}")).await.ok().flatten().unwrap_or_default();
            match history["cause"].as_str() {
                Some("switchover") => self.figures.switches += 1,
                // One that was begun and never opened has no history.
                Some(_) | None => self.figures.failovers += 1,
            }
        }
        self.epoch = now;
        let switches = std::mem::take(&mut *self.struck.switches.lock().unwrap_or_else(PoisonError::into_inner));
        self.figures.refused += u32::try_from(switches.iter().filter(|code| **code != 0).count()).unwrap_or(u32::MAX);
    }
}
