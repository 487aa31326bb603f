//! Hosts that lose their power, one or all at once, and with it the tail of their relay logs (interleaving 7): nothing syncs those
//! before the acknowledgement.

use super::chance::Chance;
use super::plan::below;
use super::world::World;

/// What this story's worlds know more than the mixed ones.
pub(crate) struct Power {
    chance: Chance,
    next: u64,
}

impl Power {
    pub(crate) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x0FF5_EED0_0FF5);
        let next = chance.between(5_000, 8_000);
        Self { chance, next }
    }

    /// How many of the transactions in a relay log had come to the disk.
    pub(crate) fn kept(&mut self, received: usize) -> usize {
        below(&mut self.chance, received + 1)
    }
}

impl World {
    /// Appliers stand still, so that relay logs hold what is nowhere else; then the power goes.
    pub(crate) fn power_fails(&mut self) {
        let (t, hosts) = (self.t, self.plan.hosts);
        let Some(power) = self.power.as_mut().filter(|power| t >= power.next) else { return };
        self.faults = true;
        power.next = t + power.chance.between(500, 4_000);
        let i = below(&mut power.chance, hosts);
        let until = t + power.chance.between(100, 3_000);
        let what = match power.chance.between(0, 10) {
            0..5 => {
                self.servers[i].stalled = !self.servers[i].stalled;
                "applier stops or goes on"
            }
            5..9 if self.hosts[i].up => {
                self.host_dies(i, until);
                "power is lost"
            }
            9 => {
                (0..hosts)
                    .filter(|i| self.hosts[*i].up)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|i| self.host_dies(i, until));
                "power is lost everywhere"
            }
            _ => return,
        };
        self.say(i, format!("--- {what}"));
    }
}
