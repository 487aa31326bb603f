//! The whole ensemble is lost and comes back, with hosts and replication as they are: the failsafe (promise 7).
//!
//! In one half of the cases nobody reaches it, and the sessions expire there; in the other it stands still, and every session begins
//! anew when it goes on (a leader that was elected gives each its whole timeout).
//!
//! In a calm world nothing else goes wrong but this: in one half of the outages the primary's host is cut off from the others for a
//! moment. Its commits wait until it is over, and no longer: a replica that took it for dead hears it again.

use mysql_ha_agent::core::records::DurabilityMode;

use super::chance::Chance;
use super::world::World;

/// How old a commit of a primary that is well may become before it is acknowledged, milliseconds.
const PROMPT: u64 = 1_000;

/// How long such a moment is at the most, milliseconds: shorter than an acknowledged heartbeat proves anything (P), or the primary
/// would rightly make itself read-only.
const MOMENT: u64 = 700;

/// How long an agent may take to connect once the ensemble is back: longer than others would hold back for it if it did not go on
/// writing, milliseconds.
const FOUND_AGAIN: u64 = 1_500;

/// When outages come, and the one that is going on.
pub(crate) struct Outages {
    chance: Chance,
    next: u64,
    until: Option<u64>,
    stands_still: bool,
    /// When the primary's host is cut off, and until when.
    moment: Option<(u64, u64)>,
    moments: Chance,
    /// When each agent finds a member again: they try now and then.
    back: Vec<u64>,
    /// No agent is let in by another host's server: no fence over the network comes off, and P alone keeps two from writing.
    pub(crate) account_refused: bool,
    /// How many there have been.
    pub(crate) count: u64,
}

impl Outages {
    /// A stream of its own: the other faults of a seed stay what they are.
    pub(crate) fn new(seed: u64, often: bool, hosts: usize) -> Self {
        let mut chance = Chance::new(seed ^ 0x5EED);
        let next = match often || chance.percent(40) {
            true => chance.between(5_000, 15_000),
            false => u64::MAX,
        };
        let account_refused = chance.percent(30);
        let moments = Chance::new(seed ^ 0x40_3E27);
        let back = vec![0; hosts];
        Self { chance, account_refused, next, until: None, stands_still: false, moment: None, moments, back, count: 0 }
    }

    pub(crate) fn lasts(&self) -> bool {
        self.until.is_some()
    }

    /// No session ends while the ensemble stands still.
    pub(crate) fn stands_still(&self) -> bool {
        self.lasts() && self.stands_still
    }
}

impl World {
    /// One tick of the ensemble. `last`: no outage begins or goes on after this time.
    pub(crate) fn outages(&mut self, last: u64) {
        let t = self.t;
        let outages = &mut self.outages;
        if outages.until.is_some_and(|until| t >= until.min(last)) {
            outages.until = None;
            outages.next = t + outages.chance.between(4_000, 12_000);
            outages.back.iter_mut().for_each(|back| *back = t + outages.chance.between(0, FOUND_AGAIN));
            if outages.stands_still {
                self.zk.sessions.values_mut().for_each(|heard| *heard = t);
            }
            self.say(0, "--- the ensemble is back".into());
        } else if outages.until.is_none() && t >= outages.next && t < last {
            let length = outages.chance.between(200, 9_000);
            outages.until = Some(t + length);
            outages.stands_still = outages.chance.percent(50);
            outages.count += 1;
            let begins = t + outages.moments.between(0, length);
            let ends = begins + outages.moments.between(50, MOMENT);
            outages.moment = outages.moments.percent(50).then_some((begins, ends));
            let how = if outages.stands_still { "stands still" } else { "cannot be reached" };
            self.say(0, format!("--- the whole ensemble {how} for {length} ms"));
        }
    }

    /// One tick of the moments, in a calm world.
    pub(crate) fn moments(&mut self) {
        let t = self.t;
        let Some((begins, ends)) = self.outages.moment else { return };
        if t >= ends {
            self.outages.moment = None;
            self.hosts[0].network_cut = false;
            self.say(0, "--- its host is reached again".into());
        } else if t >= begins && !self.hosts[0].network_cut {
            self.hosts[0].network_cut = true;
            self.say(0, format!("--- its host is cut off for {} ms", ends - t));
        }
    }

    /// Whether an agent reaches no member of the ensemble.
    pub(crate) fn without_zookeeper(&self, i: usize) -> bool {
        self.hosts[i].zookeeper_cut || self.outages.lasts() || self.t < self.outages.back[i]
    }

    /// Nothing else goes wrong: no write fails or waits, and no role changes, however often ZooKeeper goes and comes.
    pub(crate) fn nothing_happens(&self) {
        let Some(topology) = self.topology().filter(|_| self.plan.durability == DurabilityMode::Lossless) else {
            return;
        };
        // Until commits wait for acknowledgements there is no failsafe.
        if topology.durability.degraded || topology.durability.sync.len() < 2 || self.t < 4_000 {
            return;
        }
        assert_eq!(topology.epoch, 1, "a role has changed");
        let primary = &self.servers[0];
        assert!(primary.accepts(), "the primary takes no writes");
        let oldest = primary.waiting.iter().map(|waiting| self.t - waiting.tx.2).max();
        assert!(oldest.is_none_or(|age| age < PROMPT + MOMENT), "a commit waits for {oldest:?} ms");
    }
}
