//! What a step derives from a view before it decides: named once, so that the rows read like the rules they are.

use std::time::Duration;

use super::failsafe;
use super::memory::Memory;
use super::records::{AgentRecord, Durability, Lease, Master, Member, Topology};
use super::time::Moment;
use super::view::{Health, Held, Process, Seen, ServerFacts, Session, View};

/// A view at a moment, with the questions that rows ask.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What was observed.
    pub view: &'a View,
    /// Now.
    pub now: Moment,
}

impl<'a> Case<'a> {
    /// Our name.
    #[must_use]
    pub fn me(&self) -> &'a str {
        &self.view.own.name
    }

    /// Since when we are connected, with everything read and our name taken in this session, and the granted T. Before
    /// the name is taken another agent may be acting under it.
    #[must_use]
    pub fn connected(&self) -> Option<(Moment, Duration)> {
        let ensemble = &self.view.ensemble;
        match ensemble.session {
            Session::Connected { since, granted, id } if ensemble.complete => {
                ensemble.agents.get(self.me()).filter(|agent| agent.owner == id).map(|_| (since, granted))
            }
            _ => None,
        }
    }

    fn session_id(&self) -> Option<i64> {
        match self.view.ensemble.session {
            Session::Connected { id, .. } => Some(id),
            Session::Lost { .. } => None,
        }
    }

    /// `topology`.
    #[must_use]
    pub fn topology(&self) -> Option<&'a Seen<Topology>> {
        self.view.ensemble.topology.here()
    }

    /// Our entry in `topology`: same name *and* same server.
    #[must_use]
    pub fn member(&self) -> Option<&'a Member> {
        let member = self.topology()?.record.members.get(self.me())?;
        match self.facts() {
            Some(facts) if facts.server_uuid != member.server_uuid => None,
            _ => Some(member),
        }
    }

    /// The last reading of our server.
    #[must_use]
    pub fn facts(&self) -> Option<&'a ServerFacts> {
        self.view.server.facts.as_ref().map(|(facts, _)| facts)
    }

    /// When that reading was asked for.
    #[must_use]
    pub fn facts_at(&self) -> Option<Moment> {
        self.view.server.facts.as_ref().map(|(_, at)| *at)
    }

    /// The last reading was asked for after the last fence had returned: it shows every commit that ended meanwhile. What
    /// is handed over or voted with must be read then.
    #[must_use]
    pub fn read_since_fence(&self) -> bool {
        self.facts_at() >= self.view.server.fenced_at
    }

    /// Our server is in the life in which we opened it, and no fence is known to have returned since: its commits may still
    /// end, whatever the variable reads.
    #[must_use]
    pub fn may_still_commit(&self, memory: &Memory) -> bool {
        let life = self.facts().map(|facts| facts.incarnation.as_str());
        life.is_some() && memory.opened_incarnation.as_deref() == life && self.view.server.fenced.is_none()
    }

    /// The process behind the socket has certainly exited.
    #[must_use]
    pub fn exited(&self) -> bool {
        matches!(self.view.server.process, Process::Exited { .. })
    }

    /// Clients can write to our server, as far as is known.
    #[must_use]
    pub fn writable(&self) -> bool {
        !self.exited() && self.facts().is_some_and(ServerFacts::writable)
    }

    /// Our server answers.
    #[must_use]
    pub fn healthy(&self) -> bool {
        matches!(self.view.server.health, Health::Healthy | Health::Blocked { .. })
            && self.facts().is_some()
            && !self.exited()
    }

    /// Our lease, while it can still be used: from `until − fencing.budget` on the server is being fenced.
    #[must_use]
    pub fn lease(&self) -> Option<&'a Held> {
        self.view.held.as_ref().filter(|held| self.now + self.view.own.fencing_budget < held.until)
    }

    /// Whether our server may take writes at this moment: under its lease, or because its replicas acknowledge (promise 7).
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.leased() || failsafe::until(self).is_some_and(|until| self.now + self.view.own.fencing_budget < until)
    }

    /// Whether it may do so under its lease alone.
    #[must_use]
    pub fn leased(&self) -> bool {
        self.lease().is_some_and(|held| {
            // An inherited lease does not know its epoch; that nobody else holds `master` is asked instead.
            let epoch_ours = |epoch: u64| {
                if held.inherited { self.others_master().is_none() } else { epoch == held.epoch }
            };
            held.opened && self.topology().is_none_or(|topology| epoch_ours(topology.record.epoch))
        })
    }

    /// `master`, where it belongs to our own session.
    #[must_use]
    pub fn own_master(&self) -> Option<&'a Seen<Master>> {
        let master = self.view.ensemble.master.here()?;
        (master.record.name == self.me() && Some(master.owner) == self.session_id()).then_some(master)
    }

    /// `master`, where a dead predecessor of ours on this boot of this host left it.
    #[must_use]
    pub fn predecessors_master(&self) -> Option<&'a Seen<Master>> {
        let own = &self.view.own;
        let master = self.view.ensemble.master.here()?;
        let record = &master.record;
        let ours = record.name == own.name && record.boot_id == own.boot_id && Some(master.owner) != self.session_id();
        ours.then_some(master)
    }

    /// `master`, where another agent holds it.
    #[must_use]
    pub fn others_master(&self) -> Option<&'a Seen<Master>> {
        self.view.ensemble.master.here().filter(|master| master.record.name != self.me())
    }

    /// `lease`.
    #[must_use]
    pub fn lease_node(&self) -> Option<&'a Seen<Lease>> {
        self.view.ensemble.lease.here()
    }

    /// Who took writes last. A holder records `opened` in the lease before it opens, and itself in `topology` only after:
    /// one that died in between has taken writes that `topology` knows nothing of, and the writer before it must not
    /// pass for the last one (found by simulation).
    #[must_use]
    pub fn last_writer(&self) -> Option<&'a str> {
        let topology = &self.topology()?.record;
        let opened =
            self.lease_node().map(|lease| &lease.record).filter(|lease| lease.opened && lease.epoch == topology.epoch);
        opened.map(|lease| lease.name.as_str()).or(topology.last_writer.as_deref())
    }

    /// What the votes of a race are counted by: `topology.durability`. An epoch that was claimed and never opened has acknowledged
    /// nothing, and all that was acknowledged before stands in its floor. So it does not matter then in which life a member holds
    /// it (interleaving 7); the last writer may have been told apart from the claimer's set, and would be waited for in vain (found
    /// by simulation).
    #[must_use]
    pub fn counted_by(&self) -> Option<Durability> {
        let topology = &self.topology()?.record;
        let mut durability = topology.durability.clone();
        let lease = self.lease_node().map(|lease| &lease.record);
        if lease.is_some_and(|lease| lease.epoch == topology.epoch && !lease.opened) && topology.primary.is_none() {
            durability.incarnations.clear();
        }
        Some(durability)
    }

    /// When the lease as it stands in ZooKeeper cannot be in use any more: T since this version was first seen here,
    /// and at once where it was released in so many words.
    #[must_use]
    pub fn lease_over_at(&self) -> Moment {
        match self.lease_node() {
            Some(lease) if lease.record.released => lease.first_seen,
            Some(lease) => lease.first_seen + Duration::from_millis(lease.record.ttl_ms),
            None => Moment(0),
        }
    }

    /// The other agents that are present.
    pub fn others(&self) -> impl Iterator<Item = &'a AgentRecord> {
        let me = self.me();
        self.view.ensemble.agents.values().map(|seen| &seen.record).filter(move |agent| agent.name != me)
    }

    /// The record of one agent.
    #[must_use]
    pub fn agent(&self, name: &str) -> Option<&'a AgentRecord> {
        self.view.ensemble.agents.get(name).map(|seen| &seen.record)
    }

    /// Whether a member certainly stands in our room (`zone`).
    #[must_use]
    pub fn in_our_room(&self, name: &str) -> bool {
        let ours = self.view.own.zone.as_ref();
        ours.is_some() && self.agent(name).is_some_and(|agent| agent.zone.as_ref() == ours)
    }

    /// Whether a member certainly stands in another room.
    #[must_use]
    pub fn in_another_room(&self, name: &str) -> bool {
        let ours = self.view.own.zone.as_ref();
        let theirs = self.agent(name).and_then(|agent| agent.zone.as_ref());
        ours.is_some() && theirs.is_some() && theirs != ours
    }

    /// Our locks in the race, lowest first, with their versions.
    pub fn own_locks(&self) -> impl Iterator<Item = (i64, &'a Seen<super::records::Vote>)> {
        let me = self.me();
        self.view
            .ensemble
            .locks
            .iter()
            .filter(move |(_, lock)| lock.record.name == me)
            .map(|(sequence, lock)| (*sequence, lock))
    }

    /// Whether another agent's healthy replica could take over.
    #[must_use]
    pub fn somebody_could_take_over(&self) -> bool {
        self.others().any(|agent| {
            super::consent::is_candidate(agent)
                && agent.server.as_ref().is_some_and(|server| server.healthy && server.errant.is_empty())
        })
    }
}
