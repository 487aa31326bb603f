//! The fencing ladder, as `src/mysql/fence.rs` climbs it, and the agent's fencing task.

use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::time::Moment;

use super::agent::BUDGET;
use super::world::World;

/// One ladder under way.
pub(crate) struct Climb {
    started: u64,
    within: u64,
    /// How long the read-only statement takes where nothing holds it up.
    takes: u64,
    /// `offline_mode` was set: once, whatever becomes of it then.
    offline: bool,
}

pub(crate) enum Climbed {
    NotYet,
    /// Read-only, or dead.
    Done,
}

/// The agent's fence under way.
pub(crate) struct Fencing {
    reason: Reason,
    climb: Climb,
    /// The lease's end when it began: renewed since, a fence for its end is not needed any more.
    until: Option<Moment>,
}

impl World {
    /// `within`: milliseconds.
    pub(crate) fn begin_climb(&mut self, i: usize, within: u64) -> Climb {
        let takes = self.more.between(10, 100);
        self.servers[i].closing = self.servers[i].answers() && !self.servers[i].super_read_only;
        Climb { started: self.t, within, takes, offline: false }
    }

    /// One look at a ladder.
    pub(crate) fn climb(&mut self, i: usize, climb: &mut Climb) -> Climbed {
        let age = self.t - climb.started;
        let server = &mut self.servers[i];
        if !server.up {
            return Climbed::Done;
        }
        if server.answers() {
            let closes = server.waiting.is_empty() && age >= climb.takes;
            if !climb.offline && (closes || age >= climb.within / 5) {
                climb.offline = true;
                server.go_offline();
            }
            if closes {
                (server.super_read_only, server.closing) = (true, false);
                return Climbed::Done;
            }
        }
        if age < climb.within * 7 / 10 {
            return Climbed::NotYet;
        }
        self.say(i, "fence: SIGKILL".into());
        self.kill_mysqld(i);
        Climbed::Done
    }

    pub(crate) fn start_fence(&mut self, i: usize, reason: Reason) {
        if self.agents[i].fencing.is_some() {
            return;
        }
        self.say(i, format!("FENCE {reason}"));
        let until = self.agents[i].deadline();
        let climb = self.begin_climb(i, BUDGET);
        let now = self.now(i);
        self.agents[i].server.fence_begins_for(reason, now);
        self.agents[i].fencing = Some(Fencing { reason, climb, until });
    }

    /// One tick of the fencing task.
    pub(crate) fn fencer(&mut self, i: usize) {
        let (t, now) = (self.t, self.now(i));
        let held = self.agents[i].deadline();
        if let Some(mut fencing) = self.agents[i].fencing.take() {
            let renewed = fencing.reason == Reason::LeaseLost && held > fencing.until;
            let age = t - fencing.climb.started;
            if renewed && age >= fencing.climb.within * 45 / 100 {
                self.say(i, "fence: the lease was renewed, not needed any more".into());
                self.servers[i].closing = false;
                self.agents[i].last_fence = Some(t);
                return;
            }
            match self.climb(i, &mut fencing.climb) {
                Climbed::NotYet => self.agents[i].fencing = Some(fencing),
                Climbed::Done => self.fenced(i, fencing.reason),
            }
            return;
        }
        let Some(until) = held else { return };
        let agent = &self.agents[i];
        let rested = agent.last_fence.is_none_or(|last| t - last > 500);
        let writable = agent.server.facts.as_ref().is_some_and(|(facts, _)| facts.writable());
        if now + agent.own.fencing_budget >= until && rested && writable {
            self.start_fence(i, Reason::LeaseLost);
        }
    }

    fn fenced(&mut self, i: usize, reason: Reason) {
        let now = self.now(i);
        self.hosts[i].fenced = Some(reason);
        let agent = &mut self.agents[i];
        agent.last_fence = Some(self.t);
        agent.server.fence_returned(reason, now);
        agent.dirty = true;
    }
}
