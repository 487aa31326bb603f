//! What the core remembers between two steps: operations that take several of them.
//!
//! Everything here can be lost without danger: what safety needs is read from ZooKeeper and the server each time.
//! Memory only makes the way shorter and measures it. A restarted agent starts with none of it but
//! [`Memory::opened_incarnation`], which the shell keeps in `state_dir`.

use std::collections::BTreeMap;

use super::degrade::Counters;
use super::gtid::GtidSet;
use super::reason::Reason;
use super::records::{Phases, Topology};
use super::time::Moment;

/// The memory of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Memory {
    /// A race this agent takes part in.
    pub race: Option<Race>,
    /// A promotion that has claimed `master` and not been finished.
    pub promotion: Option<Promotion>,
    /// A planned switch that this primary carries out.
    pub switch: Option<Switch>,
    /// The life of the server that this agent opened or found open: a read-only primary of the same life that we
    /// did not fence was made read-only by hand (interleaving 13), one of another life by its restart. None for a replica.
    pub opened_incarnation: Option<String>,
    /// This process has held a lease under which its server took writes.
    pub had_lease: bool,
    /// The last time this agent asked to follow: whom, in which life of the server, when.
    pub follow: Option<FollowAttempt>,
    /// A planned switch has given the role to another server since then: the client connections here are to be ended.
    pub clients_to_end: Option<Moment>,
    /// The old primary, whose agent was lost, until its server is proven read-only: it may still take writes.
    pub unfenced: Option<String>,
    /// Acknowledgements that came and that were missing.
    pub degrade: Counters,
    /// Members of S that acknowledge: whether, since they began to, a marker has been committed while commits waited.
    pub marked: BTreeMap<String, Marker>,
    /// Members of S that cannot be counted on, and since when.
    pub missed: BTreeMap<String, Moment>,
    /// Since when enough members of S in other rooms acknowledge.
    pub elsewhere: Option<Moment>,
    /// The member that has confirmed that it acknowledges nothing more, and since when that is known here.
    pub confirmed: Option<(String, Moment)>,
    /// Members of S whose servers live anew, until they are counted on again.
    pub anew: BTreeMap<String, Anew>,
    /// Members of S whose agents are gone, and since when.
    pub absent: BTreeMap<String, Moment>,
    /// The member that this primary is shutting out.
    pub shutting_out: Option<ShuttingOut>,
    /// How many acknowledgements commits are made to wait for, before that is recorded.
    pub setting: Option<Setting>,
    /// The version of `topology` that this process last replaced by one that says degraded: no earlier write of ours can land on
    /// what stands there since.
    pub degraded_over: Option<i32>,
    /// The version of `topology` on which the end of being degraded was last recorded; it may land late.
    pub restored_over: Option<i32>,
    /// When what this replica has received was last seen to grow.
    pub growth: Growth,
    /// Since when nothing can be received here, by our own doing.
    pub frozen: Frozen,
    /// The primary that renews no more, as looked at before its lease ends.
    pub early: Option<Early>,
    /// Since when this primary has been writing on acknowledgements alone; none once its lease holds again.
    pub on_acknowledgements: Option<Moment>,
    /// The present epoch as it was first seen opened: `failover.cooldown` counts from it.
    pub opened_epoch: Option<OpenedEpoch>,
    /// The pause that our lease is to carry.
    pub pause: Option<PauseTerm>,
    /// `failover.mode: observe` with nothing adopted yet: the roles as they would be adopted.
    pub assumed: Option<Topology>,
    /// Incidents already written, so that a lasting condition is recorded once.
    pub noted: Vec<(Reason, i32)>,
}

/// An epoch in which a server took writes, as first seen by this agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedEpoch {
    /// The epoch.
    pub epoch: u64,
    /// Who took writes.
    pub primary: String,
    /// When this agent first saw it, on its own clock.
    pub at: Moment,
    /// It began with a failover that nobody had asked for, to another server than the one before.
    pub failover: bool,
}

/// A member whose accounts are being locked here. What an earlier term did proves nothing in this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShuttingOut {
    /// The member.
    pub member: String,
    /// The epoch.
    pub epoch: u64,
    /// When it was first asked for, recorded as about to be done.
    pub asked: Moment,
}

/// A commit with which a member of S acknowledges all that it had received before it began to (interleaving 16).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// To be sent, and asked for since then.
    Asked(Moment),
    /// Sent, or not needed: no commit waited.
    Sent,
}

/// A member of S in another life than the one it is counted on in (interleaving 7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anew {
    /// That life.
    pub life: String,
    /// When this agent first knew of it.
    pub since: Moment,
    /// What had been executed here before the first heartbeat that was sent after that and acknowledged.
    pub watermark: Option<GtidSet>,
}

/// A change of the number of acknowledgements that commits wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// The number; 0: none.
    pub count: u32,
    /// When it was first asked for.
    pub asked: Moment,
    /// In force since then at the latest: the reading that showed it was asked for then.
    pub since: Option<Moment>,
}

/// Since when the IO thread has certainly been stopped: from the first [`super::action::MysqlAction::StopIo`] that came to its
/// end after the last action that may have started it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frozen {
    /// Since when, and in which life of the server.
    pub since: Option<(Moment, String)>,
    /// When an action that may start it was asked for last. What ended before says nothing.
    pub thawed: Option<Moment>,
}

/// A lease that is not renewed: whether its holder's server still answers us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    /// The version of `lease` that has been standing there.
    pub lease: i32,
    /// When its holder's server was to be reached last.
    pub asked: Moment,
    /// How many looks in a row before that have found nobody.
    pub missed: u32,
    /// It did not answer: nothing is received from it any more under this lease.
    pub silent: bool,
    /// That was found without a session: it ends without one, too.
    pub blind: bool,
}

/// A pause that the lease carries from the next renewal on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseTerm {
    /// Its operation id.
    pub operation: String,
    /// When it ends by itself.
    pub until: Moment,
}

/// A race for `master`.
#[derive(Debug, Clone, PartialEq)]
pub struct Race {
    /// When this agent noticed that there is no primary.
    pub noticed: Moment,
    /// What it noticed.
    pub cause: Reason,
    /// Who took writes before.
    pub from: Option<String>,
    /// When it led with enough votes.
    pub led: Option<Moment>,
    /// What it had received then.
    pub received: GtidSet,
    /// When it had applied everything.
    pub caught_up: Option<Moment>,
    /// What the last primary had acknowledged as far as is known: what of it is missing here is lost.
    pub expected: GtidSet,
    /// The latest claim: when it was asked for and until when the lease it replaces may be in use.
    pub claim: Option<Claim>,
    /// When another candidate's transactions were last to be fetched.
    pub fetching: Option<Moment>,
    /// Since when the old primary, whose lease is paused, is to be proven read-only before the claim.
    pub proving: Option<Moment>,
    /// It was.
    pub proven: bool,
    /// It went to the end of the queue once.
    pub requeued: bool,
    /// When the old primary was to be made read-only over the network before this agent freezes.
    pub closing: Option<Moment>,
}

/// A claim that was asked for. The transaction names the exact version of `lease` it replaces, so if it succeeds,
/// the wait computed from that version is the right one; a later attempt replaces a later version and waits longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// When it was asked for.
    pub at: Moment,
    /// Until when its holder may take writes, by the lease or by acknowledgements; past for a released one.
    pub wait_until: Moment,
    /// Until when the replaced lease itself may be in use: from then on that holder can open nothing any more.
    pub lease_over: Moment,
}

/// A promotion under way or just finished.
#[derive(Debug, Clone, PartialEq)]
pub struct Promotion {
    /// Its epoch.
    pub epoch: u64,
    /// Why.
    pub cause: Reason,
    /// Who took writes before.
    pub from: Option<String>,
    /// What this server had received when it led.
    pub received: GtidSet,
    /// What the last primary had acknowledged as far as is known.
    pub expected: GtidSet,
    /// The server stays read-only until then.
    pub wait_until: Moment,
    /// When the replaced lease is over. What is left of the wait then is for acknowledgements.
    pub lease_over: Moment,
    /// The end of the last finished phase.
    pub last: Moment,
    /// Durations so far.
    pub phases: Phases,
    /// When the old primary was first to be fenced over the network.
    pub remote_fence: Option<Moment>,
    /// Which phases have ended.
    pub reached: Reached,
}

/// How far a promotion has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reached {
    /// `master` is ours.
    Claimed,
    /// The old lease cannot be in use any more.
    Waited,
    /// The server takes writes.
    Opened,
}

/// A planned switch, as the primary that gives its role away.
#[derive(Debug, Clone, PartialEq)]
pub struct Switch {
    /// The request's operation id.
    pub operation: String,
    /// To whom.
    pub to: String,
    /// When it was first seen.
    pub started: Moment,
    /// Past this everything is undone.
    pub deadline: Moment,
    /// When the server was asked to become read-only.
    pub closing: Option<Moment>,
    /// The last try to become read-only, where it has failed.
    pub failed: Option<FailedClose>,
}

/// A try to become read-only for a planned switch that came to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedClose {
    /// Why, in words.
    pub why: String,
    /// How many such tries have held writes up so far.
    pub tries: u32,
    /// Not before then is it tried again: writes go on meanwhile.
    pub again: Moment,
}

/// An attempt to follow.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowAttempt {
    /// Whom.
    pub source: String,
    /// In which life of the server.
    pub incarnation: String,
    /// When.
    pub at: Moment,
    /// Replication was seen running since: the attempt alone says nothing, a busy lane may have dropped it.
    pub ran: bool,
}

/// When the received set was last seen to grow: a sign of life of whoever writes, on our own clock.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Growth {
    seen: Option<(GtidSet, Moment)>,
    grew: Option<Moment>,
}

impl Growth {
    /// Takes note of a reading; `at` is when it was asked for.
    pub fn note(&mut self, received: impl FnOnce() -> GtidSet, at: Moment) {
        if self.seen.as_ref().is_some_and(|(_, seen)| *seen >= at) {
            return;
        }
        let received = received();
        if self.seen.as_ref().is_some_and(|(before, _)| *before != received) {
            self.grew = Some(at);
        }
        self.seen = Some((received, at));
    }

    /// When; none where that was not seen since the agent started.
    #[must_use]
    pub fn grew(&self) -> Option<Moment> {
        self.grew
    }
}
