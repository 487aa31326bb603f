//! Time: the only thing that forces anybody to act.

use crate::rules::{Rule, Scope};
use crate::world::{Host, Mode, World};

/// A tick passes. Countdowns stop at zero and ages at their bound, so that a world in which nothing happens comes to rest.
///
/// Whatever an agent, its guard and its mysqld do, a server is read-only when its lease ends (`Fencer::run`, the guard): a
/// tick that ends a lease makes it so, except on a host that stands still. All clocks run at the worst rate that is
/// allowed: holders' at the slowest, which is what the drift in `timing::lease_length` pays for.
pub(crate) fn tick(scope: &Scope, world: &World) -> Option<World> {
    let mut next = world.clone();
    let tree = &mut next.tree;
    tree.lease.age = (tree.lease.age + 1).min(scope.lease);
    for lock in tree.locks.iter_mut().flatten() {
        lock.frozen_for = (lock.frozen_for + 1).min(scope.proof);
    }
    for host in &mut next.hosts {
        tick_host(scope, host);
    }
    (next != *world).then_some(next)
}

fn tick_host(scope: &Scope, host: &mut Host) {
    let thawing = host.thawing;
    if let Some(held) = &mut host.held {
        held.left = held.left.saturating_sub(1);
    }
    host.wait = host.wait.saturating_sub(1);
    host.wait_lease = host.wait_lease.saturating_sub(1);
    host.proof = host.proof.saturating_sub(1);
    host.frozen_for = host.frozen_for.map(|age| (age + 1).min(scope.proof));
    host.heartbeat = host.heartbeat.map(|(age, by)| ((age + 1).min(scope.proof), by));
    for request in host.request.iter_mut().chain(host.late.iter_mut()) {
        request.age = (request.age + 1).min(scope.lease);
    }
    let over = !may_write(host) && (thawing || scope.keeps(Rule::SelfFence));
    if host.mode != Mode::ReadOnly && over && !host.frozen {
        host.make_read_only();
    }
}

/// Until when a server may be writable: its lease's end, or that of its acknowledged heartbeat, whichever is later.
pub(crate) fn may_write(host: &Host) -> bool {
    host.proof > 0 || host.held.as_ref().is_some_and(|held| held.left > 0)
}

/// The holder's length of a lease: T, counted on the slowest clock (nominally T − drift).
pub(crate) fn lease_length(scope: &Scope) -> u8 {
    if scope.keeps(Rule::Drift) { scope.lease } else { scope.lease + 1 }
}
