//! What a step decides.

use std::time::Duration;

use super::action::{Action, MysqlAction, Op, Purpose, Write};
use super::memory::PauseTerm;
use super::reason::Reason;
use super::records::Role;
use super::time::Moment;

/// The result of a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Why, as a code.
    pub reason: Reason,
    /// Why, in words for the operator.
    pub detail: String,
    /// What the agent takes its server for.
    pub role: Role,
    /// What to do.
    pub actions: Vec<Action>,
    /// Something is under way whose next step may come at any moment: look again within milliseconds.
    pub urgent: bool,
}

impl Outcome {
    /// Nothing to do.
    #[must_use]
    pub fn wait(role: Role, reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into(), role, actions: Vec::new(), urgent: false }
    }

    /// Adds an action.
    #[must_use]
    pub fn act(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }

    /// Adds an action on MySQL.
    #[must_use]
    pub fn mysql(self, action: MysqlAction) -> Self {
        self.act(Action::Mysql(action))
    }

    /// Adds a transaction on ZooKeeper.
    #[must_use]
    pub fn write(self, purpose: Purpose, ops: Vec<Op>) -> Self {
        self.act(Action::Write(Write { purpose, ops }))
    }

    /// Marks that the next step may come at any moment.
    #[must_use]
    pub fn urgent(mut self) -> Self {
        self.urgent = true;
        self
    }
}

/// The decision of one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The row of the table that decided: stable, for logs and tests.
    pub row: &'static str,
    /// What it decided.
    pub outcome: Outcome,
    /// The epoch of our lease; 0 without one.
    pub epoch: u64,
    /// The heartbeat is written (a primary that is open) and not only read.
    pub heartbeat_write: bool,
    /// The lease record is to say `opened`.
    pub want_opened: bool,
    /// Our server may acknowledge, or is about to (interleaving 18: published, then `topology` read again, then done).
    pub may_acknowledge: bool,
    /// The pause that the lease record is to carry.
    pub pause: Option<PauseTerm>,
    /// P as the lease record is to carry it; none: not known at this moment, it stays.
    pub proof: Option<Duration>,
    /// Until when acknowledgements let our server take writes, whatever becomes of the lease: the later of both counts.
    pub acknowledged_until: Option<Moment>,
}
