//! We lead the race: from having enough votes to the transaction that claims `master` (rows R10 to R14; design section 2,
//! "Race").

use std::time::Duration;

use super::adoption::{own_master, write_lease};
use super::operator;
use super::primary::claim_lease;
use super::race::{SLICE, counted, enter, is_candidate, vacancy};
use crate::core::action::{Action, MysqlAction, MysqlKind, Op, Path, Purpose, Record};
use crate::core::case::Case;
use crate::core::changes;
use crate::core::consent;
use crate::core::election::{self, Lock};
use crate::core::failsafe;
use crate::core::memory::{Claim, Memory, Race};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{DurabilityMode, Role};
use crate::core::time::Moment;

/// How long the leader waits for votes it does not need for safety, so that the most advanced is known.
const VOTE_PATIENCE: Duration = Duration::from_millis(500);

/// We lead: are the votes enough, and is anything missing that was acknowledged?
pub fn quorum(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let race = enter(case, memory, cause)?;
    let (counted, topology) = counted(case)?;
    let durability = &case.counted_by()?;
    let forced = consent::told(case).is_some_and(|request| request.record.force);
    let missing = election::quorum_missing(&counted, durability, case.last_writer());
    if let Some(missing) = missing.filter(|_| !forced) {
        return Some(
            Outcome::wait(Role::Replica, Reason::NoQuorum, format!("leads the race, waits for votes: {missing}"))
                .urgent(),
        );
    }
    let voted = |name: &str| counted.iter().any(|(_, lock)| lock.record.name == name);
    let silent = case.others().find(|agent| !voted(&agent.name) && is_candidate(&topology.record, agent));
    if let Some(agent) = silent
        && case.now < race.noticed + VOTE_PATIENCE
    {
        let text = format!("leads the race, gives {} a moment to vote", agent.name);
        return Some(Outcome::wait(Role::Replica, Reason::Racing, text).urgent());
    }
    if durability.mode == DurabilityMode::Lossless && !forced {
        let lacking = changes::acknowledged(&topology.record, case)
            .subtract(&election::received(&counted))
            .subtract(&case.facts()?.received());
        if !lacking.is_empty() {
            let text = format!(
                "no candidate has received {lacking}, which the last primary had acknowledged: nobody is promoted"
            );
            return Some(Outcome::wait(Role::Replica, Reason::BehindWatermark, text).urgent());
        }
    }
    race.led.get_or_insert(case.now);
    race.received = case.facts()?.received();
    too_far_behind(case, race, &counted, durability.mode)
}

/// `async`: an older replica is not promoted automatically. Lag that is unknown is not zero.
///
/// What the others have more is fetched and applied first (rows R12, R13): a leader that stayed behind while the last
/// writer, back with everything, had a higher lock would be waited for for ever (found by simulation).
fn too_far_behind(case: &Case<'_>, race: &Race, counted: &[Lock<'_>], mode: DurabilityMode) -> Option<Outcome> {
    if mode == DurabilityMode::Lossless || consent::told(case).is_some() {
        return None;
    }
    let all_here = race.received.contains(&election::received(counted));
    if !all_here || !case.facts()?.executed.contains(&race.received) {
        return None;
    }
    let own = &case.view.own;
    // Published not longer ago than a renewal: who has all of it is not behind, whatever the heartbeat's age says.
    let watermark = case.lease_node().map(|lease| &lease.record.watermark)?;
    if !watermark.is_empty() && race.received.contains(watermark) {
        return None;
    }
    let age = case
        .facts()?
        .heartbeat_age
        .map(|age| age.saturating_sub(case.facts_at().unwrap_or(case.now).since(race.noticed)));
    match age {
        Some(age) if age <= own.max_lag => None,
        _ if counted.iter().any(|(_, lock)| Some(lock.record.name.as_str()) == case.last_writer()) => None,
        age => {
            let lag =
                age.map_or_else(|| "of unknown length".to_owned(), |age| format!("of {:.0} s", age.as_secs_f64()));
            let text = format!(
                "leads the race with a lag {lag}, more than failover.max_lag ({:.0} s): not promoted",
                own.max_lag.as_secs_f64()
            );
            Some(Outcome::wait(Role::Replica, Reason::TooFarBehind, text).urgent())
        }
    }
}

/// A broken applier cannot catch up: another candidate goes on (once; if all are broken, waiting helps nobody).
pub fn give_way(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let race = enter(case, memory, cause)?;
    let facts = case.facts()?;
    let (counted, _) = counted(case)?;
    if facts.executed.contains(&facts.received()) {
        return cannot_fetch(case, race, &counted);
    }
    let channel = facts.channel.as_ref()?;
    let broken = !channel.sql_running && !channel.sql_error.is_empty();
    let spent = race.led.is_some_and(|led| case.now.since(led) > case.view.own.catch_up_timeout);
    if !broken && !spent {
        return None;
    }
    let another = counted.iter().any(|(_, lock)| lock.record.name != case.me() && lock.record.priority > 0);
    let (reason, why) = if broken {
        (Reason::ApplierBroken, format!("its applier has stopped: {}", channel.sql_error))
    } else {
        (Reason::CatchingUp, "it did not catch up within failover.catch_up_timeout".to_owned())
    };
    if another && !race.requeued {
        race.requeued = true;
        return Some(to_the_end(case, race, reason, &why));
    }
    // Out of time with nobody better: it goes on without a limit and says so. A broken applier cannot.
    broken.then(|| Outcome::wait(Role::Replica, reason, format!("{why}; no other candidate can take over")).urgent())
}

/// What another has received more cannot be had from it: as a rule its binary logs of that time are gone, since it was cloned or has
/// purged them, and trying again helps nobody (found by chaos on real servers: a replica whose clone had failed half way led with
/// nothing at all, and for ever). Who has everything itself takes over: each such step brings it nearer to the head of the queue.
/// Where nobody has everything the others may try, once; then fetching goes on.
fn cannot_fetch(case: &Case<'_>, race: &mut Race, counted: &[Lock<'_>]) -> Option<Outcome> {
    let all = election::received(counted);
    if case.facts()?.received().contains(&all) {
        return None;
    }
    let failure = case.view.server.came_of(MysqlKind::Fetch, race.led?)?.err()?;
    let mut others = counted.iter().filter(|(_, lock)| lock.record.name != case.me() && lock.record.priority > 0);
    let whole = others.clone().any(|(_, lock)| lock.record.received.contains(&all));
    if !whole && (race.requeued || others.next().is_none()) {
        return None;
    }
    race.requeued |= !whole;
    let why = format!("what another has received more cannot be fetched: {}", failure.why);
    Some(to_the_end(case, race, Reason::Fetching, &why))
}

/// Withdraws; the next vote of this server comes after all others.
fn to_the_end(case: &Case<'_>, race: &mut Race, reason: Reason, why: &str) -> Outcome {
    race.led = None;
    let ops = case.own_locks().map(|(sequence, lock)| Op::Delete(Path::Lock(sequence), lock.version)).collect();
    let text = format!("{why}: goes to the end of the queue");
    Outcome::wait(Role::Replica, reason, text).write(Purpose::Withdraw, ops).urgent()
}

/// Applies what it has received: also before anything is fetched, since re-pointing must not put relay logs at risk.
pub fn catch_up(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    enter(case, memory, cause)?;
    let facts = case.facts()?;
    let received = facts.received();
    if facts.executed.contains(&received) {
        return None;
    }
    let text =
        format!("applies what it has received ({} transactions left)", received.subtract(&facts.executed).count());
    let outcome = Outcome::wait(Role::Replica, Reason::CatchingUp, text).urgent();
    Some(if facts.channel.as_ref().is_some_and(|channel| !channel.sql_running) {
        outcome.mysql(MysqlAction::StartApplier)
    } else {
        outcome.mysql(MysqlAction::WaitApplied { set: received, limit: SLICE })
    })
}

/// Fetches what another candidate has received more, so that the lowest lock promotes its own replica with nothing missing.
pub fn fetch(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    enter(case, memory, cause)?;
    let (counted, topology) = counted(case)?;
    let missing = election::received(&counted).subtract(&case.facts()?.received());
    if missing.is_empty() {
        return None;
    }
    // What is executed after the claim is in nobody's floor: fetched while the claim was on its way, it passed later for
    // transactions of every server's own (found by simulation). After this time its outcome is known, or the view is not complete.
    let claimed = enter(case, memory, cause)?.claim;
    if claimed.is_some_and(|claim| case.now < claim.at + case.view.own.op_timeout) {
        let text = format!("{} transactions are to be fetched; a claim is on its way", missing.count());
        return Some(Outcome::wait(Role::Replica, Reason::Fetching, text).urgent());
    }
    enter(case, memory, cause)?.fetching = Some(case.now);
    let (_, lock) = election::best_source(&counted, case.me(), &missing)?;
    let source = topology.record.members.get(&lock.record.name)?;
    let text = format!("fetches {} transactions from {}", missing.count(), lock.record.name);
    let fetch =
        MysqlAction::Fetch { from: source.address.clone(), set: lock.record.received.clone(), limit: SLICE * 4 };
    Some(Outcome::wait(Role::Replica, Reason::Fetching, text).mysql(fetch).urgent())
}

/// Nothing is missing: claim.
pub fn win(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let cause = vacancy(case, memory)?;
    let race = enter(case, memory, cause)?;
    let cause = race.cause;
    if race.fetching.is_some_and(|asked| may_still_fetch(case, asked)) {
        let text = "has everything; what was to be fetched before may still come";
        return Some(Outcome::wait(Role::Replica, Reason::Fetching, text).urgent());
    }
    let (counted, topology) = counted(case)?;
    let Some((reason, answer)) = operator::carried_out(case) else { return claim(case, memory, cause, &counted) };
    let mut outcome = claim(case, memory, reason, &counted)?;
    for action in &mut outcome.actions {
        if let Action::Write(write) = action {
            write.ops.push(answer.clone());
            if reason == Reason::Forced {
                changes::mark_forced(&mut write.ops, topology.record.epoch + 1);
            }
        }
    }
    Some(outcome)
}

/// A fetch that was asked for may still be under way, though nothing is missing any more: whose vote promised more may be gone. What
/// it brings after the claim is in nobody's floor and passed later for transactions of every server's own (found by simulation). The
/// lane does one thing at a time, so whatever has come back since tells that it is free of it.
fn may_still_fetch(case: &Case<'_>, asked: Moment) -> bool {
    let server = &case.view.server;
    let done = server.done.map(|(_, at)| at).max(server.failure.as_ref().map(|failure| failure.at));
    let read_since = done.filter(|at| *at >= asked).is_some_and(|at| case.facts_at() >= Some(at));
    !read_since && case.now < asked + SLICE * 6
}

/// The one transaction that makes us the holder: every counted lock as it was counted, `topology` and `lease` at the
/// versions seen, an outlived `master` removed (interleavings 1 and 3).
pub(super) fn claim(case: &Case<'_>, memory: &mut Memory, cause: Reason, counted: &[Lock<'_>]) -> Option<Outcome> {
    let topology = case.topology()?;
    let next = changes::claimed(&topology.record, case, cause);
    let epoch = next.epoch;
    // Forced past a paused lease: there is no end to wait for, and whoever forced it was told so.
    let (lease_over, wait_until) = match consent::paused_lease(case) {
        true => (case.now, case.now),
        false => (case.lease_over_at(), case.lease_over_at().max(failsafe::over_at(case, counted))),
    };
    let race = enter(case, memory, cause)?;
    race.expected = changes::expected(&topology.record, case);
    race.caught_up.get_or_insert(case.now);
    let claim = later(race.claim, Claim { at: case.now, wait_until, lease_over });
    race.claim = Some(claim);
    let mut ops: Vec<Op> =
        counted.iter().map(|(sequence, lock)| Op::Check(Path::Lock(*sequence), lock.version)).collect();
    ops.push(Op::set_topology(next, topology.version));
    if let Some(old) = case.view.ensemble.master.here() {
        ops.push(Op::Delete(Path::Master, old.version));
    }
    ops.push(Op::Create(Path::Master, Record::Master(own_master(case, epoch)?)));
    ops.push(write_lease(case, claim_lease(case, epoch, claim.wait_until)?));
    let text = format!("has everything that was received: claims epoch {epoch}");
    Some(Outcome::wait(Role::Replica, cause, text).write(Purpose::Claim, ops).urgent())
}

/// The wait of a later attempt, unless an earlier one whose answer never came had to wait longer.
fn later(earlier: Option<Claim>, claim: Claim) -> Claim {
    let Some(earlier) = earlier else { return claim };
    Claim {
        wait_until: claim.wait_until.max(earlier.wait_until),
        lease_over: claim.lease_over.max(earlier.lease_over),
        ..claim
    }
}
