//! The fencing ladder: which rung comes when, as shares of `fencing.budget`.
//!
//! | rung | what it does | ends at | why then |
//! | --- | --- | --- | --- |
//! | offline | `offline_mode=ON`: cuts waiting clients *without an OK*, refuses new ones | 10 % | 2 ms when it works |
//! | read-only | `super_read_only=ON`; waits for commits and locks, and stops new writes while it waits | 35 % | short statements end by themselves |
//! | kill sessions | ends what is left and holds it up, again and again, the read-only statement still waiting | 70 % | rollbacks need a moment |
//! | kill process | SIGKILL to mysqld | 100 % | the rest is for seeing it dead |
//!
//! The order is a rule: a commit that waits for a semi-sync acknowledgement must lose its client before anything can
//! make it return (interleaving 10 of the design). A rung that ends early gives its time to the next. Where the process is not known the
//! third rung has all that is left.

use std::time::Duration;

/// What a rung does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// `SET GLOBAL offline_mode=ON`.
    Offline,
    /// `SET GLOBAL super_read_only=ON`.
    ReadOnly,
    /// `KILL` for sessions that hold read-only up.
    KillSessions,
    /// SIGKILL through the pidfd.
    KillProcess,
}

impl Rung {
    /// The label in `fences_total{rung}` and in logs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Rung::Offline => "offline_mode",
            Rung::ReadOnly => "super_read_only",
            Rung::KillSessions => "kill_sessions",
            Rung::KillProcess => "kill_process",
        }
    }
}

/// One rung with the time by which it is given up, counted from the start of the fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub rung: Rung,
    /// When the next rung begins, at the latest.
    pub ends: Duration,
}

/// Rung and the share of the budget (in percent) at which it ends.
const TABLE: [(Rung, u32); 4] =
    [(Rung::Offline, 10), (Rung::ReadOnly, 35), (Rung::KillSessions, 70), (Rung::KillProcess, 100)];

/// The ladder for a budget. `process_known`: whether there is a process to kill.
#[must_use]
pub fn ladder(budget: Duration, process_known: bool) -> Vec<Step> {
    let mut steps: Vec<Step> =
        TABLE.iter().map(|&(rung, percent)| Step { rung, ends: budget * percent / 100 }).collect();
    if !process_known {
        steps.pop();
        if let Some(last) = steps.last_mut() {
            last.ends = budget;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_come_in_order_and_within_the_budget() {
        for (budget, known) in [(1000, true), (1000, false), (50, true), (0, true)] {
            let budget = Duration::from_millis(budget);
            let steps = ladder(budget, known);
            assert!(steps.is_sorted_by(|a, b| a.rung < b.rung && a.ends <= b.ends));
            assert_eq!(steps.last().map(|step| step.ends), Some(budget));
        }
    }

    #[test]
    fn clients_are_cut_before_anything_can_let_their_commits_return() {
        assert_eq!(ladder(Duration::from_secs(1), true)[0].rung, Rung::Offline);
    }

    #[test]
    fn the_process_is_killed_only_where_it_is_known() {
        let last = |known| ladder(Duration::from_secs(1), known).last().map(|step| step.rung);
        assert_eq!(last(true), Some(Rung::KillProcess));
        assert_eq!(last(false), Some(Rung::KillSessions));
    }
}
