//! What a decision asks the shell to do. Actions are data: the simulation executes the same ones.
//!
//! Each action belongs to one lane. A lane does one thing at a time, and what it changed is read back into the view
//! before it counts as free again; an action that comes while its lane is busy is dropped, because the next step,
//! which sees the result, will ask again if it still is right. Only [`Action::Fence`] has a lane to itself: it never
//! queues behind anything.

use std::collections::BTreeSet;
use std::time::Duration;

use super::gtid::GtidSet;
use super::reason::Reason;
use super::records::{AgentRecord, HistoryRecord, Incident, Lease, Master, Pause, SwitchoverRequest, Topology, Vote};

/// Something to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Make our server read-only now, with the whole ladder.
    Fence(Reason),
    /// Statements on our own server.
    Mysql(MysqlAction),
    /// A write to ZooKeeper, all operations or none.
    Write(Write),
    /// Stop the program and let nothing be changed (exit code 5).
    Refuse(String),
}

/// What to do on MySQL servers (one at a time).
#[derive(Debug, Clone, PartialEq)]
pub enum MysqlAction {
    /// Stop the IO thread, so that nothing more is received or acknowledged, and switch semi-sync's replica side off, so that
    /// whoever starts it again acknowledges nothing (interleaving 4); both read back.
    StopIo,
    /// Start the applier alone, so that what was received is applied.
    StartApplier,
    /// Wait until `set` is executed, at the most `limit` (the step asks again).
    WaitApplied {
        /// What is to be executed.
        set: GtidSet,
        /// One try's limit.
        limit: Duration,
    },
    /// Get `set` from a server that is not the primary: point the IO thread there with the applier running
    /// (interleaving 15), wait until it is received, stop the IO thread.
    Fetch {
        /// `host:port` of the candidate that has it.
        from: String,
        /// What to get.
        set: GtidSet,
        /// One try's limit.
        limit: Duration,
    },
    /// Follow the primary: nothing extra here (own set read before the primary's), re-point, start.
    Follow {
        /// `host:port` of the primary.
        address: String,
        /// Its UUID; another server at that address is refused.
        server_uuid: String,
        /// Acknowledge what is received (semi-sync's replica side), or certainly not.
        acknowledge: bool,
    },
    /// The same towards the named target of a planned switch, ahead of its claim. What it will hold by the time it opens
    /// (the final set of the switch) counts as being there.
    FollowTarget {
        /// `host:port` of the target.
        address: String,
        /// Its UUID; another server at that address is refused.
        server_uuid: String,
        /// All that the target applies before it claims.
        final_set: GtidSet,
        /// As for `Follow`.
        acknowledge: bool,
    },
    /// Semi-sync's replica side on or off; takes effect by a restart of the IO thread, which is done where it runs.
    Acknowledge {
        /// Which.
        on: bool,
    },
    /// Semi-sync's source side: on with this count, before every commit and without end, or off for 0.
    AwaitAcknowledgements {
        /// k.
        count: u32,
    },
    /// Commit a transaction on a connection of its own and wait for nothing: a replica that has begun to acknowledge after it
    /// had received what waits acknowledges only what comes later (interleaving 16).
    CommitMarker,
    /// End replication for good on a server that takes writes; refused while a thread that receives runs or something
    /// received is not executed.
    ForgetSource,
    /// Take writes: stop receiving for good, clear read-only by a statement that carries the lease's end (interleaving 14).
    Open {
        /// The end of the lease less the fencing budget; past it the statement leaves the server read-only.
        not_after: super::time::Moment,
        /// How many replicas have to acknowledge a commit (`lossless`, semi-sync is switched on before the server is
        /// opened); 0 leaves semi-sync as it is.
        acknowledgements: u32,
    },
    /// Stop taking writes for a planned switch, within `limit`, or leave everything as it was.
    Close {
        /// How long read-only may take to come.
        limit: Duration,
    },
    /// Make the old primary at `address` read-only over the network, within `limit`; failing is no fault.
    FenceRemote {
        /// `host:port`.
        address: String,
        /// Its UUID; another server at that address is left alone.
        server_uuid: String,
        /// How long it may take.
        limit: Duration,
        /// Its replicas still acknowledge: commits in flight get half of the limit to end by themselves.
        acknowledged: bool,
    },
    /// Look whether somebody accepts connections at `address`; nobody is a failure. Not whether the server is well: a login that
    /// hangs under waiting commits (interleaving 16) is no dead host.
    Reach {
        /// `host:port`.
        address: String,
        /// How long that may take.
        limit: Duration,
    },
    /// Begin a new binary log file where the present one is long: whoever starts to follow reads it from its start.
    FlushBinaryLog,
    /// Persist what makes a restart of mysqld come up read-only and with replication stopped.
    PersistReadOnly,
    /// Create the heartbeat table where it is missing (primary only).
    CreateHeartbeatTable,
    /// End the client connections of a server that has become read-only (`fencing.kill_connections`).
    EndClientConnections,
    /// Keep a member from acknowledging (interleaving 6): lock its accounts here, and mark them as locked for it; then end all of
    /// their connections until none is left. Nothing of it is in the binary log, so it waits for nobody (interleaving 16).
    ShutOut {
        /// The member.
        member: String,
        /// All users by which it may connect, and nobody else.
        users: BTreeSet<String>,
    },
    /// Unlock what [`MysqlAction::ShutOut`] has locked here for this member, and nothing else.
    LetIn {
        /// The member.
        member: String,
    },
}

/// Which action on MySQL, without its particulars.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // each is documented at its action
pub enum MysqlKind {
    StopIo,
    StartApplier,
    WaitApplied,
    Fetch,
    Follow,
    FollowTarget,
    Acknowledge,
    AwaitAcknowledgements,
    CommitMarker,
    ForgetSource,
    Open,
    Close,
    FenceRemote,
    Reach,
    FlushBinaryLog,
    PersistReadOnly,
    CreateHeartbeatTable,
    EndClientConnections,
    ShutOut,
    LetIn,
}

impl MysqlAction {
    /// Whether it switches acknowledgements on.
    #[must_use]
    pub fn enables(&self) -> bool {
        matches!(
            self,
            Self::Follow { acknowledge: true, .. }
                | Self::FollowTarget { acknowledge: true, .. }
                | Self::Acknowledge { on: true }
        )
    }

    /// Which action this is.
    #[must_use]
    pub fn kind(&self) -> MysqlKind {
        match self {
            Self::StopIo => MysqlKind::StopIo,
            Self::StartApplier => MysqlKind::StartApplier,
            Self::WaitApplied { .. } => MysqlKind::WaitApplied,
            Self::Fetch { .. } => MysqlKind::Fetch,
            Self::Follow { .. } => MysqlKind::Follow,
            Self::FollowTarget { .. } => MysqlKind::FollowTarget,
            Self::Acknowledge { .. } => MysqlKind::Acknowledge,
            Self::AwaitAcknowledgements { .. } => MysqlKind::AwaitAcknowledgements,
            Self::CommitMarker => MysqlKind::CommitMarker,
            Self::ForgetSource => MysqlKind::ForgetSource,
            Self::Open { .. } => MysqlKind::Open,
            Self::Close { .. } => MysqlKind::Close,
            Self::FenceRemote { .. } => MysqlKind::FenceRemote,
            Self::Reach { .. } => MysqlKind::Reach,
            Self::FlushBinaryLog => MysqlKind::FlushBinaryLog,
            Self::PersistReadOnly => MysqlKind::PersistReadOnly,
            Self::CreateHeartbeatTable => MysqlKind::CreateHeartbeatTable,
            Self::EndClientConnections => MysqlKind::EndClientConnections,
            Self::ShutOut { .. } => MysqlKind::ShutOut,
            Self::LetIn { .. } => MysqlKind::LetIn,
        }
    }
}

/// A transaction on ZooKeeper.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// What it is for: names it in logs.
    pub purpose: Purpose,
    /// All or none.
    pub ops: Vec<Op>,
}

/// What a write to ZooKeeper is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// First `topology` of a running replica set.
    Adopt,
    /// Nodes of our own dead predecessor made ours; the lease goes on.
    TakeOver,
    /// `master` made anew by the primary of the present epoch that has gone on writing without ZooKeeper.
    TakeBack,
    /// A lock in the race.
    Vote,
    /// Our lock removed.
    Withdraw,
    /// The transaction that makes us the holder of `master`.
    Claim,
    /// The open server named in `topology`.
    Publish,
    /// The lease given up by a holder proven read-only or dead.
    Release,
    /// A `master` node of ours that we cannot use removed.
    DropStrayMaster,
    /// Members or their states changed.
    Members,
    /// Progress of a planned switch.
    Progress,
    /// An incident.
    Incident,
    /// A finished role change.
    History,
}

/// One operation of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// The node must exist with this version.
    Check(Path, i32),
    /// Create a node.
    Create(Path, Record),
    /// Replace a node's content; it must have this version.
    Set(Path, Record, i32),
    /// Delete a node; it must have this version.
    Delete(Path, i32),
}

/// A node below `<root>/<cluster>`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Path {
    /// `topology`
    Topology,
    /// `master`, ephemeral
    Master,
    /// `lease`
    Lease,
    /// `agents/<name>`, ephemeral
    Agent(String),
    /// `election/lock-<sequence>`
    Lock(i64),
    /// `election/lock-`, ephemeral sequential: for creating alone
    NewLock,
    /// `incidents/incident-`, persistent sequential: for creating alone
    NewIncident,
    /// `history/<epoch>`
    History(u64),
    /// `control/switchover`
    Switchover,
    /// `control/pause`
    Pause,
}

impl Op {
    /// Replaces this version of `topology`.
    #[must_use]
    pub fn set_topology(next: Topology, version: i32) -> Op {
        Op::Set(Path::Topology, Record::Topology(Box::new(next)), version)
    }
}

/// What is written.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// `topology`
    Topology(Box<Topology>),
    /// `master`
    Master(Master),
    /// `lease`
    Lease(Lease),
    /// `agents/<name>`
    Agent(Box<AgentRecord>),
    /// `election/lock-…`
    Vote(Vote),
    /// `incidents/…`
    Incident(Incident),
    /// `history/<epoch>`
    History(Box<HistoryRecord>),
    /// `control/switchover`
    Switchover(SwitchoverRequest),
    /// `control/pause`
    Pause(Pause),
}
