//! Why things are as they are: one closed list that is log field, metric label, record code and history cause at once.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! reasons {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $code:literal, )+) => {
        /// The reason of a decision, a role change or an incident. The codes are part of the contract: they never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Reason {
            $( $(#[doc = $doc])+ #[serde(rename = $code)] $variant, )+
            /// A code written by a newer version.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl Reason {
            /// Every reason of this version.
            pub const ALL: &'static [Reason] = &[$(Reason::$variant,)+];

            /// The reason with this code; [`Reason::Unknown`] for one of a newer version.
            #[must_use]
            pub fn from_code(code: &str) -> Self {
                match code { $($code => Reason::$variant,)+ _ => Reason::Unknown }
            }

            /// What it means, in a sentence: the list in the README is made of these.
            #[must_use]
            pub fn says(self) -> &'static str {
                match self {
                    $(Reason::$variant => concat!($($doc),+).trim_ascii(),)+
                    Reason::Unknown => "A code written by a newer version.",
                }
            }

            /// The code as it stands in records, logs and metrics.
            #[must_use]
            pub fn code(self) -> &'static str {
                match self { $(Reason::$variant => $code,)+ Reason::Unknown => "unknown" }
            }
        }
    };
}

reasons! {
    /// The agent starts and has not seen everything yet.
    Starting = "starting",
    /// A running replica set was taken over as it stood.
    Adopted = "adopted",
    /// The first server of a cluster that nothing replicated in.
    Bootstrap = "bootstrap",
    /// mysqld has exited.
    MysqlDown = "mysql_down",
    /// mysqld lives and does not answer for longer than its retries allow.
    MysqlSilent = "mysql_silent",
    /// The primary's agent or host is gone: its node vanished or its lease was not renewed.
    AgentLost = "agent_lost",
    /// The primary's agent has lost ZooKeeper and with it the lease.
    ZookeeperLost = "zookeeper_lost",
    /// A planned switch.
    Switchover = "switchover",
    /// A planned switch that was undone.
    SwitchoverUndone = "switchover_undone",
    /// A planned switch that was refused.
    SwitchoverRefused = "switchover_refused",
    /// Steady: holds the lease and takes writes.
    Primary = "primary",
    /// Takes writes that no replica has to acknowledge: nobody is promoted automatically.
    Degraded = "degraded",
    /// A role change left transactions behind that the old primary is known to have executed.
    TransactionsLost = "transactions_lost",
    /// `failover.durability` or `failover.sync_replicas` of a running cluster was changed.
    DurabilityChanged = "durability_changed",
    /// Steady, and nobody has seen the old primary's server read-only since its agent was lost.
    OldPrimaryUnfenced = "old_primary_unfenced",
    /// Steady: follows the primary.
    Following = "following",
    /// No session with ZooKeeper.
    NoZookeeper = "no_zookeeper",
    /// ZooKeeper cannot be used; takes writes as long as replicas acknowledge them (`failover.failsafe`).
    Failsafe = "failsafe",
    /// The primary renews its lease no more and its server does not answer: receives nothing from it any more.
    FrozenEarly = "frozen_early",
    /// A record in ZooKeeper cannot be read.
    UnreadableRecord = "unreadable_record",
    /// No `topology` yet; waits for the primary's agent.
    WaitingForAdoption = "waiting_for_adoption",
    /// No `topology` yet and no server that takes writes.
    NoWritableServer = "no_writable_server",
    /// No `topology` yet and more than one server that takes writes.
    TwoWritableServers = "two_writable_servers",
    /// No `topology` yet and nothing replicates from this writable server.
    NothingFollows = "nothing_follows",
    /// Two servers of the cluster have the same `server_uuid`.
    DuplicateUuid = "duplicate_uuid",
    /// This server is not what the agent can manage (MariaDB, Group Replication, no GTIDs).
    Unsupported = "unsupported",
    /// This server takes writes without the right to.
    WritableWithoutLease = "writable_without_lease",
    /// The lease ran out or was taken by another.
    LeaseLost = "lease_lost",
    /// Takes over the nodes of its own predecessor after a restart.
    AgentRestarted = "agent_restarted",
    /// Holds `master` without being able to use it.
    StrayMaster = "stray_master",
    /// This server does not answer and takes no part.
    Unhealthy = "unhealthy",
    /// The race: stops its IO thread and votes.
    Racing = "racing",
    /// The race: another candidate leads.
    AnotherLeads = "another_leads",
    /// The race: not enough votes for a promotion without loss.
    NoQuorum = "no_quorum",
    /// The race: this replica lacks what the primary had acknowledged.
    BehindWatermark = "behind_watermark",
    /// The race: fetches from another candidate what it has received more.
    Fetching = "fetching",
    /// The race: applies what was received.
    CatchingUp = "catching_up",
    /// The race: lags more than `failover.max_lag`.
    TooFarBehind = "too_far_behind",
    /// The race: never promoted (`failover.priority: 0`).
    NeverPromoted = "never_promoted",
    /// The race: the applier stopped with an error.
    ApplierBroken = "applier_broken",
    /// The race: holds back, since a planned switch names another.
    HeldBack = "held_back",
    /// The race: gives the primary a moment to renew after ZooKeeper came back.
    Settling = "settling",
    /// Automatic role changes are paused.
    Paused = "paused",
    /// Promoted by hand after a loss.
    PromotedByHand = "promoted_by_hand",
    /// Promoted by hand with `--allow-data-loss`.
    Forced = "forced",
    /// Fenced by hand (`fence`), until `unfence`.
    FencedByHand = "fenced_by_hand",
    /// `failover.mode` or `failover.cooldown` keeps it from racing.
    NotAutomatic = "not_automatic",
    /// Promoted: waits until the old lease cannot be in use any more.
    WaitingOldLease = "waiting_old_lease",
    /// Promoted: makes its server writable and names it.
    Opening = "opening",
    /// Waits for the new primary to open.
    WaitingForPrimary = "waiting_for_primary",
    /// Points its replication at the primary.
    Repointing = "repointing",
    /// Holds transactions that the primary does not have.
    Diverged = "diverged",
    /// A write hangs though the server lives (missing acknowledgement, backup lock).
    Blocked = "blocked",
    /// The primary was made read-only by hand.
    ReadOnlyByHand = "read_only_by_hand",
    /// This server is not recorded in `topology`.
    NotMember = "not_member",
    /// The replica's threads do not run although they should.
    ReplicationBroken = "replication_broken",
    /// The agent stopped in an orderly way.
    AgentStopped = "agent_stopped",
    /// A member whose agent is gone was kept from acknowledging by locking its replication account, and has left the sync set.
    ShutOut = "shut_out",
    /// A member joined.
    MemberJoined = "member_joined",
    /// The server was made read-only.
    Fenced = "fenced",
    /// Commits that were in flight when a server died were taken back before its start (`prestart`).
    Rewound = "rewound",
}

impl Reason {
    /// Whether an epoch that began for this reason was a failover that nobody had asked for: what `failover.cooldown`
    /// counts from.
    #[must_use]
    pub fn is_failover(self) -> bool {
        !matches!(
            self,
            Self::Adopted
                | Self::Bootstrap
                | Self::Primary
                | Self::Switchover
                | Self::SwitchoverUndone
                | Self::PromotedByHand
                | Self::Forced
                | Self::FencedByHand
                | Self::ReadOnlyByHand
                | Self::Failsafe
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}
