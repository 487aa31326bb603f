//! The protocol of design section 2, searched exhaustively.

#[path = "exhaustive/ensemble.rs"]
mod ensemble;
#[path = "exhaustive/faults.rs"]
mod faults;
#[path = "exhaustive/mysql.rs"]
mod mysql;
#[path = "exhaustive/promises.rs"]
mod promises;
#[path = "exhaustive/proof.rs"]
mod proof;
#[path = "exhaustive/race.rs"]
mod race;
#[path = "exhaustive/role.rs"]
mod role;
#[path = "exhaustive/rules.rs"]
mod rules;
#[path = "exhaustive/search.rs"]
mod search;
#[path = "exhaustive/step.rs"]
mod step;
#[path = "exhaustive/symmetry.rs"]
mod symmetry;
#[path = "exhaustive/sync_set.rs"]
mod sync_set;
#[path = "exhaustive/time.rs"]
mod time;
#[path = "exhaustive/world.rs"]
mod world;

use promises::{NOTHING_LOST, ONE_WRITER};
use rules::{Delay, Faults, Rule, Scope, Slow};
use search::{holds, needs};

const NONE: Faults = Faults { crash: false, pause: false, expiry: false, lost_answer: false };

#[test]
fn small() {
    holds(&Scope { heals: true, ..Scope::small() });
}

#[test]
fn two_writes() {
    holds(&Scope { writes: 2, ..Scope::small() });
}

#[test]
fn two_faults() {
    holds(&Scope { faults: 2, ..Scope::small() });
}

#[test]
fn three_epochs() {
    holds(&Scope { epochs: 3, ..Scope::small() });
}

#[test]
fn slow_answers() {
    holds(&Scope { delay: Delay::Answer, ..Scope::small() });
}

#[test]
fn slow_requests() {
    holds(&Scope { delay: Delay::Both, ..Scope::small() });
}

#[test]
fn pauses() {
    holds(&Scope { kinds: Faults { pause: true, ..NONE }, ..Scope::small() });
}

fn switches() -> Scope {
    Scope { switches: true, kinds: NONE, ..Scope::small() }
}

#[test]
fn switch() {
    holds(&Scope { heals: true, ..switches() });
}

#[test]
fn r_self_fence() {
    needs(Rule::SelfFence, ONE_WRITER, Scope::small());
}
#[test]
fn r_sending() {
    needs(Rule::LeaseFromSending, ONE_WRITER, Scope { delay: Delay::Answer, ..Scope::small() });
}
#[test]
fn r_drift() {
    needs(Rule::Drift, ONE_WRITER, Scope::small());
}
#[test]
fn r_wait() {
    needs(Rule::WaitOldLease, ONE_WRITER, Scope::small());
}
#[test]
fn r_quorum() {
    needs(Rule::Quorum, NOTHING_LOST, Scope::small());
}
#[test]
fn r_received() {
    needs(Rule::Received, NOTHING_LOST, Scope { relay: true, ..Scope::small() });
}
#[test]
fn r_one_claim() {
    needs(Rule::OneClaim, ONE_WRITER, Scope { faults: 0, delay: Delay::Only(Slow::Claims), ..Scope::small() });
}
#[test]
fn r_renew() {
    needs(Rule::RenewOwnVersion, ONE_WRITER, Scope::small());
}
#[test]
fn r_release_opened() {
    needs(Rule::ReleaseOpenedOnly, ONE_WRITER, Scope { epochs: 3, faults: 2, ..Scope::small() });
}
#[test]
fn r_release_proven() {
    needs(Rule::ReleaseProven, ONE_WRITER, switches());
}
#[test]
fn r_freeze() {
    needs(Rule::FreezeIo, NOTHING_LOST, Scope::small());
}
#[test]
fn r_freeze_restart() {
    needs(Rule::FreezeSurvivesRestart, NOTHING_LOST, Scope { faults: 2, ..Scope::small() });
}
#[test]
fn r_relay() {
    needs(Rule::RelaySurvives, NOTHING_LOST, Scope { faults: 2, relay: true, ..Scope::small() });
}
#[test]
fn r_opened_last() {
    needs(Rule::OpenedIsLastWriter, NOTHING_LOST, Scope { epochs: 3, faults: 0, ..Scope::small() });
}
#[test]
fn r_open_end() {
    needs(Rule::OpenCarriesEnd, ONE_WRITER, Scope { epochs: 3, faults: 2, ..Scope::small() });
}
#[test]
fn r_undo() {
    needs(Rule::UndoTakesMaster, ONE_WRITER, switches());
}
#[test]
fn r_vote_version() {
    needs(Rule::VoteVersion, NOTHING_LOST, Scope { epochs: 3, faults: 0, ..Scope::small() });
}
#[test]
fn r_unfreeze() {
    needs(Rule::UnfreezeWithoutLock, NOTHING_LOST, Scope::small());
}
#[test]
fn r_vote_lease() {
    needs(Rule::VoteChecksLease, NOTHING_LOST, Scope { faults: 0, delay: Delay::Only(Slow::Votes), ..Scope::small() });
}

fn failsafe() -> Scope {
    Scope { failsafe: true, proof: 2, kinds: Faults { expiry: true, ..NONE }, ..Scope::small() }
}
#[test]
fn fs_plain() {
    holds(&Scope { heals: true, ..failsafe() });
}
#[test]
fn fs_early() {
    holds(&Scope { early_freeze: true, heals: true, ..failsafe() });
}
#[test]
fn fs_longer() {
    holds(&Scope { early_freeze: true, lease: 3, proof: 2, ..failsafe() });
}
#[test]
fn fs_crash() {
    holds(&Scope { early_freeze: true, kinds: Faults { crash: true, ..NONE }, ..failsafe() });
}
#[test]
fn fs_pause() {
    holds(&Scope { early_freeze: true, kinds: Faults { pause: true, ..NONE }, ..failsafe() });
}
#[test]
fn fsr_wait() {
    needs(Rule::WaitProof, ONE_WRITER, failsafe());
}
#[test]
fn fsr_sending() {
    needs(Rule::ProofFromSending, ONE_WRITER, failsafe());
}
#[test]
fn fsr_back() {
    needs(Rule::TakeBackVersion, ONE_WRITER, Scope { writes: 0, delay: Delay::Only(Slow::TakeBacks), ..failsafe() });
}
#[test]
fn fsr_unfreeze() {
    needs(Rule::UnfreezeWithoutLock, NOTHING_LOST, failsafe());
}
#[test]
fn fsr_vote_lease() {
    needs(Rule::VoteChecksLease, ONE_WRITER, Scope { writes: 0, faults: 0, delay: Delay::Only(Slow::Votes), ..failsafe() });
}
#[test]
fn fsr_restart() {
    needs(Rule::FreezeSurvivesRestart, NOTHING_LOST, Scope { kinds: Faults { crash: true, ..NONE }, ..failsafe() });
}

fn sync_set() -> Scope {
    Scope { sync_changes: true, kinds: Faults { expiry: true, ..NONE }, ..Scope::small() }
}
#[test]
fn ss_plain() {
    holds(&sync_set());
}
#[test]
fn ss_slow() {
    holds(&Scope { delay: Delay::Both, faults: 0, ..sync_set() });
}
#[test]
fn ssr_record() {
    needs(Rule::RecordBeforeEnabling, NOTHING_LOST, sync_set());
}
#[test]
fn ssr_certain() {
    needs(Rule::CertainBeforeRemoving, NOTHING_LOST, sync_set());
}
#[test]
fn ssr_floor() {
    needs(Rule::FloorOnRemoval, NOTHING_LOST, sync_set());
}
#[test]
fn ssr_intent() {
    needs(Rule::IntentBeforeEnabling, NOTHING_LOST, sync_set());
}
#[test]
fn ssr_new_set() {
    needs(Rule::NewSetKeepsMembers, NOTHING_LOST, Scope { epochs: 3, ..sync_set() });
}

#[test]
fn fq_one_writer() {
    holds(&Scope { writes: 0, heals: true, ..failsafe() });
}
#[test]
fn fq_one_writer_early() {
    holds(&Scope { writes: 0, early_freeze: true, heals: true, ..failsafe() });
}
#[test]
fn fq_loss() {
    holds(&Scope { faults: 0, early_freeze: true, ..failsafe() });
}
#[test]
fn fq_crash() {
    holds(&Scope { writes: 0, kinds: Faults { crash: true, ..NONE }, early_freeze: true, ..failsafe() });
}
#[test]
fn fq_pause() {
    holds(&Scope { writes: 0, kinds: Faults { pause: true, ..NONE }, early_freeze: true, ..failsafe() });
}
#[test]
fn fq_votes() {
    holds(&Scope { writes: 0, faults: 0, delay: Delay::Only(Slow::Votes), early_freeze: true, ..failsafe() });
}
#[test]
fn fq_backs() {
    holds(&Scope { writes: 0, delay: Delay::Only(Slow::TakeBacks), ..failsafe() });
}
#[test]
fn fq_longer() {
    holds(&Scope { writes: 0, lease: 3, early_freeze: true, ..failsafe() });
}

#[test]
fn n_unfenced() {
    holds(&Scope { only: Some(NOTHING_LOST), ..Scope::small().without(Rule::SelfFence) });
}
#[test]
fn n_k2() {
    holds(&Scope { k: 2, ..Scope::small() });
}
#[test]
fn n_relay() {
    holds(&Scope { relay: true, ..Scope::small() });
}
#[test]
fn n_late_claims() {
    holds(&Scope { delay: Delay::Only(Slow::Claims), kinds: Faults { lost_answer: true, ..NONE }, ..Scope::small() });
}
#[test]
fn n_late_renewals() {
    holds(&Scope { delay: Delay::Only(Slow::Renewals), kinds: Faults { lost_answer: true, ..NONE }, ..Scope::small() });
}
#[test]
fn n_late_votes() {
    holds(&Scope { delay: Delay::Only(Slow::Votes), faults: 0, ..Scope::small() });
}
#[test]
fn n_epochs() {
    holds(&Scope { epochs: 3, faults: 0, ..Scope::small() });
}
#[test]
fn s_plain() {
    holds(&Scope { faults: 0, ..sync_set() });
}
#[test]
fn s_removals() {
    holds(&Scope { faults: 0, delay: Delay::Only(Slow::Removals), ..sync_set() });
}
#[test]
fn s_two() {
    holds(&Scope { faults: 0, writes: 2, ..sync_set() });
}
