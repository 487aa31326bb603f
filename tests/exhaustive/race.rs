//! Nobody takes writes: from freezing to the claim (`core/rows/race.rs`, `core/rows/lead.rs`, `core/election.rs`), and following the winner
//! (`core/rows/replica.rs`).

use crate::ensemble::send;
use crate::proof;
use crate::role::{holds, in_sync, last_writer};
use crate::rules::{Rule, Scope};
use crate::world::{Kind, Lock, Mode, Server, Servers, World, Writes, bit, servers};

/// `race::vacancy`: no `master`, or one whose lease has run out unrenewed.
pub(crate) fn vacancy(scope: &Scope, world: &World, server: Server) -> bool {
    let tree = &world.tree;
    tree.master != Some(server) && (tree.master.is_none() || tree.lease.age >= scope.lease)
}

/// Row R2.
pub(crate) fn name_nobody(scope: &Scope, world: &World, server: Server) -> Option<World> {
    if !vacancy(scope, world, server) || world.tree.primary.is_none() {
        return None;
    }
    let mut next = world.clone();
    next.tree.last_writer = last_writer(scope, &next.tree);
    next.tree.primary = None;
    next.topology_changed();
    Some(next)
}

/// Row R7: from here on it acknowledges nothing to the old primary.
pub(crate) fn freeze(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let may = host.up && host.mode == Mode::ReadOnly && host.held.is_none();
    if !may || !vacancy(scope, world, server) || (host.frozen_for.is_some() && !host.io) {
        return None;
    }
    let mut next = world.clone();
    stop_io(scope, &mut next, server);
    Some(next)
}

/// Semi-sync's replica side off, IO thread stopped, both confirmed (interleaving 4).
pub(crate) fn stop_io(scope: &Scope, next: &mut World, server: Server) {
    let host = next.host_mut(server);
    (host.io, host.semi, host.enabling, host.frozen_for) = (false, false, false, Some(0));
    if scope.sync_changes && next.tree.intent & bit(server) != 0 {
        next.tree.intent &= !bit(server);
        next.agent_changed(server);
    }
}

/// `race::own_transactions`: what nobody can have from the last primary.
fn diverged(scope: &Scope, world: &World, server: Server) -> bool {
    let (tree, received) = (&world.tree, world.host(server).received());
    let writer = last_writer(scope, tree);
    let by_last_writer = (0..world.sent).filter(|write| world.numbered[*write as usize] == writer);
    let known = by_last_writer.fold(tree.floor, |all, write| all | bit(write));
    tree.floor != 0 && received & !known != 0
}

/// Row R8.
pub(crate) fn vote(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let frozen = (host.frozen_for.is_some() && !host.io) || !scope.keeps(Rule::FreezeIo);
    let may = host.up && host.mode == Mode::ReadOnly && host.held.is_none() && host.request.is_none();
    let nobody = vacancy(scope, world, server) && world.tree.primary.is_none();
    if !frozen || !may || !nobody || world.tree.locks[server as usize].is_some() || diverged(scope, world, server) {
        return None;
    }
    let received = if scope.keeps(Rule::Received) { host.received() } else { host.executed };
    let vote = Kind::Vote { received, frozen_for: host.frozen_for.unwrap_or(0) };
    let mut next = world.clone();
    send(scope, &mut next, server, vote);
    Some(next)
}

/// The locks that count (`election::counted`).
fn counting<'w>(scope: &Scope, world: &'w World) -> impl Iterator<Item = (Server, &'w Lock)> {
    let all = !scope.keeps(Rule::VoteVersion);
    let locks = servers().filter_map(|server| Some((server, world.tree.locks[server as usize].as_ref()?)));
    locks.filter(move |(_, lock)| lock.current || all)
}

/// Whose they are.
fn counted(scope: &Scope, world: &World) -> Servers {
    counting(scope, world).fold(0, |all, (server, _)| all | bit(server))
}

/// What they have received (`election::received`).
fn received(scope: &Scope, world: &World) -> Writes {
    counting(scope, world).fold(0, |all, (_, lock)| all | lock.received)
}

/// Rows R12 and R13: what the counted votes have, applied here; fetched from candidates that answer.
pub(crate) fn prepare(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let counted = counted(scope, world);
    if counted & bit(server) == 0 || !vacancy(scope, world, server) || !scope.keeps(Rule::Received) || !host.up {
        return None;
    }
    let answers = |other: &Server| counted & bit(*other) != 0 && world.host(*other).up && !world.host(*other).frozen;
    let there = servers().filter(answers).fold(0, |all, other| all | world.host(other).received());
    let all = received(scope, world) | host.received();
    if all & !there != 0 || host.executed & all == all {
        return None;
    }
    let mut next = world.clone();
    let host = next.host_mut(server);
    host.executed |= all;
    host.relay = 0;
    Some(next)
}

/// `election::quorum_missing`.
fn quorum(scope: &Scope, world: &World, counted: Servers) -> bool {
    let tree = &world.tree;
    if counted & bit(last_writer(scope, tree)) != 0 {
        return true;
    }
    let size = tree.sync.count_ones() as u8;
    // `Case::counted_by`: what was acknowledged before an epoch that was never opened is in its floor.
    let unopened = tree.lease.epoch == tree.epoch && !tree.lease.opened && tree.primary.is_none();
    let all = unopened || !scope.keeps(Rule::KnownLife);
    let lives = counting(scope, world).filter(|(_, lock)| lock.known || all);
    let in_life = lives.fold(0, |set, (server, _)| set | bit(server));
    let have = (tree.sync & counted & in_life).count_ones() as u8;
    let needed = if scope.keeps(Rule::Quorum) { (size + 1).saturating_sub(scope.k).max(1) } else { 1 };
    size > 0 && have >= needed
}

/// Rows R10 and R14: any member with enough votes, not the lowest lock alone.
pub(crate) fn claim(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let (host, tree) = (world.host(server), &world.tree);
    let counted = counted(scope, world);
    let free = host.up && host.request.is_none() && host.held.is_none() && tree.epoch < scope.epochs;
    let leads = counted & bit(server) != 0 && vacancy(scope, world, server);
    if !free || !leads || !quorum(scope, world, counted) {
        return None;
    }
    if (received(scope, world) | tree.floor) & !host.executed != 0 {
        return None;
    }
    // `Case::lease_over_at`, never less than for an earlier attempt.
    let old_lease = if tree.lease.released { 0 } else { scope.lease - tree.lease.age };
    let old_lease = if scope.keeps(Rule::WaitOldLease) { old_lease } else { 0 };
    let wait = old_lease.max(proof::wait(scope, world, counted)).max(host.wait);
    let mut next = world.clone();
    next.host_mut(server).wait = wait;
    next.host_mut(server).wait_lease = old_lease.max(host.wait_lease);
    send(scope, &mut next, server, Kind::Claim { counted, epoch: tree.epoch + 1, opened: wait == 0 });
    Some(next)
}

/// Rows R8 and F1: an outdated vote, or one of a race that is decided.
pub(crate) fn withdraw(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let lock = world.tree.locks[server as usize].as_ref()?;
    if world.tree.master == Some(server) || (lock.current && vacancy(scope, world, server)) {
        return None;
    }
    let mut next = world.clone();
    next.tree.locks[server as usize] = None;
    next.lock_changed(server);
    Some(next)
}

/// Rows F1 and F5: only with its lock known to be gone, and with nothing that the holder does not have (row F4).
pub(crate) fn follow(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let (host, tree) = (world.host(server), &world.tree);
    let source = tree.master.filter(|source| *source != server && tree.lease.name == *source)?;
    let unlocked = tree.locks[server as usize].is_none() || !scope.keeps(Rule::UnfreezeWithoutLock);
    let may = host.up && host.mode == Mode::ReadOnly && host.held.is_none() && unlocked;
    let from = world.host(source);
    let subset = host.received() & !from.executed == 0 && from.up && !from.frozen;
    let acknowledges = !scope.sync_changes && in_sync(world, server);
    let there = host.source == Some(source) && host.io && (host.semi || !acknowledges);
    if !may || !subset || there || vacancy(scope, world, server) {
        return None;
    }
    let mut next = world.clone();
    let host = next.host_mut(server);
    (host.source, host.io, host.semi, host.frozen_for) = (Some(source), true, acknowledges, None);
    Some(next)
}

/// Row D12: a heartbeat that is acknowledged now has been received, with all before it, by k members; and this one has caught up.
pub(crate) fn count_anew(scope: &Scope, world: &World, member: Server) -> Option<World> {
    let primary = world.tree.primary.filter(|primary| holds(world, *primary))?;
    let (host, replica) = (world.host(primary), world.host(member));
    let may = host.up && !host.frozen && host.mode == Mode::Writable && in_sync(world, member) && replica.up;
    let has = |other: Server, writes: Writes| writes & !world.host(other).received() == 0;
    let acknowledge =
        servers().filter(|other| in_sync(world, *other) && world.host(*other).semi && has(*other, host.executed));
    let caught_up = acknowledge.count() >= usize::from(scope.k) && has(member, host.executed & !host.waiting);
    if !may || world.tree.known & bit(member) != 0 || (!caught_up && scope.keeps(Rule::CaughtUp)) {
        return None;
    }
    let mut next = world.clone();
    next.tree.known |= bit(member);
    next.topology_changed();
    Some(next)
}
