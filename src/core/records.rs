//! What stands in ZooKeeper, as the contract (section 3) spells it: one definition for agents, verbs and clients.
//!
//! The types carry serde's derives and nothing else of it: their JSON form *is* the contract, and a second set of
//! types for the core would only have to be kept equal by hand. Unknown fields are passed over, so that a newer
//! agent may add some within the same `format`; a larger `format` is refused ([`Topology::FORMAT`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::gtid::GtidSet;
use super::reason::Reason;
use super::time::{Moment, Wall};

/// What a client may do with a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum MemberState {
    /// The primary: reads and writes.
    ReadWrite,
    /// A replica that can be read from.
    Read,
    /// Takes writes but should not be read from.
    Write,
    /// Not available.
    Na,
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadWrite => "READ_WRITE",
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::Na => "NA",
        })
    }
}

/// A server of the cluster as clients see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// `host:port` at which clients and replicas reach it.
    pub address: String,
    /// `@@server_uuid`; a server that comes back with another one is another server.
    pub server_uuid: String,
    /// What clients may do with it.
    pub state: MemberState,
}

/// The durability the operator asked for (`failover.durability`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityMode {
    /// No acknowledged write may be lost: semi-sync, and a quorum of the sync set before a promotion.
    Lossless,
    /// Bounded and reported loss.
    Async,
}

impl fmt::Display for DurabilityMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lossless => "lossless",
            Self::Async => "async",
        })
    }
}

/// What an agent does without being told (`failover.mode`). Each agent's own counts for what it does itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Promote by itself.
    #[default]
    Automatic,
    /// Fence and report; promote only when told to.
    Manual,
    /// Write nothing to MySQL; log what would be done.
    Observe,
}

impl Mode {
    fn is_automatic(&self) -> bool {
        *self == Mode::Automatic
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

/// What a file asks for in `failover.durability` and `failover.sync_replicas`: the holder of `master` takes it into `topology`,
/// and what stands there is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// `failover.durability`.
    pub durability: DurabilityMode,
    /// `failover.sync_replicas`.
    pub sync_replicas: u32,
}

/// Stands for whichever boot of a host in [`Durability::incarnations`].
const ANY_BOOT: char = '*';

/// The durability in force, recorded before it takes effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durability {
    /// What the holder of `master` recorded; every candidate obeys this, not its own file.
    pub mode: DurabilityMode,
    /// `lossless` degraded to asynchronous: nothing may be promoted automatically.
    #[serde(default)]
    pub degraded: bool,
    /// S: every server that can acknowledge a commit. Always a superset of those that do.
    #[serde(default)]
    pub sync: Vec<String>,
    /// k: acknowledgements a commit waits for.
    pub sync_replicas: u32,
    /// Members of S that have been asked to acknowledge nothing more; they count in S until that is certain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retiring: Vec<String>,
    /// The users by which a member of S may connect, where its agent has told: recorded first, then used. Whoever is to be shut out
    /// is known by them; a member without an entry cannot be.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub accounts: BTreeMap<String, BTreeSet<String>>,
    /// Members whose accounts are locked, or are about to be, and on the servers of which primaries: each unlocks its own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shut_out: BTreeMap<String, BTreeSet<String>>,
    /// A candidate lacking any of it is refused (interleaving 5).
    #[serde(default)]
    pub floor: GtidSet,
    /// The life of its server in which each member of S is counted on ([`ServerRecord::incarnation`]). In another it may have
    /// lost what it had acknowledged, and its vote does not count until the primary has seen it catch up (interleaving 7).
    /// A member without an entry counts in any: its agent, or whoever recorded S, is of an earlier version. The last writer has
    /// one only where its commits were not synced.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub incarnations: BTreeMap<String, String>,
}

impl Durability {
    /// These terms, and nobody who acknowledges yet.
    #[must_use]
    pub fn without_members(terms: Terms) -> Self {
        Durability {
            mode: terms.durability,
            degraded: false,
            sync: Vec::new(),
            sync_replicas: terms.sync_replicas,
            retiring: Vec::new(),
            accounts: BTreeMap::new(),
            shut_out: BTreeMap::new(),
            floor: GtidSet::new(),
            incarnations: BTreeMap::new(),
        }
    }

    /// k: acknowledgements of members of S that a commit waits for, at least one.
    #[must_use]
    pub fn k(&self) -> u32 {
        self.sync_replicas.max(1)
    }

    /// Whether so many members of S are enough for a commit.
    #[must_use]
    pub fn is_enough(&self, members: usize) -> bool {
        u32::try_from(members).is_ok_and(|members| members >= self.k())
    }

    /// How many members of S have to vote for a promotion: a commit waited for k of them, so of any |S| − k + 1 one holds it.
    #[must_use]
    pub fn votes_needed(&self) -> usize {
        let k = usize::try_from(self.k()).unwrap_or(usize::MAX);
        (self.sync.len() + 1).saturating_sub(k).max(1)
    }

    /// Whether the accounts of this member are locked at that server, or are about to be.
    #[must_use]
    pub fn is_locked_at(&self, member: &str, server: &str) -> bool {
        self.shut_out.get(member).is_some_and(|by| by.contains(server))
    }

    /// Whether what a file asks for is in force: without semi-sync the number of acknowledgements says nothing.
    #[must_use]
    pub fn is_as(&self, terms: &Terms) -> bool {
        self.mode == terms.durability
            && (self.mode == DurabilityMode::Async || self.sync_replicas == terms.sync_replicas)
    }

    /// The entry of a server that is counted on in any boot of its host, as long as its data is not replaced once more.
    #[must_use]
    pub fn any_boot(losses: u64) -> String {
        format!("{ANY_BOOT}+{losses}")
    }

    /// Whether what this server holds in this life is certainly all that it has ever acknowledged (interleaving 7). Without an entry
    /// in any, but for one whose data was replaced: the last writer has none as long as its own never was.
    #[must_use]
    pub fn kept_all(&self, name: &str, incarnation: &str) -> bool {
        let losses = |life: &str| life.rsplit_once('+').map(|(_, losses)| losses.to_owned());
        match self.incarnations.get(name) {
            None => losses(incarnation).is_none(),
            Some(known) if known.starts_with(ANY_BOOT) => losses(known) == losses(incarnation),
            Some(known) => known == incarnation,
        }
    }

    /// This member counts in S no more. Who has locked its accounts stays recorded.
    pub fn forget(&mut self, name: &str) {
        self.sync.retain(|member| member != name);
        self.retiring.retain(|member| member != name);
        self.accounts.remove(name);
        // Who is shut out counts again in the next term, in the life in which it has acknowledged (`changes::claimed`).
        if !self.shut_out.contains_key(name) {
            self.incarnations.remove(name);
        }
    }

    /// Whether this member may acknowledge commits: recorded first, then done (interleaving 18).
    #[must_use]
    pub fn counts_on(&self, name: &str) -> bool {
        self.sync.iter().any(|member| member == name) && !self.retiring.iter().any(|member| member == name)
    }
}

/// A planned switch under way: the old primary is read-only and has released its lease to `to`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// The operation id of the request.
    pub operation: String,
    /// The member the lease was released to.
    pub to: String,
    /// All that the old primary has executed; the target takes over when it has executed it too.
    pub final_set: GtidSet,
    /// How long the others hold back from a race, each on its own clock from first seeing this (interleaving 19).
    pub hold_ms: u64,
}

/// `topology`: the truth for clients, always replaced whole by a versioned write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Version of this layout.
    pub format: u32,
    /// The replica set's name.
    pub cluster: String,
    /// Grows by one with every promotion.
    pub epoch: u64,
    /// The server that takes writes; none while no server does.
    pub primary: Option<String>,
    /// When this state of roles began.
    pub since: Wall,
    /// Why the roles are as they are.
    pub reason: Reason,
    /// All servers of the cluster by agent name.
    pub members: BTreeMap<String, Member>,
    /// Who took writes last. With its data intact and no later epoch opened it needs no quorum (interleaving 13).
    pub last_writer: Option<String>,
    /// What protects acknowledged writes.
    pub durability: Durability,
    /// A planned switch under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handover: Option<Handover>,
    /// The last epoch that began with `promote --allow-data-loss`: acknowledged writes may have been lost when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forced: Option<u64>,
    /// Each epoch after this one began with all that had been acknowledged in the one before. None: not known, as when the last one began
    /// in `async`, by force, or under an agent of an earlier version (which drops this field). `prestart` relies on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_since: Option<u64>,
    /// What was known to be acknowledged and is not on the server that this epoch began with. It stands here since whoever
    /// claimed may be restarted, or die, before it has written its history.
    #[serde(default, skip_serializing_if = "GtidSet::is_empty")]
    pub lost: GtidSet,
}

impl Topology {
    /// The layout this program writes and the newest it understands.
    pub const FORMAT: u32 = 1;
}

/// `master`: ephemeral node of the primary's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Master {
    /// The agent's name.
    pub name: String,
    /// The epoch it holds.
    pub epoch: u64,
    /// Where its server takes writes.
    pub address: String,
    /// Its server.
    pub server_uuid: String,
    /// The boot of its host (`/proc/sys/kernel/random/boot_id`).
    pub boot_id: String,
    /// The agent process, new at every start; a restarted agent knows its predecessor's nodes by name and boot.
    pub instance: String,
}

/// `lease`: persistent, rewritten by every renewal. The lease is not the session (design, section 1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Who holds it.
    pub name: String,
    /// The epoch it holds it for.
    pub epoch: u64,
    /// Counts renewals.
    pub sequence: u64,
    /// T: how long the others wait after they first saw this version. While paused it is what is left of the pause, if
    /// that is longer. Unit: milliseconds.
    pub ttl_ms: u64,
    /// P: how long after a heartbeat that members of S acknowledged the holder may go on writing without renewing this
    /// (`failover.failsafe`); whoever replaces it waits as long after its quorum was frozen. 0: no longer than the lease.
    /// Unit: milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub proof_ms: u64,
    /// Whether the holder has made its server writable (or is about to).
    pub opened: bool,
    /// What the primary has certainly executed *and* had acknowledged; a candidate lacking any of it has lost writes.
    #[serde(default)]
    pub watermark: GtidSet,
    /// Given up in so many words by a holder that had opened and is proven read-only or dead: nobody needs to wait.
    #[serde(default)]
    pub released: bool,
    /// The operation id of the pause that the holder has acknowledged: it may hold this lease without renewing it, as
    /// long as `ttl_ms` says, and nobody races before it has renewed it without this (interleaving 12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
    /// When its holder sent this version, on the holder's own clock ([`super::timing::sent_by`]); none from an agent of an
    /// earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
}

/// A moment on the clock of one agent process: it can be compared with another of the same process alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The agent process.
    pub instance: String,
    /// Its clock, rounded down. Unit: microseconds (nanoseconds since a boot can exceed what every reader of JSON
    /// represents).
    pub at_us: u64,
}

impl Sent {
    /// This moment of the process `instance`.
    #[must_use]
    pub fn new(instance: &str, at: Moment) -> Self {
        Sent { instance: instance.to_owned(), at_us: at.0 / 1000 }
    }
}

impl Lease {
    /// `ttl_ms` of a pause without an end: 100 years, which every reader of JSON can represent.
    pub const FOREVER_MS: u64 = 100 * 365 * 24 * 3_600_000;
}

/// `election/lock-<sequence>`: a candidate in the race, and its vote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The candidate.
    pub name: String,
    /// Executed and retrieved, read after its IO thread had stopped.
    pub received: GtidSet,
    /// `failover.priority`; 0 never leads.
    pub priority: u32,
    /// The version of `topology` under which it stopped; another version makes the vote stale (interleaving 3).
    pub topology_version: i32,
    /// The life of its server in which it received this ([`ServerRecord::incarnation`]; interleaving 7).
    pub incarnation: String,
    /// Whether its IO thread is stopped and so nothing more can be acknowledged by it.
    pub frozen: bool,
    /// For how long it had been so already when this was written, on its member's own clock. Unit: milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub frozen_ms: u64,
}

/// One server as its agent saw it last, in `agents/<name>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// The agent's name.
    pub name: String,
    /// Where its server is reached.
    pub address: String,
    /// The boot of its host.
    pub boot_id: String,
    /// Its `state_dir` (device and inode): the lock on it is what proves that a predecessor is dead, so an agent with another one
    /// is no successor. None from an agent of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// The agent process.
    pub instance: String,
    /// The program's version.
    pub agent_version: String,
    /// When this was observed.
    pub at: Wall,
    /// Room or data centre.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// `failover.priority`.
    pub priority: u32,
    /// `failover.mode`.
    #[serde(default, skip_serializing_if = "Mode::is_automatic")]
    pub mode: Mode,
    /// Fenced by hand (`fence`): votes and follows, and is no candidate.
    #[serde(default, skip_serializing_if = "is_false")]
    pub fenced_by_hand: bool,
    /// Free text of the operator.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// What the agent takes its server for.
    pub role: Role,
    /// The row of the decision table in force.
    pub row: String,
    /// Why, as a code.
    pub reason: Reason,
    /// Why, in words.
    pub detail: String,
    /// What its file asks for, whatever is in force. None from an agent of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposes: Option<Terms>,
    /// The account with which its file lets its server replicate (`mysql.replication.user`). None from an agent of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_user: Option<String>,
    /// Whether a guard runs beside the agent; none where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guard: Option<bool>,
    /// What is known of the server; none before the first answer.
    pub server: Option<ServerRecord>,
}

/// The part of an observation that others need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRecord {
    /// `@@server_uuid`.
    pub server_uuid: String,
    /// `@@server_id`.
    pub server_id: u32,
    /// `@@version`.
    pub version: String,
    /// Whether it answers its probes.
    pub healthy: bool,
    /// Neither `read_only` nor `super_read_only` nor `offline_mode` keeps clients from writing.
    pub writable: bool,
    /// `@@gtid_executed`.
    pub executed: GtidSet,
    /// Retrieved by the replication channel and perhaps not yet executed.
    pub retrieved: GtidSet,
    /// The server it replicates from; none where no replication is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceRecord>,
    /// Age of the newest heartbeat it has applied; none when unknown (never zero instead). Unit: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    /// UUIDs of the replicas connected to it.
    #[serde(default)]
    pub replicas: Vec<String>,
    /// What keeps a write from finishing though the server lives, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Whether it may acknowledge commits of its source, or is about to: `false` only where it certainly does not. None from
    /// an agent of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acknowledges: Option<bool>,
    /// Its IO thread is connected as one that acknowledges, at this moment.
    #[serde(default)]
    pub acknowledging: bool,
    /// Transactions that the primary does not have.
    #[serde(default, skip_serializing_if = "GtidSet::is_empty")]
    pub errant: GtidSet,
    /// The life in which it keeps what it has received: the boot of its host, with `relay_log_recovery` mysqld's start too
    /// (interleaving 7). None from an agent of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

impl ServerRecord {
    /// Executed and retrieved together.
    #[must_use]
    pub fn received(&self) -> GtidSet {
        self.executed.union(&self.retrieved)
    }
}

/// A replica's view of its source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceRecord {
    /// `host:port` as configured.
    pub address: String,
    /// The account that the channel really uses. None from an agent of an older version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The source's UUID, once it has been connected to.
    pub server_uuid: Option<String>,
    /// The IO thread is running *and* connected.
    pub io_running: bool,
    /// The applier is running.
    pub sql_running: bool,
    /// The last error of either thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What an agent takes its own server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Holds the lease and takes writes.
    Primary,
    /// Follows, or is about to.
    Replica,
    /// Not decided yet.
    Unknown,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Unknown => "unknown",
        })
    }
}

/// `incidents/incident-<sequence>`: what was noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// When.
    pub at: Wall,
    /// What, as a code.
    pub kind: Reason,
    /// Whom it is about.
    pub subject: String,
    /// By whom.
    pub noticed_by: String,
    /// In words.
    pub detail: String,
}

/// `history/<epoch>`: one role change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// The epoch that began.
    pub epoch: u64,
    /// When the new primary took writes.
    pub at: Wall,
    /// Why the role changed.
    pub cause: Reason,
    /// Who took writes before.
    pub from: Option<String>,
    /// Who takes them now.
    pub to: String,
    /// How long each phase took, in the order of [`Phases::in_order`]. Unit: milliseconds.
    pub phases: Phases,
    /// What the winner had received when it led the race.
    pub received: GtidSet,
    /// What it had executed when it opened.
    pub executed: GtidSet,
    /// What of the old primary's last published watermark is missing here (`async` only).
    #[serde(default, skip_serializing_if = "GtidSet::is_empty")]
    pub lost: GtidSet,
}

/// Durations of a role change's phases, each from the end of the one before. Unit: milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Phases {
    /// From noticing the loss (or from the old primary's read-only) to leading the race with enough votes.
    pub raced: f64,
    /// Fetching and applying what was received.
    pub caught_up: f64,
    /// The transaction that makes it the holder of `master`.
    pub claimed: f64,
    /// Waiting until the old lease could not be in use any more.
    pub waited: f64,
    /// Making the server writable.
    pub promoted: f64,
    /// Naming it in `topology`.
    pub published: f64,
}

impl Phases {
    /// Names and values in their order in time.
    #[must_use]
    pub fn in_order(&self) -> [(&'static str, f64); 6] {
        [
            ("raced", self.raced),
            ("caught_up", self.caught_up),
            ("claimed", self.claimed),
            ("waited", self.waited),
            ("promoted", self.promoted),
            ("published", self.published),
        ]
    }

    /// The whole change.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.in_order().iter().map(|(_, ms)| ms).sum()
    }
}

/// How far a requested switch has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Written by `promote`; nothing touched yet.
    Requested,
    /// The primary has become read-only and released its lease.
    Released,
    /// The target takes writes.
    Done,
    /// Refused before anything was touched.
    Refused,
    /// Tried and undone: the old primary takes writes again.
    Undone,
}

/// `control/switchover`: a request for a planned switch. Void when the epoch has moved (interleaving 19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchoverRequest {
    /// Names this request; a new one for each.
    pub operation: String,
    /// The epoch it is meant for.
    pub epoch: u64,
    /// The primary it takes the role from.
    pub from: String,
    /// The member it gives the role to.
    pub to: String,
    /// The whole switch's limit, counted by the primary's agent from first seeing the request. Unit: milliseconds.
    pub timeout_ms: u64,
    /// When it was asked for.
    pub at: Wall,
    /// How far it has come.
    pub progress: Progress,
    /// Why it was refused or undone, in words.
    #[serde(default)]
    pub detail: String,
    /// Asked for while there was no primary, or none that could hand over: nobody but `to` may lead the race.
    #[serde(default, skip_serializing_if = "is_false")]
    pub after_loss: bool,
    /// `--allow-data-loss`: neither votes nor the last watermark are asked for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub force: bool,
}

/// `control/pause`: no automatic role change. In force as soon as the primary's lease carries its operation id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Names this pause; a new one for each.
    #[serde(default)]
    pub operation: String,
    /// When it was asked for.
    pub at: Wall,
    /// How long it lasts, counted by the primary's agent from first seeing it; none: until `resume`. Unit: milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Why.
    #[serde(default)]
    pub reason: String,
}
