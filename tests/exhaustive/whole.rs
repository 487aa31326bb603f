//! All rules in force: within its bounds each search is complete, and no promise is broken.

use crate::promises::NOTHING_LOST;
use crate::rules::{Delay, Faults, Rule, Scope, Slow};
use crate::search::{bounds, holds};

/// No fault at all; a lease that nobody renews needs none.
pub(crate) const NO_FAULTS: Faults =
    Faults { crash: false, power: false, pause: false, expiry: false, lost_answer: false };

#[test]
fn crashes_and_expired_sessions_are_survived_and_heal() {
    holds(&bounds(Scope { heals: true, ..Scope::small() }, Scope { writes: 2, ..Scope::small() }));
}

#[test]
fn three_epochs() {
    let small = Scope { epochs: 3, faults: 0, ..Scope::small() };
    holds(&bounds(small.clone(), Scope { faults: 1, ..small }));
}

#[test]
fn two_acknowledgements() {
    holds(&Scope { k: 2, kinds: Faults { crash: true, ..NO_FAULTS }, ..Scope::small() });
}

#[test]
fn relay_logs_that_are_not_applied() {
    let small = Scope { relay: true, kinds: Faults { crash: true, ..NO_FAULTS }, ..Scope::small() };
    holds(&bounds(small.clone(), Scope { kinds: Faults { expiry: true, ..small.kinds }, ..small }));
}

/// Interleaving 7.
#[test]
fn relay_logs_that_are_lost_with_the_power() {
    let small = Scope { relay: true, kinds: Faults { power: true, ..NO_FAULTS }, ..Scope::small() };
    holds(&bounds(Scope { heals: true, ..small.clone() }, Scope { faults: 2, ..small }));
}

#[test]
fn hosts_that_stand_still_and_go_on() {
    holds(&Scope { kinds: Faults { pause: true, ..NO_FAULTS }, ..Scope::small() });
}

#[test]
fn planned_switches_and_their_end() {
    holds(&Scope { switches: true, heals: true, kinds: NO_FAULTS, ..Scope::small() });
}

#[test]
fn answers_that_come_late() {
    let small = Scope { delay: Delay::Answer, kinds: Faults { expiry: true, ..NO_FAULTS }, ..Scope::small() };
    holds(&bounds(small.clone(), Scope { kinds: Faults { crash: true, ..small.kinds }, ..small }));
}

/// Interleaving 20, and 3 for votes: a transaction that its sender has given up lands later.
#[test]
fn claims_that_land_late() {
    let kinds = Faults { lost_answer: true, ..NO_FAULTS };
    holds(&Scope { delay: Delay::Only(Slow::Claims), kinds, ..Scope::small() });
}

#[test]
fn votes_that_land_late() {
    holds(&Scope { delay: Delay::Only(Slow::Votes), faults: 0, ..Scope::small() });
}

#[test]
fn renewals_that_land_late() {
    let kinds = Faults { lost_answer: true, ..NO_FAULTS };
    let small = Scope { delay: Delay::Only(Slow::Renewals), kinds, faults: 0, ..Scope::small() };
    holds(&bounds(small.clone(), Scope { faults: 1, ..small }));
}

#[test]
fn members_that_leave_and_join_s() {
    let small = Scope { sync_changes: true, kinds: NO_FAULTS, ..Scope::small() };
    let full = Scope { delay: Delay::Only(Slow::Removals), ..small.clone() };
    holds(&bounds(small, full));
}

/// Agent and guard frozen while mysqld runs: two servers may then be writable, and still nothing acknowledged is lost, since the
/// old one gets no acknowledgement. Each promise rests on a rule of its own.
#[test]
fn without_any_fence_nothing_acknowledged_is_lost() {
    let unfenced = Scope { only: Some(NOTHING_LOST), ..Scope::small() }.without(Rule::SelfFence);
    let kinds = Faults { expiry: true, ..NO_FAULTS };
    holds(&bounds(Scope { kinds, ..unfenced.clone() }, unfenced));
}
