//! What happens, where and when: decided by the seed alone, so that a run can be repeated.
//!
//! A plan is a list of rounds; each begins and ends at rest. Where a fault strikes is a place (*the primary* at the moment
//! of the fault, or a host by its number): who is the primary depends on the machine's timing, the plan does not.

use std::fmt;
use std::time::Duration;

use super::chance::Chance;
use crate::support::{Kind, Way};

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// SIGKILL, and started again afterwards.
    Kill(Kind),
    /// SIGSTOP, and SIGCONT afterwards.
    Freeze(Kind),
    /// SIGTERM, and started again afterwards.
    Stop(Kind),
    /// The host's power.
    KillHost,
    /// The host's virtual machine stands still.
    FreezeHost,
    /// The host's cable.
    CutHost,
    /// Between the agent of the host and ZooKeeper.
    CutZookeeper,
    /// The same, one way.
    CutZookeeperOneWay(Way),
    /// MySQL's traffic between the host and one other.
    CutMysql,
    /// The same, one way.
    CutMysqlOneWay(Way),
    /// MySQL's traffic between the host and all others.
    CutMysqlAll,
    /// `FLUSH TABLES WITH READ LOCK`.
    ReadLock,
    /// `LOCK INSTANCE FOR BACKUP`.
    InstanceLock,
    /// The connections of the host's agent, killed again and again.
    KillConnections,
    /// `promote`, to wherever the best candidate is.
    Promote,
    /// All ZooKeeper members stand still.
    FreezeEnsemble,
}

impl What {
    /// The kind's name, for the figures at the end.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Kill(kind) => format!("kill {kind:?}").to_lowercase(),
            Self::Freeze(kind) => format!("freeze {kind:?}").to_lowercase(),
            Self::Stop(kind) => format!("stop {kind:?}").to_lowercase(),
            Self::KillHost => "kill host".into(),
            Self::FreezeHost => "freeze host".into(),
            Self::CutHost => "cut host".into(),
            Self::CutZookeeper => "cut zookeeper".into(),
            Self::CutZookeeperOneWay(way) => format!("cut zookeeper {way:?}").to_lowercase(),
            Self::CutMysql => "cut mysql".into(),
            Self::CutMysqlOneWay(way) => format!("cut mysql {way:?}").to_lowercase(),
            Self::CutMysqlAll => "cut mysql from all".into(),
            Self::ReadLock => "read lock".into(),
            Self::InstanceLock => "instance lock".into(),
            Self::KillConnections => "kill connections".into(),
            Self::Promote => "promote".into(),
            Self::FreezeEnsemble => "freeze ensemble".into(),
        }
    }
}

/// Where it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// On the host of the primary, or of the last one.
    Primary,
    /// On db`n`.
    Host(u8),
}

/// One fault.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// What.
    pub(crate) what: What,
    /// Where.
    pub(crate) place: Place,
    /// The other end of a partial partition: this many hosts further.
    pub(crate) peer: u8,
    /// When, from the round's beginning.
    pub(crate) after: Duration,
    /// For how long.
    pub(crate) length: Duration,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Primary => "the primary".to_owned(),
            Place::Host(number) => format!("db{number}"),
        };
        let name = self.what.name();
        write!(out, "{name} at {place}, {:.1} s from {:.1} s", self.length.as_secs_f64(), self.after.as_secs_f64())
    }
}

/// A round's faults.
pub(crate) type Round = Vec<Fault>;

/// The plan of a seed, round by round.
pub(crate) struct Plan {
    chance: Chance,
    hosts: u8,
    guards: bool,
}

impl Plan {
    /// The plan for so many hosts. `guards`: each has a guard, which faults can strike too.
    pub(crate) fn new(seed: u64, hosts: u8, guards: bool) -> Self {
        Self { chance: Chance::new(seed), hosts, guards }
    }

    /// The next round: one fault as a rule, several at once now and then.
    pub(crate) fn round(&mut self) -> Round {
        let count = match self.chance.between(0, 10) {
            0..=5 => 1,
            6..=7 => 2,
            _ => 3,
        };
        let mut round: Round = Vec::new();
        while round.len() < count {
            let fault = self.fault(round.is_empty());
            // Twice the same at one place is one.
            if !round.iter().any(|other| other.what == fault.what && other.place == fault.place) {
                round.push(fault);
            }
        }
        round
    }

    fn fault(&mut self, first: bool) -> Fault {
        let what = self.what();
        let place = match self.chance.percent(60) {
            true => Place::Primary,
            false => Place::Host(1 + self.small(self.hosts)),
        };
        let after = if first { 0 } else { self.chance.between(0, 4000) };
        // Shorter than a session's timeout, about as long, and much longer (it is 3 s).
        let length = match self.chance.between(0, 3) {
            0 => self.chance.between(100, 2000),
            1 => self.chance.between(2000, 5000),
            _ => self.chance.between(5000, 10_000),
        };
        let ms = Duration::from_millis;
        Fault { what, place, peer: 1 + self.small(self.hosts - 1), after: ms(after), length: ms(length) }
    }

    fn small(&mut self, below: u8) -> u8 {
        u8::try_from(self.chance.between(0, u64::from(below))).expect("below 256")
    }

    fn what(&mut self) -> What {
        let way = if self.chance.percent(50) { Way::In } else { Way::Out };
        let program = match self.chance.between(0, 10) {
            0..=3 => Kind::Mysqld,
            4..=6 => Kind::Agent,
            7 if self.guards => Kind::Guard,
            _ => Kind::Zookeeper,
        };
        match self.chance.between(0, 100) {
            0..=21 => What::Kill(program),
            22..=36 => What::Freeze(program),
            37..=41 => What::Stop(Kind::Agent),
            42..=47 => What::KillHost,
            48..=54 => What::FreezeHost,
            55..=59 => What::CutHost,
            60..=65 => What::CutZookeeper,
            66..=69 => What::CutZookeeperOneWay(way),
            70..=73 => What::CutMysql,
            74..=76 => What::CutMysqlOneWay(way),
            77..=79 => What::CutMysqlAll,
            80..=82 => What::ReadLock,
            83..=84 => What::InstanceLock,
            85..=87 => What::KillConnections,
            88..=97 => What::Promote,
            _ => What::FreezeEnsemble,
        }
    }
}
