//! The failsafe's own rows: ZooKeeper is back, or only its primary has lost it ([`crate::core::failsafe`]).

use std::time::Duration;

use super::adoption::own_master;
use super::race::{enter, vacancy};
use super::replica;
use crate::core::action::{MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::consent;
use crate::core::failsafe;
use crate::core::memory::{Early, Memory};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{Lease, Role};
use crate::core::time::Moment;
use crate::core::view::{IoThread, Seen, Session};

/// ZooKeeper is back without our `master`, or with that of our last session: the primary of the present epoch that may still
/// write makes it anew. `topology` is rewritten, so that votes of a race that this ends are outdated (interleaving 3), and no other
/// claim made from the version before lands.
pub fn take_back(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    case.connected()?;
    case.member()?;
    let topology = case.topology()?;
    let lease = case.lease_node()?;
    let record = &lease.record;
    let ours = record.name == case.me()
        && record.epoch == topology.record.epoch
        && record.opened
        && !record.released
        && record.paused.is_none()
        && record.proof_ms > 0
        && case.last_writer() == Some(case.me());
    let old = case.predecessors_master();
    // With `master` there and a lease that holds nothing was lost but the session: P1, which leaves `topology` alone.
    let lost = case.view.ensemble.master.here().is_none() || (old.is_some() && !case.leased());
    if !ours || !lost || !case.may_write() || !case.writable() {
        return None;
    }
    let next = Lease {
        sequence: record.sequence + 1,
        proof_ms: failsafe::milliseconds(failsafe::length(case)),
        ..record.clone()
    };
    let mut ops = vec![Op::set_topology(changes::taken_back(&topology.record, case), topology.version)];
    ops.extend(old.map(|master| Op::Delete(Path::Master, master.version)));
    ops.push(Op::Create(Path::Master, Record::Master(own_master(case, topology.record.epoch)?)));
    ops.push(Op::Set(Path::Lease, Record::Lease(next), lease.version));
    let text = "ZooKeeper is back, nobody has taken the role over: makes its node master anew, the epoch stays";
    Some(Outcome::wait(Role::Primary, Reason::Failsafe, text).write(Purpose::TakeBack, ops).urgent())
}

/// What making the old primary read-only may cost before a freeze: as a rule it takes some 30 ms.
const CLOSE_FIRST: Duration = Duration::from_millis(600);

/// Nobody holds `master`, and its last holder may still be writing on our acknowledgements: its server is made read-only over the
/// network while it still gets them, so that commits in flight end. Once in a race, bounded, and only as long as we receive from it.
pub fn close_first(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let lease = case.lease_node().filter(|lease| !lease.record.released && lease.record.proof_ms > 0)?;
    let receives = case.facts()?.channel.as_ref().is_some_and(|channel| channel.io != IoThread::No);
    let old = case.last_writer().filter(|old| *old != case.me() && *old == lease.record.name)?;
    let member = case.topology()?.record.members.get(old)?;
    let race = enter(case, memory, cause)?;
    let asked = *race.closing.get_or_insert(case.now);
    let answered = case.view.server.came_of(MysqlKind::FenceRemote, asked).is_some();
    // Asked for until an answer is noted, or for as long as one may take.
    if !receives || answered || case.now >= asked + CLOSE_FIRST * 3 / 2 {
        return None;
    }
    let text = format!("no primary; {old} may still take writes: makes its server read-only over the network first");
    let fence = MysqlAction::FenceRemote {
        address: member.address.clone(),
        server_uuid: member.server_uuid.clone(),
        limit: CLOSE_FIRST,
        acknowledged: true,
    };
    Some(Outcome::wait(Role::Replica, cause, text).mysql(fence).urgent())
}

/// How long a host may take to accept or refuse a connection: a round trip on a network on which replication works.
const REACH: Duration = Duration::from_millis(300);
/// How often one that answers is looked at again.
const REACH_AGAIN: Duration = Duration::from_millis(500);

/// The lease has not been renewed for T − P, and the server of its holder does not answer: nothing is received from it until it is
/// renewed. This is no vote; it lets P pass while the session expires. A lost packet is not yet silence: what we receive must
/// have stopped growing too.
pub fn freeze_early(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    case.connected()?;
    early(case, memory)
}

/// The same while we have just lost ZooKeeper as well: the host that died ran the ensemble's leader, and electing another may take
/// all of T. Stopping to receive needs no session, and costs nothing where that host is dead.
///
/// But the whole ensemble may be lost and that host well, and the network between us may have gone for a moment: then its
/// commits need us, and no renewal will tell. So it takes more to begin: silence for longer, and two looks in a row that find
/// nobody. It begins only until the lease is over; later nothing is gained. And it ends as it began, without a session, as soon
/// as that host answers (`hears_again`).
pub fn freeze_blind(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let Session::Lost { .. } = case.view.ensemble.session else { return None };
    let ours = case.agent(case.me()).is_some_and(|agent| agent.instance == case.view.own.instance);
    let late = case.now >= case.lease_over_at() && memory.early.is_none_or(|early| !early.silent);
    if !ours || late || case.writable() || case.lease().is_some() {
        return None;
    }
    early(case, memory)
}

fn early(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let Some(lease) = unrenewed(case, memory) else {
        memory.early = None;
        return None;
    };
    let stopped = case.facts()?.channel.as_ref().is_none_or(|channel| channel.io == IoThread::No);
    // A renewal of before the silence that is seen only now, after a break, is no reason to begin anew.
    let known = memory.early.filter(|early| early.lease == lease.version || (early.silent && stopped));
    if stopped && known.is_none_or(|early| !early.silent) {
        return None; // not by us
    }
    let due = Early { lease: lease.version, asked: case.now, missed: 0, silent: false, blind: is_blind(case) };
    memory.early = Some(Early { lease: lease.version, ..known.unwrap_or(due) });
    let name = &lease.record.name;
    match looked(case, memory)? {
        Looked::Silent if !stopped => Some(frozen(name).mysql(MysqlAction::StopIo)),
        Looked::Silent => silent(case, memory, name),
        Looked::NotYet => Some(looks(name)),
        Looked::Rests => None,
        Looked::Again { missed } => {
            let early = memory.early.as_mut()?;
            (early.asked, early.missed) = (case.now, missed);
            reach(case, name, looks(name))
        }
        Looked::AsksStill => reach(case, name, looks(name)),
    }
}

/// Without a session there is nobody to say that the lease is renewed after all.
fn is_blind(case: &Case<'_>) -> bool {
    case.connected().is_none()
}

/// What the looks at the holder's host have shown.
enum Looked {
    /// It answers nobody, and nothing comes from it: found out now or earlier.
    Silent,
    /// Nobody answered; until it is certain that nothing comes any more.
    NotYet,
    /// It answers, or what we receive still grows: looked at again after a while.
    Rests,
    /// The next look is due, after so many in a row that have found nobody.
    Again {
        /// How many.
        missed: u32,
    },
    /// The present look has not come back, or was dropped.
    AsksStill,
}

fn looked(case: &Case<'_>, memory: &mut Memory) -> Option<Looked> {
    let grew = memory.growth.grew();
    let early = memory.early.as_mut()?;
    if early.silent {
        return Some(Looked::Silent);
    }
    let (silence, misses) = if is_blind(case) { (2, 2) } else { (1, 1) };
    let rests_until = |at: Moment, missed| {
        if case.now < at + REACH_AGAIN { Looked::Rests } else { Looked::Again { missed } }
    };
    let failed = match case.view.server.came_of(MysqlKind::Reach, early.asked) {
        None => return Some(Looked::AsksStill),
        Some(Ok(at)) => return Some(rests_until(at, 0)),
        Some(Err(failure)) => failure.at,
    };
    let lately = grew.is_some_and(|grew| case.now.since(grew) < case.view.own.heartbeat_interval * silence);
    if !lately && early.missed + 1 >= misses {
        (early.silent, early.blind) = (true, is_blind(case));
        return Some(Looked::Silent);
    }
    Some(match grew.is_some_and(|grew| grew > failed) {
        // It writes, so somebody is there, whatever became of our look.
        true => rests_until(failed, 0),
        false if early.missed + 1 < misses => Looked::Again { missed: early.missed + 1 },
        false => Looked::NotYet,
    })
}

/// Nothing is received any more. What began without a session, and is without one still, ends when that host answers again.
fn silent(case: &Case<'_>, memory: &mut Memory, name: &str) -> Option<Outcome> {
    let early = memory.early.as_mut()?;
    if !is_blind(case) || !early.blind {
        return Some(frozen(name));
    }
    match case.view.server.came_of(MysqlKind::Reach, early.asked) {
        Some(Ok(_)) => hears_again(case, memory),
        Some(Err(failure)) if case.now < failure.at + REACH_AGAIN => Some(frozen(name)),
        Some(Err(_)) => {
            early.asked = case.now;
            reach(case, name, frozen(name))
        }
        None => reach(case, name, frozen(name)),
    }
}

/// One more look at the host of this member.
fn reach(case: &Case<'_>, name: &str, outcome: Outcome) -> Option<Outcome> {
    let address = case.topology()?.record.members.get(name)?.address.clone();
    Some(outcome.mysql(MysqlAction::Reach { address, limit: REACH }))
}

fn looks(name: &str) -> Outcome {
    let text = format!("{name} does not renew its lease: looks whether its server answers");
    Outcome::wait(Role::Replica, Reason::Following, text).urgent()
}

fn frozen(name: &str) -> Outcome {
    let text = format!("{name} does not renew its lease and its server does not answer: receives nothing from it");
    Outcome::wait(Role::Replica, Reason::FrozenEarly, text).urgent()
}

/// It answers again, and ZooKeeper is still away: receives from it as before. Nobody counts on our having stopped: a vote needs a
/// session, and this began after the last one. Nor has S lost us meanwhile: a member leaves it by its own agent's word, which
/// needs one too, or is locked out, and then it connects to nobody. Whoever is elected without us has
/// votes of so many that we alone acknowledge nothing.
fn hears_again(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let primary = &case.others_master()?.record;
    memory.early = None;
    let text = format!("{} answers again: receives from it, ZooKeeper or not", primary.name);
    Some(replica::follow(case, memory, primary, Reason::Following, text))
}

/// The lease of the present primary, where it is about to be T − P old and this agent could vote.
fn unrenewed<'a>(case: &Case<'a>, memory: &Memory) -> Option<&'a Seen<Lease>> {
    case.member()?;
    let epoch = case.topology()?.record.epoch;
    let master = &case.others_master()?.record;
    let lease = case.lease_node()?;
    let record = &lease.record;
    let holds = record.name == master.name && record.epoch == epoch && master.epoch == epoch;
    if !holds || record.released || record.paused.is_some() || record.proof_ms == 0 || !case.healthy() {
        return None;
    }
    // Nobody freezes before somebody may lead (`consent`).
    if consent::barred(case, memory).is_some() {
        return None;
    }
    let old = Duration::from_millis(record.ttl_ms.saturating_sub(record.proof_ms)).saturating_sub(REACH);
    (case.now >= lease.first_seen + old).then_some(lease)
}
