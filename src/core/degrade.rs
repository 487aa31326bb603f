//! When `lossless` degrades to asynchronous, and when it is restored: counters fed by the acknowledgements that come and those
//! that are missing (`degrade.*`; design section 2, "Degrade and restore").
//!
//! One count for each period at the most, whatever the number of commits that wait. A success clears the failures below the
//! threshold, a failure clears the successes: what flaps does neither. While degraded nothing is acknowledged, so a success is
//! that enough members have *received* what had been executed a period ago.

use std::time::Duration;

use super::gtid::GtidSet;
use super::time::Moment;

/// `degrade.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// `degrade.check_period`, or the heartbeat's interval where that is off.
    pub period: Duration,
    /// `degrade.allow_times`; none: never degrade.
    pub times: Option<u32>,
}

/// What has been counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    failures: u32,
    /// None: nothing has failed since this process knows (a start, an adoption): nothing has to be waited for.
    successes: Option<u32>,
    /// When the present period began.
    since: Option<Moment>,
    /// What had been executed then.
    executed: GtidSet,
}

/// What is known of the acknowledgements at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// When the heartbeat was sent that came back last.
    pub acknowledged: Option<Moment>,
    /// Since when a heartbeat waits for its acknowledgement.
    pub missing: Option<Moment>,
    /// What has been executed.
    pub executed: &'a GtidSet,
}

impl Counters {
    /// Lets time pass. `received`: how many members of S that acknowledge have received a set. `enough`: how many it takes.
    pub fn observe(
        &mut self,
        policy: Policy,
        degraded: bool,
        seen: Seen<'_>,
        received: impl Fn(&GtidSet) -> bool,
        now: Moment,
    ) {
        let since = *self.since.get_or_insert(now);
        // An acknowledgement ends the row of failures at once, not only at the period's end.
        let came = seen.acknowledged.is_some_and(|sent| sent >= since) && seen.missing.is_none();
        if !degraded && came {
            self.failures = 0;
        }
        if now.since(since) < policy.period {
            return;
        }
        let failed = seen.missing.is_some_and(|sent| now.since(sent) >= policy.period);
        let succeeded = if degraded { received(&self.executed) } else { came };
        if failed || (degraded && !succeeded) {
            self.failures = self.failures.saturating_add(1);
            self.successes = Some(0);
        } else if succeeded {
            self.failures = 0;
            self.successes = self.successes.map(|successes| successes.saturating_add(1));
        }
        self.since = Some(now);
        self.executed = seen.executed.clone();
    }

    /// Enough failures in a row to degrade.
    #[must_use]
    pub fn too_many_failures(&self, policy: Policy) -> bool {
        policy.times.is_some_and(|times| self.failures >= times)
    }

    /// Enough successes in a row to let commits wait again.
    #[must_use]
    pub fn may_restore(&self, policy: Policy) -> bool {
        self.successes.is_none_or(|successes| successes >= policy.times.unwrap_or(0))
    }

    /// The cluster has just been degraded: from here on every success counts anew.
    pub fn degraded(&mut self) {
        (self.failures, self.successes) = (0, Some(0));
    }

    /// For people: failures, successes in a row.
    #[must_use]
    pub fn in_a_row(&self) -> (u32, u32) {
        (self.failures, self.successes.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy { period: Duration::from_secs(2), times: Some(3) };

    fn at(ms: u64) -> Moment {
        Moment(0) + Duration::from_millis(ms)
    }

    /// Periods one after another: `true` an acknowledgement came, `false` it is missing since the period's beginning.
    fn run(counters: &mut Counters, degraded: bool, from: u64, periods: &[bool]) -> u64 {
        let mut now = from;
        for ok in periods {
            let start = now;
            for step in 0..=4 {
                now = start + step * 500;
                let seen = Seen {
                    acknowledged: Some(at(now)).filter(|_| *ok && !degraded),
                    missing: Some(at(start)).filter(|_| !*ok && !degraded),
                    executed: &GtidSet::new(),
                };
                counters.observe(POLICY, degraded, seen, |_| *ok, at(now));
            }
        }
        now
    }

    #[test]
    fn failures_count_in_a_row_and_one_success_clears_them() {
        let mut counters = Counters::default();
        let now = run(&mut counters, false, 0, &[false, false, true, false, false]);
        assert!(!counters.too_many_failures(POLICY), "{counters:?}");
        run(&mut counters, false, now, &[false]);
        assert!(counters.too_many_failures(POLICY), "{counters:?}");
        assert!(!counters.too_many_failures(Policy { times: None, ..POLICY }), "0: block and never degrade");
    }

    #[test]
    fn while_degraded_successes_count_in_a_row_and_one_failure_clears_them() {
        let mut counters = Counters::default();
        counters.degraded();
        let now = run(&mut counters, true, 0, &[true, true, false, true, true]);
        assert!(!counters.may_restore(POLICY), "{counters:?}");
        run(&mut counters, true, now, &[true]);
        assert!(counters.may_restore(POLICY), "{counters:?}");
    }

    #[test]
    fn many_commits_that_wait_are_one_failure_a_period() {
        let mut counters = Counters::default();
        run(&mut counters, false, 0, &[false]);
        assert_eq!(counters.in_a_row().0, 1);
    }

    #[test]
    fn an_adopted_primary_has_nothing_to_wait_for() {
        assert!(Counters::default().may_restore(POLICY));
    }
}
