//! What a load balancer may be told of this server at this moment (contract, section 4), and why not.
//!
//! Each answer is judged by the clock of the question, never by the moment of what was seen: a process that stood still wakes with
//! an old [`Sight`] in its hands, and may not say from it that its server takes writes. Three things grow old: the lease (its
//! end is compared with now, and from `until − fencing.budget` on the answer is no), the reading of the server ([`window`]), and the
//! decision loop ([`TURNS_WITHIN`]).

use std::collections::BTreeMap;
use std::time::Duration;

use super::case::Case;
use super::duration::written;
use super::outcome::Decision;
use super::reason::Reason;
use super::records::Role;
use super::time::Moment;
use super::view::{Health, Own, Process, Server, ServerFacts, View};

/// How old the decision loop's last turn may be. It turns several times a second.
pub const TURNS_WITHIN: Duration = Duration::from_secs(5);

/// What the decision loop saw and decided in its last turn.
#[derive(Debug, Clone)]
pub struct Sight {
    /// What it saw.
    pub view: View,
    /// What it decided.
    pub decision: Decision,
    /// When.
    pub at: Moment,
    /// Until when `failover.cooldown` keeps this agent from racing; none: it does not.
    pub cooldown: Option<Moment>,
}

/// Yes, or why not, in words.
pub type Verdict = Result<String, String>;

/// What a reader asks of a replica.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wish {
    /// The lag it can live with.
    pub lag: Option<Duration>,
    /// Tags that must be there with exactly this value.
    pub tags: BTreeMap<String, String>,
}

/// How old a reading may be to count as "just seen": a probe's interval, and the limits of the reading, the write beside it and
/// the look at what it waits for.
#[must_use]
pub fn window(own: &Own) -> Duration {
    own.heartbeat_interval + own.heartbeat_timeout * 3
}

/// A question to be answered: the loop's last sight, the server as it is known now (newer than in the sight), and the time.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The last turn.
    pub sight: &'a Sight,
    /// The server as its watcher has seen it since.
    pub server: &'a Server,
    /// Now.
    pub now: Moment,
}

impl<'a> Question<'a> {
    /// The view as it counts at this moment.
    #[must_use]
    pub fn case(&self) -> Case<'a> {
        Case { view: &self.sight.view, now: self.now }
    }

    fn own(&self) -> &'a Own {
        &self.sight.view.own
    }

    /// The reading, if it is fresh and its process has not exited since.
    fn just_seen(&self) -> Result<&'a ServerFacts, String> {
        if matches!(self.server.process, Process::Exited { .. }) {
            return Err("mysqld has exited".to_owned());
        }
        let (facts, asked) = self.server.facts.as_ref().ok_or("the server has not been seen yet")?;
        let age = self.now.since(*asked);
        if age > window(self.own()) {
            return Err(format!("the server was last seen {} ago", written(age)));
        }
        Ok(facts)
    }

    /// The server answers its probes.
    ///
    /// # Errors
    /// Why it does not count as answering.
    pub fn answers(&self) -> Verdict {
        self.just_seen()?;
        match &self.server.health {
            Health::Healthy => Ok("the server answers".to_owned()),
            Health::Blocked { by } => Ok(format!("the server answers; a write waits: {by}")),
            Health::Unknown => Err("the server has not answered yet".to_owned()),
            Health::Unreachable { why } | Health::Failed { why, .. } => Err(why.clone()),
        }
    }

    /// This server may and does take writes at this moment.
    ///
    /// # Errors
    /// Why not.
    pub fn takes_writes(&self) -> Verdict {
        let decision = &self.sight.decision;
        if !decision.heartbeat_write {
            return Err(decision.outcome.detail.clone());
        }
        // The lease or, with the failsafe, acknowledgements; both less the budget, in which the server is being fenced.
        if !self.case().may_write() {
            return Err("its lease has ended, or is about to".to_owned());
        }
        let facts = self.just_seen()?;
        if self.server.fence_begun.is_some() || self.server.fenced.is_some() {
            return Err("it is being made read-only".to_owned());
        }
        if let Health::Failed { why, .. } = &self.server.health {
            return Err(why.clone());
        }
        // `read_only` alone refuses clients' writes, whatever our own account may do.
        let writable = facts.writable() && !facts.read_only;
        if writable { Ok(decision.outcome.detail.clone()) } else { Err("the server is read-only".to_owned()) }
    }

    /// This server is a replica that may be read from, as `topology` would call it `READ`, and as `wish` wants it.
    ///
    /// Its IO thread may stand still: in a race every replica stops it, and reads go on meanwhile. How old what is read may be is
    /// what `lag` is for.
    ///
    /// # Errors
    /// Why not.
    pub fn replicates(&self, wish: &Wish) -> Verdict {
        let outcome = &self.sight.decision.outcome;
        // Without ZooKeeper no role is certain, and what was a replica goes on being one for those who read.
        if outcome.role != Role::Replica && outcome.reason != Reason::NoZookeeper {
            return Err(format!("its role is {}", outcome.role));
        }
        self.answers()?;
        let facts = self.just_seen()?;
        if facts.writable() || facts.offline_mode {
            return Err("the server takes writes, or is offline".to_owned());
        }
        if self.case().member().is_none() {
            return Err("this server is not recorded in topology".to_owned());
        }
        if !self.server.errant.is_empty() {
            return Err(format!("it holds transactions that the primary does not have: {}", self.server.errant));
        }
        let Some(channel) = &facts.channel else { return Err("it replicates from nobody".to_owned()) };
        if !channel.sql_running {
            return Err("its applier does not run".to_owned());
        }
        self.fits(wish)?;
        Ok(self.sight.decision.outcome.detail.clone())
    }

    /// One of both: to be read from.
    ///
    /// # Errors
    /// Why not.
    pub fn can_be_read(&self, wish: &Wish) -> Verdict {
        match self.takes_writes() {
            // A primary does not lag.
            Ok(text) => self.has_tags(wish).map(|()| text),
            Err(_) => self.replicates(wish),
        }
    }

    /// The age of the newest heartbeat that was applied; none when unknown, or on a server that does not replicate.
    #[must_use]
    pub fn lag(&self) -> Option<Duration> {
        let (facts, asked) = self.server.facts.as_ref()?;
        facts.channel.as_ref()?;
        Some(facts.heartbeat_age? + self.now.since(*asked))
    }

    fn fits(&self, wish: &Wish) -> Result<(), String> {
        if let Some(most) = wish.lag {
            match self.lag() {
                None => return Err("its lag is not known".to_owned()),
                Some(lag) if lag > most => return Err(format!("it lags {}", written(lag))),
                Some(_) => {}
            }
        }
        self.has_tags(wish)
    }

    fn has_tags(&self, wish: &Wish) -> Result<(), String> {
        let tags = &self.own().tags;
        let other = wish.tags.iter().find(|(name, value)| tags.get(*name) != Some(value));
        other.map_or(Ok(()), |(name, value)| Err(format!("its tag {name} is not {value}")))
    }

    /// The decision loop turns.
    ///
    /// # Errors
    /// Since when it does not.
    pub fn lives(&self) -> Verdict {
        let age = self.now.since(self.sight.at);
        if age <= TURNS_WITHIN {
            return Ok("the agent's loop turns".to_owned());
        }
        Err(format!("the agent's loop has not turned for {}", written(age)))
    }

    /// The agent knows what its server is.
    ///
    /// # Errors
    /// Why not.
    pub fn knows_its_role(&self) -> Verdict {
        self.lives()?;
        let outcome = &self.sight.decision.outcome;
        match outcome.role {
            Role::Unknown => Err(outcome.detail.clone()),
            role => Ok(format!("{role}: {}", outcome.detail)),
        }
    }
}
