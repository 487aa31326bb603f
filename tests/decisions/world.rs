//! Builds what an agent sees, so that a scenario names only what it is about.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_ha_agent::core::action::{Action, Write};
use mysql_ha_agent::core::degrade::Policy;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::memory::{Memory, OpenedEpoch, Switch};
use mysql_ha_agent::core::outcome::Decision;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{
    AgentRecord, Durability, DurabilityMode, Handover, Lease, Master, Member, MemberState, Mode, Progress, Role,
    ServerRecord, SourceRecord, SwitchoverRequest, Terms, Topology, Vote,
};
use mysql_ha_agent::core::table::step;
use mysql_ha_agent::core::time::{Moment, Wall};
use mysql_ha_agent::core::view::{
    Channel, Ensemble, Health, Heartbeat, Held, IoThread, Node, Own, Process, Seen, SemiSync, SemiSyncReplica,
    SemiSyncSource, Server, ServerFacts, Session, View,
};

/// T in every scenario.
pub(crate) const T: Duration = Duration::from_secs(10);
/// Every scenario begins at this moment.
pub(crate) const NOW: Moment = Moment(1_000_000_000_000);
/// The version of `topology`.
pub(crate) const VERSION: i32 = 4;
const NAMES: [&str; 3] = ["db1", "db2", "db3"];

/// Transactions 1 to `last` of db1.
pub(crate) fn gtids(last: u64) -> GtidSet {
    format!("{}:1-{last}", uuid("db1")).parse().unwrap()
}

pub(crate) fn uuid(name: &str) -> String {
    format!("00000000-0000-0000-0000-00000000000{}", &name[2..])
}

pub(crate) fn address(name: &str) -> String {
    format!("{name}:3306")
}

/// The replication account of a host: one of its own.
pub(crate) fn account(name: &str) -> String {
    format!("repl_{name}")
}

/// The session of an agent: the owner of its nodes.
fn session(name: &str) -> i64 {
    name[2..].parse().unwrap()
}

pub(crate) fn seen<T>(record: T, owner: i64, age: Duration) -> Seen<T> {
    Seen { record, version: VERSION, owner, created: 1, first_seen: NOW - age }
}

/// A heartbeat of epoch 7 that one member has acknowledged.
pub(crate) fn beat_at(sent: Moment) -> Heartbeat {
    Heartbeat { sent, executed: gtids(9), epoch: 7, acknowledged_by: Some(1) }
}

/// What one agent sees and remembers.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) view: View,
    pub(crate) memory: Memory,
    pub(crate) now: Moment,
}

/// `me` among three running servers in epoch 7, with db1 as the primary.
fn running(me: &'static str) -> World {
    let mut ensemble = Ensemble {
        session: Session::Connected { since: Moment(0), granted: T, id: session(me) },
        complete: true,
        topology: Node::Here(seen(topology(), 0, T)),
        master: Node::Here(seen(master("db1", 7), session("db1"), T)),
        lease: Node::Here(seen(lease("db1"), 0, Duration::from_secs(1))),
        ..Ensemble::default()
    };
    for name in NAMES {
        ensemble.agents.insert(name.into(), seen(agent(name), session(name), T));
    }
    let server =
        Server { health: Health::Healthy, process: Process::Alive, facts: Some((facts(me), NOW)), ..Server::default() };
    let view = View { own: own(me), ensemble, server, held: None, wall: Wall::default() };
    // Long running: the present epoch was seen opened an hour ago.
    let opened = OpenedEpoch { epoch: 7, primary: "db1".into(), at: NOW - T * 360, failover: false };
    World { view, memory: Memory { opened_epoch: Some(opened), ..Memory::default() }, now: NOW }
}

/// db2 follows db1.
pub(crate) fn replica() -> World {
    running("db2")
}

/// db1 is the primary and holds the lease.
pub(crate) fn primary() -> World {
    let mut world = running("db1");
    world.view.held = Some(Held {
        epoch: 7,
        until: NOW + Duration::from_secs(9),
        opened: true,
        inherited: false,
        proof: Duration::ZERO,
    });
    world.memory.opened_incarnation = Some("db1/1".into());
    world
}

/// db1 has claimed epoch 7 and not opened yet; nothing has to be waited for.
pub(crate) fn promoted() -> World {
    let mut world = primary();
    world.memory.opened_incarnation = None;
    world.topology().primary = None;
    world.topology().last_writer = Some("db3".into());
    world.facts().super_read_only = true;
    world.held().opened = false;
    world.memory.promotion = None;
    world.after_claim(Duration::ZERO)
}

/// db2 sees that db1 has given its lease up; nobody has voted yet, the IO thread has stopped.
pub(crate) fn vacant() -> World {
    let mut world = replica();
    world.view.ensemble.master = Node::Absent;
    world.lease().released = true;
    let topology = world.topology();
    topology.primary = None;
    topology.reason = Reason::MysqlDown;
    topology.members.get_mut("db1").unwrap().state = MemberState::Na;
    world.agent("db1").healthy = false;
    world.channel().io = IoThread::No;
    world
}

/// The same with the votes of db2 and db3, db2 in front.
pub(crate) fn voted() -> World {
    vacant().lock(1, "db2", 9).lock(2, "db3", 9)
}

/// db2 is named by a planned switch.
pub(crate) fn handed_over(to: &str) -> World {
    let mut world = vacant();
    world.topology().handover =
        Some(Handover { operation: "op".into(), to: to.into(), final_set: gtids(9), hold_ms: 30_000 });
    world
}

/// db1 is asked to hand over to db2.
pub(crate) fn asked() -> World {
    let mut world = primary();
    world.view.ensemble.switchover = Node::Here(seen(request(Progress::Requested), 0, Duration::ZERO));
    world
}

/// No `topology`: the agents have just been started on a running replica set.
pub(crate) fn unadopted(me: &'static str) -> World {
    let mut world = running(me);
    world.view.ensemble.topology = Node::Absent;
    world.view.ensemble.master = Node::Absent;
    world.view.ensemble.lease = Node::Absent;
    world.view.own.managed = false;
    world
}

pub(crate) fn request(progress: Progress) -> SwitchoverRequest {
    SwitchoverRequest {
        operation: "op".into(),
        epoch: 7,
        from: "db1".into(),
        to: "db2".into(),
        timeout_ms: 30_000,
        at: Wall::default(),
        progress,
        detail: String::new(),
        after_loss: false,
        force: false,
    }
}

pub(crate) fn switch(closing: Option<Moment>) -> Switch {
    Switch {
        operation: "op".into(),
        to: "db2".into(),
        started: NOW - Duration::from_secs(2),
        deadline: NOW + Duration::from_secs(20),
        closing,
        failed: None,
    }
}

fn topology() -> Topology {
    let member = |name: &str| Member {
        address: address(name),
        server_uuid: uuid(name),
        state: if name == "db1" { MemberState::ReadWrite } else { MemberState::Read },
    };
    Topology {
        format: Topology::FORMAT,
        cluster: "orders".into(),
        epoch: 7,
        primary: Some("db1".into()),
        since: Wall::default(),
        reason: Reason::Primary,
        members: NAMES.iter().map(|name| ((*name).to_owned(), member(name))).collect(),
        last_writer: Some("db1".into()),
        durability: Durability {
            mode: DurabilityMode::Lossless,
            degraded: false,
            sync: vec!["db2".into(), "db3".into()],
            sync_replicas: 1,
            retiring: vec![],
            accounts: ["db2", "db3"].map(|name| (name.to_owned(), [account(name)].into())).into(),
            shut_out: Default::default(),
            floor: GtidSet::new(),
            incarnations: ["db2", "db3"].map(|name| (name.to_owned(), name.to_owned())).into(),
        },
        handover: None,
        forced: None,
        kept_since: None,
        lost: GtidSet::new(),
    }
}

pub(crate) fn master(name: &str, epoch: u64) -> Master {
    Master {
        name: name.into(),
        epoch,
        address: address(name),
        server_uuid: uuid(name),
        boot_id: format!("boot-{name}"),
        instance: "first".into(),
    }
}

fn lease(name: &str) -> Lease {
    let ttl_ms = u64::try_from(T.as_millis()).unwrap();
    Lease {
        name: name.into(),
        epoch: 7,
        sequence: 3,
        ttl_ms,
        proof_ms: 0,
        opened: true,
        watermark: gtids(9),
        released: false,
        paused: None,
        sent: None,
    }
}

fn own(name: &str) -> Own {
    Own {
        cluster: "orders".into(),
        name: name.into(),
        address: address(name),
        zone: None,
        tags: BTreeMap::new(),
        home: None,
        boot_id: format!("boot-{name}"),
        instance: "first".into(),
        agent_version: "1".into(),
        mode: Mode::Automatic,
        cooldown: Duration::from_secs(60),
        priority: 100,
        durability: DurabilityMode::Lossless,
        sync_replicas: 1,
        max_lag: Duration::from_secs(30),
        catch_up_timeout: Duration::from_secs(60),
        renew_interval: Duration::from_secs(1),
        op_timeout: Duration::from_millis(1200),
        fencing_budget: Duration::from_secs(1),
        kill_connections: true,
        heartbeat_interval: Duration::from_secs(1),
        heartbeat_timeout: Duration::from_secs(1),
        replication_user: account(name),
        failsafe: false,
        degrade: Policy { period: Duration::from_secs(2), times: Some(3) },
        managed: true,
    }
}

fn facts(name: &str) -> ServerFacts {
    let replicates = name != "db1";
    ServerFacts {
        server_uuid: uuid(name),
        server_id: 1,
        version: "9.7.0".into(),
        losses: 0,
        read_only: replicates,
        super_read_only: replicates,
        offline_mode: false,
        persisted_read_only: true,
        executed: gtids(9),
        channel: replicates.then(|| Channel {
            source: address("db1"),
            user: account(name),
            source_uuid: uuid("db1"),
            io: IoThread::Yes,
            sql_running: true,
            retrieved: gtids(9),
            auto_position: true,
            io_error: String::new(),
            sql_error: String::new(),
        }),
        replicas: if replicates { vec![] } else { vec![uuid("db2"), uuid("db3")] },
        incarnation: format!("{name}/1"),
        relay_log_recovery: false,
        synced_commits: true,
        files: None,
        heartbeat_age: Some(Duration::from_millis(500)),
        heartbeat_table: true,
        semi_sync: SemiSync {
            source: Some(SemiSyncSource { on: !replicates, count: 1, strict: true }),
            replica: Some(SemiSyncReplica { enabled: replicates, active: replicates }),
        },
    }
}

fn agent(name: &str) -> AgentRecord {
    let replicates = name != "db1";
    AgentRecord {
        name: name.into(),
        address: address(name),
        home: None,
        boot_id: format!("boot-{name}"),
        instance: "first".into(),
        agent_version: "1".into(),
        at: Wall::default(),
        zone: None,
        priority: 100,
        mode: Mode::Automatic,
        proposes: None,
        replication_user: Some(account(name)),
        fenced_by_hand: false,
        tags: BTreeMap::new(),
        role: if replicates { Role::Replica } else { Role::Primary },
        row: String::new(),
        reason: Reason::Following,
        detail: String::new(),
        guard: Some(true),
        server: Some(ServerRecord {
            server_uuid: uuid(name),
            server_id: 1,
            version: "9.7.0".into(),
            healthy: true,
            writable: !replicates,
            executed: gtids(9),
            retrieved: gtids(9),
            source: replicates.then(|| SourceRecord {
                address: address("db1"),
                user: Some(account(name)),
                server_uuid: Some(uuid("db1")),
                io_running: true,
                sql_running: true,
                error: None,
            }),
            lag_ms: replicates.then_some(500),
            replicas: vec![],
            blocked: None,
            acknowledges: Some(replicates),
            acknowledging: replicates,
            errant: GtidSet::new(),
            incarnation: Some(name.into()),
        }),
    }
}

impl World {
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    pub(crate) fn topology(&mut self) -> &mut Topology {
        match &mut self.view.ensemble.topology {
            Node::Here(seen) => &mut seen.record,
            other => panic!("no topology in this world: {other:?}"),
        }
    }

    pub(crate) fn lease(&mut self) -> &mut Lease {
        match &mut self.view.ensemble.lease {
            Node::Here(seen) => &mut seen.record,
            other => panic!("no lease in this world: {other:?}"),
        }
    }

    pub(crate) fn held(&mut self) -> &mut Held {
        self.view.held.as_mut().unwrap()
    }

    pub(crate) fn facts(&mut self) -> &mut ServerFacts {
        &mut self.view.server.facts.as_mut().unwrap().0
    }

    pub(crate) fn channel(&mut self) -> &mut Channel {
        self.facts().channel.as_mut().unwrap()
    }

    pub(crate) fn agent(&mut self, name: &str) -> &mut ServerRecord {
        self.view.ensemble.agents.get_mut(name).unwrap().record.server.as_mut().unwrap()
    }

    /// The file of `name` asks for this durability.
    pub(crate) fn proposes(&mut self, name: &str, durability: DurabilityMode) {
        let record = &mut self.view.ensemble.agents.get_mut(name).unwrap().record;
        record.proposes = Some(Terms { durability, sync_replicas: 1 });
    }

    /// A vote of `name` with transactions up to `received`.
    pub(crate) fn lock(mut self, sequence: i64, name: &str, received: u64) -> Self {
        let vote = Vote {
            name: name.into(),
            received: gtids(received),
            priority: 100,
            topology_version: VERSION,
            incarnation: name.into(),
            frozen: true,
            frozen_ms: 0,
        };
        self.view.ensemble.locks.insert(sequence, seen(vote, session(name), Duration::ZERO));
        self
    }

    /// A vote that stands there.
    pub(crate) fn vote(&mut self, sequence: i64) -> &mut Vote {
        &mut self.view.ensemble.locks.get_mut(&sequence).unwrap().record
    }

    /// The old lease may be in use for `rest` more.
    pub(crate) fn after_claim(mut self, rest: Duration) -> Self {
        let mut before = vacant().lock(1, "db2", 9).lock(2, "db3", 9);
        before.step();
        let mut race = before.memory.race.unwrap();
        race.claim =
            Some(mysql_ha_agent::core::memory::Claim { at: NOW, wait_until: NOW + rest, lease_over: NOW + rest });
        race.from = Some("db3".into());
        self.memory.race = Some(race);
        self
    }

    pub(crate) fn step(&mut self) -> Decision {
        step(&mut self.memory, &self.view, self.now)
    }
}

/// Actions by their names: `Fence`, `Refuse`, a kind on MySQL, a purpose in ZooKeeper.
pub(crate) fn names(decision: &Decision) -> Vec<String> {
    let name = |action: &Action| match action {
        Action::Fence(_) => "Fence".to_owned(),
        Action::Refuse(_) => "Refuse".to_owned(),
        Action::Mysql(action) => format!("{:?}", action.kind()),
        Action::Write(write) => format!("{:?}", write.purpose),
    };
    decision.outcome.actions.iter().map(name).collect()
}

/// The transaction of a decision.
pub(crate) fn write(decision: &Decision) -> &Write {
    let mut actions = decision.outcome.actions.iter();
    let found = actions.find_map(|action| match action {
        Action::Write(write) => Some(write),
        _ => None,
    });
    found.expect("a write")
}
