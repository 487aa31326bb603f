//! What ZooKeeper does with a transaction, and what its sender makes of the answer.

use crate::role::last_writer;
use crate::rules::{Delay, Rule, Scope, Slow};
use crate::time;
use crate::world::{Held, Kind, Lease, Lock, Mode, Request, Server, World, bit};

/// An agent sends a transaction made from what ZooKeeper holds now.
pub(crate) fn send(scope: &Scope, next: &mut World, server: Server, kind: Kind) {
    let (lands_at_once, answered_at_once) = match (scope.delay, &kind) {
        (Delay::Only(Slow::Renewals), Kind::Renew { .. })
        | (Delay::Only(Slow::Removals), Kind::Remove { .. })
        | (Delay::Only(Slow::Votes), Kind::Vote { .. })
        | (Delay::Only(Slow::Claims), Kind::Claim { .. })
        | (Delay::Only(Slow::TakeBacks), Kind::TakeBack { .. }) => (false, false),
        (Delay::Answer, _) => (true, false),
        (Delay::None | Delay::Only(_), _) => (true, true),
    };
    let fresh = Request { kind, topology: true, lease: true, locks: true, agents: true, age: 0, landed: None };
    next.host_mut(server).request = Some(fresh);
    if lands_at_once {
        land_now(scope, next, server);
    }
    if answered_at_once {
        answer_now(scope, next, server);
    }
}

/// The transaction under way gets there.
pub(crate) fn land(scope: &Scope, world: &World, server: Server) -> Option<World> {
    world.host(server).request.as_ref().filter(|request| request.landed.is_none())?;
    let mut next = world.clone();
    land_now(scope, &mut next, server);
    Some(next)
}

fn land_now(scope: &Scope, next: &mut World, server: Server) {
    let Some(request) = next.host_mut(server).request.take() else { return };
    let done = commit(scope, next, server, &request);
    // An agent looks at the locks themselves, whatever the answer.
    if !matches!(request.kind, Kind::Vote { .. }) {
        next.host_mut(server).request = Some(Request { landed: Some(done), ..request });
    }
}

/// Interleaving 20: one that was given up gets there all the same.
pub(crate) fn land_late(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let request = world.host(server).late.as_ref()?;
    let mut next = world.clone();
    commit(scope, &mut next, server, request);
    next.host_mut(server).late = None;
    Some(next)
}

/// All or nothing.
fn commit(scope: &Scope, world: &mut World, server: Server, request: &Request) -> bool {
    match &request.kind {
        Kind::Renew { opened } => renew(scope, world, server, request, *opened),
        Kind::Vote { received, frozen_for } => vote(scope, world, server, request, *received, *frozen_for),
        Kind::Claim { epoch, opened, .. } => claim(scope, world, server, request, *epoch, *opened),
        Kind::TakeBack { .. } => take_back(scope, world, server, request),
        Kind::Remove { member, floor } => remove(scope, world, request, *member, *floor),
    }
}

/// `LeaseKeeper::renew`: `master` is there, `lease` as our last write left it.
fn renew(scope: &Scope, world: &mut World, server: Server, request: &Request, opened: bool) -> bool {
    let own = match scope.keeps(Rule::RenewOwnVersion) {
        true => world.tree.master == Some(server) && request.lease,
        // `master` has version 0 again and again (interleaving 1).
        false => world.tree.master.is_some(),
    };
    if !own {
        return false;
    }
    let epoch = world.tree.lease.epoch;
    let opened = opened || (world.tree.lease.name == server && world.tree.lease.opened);
    write_lease(world, Lease { name: server, epoch, opened, released: false, age: 0 });
    true
}

fn write_lease(world: &mut World, lease: Lease) {
    world.tree.lease = lease;
    world.lease_changed();
}

/// Row R8. The lock says under which version of `topology` it was made.
fn vote(scope: &Scope, world: &mut World, server: Server, request: &Request, received: u8, frozen_for: u8) -> bool {
    if scope.keeps(Rule::VoteChecksLease) && !(request.topology && request.lease) {
        return false;
    }
    let known = world.tree.known & bit(server) != 0;
    world.tree.locks[server as usize] = Some(Lock { received, current: request.topology, known, frozen_for });
    world.lock_changed(server);
    true
}

/// Row R14: every counted lock as it was, `topology` and `lease` at the versions seen.
fn claim(scope: &Scope, world: &mut World, server: Server, request: &Request, epoch: u8, opened: bool) -> bool {
    let fresh = request.topology && request.locks && request.lease;
    if !fresh && scope.keeps(Rule::OneClaim) {
        return false;
    }
    let floor = world.host(server).executed;
    let tree = &mut world.tree;
    // `changes::claimed`: the last writer stays until somebody else has opened.
    tree.last_writer = last_writer(scope, tree);
    tree.epoch = epoch;
    tree.primary = None;
    tree.floor = floor;
    // What it was counted on for is in the floor.
    tree.known |= bit(server);
    tree.master = Some(server);
    world.topology_changed();
    write_lease(world, Lease { name: server, epoch, opened, released: false, age: 0 });
    true
}

/// The failsafe's transaction: same epoch, `topology` and `lease` as they were, `master` created anew.
fn take_back(scope: &Scope, world: &mut World, server: Server, request: &Request) -> bool {
    let fresh = request.topology && request.lease;
    if (!fresh || world.tree.master.is_some()) && scope.keeps(Rule::TakeBackVersion) {
        return false;
    }
    world.tree.master = Some(server);
    world.tree.primary = Some(server);
    world.topology_changed();
    let epoch = world.tree.epoch;
    write_lease(world, Lease { name: server, epoch, opened: true, released: false, age: 0 });
    true
}

/// A member leaves S: `topology` as it was, and `agents/<member>` too (interleaving 18).
fn remove(scope: &Scope, world: &mut World, request: &Request, member: Server, floor: u8) -> bool {
    let checked = request.agents || !scope.keeps(Rule::IntentBeforeEnabling);
    if !request.topology || !checked {
        return false;
    }
    world.tree.sync &= !bit(member);
    world.tree.floor |= floor;
    world.topology_changed();
    true
}

/// The answer, or what reading back says: the same to an agent, only later.
pub(crate) fn answer(scope: &Scope, world: &World, server: Server) -> Option<World> {
    world.host(server).request.as_ref()?.landed?;
    let mut next = world.clone();
    answer_now(scope, &mut next, server);
    Some(next)
}

fn answer_now(scope: &Scope, next: &mut World, server: Server) {
    let host = next.host_mut(server);
    let Some(request) = host.request.take_if(|request| request.landed.is_some()) else { return };
    let from = if scope.keeps(Rule::LeaseFromSending) { request.age } else { 0 };
    let left = time::lease_length(scope).saturating_sub(from);
    match (request.kind, request.landed == Some(true)) {
        (Kind::Renew { opened }, true) => {
            if let Some(held) = &mut host.held {
                held.left = left.max(held.left);
                held.opened |= opened;
            }
        }
        // What was taken from us is known to be: `Renewal::Lost`. With the failsafe, `topology` is looked at first.
        (Kind::Renew { .. }, false) if !scope.failsafe => lose(host),
        (Kind::Claim { epoch, opened, .. }, true) => host.held = Some(Held { epoch, opened, left }),
        (Kind::TakeBack { epoch }, true) => host.held = Some(Held { epoch, opened: true, left }),
        _ => {}
    }
}

/// The lease is certainly ours no more.
pub(crate) fn lose(host: &mut crate::world::Host) {
    host.held = None;
    host.opening = false;
    host.wait = 0;
    host.wait_lease = 0;
    if host.mode != Mode::ReadOnly {
        host.make_read_only();
    }
}
