//! What is searched (bounds, faults), and the rules that can be taken out one at a time.

/// A safety rule. [`Scope::without`] takes one out, to show that the search notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Section 1: the server is read-only when the lease ends, whatever became of the agent (guard, fencing task).
    SelfFence,
    /// Section 1: the lease counts from the moment its renewal was sent, not from the answer.
    LeaseFromSending,
    /// Section 1: T − drift for the holder, T for those who wait.
    Drift,
    /// Section 1: a winner waits until the lease that it replaced cannot be in use.
    WaitOldLease,
    /// Race 3: the received sets of |S| − k + 1 members of S.
    Quorum,
    /// Race 4: what was received counts, in the vote and for the winner.
    Received,
    /// Race 5: a claim checks the version of `topology`.
    OneClaim,
    /// Interleaving 1: a renewal names the version that its own last write produced.
    RenewOwnVersion,
    /// Interleaving 2: only a holder that has opened releases.
    ReleaseOpenedOnly,
    /// Row P3: and only when the fence has returned, not merely begun.
    ReleaseProven,
    /// Interleaving 3: a vote counts under its own version of `topology` only.
    VoteVersion,
    /// Interleaving 3: a member unfreezes only when its lock is known to be gone.
    UnfreezeWithoutLock,
    /// Interleaving 3, found by this search: a vote lands only where the lease has not been renewed since.
    VoteChecksLease,
    /// Interleaving 4: a vote needs a stopped IO thread.
    FreezeIo,
    /// Interleaving 4: a restarted mysqld does not resume replication by itself (`skip_replica_start`).
    FreezeSurvivesRestart,
    /// Interleaving 7: a killed replica keeps what it has received (`relay_log_recovery=OFF`).
    RelaySurvives,
    /// Interleaving 7: a vote from a life in which its member may hold less than it has acknowledged does not count.
    KnownLife,
    /// Interleaving 7: a new life is recorded only when a later heartbeat is acknowledged and the member has caught up.
    CaughtUp,
    /// Interleaving 13: without the last writer the quorum is needed; `lease.opened` says who that is.
    OpenedIsLastWriter,
    /// Interleaving 14: the statement that opens carries the lease's end.
    OpenCarriesEnd,
    /// Interleaving 19: undoing a switch takes `master` first and only then writes.
    UndoTakesMaster,
    /// Interleaving 20: a `master` of ours without a lease behind it is removed.
    DropStray,
    /// Changes of S: recorded before a member acknowledges.
    RecordBeforeEnabling,
    /// Changes of S: a member leaves the record only when it certainly acknowledges no more.
    CertainBeforeRemoving,
    /// Interleaving 5: a removal carries a floor, read after a marker that the others acknowledged.
    FloorOnRemoval,
    /// Interleaving 18: a member announces that it will acknowledge and then reads `topology` again.
    IntentBeforeEnabling,
    /// Changes of S: what a new primary records keeps every member that may acknowledge to it already.
    NewSetKeepsMembers,
    /// Failsafe: the winner waits P after its quorum was frozen.
    WaitProof,
    /// Failsafe: a fence over the network stands for that wait only if it was begun after the old lease was over.
    FenceAfterLease,
    /// Failsafe: a heartbeat counts from its sending.
    ProofFromSending,
    /// Failsafe: `master` is taken back by a transaction on the version of `topology`.
    TakeBackVersion,
}

/// What is searched.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// T in ticks, for the waiters.
    pub(crate) lease: u8,
    /// P in ticks.
    pub(crate) proof: u8,
    /// k: `sync_replicas`.
    pub(crate) k: u8,
    /// How many writes clients send.
    pub(crate) writes: u8,
    /// No claim goes beyond this epoch.
    pub(crate) epochs: u8,
    /// How many faults a run may have, of the kinds below.
    pub(crate) faults: u8,
    pub(crate) kinds: Faults,
    /// How slow ZooKeeper is.
    pub(crate) delay: Delay,
    /// Worlds that differ in the servers' names alone are one.
    pub(crate) symmetry: bool,
    /// What was received is applied in a step of its own.
    pub(crate) relay: bool,
    /// Orderly releases of the role (`promote`).
    pub(crate) switches: bool,
    /// Members leave and join S while the primary works.
    pub(crate) sync_changes: bool,
    /// `failover.failsafe`.
    pub(crate) failsafe: bool,
    /// Members freeze already at T − P.
    pub(crate) early_freeze: bool,
    /// Whether promise 6 is examined too, from every state.
    pub(crate) heals: bool,
    /// The one promise that is examined; all where none is named.
    pub(crate) only: Option<&'static str>,
    /// The rule that is missing.
    pub(crate) without: Option<Rule>,
}

/// How long a transaction is on its way. A shorter way loses no behaviour as long as its versions are checked: one that lands
/// on what it was made from might as well have been sent later, and an answer that comes late only shortens a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delay {
    /// Sent, landed and answered at once.
    None,
    /// Landed at once, answered any time later.
    Answer,
    /// For one kind: landed any time later, answered any time after that. All others at once.
    Only(Slow),
}

/// Which transactions are slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slow {
    Renewals,
    Votes,
    Claims,
    TakeBacks,
    Removals,
}

/// Which faults happen.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults {
    /// mysqld is killed.
    pub(crate) crash: bool,
    /// The host loses its power, and with it what was received and not applied.
    pub(crate) power: bool,
    /// A host stands still and goes on later.
    pub(crate) pause: bool,
    /// ZooKeeper expires a session, also of an agent that is well.
    pub(crate) expiry: bool,
    /// An answer is lost, and the transaction may land later.
    pub(crate) lost_answer: bool,
}

impl Scope {
    /// The smallest world: a crash of mysqld, an expiry, nothing else.
    pub(crate) fn small() -> Self {
        Scope {
            lease: 2,
            proof: 2,
            k: 1,
            writes: 1,
            epochs: 2,
            faults: 1,
            kinds: Faults { crash: true, expiry: true, ..Faults::default() },
            delay: Delay::None,
            symmetry: true,
            relay: false,
            switches: false,
            sync_changes: false,
            failsafe: false,
            early_freeze: false,
            heals: false,
            only: None,
            without: None,
        }
    }

    /// Whether a rule is kept.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    /// The same without a rule.
    pub(crate) fn without(mut self, rule: Rule) -> Self {
        self.without = Some(rule);
        // A way is easier to read where every server keeps its name.
        self.symmetry = false;
        self
    }
}
