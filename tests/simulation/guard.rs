//! The guard of a host: the shell of `src/guard` in simulated time, around `core::guard`.

use std::time::Duration;

use mysql_ha_agent::core::fenced::Told;
use mysql_ha_agent::core::guard::{Action, Answer, Ended, LeaseId, Marker, Memory, Sight, Verdict, step};
use mysql_ha_agent::core::reason::Reason;

use super::agent::BUDGET;
use super::fence::{Climb, Climbed};
use super::mysqld::uuid;
use super::world::World;

/// Between two looks, between a fence and the next look, one question's limit, and how often an idle guard uses its
/// connections: milliseconds.
const LOOK: u64 = 100;
const AGAIN: u64 = 50;
const ASK: u64 = 200;
const KEEP_OPEN: u64 = 300;

pub(crate) struct Guard {
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    /// Since when it has been looking without a break.
    pub(crate) since: u64,
    memory: Memory,
    climb: Option<(Climb, Option<LeaseId>)>,
    /// The server took no writes when the fence began.
    nothing_to_do: bool,
    /// Since when a question waits for an answer.
    asking: Option<u64>,
    next: u64,
    kept: u64,
    row: &'static str,
}

impl Guard {
    /// `told`: what its predecessor's file says.
    pub(crate) fn new(alive: bool, told: Told, now: u64) -> Self {
        let memory = Memory { told, ..Memory::default() };
        Self {
            alive,
            frozen: false,
            since: now,
            memory,
            climb: None,
            nothing_to_do: false,
            asking: None,
            next: now,
            kept: 0,
            row: "",
        }
    }

    pub(crate) fn looks(&self) -> bool {
        self.alive && !self.frozen
    }

    pub(crate) fn fences(&self) -> bool {
        self.climb.is_some()
    }
}

impl World {
    pub(crate) fn guard(&mut self, i: usize) {
        if self.guards[i].climb.is_some() {
            return self.climbs(i);
        }
        if self.t < self.guards[i].next {
            return;
        }
        let Some(verdict) = self.verdict(i) else { return };
        if verdict.row != self.guards[i].row {
            self.guards[i].row = verdict.row;
            self.say(i, format!("guard: {} {}", verdict.row, verdict.says));
        }
        let now = self.now(i);
        match verdict.action {
            Action::Fence { within, lease } => {
                // Before it and once more after it: the agent must not take this read-only for somebody else's.
                self.guards[i].memory.fence_begins(reason(lease.as_ref()), now + within);
                self.tell(i);
                let server = &self.servers[i];
                self.guards[i].nothing_to_do = !server.up || (server.super_read_only && !server.closing);
                let climb = self.begin_climb(i, u64::try_from(within.as_millis()).unwrap());
                self.guards[i].climb = Some((climb, lease));
            }
            Action::Rest(start) => {
                self.keep_open(i);
                let rest = start.map_or(LOOK, |start| u64::try_from(start.until(now).as_millis()).unwrap().min(LOOK));
                self.guards[i].next = self.t + rest.max(10);
            }
            Action::Ask => unreachable!("it was asked"),
        }
    }

    fn climbs(&mut self, i: usize) {
        let until = self.hosts[i].lease_file.as_ref().and_then(|lease| lease.until);
        let now = self.now(i);
        let budget = Duration::from_millis(BUDGET);
        if until.is_some_and(|until| now < until - budget) {
            self.say(i, "guard: a lease holds again: fences no more".into());
            self.servers[i].closing = false;
            let lease = self.guards[i].climb.take().and_then(|(_, lease)| lease);
            self.fence_ended(i, Ended::Withdrawn, lease);
            return;
        }
        let (mut climb, lease) = self.guards[i].climb.take().expect("one is under way");
        match self.climb(i, &mut climb) {
            Climbed::NotYet => self.guards[i].climb = Some((climb, lease)),
            Climbed::Done => {
                let ended = if self.guards[i].nothing_to_do { Ended::NothingToDo } else { Ended::Closed };
                self.fence_ended(i, ended, lease);
                self.guards[i].next = self.t + AGAIN;
            }
        }
    }

    fn fence_ended(&mut self, i: usize, ended: Ended, lease: Option<LeaseId>) {
        // Here, unlike in the world, the agent may have read the server at this very moment; before, since it came first.
        let now = self.now(i) + Duration::from_nanos(1);
        self.guards[i].memory.fence_ended(ended, lease, now);
        self.tell(i);
    }

    /// Its file.
    fn tell(&mut self, i: usize) {
        self.hosts[i].told.clone_from(&self.guards[i].memory.told);
    }

    /// None while a question waits for its answer.
    fn verdict(&mut self, i: usize) -> Option<Verdict> {
        let now = self.now(i);
        let marker = if self.hosts[i].managed { Marker::Of(uuid(i)) } else { Marker::Absent };
        let mut sight = Sight {
            lease: self.hosts[i].lease_file.clone(),
            marker: Marker::Unknown,
            answer: None,
            observe: false,
            budget: Duration::from_millis(BUDGET),
        };
        let first = step(&mut self.guards[i].memory.clone(), &sight, now);
        if self.guards[i].asking.is_none() && matches!(first.action, Action::Rest(_)) {
            return Some(first);
        }
        sight.marker = marker;
        if self.guards[i].asking.is_none() {
            let verdict = step(&mut self.guards[i].memory, &sight, now);
            if verdict.action != Action::Ask {
                return Some(verdict);
            }
        }
        let asked = *self.guards[i].asking.get_or_insert(self.t);
        if self.servers[i].frozen && self.t < asked + ASK {
            return None;
        }
        self.guards[i].asking = None;
        sight.answer = Some(self.asked(i));
        let verdict = step(&mut self.guards[i].memory, &sight, now);
        self.tell(i);
        Some(verdict)
    }

    fn asked(&self, i: usize) -> Answer {
        let server = &self.servers[i];
        match (server.up, server.frozen) {
            (false, _) => Answer::Down,
            (true, true) => Answer::Silent("no answer".into()),
            // As the fence's look: a read-only that still waits for commits is none.
            _ if server.super_read_only => Answer::ReadOnly { uuid: uuid(i) },
            _ => Answer::Writable { uuid: uuid(i) },
        }
    }

    /// Knows the server before it matters.
    fn keep_open(&mut self, i: usize) {
        if self.t < self.guards[i].kept + KEEP_OPEN || self.servers[i].frozen {
            return;
        }
        self.guards[i].kept = self.t;
        let sight = Sight {
            lease: self.hosts[i].lease_file.clone(),
            marker: Marker::Unknown,
            answer: Some(self.asked(i)),
            observe: false,
            budget: Duration::from_millis(BUDGET),
        };
        let now = self.now(i);
        let _ = step(&mut self.guards[i].memory, &sight, now);
        self.tell(i);
    }
}

fn reason(lease: Option<&LeaseId>) -> Reason {
    if lease.is_some() { Reason::LeaseLost } else { Reason::WritableWithoutLease }
}
