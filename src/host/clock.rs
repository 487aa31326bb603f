//! The clocks of this host and the names made of them.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::core::status::Ages;
use crate::core::time::{Moment, Wall};

/// Now, on the clock that also counts suspend (`CLOCK_BOOTTIME`): a host that slept must find its lease over.
#[must_use]
pub fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Moment(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// Now for people: RFC 3339, UTC, milliseconds. Never compared.
#[must_use]
pub fn wall() -> Wall {
    Wall(format!("{:.3}", jiff::Timestamp::now()))
}

/// What lies between two wall clocks, for people; none where the second is not later, or one makes no sense.
#[must_use]
pub fn between(earlier: &Wall, later: &Wall) -> Option<Duration> {
    let (earlier, later): (jiff::Timestamp, jiff::Timestamp) = (earlier.0.parse().ok()?, later.0.parse().ok()?);
    Duration::try_from(later.duration_since(earlier)).ok()
}

/// How old is what hosts have written, as of now. An agent writes its record with each renewal, which takes three calls at the most.
#[must_use]
pub fn ages(renew_interval: Duration, op_timeout: Duration) -> Ages {
    Ages { now: wall(), between, lives_within: renew_interval + op_timeout * 3 }
}

/// The present boot of this host, a UUID that changes with every boot.
///
/// # Errors
/// `/proc` is not mounted or not readable.
pub fn boot_id() -> io::Result<String> {
    read_id("/proc/sys/kernel/random/boot_id")
}

/// A name for this process that no other one has had: a random UUID from the kernel.
///
/// # Errors
/// `/proc` is not mounted or not readable.
pub fn new_instance() -> io::Result<String> {
    read_id("/proc/sys/kernel/random/uuid")
}

fn read_id(path: &str) -> io::Result<String> {
    let text = fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}; is /proc mounted?")))?;
    Ok(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_do_not_go_back() {
        let first = now();
        assert!(now() >= first && first > Moment(0));
    }

    #[test]
    fn wall_time_is_rfc_3339_with_milliseconds() {
        let Wall(text) = wall();
        assert_eq!(text.len(), "2026-11-30T10:00:00.123Z".len(), "{text}");
        assert!(text.ends_with('Z') && text.as_bytes()[10] == b'T' && text.as_bytes()[19] == b'.', "{text}");
    }

    #[test]
    fn ids_are_uuids_and_instances_differ() {
        assert_eq!(boot_id().unwrap().len(), 36);
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert_ne!(new_instance().unwrap(), new_instance().unwrap());
    }
}
