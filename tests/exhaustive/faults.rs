//! Faults. How many a run may have, and which, is the scope's.

use crate::rules::Scope;
use crate::time;
use crate::world::{Server, World, bit};

fn one_more(world: &World, allowed: bool) -> Option<World> {
    (allowed && world.faults > 0).then(|| {
        let mut next = world.clone();
        next.faults -= 1;
        next
    })
}

/// mysqld is killed: no commit that waited returns OK.
pub(crate) fn crash(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let mut next = one_more(world, scope.kinds.crash && world.host(server).up)?;
    let host = next.host_mut(server);
    host.up = false;
    host.opening = false;
    host.make_read_only();
    if !scope.keeps(crate::rules::Rule::RelaySurvives) {
        host.relay = 0;
    }
    Some(next)
}

/// The host loses its power: nothing syncs a relay log before the acknowledgement (interleaving 7). It comes back in another life.
pub(crate) fn power(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let mut next = one_more(world, scope.kinds.power && world.host(server).up)?;
    let host = next.host_mut(server);
    host.up = false;
    host.opening = false;
    host.make_read_only();
    host.relay = 0;
    next.tree.known &= !bit(server);
    Some(next)
}

/// The host stands still; ZooKeeper expires its session in time ([`expire`]), its clock goes on.
pub(crate) fn pause(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let mut next = one_more(world, scope.kinds.pause)?;
    next.host_mut(server).frozen = true;
    Some(next)
}

/// It goes on where it was. Past its lease it has until the next tick to fence.
pub(crate) fn thaw(_: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    if !host.frozen {
        return None;
    }
    let late = host.takes_writes() && !time::may_write(host);
    let mut next = world.clone();
    let host = next.host_mut(server);
    host.frozen = false;
    host.thawing = late;
    Some(next)
}

/// ZooKeeper ends a session whenever it likes: nothing depends on when (design, section 1). Its ephemeral nodes vanish,
/// and what it has sent is refused from here on.
pub(crate) fn expire(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let tree = &world.tree;
    let has = tree.master == Some(server)
        || tree.locks[server as usize].is_some()
        || host.late.is_some()
        || host.request.as_ref().is_some_and(|request| request.landed.is_none());
    // A host that stands still loses its session without another fault.
    let mut next =
        if host.frozen { Some(world.clone()) } else { one_more(world, scope.kinds.expiry) }.filter(|_| has)?;
    if next.tree.master == Some(server) {
        next.tree.master = None;
    }
    if next.tree.locks[server as usize].take().is_some() {
        next.lock_changed(server);
    }
    let host = next.host_mut(server);
    host.late = None;
    host.request = host.request.take().filter(|request| request.landed.is_some());
    Some(next)
}

/// The agent's limit for one call passes. What it has sent may have landed, or may land yet.
pub(crate) fn give_up(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let request = host.request.as_ref()?;
    let landed = request.landed.is_some();
    let mut next = one_more(world, scope.kinds.lost_answer && (landed || host.late.is_none()))?;
    let host = next.host_mut(server);
    let request = host.request.take();
    if !landed {
        host.late = request;
    }
    Some(next)
}
