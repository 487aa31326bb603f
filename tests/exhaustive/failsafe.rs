//! Tests of the failsafe.

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
