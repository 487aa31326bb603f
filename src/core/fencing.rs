//! The fencing ladder: which rung comes when, as shares of `fencing.budget`.
//!
//! | rung | what it does | ends at | why then |
//! | --- | --- | --- | --- |
//! | read-only | `super_read_only=ON`; waits for commits and locks, and stops new writes from its first moment | 20 % | commits under way get the acknowledgements that are due |
//! | offline | `offline_mode=ON`: cuts waiting clients *without an OK*, refuses new ones; the read-only statement still waits | 45 % | 2 ms when it works, then their locks go |
//! | kill sessions | ends what is left and holds it up, again and again | 70 % | rollbacks need a moment |
//! | kill process | SIGKILL to mysqld | 100 % | the rest is for seeing it dead |
//!
//! Read-only comes first, because offline cuts the replicas off too: a commit that was under way then waits for an
//! acknowledgement that never comes, holds read-only up, and costs a healthy mysqld its life; on a busy primary nearly every
//! fence ended so (seen on 9.7). Nothing is lost by it: read-only lets no commit return that is not acknowledged, it only waits.
//! What follows keeps its order as a rule: a commit that waits must lose its client before anything can make
//! it return (interleaving 10 of the design). A rung that ends early gives its time to the next. Where the process is
//! not known the third rung has all that is left.

use std::time::Duration;

use super::time::Moment;

/// What a rung does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rung {
    /// `SET GLOBAL super_read_only=ON`.
    ReadOnly,
    /// `SET GLOBAL offline_mode=ON`.
    Offline,
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
    [(Rung::ReadOnly, 20), (Rung::Offline, 45), (Rung::KillSessions, 70), (Rung::KillProcess, 100)];

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

/// The longest ladder once the lease has ended: a frozen host is fenced within a second of thawing (promise 1).
const OVERDUE: Duration = Duration::from_millis(900);
/// The shortest ladder before the lease's end: a fence that began late must still give its rungs a chance.
const SHORTEST: Duration = Duration::from_millis(300);

/// How long a fence that starts `now` may take: what is left of a lease that ends at `until`, `budget` at the most. Past
/// the end another server may be open already, so that the rungs become short.
#[must_use]
pub fn time_for(budget: Duration, until: Option<Moment>, now: Moment) -> Duration {
    match until.map(|until| until.until(now)) {
        None => budget.min(OVERDUE),
        Some(left) if left.is_zero() => budget.min(OVERDUE),
        Some(left) => left.max(SHORTEST).min(budget),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_takes_what_is_left_of_the_lease_and_never_more_than_a_second_after_it() {
        let ms = Duration::from_millis;
        let at = |ms: u64| Moment(ms * 1_000_000);
        for (budget, until, now, expected) in [
            (1000, Some(at(9000)), 8000, 1000), // on time
            (1000, Some(at(9000)), 2000, 1000), // early: by order
            (1000, Some(at(9000)), 8300, 700),  // late
            (1000, Some(at(9000)), 8990, 300),
            (1000, Some(at(9000)), 9000, 900), // thawed
            (5000, Some(at(9000)), 99_000, 900),
            (5000, None, 99_000, 900),
            (200, Some(at(9000)), 8990, 200),
        ] {
            assert_eq!(time_for(ms(budget), until, at(now)), ms(expected), "{budget} {until:?} {now}");
        }
    }

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
    fn commits_under_way_end_first_and_clients_are_cut_before_any_is_killed() {
        let rungs: Vec<Rung> = ladder(Duration::from_secs(1), true).iter().map(|step| step.rung).collect();
        assert_eq!(rungs, [Rung::ReadOnly, Rung::Offline, Rung::KillSessions, Rung::KillProcess]);
    }

    #[test]
    fn the_process_is_killed_only_where_it_is_known() {
        let last = |known| ladder(Duration::from_secs(1), known).last().map(|step| step.rung);
        assert_eq!(last(true), Some(Rung::KillProcess));
        assert_eq!(last(false), Some(Rung::KillSessions));
    }
}
