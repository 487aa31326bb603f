//! The arithmetic that makes a lease safe: how long it lasts, and what must fit into it.
//!
//! Between two renewals that reach ZooKeeper there may lie one interval and up to three calls that run into their
//! limit (the call on a member that has just died, the connection to the next one, the call there). If all that, the
//! time for making the server read-only and the drift of clocks do not fit into T, one dead ZooKeeper member costs a
//! healthy primary its lease.

use std::fmt;
use std::time::Duration;

use super::records::Lease;
use super::time::Moment;
use super::view::Seen;

/// How many calls at their limit a renewal must survive (contract, section 1).
const SLOW_CALLS: u32 = 3;

/// The part of T that clocks of two hosts may drift apart while a lease runs: 2 %.
///
/// Crystals are off by some 0.01 %; the rest is for hosts whose clock is being slewed.
#[must_use]
pub fn drift(session_timeout: Duration) -> Duration {
    session_timeout / 50
}

/// How long the holder counts on its lease, from the moment the acknowledged renewal was *sent*: T − drift.
///
/// The others wait the whole of T from the moment they *saw* it, which is later; hence the holder ends first.
#[must_use]
pub fn lease_length(session_timeout: Duration) -> Duration {
    session_timeout.saturating_sub(drift(session_timeout))
}

/// P: how long a heartbeat that was acknowledged lets a primary write on that has lost ZooKeeper (`failover.failsafe`, see
/// [`super::failsafe`]), and how long a winner waits after its quorum was frozen. None where none fits into T: then there is no
/// failsafe.
///
/// A healthy primary must have its next proof before it fences for want of it: one interval, the reading of the server and the
/// heartbeat at their limits, the budget, the drift. Up to a third more where half of T allows it, so that one slow
/// heartbeat costs nothing. Never more than T: ensemble and replicas gone, the server is read-only within the session timeout.
#[must_use]
pub fn proof_length(
    session_timeout: Duration,
    heartbeat_interval: Duration,
    heartbeat_timeout: Duration,
    fencing_budget: Duration,
) -> Option<Duration> {
    let needed = heartbeat_interval.saturating_add(heartbeat_timeout.saturating_mul(2)).saturating_add(fencing_budget);
    // needed + P / 50 ≤ P, in whole hundredths of a second.
    let step = Duration::from_millis(10);
    let steps = (needed.saturating_mul(50) / 49).as_nanos().div_ceil(step.as_nanos());
    let least = step.saturating_mul(u32::try_from(steps).ok()?);
    let wished = (least.saturating_mul(4) / 3).min(session_timeout / 2);
    let length = Duration::from_millis(u64::try_from(least.max(wished).as_millis()).unwrap_or(u64::MAX));
    (length <= session_timeout).then_some(length)
}

/// The latest moment of our clock at which the holder can have sent `lease`: waiting out a lease counts from it.
///
/// While we watch, that is when we saw it: a version is seen a network's delay after it was sent. After a break of our own
/// sight it would be when we came back, seconds later: the ensemble's leader died together with the primary's host, a
/// renewal that only its followers had logged is seen after their election, and the replicas would wait a whole T from
/// there (measured: 5.5 s instead of 3.1 s), or, where one of two had seen it before, for each other. The version seen
/// *before* the break bounds it as well: it was sent before we saw it, and how much later this one was sent the holder's
/// own clock says, if both come from one process. Two clocks differ by at most the drift over that time, too.
///
/// Only what the first reading after a break shows (`back`): the sight of a watching agent is as good, and is right even for
/// a holder whose clock stood still (the virtual machine was paused), of which every later renewal is seen as it comes.
#[must_use]
pub fn sent_by(before: Option<&Seen<Lease>>, lease: &Lease, back: bool, seen: Moment) -> Moment {
    let Some(before) = before else { return seen };
    let (Some(earlier), Some(this)) = (&before.record.sent, &lease.sent) else { return seen };
    let one_process = before.record.name == lease.name && earlier.instance == this.instance;
    if !back || !one_process || this.at_us < earlier.at_us {
        return seen;
    }
    // Both are rounded down: they may lie a microsecond further apart.
    let between = Duration::from_micros((this.at_us - earlier.at_us).saturating_add(1));
    seen.min(before.first_seen + between + drift(between))
}

/// What has to fit into one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// T: `zookeeper.session_timeout` as asked for or, once connected, as the ensemble granted it.
    pub session_timeout: Duration,
    /// `zookeeper.renew_interval`.
    pub renew_interval: Duration,
    /// `zookeeper.op_timeout`.
    pub op_timeout: Duration,
    /// `fencing.budget`.
    pub fencing_budget: Duration,
}

impl Timing {
    /// `renew_interval + 3 × op_timeout + fencing.budget + drift`.
    #[must_use]
    pub fn sum(&self) -> Duration {
        self.without_drift().saturating_add(drift(self.session_timeout))
    }

    /// Whether the sum fits into T.
    ///
    /// # Errors
    /// [`TimingFault`] where it does not; its text holds the sum and the keys to change.
    pub fn check(&self) -> Result<(), TimingFault> {
        if self.sum() <= self.session_timeout { Ok(()) } else { Err(TimingFault { timing: *self }) }
    }

    /// The least T into which this renew interval, call limit and budget fit, in whole tenths of a second.
    #[must_use]
    pub fn least_session_timeout(&self) -> Duration {
        // sum ≤ T with drift = T / 50 means: the rest ≤ 49/50 T.
        let least = self.without_drift().saturating_mul(50) / 49;
        let step = Duration::from_millis(100);
        let steps = least.as_nanos().div_ceil(step.as_nanos());
        step.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX))
    }

    /// The largest call limit that fits into this T, in whole hundredths of a second; none where nothing fits.
    #[must_use]
    pub fn largest_op_timeout(&self) -> Option<Duration> {
        let room =
            lease_length(self.session_timeout).checked_sub(self.renew_interval)?.checked_sub(self.fencing_budget)?;
        let step = Duration::from_millis(10);
        let steps = (room / SLOW_CALLS).as_millis() / step.as_millis();
        let largest = step.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
        (!largest.is_zero()).then_some(largest)
    }

    fn without_drift(&self) -> Duration {
        self.renew_interval
            .saturating_add(self.op_timeout.saturating_mul(SLOW_CALLS))
            .saturating_add(self.fencing_budget)
    }
}

/// The sum does not fit into T.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimingFault {
    /// What was added up.
    pub timing: Timing,
}

impl TimingFault {
    /// The sum, term by term, beside T.
    #[must_use]
    pub fn what(&self) -> String {
        let t = self.timing;
        format!(
            "renew_interval {} + {SLOW_CALLS} × op_timeout {} + fencing.budget {} + drift {} = {} > T {}",
            Seconds(t.renew_interval),
            Seconds(t.op_timeout),
            Seconds(t.fencing_budget),
            Seconds(drift(t.session_timeout)),
            Seconds(t.sum()),
            Seconds(t.session_timeout),
        )
    }

    /// Which key to change, and to what, written as the file takes it.
    #[must_use]
    pub fn mend(&self) -> String {
        let raise = format!(
            "raise zookeeper.session_timeout to {}ms or more (the ensemble's maxSessionTimeout caps what is granted)",
            self.timing.least_session_timeout().as_millis(),
        );
        match self.timing.largest_op_timeout() {
            Some(largest) => {
                format!("lower zookeeper.op_timeout to {}ms or less, or {raise}", largest.as_millis())
            }
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

/// A duration in seconds with as many decimals as it needs: all terms of a sum in one unit.
struct Seconds(Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::records::Sent;

    fn timing(t: u64, renew: u64, op: u64, budget: u64) -> Timing {
        let ms = Duration::from_millis;
        Timing { session_timeout: ms(t), renew_interval: ms(renew), op_timeout: ms(op), fencing_budget: ms(budget) }
    }

    #[test]
    fn the_defaults_take_5_8_of_10_seconds() {
        let defaults = timing(10_000, 1000, 1200, 1000);
        assert_eq!(defaults.sum(), Duration::from_millis(5800));
        assert_eq!(defaults.check(), Ok(()));
        assert_eq!(lease_length(Duration::from_secs(10)), Duration::from_millis(9800));
    }

    #[test]
    fn a_fault_shows_the_whole_sum_and_both_ways_out() {
        let fault = timing(5000, 1000, 1200, 1000).check().unwrap_err();
        assert_eq!(
            fault.to_string(),
            "renew_interval 1s + 3 × op_timeout 1.2s + fencing.budget 1s + drift 0.1s = 5.7s > T 5s: \
             lower zookeeper.op_timeout to 960ms or less, or raise zookeeper.session_timeout to 5800ms or more \
             (the ensemble's maxSessionTimeout caps what is granted)"
        );
    }

    #[test]
    fn where_no_call_limit_fits_others_are_named() {
        let mend = timing(2000, 1000, 1200, 1000).check().unwrap_err().mend();
        assert!(!mend.contains("op_timeout"), "{mend}");
        assert!(mend.contains("lower zookeeper.renew_interval or fencing.budget"), "{mend}");
    }

    #[test]
    fn what_the_mend_says_mends_it() {
        for t in [3000, 3500, 5000, 5700] {
            let broken = timing(t, 1000, 1200, 1000);
            assert!(broken.check().is_err(), "{t}");
            let session = Timing { session_timeout: broken.least_session_timeout(), ..broken };
            assert_eq!(session.check(), Ok(()), "{t}");
            let calls = Timing { op_timeout: broken.largest_op_timeout().unwrap(), ..broken };
            assert_eq!(calls.check(), Ok(()), "{t}");
        }
    }

    #[test]
    fn exactly_t_fits_and_a_millisecond_more_does_not() {
        // 500 + 3 × 480 + 1000 + 60 (2 % of 3000) = 3000
        assert_eq!(timing(3000, 500, 480, 1000).check(), Ok(()));
        assert!(timing(3000, 501, 480, 1000).check().is_err());
    }

    fn lease(instance: &str, at_ms: u64) -> Lease {
        Lease {
            name: "db1".into(),
            epoch: 1,
            sequence: 1,
            ttl_ms: 3000,
            proof_ms: 0,
            opened: true,
            watermark: Default::default(),
            released: false,
            paused: None,
            sent: Some(Sent { instance: instance.into(), at_us: at_ms * 1000 }),
        }
    }

    fn ms(at: u64) -> Moment {
        Moment(at * 1_000_000)
    }

    fn seen_at(at: u64, record: Lease) -> Seen<Lease> {
        Seen { record, version: 1, owner: 0, created: 1, first_seen: ms(at) }
    }

    #[test]
    fn a_renewal_that_came_while_we_were_cut_off_counts_from_when_it_was_sent() {
        let before = seen_at(50_000, lease("a", 7000));
        let back = true;
        let by = |before, lease: &Lease, back| sent_by(before, lease, back, ms(52_600));
        // Half a second and a microsecond after the other by its holder's clock, which may be 2 % off.
        let bound = Moment(ms(50_510).0 + 1_020);
        assert_eq!(by(Some(&before), &lease("a", 7500), back), bound);
        // Never later than it was seen.
        assert_eq!(by(Some(&before), &lease("a", 9900), back), ms(52_600));
        // Nothing to measure by: another process, no mark, nothing seen before.
        assert_eq!(by(Some(&before), &lease("b", 7500), back), ms(52_600));
        assert_eq!(by(Some(&before), &Lease { name: "db2".into(), ..lease("a", 7500) }, back), ms(52_600));
        assert_eq!(by(Some(&before), &Lease { sent: None, ..lease("a", 7500) }, back), ms(52_600));
        assert_eq!(by(None, &lease("a", 7500), back), ms(52_600));
        // Watched all the while: its sight counts, even though the holder's clock (that of a machine that was paused)
        // says that it was sent earlier.
        assert_eq!(by(Some(&before), &lease("a", 7500), false), ms(52_600));
    }

    /// Waiting T from the bound outlasts the holder's T − drift from sending, at any two clocks within the assumed drift
    /// and at any distance of the two versions. Without the drift in the bound this fails from a distance of T on.
    #[test]
    fn the_holder_ends_before_whoever_waits_from_the_bound() {
        let t = Duration::from_secs(3);
        for distance in [1, 500, 3000, 60_000] {
            // The waiting clock is 2 % faster than the holder's: true time is the holder's.
            let before = seen_at(0, lease("a", 0));
            let bound = sent_by(Some(&before), &lease("a", distance), true, ms(2_000_000));
            let waited_true = (bound + t).0 as f64 / 1.02;
            let held_true = (ms(distance) + lease_length(t)).0 as f64;
            assert!(waited_true >= held_true, "{distance}: {waited_true} < {held_true}");
        }
    }

    #[test]
    fn a_proof_outlasts_a_heartbeat_at_its_limit_and_never_the_session() {
        let ms = Duration::from_millis;
        let length = |t, interval, timeout, budget| proof_length(ms(t), ms(interval), ms(timeout), ms(budget));
        assert_eq!(length(10_000, 1000, 1000, 1000), Some(ms(5000)), "the defaults");
        assert_eq!(length(3000, 500, 500, 500), Some(ms(2050)), "a short session: no more than is needed");
        assert_eq!(length(60_000, 1000, 1000, 1000), Some(ms(5453)), "a long one: a third more, not more");
        assert_eq!(length(3000, 1000, 1000, 1000), None, "does not fit");
        for (t, interval, timeout, budget) in
            [(10_000, 1000, 1000, 1000), (3000, 500, 500, 500), (9000, 900, 2000, 700)]
        {
            let proof = length(t, interval, timeout, budget).unwrap();
            assert!(ms(interval + 2 * timeout + budget) + drift(proof) <= proof && proof <= ms(t), "{t}");
        }
        assert_eq!(proof_length(Duration::MAX, Duration::MAX, Duration::MAX, Duration::MAX), None);
    }

    #[test]
    fn nothing_overflows() {
        let endless = Timing { op_timeout: Duration::MAX, ..timing(1000, 1, 1, 1) };
        assert!(!endless.check().unwrap_err().to_string().is_empty());
    }
}
