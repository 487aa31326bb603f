//! Lengths of time as the file and the command line write them: one whole number and one unit, `500ms`, `3s`, `2m`, `1h`.

use std::time::Duration;

/// The units, longest first, in milliseconds.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The longest length that is taken: 30 days. Beyond it a slip of the unit is more likely than a wish, and sums stay
/// far from overflowing.
pub const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Text that is no length of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationFault {
    /// What is wrong.
    pub what: String,
    /// How to write it.
    pub mend: String,
}

/// Reads `500ms`, `3s`, `2m` or `1h`.
///
/// # Errors
/// What is wrong and how to write it.
pub fn parse(text: &str) -> Result<Duration, DurationFault> {
    let fault = |what: &str, mend: String| Err(DurationFault { what: format!("`{text}` {what}"), mend });
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim_start();
    if number.is_empty() {
        return fault("is no length of time", "write a whole number and a unit: 500ms, 3s, 2m or 1h".to_owned());
    }
    if unit.is_empty() && number.bytes().all(|digit| digit == b'0') {
        return Ok(Duration::ZERO);
    }
    if unit.is_empty() {
        return fault("has no unit", format!("write {number}ms, {number}s, {number}m or {number}h"));
    }
    if unit.starts_with(['.', ',']) {
        return fault("is not a whole number", "use a smaller unit: 1500ms for 1.5s".to_owned());
    }
    let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return fault("has an unknown unit", "use one of ms, s, m and h".to_owned());
    };
    let length = number.parse::<u64>().ok().and_then(|n| n.checked_mul(*millis)).map(Duration::from_millis);
    match length {
        Some(length) if length <= LONGEST => Ok(length),
        _ => fault("is too long", format!("write at most {}", written(LONGEST))),
    }
}

/// Writes a length so that [`parse`] reads the same one back, in the longest unit that divides it. What is below a
/// millisecond is cut off.
#[must_use]
pub fn written(length: Duration) -> String {
    let millis = length.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    let (unit, size) = UNITS.into_iter().find(|(_, size)| millis % u128::from(*size) == 0).unwrap_or(("ms", 1));
    format!("{}{unit}", millis / u128::from(size))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_four_units() {
        for (text, millis) in
            [("500ms", 500), ("3s", 3000), ("2m", 120_000), ("1h", 3_600_000), ("0s", 0), ("10 s", 10_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("3", "has no unit"),
            ("", "not a length of time"),
            ("s", "not a length of time"),
            ("-3s", "not a length of time"),
            ("1.5s", "1500ms"),
            ("1m30s", "no unit"),
            ("3 sec", "no unit"),
            ("3S", "no unit"),
            ("99999999999999999999s", "at most 720h"),
            ("721h", "at most 720h"),
        ] {
            let fault = parse(text).expect_err(text);
            assert!(fault.contains(part), "{text}: {fault}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(millis in 0..=u64::try_from(LONGEST.as_millis()).unwrap()) {
            let length = Duration::from_millis(millis);
            prop_assert_eq!(parse(&written(length)), Ok(length));
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse(&text);
        }
    }
}
