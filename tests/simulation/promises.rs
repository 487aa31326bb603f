//! What must never be seen, and what must be seen in the end.
//!
//! `promote --allow-data-loss` gives two promises away, and no more than this is forgiven: what was acknowledged before
//! and is not on the server so promoted, also by the old primary until it hears of it; and, where that one's lease was
//! *paused*, that it takes writes until then.

use std::collections::BTreeMap;

use mysql_ha_agent::core::action::Record;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{DurabilityMode, Lease};

use super::agent::BUDGET;
use super::mysqld::Tx;
use super::world::{TROUBLE, Transactions, World, host_of};

/// What has been seen so far.
#[derive(Default)]
pub(crate) struct Seen {
    acknowledged: Transactions,
    /// S a tick ago.
    sync: Vec<String>,
    /// Under which promise each server takes writes: as recorded when it was last named.
    promised: BTreeMap<usize, DurabilityMode>,
    /// The latest epoch that began, and the latest whose primary was named.
    began: u64,
    named: u64,
    /// The lease and the floor a tick ago.
    lease: Option<Lease>,
    floor: GtidSet,
    /// By epoch: what its claimer knew to be acknowledged before.
    expected: BTreeMap<u64, GtidSet>,
    /// The epoch of the paused lease, seen a tick ago.
    paused: Option<u64>,
    /// A forced epoch has begun and nobody has been named since.
    loss_allowed: bool,
    /// The last primary, which a forced promotion went past, until it has heard of it.
    outcast: Option<Outcast>,
}

#[derive(Clone, Copy)]
struct Outcast {
    host: usize,
    /// Its lease was, so that it need not end.
    paused: bool,
}

impl Seen {
    pub(crate) fn acknowledged(&mut self, by: usize, tx: Tx) {
        // `async` promises nothing for what an old primary takes after another was promoted.
        let kept = self.promised.get(&by) != Some(&DurabilityMode::Async);
        if kept && self.outcast.is_none_or(|outcast| outcast.host != by) {
            self.acknowledged.insert(tx);
        }
    }
}

impl World {
    pub(crate) fn check(&mut self) {
        self.epochs();
        self.count_shut_out();
        self.outcast();
        if let Some((p, mode)) = self.primary().zip(self.topology().map(|topology| topology.durability.mode)) {
            self.seen.promised.insert(p, mode);
        }
        let forgiven = self.seen.outcast.filter(|outcast| outcast.paused).map(|outcast| outcast.host);
        let writable: Vec<usize> = (0..self.plan.hosts)
            .filter(|i| self.servers[*i].accepts() && self.is_watched(*i) && forgiven != Some(*i))
            .collect();
        assert!(writable.len() < 2, "two servers take writes at once: {writable:?}");
        self.what_the_operator_asked_for();
        if self.calm {
            self.nothing_happens();
        }
        if self.topology().is_none() {
            return;
        }
        for i in writable {
            let over = self.lease_until(i).is_none_or(|until| self.now(i) >= until);
            let fencing = self.agents[i].fencing.is_some() || self.guards[i].fences();
            assert!(!over || fencing, "db{} takes writes without a lease", i + 1);
        }
        if self.primary().is_none() && self.seen.named == self.seen.began {
            // Named, lost again, and perhaps without the moment that its history takes: who comes back knows nothing of it.
            self.seen.expected.remove(&self.seen.began);
        }
        if let Some(p) = self.primary().filter(|_| self.seen.began > self.seen.named) {
            self.seen.named = self.seen.began;
            self.promotions += 1;
            if std::mem::take(&mut self.seen.loss_allowed) {
                let executed = &self.servers[p].executed.all;
                self.seen.acknowledged.retain(|tx| executed.contains(tx));
            }
            self.nothing_lost(p);
        }
    }

    /// Somebody on this host has looked after its server for long enough. An agent that has just come back finds what its
    /// dead predecessor left, and needs a moment to fence it; a server that was frozen is fenced within a second of
    /// thawing (contract, promise 1).
    fn is_watched(&self, i: usize) -> bool {
        let long = |since: u64| self.t - since.max(self.hosts[i].thawed) > 2 * BUDGET;
        let (agent, guard) = (&self.agents[i], &self.guards[i]);
        (agent.works() && long(agent.since_work)) || (guard.looks() && long(guard.since))
    }

    /// The end of the lease as the agent knows it, or as it stands in the file where no agent works.
    fn lease_until(&self, i: usize) -> Option<mysql_ha_agent::core::time::Moment> {
        let agent = &self.agents[i];
        if agent.works() {
            return agent.deadline().or(agent.inherited.as_ref().map(|held| held.until));
        }
        self.hosts[i].lease_file.as_ref()?.until
    }

    /// Whoever acknowledges to the primary is in S as it is recorded, at that very moment.
    pub(crate) fn acknowledges_within(&self, by: usize, source: usize) {
        let Some(topology) = self.topology().filter(|_| self.primary() == Some(source)) else { return };
        let durability = &topology.durability;
        let counts = durability.mode != DurabilityMode::Lossless || durability.degraded;
        let member = durability.sync.contains(&format!("db{}", by + 1));
        assert!(counts || member, "db{} acknowledges and is not in S: {:?}", by + 1, durability.sync);
    }

    fn count_shut_out(&mut self) {
        let Some(durability) = self.topology().map(|topology| &topology.durability) else { return };
        let left = |name: &&String| !durability.sync.contains(name) && durability.shut_out.contains_key(*name);
        let (left, sync) = (self.seen.sync.iter().filter(left).count(), durability.sync.clone());
        self.shut_out += u64::try_from(left).unwrap();
        self.seen.sync = sync;
    }

    /// Notes what begins, and what was known just before.
    fn epochs(&mut self) {
        let Some(topology) = self.topology() else { return };
        let (epoch, forced, floor) = (topology.epoch, topology.forced, topology.durability.floor.clone());
        assert!(epoch >= self.seen.began, "the epoch went back from {} to {epoch}", self.seen.began);
        let lease = self.lease().cloned();
        let seen = &mut self.seen;
        if epoch > seen.began {
            seen.began = epoch;
            if let Some(before) = &seen.lease {
                seen.expected.insert(epoch, before.watermark.union(&seen.floor));
            }
            if forced == Some(epoch) {
                seen.loss_allowed = true;
                let before = seen.lease.as_ref().filter(|lease| !lease.released);
                seen.outcast =
                    before.map(|lease| Outcast { host: host_of(&lease.name), paused: lease.paused.is_some() });
            }
        }
        (seen.lease, seen.floor) = (lease, floor);
    }

    /// It has heard of it once it holds the role again or follows who does.
    fn outcast(&mut self) {
        let Some(Outcast { host: i, .. }) = self.seen.outcast else { return };
        let primary = self.primary();
        let follows = self.servers[i].channel.as_ref().is_some_and(|channel| Some(channel.source) == primary);
        if primary == Some(i) || (follows && self.servers[i].super_read_only) {
            self.seen.outcast = None;
        }
    }

    fn nothing_lost(&mut self, i: usize) {
        let server = &self.servers[i];
        // What is in force counts, not what a file says.
        if self.topology().is_some_and(|topology| topology.durability.mode == DurabilityMode::Async) {
            let kept: Transactions = self.seen.acknowledged.intersection(&server.executed.all).copied().collect();
            self.seen.acknowledged = kept;
            return;
        }
        let lost: Vec<_> = self.seen.acknowledged.iter().filter(|tx| !server.executed.all.contains(tx)).collect();
        assert!(lost.is_empty(), "acknowledged and not on the new primary db{}: {lost:?}", i + 1);
    }

    /// What a promotion lost, as far as anybody could know, stands in its history (promise 3).
    fn losses_are_listed(&self) {
        for node in self.zk.nodes.values() {
            let Record::History(history) = &node.record else { continue };
            let Some(expected) = self.seen.expected.get(&history.epoch) else { continue };
            let unlisted = expected.subtract(&history.executed).subtract(&history.lost);
            assert!(unlisted.is_empty(), "epoch {}: {unlisted} was lost and is not listed", history.epoch);
        }
    }

    /// While the lease carries a pause, no epoch begins that nobody has asked for.
    fn what_the_operator_asked_for(&mut self) {
        let Some(lease) = self.lease() else { return };
        let carries = lease.paused.is_some() && !lease.released;
        let over = lease.ttl_ms < Lease::FOREVER_MS; // it may have run out by itself
        let epoch = lease.epoch;
        let Some(topology) = self.topology() else { return };
        let by_hand = [Reason::Switchover, Reason::SwitchoverUndone, Reason::PromotedByHand, Reason::Forced];
        let asked = by_hand.contains(&topology.reason);
        let began = topology.epoch;
        if let Some(paused) = self.seen.paused {
            assert!(began == paused || asked, "epoch {began} began by itself during a pause");
        }
        self.seen.paused = (carries && !over && epoch == began).then_some(epoch);
    }

    /// One primary, all others follow it, except what holds transactions of its own.
    pub(crate) fn healed(&mut self) -> bool {
        if self.t < TROUBLE || self.faults {
            return false;
        }
        let Some(p) = self.primary().filter(|p| self.servers[*p].accepts()) else { return false };
        let follows = |i: usize| {
            let server = &self.servers[i];
            let named = !self.agents[i].server.errant.is_empty();
            // Received and not applied (its applier stands still) counts as held.
            let held = server.executed.all.union(&server.retrieved.all);
            let extra = held.into_iter().any(|tx| !self.servers[p].executed.all.contains(tx));
            let channel = server.channel.as_ref();
            let runs = channel.is_some_and(|channel| channel.source == p && channel.connected && channel.sql);
            let caught_up = server.executed.all.len() + 5 >= self.servers[p].executed.all.len();
            server.super_read_only && ((runs && caught_up && !named) || (named && extra))
        };
        let healed = (0..self.plan.hosts).all(|i| i == p || follows(i));
        if healed {
            self.nothing_lost(p);
            self.losses_are_listed();
        }
        healed
    }
}
