//! One agent: the shell of `src/agent` in simulated time, around the real core.

use std::time::Duration;

use mysql_ha_agent::agent::record::agent_record;
use mysql_ha_agent::core::action::{Action, MysqlAction, Op, Path, Purpose, Record, Write};
use mysql_ha_agent::core::degrade::Policy;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::guard::Lease;
use mysql_ha_agent::core::health::{Config, Judge, Next, Outcome};
use mysql_ha_agent::core::memory::Memory;
use mysql_ha_agent::core::outcome::Decision;
use mysql_ha_agent::core::table::step;
use mysql_ha_agent::core::time::{Moment, Wall};
use mysql_ha_agent::core::view::{Ensemble, Heartbeat, Held, Own, Process, Server, Session, View};

use super::ensemble::GRANTED;
use super::fence::Fencing;
use super::keeper::{Call, Keeper};
use super::mysqld::{Tx, address};
use super::plan::Plan;
use super::world::World;

/// `zookeeper.renew_interval`, `zookeeper.op_timeout`, `fencing.budget`, `heartbeat.interval`: milliseconds.
pub(crate) const RENEW: u64 = 300;
pub(crate) const OP_TIMEOUT: u64 = 300;
pub(crate) const BUDGET: u64 = 500;
const PROBE: u64 = 200;
const PROBE_RETRY: u64 = 100;
const PROBE_LIMIT: u64 = 300;
/// Between two steps at rest.
const REST: u64 = 200;

/// An action under way on the server.
pub(crate) struct Doing {
    pub(crate) action: MysqlAction,
    pub(crate) ready: u64,
    pub(crate) started: u64,
}

/// A probe that waits: for its heartbeat's acknowledgement, or for a server that does not answer.
struct Waiting {
    tx: Option<Tx>,
    before: Heartbeat,
    limit: u64,
}

pub(crate) struct Agent {
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    /// Since when it has been at work without a break.
    pub(crate) since_work: u64,
    pub(crate) own: Own,
    pub(crate) memory: Memory,
    judge: Judge,
    pub(crate) server: Server,
    pub(crate) ensemble: Ensemble,
    pub(crate) session: Option<i64>,
    pub(crate) connected: bool,
    pub(crate) heard: u64,
    pub(crate) since: Moment,
    pub(crate) refresh_at: Option<u64>,
    pub(crate) seen_revision: u64,
    pub(crate) keeper: Keeper,
    pub(crate) inherited: Option<Held>,
    pub(crate) calls: Vec<Call>,
    /// A write that waits for the lease's mutex, or is under way.
    pub(crate) lane: Option<Write>,
    pub(crate) lane_sent: bool,
    pub(crate) lane_rests_until: u64,
    pub(crate) notes: Vec<Write>,
    pub(crate) doing: Option<Doing>,
    probe: Option<Waiting>,
    next_probe: u64,
    pub(crate) next_renewal: u64,
    pub(crate) watermark: GtidSet,
    pub(crate) decision: Option<Decision>,
    pub(crate) dirty: bool,
    next_step: u64,
    pub(crate) fencing: Option<Fencing>,
    pub(crate) last_fence: Option<u64>,
    /// The lease's end as it was written into the file last.
    pub(crate) mirrored: Option<Moment>,
}

impl Agent {
    pub(crate) fn new(id: usize, instance: u32, boot: u32, plan: &Plan, now: u64) -> Self {
        let ms = Duration::from_millis;
        let own = Own {
            cluster: "orders".into(),
            name: format!("db{}", id + 1),
            address: address(id),
            zone: plan.zones.get(id).map(|zone| (*zone).to_owned()),
            tags: Default::default(),
            home: None,
            boot_id: format!("boot{id}-{boot}"),
            instance: format!("instance{instance}"),
            agent_version: "1".into(),
            mode: plan.modes[id],
            cooldown: plan.cooldown,
            priority: 100,
            durability: plan.durability,
            sync_replicas: plan.k,
            max_lag: plan.max_lag,
            catch_up_timeout: Duration::from_secs(5),
            renew_interval: ms(RENEW),
            op_timeout: ms(OP_TIMEOUT),
            fencing_budget: ms(BUDGET),
            kill_connections: true,
            heartbeat_interval: ms(PROBE),
            heartbeat_timeout: ms(PROBE_LIMIT),
            replication_user: plan.account(id),
            failsafe: true,
            degrade: Policy { period: ms(400), times: Some(5) },
            managed: false,
        };
        Self {
            alive: true,
            frozen: false,
            since_work: now,
            own,
            memory: Memory::default(),
            judge: Judge::new(Config { retries: 2, recover_after: 2, exit_grace: Duration::ZERO }),
            server: Server::default(),
            ensemble: Ensemble::default(),
            session: None,
            connected: false,
            heard: now,
            since: Moment(0),
            refresh_at: None,
            seen_revision: 0,
            keeper: Keeper::default(),
            inherited: None,
            calls: vec![],
            lane: None,
            lane_sent: false,
            lane_rests_until: 0,
            notes: vec![],
            doing: None,
            probe: None,
            next_probe: now,
            next_renewal: now,
            watermark: GtidSet::new(),
            decision: None,
            dirty: true,
            next_step: now,
            fencing: None,
            last_fence: None,
            mirrored: None,
        }
    }

    /// As `shared::Deadline`: the later of the lease's end and that of the last acknowledged heartbeat.
    pub(crate) fn deadline(&self) -> Option<Moment> {
        let lease = self.keeper.held.as_ref()?.until;
        let acknowledged = self.decision.as_ref().and_then(|decision| decision.acknowledged_until);
        Some(acknowledged.map_or(lease, |until| until.max(lease)))
    }

    pub(crate) fn works(&self) -> bool {
        self.alive && !self.frozen
    }

    pub(crate) fn session_state(&self) -> Session {
        match self.session {
            Some(id) if self.connected => Session::Connected { since: self.since, granted: GRANTED, id },
            _ => Session::Lost { since: self.since },
        }
    }
}

impl World {
    /// One tick of an agent's tasks.
    pub(crate) fn agent(&mut self, i: usize) {
        self.link(i);
        self.answers(i);
        self.renew(i);
        self.start_write(i);
        self.watch_server(i);
        self.fencer(i);
        self.act(i);
        self.decide(i);
        self.mirror(i);
    }

    /// The lease's end into the file that the guard and the next process read. One that has not opened allows no writes.
    fn mirror(&mut self, i: usize) {
        let agent = &mut self.agents[i];
        let until = agent.keeper.held.as_ref().filter(|held| held.opened).and_then(|_| agent.deadline());
        if until != agent.mirrored {
            agent.mirrored = until;
            self.hosts[i].lease_file = Some(Lease { until, paused: None, instance: agent.own.instance.clone() });
        }
    }

    fn decide(&mut self, i: usize) {
        let (t, now) = (self.t, self.now(i));
        let agent = &mut self.agents[i];
        let urgent = agent.decision.as_ref().is_some_and(|decision| decision.outcome.urgent);
        if !(agent.dirty || urgent || t >= agent.next_step) {
            return;
        }
        agent.dirty = false;
        agent.next_step = t + REST;
        if agent.keeper.held.is_some() {
            agent.inherited = None;
        }
        agent.server.fenced_by_hand = self.hosts[i].fenced_by_hand;
        let view = View {
            own: agent.own.clone(),
            ensemble: agent.ensemble.clone(),
            server: agent.server.clone(),
            held: agent.keeper.held.clone().or_else(|| agent.inherited.clone()),
            wall: Wall::default(),
        };
        let decision = step(&mut agent.memory, &view, now);
        let managed =
            view.ensemble.topology.record().is_some_and(|topology| topology.members.contains_key(&view.own.name));
        self.hosts[i].managed |= managed;
        let last = agent.decision.as_ref();
        let changed =
            last.is_none_or(|last| last.row != decision.row || last.outcome.reason != decision.outcome.reason);
        let opened = view.held.as_ref().is_some_and(|held| !held.inherited && held.opened != decision.want_opened);
        if opened || (changed && !decision.outcome.urgent) {
            agent.next_renewal = t;
        }
        let outcome = decision.outcome.clone();
        agent.decision = Some(decision.clone());
        if changed {
            self.say(i, format!("{} {} {}", decision.row, outcome.reason, outcome.detail));
        }
        for action in outcome.actions {
            self.dispatch(i, action);
        }
    }

    fn dispatch(&mut self, i: usize, action: Action) {
        let (t, now) = (self.t, self.now(i));
        let takes = self.chance.between(10, 60);
        let agent = &mut self.agents[i];
        match action {
            Action::Refuse(why) => panic!("agent {i} refuses: {why}"),
            Action::Fence(reason) => self.start_fence(i, reason),
            Action::Mysql(action) if agent.doing.is_none() => {
                if matches!(action, MysqlAction::Close { .. }) {
                    agent.server.fence_begins(now);
                }
                agent.server.action_begins(&action);
                agent.doing = Some(Doing { action, ready: t + takes, started: t });
            }
            Action::Mysql(_) => {}
            Action::Write(write) if matches!(write.purpose, Purpose::Incident | Purpose::History) => {
                agent.notes.push(write);
            }
            Action::Write(write) if agent.lane.is_none() => {
                agent.lane = Some(write);
                agent.lane_sent = false;
            }
            Action::Write(_) => {}
        }
    }

    fn watch_server(&mut self, i: usize) {
        let (t, now) = (self.t, self.now(i));
        let up = self.servers[i].up;
        let known_exited = matches!(self.agents[i].judge.process(), Process::Exited { .. });
        if !up && !known_exited {
            self.agents[i].probe = None;
            self.judged(i, Outcome::Exited);
        } else if up && self.agents[i].judge.process() != Process::Alive {
            self.agents[i].next_probe = t;
            self.judged(i, Outcome::NewProcess);
        }
        if !up {
            return;
        }
        if let Some(waiting) = &self.agents[i].probe {
            let server = &self.servers[i];
            let done = waiting.tx.is_some_and(|tx| server.executed.all.contains(&tx));
            if done && server.answers() {
                let before = waiting.before.clone();
                self.agents[i].watermark = before.executed.clone();
                let counts = before.acknowledged_by.filter(|count| *count == server.acknowledgements);
                self.agents[i].server.heartbeat = Some(Heartbeat { acknowledged_by: counts, ..before });
                self.agents[i].server.unacknowledged = None;
                self.probed(i, Outcome::Success);
            } else if t >= waiting.limit {
                let blocked = waiting.tx.is_some() && server.answers();
                let sent = waiting.before.sent;
                self.agents[i].server.unacknowledged = blocked.then_some(sent);
                self.probed(
                    i,
                    match blocked {
                        true => Outcome::Blocked { by: "no acknowledgement".into() },
                        false => Outcome::Failure { why: "no answer".into() },
                    },
                );
            }
            return;
        }
        if t < self.agents[i].next_probe {
            return;
        }
        let writes = self.agents[i].decision.as_ref().is_some_and(|decision| decision.heartbeat_write);
        let server = &mut self.servers[i];
        let before = Heartbeat {
            sent: now,
            executed: server.executed.gtids(),
            epoch: self.agents[i].decision.as_ref().map_or(0, |decision| decision.epoch),
            acknowledged_by: Some(server.acknowledgements).filter(|count| *count > 0),
        };
        let (waits, tx) = match (server.answers(), writes) {
            (false, _) => (true, None),
            (true, false) => (false, None),
            (true, true) => match server.commit(t, false) {
                Some((tx, _)) => (true, Some(tx)),
                None => (false, None),
            },
        };
        if waits {
            self.agents[i].probe = Some(Waiting { tx, before, limit: t + PROBE_LIMIT });
        } else {
            self.probed(i, Outcome::Success);
        }
    }

    fn probed(&mut self, i: usize, outcome: Outcome) {
        if self.servers[i].answers() {
            self.read_facts(i);
        }
        self.judged(i, outcome);
        let pause = match self.agents[i].judge.next() {
            Next::Interval => PROBE,
            Next::Retry => PROBE_RETRY,
        };
        self.agents[i].probe = None;
        self.agents[i].next_probe = self.t + pause;
    }

    fn judged(&mut self, i: usize, outcome: Outcome) {
        let now = self.now(i);
        let agent = &mut self.agents[i];
        agent.judge.observe(outcome, now);
        agent.judge.tick(now);
        agent.server.health = agent.judge.health().clone();
        agent.server.process = agent.judge.process();
        agent.dirty = true;
    }

    pub(crate) fn read_facts(&mut self, i: usize) {
        let facts = self.servers[i].facts(self.hosts[i].boot, self.t);
        let now = self.now(i);
        let server = &mut self.agents[i].server;
        // Here, unlike in the world, two readings may fall on one moment; the later one counts.
        if let Some((_, at)) = &mut server.facts {
            *at = (*at).min(now - std::time::Duration::from_nanos(1));
        }
        let word = self.hosts[i].told.word.clone().filter(|_| facts.super_read_only && server.fenced.is_none());
        server.take_reading(facts, now, word.as_ref(), now);
        self.hosts[i].fenced = self.agents[i].server.fenced;
        self.agents[i].dirty = true;
    }

    /// What an agent publishes of its server.
    pub(crate) fn observation(&self, i: usize) -> Record {
        let agent = &self.agents[i];
        let now = self.now(i);
        Record::Agent(Box::new(agent_record(&agent.own, &agent.server, agent.decision.as_ref(), Wall::default(), now)))
    }

    pub(crate) fn own_node(&self, i: usize) -> Path {
        Path::Agent(self.agents[i].own.name.clone())
    }

    pub(crate) fn publish(&mut self, i: usize) {
        let op = Op::Set(self.own_node(i), self.observation(i), -1);
        if let Some(session) = self.agents[i].session {
            let _ = self.zk.transact(session, &[op]);
        }
    }
}
