//! What is counted while the agent runs. Written by its tasks, read by `/metrics`; nobody waits for anybody.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::core::fencing::Rung;
use crate::core::reason::Reason;

/// Upper bounds of the buckets, in seconds: from a statement on a quiet server to a call that has run into its limit.
pub const BOUNDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

/// How long something took, each time.
#[derive(Debug, Default)]
pub struct Histogram {
    /// By bucket, the last for what is beyond all bounds; not cumulated.
    counts: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Histogram {
    /// Takes one in.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many took at most each bound, then how many there were, and their sum in seconds.
    #[must_use]
    pub fn read(&self) -> (Vec<u64>, f64) {
        let mut so_far = 0;
        let cumulated = self.counts.iter().map(|count| {
            so_far += count.load(Ordering::Relaxed);
            so_far
        });
        let cumulated = cumulated.collect();
        (cumulated, Duration::from_nanos(self.nanos.load(Ordering::Relaxed)).as_secs_f64())
    }
}

/// Counts by label. Every label that can come is there from the start, at 0, so that its first event is seen as an increase.
#[derive(Debug)]
pub struct Counts(Mutex<BTreeMap<&'static str, u64>>);

impl Counts {
    fn starting(labels: impl IntoIterator<Item = &'static str>) -> Self {
        Self(Mutex::new(labels.into_iter().map(|label| (label, 0)).collect()))
    }

    /// One more.
    pub fn add(&self, label: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(label).or_default() += 1;
    }

    /// All of them.
    #[must_use]
    pub fn read(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// `fences_total{rung}` of a fence that found the server read-only or dead already.
pub const NO_RUNG: &str = "none";

/// All that is counted.
#[derive(Debug)]
pub struct Tally {
    /// From sending a renewal of the lease to its acknowledgement.
    pub renewals: Histogram,
    /// One probe of our server, whatever it showed.
    pub probes: Histogram,
    /// Promotions of this server that were no planned switch, by cause.
    pub failovers: Counts,
    /// Planned switches: done, counted where the role went to; refused and undone, where it stayed.
    pub switchovers: Counts,
    /// Fences of this server by this agent that succeeded, by the last rung that was needed.
    pub fences: Counts,
}

impl Default for Tally {
    fn default() -> Self {
        let causes = [
            Reason::MysqlDown,
            Reason::MysqlSilent,
            Reason::AgentLost,
            Reason::ZookeeperLost,
            Reason::PromotedByHand,
            Reason::Forced,
            Reason::FencedByHand,
        ];
        let rungs = [Rung::ReadOnly, Rung::Offline, Rung::KillSessions, Rung::KillProcess];
        Self {
            renewals: Histogram::default(),
            probes: Histogram::default(),
            failovers: Counts::starting(causes.map(Reason::code)),
            switchovers: Counts::starting(["done", "refused", "undone"]),
            fences: Counts::starting(rungs.map(Rung::code).into_iter().chain([NO_RUNG])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_each_once_and_cumulates() {
        let histogram = Histogram::default();
        for millis in [1, 2, 300, 9000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let (counts, sum) = histogram.read();
        assert_eq!(counts, [1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4]);
        assert!((sum - 9.303).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn labels_that_can_come_begin_at_zero() {
        let tally = Tally::default();
        tally.fences.add(Rung::Offline.code());
        let fences = tally.fences.read();
        assert_eq!((fences["offline_mode"], fences["kill_process"], fences.len()), (1, 0, 5));
    }
}
