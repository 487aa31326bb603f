//! One rule is missing, and a promise is broken: the test for the rule, and for the model. `--nocapture` prints the way.

use crate::promises::{HEALS, NOTHING_LOST, ONE_WRITER};
use crate::rules::{Delay, Faults, Rule, Scope, Slow};
use crate::search::needs;
use crate::whole::NO_FAULTS;

fn switches() -> Scope {
    Scope { switches: true, kinds: NO_FAULTS, ..Scope::small() }
}

fn sync_changes() -> Scope {
    Scope { sync_changes: true, kinds: Faults { expiry: true, ..NO_FAULTS }, ..Scope::small() }
}

/// The lease ends, and nobody makes the server read-only.
#[test]
fn self_fence() {
    needs(Rule::SelfFence, ONE_WRITER, Scope::small());
}

/// The holder counts from the answer, the others from the landing.
#[test]
fn lease_counted_from_sending() {
    needs(Rule::LeaseFromSending, ONE_WRITER, Scope { delay: Delay::Answer, ..Scope::small() });
}

/// Holder and waiters count the same T on clocks of different rates.
#[test]
fn drift() {
    needs(Rule::Drift, ONE_WRITER, Scope::small());
}

#[test]
fn waiting_for_the_old_lease() {
    needs(Rule::WaitOldLease, ONE_WRITER, Scope::small());
}

/// One vote of S is taken for enough; the other member has acknowledged.
#[test]
fn quorum_of_votes() {
    needs(Rule::Quorum, NOTHING_LOST, Scope::small());
}

#[test]
fn received_not_executed() {
    needs(Rule::Received, NOTHING_LOST, Scope { relay: true, ..Scope::small() });
}

/// Two members claim from the same `topology`.
#[test]
fn one_claim_for_one_version() {
    needs(Rule::OneClaim, ONE_WRITER, Scope { faults: 0, delay: Delay::Only(Slow::Claims), ..Scope::small() });
}

#[test]
fn interleaving_01_a_dethroned_primary_renews() {
    needs(Rule::RenewOwnVersion, ONE_WRITER, Scope::small());
}

#[test]
fn interleaving_02_a_winner_that_never_opened_releases() {
    needs(Rule::ReleaseOpenedOnly, ONE_WRITER, Scope { epochs: 3, faults: 2, ..Scope::small() });
}

/// Row P3: the variable reads ON while commits still end.
#[test]
fn release_only_when_read_only_has_come() {
    needs(Rule::ReleaseProven, ONE_WRITER, switches());
}

/// A winner that opened, took a write and lost its lease before it removed its lock counts as the last writer with a
/// vote from before the write.
#[test]
fn interleaving_03_votes_of_an_earlier_version() {
    needs(Rule::VoteVersion, NOTHING_LOST, Scope { epochs: 3, faults: 0, ..Scope::small() });
}

#[test]
fn interleaving_03_unfreezing_with_a_vote_left() {
    needs(Rule::UnfreezeWithoutLock, NOTHING_LOST, Scope::small());
}

/// The member sends its vote; the primary renews after all and opens again (row P6, which does not write `topology`); the
/// member sees no lock of its own, follows and acknowledges; now the vote lands, under the version it was made for, and
/// counts without the write. Hence the vote's transaction has to check `topology` *and* `lease`.
#[test]
fn interleaving_03_a_vote_that_lands_after_the_primary_is_back() {
    needs(Rule::VoteChecksLease, NOTHING_LOST, Scope { faults: 0, delay: Delay::Only(Slow::Votes), ..Scope::small() });
}

#[test]
fn interleaving_04_a_vote_before_the_io_thread_has_stopped() {
    needs(Rule::FreezeIo, NOTHING_LOST, Scope::small());
}

#[test]
fn interleaving_04_replication_that_resumes_after_a_restart() {
    needs(Rule::FreezeSurvivesRestart, NOTHING_LOST, Scope { faults: 2, ..Scope::small() });
}

#[test]
fn interleaving_07_received_shrinks() {
    needs(Rule::RelaySurvives, NOTHING_LOST, Scope { faults: 2, relay: true, ..Scope::small() });
}

fn power() -> Scope {
    Scope { relay: true, kinds: Faults { power: true, ..NO_FAULTS }, ..Scope::small() }
}

/// It votes with what is left.
#[test]
fn interleaving_07_a_vote_from_another_life() {
    needs(Rule::KnownLife, NOTHING_LOST, power());
}

/// It is counted on again before it has what it had lost.
#[test]
fn interleaving_07_counted_on_again_too_early() {
    needs(Rule::CaughtUp, NOTHING_LOST, power());
}

#[test]
fn interleaving_13_the_last_writer_is_who_recorded_opened() {
    needs(Rule::OpenedIsLastWriter, NOTHING_LOST, Scope { epochs: 3, faults: 0, ..Scope::small() });
}

#[test]
fn interleaving_14_checked_paused_opened() {
    needs(Rule::OpenCarriesEnd, ONE_WRITER, Scope { faults: 2, ..Scope::small() });
}

#[test]
fn interleaving_19_undo_takes_master_first() {
    needs(Rule::UndoTakesMaster, ONE_WRITER, switches());
}

/// A claim that its sender has given up lands all the same: nobody else can claim while the node is there.
#[test]
fn interleaving_20_an_ambiguous_claim_lands_late() {
    let kinds = Faults { lost_answer: true, ..NO_FAULTS };
    needs(Rule::DropStray, HEALS, Scope { delay: Delay::Only(Slow::Claims), kinds, heals: true, ..Scope::small() });
}

#[test]
fn recorded_before_it_acknowledges() {
    needs(Rule::RecordBeforeEnabling, NOTHING_LOST, sync_changes());
}

/// Semi-sync is off, the connection made before goes on acknowledging (interleaving 6).
#[test]
fn interleaving_06_certain_before_it_is_removed() {
    needs(Rule::CertainBeforeRemoving, NOTHING_LOST, sync_changes());
}

/// What the removed member alone has acknowledged is on nobody in the new S.
#[test]
fn interleaving_05_a_floor_with_every_removal() {
    needs(Rule::FloorOnRemoval, NOTHING_LOST, sync_changes());
}

#[test]
fn interleaving_18_enabling_on_a_stale_read() {
    needs(Rule::IntentBeforeEnabling, NOTHING_LOST, sync_changes());
}

/// A member of the carried-over S that follows a winner acknowledges before the winner is named: the S that is recorded
/// then must not lose it.
#[test]
fn the_new_s_keeps_who_may_acknowledge_already() {
    needs(Rule::NewSetKeepsMembers, NOTHING_LOST, Scope { epochs: 3, ..sync_changes() });
}
