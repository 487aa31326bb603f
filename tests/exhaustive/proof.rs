//! The failsafe: a heartbeat's acknowledgements as a lease (see `failsafe.rs` for the verdict).

use crate::ensemble::send;
use crate::race::{stop_io, vacancy};
use crate::role::{in_sync, last_writer};
use crate::rules::{Rule, Scope};
use crate::time;
use crate::world::{Kind, Mode, Server, Servers, World, bit, servers};

/// A heartbeat is committed.
pub(crate) fn heartbeat_sent(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let writable = host.up && host.mode == Mode::Writable && time::may_write(host);
    if !scope.failsafe || !writable || host.heartbeat.is_some() || host.proof >= scope.proof {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(server).heartbeat = Some((0, 0));
    Some(next)
}

/// A replica that acknowledges receives it.
pub(crate) fn heartbeat_received(world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let source = host.source.filter(|_| host.up && host.io && host.semi)?;
    let from = world.host(source);
    let (age, by) = from.heartbeat.filter(|(_, by)| by & bit(server) == 0 && from.up && !from.frozen)?;
    let mut next = world.clone();
    next.host_mut(source).heartbeat = Some((age, by | bit(server)));
    Some(next)
}

/// It returns: acknowledged by k, it proves that they were not frozen when it was sent.
pub(crate) fn heartbeat_done(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let (age, by) = world.host(server).heartbeat?;
    if by.count_ones() < u32::from(scope.k) {
        return None;
    }
    let from = if scope.keeps(Rule::ProofFromSending) { age } else { 0 };
    let mut next = world.clone();
    let host = next.host_mut(server);
    host.heartbeat = None;
    host.proof = host.proof.max(scope.proof.saturating_sub(from));
    Some(next)
}

/// How long a winner waits after its quorum was frozen. Nothing where the last writer itself has voted or has released: it
/// is read-only, and nobody else has a proof.
pub(crate) fn wait(scope: &Scope, world: &World, counted: Servers) -> u8 {
    let tree = &world.tree;
    let last_writer = tree.lease.released || counted & bit(last_writer(scope, tree)) != 0;
    if !scope.failsafe || !scope.keeps(Rule::WaitProof) || last_writer {
        return 0;
    }
    let votes = servers().filter(|server| counted & bit(*server) != 0 && in_sync(world, *server));
    let frozen_for = votes.filter_map(|server| tree.locks[server as usize].as_ref()).map(|lock| lock.frozen_for);
    scope.proof - frozen_for.min().unwrap_or(0).min(scope.proof)
}

/// A member that reaches ZooKeeper and has seen the lease unchanged for T − P freezes already, without a vote.
pub(crate) fn early_freeze(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let (host, tree) = (world.host(server), &world.tree);
    let may = host.up && host.mode == Mode::ReadOnly && host.held.is_none() && host.io;
    let silent = tree.lease.age >= scope.lease - scope.proof && tree.master.is_some_and(|master| master != server);
    if !scope.early_freeze || !may || !silent || vacancy(scope, world, server) {
        return None;
    }
    let mut next = world.clone();
    stop_io(scope, &mut next, server);
    Some(next)
}

/// ZooKeeper is back: the writable primary of the present epoch takes `master` back.
pub(crate) fn take_back(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let (host, tree) = (world.host(server), &world.tree);
    let ours = host.held.as_ref().is_some_and(|held| held.epoch == tree.epoch) && tree.lease.name == server;
    let writable = host.up && host.mode == Mode::Writable && time::may_write(host);
    if !scope.failsafe || !writable || !ours || tree.master.is_some() || host.request.is_some() {
        return None;
    }
    let mut next = world.clone();
    send(scope, &mut next, server, Kind::TakeBack { epoch: tree.epoch });
    Some(next)
}

/// Rows R15 and P4: the old primary is made read-only over the network, by a member that races or by a winner that waits. Its agent
/// learns of it later: it may open again under its lease, and what acknowledgements have proven stays in force.
pub(crate) fn fence_old(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let (host, tree) = (world.host(server), &world.tree);
    let old = last_writer(scope, tree);
    let answers = world.host(old).up && !world.host(old).frozen;
    let waits = tree.master == Some(server) && host.wait > 0 && host.held.as_ref().is_some_and(|held| !held.opened);
    let races = host.held.is_none() && vacancy(scope, world, server);
    if !scope.failsafe || old == server || !answers || !(waits || races) {
        return None;
    }
    let mut next = world.clone();
    let closed = next.host_mut(old);
    if closed.mode != Mode::ReadOnly {
        let (proof, heartbeat) = (closed.proof, closed.heartbeat);
        closed.make_read_only();
        (closed.proof, closed.heartbeat) = (proof, heartbeat);
    }
    if waits && (host.wait_lease == 0 || !scope.keeps(Rule::FenceAfterLease)) {
        next.host_mut(server).wait = host.wait_lease;
    }
    (next != *world).then_some(next)
}
