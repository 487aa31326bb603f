//! The operator: pauses, resumes, fences, switches, promotes.

use mysql_ha_agent::core::action::{Op, Path, Record};
use mysql_ha_agent::core::records::{Pause, Progress, SwitchoverRequest};
use mysql_ha_agent::core::time::Wall;

use super::plan::below;
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
        let force = self.plan.force && self.more.percent(50);
        if force {
            self.say(to, "--- with --allow-data-loss".into());
        }
        let request =
            SwitchoverRequest { after_loss: true, force, ..self.request(epoch, last.unwrap_or_default(), to) };
        self.write(Path::Switchover, Record::Switchover(request));
    }

    pub(super) fn ask_for_a_switch(&mut self, to: usize) {
        let Some(topology) = self.topology().filter(|_| !self.outages.lasts()) else { return };
        let Some(from) = topology.primary.clone() else { return };
        let epoch = topology.epoch;
        let request = self.request(epoch, from, to);
        self.write(Path::Switchover, Record::Switchover(request));
    }

    fn request(&mut self, epoch: u64, from: String, to: usize) -> SwitchoverRequest {
        SwitchoverRequest {
            operation: format!("operation{}", self.operation()),
            epoch,
            from,
            to: format!("db{}", to + 1),
            timeout_ms: 3_000,
            at: Wall::default(),
            progress: Progress::Requested,
            detail: String::new(),
            after_loss: false,
            force: false,
        }
    }

    fn operation(&mut self) -> u32 {
        self.operations += 1;
        self.operations
    }

    /// Where an agent waits to be told, somebody comes in the end.
    pub(super) fn operator_watches(&mut self) {
        if !self.plan.waits_for_operator() || self.t < self.operator_looks {
            return;
        }
        self.operator_looks = self.t + 1_000;
        if self.topology().is_some_and(|topology| topology.primary.is_none()) {
            // Longer than a request is valid, so that each is tried.
            self.operator_looks = self.t + 4_000;
            let to = below(&mut self.more, self.plan.hosts);
            self.say(to, "--- promote, since nobody takes writes".into());
            self.promote_after_loss(to);
        }
    }
}
