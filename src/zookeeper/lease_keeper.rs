//! Our lease: every transaction that touches it, and until when it holds.
//!
//! The lease is not the session (design, section 1): it is a node that a renewal rewrites, and it holds until
//! `sent + T − drift` of the last write that is known to have taken effect. T is the record's own `ttl_ms`, the very
//! time that the others wait after they first saw that record.
//!
//! All of it goes through one mutex, because every write must name exactly the version that our last one produced
//! (interleaving 1: a dethroned primary finds `master` created anew with the version 0 that it knows; the lease's
//! version alone tells it that somebody else has been there). Each attempt has a sequence number of its own, so that
//! after a lost answer the node itself says which attempt it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tracing::{debug, info, warn};

use super::Clock;
use super::name::Name;
use super::session::Live;
use super::tree::decode;
use super::writer::{Outcome, Refusal, Writer};
use crate::core::action::{Op, Path, Record, Write};
use crate::core::gtid::GtidSet;
use crate::core::memory::PauseTerm;
use crate::core::records::{AgentRecord, Lease, Sent};
use crate::core::time::Moment;
use crate::core::timing::lease_length;
use crate::core::view::Held;

/// `master` is created and deleted, never rewritten.
const MASTER_VERSION: i32 = 0;

/// What the record says from the next renewal on, as the core wants it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// The server takes writes, or is about to.
    pub opened: bool,
    /// The pause it carries.
    pub pause: Option<&'a PauseTerm>,
    /// P (`proof_ms`); none: as it is.
    pub proof: Option<Duration>,
}

/// What became of a renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// Acknowledged, or read back as done.
    Renewed {
        /// From sending it to its acknowledgement.
        took: Duration,
    },
    /// We hold no lease.
    NotHeld,
    /// The lease is certainly ours no more: [`LeaseKeeper::held`] is none from now on.
    Lost {
        /// What was found, in words.
        why: String,
    },
    /// Our `master` belongs to an earlier session and will vanish with it: it must be made anew (with the lease, in one
    /// transaction) before the lease can be renewed. The lease holds until its end.
    OtherSession,
    /// No answer. The lease holds until its end; the next renewal looks first what became of this one.
    Unknown {
        /// What happened, in words.
        why: String,
    },
    /// Certainly without effect. The lease holds until its end.
    NotDone {
        /// Why, in words.
        why: String,
    },
}

/// A write of the lease that was sent.
#[derive(Debug, Clone)]
struct Attempt {
    record: Lease,
    sent: Moment,
    /// The session that owns our `master` when this has taken effect.
    session: i64,
}

/// The lease as our last write that is known to have taken effect left it.
#[derive(Debug)]
struct Hold {
    last: Attempt,
    version: i32,
    /// Sent since, and nobody knows what became of it.
    pending: Option<Attempt>,
}

/// What the node says about a pending attempt.
enum Settled {
    /// The lease is ours, and nothing is pending.
    Ours,
    /// Another's, or given up.
    Lost(String),
    /// It could not be read.
    Unknown(String),
}

/// Holds our lease. One per agent.
#[derive(Debug)]
pub struct LeaseKeeper {
    writer: Writer,
    own: Arc<Name>,
    clock: Clock,
    name: String,
    instance: String,
    hold: Mutex<Option<Hold>>,
    held: watch::Sender<Option<Held>>,
    until: Arc<AtomicU64>,
}

impl LeaseKeeper {
    /// For the process `instance` of the agent `name`, whose observations ride along as `own`.
    #[must_use]
    pub fn new(writer: Writer, own: Arc<Name>, name: String, instance: String, clock: Clock) -> Self {
        let (hold, held) = (Mutex::new(None), watch::Sender::new(None));
        LeaseKeeper { writer, own, clock, name, instance, hold, held, until: Arc::default() }
    }

    /// Our lease as the core sees it. None: never had, released, or certainly lost. One that ran out stays here: its
    /// end is in it.
    #[must_use]
    pub fn held(&self) -> watch::Receiver<Option<Held>> {
        self.held.subscribe()
    }

    /// The lease's end ([`Held::until`]) in nanoseconds, 0 for none: for fencing, which must wait for no lock.
    #[must_use]
    pub fn until(&self) -> Arc<AtomicU64> {
        self.until.clone()
    }

    /// Renews the lease, in one transaction: our `master` is there, `lease` has exactly the version that our last
    /// write produced; `agents/<name>` rides along. `wanted` is what the record says from now on.
    ///
    /// Waits for nothing but ZooKeeper. At the worst for three calls: what became of the last one, this one, and what
    /// became of this one.
    ///
    /// A pause makes the lease as long as what is left of that pause; the first renewal without it makes it T again, and
    /// from sending that on nobody may rely on more (the others may have seen it). The same holds for a smaller P.
    pub async fn renew(&self, agent: &AgentRecord, watermark: &GtidSet, wanted: Wanted<'_>) -> Renewal {
        let mut slot = self.hold.lock().await;
        if slot.is_none() {
            return Renewal::NotHeld;
        }
        let live = match self.writer.link.live() {
            Ok(live) => live,
            Err(why) => return Renewal::NotDone { why },
        };
        match self.settle(&live, &mut slot).await {
            Settled::Ours => {}
            Settled::Lost(why) => return Renewal::Lost { why },
            Settled::Unknown(why) => return Renewal::Unknown { why },
        }
        let Some(hold) = slot.as_mut() else { return Renewal::NotHeld };
        if hold.last.session != live.id {
            // Interleaving 1: the session that owns `master` is another one.
            return self.in_another_session(&live, &mut slot, agent).await;
        }
        let last = &hold.last.record;
        // Opened once is opened for the whole hold: a decision from before the hold may still be around. The watermark is never
        // smaller than before: what was acknowledged once stays so, also when this process has seen no heartbeat yet.
        let record = Lease {
            sequence: last.sequence + 1,
            opened: last.opened || wanted.opened,
            watermark: last.watermark.union(watermark),
            proof_ms: proof_ms(last, wanted.proof),
            ..with_pause(last, wanted.pause, live.granted, (self.clock)())
        };
        let outcome = self.send(&live, hold, record, agent).await;
        self.renewed(&live, &mut slot, outcome).await
    }

    /// The session in which we held the lease is over. Nothing is renewed until `master` is ours again, so nothing would ever
    /// tell us that another has taken the lease meanwhile (the answer to our last renewal came, and there is none
    /// pending to be settled): it is looked at here, or the hold would stay for ever, and with it our observation as
    /// it was when the session began: the primary took a replica that followed it for one that is gone (found by chaos).
    async fn in_another_session(&self, live: &Live, slot: &mut Option<Hold>, agent: &AgentRecord) -> Renewal {
        let Some(hold) = slot.as_ref() else { return Renewal::NotHeld };
        let why = match live.read_back(&self.writer.tree.node(&Path::Lease)).await {
            Err(why) => return Renewal::Unknown { why: why.to_string() },
            Ok(Some((_, stat))) if stat.version == hold.version => {
                let published = self.own.publish(agent).await;
                debug!(?published, "observation published beside a lease of another session");
                return Renewal::OtherSession;
            }
            Ok(found) => whose(found.as_ref().map(|(bytes, _)| bytes.as_slice())),
        };
        self.lose(slot, &why);
        Renewal::Lost { why }
    }

    /// Sends the renewal, again without its passenger where that is the reason of a rejection.
    async fn send(&self, live: &Live, hold: &mut Hold, record: Lease, agent: &AgentRecord) -> Outcome {
        let mut passenger = self.own.carried(agent, live);
        loop {
            // The moment before the call, never that of the answer: the others' wait begins in between.
            let sent = (self.clock)();
            let record = Lease { sent: Some(Sent::new(&self.instance, sent)), ..record.clone() };
            let mut ops = vec![
                Op::Check(Path::Master, MASTER_VERSION),
                Op::Set(Path::Lease, Record::Lease(record.clone()), hold.version),
            ];
            ops.extend(passenger.clone());
            // Noted before the call, so that a caller who gives up in mid-call leaves behind that it was made.
            hold.pending = Some(Attempt { record, sent, session: live.id });
            self.publish(Some(hold));
            match self.writer.transact(live, &ops).await {
                Outcome::Rejected { path: Path::Agent(_), why, .. } => {
                    debug!(%why, "our node in agents could not ride along");
                    passenger = match (passenger, why) {
                        (Some(Op::Set(..)), Refusal::NoNode) => Some(self.own.created(agent)),
                        _ => None,
                    };
                }
                outcome => return outcome,
            }
        }
    }

    async fn renewed(&self, live: &Live, slot: &mut Option<Hold>, outcome: Outcome) -> Renewal {
        let Some(hold) = slot.as_mut() else { return Renewal::NotHeld };
        let Some(attempt) = hold.pending.clone() else { return Renewal::NotHeld };
        match outcome {
            Outcome::Done { .. } => {
                hold.took_effect();
                self.publish(slot.as_ref());
                Renewal::Renewed { took: (self.clock)().since(attempt.sent) }
            }
            Outcome::Rejected { path, why: why @ (Refusal::NoNode | Refusal::BadVersion), .. } => {
                let why = format!("{}: {why}", self.writer.tree.node(&path));
                self.lose(slot, &why);
                Renewal::Lost { why }
            }
            Outcome::Rejected { path, why, .. } => {
                hold.pending = None;
                self.publish(slot.as_ref());
                Renewal::NotDone { why: format!("{}: {why}", self.writer.tree.node(&path)) }
            }
            Outcome::NotDone { why } => {
                hold.pending = None;
                self.publish(slot.as_ref());
                Renewal::NotDone { why }
            }
            Outcome::Unknown { why } => match self.settle(live, slot).await {
                Settled::Ours if slot.as_ref().is_some_and(|hold| hold.last.sent == attempt.sent) => {
                    Renewal::Renewed { took: (self.clock)().since(attempt.sent) }
                }
                Settled::Ours => Renewal::NotDone { why: format!("read back as not done after: {why}") },
                Settled::Lost(why) => Renewal::Lost { why },
                Settled::Unknown(_) => Renewal::Unknown { why },
            },
        }
    }

    /// Executes a transaction of the core. One that writes `lease` goes through the keeper: while we hold the lease,
    /// the version and the sequence number are the keeper's in place of the given ones (renewals have gone on since
    /// the core looked). Done, it begins or continues the hold, or ends it when it says `released`; its lost answer is
    /// read back here, so that [`Outcome::Unknown`] is left only where even that failed.
    pub async fn commit(&self, write: &Write) -> Outcome {
        if lease_of(&write.ops).is_none() {
            return self.writer.commit(write).await;
        }
        let mut slot = self.hold.lock().await;
        let live = match self.writer.link.live() {
            Ok(live) => live,
            Err(why) => return Outcome::NotDone { why },
        };
        match self.settle(&live, &mut slot).await {
            Settled::Ours => {}
            Settled::Lost(why) => return Outcome::NotDone { why: format!("the lease was lost before: {why}") },
            Settled::Unknown(why) => {
                return Outcome::NotDone { why: format!("it is not known yet what became of the last renewal: {why}") };
            }
        }
        let mut ops = write.ops.clone();
        let sent = (self.clock)();
        let mark = Sent::new(&self.instance, sent);
        let Some((record, version)) = continued(&mut ops, slot.as_ref(), mark) else {
            return Outcome::NotDone { why: "a lease can be created and set only".to_owned() };
        };
        let keeps = record.name == self.name && !record.released;
        if !keeps {
            // Another may open as soon as this has landed, and no answer tells when: nothing may rely on the lease
            // from here on.
            self.publish(None);
        }
        let creates = ops.iter().any(|op| matches!(op, Op::Create(Path::Master, _)));
        let session = slot.as_ref().filter(|_| !creates).map_or(live.id, |hold| hold.last.session);
        let attempt = Attempt { record, sent, session };
        if let Some(hold) = slot.as_mut() {
            hold.pending = Some(attempt.clone());
        }
        let outcome = match self.writer.transact(&live, &ops).await {
            Outcome::Unknown { why } => self.read_back(&live, &ops, &attempt.record, version, why).await,
            outcome => outcome,
        };
        debug!(purpose = ?write.purpose, ?outcome, "wrote");
        match &outcome {
            Outcome::Done { .. } => {
                *slot = keeps.then_some(Hold { last: attempt, version, pending: None });
            }
            Outcome::Rejected { path: Path::Lease, why, .. } if slot.is_some() => {
                self.lose(&mut slot, &format!("lease: {why}"));
            }
            Outcome::Rejected { .. } | Outcome::NotDone { .. } => {
                if let Some(hold) = slot.as_mut() {
                    hold.pending = None;
                }
            }
            // What it left pending is settled ahead of the next call. A release may have landed.
            Outcome::Unknown { .. } => return outcome,
        }
        self.publish(slot.as_ref());
        outcome
    }

    /// What became of a transaction that wrote `record` as `version` of the lease.
    async fn read_back(&self, live: &Live, ops: &[Op], record: &Lease, version: i32, why: String) -> Outcome {
        warn!(why, "no answer to a transaction on the lease: reading it back");
        let found = match live.read_back(&self.writer.tree.node(&Path::Lease)).await {
            Ok(found) => found,
            Err(_) => return Outcome::Unknown { why },
        };
        match found {
            Some((bytes, stat)) if stat.version == version && holds(&bytes, record) => {
                info!("the transaction on the lease has taken effect");
                done(ops)
            }
            // The version ahead of ours, or no node where ours creates it: nobody has written, neither have we.
            Some((_, stat)) if stat.version == version - 1 => Outcome::NotDone { why: format!("read back: {why}") },
            None if version == 0 => Outcome::NotDone { why: format!("read back: {why}") },
            // Another has written since, perhaps on top of ours.
            _ => Outcome::Unknown { why },
        }
    }

    /// Finds out what became of a pending attempt, where there is one.
    async fn settle(&self, live: &Live, slot: &mut Option<Hold>) -> Settled {
        let Some(hold) = slot.as_mut() else { return Settled::Ours };
        let Some(pending) = &hold.pending else { return Settled::Ours };
        let why = match live.read_back(&self.writer.tree.node(&Path::Lease)).await {
            Err(why) => return Settled::Unknown(why.to_string()),
            Ok(Some((bytes, stat))) if stat.version == hold.version + 1 && holds(&bytes, &pending.record) => {
                let ours = pending.record.name == self.name && !pending.record.released;
                hold.took_effect();
                if ours {
                    self.publish(slot.as_ref());
                    return Settled::Ours;
                }
                "our release of it has taken effect".to_owned()
            }
            // It has not taken effect, and it cannot do so any more: the session's calls are executed in their order,
            // and those sent through a member that the session has left are refused.
            Ok(Some((_, stat))) if stat.version == hold.version => {
                hold.pending = None;
                self.publish(slot.as_ref());
                return Settled::Ours;
            }
            Ok(found) => whose(found.as_ref().map(|(bytes, _)| bytes.as_slice())),
        };
        self.lose(slot, &why);
        Settled::Lost(why)
    }

    fn lose(&self, slot: &mut Option<Hold>, why: &str) {
        warn!(why, "our lease is lost");
        *slot = None;
        self.publish(None);
    }

    fn publish(&self, hold: Option<&Hold>) {
        let held = hold.map(Hold::held);
        // Fencing reads this one; it is never behind what the core sees.
        self.until.store(held.as_ref().map_or(0, |held| held.until.0), Ordering::Release);
        self.held.send_if_modified(|before| {
            let changed = *before != held;
            *before = held;
            changed
        });
    }
}

impl Attempt {
    fn until(&self) -> Moment {
        // Two clocks may differ by 2 % of the time they measure.
        self.sent + lease_length(Duration::from_millis(self.record.ttl_ms))
    }
}

/// P from the next renewal on. Until we have opened the holder before us may write on acknowledgements, and whoever
/// replaces our record must wait for those too.
fn proof_ms(last: &Lease, wanted: Option<Duration>) -> u64 {
    let Some(wanted) = wanted.map(|wanted| u64::try_from(wanted.as_millis()).unwrap_or(u64::MAX)) else {
        return last.proof_ms;
    };
    if last.opened { wanted } else { wanted.max(last.proof_ms) }
}

/// The lease with this pause and the length that goes with it.
fn with_pause(last: &Lease, pause: Option<&PauseTerm>, granted: Duration, now: Moment) -> Lease {
    let ms = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX).min(Lease::FOREVER_MS);
    let (ttl_ms, paused) = match (pause, &last.paused) {
        (Some(pause), _) => (ms(pause.until.until(now).max(granted)), Some(pause.operation.clone())),
        (None, Some(_)) => (ms(granted), None),
        (None, None) => (last.ttl_ms, None),
    };
    Lease { ttl_ms, paused, ..last.clone() }
}

impl Hold {
    fn held(&self) -> Held {
        let record = &self.last.record;
        // A shorter lease that was sent may be what the others count by already, whatever became of its answer.
        let until = self.pending.as_ref().map_or(self.last.until(), |pending| self.last.until().min(pending.until()));
        let smaller =
            self.pending.as_ref().map_or(record.proof_ms, |pending| record.proof_ms.min(pending.record.proof_ms));
        let proof = Duration::from_millis(smaller);
        Held { epoch: record.epoch, until, opened: record.opened, inherited: false, proof }
    }

    fn took_effect(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.last = pending;
            self.version += 1;
        }
    }
}

/// Who has the lease that is ours no more, in words; none: its node is gone.
fn whose(node: Option<&[u8]>) -> String {
    match node.map(decode::<Lease>) {
        Some(Ok(other)) => format!("{} holds it in epoch {}", other.name, other.epoch),
        Some(Err(why)) => format!("it was overwritten: {why}"),
        None => "its node was deleted".to_owned(),
    }
}

/// The lease that `ops` write.
fn lease_of(ops: &[Op]) -> Option<&Lease> {
    ops.iter().find_map(|op| match op {
        Op::Set(Path::Lease, Record::Lease(lease), _) | Op::Create(Path::Lease, Record::Lease(lease)) => Some(lease),
        _ => None,
    })
}

/// Puts the hold's version, the next sequence number and the moment of sending into the write of the lease in `ops`; the
/// record it writes, and the version that the node then has.
fn continued(ops: &mut [Op], hold: Option<&Hold>, sent: Sent) -> Option<(Lease, i32)> {
    ops.iter_mut().find_map(|op| match op {
        Op::Set(Path::Lease, Record::Lease(lease), version) => {
            if let Some(hold) = hold {
                *version = hold.version;
                lease.sequence = lease.sequence.max(hold.last.record.sequence + 1);
            }
            lease.sent = Some(sent.clone());
            Some((lease.clone(), *version + 1))
        }
        Op::Create(Path::Lease, Record::Lease(lease)) => {
            lease.sent = Some(sent.clone());
            Some((lease.clone(), 0))
        }
        _ => None,
    })
}

/// Whether the node's content is this very attempt.
fn holds(bytes: &[u8], attempt: &Lease) -> bool {
    decode::<Lease>(bytes).is_ok_and(|lease| lease == *attempt)
}

/// The outcome of `ops` that were read back as done.
fn done(ops: &[Op]) -> Outcome {
    let (mut created, mut versions) = (Vec::new(), Vec::new());
    for op in ops {
        match op {
            Op::Create(Path::NewLock | Path::NewIncident, _) | Op::Check(..) | Op::Delete(..) => {}
            Op::Create(path, _) => {
                created.push(path.clone());
                versions.push((path.clone(), 0));
            }
            Op::Set(path, _, version) => versions.push((path.clone(), version + 1)),
        }
    }
    Outcome::Done { created, versions }
}
