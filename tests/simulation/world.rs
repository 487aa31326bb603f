//! Three hosts with a server and an agent each, ZooKeeper, clients, faults, and what must never be seen.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_ha_agent::core::action::{Op, Path, Record};
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{DurabilityMode, Progress, SwitchoverRequest, Topology};
use mysql_ha_agent::core::time::{Moment, Wall};
use mysql_ha_agent::core::view::Held;

use super::agent::{Agent, BUDGET};
use super::chance::Chance;
use super::ensemble::Zookeeper;
use super::mysqld::{Mysqld, Tx};
use super::outage::Outages;

/// One tick, milliseconds.
const TICK: u64 = 10;
/// Faults come until then.
const TROUBLE: u64 = 25_000;
/// By then everything must have healed.
const END: u64 = 75_000;

/// A host: what outlives its agent and its server.
pub(crate) struct Host {
    pub(crate) up: bool,
    pub(crate) zookeeper_cut: bool,
    network_cut: bool,
    pub(crate) boot: u32,
    /// Its clock: reading at the start of the world, and its rate in millionths above the true one.
    offset: u64,
    rate: i64,
    /// `state_dir`: under our care, and why it was fenced.
    pub(crate) managed: bool,
    pub(crate) fenced: Option<Reason>,
    /// The marker of the verb `fence`.
    pub(crate) fenced_by_hand: bool,
    /// The lease file below `/run`.
    lease_file: Option<Moment>,
    instances: u32,
    /// When what is down comes back.
    agent_back: Option<u64>,
    mysqld_back: Option<u64>,
    host_back: Option<u64>,
    network_back: Option<u64>,
    thaws: Option<u64>,
    thawed: u64,
}

pub(crate) struct World {
    pub(crate) t: u64,
    pub(crate) chance: Chance,
    pub(crate) mode: DurabilityMode,
    cooldown: Duration,
    /// The epoch of the paused lease, seen a tick ago.
    pub(super) paused: Option<u64>,
    pub(crate) zk: Zookeeper,
    pub(crate) outages: Outages,
    /// Nothing goes wrong but outages of the whole ensemble.
    calm: bool,
    pub(crate) servers: Vec<Mysqld>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) agents: Vec<Agent>,
    /// Answers may be lost and late.
    pub(crate) faults: bool,
    acknowledged: BTreeSet<Tx>,
    epoch: u64,
    next_fault: u64,
    operations: u32,
    healed_since: Option<u64>,
    pub(crate) trace: Vec<String>,
    /// Rows that decided, for the test's own sake.
    pub(crate) promotions: u64,
}

impl World {
    pub(crate) fn new(seed: u64, calm: bool) -> Self {
        let mut chance = Chance::new(seed);
        let mode = if chance.percent(85) { DurabilityMode::Lossless } else { DurabilityMode::Async };
        let acknowledgements = u32::from(mode == DurabilityMode::Lossless);
        let hosts = (0..3).map(|_| Host {
            up: true,
            zookeeper_cut: false,
            network_cut: false,
            boot: 1,
            offset: chance.between(1, 1_000_000),
            // Two clocks differ by less than the 2 % that a lease allows for.
            rate: i64::try_from(chance.between(0, 18_000)).unwrap() - 9_000,
            managed: false,
            fenced: None,
            fenced_by_hand: false,
            lease_file: None,
            instances: 1,
            agent_back: None,
            mysqld_back: None,
            host_back: None,
            network_back: None,
            thaws: None,
            thawed: 0,
        });
        let hosts = hosts.collect();
        let cooldown = Duration::from_secs(if chance.percent(20) { 4 } else { 0 });
        Self {
            t: 0,
            mode,
            zk: Zookeeper::default(),
            outages: Outages::new(seed, calm),
            calm,
            servers: (0..3).map(|id| Mysqld::new(id, acknowledgements)).collect(),
            agents: (0..3).map(|id| Agent::new(id, 1, 1, mode, cooldown, 0)).collect(),
            cooldown,
            paused: None,
            hosts,
            faults: false,
            acknowledged: BTreeSet::new(),
            epoch: 0,
            next_fault: chance.between(5_000, 8_000),
            operations: 0,
            healed_since: None,
            trace: vec![],
            promotions: 0,
            chance,
        }
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
        a == b || (open(a) && open(b))
    }

    pub(crate) fn run(&mut self) {
        while self.t < END {
            self.t += TICK;
            self.outages(TROUBLE);
            if !self.outages.stands_still() {
                self.zk.expire(self.t);
            }
            self.trouble();
            self.come_back();
            self.clients();
            self.replicate();
            for i in 0..3 {
                if self.agents[i].alive && self.hosts[i].up {
                    self.agent(i);
                    // Mirrored into the file by a task of its own.
                    let agent = &self.agents[i];
                    let inherited = agent.inherited.as_ref().map(|held| held.until);
                    self.hosts[i].lease_file = agent.deadline().or(inherited);
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
        for i in 0..3 {
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
        let i = usize::try_from(self.chance.between(0, 3)).unwrap();
        if let Some((tx, true)) = self.servers[i].commit(self.t, true) {
            self.acknowledge(i, tx);
        }
    }

    pub(crate) fn acknowledge(&mut self, i: usize, tx: Tx) {
        self.acknowledged.insert(tx);
        let _ = i;
    }

    fn replicate(&mut self) {
        for i in 0..3 {
            let applies = !self.servers[i].slow || self.chance.percent(15);
            if applies {
                self.servers[i].apply();
                self.servers[i].apply();
            }
            let Some(channel) = &self.servers[i].channel else { continue };
            let (source, io) = (channel.source, channel.io);
            let open = io && self.servers[i].answers() && self.servers[source].answers() && self.reaches(i, source);
            if !open {
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
                for tx in self.servers[source].acknowledged(position) {
                    self.acknowledge(source, tx);
                }
            }
        }
    }

    pub(crate) fn kill_mysqld(&mut self, i: usize) {
        self.servers[i].kill();
        let back = self.t + self.chance.between(300, 4_000);
        self.hosts[i].mysqld_back = Some(back);
    }

    fn stop_agent(&mut self, i: usize) {
        self.agents[i].alive = false;
        let back = self.t + self.chance.between(100, 6_000);
        self.hosts[i].agent_back = Some(back);
    }

    fn trouble(&mut self) {
        if self.t >= TROUBLE {
            if self.faults {
                self.say(0, "--- no more faults".into());
                self.faults = false;
                let soon = Some(self.t + 10);
                for host in &mut self.hosts {
                    host.agent_back = host.agent_back.and(soon);
                    host.host_back = host.host_back.and(soon);
                    host.network_back = host.network_back.and(soon);
                    host.thaws = host.thaws.and(soon);
                }
                self.servers.iter_mut().for_each(|server| server.slow = false);
                self.hosts.iter_mut().for_each(|host| host.fenced_by_hand = false);
                self.resume();
            }
            return;
        }
        if self.t < self.next_fault {
            return;
        }
        self.faults = true;
        if self.calm {
            return; // answers are lost and late, no more
        }
        self.next_fault = self.t + self.chance.between(200, 5_000);
        let primary = self.topology().and_then(|topology| topology.primary.clone());
        let any = usize::try_from(self.chance.between(0, 3)).unwrap();
        let on_primary = self.chance.percent(60);
        let i = primary.filter(|_| on_primary).map_or(any, |name| name[2..].parse::<usize>().unwrap() - 1);
        let until = self.t + self.chance.between(200, 7_000);
        if self.chance.percent(15) {
            if self.outages.lasts() {
                return; // the verbs cannot reach it either
            }
            return self.operator(any);
        }
        let which = self.chance.between(0, 9);
        let what = match which {
            0 if self.agents[i].alive => {
                self.stop_agent(i);
                "agent crashes"
            }
            1 if self.servers[i].up => {
                self.kill_mysqld(i);
                "mysqld is killed"
            }
            2 if self.hosts[i].up => {
                self.host_dies(i, until);
                "host dies"
            }
            3 => {
                self.hosts[i].zookeeper_cut = true;
                self.hosts[i].network_back = Some(until);
                "cut off from ZooKeeper"
            }
            4 => {
                (self.hosts[i].zookeeper_cut, self.hosts[i].network_cut) = (true, true);
                self.hosts[i].network_back = Some(until);
                "host is cut off"
            }
            5 if self.servers[i].up => {
                self.servers[i].frozen = true;
                self.hosts[i].thaws = Some(until);
                "mysqld freezes"
            }
            6 => {
                self.servers[i].slow = !self.servers[i].slow;
                "applier changes its speed"
            }
            _ => {
                self.ask_for_a_switch(any);
                "a switch is asked for"
            }
        };
        self.say(i, format!("--- {what}"));
    }

    fn host_dies(&mut self, i: usize, until: u64) {
        self.servers[i].kill();
        self.agents[i].alive = false;
        let host = &mut self.hosts[i];
        host.up = false;
        host.lease_file = None;
        host.host_back = Some(until);
        (host.agent_back, host.mysqld_back) = (None, None);
    }

    fn ask_for_a_switch(&mut self, to: usize) {
        let Some(topology) = self.topology().filter(|_| !self.outages.lasts()) else { return };
        let Some(from) = topology.primary.clone() else { return };
        let epoch = topology.epoch;
        let request = SwitchoverRequest {
            operation: format!("operation{}", self.operation()),
            epoch,
            from,
            to: format!("db{}", to + 1),
            timeout_ms: 3_000,
            at: Wall::default(),
            progress: Progress::Requested,
            detail: String::new(),
            after_loss: false,
            force: false,
        };
        let record = Record::Switchover(request);
        let op = match self.zk.nodes.get(&Path::Switchover) {
            Some(node) => Op::Set(Path::Switchover, record, node.version),
            None => Op::Create(Path::Switchover, record),
        };
        let session = self.zk.open_session(self.t);
        let _ = self.zk.transact(session, &[op]);
    }

    pub(super) fn operation(&mut self) -> u32 {
        self.operations += 1;
        self.operations
    }

    fn come_back(&mut self) {
        let t = self.t;
        let due = |at: &mut Option<u64>| at.take_if(|at| *at <= t).is_some();
        for i in 0..3 {
            if due(&mut self.hosts[i].network_back) {
                (self.hosts[i].zookeeper_cut, self.hosts[i].network_cut) = (false, false);
                self.say(i, "--- connected again".into());
            }
            if due(&mut self.hosts[i].thaws) && self.servers[i].frozen {
                (self.servers[i].frozen, self.hosts[i].thawed) = (false, t);
                self.say(i, "--- mysqld thaws".into());
            }
            if due(&mut self.hosts[i].host_back) {
                let host = &mut self.hosts[i];
                (host.up, host.boot) = (true, host.boot + 1);
                (host.agent_back, host.mysqld_back) = (Some(t + 100), Some(t + 200));
                self.say(i, "--- host is back".into());
            }
            if due(&mut self.hosts[i].mysqld_back) && !self.servers[i].up {
                self.servers[i].start();
                self.say(i, "--- mysqld starts".into());
            }
            if due(&mut self.hosts[i].agent_back) && !self.agents[i].alive {
                self.start_agent(i);
                self.say(i, "--- agent starts".into());
            }
        }
    }

    fn start_agent(&mut self, i: usize) {
        self.hosts[i].instances += 1;
        let host = &self.hosts[i];
        let mut agent = Agent::new(i, host.instances, host.boot, self.mode, self.cooldown, self.t);
        agent.own.managed = host.managed;
        agent.server.fenced = host.fenced;
        // Kept in `state_dir`, as the reason of a fence is.
        agent.memory.opened_epoch.clone_from(&self.agents[i].memory.opened_epoch);
        agent.memory.opened_incarnation.clone_from(&self.agents[i].memory.opened_incarnation);
        let now = self.now(i);
        let until = host.lease_file.filter(|until| *until > now);
        agent.inherited =
            until.map(|until| Held { epoch: 0, until, opened: true, inherited: true, proof: Duration::ZERO });
        self.agents[i] = agent;
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        match &self.zk.nodes.get(&Path::Topology)?.record {
            Record::Topology(topology) => Some(topology),
            _ => None,
        }
    }

    fn check(&mut self) {
        // An agent that has just come back finds what its dead predecessor left, and needs a moment to fence it; a
        // server that was frozen is fenced within a second of thawing (contract, promise 1).
        let guarded = |i: usize| {
            let since = self.agents[i].started.max(self.hosts[i].thawed);
            self.agents[i].alive && self.t - since > 2 * BUDGET
        };
        let writable: Vec<usize> = (0..3).filter(|i| self.servers[*i].accepts() && guarded(*i)).collect();
        assert!(writable.len() < 2, "two servers take writes at once: {writable:?}");
        self.what_the_operator_asked_for();
        if self.calm {
            self.nothing_happens();
        }
        let Some(topology) = self.topology() else { return };
        let (epoch, primary) = (topology.epoch, topology.primary.clone());
        assert!(epoch >= self.epoch, "the epoch went back from {} to {epoch}", self.epoch);
        let new = epoch > self.epoch && primary.is_some();
        for i in writable {
            let agent = &self.agents[i];
            let until = agent.deadline().or(agent.inherited.as_ref().map(|held| held.until));
            let over = until.is_none_or(|until| self.now(i) >= until);
            assert!(!over || self.agents[i].fencing.is_some(), "db{} takes writes without a lease", i + 1);
        }
        if new {
            self.epoch = epoch;
            self.promotions += 1;
            let i = primary.unwrap()[2..].parse::<usize>().unwrap() - 1;
            self.nothing_lost(i);
        }
    }

    fn nothing_lost(&self, i: usize) {
        if self.mode == DurabilityMode::Async {
            return;
        }
        let server = &self.servers[i];
        let lost: Vec<_> = self.acknowledged.iter().filter(|tx| !server.executed.all.contains(tx)).collect();
        assert!(lost.is_empty(), "acknowledged and not on the new primary db{}: {lost:?}", i + 1);
    }

    /// One primary, all others follow it, except what holds transactions of its own.
    fn healed(&self) -> bool {
        if self.t < TROUBLE || self.faults {
            return false;
        }
        let Some(primary) = self.topology().and_then(|topology| topology.primary.clone()) else { return false };
        let p = primary[2..].parse::<usize>().unwrap() - 1;
        if !self.servers[p].accepts() {
            return false;
        }
        let follows = |i: usize| {
            let server = &self.servers[i];
            let named = !self.agents[i].server.errant.is_empty();
            // Received and not applied (its applier stands still) counts as held.
            let held = server.executed.all.union(&server.retrieved.all);
            let extra = held.into_iter().any(|tx| !self.servers[p].executed.all.contains(tx));
            let channel = server.channel.as_ref();
            let runs = channel.is_some_and(|channel| channel.source == p && channel.connected && channel.sql);
            let caught_up = server.executed.all.len() + 5 >= self.servers[p].executed.all.len();
            server.super_read_only && ((runs && caught_up && !named) || (named && extra))
        };
        let healed = (0..3).all(|i| i == p || follows(i));
        if healed {
            self.nothing_lost(p);
        }
        healed
    }
}
