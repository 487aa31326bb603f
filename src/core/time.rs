//! Moments on the one clock that decisions use.
//!
//! A [`Moment`] is a reading of a monotonic clock that also counts suspend (Linux `CLOCK_BOOTTIME`): a host that was
//! suspended, or a virtual machine that was paused, must find its lease over when it wakes. The core never reads a
//! clock; the shell passes moments in. Wall-clock time ([`Wall`]) is for people and never compared.

use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Nanoseconds since the boot of this host. Moments of two hosts must never be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// How long ago `earlier` was; zero where it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// How long until this moment, seen from `now`; zero where it has passed.
    #[must_use]
    pub fn until(self, now: Moment) -> Duration {
        self.since(now)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, length: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, length: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Wall-clock time as RFC 3339 text with milliseconds, for records that people read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Wall(pub String);
