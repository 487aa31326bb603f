//! Members leave and join S while the primary works (design section 2, "S always contains every server that can acknowledge",
//! interleavings 5 and 18).

use crate::ensemble::send;
use crate::race::vacancy;
use crate::role::{holds, in_sync};
use crate::rules::{Rule, Scope};
use crate::world::{Kind, Mode, Server, World, bit, servers};

/// The primary that may change S; none while it is not named or stands still.
fn recorder(scope: &Scope, world: &World) -> Option<Server> {
    let primary = world.tree.primary.filter(|primary| holds(world, *primary))?;
    let host = world.host(primary);
    (scope.sync_changes && host.up && host.mode == Mode::Writable && !host.frozen).then_some(primary)
}

/// S ∪ {member} is recorded. Landing late does no harm: a superset is safe.
pub(crate) fn add(scope: &Scope, world: &World, member: Server) -> Option<World> {
    let primary = recorder(scope, world)?;
    if member == primary || in_sync(world, member) {
        return None;
    }
    let mut next = world.clone();
    next.tree.sync |= bit(member);
    next.tree.known |= bit(member);
    next.topology_changed();
    Some(next)
}

/// A member that says that it acknowledges no more leaves S. The floor is the primary's executed set as it was when a
/// marker had been acknowledged: by another member, since this one is silent.
pub(crate) fn remove(scope: &Scope, world: &World, member: Server) -> Option<World> {
    let primary = recorder(scope, world)?;
    let host = world.host(primary);
    let silent = world.tree.intent & bit(member) == 0;
    let marked = |other: Server| {
        let replica = world.host(other);
        other != member
            && in_sync(world, other)
            && replica.semi
            && replica.source == Some(primary)
            && host.executed & !replica.received() == 0
    };
    let floor = scope.keeps(Rule::FloorOnRemoval);
    let others_left = world.tree.sync & !bit(member) != 0;
    let may = if floor { servers().any(marked) } else { others_left };
    if !silent || !may || !in_sync(world, member) || host.request.is_some() {
        return None;
    }
    let floor = if floor { host.executed } else { 0 };
    let mut next = world.clone();
    send(scope, &mut next, primary, Kind::Remove { member, floor });
    Some(next)
}

/// Replicates from the holder of `master`, which it has just read.
fn follows(scope: &Scope, world: &World, member: Server) -> bool {
    let host = world.host(member);
    scope.sync_changes && host.up && host.io && host.source == world.tree.master && !vacancy(scope, world, member)
}

/// Publishes its intent in `agents/<name>`.
pub(crate) fn intend(scope: &Scope, world: &World, member: Server) -> Option<World> {
    if !follows(scope, world, member) || world.host(member).semi || world.tree.intent & bit(member) != 0 {
        return None;
    }
    let mut next = world.clone();
    next.tree.intent |= bit(member);
    next.agent_changed(member);
    Some(next)
}

/// Then reads `topology` again: in S it may go on.
pub(crate) fn read_topology(scope: &Scope, world: &World, member: Server) -> Option<World> {
    let host = world.host(member);
    let intends = world.tree.intent & bit(member) != 0 || !scope.keeps(Rule::IntentBeforeEnabling);
    let recorded = in_sync(world, member) || !scope.keeps(Rule::RecordBeforeEnabling);
    if !follows(scope, world, member) || host.semi || host.enabling || !intends || !recorded {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(member).enabling = true;
    Some(next)
}

/// Switches its replica side on, on a new connection.
pub(crate) fn enable(_: &Scope, world: &World, member: Server) -> Option<World> {
    let host = world.host(member);
    if !host.enabling || !host.up || !host.io {
        return None;
    }
    let mut next = world.clone();
    let host = next.host_mut(member);
    (host.enabling, host.semi) = (false, true);
    Some(next)
}

/// Switches it off, restarts its IO thread and says so. What it has acknowledged is still on its way.
pub(crate) fn disable(scope: &Scope, world: &World, member: Server) -> Option<World> {
    let host = world.host(member);
    if !scope.sync_changes || !host.up || !host.io || !host.semi || world.tree.intent & bit(member) == 0 {
        return None;
    }
    let mut next = world.clone();
    // Without the certainty: the variable is off, the connection goes on acknowledging (tried on the real server).
    next.host_mut(member).semi = !scope.keeps(Rule::CertainBeforeRemoving);
    next.tree.intent &= !bit(member);
    next.agent_changed(member);
    Some(next)
}
