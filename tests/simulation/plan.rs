//! What is special about a seed's world.

use std::time::Duration;

use mysql_ha_agent::core::records::{DurabilityMode, Mode};

use super::chance::Chance;
use super::rooms::ZONES;

/// An index below `end`.
pub(crate) fn below(chance: &mut Chance, end: usize) -> usize {
    usize::try_from(chance.between(0, u64::try_from(end).unwrap())).unwrap()
}

pub(crate) struct Plan {
    pub(crate) hosts: usize,
    pub(crate) durability: DurabilityMode,
    /// `failover.sync_replicas`.
    pub(crate) k: u32,
    pub(crate) max_lag: Duration,
    pub(crate) cooldown: Duration,
    /// `failover.mode` of each host.
    pub(crate) modes: Vec<Mode>,
    /// A guard runs on each host.
    pub(crate) guards: bool,
    /// The operator knows `--allow-data-loss`.
    pub(crate) force: bool,
    /// Agents, guards and hosts freeze, guards die, two hosts lose each other.
    pub(crate) more_faults: bool,
    /// The room of each host; empty: none has one.
    pub(crate) zones: Vec<&'static str>,
    /// Nothing goes wrong but whole rooms.
    pub(crate) quiet: bool,
}

impl Plan {
    /// Three hosts and the faults that the first seeds of this simulation knew. Those that failed then run in it still.
    pub(crate) fn plain(chance: &mut Chance) -> Self {
        Self {
            hosts: 3,
            durability: if chance.percent(85) { DurabilityMode::Lossless } else { DurabilityMode::Async },
            k: 1,
            max_lag: Duration::from_secs(30),
            cooldown: Duration::ZERO,
            modes: vec![Mode::Automatic; 3],
            guards: false,
            force: false,
            more_faults: false,
            zones: vec![],
            quiet: false,
        }
    }

    /// Five hosts in three rooms, with or without other faults.
    pub(crate) fn rooms(chance: &mut Chance) -> Self {
        let [guards, more_faults, quiet] = [70, 50, 50].map(|percent| chance.percent(percent));
        let (hosts, zones) = (ZONES.len(), ZONES.to_vec());
        let modes = vec![Mode::Automatic; hosts];
        Self { hosts, modes, guards, more_faults, zones, quiet, ..Self::plain(chance) }
    }

    /// Any mixture of what an operator can set up.
    pub(crate) fn mixed(chance: &mut Chance) -> Self {
        let durability = if chance.percent(80) { DurabilityMode::Lossless } else { DurabilityMode::Async };
        let hosts = if chance.percent(25) { 5 } else { 3 };
        let k = 1 + u32::from(chance.percent(if hosts == 5 { 50 } else { 15 }));
        let max_lag = Duration::from_secs(if chance.percent(50) { 30 } else { 1 });
        let mut modes = vec![Mode::Automatic; hosts];
        match chance.between(0, 10) {
            0 => modes.fill(Mode::Manual),
            1 => modes[below(chance, hosts)] = Mode::Manual,
            _ => {}
        }
        let [guards, force, more_faults] = [70, 30, 70].map(|percent| chance.percent(percent));
        let (cooldown, zones, quiet) = (Duration::ZERO, vec![], false);
        Self { hosts, durability, k, max_lag, cooldown, modes, guards, force, more_faults, zones, quiet }
    }

    /// The same where nothing acknowledged may be lost, whatever anybody does.
    pub(crate) fn lossless(chance: &mut Chance) -> Self {
        Self { durability: DurabilityMode::Lossless, force: false, ..Self::mixed(chance) }
    }

    /// How many acknowledgements a commit waits for.
    pub(crate) fn acknowledgements(&self) -> u32 {
        if self.durability == DurabilityMode::Lossless { self.k } else { 0 }
    }

    /// Nobody takes over before somebody says so.
    pub(crate) fn waits_for_operator(&self) -> bool {
        self.modes.contains(&Mode::Manual)
    }

    pub(crate) fn text(&self) -> String {
        let manual = self.modes.iter().filter(|mode| **mode == Mode::Manual).count();
        format!(
            "{} hosts, {:?}, k = {}, max_lag {:?}, cooldown {:?}, {manual} manual, guards: {}, --allow-data-loss: {}, more faults: {}, rooms: {:?}, quiet: {}",
            self.hosts,
            self.durability,
            self.k,
            self.max_lag,
            self.cooldown,
            self.guards,
            self.force,
            self.more_faults,
            self.zones,
            self.quiet
        )
    }
}
