//! The agent's side of ZooKeeper: connection, calls whose answers may be lost, and the lease as `LeaseKeeper` holds it.

use std::time::Duration;

use mysql_ha_agent::core::action::{Op, Path, Record};
use mysql_ha_agent::core::records::{Lease, Sent};
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::core::timing::lease_length;
use mysql_ha_agent::core::view::Held;

use super::agent::{Agent, OP_TIMEOUT, RENEW};
use super::ensemble::{GRANTED, Refused};
use super::world::World;

#[derive(Clone)]
pub(crate) struct Attempt {
    record: Lease,
    sent: Moment,
    session: i64,
}

impl Attempt {
    fn until(&self) -> Moment {
        self.sent + lease_length(Duration::from_millis(self.record.ttl_ms))
    }
}

pub(crate) struct Hold {
    last: Attempt,
    version: i32,
    pending: Option<Attempt>,
}

#[derive(Default)]
pub(crate) struct Keeper {
    hold: Option<Hold>,
    /// As the core and the fencing task see it.
    pub(crate) held: Option<Held>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Renewal,
    Lane,
    /// Its caller has given it up; it may land all the same.
    Forgotten,
}

/// A transaction under way.
pub(crate) struct Call {
    purpose: Purpose,
    session: i64,
    ops: Vec<Op>,
    apply_at: u64,
    reply_at: u64,
    deadline: u64,
    lost: bool,
    result: Option<Result<(), Refused>>,
    /// What it writes into `lease`, and as which version.
    lease: Option<(Attempt, i32)>,
}

enum Settled {
    Ours,
    Lost,
    Unknown,
}

impl Keeper {
    fn publish(&mut self) {
        self.held = self.hold.as_ref().map(|hold| {
            // As the real keeper: from sending a shorter lease on nobody relies on more.
            let pending = hold.pending.as_ref().map_or(hold.last.until(), Attempt::until);
            Held {
                epoch: hold.last.record.epoch,
                until: hold.last.until().min(pending),
                opened: hold.last.record.opened,
                inherited: false,
                proof: Duration::from_millis(hold.pending.as_ref().map_or(hold.last.record.proof_ms, |pending| {
                    hold.last.record.proof_ms.min(pending.record.proof_ms)
                })),
            }
        });
    }
}

fn lease_of(ops: &[Op]) -> Option<&Lease> {
    ops.iter().find_map(|op| match op {
        Op::Set(Path::Lease, Record::Lease(lease), _) | Op::Create(Path::Lease, Record::Lease(lease)) => Some(lease),
        _ => None,
    })
}

impl World {
    /// The connection: made, lost, its session kept alive; the view read again after changes.
    pub(crate) fn link(&mut self, i: usize) {
        let (t, now) = (self.t, self.now(i));
        let up = self.hosts[i].up && !self.without_zookeeper(i);
        if up {
            if !self.agents[i].connected {
                let known = self.agents[i].session.filter(|id| self.zk.sessions.contains_key(id));
                let id = known.unwrap_or_else(|| self.zk.open_session(t));
                let agent = &mut self.agents[i];
                // A member that the session has left takes nothing more from it.
                agent.calls.retain(|call| call.purpose != Purpose::Forgotten);
                (agent.session, agent.connected, agent.since) = (Some(id), true, now);
                agent.ensemble.session = agent.session_state();
                agent.ensemble.complete = false;
                agent.refresh_at = Some(t + 20);
                agent.dirty = true;
            }
            let agent = &mut self.agents[i];
            agent.heard = t;
            if let Some(heard) = agent.session.and_then(|id| self.zk.sessions.get_mut(&id)) {
                *heard = t;
            } else {
                agent.connected = false; // expired: the next tick opens a new one
                return;
            }
        } else if self.agents[i].connected && t - self.agents[i].heard >= OP_TIMEOUT {
            let agent = &mut self.agents[i];
            (agent.connected, agent.since) = (false, now);
            agent.ensemble.session = agent.session_state();
            agent.ensemble.complete = false;
            agent.dirty = true;
        }
        if !up || !self.agents[i].connected {
            return;
        }
        if self.agents[i].seen_revision != self.zk.revision && self.agents[i].refresh_at.is_none() {
            self.agents[i].refresh_at = Some(t + self.chance.between(0, 40));
        }
        if self.agents[i].refresh_at.is_some_and(|at| t >= at) {
            self.refresh(i);
        }
    }

    pub(crate) fn refresh(&mut self, i: usize) {
        let now = self.now(i);
        let cut = self.without_zookeeper(i);
        let agent = &mut self.agents[i];
        if !agent.connected || cut {
            agent.ensemble.complete = false;
            return;
        }
        agent.ensemble = self.zk.view(&agent.ensemble, agent.session_state(), now);
        agent.seen_revision = self.zk.revision;
        agent.refresh_at = None;
        agent.dirty = true;
    }

    fn send(&mut self, i: usize, purpose: Purpose, ops: Vec<Op>, lease: Option<(Attempt, i32)>) {
        let t = self.t;
        let slow = self.faults && self.chance.percent(2);
        let lost = self.faults && self.chance.percent(2);
        let apply_at = t + self.chance.between(1, if slow { OP_TIMEOUT * 3 } else { 20 });
        let reply_at = apply_at + self.chance.between(1, 20);
        let Some(session) = self.agents[i].session else { return };
        // One session, one connection: calls are executed in their order.
        let apply_at = self.agents[i].calls.iter().map(|call| call.apply_at).fold(apply_at, u64::max);
        let reply_at = reply_at.max(apply_at + 1);
        let deadline = t + OP_TIMEOUT;
        self.agents[i].calls.push(Call {
            purpose,
            session,
            ops,
            apply_at,
            reply_at,
            deadline,
            lost,
            result: None,
            lease,
        });
    }

    /// Calls reach ZooKeeper: also what was on its way when the network was cut or the agent froze.
    pub(crate) fn land(&mut self, i: usize) {
        for at in 0..self.agents[i].calls.len() {
            let call = &mut self.agents[i].calls[at];
            if call.result.is_none() && self.t >= call.apply_at {
                call.result = Some(self.zk.transact(call.session, &call.ops));
            }
        }
    }

    /// Answers reach the agent, or the time is over.
    pub(crate) fn answers(&mut self, i: usize) {
        let t = self.t;
        let cut = self.without_zookeeper(i) || !self.agents[i].connected;
        self.land(i);
        while let Some(at) = self.agents[i].calls.iter().position(|call| {
            let answered = call.result.is_some() && t >= call.reply_at && !cut && !call.lost;
            call.purpose != Purpose::Forgotten && (answered || t >= call.deadline)
        }) {
            let call = &mut self.agents[i].calls[at];
            let (purpose, lease) = (call.purpose, call.lease.take());
            let answered = t < call.deadline || (t >= call.reply_at && !cut && !call.lost);
            let result = call.result.clone().filter(|_| answered);
            if call.result.is_some() {
                self.agents[i].calls.remove(at);
            } else {
                call.purpose = Purpose::Forgotten;
            }
            match purpose {
                Purpose::Renewal => self.renewed(i, result),
                Purpose::Lane => self.wrote(i, result, lease),
                Purpose::Forgotten => {}
            }
            self.agents[i].dirty = true;
        }
        self.agents[i].calls.retain(|call| call.purpose != Purpose::Forgotten || call.result.is_none());
    }

    fn keeper_busy(&self, i: usize) -> bool {
        self.agents[i]
            .calls
            .iter()
            .any(|call| call.purpose == Purpose::Renewal || (call.purpose == Purpose::Lane && call.lease.is_some()))
    }

    fn read_lease(&self, i: usize) -> Option<Option<(Lease, i32)>> {
        let agent = &self.agents[i];
        if !agent.connected || self.without_zookeeper(i) || agent.calls.iter().any(|call| call.result.is_none()) {
            return None;
        }
        Some(self.zk.nodes.get(&Path::Lease).and_then(|node| match &node.record {
            Record::Lease(lease) => Some((lease.clone(), node.version)),
            _ => None,
        }))
    }

    fn settle(&mut self, i: usize) -> Settled {
        let Some((pending, version)) =
            self.agents[i].keeper.hold.as_ref().and_then(|hold| Some((hold.pending.clone()?, hold.version)))
        else {
            return Settled::Ours;
        };
        let Some(found) = self.read_lease(i) else { return Settled::Unknown };
        let name = self.agents[i].own.name.clone();
        let keeper = &mut self.agents[i].keeper;
        match found {
            Some((lease, at)) if at == version + 1 && lease == pending.record => {
                let ours = lease.name == name && !lease.released;
                keeper.took_effect();
                if ours {
                    keeper.publish();
                    return Settled::Ours;
                }
            }
            Some((_, at)) if at == version => {
                if let Some(hold) = &mut keeper.hold {
                    hold.pending = None;
                }
                keeper.publish();
                return Settled::Ours;
            }
            _ => {}
        }
        self.lose(i);
        Settled::Lost
    }

    fn lose(&mut self, i: usize) {
        self.say(i, "the lease is lost".into());
        let agent = &mut self.agents[i];
        agent.keeper.hold = None;
        agent.keeper.publish();
        agent.dirty = true;
    }

    pub(crate) fn renew(&mut self, i: usize) {
        let (t, now) = (self.t, self.now(i));
        if t < self.agents[i].next_renewal || self.keeper_busy(i) {
            return;
        }
        self.agents[i].next_renewal = t + RENEW;
        if !self.agents[i].connected || self.without_zookeeper(i) {
            return;
        }
        self.keep_name(i);
        for note in std::mem::take(&mut self.agents[i].notes) {
            let _ = self.zk.transact(self.agents[i].session.unwrap(), &note.ops);
        }
        if self.agents[i].keeper.hold.is_none() {
            return self.publish(i);
        }
        if !matches!(self.settle(i), Settled::Ours) {
            return;
        }
        let other_session =
            |agent: &Agent| agent.keeper.hold.as_ref().is_some_and(|hold| Some(hold.last.session) != agent.session);
        if other_session(&self.agents[i]) {
            return self.in_another_session(i);
        }
        let observation = Op::Set(self.own_node(i), self.observation(i), -1);
        let opened = self.agents[i].decision.as_ref().is_some_and(|decision| decision.want_opened);
        let agent = &mut self.agents[i];
        let (Some(hold), Some(session)) = (&mut agent.keeper.hold, agent.session) else { return };
        if hold.last.session != session {
            return;
        }
        let last = &hold.last.record;
        let watermark = last.watermark.union(&agent.watermark);
        // As the real keeper: opened once is opened for the whole hold.
        let opened = last.opened || opened;
        let pause = agent.decision.as_ref().and_then(|decision| decision.pause.clone());
        let granted = u64::try_from(GRANTED.as_millis()).unwrap();
        let (ttl_ms, paused) = match pause {
            Some(pause) => {
                let left = u64::try_from(pause.until.until(now).as_millis()).unwrap().min(Lease::FOREVER_MS);
                (left.max(granted), Some(pause.operation))
            }
            None => (granted, None),
        };
        let proof = agent.decision.as_ref().and_then(|decision| decision.proof);
        let proof_ms = match proof.map(|proof| u64::try_from(proof.as_millis()).unwrap()) {
            Some(wanted) if last.opened => wanted,
            Some(wanted) => wanted.max(last.proof_ms),
            None => last.proof_ms,
        };
        let sent = Some(Sent::new(&agent.own.instance, now));
        let sequence = last.sequence + 1;
        let record = Lease { sequence, opened, watermark, ttl_ms, proof_ms, paused, sent, ..last.clone() };
        let ops = vec![
            Op::Check(Path::Master, 0),
            Op::Set(Path::Lease, Record::Lease(record.clone()), hold.version),
            observation,
        ];
        hold.pending = Some(Attempt { record, sent: now, session });
        agent.keeper.publish();
        self.send(i, Purpose::Renewal, ops, None);
    }

    /// As the real keeper: whoever has taken the lease meanwhile is seen, and what we see is published beside it until then.
    fn in_another_session(&mut self, i: usize) {
        let version = self.agents[i].keeper.hold.as_ref().map(|hold| hold.version);
        match self.read_lease(i) {
            None => {}
            Some(Some((_, at))) if Some(at) == version => self.publish(i),
            Some(_) => self.lose(i),
        }
    }

    /// A new session needs its own node below `agents`; that of a former one of this host is replaced.
    fn keep_name(&mut self, i: usize) {
        let path = self.own_node(i);
        let Some(session) = self.agents[i].session else { return };
        let create = Op::Create(path.clone(), self.observation(i));
        let ops = match self.zk.nodes.get(&path) {
            Some(node) if node.owner == session => return,
            Some(node) => {
                let Record::Agent(other) = &node.record else { return };
                if other.boot_id != self.agents[i].own.boot_id {
                    return; // a dead host's: it vanishes with its session
                }
                vec![Op::Delete(path, node.version), create]
            }
            None => vec![create],
        };
        let _ = self.zk.transact(session, &ops);
    }

    fn renewed(&mut self, i: usize, result: Option<Result<(), Refused>>) {
        let keeper = &mut self.agents[i].keeper;
        match result {
            Some(Ok(())) => {
                keeper.took_effect();
                keeper.publish();
            }
            Some(Err((Path::Agent(_), _) | (_, "expired"))) => {
                if let Some(hold) = &mut keeper.hold {
                    hold.pending = None;
                }
                keeper.publish();
            }
            Some(Err(_)) => self.lose(i),
            None => {
                let _ = self.settle(i);
                self.agents[i].next_renewal = self.t + RENEW / 4;
            }
        }
    }

    /// Sends what the lane holds, once the lease's mutex is free.
    pub(crate) fn start_write(&mut self, i: usize) {
        let (t, now) = (self.t, self.now(i));
        if self.agents[i].lane_rests_until > 0 {
            if t >= self.agents[i].lane_rests_until {
                self.agents[i].lane_rests_until = 0;
                self.free_lane(i);
            }
            return;
        }
        let Some(write) = self.agents[i].lane.clone().filter(|_| !self.agents[i].lane_sent) else { return };
        let touches = lease_of(&write.ops).is_some();
        if touches && self.keeper_busy(i) {
            return;
        }
        if !self.agents[i].connected || (touches && !matches!(self.settle(i), Settled::Ours)) {
            self.agents[i].lane_rests_until = t + 50;
            return;
        }
        let mut ops = write.ops;
        let agent = &mut self.agents[i];
        let session = agent.session.unwrap_or_default();
        let mut lease = None;
        for op in &mut ops {
            match op {
                Op::Set(Path::Lease, Record::Lease(record), version) => {
                    if let Some(hold) = &agent.keeper.hold {
                        *version = hold.version;
                        record.sequence = record.sequence.max(hold.last.record.sequence + 1);
                    }
                    record.sent = Some(Sent::new(&agent.own.instance, now));
                    lease = Some((record.clone(), *version + 1));
                }
                Op::Create(Path::Lease, Record::Lease(record)) => {
                    record.sent = Some(Sent::new(&agent.own.instance, now));
                    lease = Some((record.clone(), 0));
                }
                _ => {}
            }
        }
        let creates = ops.iter().any(|op| matches!(op, Op::Create(Path::Master, _)));
        let lease = lease.map(|(record, version)| {
            if record.name != agent.own.name || record.released {
                agent.keeper.held = None;
            }
            let owner = agent.keeper.hold.as_ref().filter(|_| !creates).map_or(session, |hold| hold.last.session);
            let attempt = Attempt { record, sent: now, session: owner };
            if let Some(hold) = &mut agent.keeper.hold {
                hold.pending = Some(attempt.clone());
            }
            (attempt, version)
        });
        agent.lane_sent = true;
        self.send(i, Purpose::Lane, ops, lease);
    }

    fn wrote(&mut self, i: usize, result: Option<Result<(), Refused>>, lease: Option<(Attempt, i32)>) {
        let purpose = self.agents[i].lane.as_ref().map(|write| write.purpose);
        let mut known = result.clone();
        if let (None, Some((attempt, version))) = (&result, &lease) {
            match self.read_lease(i) {
                Some(Some((found, at))) if at == *version && found == attempt.record => known = Some(Ok(())),
                Some(Some((_, at))) if at == version - 1 => known = Some(Err((Path::Topology, "not done"))),
                Some(None) if *version == 0 => known = Some(Err((Path::Topology, "not done"))),
                _ => {}
            }
        }
        self.say(i, format!("zookeeper {purpose:?}: {known:?}{}", if result.is_none() { " (no answer)" } else { "" }));
        if let Some((attempt, version)) = lease {
            let name = self.agents[i].own.name.clone();
            let keeper = &mut self.agents[i].keeper;
            match &known {
                Some(Ok(())) => {
                    let keeps = attempt.record.name == name && !attempt.record.released;
                    keeper.hold = keeps.then_some(Hold { last: attempt, version, pending: None });
                    keeper.publish();
                }
                Some(Err((Path::Lease, _))) if keeper.hold.is_some() => self.lose(i),
                Some(Err(_)) => {
                    if let Some(hold) = &mut keeper.hold {
                        hold.pending = None;
                    }
                    keeper.publish();
                }
                None => {}
            }
        }
        if known.is_none() && self.agents[i].calls.iter().any(|call| call.result.is_none()) {
            // `sync` and the reads behind it are answered only after what was sent before them.
            self.agents[i].ensemble.complete = false;
            self.agents[i].refresh_at = Some(self.t + OP_TIMEOUT * 3);
        } else {
            self.refresh(i);
        }
        self.free_lane(i);
    }

    fn free_lane(&mut self, i: usize) {
        let agent = &mut self.agents[i];
        (agent.lane, agent.lane_sent, agent.dirty) = (None, false, true);
    }
}

impl Keeper {
    fn took_effect(&mut self) {
        if let Some(hold) = &mut self.hold
            && let Some(pending) = hold.pending.take()
        {
            hold.last = pending;
            hold.version += 1;
        }
    }
}
