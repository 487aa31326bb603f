//! The cases: what is done to the primary, and what a run found.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use clap::ValueEnum;
use serde_json::Value;

use crate::scene::{LIMIT, at_rest, epoch, lossless};
use crate::support::{
    Cluster, ClusterOptions, Gap, Kind, Outcome, ReadOnlyProbe, Stage, Writer, WriterOptions, Written, missing,
    wait_for,
};

/// What happens to the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    /// Its mysqld is killed.
    Mysqld,
    /// Its host loses power: mysqld, agent and ZooKeeper member, which follows.
    Host,
    /// The same, and its ZooKeeper member leads the ensemble: an election comes first, and the new leader gives every
    /// session its whole timeout anew.
    Leader,
    /// `promote`.
    Switch,
    /// Its mysqld is frozen: it keeps its connections and answers nothing.
    Frozen,
    /// Its agent is killed and not started again; a guard runs.
    Agent,
    /// It alone cannot reach ZooKeeper.
    Zookeeper,
    /// Its host's cable is pulled.
    Cable,
}

impl Case {
    pub(crate) const ALL: [Self; 8] =
        [Self::Mysqld, Self::Host, Self::Leader, Self::Switch, Self::Frozen, Self::Agent, Self::Zookeeper, Self::Cable];

    /// The gap that the project wants to keep to: median and maximum, in ms. None: measured to be known.
    pub(crate) fn targets(self) -> Option<(f64, f64)> {
        match self {
            Self::Mysqld => Some((300.0, 800.0)),
            // Session timeout + 0.5 s; and 1.5 ticks of ZooKeeper more.
            Self::Host | Self::Leader => Some((3500.0, 3800.0)),
            Self::Switch => Some((60.0, 200.0)),
            Self::Frozen | Self::Agent | Self::Zookeeper | Self::Cable => None,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Mysqld => "mysqld killed",
            Self::Host => "host killed",
            Self::Leader => "host killed that led the ensemble",
            Self::Switch => "planned switch",
            Self::Frozen => "mysqld frozen",
            Self::Agent => "agent killed and kept down",
            Self::Zookeeper => "primary cut off from ZooKeeper alone",
            Self::Cable => "host's cable pulled",
        })
    }
}

/// The phases that `history` records, in their order.
const RECORDED: [&str; 6] = ["raced", "caught_up", "claimed", "waited", "promoted", "published"];

/// What a run found. Lengths in ms.
pub(crate) struct Run {
    /// The client's longest gap.
    pub(crate) gap: f64,
    /// The phases from its last write on the old primary to its first on the new one, in their order.
    pub(crate) phases: Vec<(&'static str, f64)>,
    /// Acknowledged writes that the new primary does not have.
    pub(crate) lost: usize,
    /// Two servers were certainly writable at once.
    pub(crate) overlap: bool,
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "gap {:.0} ms", self.gap)?;
        for (name, ms) in &self.phases {
            write!(out, ", {name} {ms:.0}")?;
        }
        write!(out, "; lost {}, two writers {}", self.lost, self.overlap)
    }
}

/// One cluster for all runs.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    primary: String,
    timeline: bool,
}

impl Bench {
    /// Starts everything and waits until it is at rest.
    pub(crate) async fn start(stage: &Stage, timeline: bool) -> Self {
        let options = ClusterOptions { name: "bench".into(), ..lossless() };
        let cluster = Cluster::start(stage, options).await;
        cluster.start_agents();
        cluster.hosts.iter().for_each(|host| host.start(Kind::Guard));
        at_rest(&cluster, "db1").await;
        Self { cluster, primary: "db1".into(), timeline }
    }

    /// One run, from rest to rest.
    pub(crate) async fn run(&mut self, case: Case) -> Run {
        self.choose_primary(case).await;
        let writer = Writer::start(&self.cluster, WriterOptions::default());
        let probe = ReadOnlyProbe::start(&self.cluster);
        writer.wait_for_acknowledged(100).await;
        let before = epoch(&self.cluster).await;
        random_phase().await;

        let clocks = (Instant::now(), SystemTime::now());
        self.fault(case).await;
        let next = self.next_primary(before).await;
        let acknowledged_by_next = 50;
        writer.wait_for_acknowledged(acknowledged_by_next).await;
        let written = writer.stop().await;
        let overlap = probe.stop().await.overlap().is_some();

        let around = clocks.0.checked_sub(Duration::from_millis(200)).unwrap_or(clocks.0);
        let longest = written.longest_gap_since(around);
        let gap = change_of_hands(&written, &self.primary, &next).unwrap_or(longest);
        let history = self.history(before + 1).await;
        let new_primary = self.cluster.host(&next);
        let lost = missing(new_primary, &written.acknowledged_ids()).await.map_or(usize::MAX, |ids| ids.len());
        let run = Run { gap: ms(longest.length()), phases: phases(gap, clocks, &history), lost, overlap };
        if self.timeline {
            self.print_timeline(gap, clocks);
            print_writes(&written, gap, clocks);
        }
        let old = std::mem::replace(&mut self.primary, next);
        self.heal(case, &old).await;
        run
    }

    /// Moves the role to, or away from, the host whose ZooKeeper member leads, where the case asks for it.
    async fn choose_primary(&mut self, case: Case) {
        let leader = self.cluster.zookeeper_leader().await.name.clone();
        let wanted = match case {
            Case::Leader => leader,
            Case::Host if leader == self.primary => {
                let other = self.cluster.hosts.iter().find(|host| host.name != leader);
                other.map(|host| host.name.clone()).expect("there is another host")
            }
            _ => return,
        };
        if wanted != self.primary {
            self.cluster.verb(&wanted, &["promote", &wanted]).await.expect_code(0);
            at_rest(&self.cluster, &wanted).await;
            self.primary = wanted;
        }
    }

    async fn fault(&self, case: Case) {
        match case {
            Case::Mysqld => self.cluster.host(&self.primary).kill(Kind::Mysqld),
            Case::Host | Case::Leader => self.cluster.kill_host(&self.primary),
            Case::Frozen => self.cluster.host(&self.primary).pause(Kind::Mysqld),
            Case::Agent => self.cluster.host(&self.primary).kill(Kind::Agent),
            Case::Zookeeper => self.cluster.cut_zookeeper(&self.primary),
            Case::Cable => self.cluster.cut_host(&self.primary),
            Case::Switch => {
                let from = self.cluster.hosts.iter().find(|host| host.name != self.primary);
                let from = from.map(|host| host.name.clone()).expect("there is a replica");
                self.cluster.verb(&from, &["promote"]).await.expect_code(0);
            }
        }
    }

    async fn next_primary(&self, before: u64) -> String {
        let changed = |topology: &Value| topology["primary"].is_string() && topology["epoch"].as_u64() > Some(before);
        let topology = self.cluster.wait_for_topology("another epoch has its primary", LIMIT, changed).await;
        topology["primary"].as_str().unwrap_or_default().to_owned()
    }

    async fn history(&self, epoch: u64) -> Value {
        let node = format!("history/{epoch}");
        wait_for("the role change is recorded", LIMIT, async || {
            self.cluster.tree.get(&node).await?.ok_or_else(|| format!("there is no {node}"))
        })
        .await
    }

    /// The old primary back as a replica, everything at rest.
    async fn heal(&self, case: Case, old: &str) {
        match case {
            Case::Mysqld => {
                self.cluster.start_mysqld(old).await;
                self.cluster.absolve(old, &self.primary).await;
            }
            Case::Host | Case::Leader => {
                self.cluster.start_host(old, false).await;
                self.cluster.absolve(old, &self.primary).await;
                self.cluster.host(old).start(Kind::Agent);
                self.cluster.host(old).start_if_ended(Kind::Guard);
            }
            Case::Switch => {}
            Case::Agent => self.cluster.host(old).start(Kind::Agent),
            Case::Zookeeper | Case::Cable => self.cluster.heal(old),
            // The fence has killed it.
            Case::Frozen => {}
        }
        if matches!(case, Case::Frozen | Case::Agent | Case::Zookeeper | Case::Cable) {
            self.cluster.takes_back(old, &self.primary, LIMIT).await;
        }
        at_rest(&self.cluster, &self.primary).await;
    }

    /// What the agents logged from shortly before the gap until shortly after it.
    fn print_timeline(&self, gap: Gap, clocks: (Instant, SystemTime)) {
        let margin = Duration::from_millis(20);
        let (from, to) = (rfc3339(wall(gap.from, clocks) - margin), rfc3339(wall(gap.to, clocks) + margin));
        eprintln!("---- gap from {} to {}", rfc3339(wall(gap.from, clocks)), rfc3339(wall(gap.to, clocks)));
        let mut lines: Vec<String> = Vec::new();
        for host in &self.cluster.hosts {
            let text = std::fs::read_to_string(host.log(Kind::Agent)).unwrap_or_default();
            let within = text.lines().filter(|line| line.get(..27).is_some_and(|at| *at >= *from && *at <= *to));
            lines.extend(
                within.filter_map(|line| Some(format!("{} {} {}", line.get(..27)?, host.name, line.get(27..)?))),
            );
        }
        lines.sort();
        lines.iter().for_each(|line| eprintln!("{line}"));
    }
}

/// The writes around the end of a gap: when each was sent and answered.
fn print_writes(written: &Written, gap: Gap, clocks: (Instant, SystemTime)) {
    for (id, write) in written.writes.iter().filter(|(_, write)| write.sent >= gap.from && write.sent <= gap.to) {
        let sent = rfc3339(wall(write.sent, clocks));
        let outcome = match write.outcome {
            Outcome::Acknowledged(at) => format!("acknowledged after {:.1} ms", ms(at - write.sent)),
            other => format!("{other:?}"),
        };
        eprintln!("{sent} write {id} to {}: {outcome}", write.host);
    }
}

/// From the last acknowledgement of the old primary to the first of the new one: as a rule the longest gap.
fn change_of_hands(written: &Written, old: &str, new: &str) -> Option<Gap> {
    let times = |host: &str| -> Vec<Instant> {
        let its = written.writes.values().filter(|write| write.host == host);
        its.filter_map(|write| if let Outcome::Acknowledged(at) = write.outcome { Some(at) } else { None }).collect()
    };
    Some(Gap { from: times(old).into_iter().max()?, to: times(new).into_iter().min()? })
}

/// Faults come at no particular phase of the heartbeat (500 ms) or of a renewal.
async fn random_phase() {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
    tokio::time::sleep(Duration::from_micros(u64::from(nanos) % 500_000)).await;
}

fn ms(length: Duration) -> f64 {
    length.as_secs_f64() * 1000.0
}

/// The wall time of an instant; `clocks` are both clocks at one moment.
fn wall(instant: Instant, clocks: (Instant, SystemTime)) -> SystemTime {
    match instant.checked_duration_since(clocks.0) {
        Some(later) => clocks.1 + later,
        None => clocks.1 - clocks.0.duration_since(instant),
    }
}

fn rfc3339(at: SystemTime) -> String {
    format!("{:.6}", jiff::Timestamp::try_from(at).expect("now is within the calendar"))
}

/// The gap's parts (see the module [`crate`]).
fn phases(gap: Gap, clocks: (Instant, SystemTime), history: &Value) -> Vec<(&'static str, f64)> {
    let recorded: Vec<(&'static str, f64)> =
        RECORDED.into_iter().map(|name| (name, history["phases"][name].as_f64().unwrap_or(f64::NAN))).collect();
    let total: f64 = recorded.iter().map(|(_, ms)| ms).sum();
    let published: jiff::Timestamp = history["at"].as_str().unwrap_or_default().parse().expect("history has its time");
    let published = SystemTime::from(published);
    let since = |later: SystemTime, earlier: SystemTime| match later.duration_since(earlier) {
        Ok(length) => ms(length),
        Err(error) => -ms(error.duration()),
    };
    let noticed = since(published, wall(gap.from, clocks)) - total;
    let writing = since(wall(gap.to, clocks), published);
    [("noticed", noticed)].into_iter().chain(recorded).chain([("writing again", writing)]).collect()
}
