//! The arithmetic of the lease: how long it lasts, and whether the intervals of the configuration fit into it.
//!
//! Contract, section 1: `renew_interval + 3 × op_timeout + fencing.budget + drift ≤ T`. In words: a renewal may be due
//! just after the last one (`renew_interval`), may then lose three calls to a silent connection (`3 × op_timeout`: the
//! call itself, the next member, the one after), and there must still be time to make the server read-only
//! (`fencing.budget`) by a clock that runs two per cent slow (`drift`).

use std::fmt;
use std::time::Duration;

/// How many calls may time out in a row before a healthy primary loses its lease.
const LOST_CALLS: u32 = 3;

/// The part of `session_timeout` by which two clocks may drift apart while it passes: 2 %.
#[must_use]
pub fn drift(session_timeout: Duration) -> Duration {
    session_timeout / 50
}

/// How long a lease lasts, counted from the moment its last acknowledged renewal was *sent*: `T − drift`.
///
/// Counted from sending, since the others count `T` from when they *see* that renewal, which is later.
#[must_use]
pub fn lease_length(session_timeout: Duration) -> Duration {
    session_timeout.saturating_sub(drift(session_timeout))
}

/// The four lengths that must fit together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// `T`: the session timeout that the ensemble granted (before there is a session: the one asked for).
    pub session_timeout: Duration,
    /// `zookeeper.renew_interval`.
    pub renew_interval: Duration,
    /// `zookeeper.op_timeout`.
    pub op_timeout: Duration,
    /// `fencing.budget`.
    pub fencing_budget: Duration,
}

impl Timing {
    /// The left side of the inequality: what must fit into `T`.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.without_drift().saturating_add(drift(self.session_timeout))
    }

    /// Checks the inequality.
    ///
    /// # Errors
    /// The fault prints the whole sum and the keys that mend it.
    pub fn check(&self) -> Result<(), TimingFault> {
        if self.sum() <= self.session_timeout { Ok(()) } else { Err(TimingFault { timing: *self }) }
    }

    fn without_drift(&self) -> Duration {
        self.renew_interval
            .saturating_add(self.op_timeout.saturating_mul(LOST_CALLS))
            .saturating_add(self.fencing_budget)
    }

    /// The shortest session timeout that the other lengths fit into, in whole milliseconds.
    fn shortest_session(&self) -> Duration {
        // drift grows with T: T − T/50 ≥ rest, so T ≥ rest × 50/49.
        millis_up(self.without_drift().saturating_mul(50) / 49)
    }

    /// The longest `op_timeout` that fits with the other lengths as they are, in whole milliseconds.
    fn longest_op_timeout(&self) -> Option<Duration> {
        let fixed = self.renew_interval.checked_add(self.fencing_budget)?;
        let left = lease_length(self.session_timeout).checked_sub(fixed)?;
        let longest = Duration::from_millis(u64::try_from((left / LOST_CALLS).as_millis()).ok()?);
        (!longest.is_zero()).then_some(longest)
    }
}

/// The timing does not fit into the session timeout. Its `Display` is the sum; [`TimingFault::mend`] says what to change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimingFault {
    /// The lengths that do not fit.
    pub timing: Timing,
}

impl TimingFault {
    /// The sum as the operator wrote its parts, and the limit that it breaks.
    #[must_use]
    pub fn what(&self) -> String {
        let t = &self.timing;
        format!(
            "renew_interval {} + {LOST_CALLS} × op_timeout {} + fencing.budget {} + drift {} = {} > T {}",
            Seconds(t.renew_interval),
            Seconds(t.op_timeout),
            Seconds(t.fencing_budget),
            Seconds(drift(t.session_timeout)),
            Seconds(t.sum()),
            Seconds(t.session_timeout),
        )
    }

    /// Which key to change, and to what.
    #[must_use]
    pub fn mend(&self) -> String {
        let raise = format!("raise zookeeper.session_timeout to at least {}", Millis(self.timing.shortest_session()));
        match self.timing.longest_op_timeout() {
            Some(longest) => format!("lower zookeeper.op_timeout to at most {}, or {raise}", Millis(longest)),
            None => format!("{raise}, or lower zookeeper.renew_interval or fencing.budget"),
        }
    }
}

impl fmt::Display for TimingFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what(), self.mend())
    }
}

impl std::error::Error for TimingFault {}

/// Seconds as people read them in a sum: `1s`, `1.2s`.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

/// A length as it can be copied into the file: whole milliseconds.
struct Millis(Duration);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0.as_millis())
    }
}

fn millis_up(length: Duration) -> Duration {
    let nanos_over = length.subsec_nanos() % 1_000_000;
    if nanos_over == 0 {
        length
    } else {
        length.saturating_add(Duration::from_nanos(u64::from(1_000_000 - nanos_over)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn defaults() -> Timing {
        Timing { session_timeout: ms(10_000), renew_interval: ms(1000), op_timeout: ms(1200), fencing_budget: ms(1000) }
    }

    #[test]
    fn the_defaults_fit_as_the_contract_says() {
        assert_eq!(defaults().sum(), ms(5800));
        assert_eq!(defaults().check(), Ok(()));
        assert_eq!(lease_length(ms(10_000)), ms(9800));
    }

    #[test]
    fn exactly_full_fits_and_one_millisecond_more_does_not() {
        // 1000 + 3 × 1200 + 300 + 100 = 5000
        let full = Timing { session_timeout: ms(5000), fencing_budget: ms(300), ..defaults() };
        assert_eq!(full.check(), Ok(()));
        let over = Timing { fencing_budget: ms(301), ..full };
        assert_eq!(over.check(), Err(TimingFault { timing: over }));
    }

    #[test]
    fn the_fault_prints_the_sum_and_mends_that_work() {
        let short = Timing { session_timeout: ms(5000), ..defaults() };
        assert_eq!(
            short.check().unwrap_err().to_string(),
            "renew_interval 1s + 3 × op_timeout 1.2s + fencing.budget 1s + drift 0.1s = 5.7s > T 5s: \
             lower zookeeper.op_timeout to at most 966ms, or raise zookeeper.session_timeout to at least 5715ms"
        );
        for mended in [Timing { op_timeout: ms(966), ..short }, Timing { session_timeout: ms(5715), ..short }] {
            assert_eq!(mended.check(), Ok(()));
        }
        for not_quite in [Timing { op_timeout: ms(967), ..short }, Timing { session_timeout: ms(5714), ..short }] {
            assert!(not_quite.check().is_err());
        }
    }

    #[test]
    fn where_no_op_timeout_fits_another_key_is_named() {
        let hopeless = Timing { session_timeout: ms(2000), ..defaults() };
        let mend = hopeless.check().unwrap_err().mend();
        assert!(!mend.contains("op_timeout"), "{mend}");
        assert!(mend.contains("lower zookeeper.renew_interval or fencing.budget"), "{mend}");
    }

    #[test]
    fn lengths_beyond_all_measure_do_not_overflow() {
        let endless = Timing { op_timeout: Duration::MAX, ..defaults() };
        assert!(endless.check().is_err());
        assert!(!endless.check().unwrap_err().to_string().is_empty());
    }
}
