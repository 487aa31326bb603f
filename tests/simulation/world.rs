//! Hosts with a server, an agent and perhaps a guard each, ZooKeeper, clients, and time.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_ha_agent::core::action::{Path, Record};
use mysql_ha_agent::core::fenced::Told;
use mysql_ha_agent::core::records::{Lease, Topology};
use mysql_ha_agent::core::time::Moment;

use super::agent::Agent;
use super::chance::Chance;
use super::ensemble::Zookeeper;
use super::files::Files;
use super::guard::Guard;
use super::host::Host;
use super::mysqld::{Mysqld, Tx};
use super::outage::Outages;
use super::plan::{Plan, below};
use super::power::Power;
use super::promises::Seen;
use super::rooms::Rooms;

/// One tick, milliseconds.
const TICK: u64 = 10;
/// Faults come until then.
pub(crate) const TROUBLE: u64 = 25_000;
/// By then everything must have healed.
const END: u64 = 75_000;

/// What a seed's world is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Story {
    /// The faults that the first seeds knew.
    Plain,
    /// All of them.
    Mixed,
    /// Nothing goes wrong but outages of the whole ensemble.
    Calm,
    /// Whole rooms go wrong, in one half of the seeds nothing else.
    Rooms,
    /// All of them, and hosts that lose their power, and with it what was not synced.
    Power,
    /// As [`Story::Mixed`], and hosts or their agents are away for long.
    Absent,
}

pub(crate) struct World {
    pub(crate) t: u64,
    pub(crate) chance: Chance,
    /// For what the first seeds did not know: they run as they did.
    pub(crate) more: Chance,
    pub(crate) plan: Plan,
    pub(crate) files: Files,
    pub(crate) zk: Zookeeper,
    pub(crate) outages: Outages,
    pub(crate) rooms: Rooms,
    pub(crate) power: Option<Power>,
    /// Nothing goes wrong but outages of the whole ensemble.
    pub(crate) calm: bool,
    /// Nothing can be fetched from this server.
    pub(crate) purged: Option<usize>,
    pub(crate) servers: Vec<Mysqld>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) agents: Vec<Agent>,
    pub(crate) guards: Vec<Guard>,
    /// Answers may be lost and late.
    pub(crate) faults: bool,
    pub(crate) next_fault: u64,
    pub(crate) next_other_fault: u64,
    pub(crate) next_absence: u64,
    /// How often a member was shut out of S.
    pub(crate) shut_out: u64,
    /// Two hosts that do not reach each other, and until when.
    pub(crate) apart: Option<(usize, usize, u64)>,
    pub(crate) operations: u32,
    /// When a failover that waits for the operator is to be looked at again.
    pub(crate) operator_looks: u64,
    pub(crate) seen: Seen,
    healed_since: Option<u64>,
    pub(crate) trace: Vec<String>,
    /// For the test's own sake.
    pub(crate) promotions: u64,
}

/// In every fourth world one server gives nobody what it has: as if it had been cloned, its binary logs begin now.
fn purged(seed: u64, hosts: usize) -> Option<usize> {
    let mut chance = Chance::new(seed ^ 0x0BAD_109C);
    let host = usize::try_from(chance.between(0, u64::try_from(hosts).unwrap())).unwrap();
    chance.percent(25).then_some(host)
}

impl World {
    pub(crate) fn new(seed: u64, story: Story) -> Self {
        let mut chance = Chance::new(seed);
        let mut more = Chance::new(seed ^ 0x5EED_0F07_4E12);
        let mut plan = match story {
            Story::Plain | Story::Calm => Plan::plain(&mut chance),
            Story::Mixed => Plan::mixed(&mut more),
            Story::Rooms => Plan::rooms(&mut more),
            Story::Power => Plan::lossless(&mut more),
            Story::Absent => Plan::absences(&mut more),
        };
        let hosts: Vec<Host> = (0..plan.hosts).map(|_| Host::new(&mut chance)).collect();
        plan.cooldown = Duration::from_secs(if chance.percent(20) { 4 } else { 0 });
        let ids = 0..plan.hosts;
        let mut world = Self {
            t: 0,
            files: Files::new(seed, &plan),
            zk: Zookeeper::default(),
            outages: Outages::new(seed, story == Story::Calm, plan.hosts),
            rooms: Rooms::new(seed, story == Story::Rooms),
            purged: purged(seed, plan.hosts),
            power: (story == Story::Power).then(|| Power::new(seed)),
            calm: story == Story::Calm,
            servers: ids.clone().map(|id| Mysqld::new(id, plan.acknowledgements(), plan.account(id))).collect(),
            agents: ids.clone().map(|id| Agent::new(id, 1, 1, &plan, 0)).collect(),
            guards: ids.map(|_| Guard::new(plan.guards, Told::default(), 0)).collect(),
            hosts,
            faults: false,
            next_fault: chance.between(5_000, 8_000),
            next_other_fault: more.between(5_000, 8_000),
            next_absence: 4_000,
            shut_out: 0,
            apart: None,
            operations: 0,
            operator_looks: 0,
            seen: Seen::default(),
            healed_since: None,
            trace: vec![],
            promotions: 0,
            chance,
            more,
            plan,
        };
        world.trace.push(world.plan.text());
        world
    }

    /// The reading of a host's clock.
    pub(crate) fn now(&self, i: usize) -> Moment {
        let host = &self.hosts[i];
        let true_ns = i64::try_from(self.t).unwrap() * 1_000_000;
        let passed = true_ns + true_ns / 1_000_000 * host.rate;
        Moment(host.offset * 1_000_000 + u64::try_from(passed).unwrap())
    }

    pub(crate) fn say(&mut self, i: usize, text: String) {
        self.trace.push(format!("{:>6} db{}  {text}", self.t, i + 1));
    }

    pub(crate) fn reaches(&self, a: usize, b: usize) -> bool {
        let open = |i: usize| self.hosts[i].up && !self.hosts[i].network_cut;
        let apart = self.apart.is_some_and(|(x, y, _)| (x, y) == (a, b) || (x, y) == (b, a));
        a == b || (open(a) && open(b) && !apart)
    }

    pub(crate) fn run(&mut self) {
        while self.t < END {
            self.t += TICK;
            if !self.plan.quiet {
                self.outages(TROUBLE);
            }
            if self.calm {
                self.moments();
            }
            self.rooms();
            if !self.outages.stands_still() {
                self.zk.expire(self.t);
            }
            self.trouble();
            self.come_back();
            self.clients();
            self.replicate();
            for i in 0..self.plan.hosts {
                if self.agents[i].works() && self.hosts[i].up {
                    self.agent(i);
                    // Noted beside.
                    let server = &self.agents[i].server;
                    (self.hosts[i].fenced, self.hosts[i].fence_begun) = (server.fenced, server.fence_begun.is_some());
                } else {
                    // What was sent before it froze.
                    self.land(i);
                }
                if self.guards[i].looks() && self.hosts[i].up {
                    self.guard(i);
                }
            }
            self.check();
            if self.healed() {
                let since = *self.healed_since.get_or_insert(self.t);
                if self.t - since > 1_000 {
                    return;
                }
            } else {
                self.healed_since = None;
            }
        }
        for i in 0..self.plan.hosts {
            let server = &self.servers[i];
            let channel = server.channel.as_ref().map(|c| (c.source + 1, c.io, c.sql, c.connected));
            let flags = (server.up, server.frozen, server.super_read_only, server.offline, server.waiting.len());
            let text = format!(
                "at the end: up, frozen, read-only, offline, waiting {flags:?}, executed {}, relay {}, channel {channel:?}, errant {}",
                server.executed.gtids(),
                server.relay.len(),
                self.agents[i].server.errant
            );
            self.say(i, text);
        }
        panic!("not healed {} s after the last fault", (END - TROUBLE) / 1000);
    }

    fn clients(&mut self) {
        if !self.chance.percent(25) {
            return;
        }
        // The worst of clients: it writes wherever it is let in.
        let i = below(&mut self.chance, self.plan.hosts);
        if let Some((tx, true)) = self.servers[i].commit(self.t, true) {
            self.acknowledge(i, tx);
        }
    }

    pub(crate) fn acknowledge(&mut self, i: usize, tx: Tx) {
        self.seen.acknowledged(i, tx);
    }

    fn replicate(&mut self) {
        for i in 0..self.plan.hosts {
            let applies = (!self.servers[i].slow || self.chance.percent(15)) && !self.servers[i].stalled;
            if applies {
                self.servers[i].apply();
                self.servers[i].apply();
            }
            let Some(channel) = &self.servers[i].channel else { continue };
            let (source, io) = (channel.source, channel.io);
            let open = io && self.servers[i].answers() && self.servers[source].answers() && self.reaches(i, source);
            if !open || !self.is_let_in(i, source) {
                self.servers[i].channel.as_mut().unwrap().connected = false;
                continue;
            }
            if self.chance.percent(10) {
                continue; // a moment's delay on the way
            }
            let from = self.servers[i].channel.as_ref().unwrap().position;
            let news: Vec<Tx> = self.servers[source].log.iter().skip(from).take(20).copied().collect();
            let upto = from + news.len();
            let mut received = None;
            for (at, tx) in news.into_iter().enumerate() {
                if !self.servers[i].has_received(tx) {
                    self.servers[i].receive(tx);
                    received = Some(from + at);
                }
            }
            let channel = self.servers[i].channel.as_mut().unwrap();
            (channel.position, channel.connected) = (upto, true);
            let acknowledges = channel.acknowledges;
            if let Some(position) = received.filter(|_| acknowledges) {
                self.acknowledges_within(i, source);
                for tx in self.servers[source].acknowledged(i, position) {
                    self.acknowledge(source, tx);
                }
            }
        }
    }

    /// A connection that stands needs no account any more; a new one is refused by a lock.
    fn is_let_in(&mut self, i: usize, source: usize) -> bool {
        let life = self.servers[source].life;
        let user = &self.servers[i].channel.as_ref().unwrap().user;
        let refused = self.servers[source].locked.contains_key(user);
        let channel = self.servers[i].channel.as_mut().unwrap();
        if channel.let_in != Some(life) {
            channel.let_in = (!refused).then_some(life);
        }
        channel.let_in.is_some()
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        match &self.zk.nodes.get(&Path::Topology)?.record {
            Record::Topology(topology) => Some(topology),
            _ => None,
        }
    }

    pub(crate) fn lease(&self) -> Option<&Lease> {
        match &self.zk.nodes.get(&Path::Lease)?.record {
            Record::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// The host that `topology` names.
    pub(crate) fn primary(&self) -> Option<usize> {
        self.topology()?.primary.as_deref().map(host_of)
    }
}

/// The host of a name.
pub(crate) fn host_of(name: &str) -> usize {
    name[2..].parse::<usize>().unwrap() - 1
}

/// What a transaction set of a test is compared by.
pub(crate) type Transactions = BTreeSet<Tx>;
