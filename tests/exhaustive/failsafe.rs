//! The verdict on the failsafe (promise 7; design section 2, "ZooKeeper lost altogether: acknowledgements as a lease").
//!
//! **It passes, with the conditions below.** The idea stands: a heartbeat sent at t and acknowledged by k members of S proves that
//! those had not stopped their IO threads at t; a quorum has |S| − k + 1 votes of members that have, so one of those k is among
//! them, and it stopped after t. A primary that stays writable until t + P − drift is read-only before a winner opens that
//! waited P after its quorum was frozen. The search is complete for the bounds here (T = P = 2 ticks; T = 3, P = 2), and each
//! condition that could be left out of the model is left out in a test below, with what happens then.
//!
//! # The rule that passes
//!
//! *Primary.*
//! 1. It may write until `max(lease_until, t + P − drift(P))`, less `fencing.budget`; t is the moment *before* the commit of the last
//!    heartbeat that returned acknowledged was sent ([`a_heartbeat_counts_from_its_sending`]). Fencing task, guard and lease file
//!    hold that maximum. A heartbeat counts only where semi-sync was ON before and after it, with the recorded k (interleaving 9).
//! 2. The proof only *extends* a time in which it may write. Read-only, once come, is not undone by it: opening needs a lease (P6, P7),
//!    also after a restart of mysqld, whose proof is void. A new holder has none before its own first acknowledged heartbeat.
//! 3. It ends at once when it *sees* a later epoch in `topology`, or another's `master`. A vanished `master`, an expired session
//!    or a rejected renewal with the epoch unchanged do not end it: then it takes `master` back in one transaction: check
//!    `topology` at the version read (same epoch, itself the last writer by `Case::last_writer`) *and rewrite it*, `lease` at
//!    the version read, create `master`, set `lease`. Without the version two servers write
//!    ([`master_is_taken_back_on_the_version_of_topology`]). The rewriting is interleaving 3's rule for whatever creates `master`, so
//!    that votes of the race that it ends are outdated; it was not taken out on its own. No votes are needed and the epoch stays. An answer that does not come is read back like any write of the lease.
//! 4. On the proof alone it publishes nothing but that: no members, no name, no change of S or k. Without this rule a primary whose
//!    lease is over and the members that name nobody rewrite `topology` in turn for ever (the search found it: never whole again).
//! 5. In undegraded `lossless` only, and S not empty.
//!
//! *Member of S.*
//! 6. Goes on receiving and acknowledging as long as it cannot reach ZooKeeper, whatever becomes of the lease. It never freezes, starts
//!    its IO thread, enables semi-sync or follows without having just read the tree in a live session.
//! 7. Freezes when it sees a vacancy (R7), or early, when it sees `lease` unchanged for T − P in a live session while `master` is
//!    there. Early freezing is no vote, and costs nothing in safety. An early frozen member that sees the lease renewed follows again.
//! 8. Frozen means frozen across restarts of mysqld and agent ([`frozen_also_after_a_restart`]: an IO thread that comes up by
//!    itself after the vote acknowledges the next heartbeat, and the winner opens while the primary still has its proof).
//! 9. **The transaction that creates its lock checks the versions of `topology` and `lease` that it decided on.** Otherwise
//!    ([`a_vote_from_before_the_primary_was_back`]): the vote is sent and not landed; the primary renews after all and opens again
//!    (P6 does not write `topology`); the member sees no lock of its own, follows, acknowledges; the vote lands, current by its
//!    version; the proof it counts against is older than the heartbeat. This one is no matter of the failsafe alone: without
//!    it `lossless` loses a write too (`each_rule.rs`), and row R8 does not do it yet.
//! 10. It unfreezes only with its lock known to be gone ([`unfrozen_only_without_a_vote`]).
//!
//! *Winner.*
//! 11. Its quorum is of the *recorded* S at the version its claim checks, members only ([`the_quorum_meets_every_k_members`]). A member
//!     that acknowledges and is in S but gave no vote is met by the arithmetic; one that acknowledges and is not in S is not
//!     ([`only_members_of_the_recorded_s_acknowledge`]): the failsafe must not be in force before S is kept by the protocol of `sync_set.rs`.
//!     Until then S is all other members, which is a superset and does.
//! 12. It opens at `max(end of the old lease, moment its quorum was complete + P)` on its own clock ([`the_winner_waits_p`]). Where each
//!     vote says for how long its member had been frozen when it was sent (its own clock; begun anew at every freezing), the second
//!     term is `max over the counted members of S (vote first seen − frozen for) + P`: with early freezing it is not later than the
//!     first, and a failover takes no longer than without the failsafe.
//! 13. It need not wait P where `lease` is *released* or the last writer's own vote is counted: that server is read-only, and
//!     nobody else can have a proof. So a killed mysqld and a planned switch cost nothing.
//!     Nor where it has itself made the last writer's server read-only over the network, in a fence *begun after the old lease was over*
//!     ([`a_fence_over_the_network_counts_after_the_lease_alone`]): before, its agent may open it again, and go on with its old proof.
//! 14. A promotion by hand without a quorum (`--allow-data-loss`) has no such proof: it needs the old primary fenced, or says that it
//!     cannot exclude a second writer.
//!
//! # Arithmetic that has to be checked beside the inequality of the timing
//!
//! - A healthy primary must get its next proof in time: `heartbeat.interval + heartbeat.timeout + fencing.budget + drift(P) ≤ P`. With the
//!   defaults 1 + 1 + 1 + 0.06: **P = 2 s is too short**; one slow heartbeat would fence a primary that is well.
//! - A healthy primary must not find its replicas frozen: `renew_interval + 3 × op_timeout + drift(T) ≤ T − P` (early freezing only).
//!   With the defaults P ≤ 10 − 4.8 = 5.2 s.
//! - P ≤ T, for "ensemble and replicas gone: read-only within the session timeout"
//!   ([`without_ensemble_and_replicas_it_is_read_only_within_t`]).
//! - All agents must use the same P: record it beside T in `lease` (a `proof_ms`), and wait what the record says.
//!
//! The agents take `core::timing::proof_length`, which also lets the reading of the server before each heartbeat run to its limit (5 s at
//! the defaults); where no P fits, there is no failsafe, and `check` says so. The second line is theirs no more: a member freezes early only
//! where the primary's host answers nobody and nothing is received, so that a healthy one never finds its replicas frozen.
//!
//! # For life, not for safety
//!
//! When the ensemble returns, every session has expired and every member sees a vacancy: it holds back (R1) for longer than a primary
//! takes to be back, `renew_interval + 2 × op_timeout`, *before it freezes or names nobody*, for each freezing blocks the commits of a
//! primary that is well. R1's shortcut for a primary that fell silent early must look at replication (`Growth`), as it does.
//! A race that began before the outage and has frozen a quorum is not undone by it: the primary is read-only after P.

use crate::promises::ONE_WRITER;
use crate::role::holds as holds_role;
use crate::rules::{Delay, Faults, Rule, Scope, Slow};
use crate::search::{bounds, holds, needs};
use crate::step::{Step, What};
use crate::whole::NO_FAULTS;
use crate::world::{Mode, Server, World};

/// No client writes: who takes writes is what is asked.
fn failsafe() -> Scope {
    Scope { failsafe: true, writes: 0, kinds: Faults { expiry: true, ..NO_FAULTS }, ..Scope::small() }
}

/// One step that can happen.
fn then(scope: &Scope, world: &World, server: Server, what: What) -> World {
    scope.after(world, Step::Of(server, what)).unwrap_or_else(|| panic!("{what:?} is not possible in {world:?}"))
}

fn tick(scope: &Scope, world: &World) -> World {
    scope.after(world, Step::Tick).unwrap_or_else(|| world.clone())
}

/// The promise itself (contract, promise 7): nobody reaches ZooKeeper for as long as you like, the replicas go on acknowledging,
/// and no write fails; ZooKeeper is back without any session, and the roles are what they were.
#[test]
fn an_outage_of_zookeeper_is_none_of_mysql() {
    let scope = Scope { symmetry: false, writes: 1, faults: 1, ..failsafe() };
    let mut world = World::new(scope.lease, scope.faults);
    for _ in 0..60 {
        for (server, what) in [(0, What::HeartbeatSent), (1, What::HeartbeatReceived), (0, What::HeartbeatDone)] {
            world = then(&scope, &world, server, what);
        }
        world = tick(&scope, &world);
        assert_eq!(world.host(0).mode, Mode::Writable);
    }
    for (server, what) in [(0, What::Write), (1, What::Receive), (0, What::Acknowledged)] {
        world = then(&scope, &world, server, what);
    }
    world = then(&scope, &world, 0, What::Expire);
    assert_eq!(world.tree.master, None);
    world = then(&scope, &world, 0, What::TakeBack);
    assert_eq!((world.tree.master, world.tree.epoch, world.host(0).mode), (Some(0), 1, Mode::Writable));
    assert!(holds_role(&world, 0));
}

/// "Ensemble *and* replicas gone: read-only within the session timeout, always": P is not longer than T.
#[test]
fn without_ensemble_and_replicas_it_is_read_only_within_t() {
    let scope = Scope { symmetry: false, ..failsafe() };
    let mut world = World::new(scope.lease, scope.faults);
    for (server, what) in [(0, What::HeartbeatSent), (1, What::HeartbeatReceived), (0, What::HeartbeatDone)] {
        world = then(&scope, &world, server, what);
    }
    for _ in 0..scope.lease {
        world = tick(&scope, &world);
    }
    assert_eq!(world.host(0).mode, Mode::ReadOnly);
}

#[test]
fn one_writer_and_healing() {
    holds(&Scope { heals: true, ..failsafe() });
}

#[test]
fn one_writer_and_healing_with_early_freezing() {
    holds(&Scope { early_freeze: true, heals: true, ..failsafe() });
}

/// T = 3, P = 2: members freeze early at T − P = 1.
#[test]
fn early_freezing_within_a_longer_lease() {
    let longer = Scope { lease: 3, early_freeze: true, faults: 0, ..failsafe() };
    holds(&bounds(longer.clone(), Scope { faults: 1, ..longer }));
}

#[test]
fn nothing_acknowledged_is_lost() {
    let writes = Scope { writes: 1, faults: 0, early_freeze: true, ..failsafe() };
    holds(&bounds(writes.clone(), Scope { faults: 1, ..writes }));
}

#[test]
fn servers_that_crash_and_restart() {
    holds(&Scope { early_freeze: true, kinds: Faults { crash: true, ..NO_FAULTS }, ..failsafe() });
}

#[test]
fn hosts_that_stand_still() {
    holds(&Scope { early_freeze: true, kinds: Faults { pause: true, ..NO_FAULTS }, ..failsafe() });
}

#[test]
fn two_acknowledgements() {
    holds(&Scope { k: 2, early_freeze: true, ..failsafe() });
}

#[test]
fn votes_that_land_late() {
    holds(&Scope { faults: 0, delay: Delay::Only(Slow::Votes), ..failsafe() });
}

#[test]
fn master_taken_back_late() {
    holds(&Scope { delay: Delay::Only(Slow::TakeBacks), ..failsafe() });
}

#[test]
fn members_that_leave_and_join_s() {
    holds(&Scope { sync_changes: true, faults: 0, ..failsafe() });
}

#[test]
fn the_winner_waits_p() {
    needs(Rule::WaitProof, ONE_WRITER, failsafe());
}

#[test]
fn a_fence_over_the_network_counts_after_the_lease_alone() {
    needs(Rule::FenceAfterLease, ONE_WRITER, failsafe());
}

#[test]
fn a_heartbeat_counts_from_its_sending() {
    needs(Rule::ProofFromSending, ONE_WRITER, failsafe());
}

#[test]
fn master_is_taken_back_on_the_version_of_topology() {
    needs(Rule::TakeBackVersion, ONE_WRITER, Scope { delay: Delay::Only(Slow::TakeBacks), ..failsafe() });
}

/// A member outside the quorum acknowledges the heartbeats.
#[test]
fn the_quorum_meets_every_k_members() {
    needs(Rule::Quorum, ONE_WRITER, Scope { faults: 0, ..failsafe() });
}

#[test]
fn votes_of_frozen_members_only() {
    needs(Rule::FreezeIo, ONE_WRITER, Scope { faults: 0, ..failsafe() });
}

#[test]
fn frozen_also_after_a_restart() {
    needs(Rule::FreezeSurvivesRestart, ONE_WRITER, Scope { kinds: Faults { crash: true, ..NO_FAULTS }, ..failsafe() });
}

#[test]
fn unfrozen_only_without_a_vote() {
    needs(Rule::UnfreezeWithoutLock, ONE_WRITER, Scope { faults: 0, ..failsafe() });
}

#[test]
fn a_vote_from_before_the_primary_was_back() {
    needs(Rule::VoteChecksLease, ONE_WRITER, Scope { faults: 0, delay: Delay::Only(Slow::Votes), ..failsafe() });
}

/// A member that is not in the recorded S acknowledges the heartbeats.
#[test]
fn only_members_of_the_recorded_s_acknowledge() {
    needs(Rule::RecordBeforeEnabling, ONE_WRITER, Scope { sync_changes: true, ..failsafe() });
}
