//! The operator: pauses, resumes, fences, promotes; and what he must never see.

use mysql_ha_agent::core::action::{Op, Path, Record};
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{Lease, Pause, Progress, SwitchoverRequest};
use mysql_ha_agent::core::time::Wall;

use super::world::World;

impl World {
    /// Something an operator does at any moment.
    pub(super) fn operator(&mut self, any: usize) {
        let what = match self.chance.between(0, 5) {
            0 => {
                let for_ms = self.chance.percent(50).then(|| self.chance.between(1_000, 9_000));
                self.pause(for_ms);
                "paused"
            }
            1 => {
                self.resume();
                "resumed"
            }
            2 => {
                // The verb runs the whole ladder on the server itself.
                self.hosts[any].fenced_by_hand = true;
                "fenced by hand"
            }
            3 => {
                self.hosts.iter_mut().for_each(|host| host.fenced_by_hand = false);
                "unfenced, all"
            }
            _ => {
                self.promote_after_loss(any);
                "promote after a loss"
            }
        };
        self.say(any, format!("--- {what}"));
    }

    fn write(&mut self, path: Path, record: Record) {
        let op = match self.zk.nodes.get(&path) {
            Some(node) => Op::Set(path, record, node.version),
            None => Op::Create(path, record),
        };
        let session = self.zk.open_session(self.t);
        let _ = self.zk.transact(session, &[op]);
    }

    fn pause(&mut self, for_ms: Option<u64>) {
        let operation = format!("pause{}", self.operation());
        let pause = Pause { operation, at: Wall::default(), for_ms, reason: String::new() };
        self.write(Path::Pause, Record::Pause(pause));
    }

    pub(super) fn resume(&mut self) {
        let Some(version) = self.zk.nodes.get(&Path::Pause).map(|node| node.version) else { return };
        let session = self.zk.open_session(self.t);
        let _ = self.zk.transact(session, &[Op::Delete(Path::Pause, version)]);
    }

    /// As the verb: only where there is no primary, or its agent is gone.
    fn promote_after_loss(&mut self, to: usize) {
        let Some(topology) = self.topology() else { return };
        let (epoch, primary, last) = (topology.epoch, topology.primary.clone(), topology.last_writer.clone());
        let present = |name: &String| self.zk.nodes.contains_key(&Path::Agent(name.clone()));
        if primary.as_ref().is_some_and(present) {
            return;
        }
        let request = SwitchoverRequest {
            operation: format!("operation{}", self.operation()),
            epoch,
            from: last.unwrap_or_default(),
            to: format!("db{}", to + 1),
            timeout_ms: 3_000,
            at: Wall::default(),
            progress: Progress::Requested,
            detail: String::new(),
            after_loss: true,
            force: false,
        };
        self.write(Path::Switchover, Record::Switchover(request));
    }

    fn lease(&self) -> Option<&Lease> {
        match &self.zk.nodes.get(&Path::Lease)?.record {
            Record::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// While the lease carries a pause, no epoch begins that nobody has asked for.
    pub(super) fn what_the_operator_asked_for(&mut self) {
        let Some(lease) = self.lease() else { return };
        let carries = lease.paused.is_some() && !lease.released;
        let over = lease.ttl_ms < Lease::FOREVER_MS; // it may have run out by itself
        let epoch = lease.epoch;
        let Some(topology) = self.topology() else { return };
        let asked = [Reason::Switchover, Reason::SwitchoverUndone, Reason::PromotedByHand].contains(&topology.reason);
        let began = topology.epoch;
        if let Some(paused) = self.paused {
            assert!(began == paused || asked, "epoch {began} began by itself during a pause");
        }
        self.paused = (carries && !over && epoch == began).then_some(epoch);
    }
}
