//! The operator edits `failover.durability` and `failover.sync_replicas` in the files of running agents, not in all at once.

use mysql_ha_agent::core::records::DurabilityMode;

use super::chance::Chance;
use super::plan::{Plan, below};
use super::world::World;

/// What the files say, and when that changes next.
pub(crate) struct Files {
    /// A sequence of its own: worlds without edits run as they would without this.
    chance: Chance,
    /// None: nobody edits anything in this world.
    next: Option<u64>,
    terms: Vec<(DurabilityMode, u32)>,
    /// The primary and one more host die then: in the middle of a change, as often as not.
    strike: Option<u64>,
}

impl Files {
    pub(crate) fn new(seed: u64, plan: &Plan) -> Self {
        let mut chance = Chance::new(seed ^ 0xF11E);
        let edits = chance.percent(40) && plan.more_faults;
        let next = edits.then(|| chance.between(4_000, 12_000));
        Self { chance, next, terms: vec![(plan.durability, plan.k); plan.hosts], strike: None }
    }
}

impl World {
    /// An agent that starts reads its file.
    pub(crate) fn read_file(&mut self, i: usize) {
        let own = &mut self.agents[i].own;
        (own.durability, own.sync_replicas) = self.files.terms[i];
    }

    /// At any moment; some agents read it at once, the others when they start next. In the end all have.
    pub(crate) fn edit_files(&mut self, last: bool) {
        let Some(due) = self.files.next else { return };
        if last {
            (0..self.plan.hosts).for_each(|i| self.read_file(i));
            self.files.next = None;
            return;
        }
        if self.files.strike.take_if(|at| *at <= self.t).is_some() {
            self.strike();
        }
        if self.t < due {
            return;
        }
        let chance = &mut self.files.chance;
        self.files.next = Some(self.t + chance.between(500, 6_000));
        let mode = if chance.percent(75) { DurabilityMode::Lossless } else { DurabilityMode::Async };
        let k = if chance.percent(50) { 2 } else { 1 };
        let all = chance.percent(70);
        let reloaded: Vec<bool> = (0..self.plan.hosts).map(|_| chance.percent(60)).collect();
        self.files.strike = chance.percent(40).then(|| self.t + chance.between(0, 600));
        for (i, reads) in reloaded.iter().copied().enumerate() {
            // An old file is left over on some host.
            if all || reads {
                self.files.terms[i] = (mode, k);
            }
            if reads {
                self.read_file(i);
            }
        }
        self.say(0, format!("--- the files say {mode} with {k}: {:?}, read by {reloaded:?}", self.files.terms));
    }

    fn strike(&mut self) {
        let Some(first) = self.primary() else { return };
        let hosts = self.plan.hosts;
        let second = (first + 1 + below(&mut self.files.chance, hosts - 1)) % hosts;
        for i in [first, second] {
            let until = self.t + self.files.chance.between(4_000, 8_000);
            self.host_dies(i, until);
            self.say(i, "--- host dies".into());
        }
    }
}
