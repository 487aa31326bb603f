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
    /// By which accounts the servers replicate.
    pub(crate) accounts: Accounts,
    /// Hosts, or their agents alone, are away for long.
    pub(crate) absences: bool,
}

/// By which accounts the servers replicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accounts {
    /// Their agents do not tell, as those of an earlier version.
    Unknown,
    /// One for all.
    Shared,
    /// Each by its own.
    Own,
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
            accounts: Accounts::Unknown,
            absences: false,
        }
    }

    /// In `lossless`, somebody is away for longer than the others wait for it.
    pub(crate) fn absences(chance: &mut Chance) -> Self {
        let accounts = if chance.percent(90) { Accounts::Own } else { Accounts::Shared };
        let more_faults = chance.percent(40);
        let mixed = Self::mixed(chance);
        Self { durability: DurabilityMode::Lossless, accounts, absences: true, force: false, more_faults, ..mixed }
    }

    /// `mysql.replication.user` of a host.
    pub(crate) fn account(&self, host: usize) -> String {
        match self.accounts {
            Accounts::Unknown => String::new(),
            Accounts::Shared => "repl".into(),
            Accounts::Own => format!("repl{}", host + 1),
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
        let (accounts, absences) = (Accounts::Unknown, false);
        Self {
            hosts,
            durability,
            k,
            max_lag,
            cooldown,
            modes,
            guards,
            force,
            more_faults,
            zones,
            quiet,
            accounts,
            absences,
        }
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
            "{} hosts, {:?}, k = {}, max_lag {:?}, cooldown {:?}, {manual} manual, guards: {}, --allow-data-loss: {}, more faults: {}, rooms: {:?}, quiet: {}, accounts: {:?}",
            self.hosts,
            self.durability,
            self.k,
            self.max_lag,
            self.cooldown,
            self.guards,
            self.force,
            self.more_faults,
            self.zones,
            self.quiet,
            self.accounts
        )
    }
}
