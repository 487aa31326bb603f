//! Three rooms, two hosts in two of them and one in the third (m4): whole rooms die or are cut off, the primary's above all.
//!
//! In one half of these worlds nothing else goes wrong. There promise 8 must be kept: where S left out the primary's room when that
//! was lost, another room takes over by itself.

use mysql_ha_agent::core::records::Topology;

use super::chance::Chance;
use super::ensemble::T;
use super::plan::below;
use super::world::{TROUBLE, World, host_of};

/// The room of each host.
pub(crate) const ZONES: [&str; 5] = ["a", "a", "b", "b", "c"];

/// How long the others may take when nothing else is wrong: the lease, the session's end, votes, a fence that finds nobody; milliseconds.
const TAKE_OVER: u64 = 3 * T;

/// When rooms are lost, and the loss that is going on.
pub(crate) struct Rooms {
    chance: Chance,
    next: u64,
    /// Another room must have taken over by then: the epoch that is lost, the room, and the time.
    due: Option<(u64, &'static str, u64)>,
    /// How often another room has taken over as promised.
    pub(crate) kept: u64,
}

impl Rooms {
    /// A stream of its own: the other faults of a seed stay what they are.
    pub(crate) fn new(seed: u64, rooms: bool) -> Self {
        let mut chance = Chance::new(seed ^ 0x2008);
        let next = if rooms { chance.between(7_000, 14_000) } else { u64::MAX };
        Self { chance, next, due: None, kept: 0 }
    }
}

impl World {
    /// One tick.
    pub(crate) fn rooms(&mut self) {
        self.another_room_takes_over();
        if self.t < self.rooms.next || self.t >= TROUBLE {
            return;
        }
        let (t, chance) = (self.t, &mut self.rooms.chance);
        let (of_primary, dies) = (chance.percent(70), chance.percent(60));
        let any = below(chance, ZONES.len());
        let until = t + chance.between(1_000, 4 * TAKE_OVER);
        self.rooms.next = until + self.rooms.chance.between(8_000, 14_000);
        let room = ZONES[self.primary().filter(|_| of_primary).unwrap_or(any)];
        let promised = self.plan.quiet
            && until > t + TAKE_OVER
            && self.primary().is_some_and(|primary| ZONES[primary] == room)
            && self.topology().is_some_and(|topology| left_out(topology, room));
        if promised {
            let epoch = self.topology().map_or(0, |topology| topology.epoch);
            self.rooms.due = Some((epoch, room, t + TAKE_OVER));
        }
        for i in (0..ZONES.len()).filter(|i| ZONES[*i] == room) {
            if dies {
                self.host_dies(i, until);
            } else {
                (self.hosts[i].zookeeper_cut, self.hosts[i].network_cut) = (true, true);
                self.hosts[i].back.network = Some(until);
            }
        }
        let how = if dies { "dies" } else { "is cut off" };
        self.say(0, format!("--- room {room} {how} for {} ms, promised: {promised}", until - t));
    }

    fn another_room_takes_over(&mut self) {
        let Some((epoch, room, by)) = self.rooms.due else { return };
        let primary = self.primary().filter(|primary| ZONES[*primary] != room);
        if primary.is_some_and(|primary| self.servers[primary].accepts()) {
            self.rooms.due = None;
            self.rooms.kept += 1;
            return;
        }
        assert!(self.t < by, "room {room} was lost in epoch {epoch}, and no other room has taken over");
    }
}

/// Whatever is acknowledged is on a server outside the room.
fn left_out(topology: &Topology, room: &str) -> bool {
    let durability = &topology.durability;
    !durability.degraded
        && !durability.sync.is_empty()
        && durability.sync.iter().all(|name| ZONES[host_of(name)] != room)
}
