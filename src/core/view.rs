//! What an agent has observed: everything a decision may look at, with its age. Filled by the shell.

use std::collections::BTreeMap;
use std::time::Duration;

use super::action::{MysqlAction, MysqlKind};
use super::degrade::Policy;
use super::gtid::GtidSet;
use super::holdings::Holdings;
use super::reason::Reason;
use super::records::{
    AgentRecord, DurabilityMode, Lease, Master, Mode, Pause, SwitchoverRequest, Terms, Topology, Vote,
};
use super::rewind::ServerFiles;
use super::time::{Moment, Wall};

/// All that one step may look at.
#[derive(Debug, Clone)]
pub struct View {
    /// Who we are and what the operator asked for.
    pub own: Own,
    /// ZooKeeper as last seen.
    pub ensemble: Ensemble,
    /// Our server as last seen.
    pub server: Server,
    /// Our lease as the renewals left it.
    pub held: Option<Held>,
    /// For records that people read; never compared.
    pub wall: Wall,
}

/// Identity and policy, from the configuration and the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Own {
    /// `cluster`.
    pub cluster: String,
    /// `name`.
    pub name: String,
    /// `mysql.advertise`.
    pub address: String,
    /// `zone`.
    pub zone: Option<String>,
    /// `tags`.
    pub tags: BTreeMap<String, String>,
    /// The boot of this host.
    pub boot_id: String,
    /// Which `state_dir` this agent holds ([`AgentRecord::home`]).
    pub home: Option<String>,
    /// This agent process; new at every start.
    pub instance: String,
    /// The program's version.
    pub agent_version: String,
    /// `failover.mode`.
    pub mode: Mode,
    /// `failover.cooldown`.
    pub cooldown: Duration,
    /// `failover.priority`.
    pub priority: u32,
    /// `failover.durability`.
    pub durability: DurabilityMode,
    /// `failover.sync_replicas`.
    pub sync_replicas: u32,
    /// `failover.max_lag`.
    pub max_lag: Duration,
    /// `failover.catch_up_timeout`.
    pub catch_up_timeout: Duration,
    /// `zookeeper.renew_interval`.
    pub renew_interval: Duration,
    /// `zookeeper.op_timeout`.
    pub op_timeout: Duration,
    /// `fencing.budget`.
    pub fencing_budget: Duration,
    /// `fencing.kill_connections`.
    pub kill_connections: bool,
    /// `heartbeat.interval`.
    pub heartbeat_interval: Duration,
    /// `heartbeat.timeout`.
    pub heartbeat_timeout: Duration,
    /// `mysql.replication.user`.
    pub replication_user: String,
    /// `failover.failsafe`.
    pub failsafe: bool,
    /// `degrade.*`.
    pub degrade: Policy,
    /// This server was under our care before (a marker in `state_dir`): writable without a lease is then a fault
    /// even while ZooKeeper cannot be asked.
    pub managed: bool,
}

impl Own {
    /// What the file asks for.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms { durability: self.durability, sync_replicas: self.sync_replicas }
    }
}

/// ZooKeeper as last seen.
#[derive(Debug, Clone, Default)]
pub struct Ensemble {
    /// The session and since when it is in this state.
    pub session: Session,
    /// Everything below was read in the present connection. Until then nothing below may be acted on.
    pub complete: bool,
    /// `topology`.
    pub topology: Node<Topology>,
    /// `master`.
    pub master: Node<Master>,
    /// `lease`.
    pub lease: Node<Lease>,
    /// `agents/*` by name.
    pub agents: BTreeMap<String, Seen<AgentRecord>>,
    /// `election/lock-*` by sequence.
    pub locks: BTreeMap<i64, Seen<Vote>>,
    /// `control/switchover`.
    pub switchover: Node<SwitchoverRequest>,
    /// `control/pause`.
    pub pause: Node<Pause>,
}

/// The state of the ZooKeeper session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// Connected since then.
    Connected {
        /// Since when without a break.
        since: Moment,
        /// T, as the ensemble granted it.
        granted: Duration,
        /// The session's id: the owner of our ephemeral nodes.
        id: i64,
    },
    /// Not connected since then.
    Lost {
        /// Since when.
        since: Moment,
    },
}

impl Default for Session {
    fn default() -> Self {
        Session::Lost { since: Moment(0) }
    }
}

/// A node that may be absent or hold what cannot be read.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Node<T> {
    /// No such node (or not read yet: see [`Ensemble::complete`]).
    #[default]
    Absent,
    /// Read.
    Here(Seen<T>),
    /// There, and no valid record.
    Unreadable {
        /// What is wrong with it.
        why: String,
        /// Its version.
        version: i32,
    },
}

impl<T> Node<T> {
    /// The record with its versions, where it could be read.
    #[must_use]
    pub fn here(&self) -> Option<&Seen<T>> {
        match self {
            Node::Here(seen) => Some(seen),
            _ => None,
        }
    }

    /// The record alone.
    #[must_use]
    pub fn record(&self) -> Option<&T> {
        self.here().map(|seen| &seen.record)
    }
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen<T> {
    /// The record.
    pub record: T,
    /// The node's data version, for versioned writes.
    pub version: i32,
    /// The session that owns an ephemeral node; 0 for a persistent one.
    pub owner: i64,
    /// The transaction that created the node: tells a node created anew from the one seen before.
    pub created: i64,
    /// When this version was first seen here. Waiting for a lease counts from this; for one that came while we were cut off
    /// it may lie earlier ([`super::timing::sent_by`]).
    pub first_seen: Moment,
}

/// Our own server as last seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Server {
    /// What the probes say.
    pub health: Health,
    /// The process behind the socket.
    pub process: Process,
    /// The last complete reading, and when it was asked for.
    pub facts: Option<(ServerFacts, Moment)>,
    /// All that it has shown to hold.
    pub holdings: Holdings,
    /// What the last `Follow` found that the primary does not have.
    pub errant: GtidSet,
    /// A server this agent cannot manage, in words (MariaDB, Group Replication, `gtid_mode` not ON).
    pub unsupported: Option<String>,
    /// We made it read-only (this process, its predecessor or the guard), and the statement has returned; without this a
    /// read-only primary was set by hand (interleaving 13). See [`super::fenced`].
    pub fenced: Option<Reason>,
    /// A fence of ours, or of the guard, has begun since the server was opened last, and may have come to its end or not: a
    /// read-only that is found is ours, and nothing is proven by it.
    pub fence_begun: Option<Moment>,
    /// Why that fence was begun, where a cause has led to it: a mysqld that it ends at the last was not lost by itself.
    pub fence_for: Option<Reason>,
    /// When a fence was last known to have returned. Commits that it waited for have ended until then, so an earlier
    /// reading lacks them.
    pub fenced_at: Option<Moment>,
    /// When a fence was lifted last: the server was opened, made a replica, or seen to take writes.
    pub lifted: Option<Moment>,
    /// The last heartbeat that came back. In `lossless` it was acknowledged.
    pub heartbeat: Option<Heartbeat>,
    /// When the heartbeat was sent that waits for its acknowledgement still; none where none does.
    pub unacknowledged: Option<Moment>,
    /// Fenced by hand: the marker of the verb `fence` stands in `state_dir`.
    pub fenced_by_hand: bool,
    /// The last action on MySQL that succeeded, and when.
    pub done: Option<(MysqlKind, Moment)>,
    /// The last action on MySQL that failed, until one succeeds.
    pub failure: Option<Failure>,
    /// The last fence over the network that succeeded: which server is proven read-only, and when that action was *begun*.
    pub fenced_remote: Option<(String, Moment)>,
    /// The last change of a member's accounts on our server, as long as no other has begun since ([`Server::accounts_changed`]).
    pub accounts: Option<AccountChange>,
    /// Whether an action may be switching acknowledgements on at this moment.
    pub enabling: Enabling,
}

/// An action that switches acknowledgements on, on a server that stands still: it takes effect when that thaws, whatever was read
/// before. Until a reading is asked for after it has come back, this member may acknowledge (interleaving 18; found by
/// simulation: it said that it did not, left S, thawed, and acknowledged).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enabling {
    /// None.
    #[default]
    No,
    /// It has begun.
    UnderWay,
    /// It came back then, with or without an answer.
    Returned(Moment),
}

/// A member was shut out or let in: what was done and when.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountChange {
    /// The action whole: whose accounts, and which.
    pub action: MysqlAction,
    /// When it was begun.
    pub begun: Moment,
    /// When it had come to its end.
    pub ended: Moment,
}

impl Server {
    /// An action begins: what it switches on may be on from here on, and nothing is known of the accounts that an earlier one has locked or unlocked, so that a
    /// member that is being let in can never pass for one that is shut out.
    pub fn action_begins(&mut self, action: &MysqlAction) {
        if matches!(action.kind(), MysqlKind::ShutOut | MysqlKind::LetIn) {
            self.accounts = None;
        }
        if action.enables() {
            self.enabling = Enabling::UnderWay;
        }
    }

    /// What an action of this kind came to that was asked for at `since`: when it succeeded, or how it failed. None: no answer is
    /// noted, and it may have been dropped, since a busy lane takes none.
    #[must_use]
    pub fn came_of(&self, kind: MysqlKind, since: Moment) -> Option<Result<Moment, &Failure>> {
        // A success clears the failure before it: where both are noted the failure came later.
        let failed = self.failure.as_ref().filter(|failure| failure.kind == kind && failure.at >= since).map(Err);
        let done = || self.done.filter(|(done, at)| *done == kind && *at >= since).map(|(_, at)| Ok(at));
        failed.or_else(done)
    }

    /// It has come back, or is given up.
    pub fn action_returns(&mut self, now: Moment) {
        if self.enabling == Enabling::UnderWay {
            self.enabling = Enabling::Returned(now);
        }
    }

    /// An action has succeeded.
    pub fn accounts_changed(&mut self, action: &MysqlAction, begun: Moment, ended: Moment) {
        if matches!(action.kind(), MysqlKind::ShutOut | MysqlKind::LetIn) {
            self.accounts = Some(AccountChange { action: action.clone(), begun, ended });
        }
    }
}

/// A heartbeat that has come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// When its commit was about to be sent. What its acknowledgement proves, it proves of this moment.
    pub sent: Moment,
    /// What had been executed before (interleaving 17): acknowledged with it.
    pub executed: GtidSet,
    /// The epoch it was written for.
    pub epoch: u64,
    /// How many acknowledgements it has waited for: semi-sync waited for so many, whatever came, both before it was sent
    /// and after it had returned (interleaving 9). None where that is not known.
    pub acknowledged_by: Option<u32>,
}

/// An action on MySQL that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub kind: MysqlKind,
    /// Why, in words.
    pub why: String,
    /// When.
    pub at: Moment,
    /// Whether anything may have been changed on the server before it failed.
    pub touched: bool,
}

/// What the probes say of our server (made by [`super::health`]).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// No probe has come to an end yet.
    #[default]
    Unknown,
    /// Answers.
    Healthy,
    /// Lives, but a write does not finish for a reason that is not its fault.
    Blocked {
        /// Which, in words.
        by: String,
    },
    /// Reported and left alone: a refused password, all connections taken. No reason to switch.
    Unreachable {
        /// Why, in words.
        why: String,
    },
    /// Failed for longer than its retries allow, or not yet back for `recover_after` successes.
    Failed {
        /// Since when.
        since: Moment,
        /// Why, in words.
        why: String,
    },
}

/// The mysqld process behind the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Process {
    /// Not known (TCP to another host, or never connected).
    #[default]
    Unknown,
    /// Alive as far as is known.
    Alive,
    /// Certainly gone: the process has exited and no other has answered since.
    Exited {
        /// Since when.
        at: Moment,
    },
}

/// One complete reading of our server.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ServerFacts {
    /// `@@server_uuid`.
    pub server_uuid: String,
    /// `@@server_id`.
    pub server_id: u32,
    /// `@@version`.
    pub version: String,
    /// `@@read_only`.
    pub read_only: bool,
    /// `@@super_read_only`.
    pub super_read_only: bool,
    /// `@@offline_mode`.
    pub offline_mode: bool,
    /// `super_read_only`, `skip_replica_start`, and semi-sync's replica side as off are persisted: a restart comes up read-only,
    /// stopped, and acknowledges nothing.
    pub persisted_read_only: bool,
    /// `@@gtid_executed`.
    pub executed: GtidSet,
    /// The default replication channel, where one is configured.
    pub channel: Option<Channel>,
    /// UUIDs of connected replicas.
    pub replicas: Vec<String>,
    /// The life of this server: boot id and mysqld's start.
    pub incarnation: String,
    /// How often this server has held less than it had shown before ([`super::holdings`]).
    pub losses: u64,
    /// `@@relay_log_recovery`: each start throws away what was received and not applied.
    pub relay_log_recovery: bool,
    /// `sync_binlog` and `innodb_flush_log_at_trx_commit` are 1: a crash of the host loses no commit.
    pub synced_commits: bool,
    /// Where it keeps its files; none where that is not told by its variables.
    pub files: Option<ServerFiles>,
    /// Age of the newest heartbeat seen in the table; none when unknown.
    pub heartbeat_age: Option<Duration>,
    /// Whether the heartbeat table is there.
    pub heartbeat_table: bool,
    /// Semi-synchronous replication, both sides.
    pub semi_sync: SemiSync,
}

/// Semi-synchronous replication as a server has it at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SemiSync {
    /// The source side: commits wait. None where the plugin is not loaded.
    pub source: Option<SemiSyncSource>,
    /// The replica side: what is received is acknowledged. None where the plugin is not loaded.
    pub replica: Option<SemiSyncReplica>,
}

/// The source side (`rpl_semi_sync_source_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncSource {
    /// `enabled`, and the status ON: it has not given up by itself.
    pub on: bool,
    /// `wait_for_replica_count`.
    pub count: u32,
    /// Waits without end, also for no replica at all, and before the engine commits (interleaving 9).
    pub strict: bool,
}

/// The replica side (`rpl_semi_sync_replica_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SemiSyncReplica {
    /// `enabled`: from the next start of the IO thread on it acknowledges.
    pub enabled: bool,
    /// The status: the IO thread that runs was started as one that acknowledges.
    pub active: bool,
}

impl SemiSync {
    /// Every commit waits for `count` acknowledgements at least, whatever comes.
    #[must_use]
    pub fn waits_for(&self, count: u32) -> bool {
        self.source.is_some_and(|source| source.on && source.strict && source.count >= count)
    }

    /// The same, and for not one more.
    #[must_use]
    pub fn waits_for_exactly(&self, count: u32) -> bool {
        self.waits_for(count) && !self.waits_for(count.saturating_add(1))
    }

    /// How many acknowledgements every commit waits for, whatever comes; none where one may return without.
    #[must_use]
    pub fn waits_for_any(&self) -> Option<u32> {
        self.source.filter(|source| source.on && source.strict).map(|source| source.count)
    }

    /// Whether this server may acknowledge, now or after a start of its IO thread.
    #[must_use]
    pub fn may_acknowledge(&self) -> bool {
        self.replica.is_some_and(|replica| replica.enabled || replica.active)
    }
}

impl ServerFacts {
    /// The life in which this server keeps what it has received (interleaving 7).
    ///
    /// Nothing syncs a relay log before the acknowledgement, so a new boot may have lost its tail. What the kernel has been given
    /// outlives mysqld, so its restart alone loses nothing, unless it is told to throw relay logs away.
    #[must_use]
    /// And data that was replaced is another life in either case: `+` and how often.
    pub fn life(&self) -> String {
        let host_or_process = match self.incarnation.split_once('/') {
            Some((boot, _)) if !self.relay_log_recovery => boot,
            _ => &self.incarnation,
        };
        match self.losses {
            0 => host_or_process.to_owned(),
            losses => format!("{host_or_process}+{losses}"),
        }
    }

    /// Whether a client without special privileges could write.
    #[must_use]
    pub fn writable(&self) -> bool {
        !self.super_read_only && !self.offline_mode
    }

    /// Executed and retrieved together: what this server cannot lose any more.
    #[must_use]
    pub fn received(&self) -> GtidSet {
        match &self.channel {
            Some(channel) => self.executed.union(&channel.retrieved),
            None => self.executed.clone(),
        }
    }
}

/// A replication channel as `SHOW REPLICA STATUS` gives it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// `Source_Host:Source_Port`.
    pub source: String,
    /// `Source_User`.
    pub user: String,
    /// `Source_UUID`, empty until it was connected once.
    pub source_uuid: String,
    /// `Replica_IO_Running`.
    pub io: IoThread,
    /// `Replica_SQL_Running`.
    pub sql_running: bool,
    /// `Retrieved_Gtid_Set`.
    pub retrieved: GtidSet,
    /// `Auto_Position`.
    pub auto_position: bool,
    /// `Last_IO_Error`, empty for none.
    pub io_error: String,
    /// `Last_SQL_Error`, empty for none.
    pub sql_error: String,
}

/// `Replica_IO_Running`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoThread {
    /// Running and connected.
    Yes,
    /// Tries to connect.
    Connecting,
    /// Stopped.
    No,
}

/// Our own lease, as the renewals left it.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The epoch it was taken for.
    pub epoch: u64,
    /// sent(last acknowledged renewal) + T − drift. The server must be read-only by then.
    pub until: Moment,
    /// The record says `opened`, acknowledged by the ensemble.
    pub opened: bool,
    /// Read from the file our predecessor left; no transaction of this process has confirmed it yet.
    pub inherited: bool,
    /// P as the others know it from our record, acknowledged by the ensemble: zero, and nothing may rely on acknowledgements.
    pub proof: Duration,
}
