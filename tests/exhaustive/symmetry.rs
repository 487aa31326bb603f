//! The three servers differ in nothing but their state: worlds that are the same up to the names are one.

use crate::world::{Host, Kind, Request, SERVERS, Server, Servers, World, servers};

/// New names by old ones.
type Names = [Server; SERVERS];

const ALL: [Names; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// One world for all that differ in names: the one whose hosts come in order. Where hosts are alike in what is compared the
/// names stay, which only means that fewer worlds are taken for one.
pub(crate) fn representative(world: &World) -> World {
    let mut order: [Server; SERVERS] = [0, 1, 2];
    order.sort_by_key(|server| rank(world, *server));
    let names = ALL.iter().find(|names| servers().all(|place| names[order[place as usize] as usize] == place));
    match names {
        Some(names) if *names != ALL[0] => rename(world, names),
        _ => world.clone(),
    }
}

type Rank = (u8, u8, u8, u8, u8, u8, u8);

/// What a host is, without the names of others.
fn rank(world: &World, server: Server) -> Rank {
    let (host, tree) = (world.host(server), &world.tree);
    let is = |other: Option<Server>| u8::from(other == Some(server));
    let in_set = |set: Servers| u8::from(set & (1 << server) != 0);
    let flags = |all: [u8; 8]| all.iter().fold(0, |sum, flag| sum * 2 + flag);
    let held = host.held.as_ref().map_or(0, |held| 1 + held.left * 2 + u8::from(held.opened));
    let lock = tree.locks[server as usize].as_ref().map_or(0, |lock| 1 + lock.received * 2 + u8::from(lock.current));
    let roles = [
        is(Some(world.last_opened)),
        is(tree.master),
        is(tree.primary),
        is(Some(tree.lease.name)),
        is(Some(tree.last_writer)),
        in_set(tree.sync),
        in_set(tree.intent),
        u8::from(host.up),
    ];
    let state = [
        u8::from(host.frozen),
        u8::from(host.thawing),
        host.mode as u8 & 1,
        host.mode as u8 >> 1,
        u8::from(host.io),
        u8::from(host.semi),
        u8::from(host.frozen_for.is_some()),
        u8::from(host.request.is_some()),
    ];
    let numbered = world.numbered[..world.sent as usize].iter().fold(0, |sum, by| sum * 2 + is(Some(*by)));
    (
        flags(roles),
        flags(state),
        host.received() * 8 + host.waiting,
        held,
        lock,
        numbered,
        (host.wait * 4 + host.wait_lease) * 4 + host.proof,
    )
}

fn rename(world: &World, names: &Names) -> World {
    let new = |server: Server| names[server as usize];
    let set = |set: Servers| servers().filter(|at| set & (1 << at) != 0).fold(0, |all, at| all | 1 << new(at));
    let mut next = world.clone();
    let tree = &mut next.tree;
    tree.primary = tree.primary.map(new);
    tree.last_writer = new(tree.last_writer);
    tree.sync = set(tree.sync);
    tree.master = tree.master.map(new);
    tree.lease.name = new(tree.lease.name);
    tree.known = set(tree.known);
    tree.intent = set(tree.intent);
    next.last_opened = new(next.last_opened);
    for by in &mut next.numbered[..world.sent as usize] {
        *by = new(*by);
    }
    for server in servers() {
        next.tree.locks[new(server) as usize] = world.tree.locks[server as usize].clone();
        next.hosts[new(server) as usize] = rename_host(world.host(server), &new, &set);
    }
    next
}

fn rename_host(host: &Host, new: &impl Fn(Server) -> Server, set: &impl Fn(Servers) -> Servers) -> Host {
    let request = |request: &Request| {
        let kind = match request.kind.clone() {
            Kind::Claim { counted, epoch, opened } => Kind::Claim { counted: set(counted), epoch, opened },
            Kind::Remove { member, floor } => Kind::Remove { member: new(member), floor },
            kind => kind,
        };
        Request { kind, ..request.clone() }
    };
    let mut acks = [0; SERVERS];
    for server in servers() {
        acks[new(server) as usize] = host.acks[server as usize];
    }
    Host {
        acks,
        source: host.source.map(new),
        request: host.request.as_ref().map(request),
        late: host.late.as_ref().map(request),
        heartbeat: host.heartbeat.map(|(age, by)| (age, set(by))),
        ..host.clone()
    }
}
