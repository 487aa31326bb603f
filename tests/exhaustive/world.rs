//! The state of the model: ZooKeeper's tree, three hosts, and what the promises are judged by.
//!
//! Kept small on purpose. Nothing holds a version number or an absolute time, so that the state space is finite however
//! long a run is: a transaction carries a flag for each version it checks, cleared when that node changes under
//! it, and every clock is a countdown that stops at zero. What need not be there because it loses no behaviour:
//!
//! - **Lost connections** (to ZooKeeper, between servers): any step may come late or never, so a partition is the absence
//!   of steps. The only thing that is forced is what the clock forces (see `time.rs`).
//! - **Watches**: that a waiter sees a new lease late only makes it wait longer, which the absence of its next step shows
//!   too; so the wait counts from the landing.
//! - **The queue of the race**: any member with enough votes may claim, not only the lowest lock. That is more than the
//!   agents do (`election::leader`), and the claim's own checks have to hold it together.

/// A server, with its agent: 0, 1 or 2 (printed as db1, db2, db3).
pub(crate) type Server = u8;
/// How many there are.
pub(crate) const SERVERS: usize = 3;
/// A set of servers, one bit each.
pub(crate) type Servers = u8;
/// A set of client transactions, one bit each: a GTID set.
pub(crate) type Writes = u8;

/// The bit of a server, or of a write.
pub(crate) const fn bit(index: u8) -> u8 {
    1 << index
}

/// Everything but one server.
pub(crate) const fn others(server: Server) -> Servers {
    !bit(server) & 0b111
}

/// All servers.
pub(crate) fn servers() -> impl Iterator<Item = Server> {
    0..SERVERS as u8
}

/// One state of the world.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) tree: Tree,
    pub(crate) hosts: [Host; SERVERS],
    /// How many writes clients have sent.
    pub(crate) sent: u8,
    /// Which server numbered each write (the UUID in its GTID).
    pub(crate) numbered: [Server; 3],
    /// Acknowledged to a client. For the promises alone: no agent looks at it.
    pub(crate) acknowledged: Writes,
    /// Who opened last. For the promises alone.
    pub(crate) last_opened: Server,
    /// How many more faults this run may have.
    pub(crate) faults: u8,
}

/// ZooKeeper: linearizable; only what decides is kept of each record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Tree {
    /// `topology.epoch`.
    pub(crate) epoch: u8,
    /// `topology.primary`.
    pub(crate) primary: Option<Server>,
    /// `topology.last_writer` (see `role::last_writer`).
    pub(crate) last_writer: Server,
    /// S: `topology.durability.sync`.
    pub(crate) sync: Servers,
    /// `topology.durability.floor`.
    pub(crate) floor: Writes,
    /// `master`: whose session holds it.
    pub(crate) master: Option<Server>,
    pub(crate) lease: Lease,
    /// `election/lock-…`: the newest of each member.
    pub(crate) locks: [Option<Lock>; SERVERS],
    /// The servers whose present life is the one they are counted on in (`topology.durability.incarnations`).
    pub(crate) known: Servers,
    /// `agents/<name>` says that this member means to acknowledge (interleaving 18).
    pub(crate) intent: Servers,
}

/// `lease`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    pub(crate) name: Server,
    pub(crate) epoch: u8,
    pub(crate) opened: bool,
    pub(crate) released: bool,
    /// Ticks since this version was written; stops at T.
    pub(crate) age: u8,
}

/// One vote.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    pub(crate) received: Writes,
    /// Its `topology_version` is the present one.
    pub(crate) current: bool,
    /// It is from the life in which its member is counted on (interleaving 7).
    pub(crate) known: bool,
    /// For how long its member is known to have been frozen; stops at P.
    pub(crate) frozen_for: u8,
}

/// A host: mysqld, agent and guard.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Host {
    /// The whole host stands still (and its clock does not).
    pub(crate) frozen: bool,
    /// Thawed after its lease had passed: has a moment to fence before that counts as a broken promise.
    pub(crate) thawing: bool,
    /// mysqld runs.
    pub(crate) up: bool,
    pub(crate) mode: Mode,
    /// `gtid_executed`.
    pub(crate) executed: Writes,
    /// Received into the relay log and not applied.
    pub(crate) relay: Writes,
    /// Commits that wait for acknowledgements.
    pub(crate) waiting: Writes,
    /// Acknowledgements on their way to this server, by sender.
    pub(crate) acks: [Writes; SERVERS],
    /// The channel's source.
    pub(crate) source: Option<Server>,
    /// The IO thread runs.
    pub(crate) io: bool,
    /// Acknowledges what it receives (semi-sync's replica side, on a connection made while it was on).
    pub(crate) semi: bool,
    /// Has read a `topology` in which it is in S, and will switch `semi` on (interleaving 18).
    pub(crate) enabling: bool,
    /// Ticks since its agent stopped its IO thread for a race; none while it was not.
    pub(crate) frozen_for: Option<u8>,
    /// The agent's lease as it knows it.
    pub(crate) held: Option<Held>,
    /// Ticks until the lease that its claim replaced cannot be in use any more.
    pub(crate) wait: u8,
    /// The part of it that is for the lease itself: the rest is for acknowledgements.
    pub(crate) wait_lease: u8,
    /// The checks before opening passed, the statement is not sent yet (interleaving 14).
    pub(crate) opening: bool,
    /// The transaction under way.
    pub(crate) request: Option<Request>,
    /// One that the agent has given up, and that may land all the same (interleaving 20).
    pub(crate) late: Option<Request>,
    /// The failsafe: ticks for which the last acknowledged heartbeat counts.
    pub(crate) proof: u8,
    /// A heartbeat's commit that waits: its age and who has acknowledged it.
    pub(crate) heartbeat: Option<(u8, Servers)>,
}

/// Whether a server takes writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Mode {
    ReadOnly,
    Writable,
    /// Read-only was asked for and waits for commits: takes nothing new, and those may still return.
    Closing,
}

/// A lease as its holder knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) epoch: u8,
    /// The record is known to say `opened`.
    pub(crate) opened: bool,
    /// Ticks until its end, on the slowest clock that is allowed.
    pub(crate) left: u8,
}

/// A transaction on its way to ZooKeeper and back.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    /// `topology`, `lease`, the counted locks and `agents/…` still have the versions it was made from.
    pub(crate) topology: bool,
    pub(crate) lease: bool,
    pub(crate) locks: bool,
    pub(crate) agents: bool,
    /// Ticks since it was sent; stops at T.
    pub(crate) age: u8,
    /// What ZooKeeper has answered; none while it has not got there.
    pub(crate) landed: Option<bool>,
}

/// What a transaction is for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// `LeaseKeeper::renew`.
    Renew { opened: bool },
    /// Row R8.
    Vote { received: Writes, frozen_for: u8 },
    /// Rows R4, R5, R14.
    Claim { counted: Servers, epoch: u8, opened: bool },
    /// The failsafe: the primary of the current epoch takes `master` back.
    TakeBack { epoch: u8 },
    /// A member leaves S.
    Remove { member: Server, floor: Writes },
}

impl World {
    /// Three healthy servers; db1 is the primary of epoch 1, db2 and db3 are all of S and acknowledge.
    pub(crate) fn new(lease: u8, faults: u8) -> Self {
        let replica = Host {
            frozen: false,
            thawing: false,
            up: true,
            mode: Mode::ReadOnly,
            executed: 0,
            relay: 0,
            waiting: 0,
            acks: [0; SERVERS],
            source: Some(0),
            io: true,
            semi: true,
            enabling: false,
            frozen_for: None,
            held: None,
            wait: 0,
            wait_lease: 0,
            opening: false,
            request: None,
            late: None,
            proof: 0,
            heartbeat: None,
        };
        let primary = Host {
            mode: Mode::Writable,
            source: None,
            io: false,
            semi: false,
            held: Some(Held { epoch: 1, opened: true, left: lease }),
            ..replica.clone()
        };
        World {
            tree: Tree {
                epoch: 1,
                primary: Some(0),
                last_writer: 0,
                sync: others(0),
                floor: 0,
                master: Some(0),
                lease: Lease { name: 0, epoch: 1, opened: true, released: false, age: 0 },
                locks: [None, None, None],
                known: 0b111,
                intent: others(0),
            },
            hosts: [primary, replica.clone(), replica],
            sent: 0,
            numbered: [0; 3],
            acknowledged: 0,
            last_opened: 0,
            faults,
        }
    }

    pub(crate) fn host(&self, server: Server) -> &Host {
        &self.hosts[server as usize]
    }

    pub(crate) fn host_mut(&mut self, server: Server) -> &mut Host {
        &mut self.hosts[server as usize]
    }

    /// All requests that may still land, with their senders.
    pub(crate) fn requests_mut(&mut self) -> impl Iterator<Item = &mut Request> {
        self.hosts.iter_mut().flat_map(|host| host.request.iter_mut().chain(host.late.iter_mut()))
    }

    /// `topology` was written: every vote and transaction made from the version before is out of date.
    pub(crate) fn topology_changed(&mut self) {
        for lock in self.tree.locks.iter_mut().flatten() {
            lock.current = false;
        }
        self.requests_mut().for_each(|request| request.topology = false);
    }

    /// `lease` was written.
    pub(crate) fn lease_changed(&mut self) {
        self.requests_mut().for_each(|request| request.lease = false);
    }

    /// A member's lock was created or deleted.
    pub(crate) fn lock_changed(&mut self, of: Server) {
        self.requests_mut()
            .filter(|request| matches!(request.kind, Kind::Claim { counted, .. } if counted & bit(of) != 0))
            .for_each(|request| request.locks = false);
    }

    /// `agents/<name>` of a member was written.
    pub(crate) fn agent_changed(&mut self, of: Server) {
        self.requests_mut()
            .filter(|request| matches!(request.kind, Kind::Remove { member, .. } if member == of))
            .for_each(|request| request.agents = false);
    }
}

impl Host {
    /// All that it cannot lose any more (`ServerFacts::received`).
    pub(crate) fn received(&self) -> Writes {
        self.executed | self.relay
    }

    /// Clients' commits can return OK here.
    pub(crate) fn takes_writes(&self) -> bool {
        self.up && self.mode != Mode::ReadOnly
    }

    /// Read-only, and nothing that waited can return any more.
    pub(crate) fn make_read_only(&mut self) {
        self.mode = Mode::ReadOnly;
        self.waiting = 0;
        self.acks = [0; SERVERS];
        self.heartbeat = None;
        self.proof = 0;
        self.thawing = false;
    }
}
