//! Servers: GTID sets, semi-sync (AFTER_SYNC, no time limit), relay logs, restarts.

use crate::rules::{Rule, Scope};
use crate::world::{Mode, Server, World, bit, servers};

/// A client writes: the transaction is in the binary log and waits for its acknowledgements.
pub(crate) fn write(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    if !host.up || host.mode != Mode::Writable || world.sent >= scope.writes {
        return None;
    }
    let mut next = world.clone();
    let write = bit(next.sent);
    next.numbered[next.sent as usize] = server;
    next.sent += 1;
    let host = next.host_mut(server);
    host.executed |= write;
    host.waiting |= write;
    Some(next)
}

/// The IO thread gets what its source has more, and sends the acknowledgement on its way.
pub(crate) fn receive(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let source = host.source.filter(|_| host.up && host.io)?;
    let from = world.host(source);
    let new = from.executed & !host.received();
    if new == 0 || !from.up || from.frozen {
        return None;
    }
    let acknowledges = host.semi;
    let mut next = world.clone();
    let host = next.host_mut(server);
    if scope.relay {
        host.relay |= new;
    } else {
        host.executed |= new;
    }
    let waiting = from.waiting;
    if acknowledges {
        next.host_mut(source).acks[server as usize] |= new & waiting;
    }
    Some(next)
}

/// Enough acknowledgements have come: the commits return OK to their clients.
pub(crate) fn acknowledged(scope: &Scope, world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    let enough = |write: u8| {
        let by = servers().filter(|sender| host.acks[*sender as usize] & bit(write) != 0).count();
        by >= usize::from(scope.k)
    };
    let done = (0..scope.writes).filter(|write| host.waiting & bit(*write) != 0 && enough(*write));
    let done = done.fold(0, |all, write| all | bit(write));
    if done == 0 || !host.takes_writes() {
        return None;
    }
    let mut next = world.clone();
    next.acknowledged |= done;
    let host = next.host_mut(server);
    host.waiting &= !done;
    host.acks.iter_mut().for_each(|acks| *acks &= !done);
    Some(next)
}

/// The applier.
pub(crate) fn apply(world: &World, server: Server) -> Option<World> {
    let host = world.host(server);
    if !host.up || host.relay == 0 {
        return None;
    }
    let mut next = world.clone();
    let host = next.host_mut(server);
    host.executed |= std::mem::take(&mut host.relay);
    Some(next)
}

/// mysqld is started again: read-only, replication stopped, semi-sync off (`MysqlAction::PersistReadOnly`). What it
/// had in its binary log it holds, whether it was acknowledged or not.
pub(crate) fn restart(scope: &Scope, world: &World, server: Server) -> Option<World> {
    if world.host(server).up {
        return None;
    }
    let mut next = world.clone();
    let host = next.host_mut(server);
    host.up = true;
    if scope.keeps(Rule::FreezeSurvivesRestart) {
        host.io = false;
        host.semi = false;
    } else {
        // Resumes by itself, as its own file says, and acknowledges.
        host.io = host.source.is_some();
        host.semi = host.io;
    }
    Some(next)
}
