//! The decision table: asked from top to bottom, the first row that does not pass decides.
//!
//! The ids are stable: they stand in logs, in `agents/<name>` and in tests. A new row gets a new id.

use super::action::{Action, MysqlAction};
use super::case::Case;
use super::consent;
use super::failsafe;
use super::memory::Memory;
use super::observe;
use super::outcome::{Decision, Outcome};
use super::reason::Reason;
use super::records::{Mode, Role};
use super::rows::{
    adoption, durability, lead, operator, outage, primary, race, replica, safety, shut_out, switchover, terms,
};
use super::time::Moment;
use super::view::View;

/// A row: decides or passes.
pub struct Row {
    /// Stable.
    pub id: &'static str,
    /// When it decides and what, in one line.
    pub says: &'static str,
    decide: fn(&Case<'_>, &mut Memory) -> Option<Outcome>,
}

const fn row(id: &'static str, says: &'static str, decide: fn(&Case<'_>, &mut Memory) -> Option<Outcome>) -> Row {
    Row { id, says, decide }
}

/// All rows in their order.
pub static TABLE: &[Row] = &[
    row("S1", "a server that cannot be managed: leave, nothing changed", safety::unsupported),
    row("S2", "another server has our UUID: leave, nothing changed", safety::duplicate_uuid),
    row("S3", "a writable stranger in an existing cluster: leave, nothing changed", safety::foreign_writable),
    row("S4", "writable without a lease that holds: fence", safety::writable_without_lease),
    row("F11", "ZooKeeper just lost, and the primary does not answer: stop the IO thread early", outage::freeze_blind),
    row("S5", "ZooKeeper cannot be asked: decide nothing", safety::no_zookeeper),
    row("S6", "topology cannot be read: roles stay", safety::unreadable_topology),
    row("S7", "a master node of ours without a lease: remove it", safety::stray_master),
    row("A1", "not adopted, own server not seen yet: wait", adoption::not_seen_yet),
    row("A2", "not adopted, two writable servers: refuse", adoption::two_writable),
    row("A3", "not adopted, ours is writable: adopt, or say what is missing", adoption::adopt),
    row("A4", "not adopted, ours is read-only: wait", adoption::wait_for_adoption),
    row("P12", "primary on acknowledgements, ZooKeeper is back: master is made anew", outage::take_back),
    row("P1", "our dead predecessor's nodes: take the role over", primary::take_over),
    row("O1", "paused, our node master is gone: make it anew", operator::take_again),
    row("P2", "primary, mysqld has exited: release", primary::mysqld_exited),
    row("P3", "primary, mysqld silent: fence, then release", primary::mysqld_silent),
    row("O3", "primary, fenced by hand: fence, then release", operator::fenced_primary),
    row("W0", "a switch that is over: forget it", switchover::forget),
    row("W1", "a switch is asked for: refuse, wait for the target, or go on", switchover::consider),
    row("W2", "switch: become read-only", switchover::close),
    row("W3", "switch: read-only, release to the target", switchover::release),
    row("P4", "promoted: wait until the old lease cannot be in use", primary::wait_old_lease),
    row("P5", "read-only by hand cleared: name it again", primary::name_again),
    row("P6", "primary, read-only: open again, or respect the operator", primary::read_only_primary),
    row("P7", "promoted: open", primary::open),
    row("P8", "promoted and writable: publish", primary::publish),
    row("P9", "promoted and published: write history", primary::record_history),
    row("P10", "primary with a lock left: remove it", primary::drop_own_locks),
    row("D11", "primary: a member that was shut out is back: let it in", shut_out::let_in),
    row("D0", "primary: counts acknowledgements that came and that are missing", durability::count),
    row("D7", "primary: its file asks for async, or for lossless again", terms::change_mode),
    row("D8", "primary: its file asks for another number of acknowledgements", terms::change_k),
    row("D5", "primary: acknowledgements are missing: degrade, or stop waiting", durability::degrade),
    row("D6", "primary: commits wait, a replica acknowledges again: a marker", durability::mark),
    row("D1", "primary: commits do not wait as recorded: switch semi-sync on", durability::keep_waiting),
    row("D2", "primary: degraded, and enough acknowledge: restore", durability::restore),
    row("D3", "primary: a member of S that fails is to leave it", durability::retire),
    row("D4", "primary: a member certainly acknowledges nothing more: out of S", durability::remove),
    row("D12", "primary: a member of S was restarted and has caught up: counted on again", durability::count_anew),
    row("D9", "primary: by which accounts a member of S connects is recorded", shut_out::learn),
    row("D10", "primary: a member of S whose agent is gone is shut out: out of S", shut_out::shut_out),
    row("O4", "primary, a pause is over: remove it", operator::end_pause),
    row("P11", "primary: steady", primary::steady),
    row("O2", "no primary seen, its lease is paused: roles stay", operator::paused),
    row("R1", "no primary, session just back: settle", race::settle),
    row("R2", "no primary, one is still named: name nobody", race::name_nobody),
    row("R3", "planned switch names another: hold back", race::held_back),
    row("R4", "planned switch names us: catch up, claim", race::take_handover),
    row("R5", "planned switch past its deadline: take the role back", race::undo_handover),
    row("R6", "no primary, unfit: take no part", race::unfit),
    row("O6", "no primary, not to be promoted now, nobody leads: wait unfrozen", operator::not_told),
    row("O8", "to lead by hand past a paused lease: prove the old primary read-only", operator::prove_fenced),
    row("R15", "no primary, its server may still write: make it read-only over the network first", outage::close_first),
    row("R7", "no primary: stop the IO thread", race::freeze),
    row("R8", "no primary: vote", race::vote),
    row("R9", "no primary, another leads: wait, and apply what was received", race::another_leads),
    row("R10", "leads: wait for enough votes", lead::quorum),
    row("R11", "leads with a broken applier, out of time, or without what cannot be fetched: give way", lead::give_way),
    row("R12", "leads: apply what was received", lead::catch_up),
    row("R13", "leads: fetch what another has received more", lead::fetch),
    row("R14", "leads with everything: claim", lead::win),
    row("F1", "another is primary: withdraw our lock", replica::withdraw),
    row("F2", "replica, server does not answer: wait", replica::unhealthy),
    row("F10", "the primary neither renews nor answers: stop the IO thread early", outage::freeze_early),
    row("F3", "no member: say how to join", replica::stranger),
    row("F4", "replica with transactions of its own: stay out", replica::diverged),
    row("F5", "replica not replicating from the primary: re-point", replica::repoint),
    row("F9", "replica: acknowledges exactly while it is recorded", durability::acknowledge),
    row("F6", "replica with a stopped thread: say so", replica::broken),
    row("F7", "replica: steady", replica::following),
    row("F8", "roles are changing: wait", replica::between),
];

/// One step: what is to be done now, given what was observed.
pub fn step(memory: &mut Memory, view: &View, now: Moment) -> Decision {
    match view.own.mode {
        Mode::Observe => observe::step(memory, view, now),
        Mode::Automatic | Mode::Manual => decide(memory, view, now),
    }
}

/// The table, asked from top to bottom.
pub(super) fn decide(memory: &mut Memory, view: &View, now: Moment) -> Decision {
    let case = Case { view, now };
    consent::note_opened(&case, memory);
    let pause = consent::acknowledge(&case, memory);
    if let Some((facts, at)) = &view.server.facts {
        memory.growth.note(|| facts.received(), *at);
    }
    failsafe::note(&case, memory);
    let (row, outcome) = TABLE
        .iter()
        .find_map(|row| Some((row.id, (row.decide)(&case, memory)?)))
        .unwrap_or_else(|| ("none", Outcome::wait(Role::Unknown, Reason::Starting, "nothing decided")));
    failsafe::note_decided(&case, memory, &outcome);
    let closing = memory.switch.as_ref().is_some_and(|switch| switch.closing.is_some());
    // The keeper never takes `opened` back within a hold, so a decision from before the hold does no harm here.
    let waited = (matches!(row, "P6" | "P7") && outcome.reason == Reason::Opening)
        || view.held.as_ref().is_some_and(|held| held.opened);
    let decision = Decision {
        row,
        epoch: view.held.as_ref().map_or(0, |held| held.epoch),
        heartbeat_write: case.may_write() && case.writable() && !closing,
        want_opened: waited,
        may_acknowledge: durability::may(&case),
        pause,
        proof: case.connected().map(|_| failsafe::length(&case)),
        acknowledged_until: failsafe::until(&case),
        outcome,
    };
    assert_safe(&case, &decision);
    decision
}

/// The invariants of a decision, checked in release builds too: a fault here stops the agent, which fences.
fn assert_safe(case: &Case<'_>, decision: &Decision) {
    for action in &decision.outcome.actions {
        if let Action::Mysql(MysqlAction::Open { not_after, .. }) = action {
            let held = case.lease().expect("invariant: a server is opened under a lease that holds");
            assert!(
                held.opened && *not_after < held.until,
                "invariant: opened is recorded first, and the statement ends before the lease"
            );
        }
    }
    assert!(
        !decision.heartbeat_write || case.may_write(),
        "invariant: the heartbeat is written by a server that may take writes"
    );
}
