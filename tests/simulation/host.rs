//! A host: what outlives its agent, its guard and its server.

use mysql_ha_agent::core::fenced::Told;
use mysql_ha_agent::core::guard;
use mysql_ha_agent::core::reason::Reason;

use super::chance::Chance;

/// When what is down, cut off or frozen comes back.
#[derive(Default)]
pub(crate) struct Back {
    pub(crate) agent: Option<u64>,
    pub(crate) guard: Option<u64>,
    pub(crate) mysqld: Option<u64>,
    pub(crate) host: Option<u64>,
    pub(crate) network: Option<u64>,
    pub(crate) mysqld_thaws: Option<u64>,
    pub(crate) agent_thaws: Option<u64>,
    pub(crate) guard_thaws: Option<u64>,
}

impl Back {
    /// No later than `t`.
    pub(crate) fn hurry(&mut self, t: u64) {
        for at in [
            &mut self.agent,
            &mut self.guard,
            &mut self.host,
            &mut self.network,
            &mut self.mysqld_thaws,
            &mut self.agent_thaws,
            &mut self.guard_thaws,
        ] {
            *at = at.and(Some(t));
        }
    }
}

pub(crate) struct Host {
    pub(crate) up: bool,
    pub(crate) zookeeper_cut: bool,
    pub(crate) network_cut: bool,
    pub(crate) boot: u32,
    /// Its clock: reading at the start of the world, and its rate in millionths above the true one.
    pub(crate) offset: u64,
    pub(crate) rate: i64,
    /// `state_dir`: under our care, and why it was fenced.
    pub(crate) managed: bool,
    pub(crate) fenced: Option<Reason>,
    /// The same of a fence that has begun.
    pub(crate) fence_begun: bool,
    /// The marker of the verb `fence`.
    pub(crate) fenced_by_hand: bool,
    /// The lease file below `/run`; none: nothing was written since the boot.
    pub(crate) lease_file: Option<guard::Lease>,
    /// The guard's own file below `/run`.
    pub(crate) told: Told,
    pub(crate) instances: u32,
    pub(crate) back: Back,
    /// When its mysqld thawed last.
    pub(crate) thawed: u64,
}

impl Host {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        Self {
            up: true,
            zookeeper_cut: false,
            network_cut: false,
            boot: 1,
            offset: chance.between(1, 1_000_000),
            // Two clocks differ by less than the 2 % that a lease allows for.
            rate: i64::try_from(chance.between(0, 18_000)).unwrap() - 9_000,
            managed: false,
            fenced: None,
            fence_begun: false,
            fenced_by_hand: false,
            lease_file: None,
            told: Told::default(),
            instances: 1,
            back: Back::default(),
            thawed: 0,
        }
    }
}
