//! Durations as they are written in the file and on the command line: a whole number and one unit.

use std::time::Duration;

/// The units, the longest first, each with its length in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Text that is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {mend}")]
pub struct DurationFault {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub mend: String,
}

/// Reads `500ms`, `3s`, `2m` or `1h`; a bare `0` needs no unit.
///
/// # Errors
/// [`DurationFault`] for a missing or unknown unit, a fraction, a sign, or more than 64 bits of milliseconds.
pub fn parse(text: &str) -> Result<Duration, DurationFault> {
    let fault = |what: &str, mend: String| Err(DurationFault { what: format!("`{text}` {what}"), mend });
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    if digits.is_empty() || unit.starts_with(['.', ',']) {
        return fault("is no duration", "write a whole number with a unit: 500ms, 3s, 2m or 1h".into());
    }
    if unit.is_empty() {
        return if digits.bytes().all(|b| b == b'0') {
            Ok(Duration::ZERO)
        } else {
            fault("has no unit", format!("write {text}s or {text}ms (units: ms, s, m, h)"))
        };
    }
    let Some((_, length)) = UNITS.iter().find(|(name, _)| *name == unit.trim_start()) else {
        return fault("has an unknown unit", "use one of ms, s, m, h, for example 500ms".into());
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(*length)) {
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => fault("is too long", "write a smaller number".into()),
    }
}

/// Writes a duration as [`parse`] reads it; fractions of a millisecond are dropped.
#[must_use]
pub fn written(duration: Duration) -> String {
    let ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if ms == 0 {
        return "0s".to_owned();
    }
    // `60s` reads better than `1m`: minutes and hours only from two of them on.
    match UNITS.iter().find(|(_, length)| ms.is_multiple_of(*length) && (*length <= 1000 || ms / length >= 2)) {
        Some((unit, length)) => format!("{}{unit}", ms / length),
        None => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_down_in_the_contract() {
        for (text, ms) in [("500ms", 500), ("3s", 3000), ("2m", 120_000), ("1h", 3_600_000), ("0", 0), ("0s", 0)] {
            assert_eq!(parse(text).unwrap(), Duration::from_millis(ms), "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_how_it_is_mended() {
        for (text, mend) in [
            ("10", "10s or 10ms"),
            ("1.5s", "whole number"),
            ("-1s", "whole number"),
            ("", "whole number"),
            ("s", "whole number"),
            ("3 days", "one of ms, s, m, h"),
            ("3S", "one of ms, s, m, h"),
            ("1m30s", "one of ms, s, m, h"),
            ("99999999999999999999s", "smaller"),
            ("18446744073709551615h", "smaller"),
        ] {
            let fault = parse(text).unwrap_err();
            assert!(fault.mend.contains(mend), "{text}: {fault}");
        }
    }

    #[test]
    fn written_as_a_person_would() {
        for text in ["0s", "300ms", "1200ms", "1s", "60s", "90s", "2m", "60m", "2h", "61s"] {
            assert_eq!(written(parse(text).unwrap()), text);
        }
    }

    proptest! {
        #[test]
        fn written_and_read_back_is_the_same(ms in 0..u64::MAX) {
            let duration = Duration::from_millis(ms);
            prop_assert_eq!(parse(&written(duration)).unwrap(), duration);
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse(&text);
        }
    }
}
