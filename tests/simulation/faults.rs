//! What goes wrong, and how it comes back.

use std::time::Duration;

use mysql_ha_agent::core::fenced::Told;
use mysql_ha_agent::core::view::Held;

use super::agent::Agent;
use super::guard::Guard;
use super::plan::below;
use super::world::{TROUBLE, World};

impl World {
    pub(crate) fn trouble(&mut self) {
        self.operator_watches();
        if !self.plan.quiet {
            self.edit_files(self.t >= TROUBLE);
        }
        if self.t >= TROUBLE {
            if self.faults || std::mem::take(&mut self.plan.quiet) {
                self.no_more_trouble();
            }
            return;
        }
        if self.plan.quiet {
            return; // but rooms
        }
        if self.t >= self.next_fault {
            self.faults = true;
            if self.calm {
                return; // answers are lost and late, no more
            }
            // Nobody is away for long where the roles never rest.
            let rest = if self.plan.absences { 9_000 } else { 5_000 };
            self.next_fault = self.t + self.chance.between(200, rest);
            self.fault();
        }
        if self.plan.absences && self.t >= self.next_absence {
            self.faults = true;
            self.next_absence = self.t + self.more.between(8_000, 16_000);
            self.absence();
        }
        if self.plan.more_faults && self.t >= self.next_other_fault {
            self.faults = true;
            self.next_other_fault = self.t + self.more.between(1_000, 8_000);
            self.other_fault();
        }
        self.power_fails();
    }

    fn no_more_trouble(&mut self) {
        self.say(0, "--- no more faults".into());
        self.faults = false;
        let soon = self.t + 10;
        for host in &mut self.hosts {
            host.back.hurry(soon);
            host.fenced_by_hand = false;
        }
        self.apart = self.apart.map(|(a, b, _)| (a, b, soon));
        self.servers.iter_mut().for_each(|server| (server.slow, server.stalled) = (false, false));
        self.resume();
    }

    fn fault(&mut self) {
        let any = below(&mut self.chance, self.plan.hosts);
        let on_primary = self.chance.percent(60);
        let i = self.primary().filter(|_| on_primary).unwrap_or(any);
        let until = self.t + self.chance.between(200, 7_000);
        if self.chance.percent(15) {
            if self.outages.lasts() {
                return; // the verbs cannot reach it either
            }
            return self.operator(any);
        }
        let which = self.chance.between(0, 9);
        let what = match which {
            0 if self.agents[i].alive => {
                self.agents[i].alive = false;
                self.hosts[i].back.agent = Some(self.t + self.chance.between(100, 6_000));
                "agent crashes"
            }
            1 if self.servers[i].up => {
                self.kill_mysqld(i);
                "mysqld is killed"
            }
            2 if self.hosts[i].up => {
                self.host_dies(i, until);
                "host dies"
            }
            3 => {
                self.hosts[i].zookeeper_cut = true;
                self.hosts[i].back.network = Some(until);
                "cut off from ZooKeeper"
            }
            4 => {
                (self.hosts[i].zookeeper_cut, self.hosts[i].network_cut) = (true, true);
                self.hosts[i].back.network = Some(until);
                "host is cut off"
            }
            5 if self.servers[i].up => {
                self.servers[i].frozen = true;
                self.hosts[i].back.mysqld_thaws = Some(until);
                "mysqld freezes"
            }
            6 => {
                self.servers[i].slow = !self.servers[i].slow;
                "applier changes its speed"
            }
            _ => {
                self.ask_for_a_switch(any);
                "a switch is asked for"
            }
        };
        self.say(i, format!("--- {what}"));
    }

    /// Also one that only a guard can answer: its agent frozen.
    fn other_fault(&mut self) {
        let any = below(&mut self.more, self.plan.hosts);
        let on_primary = self.more.percent(60);
        let i = self.primary().filter(|_| on_primary).unwrap_or(any);
        if !self.hosts[i].up {
            return;
        }
        let until = self.t + self.more.between(200, 9_000);
        let what = match self.more.between(0, 6) {
            0 | 1 => {
                self.freeze_agent(i, until);
                "agent freezes"
            }
            2 => {
                self.freeze_agent(i, until);
                self.freeze_guard(i, until);
                if self.servers[i].up {
                    self.servers[i].frozen = true;
                    self.hosts[i].back.mysqld_thaws = Some(until);
                }
                "host freezes"
            }
            3 => {
                self.freeze_agent(i, until);
                self.freeze_guard(i, until);
                "agent and guard freeze"
            }
            4 if self.guards[i].alive => {
                self.guards[i].alive = false;
                self.hosts[i].back.guard = Some(until);
                "guard is killed"
            }
            _ => {
                let other = (i + 1 + below(&mut self.more, self.plan.hosts - 1)) % self.plan.hosts;
                self.apart = Some((i, other, until));
                "loses one other host"
            }
        };
        self.say(i, format!("--- {what}"));
    }

    /// Away for so long that the others may shut it out (three T and more): with its server, or that one alone goes on, or stands
    /// still and thaws before or after.
    fn absence(&mut self) {
        let any = below(&mut self.more, self.plan.hosts);
        let replica = self.more.percent(90);
        let i = if replica && self.primary() == Some(any) { (any + 1) % self.plan.hosts } else { any };
        if !self.hosts[i].up || !self.agents[i].alive {
            return;
        }
        let until = self.t + self.more.between(9_000, 20_000);
        let thaws = self.t + self.more.between(1_000, 18_000);
        let which = self.more.between(0, 5);
        let what = match which {
            0 => {
                self.host_dies(i, until);
                "host is away for long"
            }
            1 => {
                self.hosts[i].zookeeper_cut = true;
                self.hosts[i].back.network = Some(until);
                "cut off from ZooKeeper for long"
            }
            2 => {
                (self.hosts[i].zookeeper_cut, self.hosts[i].network_cut) = (true, true);
                self.hosts[i].back.network = Some(until);
                "host is cut off for long"
            }
            _ => {
                self.agents[i].alive = false;
                self.hosts[i].back.agent = Some(until);
                if which == 3 && self.servers[i].up {
                    self.servers[i].frozen = true;
                    self.hosts[i].back.mysqld_thaws = Some(thaws);
                }
                "agent is away for long"
            }
        };
        self.say(i, format!("--- {what}, until {until}"));
    }

    fn freeze_agent(&mut self, i: usize, until: u64) {
        self.agents[i].frozen = true;
        self.hosts[i].back.agent_thaws = Some(until);
    }

    fn freeze_guard(&mut self, i: usize, until: u64) {
        self.guards[i].frozen = true;
        self.hosts[i].back.guard_thaws = Some(until);
    }

    pub(crate) fn kill_mysqld(&mut self, i: usize) {
        self.servers[i].kill();
        let back = self.t + self.chance.between(300, 4_000);
        self.hosts[i].back.mysqld = Some(back);
    }

    pub(crate) fn host_dies(&mut self, i: usize, until: u64) {
        self.servers[i].kill();
        self.agents[i].alive = false;
        self.guards[i].alive = false;
        let host = &mut self.hosts[i];
        host.up = false;
        (host.lease_file, host.told) = (None, Told::default());
        host.back.host = Some(until);
        (host.back.agent, host.back.guard, host.back.mysqld) = (None, None, None);
        if let Some(power) = &mut self.power {
            let kept = power.kept(self.servers[i].relay.len());
            self.servers[i].lose_unsynced(kept);
        }
    }

    pub(crate) fn come_back(&mut self) {
        let t = self.t;
        if self.apart.is_some_and(|(.., until)| until <= t) {
            self.apart = None;
        }
        let due = |at: &mut Option<u64>| at.take_if(|at| *at <= t).is_some();
        for i in 0..self.plan.hosts {
            if due(&mut self.hosts[i].back.network) {
                (self.hosts[i].zookeeper_cut, self.hosts[i].network_cut) = (false, false);
                self.say(i, "--- connected again".into());
            }
            self.thaw(i);
            if due(&mut self.hosts[i].back.host) {
                let host = &mut self.hosts[i];
                (host.up, host.boot) = (true, host.boot + 1);
                (host.back.agent, host.back.mysqld) = (Some(t + 100), Some(t + 200));
                host.back.guard = self.plan.guards.then_some(t + 150);
                self.say(i, "--- host is back".into());
            }
            if due(&mut self.hosts[i].back.mysqld) && !self.servers[i].up {
                self.servers[i].start();
                self.say(i, "--- mysqld starts".into());
            }
            if due(&mut self.hosts[i].back.agent) && !self.agents[i].alive {
                self.start_agent(i);
                self.say(i, "--- agent starts".into());
            }
            if due(&mut self.hosts[i].back.guard) && !self.guards[i].alive {
                self.guards[i] = Guard::new(true, self.hosts[i].told.clone(), t);
                self.say(i, "--- guard starts".into());
            }
        }
    }

    fn thaw(&mut self, i: usize) {
        let t = self.t;
        let due = |at: &mut Option<u64>| at.take_if(|at| *at <= t).is_some();
        if due(&mut self.hosts[i].back.mysqld_thaws) && self.servers[i].frozen {
            (self.servers[i].frozen, self.hosts[i].thawed) = (false, t);
            self.say(i, "--- mysqld thaws".into());
        }
        if due(&mut self.hosts[i].back.agent_thaws) && self.agents[i].frozen {
            (self.agents[i].frozen, self.agents[i].since_work) = (false, t);
            self.say(i, "--- agent thaws".into());
        }
        if due(&mut self.hosts[i].back.guard_thaws) && self.guards[i].frozen {
            (self.guards[i].frozen, self.guards[i].since) = (false, t);
            self.say(i, "--- guard thaws".into());
        }
    }

    fn start_agent(&mut self, i: usize) {
        self.hosts[i].instances += 1;
        let now = self.now(i);
        let host = &self.hosts[i];
        let mut agent = Agent::new(i, host.instances, host.boot, &self.plan, self.t);
        agent.own.managed = host.managed;
        agent.server.fenced = host.fenced;
        if host.fence_begun && host.fenced.is_none() {
            agent.server.fence_begins(now);
        }
        // Kept in `state_dir`, as the reason of a fence is.
        agent.memory.opened_epoch.clone_from(&self.agents[i].memory.opened_epoch);
        agent.memory.opened_incarnation.clone_from(&self.agents[i].memory.opened_incarnation);
        let until = host.lease_file.as_ref().and_then(|lease| lease.until).filter(|until| *until > now);
        agent.inherited =
            until.map(|until| Held { epoch: 0, until, opened: true, inherited: true, proof: Duration::ZERO });
        self.agents[i] = agent;
        self.read_file(i);
    }
}
