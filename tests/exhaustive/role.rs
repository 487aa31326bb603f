//! The holder of `master`: keeps its lease, opens, is named, gives the role away (`core/rows/primary.rs`, `switchover.rs`).

use crate::ensemble::{lose, send};
use crate::rules::{Rule, Scope};
use crate::time;
use crate::world::{Kind, Mode, Server, Tree, World, bit, others};

/// Our `master`, our lease, the present epoch (`primary::holder`).
pub(crate) fn holds(world: &World, server: Server) -> bool {
    let tree = &world.tree;
    let held = world.host(server).held.as_ref();
    tree.master == Some(server) && tree.lease.name == server && held.is_some_and(|held| held.epoch == tree.epoch)
}

/// `Case::last_writer`: a holder that recorded `opened` may have taken writes before `topology` knows it (interleaving 13).
pub(crate) fn last_writer(scope: &Scope, tree: &Tree) -> Server {
    let opened = tree.lease.opened && tree.lease.epoch == tree.epoch && scope.keeps(Rule::OpenedIsLastWriter);
    if opened { tree.lease.name } else { tree.last_writer }
}

/// `Renewals::run`: also a winner that waits renews; `opened` rides along once there is nothing to wait for (row P7).
pub(crate) fn renew(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let held = host.held.as_ref()?;
    let opened = held.opened || host.wait == 0;
    let fresh = held.left >= time::lease_length(scope) && held.opened == opened;
    if fresh || host.request.is_some() || (!holds(world, server) && scope.keeps(Rule::RenewOwnVersion)) {
        return None;
    }
    let mut next = world.clone();
    send(scope, &mut next, server, Kind::Renew { opened });
    Some(next)
}

/// Rows P4, P6 and P7: `opened` recorded, the old lease over, our own lease valid. That alone: what was read of ZooKeeper may
/// be out of date, so nothing may depend on a fresh look at it.
fn may_open(world: &World, server: Server) -> bool {
    let host = world.host(server);
    let ours = host.held.as_ref().is_some_and(|held| held.opened && held.left > 0);
    host.up && host.mode == Mode::ReadOnly && host.wait == 0 && ours
}

/// Without its rule the check and the statement are two steps (interleaving 14).
pub(crate) fn check_open(scope: &Scope, world: &World, server: Server) -> Option<World> {
    if scope.keeps(Rule::OpenCarriesEnd) || !may_open(world, server) || world.host(server).opening {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(server).opening = true;
    Some(next)
}

/// `MysqlAction::Open`: the statement itself compares the clock with the lease's end, so that check and effect are one.
pub(crate) fn open(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let may = match scope.keeps(Rule::OpenCarriesEnd) {
        true => may_open(world, server),
        false => host.opening && host.up,
    };
    if !may {
        return None;
    }
    let mut next = world.clone();
    next.last_opened = server;
    let host = next.host_mut(server);
    host.opening = false;
    host.mode = Mode::Writable;
    // `RESET REPLICA ALL`: what was not applied is gone.
    host.relay = 0;
    (host.source, host.io, host.semi, host.enabling, host.frozen_for) = (None, false, false, false, None);
    Some(next)
}

/// Rows P5 and P8: named in `topology` with the S of the new primary.
pub(crate) fn publish(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    // Under a lease that holds, not on acknowledgements alone: it would fight with members that name nobody.
    let leased = host.held.as_ref().is_some_and(|held| held.left > 0);
    if !leased || !host.up || host.mode != Mode::Writable || !holds(world, server) || world.tree.primary == Some(server)
    {
        return None;
    }
    let mut next = world.clone();
    let tree = &mut next.tree;
    tree.primary = Some(server);
    tree.last_writer = server;
    let before = tree.sync;
    tree.sync = match (scope.sync_changes, scope.keeps(Rule::NewSetKeepsMembers)) {
        (false, _) => others(server),
        (true, true) => tree.sync & others(server),
        (true, false) => 0,
    };
    // `changes::note_incarnations`: who joins is taken as it stands.
    tree.known |= tree.sync & !before;
    if tree.locks[server as usize].take().is_some() {
        next.lock_changed(server);
    }
    next.topology_changed();
    Some(next)
}

/// Row W2: read-only is asked for, and takes a moment.
pub(crate) fn close(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    if !scope.switches || !host.up || host.mode != Mode::Writable || !holds(world, server) {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(server).mode = Mode::Closing;
    Some(next)
}

/// Read-only has come; commits that waited have returned, or their clients were cut.
pub(crate) fn closed(world: &World, server: Server) -> Option<World> {
    if world.host(server).mode != Mode::Closing {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(server).make_read_only();
    Some(next)
}

/// Rows P2, P3 and W3: proven read-only or dead, it says so in `lease`, and nobody has to wait.
pub(crate) fn release(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let opened = host.held.as_ref()?.opened || !scope.keeps(Rule::ReleaseOpenedOnly);
    let proven = match host.mode {
        Mode::ReadOnly => !host.up || scope.switches,
        Mode::Closing => !scope.keeps(Rule::ReleaseProven),
        Mode::Writable => false,
    };
    if !opened || !proven || host.request.is_some() || !holds(world, server) {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(server).held = None;
    next.tree.last_writer = last_writer(scope, &next.tree);
    next.tree.master = None;
    next.tree.primary = None;
    next.tree.lease.released = true;
    next.topology_changed();
    next.lease_changed();
    Some(next)
}

/// Row R5 with its rule taken out: past its deadline the old primary simply writes again (interleaving 19).
pub(crate) fn undo(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let lease = &world.tree.lease;
    let ours = lease.released && lease.name == server && world.tree.master.is_none();
    if scope.keeps(Rule::UndoTakesMaster) || !scope.switches || !host.up || host.mode != Mode::ReadOnly || !ours {
        return None;
    }
    let mut next = world.clone();
    next.host_mut(server).mode = Mode::Writable;
    Some(next)
}

/// Rows S4 and R7: the role is another's, or nobody's while our session was gone. With the failsafe a writable primary of the
/// present epoch takes `master` back instead.
pub(crate) fn give_way(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let held = host.held.as_ref()?;
    let tree = &world.tree;
    let back = scope.failsafe && host.mode == Mode::Writable && tree.master.is_none() && tree.epoch == held.epoch;
    if holds(world, server) || back {
        return None;
    }
    let mut next = world.clone();
    lose(next.host_mut(server));
    Some(next)
}

/// Row S7, interleaving 20: a `master` of ours without a lease behind it.
pub(crate) fn drop_stray(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    if !scope.keeps(Rule::DropStray)
        || world.tree.master != Some(server)
        || holds(world, server)
        || host.request.is_some()
    {
        return None;
    }
    let mut next = world.clone();
    next.tree.master = None;
    Some(next)
}

/// Whether a member is in S as recorded now.
pub(crate) fn in_sync(world: &World, server: Server) -> bool {
    world.tree.sync & bit(server) != 0
}
