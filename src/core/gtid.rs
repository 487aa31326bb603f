//! Sets of global transaction identifiers: the only measure of position used anywhere.
//!
//! Text form as in the MySQL manual, "GTID Sets": `uuid:1-5:7,uuid:tag:1-3`; tags exist since 8.3
//! (`uuid:1-3:tag:1-5` lists both kinds in one entry). File names and offsets are never compared:
//! they differ between servers that hold the same transactions.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Who numbered the transactions: a server's (or group's) UUID and the optional tag.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Origin {
    uuid: String,
    tag: String,
}

/// Both ends inclusive, as MySQL prints them.
type Interval = (u64, u64);

/// A set of GTIDs. The intervals of an origin are sorted, disjoint and not adjacent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct GtidSet {
    origins: BTreeMap<Origin, Vec<Interval>>,
}

/// Text that is not a GTID set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a GTID set: {why}")]
pub struct GtidParseError {
    text: String,
    why: &'static str,
}

impl GtidSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no transaction is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }

    /// The set of these intervals without tags: UUID, first and last number. None where one of them is none.
    #[must_use]
    pub fn of_intervals(intervals: impl IntoIterator<Item = (String, u64, u64)>) -> Option<Self> {
        let mut set = Self::new();
        for (uuid, from, to) in intervals {
            if !is_uuid(&uuid) || from == 0 || to < from || to == u64::MAX {
                return None;
            }
            let origin = Origin { uuid: uuid.to_ascii_lowercase(), tag: String::new() };
            set.origins.entry(origin).or_default().push((from, to));
        }
        set.origins.values_mut().for_each(normalise);
        Some(set)
    }

    /// Whether the transaction with this number of a server, without a tag, is in the set.
    #[must_use]
    pub fn includes(&self, uuid: &str, number: u64) -> bool {
        let origin = Origin { uuid: uuid.to_ascii_lowercase(), tag: String::new() };
        let intervals = self.origins.get(&origin).map_or(&[][..], Vec::as_slice);
        intervals.iter().any(|(from, to)| (*from..=*to).contains(&number))
    }

    /// How many transactions the set holds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.origins.values().flatten().map(|(from, to)| to - from + 1).sum()
    }

    /// Whether every transaction of `other` is also here.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        other.origins.iter().all(|(origin, wanted)| {
            let have = self.origins.get(origin).map_or(&[][..], Vec::as_slice);
            // Normalised intervals: a wanted one is covered only by a single one of ours.
            wanted.iter().all(|(from, to)| have.iter().any(|(a, b)| a <= from && to <= b))
        })
    }

    /// All transactions of both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (origin, intervals) in &other.origins {
            let entry = all.origins.entry(origin.clone()).or_default();
            entry.extend_from_slice(intervals);
            normalise(entry);
        }
        all
    }

    /// What is here and not in `other`.
    #[must_use]
    pub fn subtract(&self, other: &Self) -> Self {
        let mut rest = Self::new();
        for (origin, intervals) in &self.origins {
            let removed = other.origins.get(origin).map_or(&[][..], Vec::as_slice);
            let left = subtract_intervals(intervals, removed);
            if !left.is_empty() {
                rest.origins.insert(origin.clone(), left);
            }
        }
        rest
    }

    /// What the server with this UUID did not number, with a tag or without.
    #[must_use]
    pub fn of_others(&self, uuid: &str) -> Self {
        let others = self.origins.iter().filter(|(origin, _)| !origin.uuid.eq_ignore_ascii_case(uuid));
        Self { origins: others.map(|(origin, intervals)| (origin.clone(), intervals.clone())).collect() }
    }

    fn add(&mut self, origin: Origin, interval: Interval) {
        let entry = self.origins.entry(origin).or_default();
        entry.push(interval);
        normalise(entry);
    }
}

/// Sorts and merges overlapping and adjacent intervals.
fn normalise(intervals: &mut Vec<Interval>) {
    intervals.sort_unstable();
    let mut merged: Vec<Interval> = Vec::with_capacity(intervals.len());
    for &(from, to) in intervals.iter() {
        match merged.last_mut() {
            Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    *intervals = merged;
}

fn subtract_intervals(from: &[Interval], removed: &[Interval]) -> Vec<Interval> {
    let mut left = Vec::new();
    for &(start, end) in from {
        let mut next = start;
        for &(a, b) in removed.iter().filter(|(a, b)| *b >= start && *a <= end) {
            if a > next {
                left.push((next, a - 1));
            }
            next = next.max(b.saturating_add(1));
        }
        if next <= end {
            left.push((next, end));
        }
    }
    left
}

impl FromStr for GtidSet {
    type Err = GtidParseError;

    fn from_str(text: &str) -> Result<Self, GtidParseError> {
        let fail = |why| GtidParseError { text: text.chars().take(200).collect(), why };
        let mut set = Self::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let mut tokens = part.split(':').map(str::trim);
            let uuid = tokens.next().unwrap_or_default().to_ascii_lowercase();
            if !is_uuid(&uuid) {
                return Err(fail("an entry starts with a UUID"));
            }
            let mut tag = String::new();
            let mut intervals = 0;
            for token in tokens {
                if token.starts_with(|c: char| c.is_ascii_digit()) {
                    let interval =
                        parse_interval(token).ok_or_else(|| fail("an interval is 'n' or 'n-m' with 1 ≤ n ≤ m"))?;
                    set.add(Origin { uuid: uuid.clone(), tag: tag.clone() }, interval);
                    intervals += 1;
                } else if is_tag(token) {
                    tag = token.to_ascii_lowercase();
                } else {
                    return Err(fail("neither an interval nor a tag"));
                }
            }
            if intervals == 0 {
                return Err(fail("an entry has at least one interval"));
            }
        }
        Ok(set)
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

fn is_tag(text: &str) -> bool {
    (1..=32).contains(&text.len()) && text.bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric())
}

fn parse_interval(text: &str) -> Option<Interval> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.trim().parse().ok()?, to.trim().parse().ok()?);
    (1 <= from && from <= to && to < u64::MAX).then_some((from, to))
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (origin, intervals)) in self.origins.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}", origin.uuid)?;
            if !origin.tag.is_empty() {
                write!(f, ":{}", origin.tag)?;
            }
            for (from, to) in intervals {
                if from == to {
                    write!(f, ":{from}")?;
                } else {
                    write!(f, ":{from}-{to}")?;
                }
            }
        }
        Ok(())
    }
}

impl Serialize for GtidSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GtidSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "4e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        text.replace('A', A).replace('B', B).parse().unwrap()
    }

    #[test]
    fn reads_what_mysql_prints() {
        assert_eq!(set("A:1-5:7,\nB:3").to_string(), format!("{A}:1-5:7,{B}:3"));
        assert_eq!(set("A:1-3:4-5:5-9"), set("A:1-9"));
        assert_eq!(set("A:1-3:tag:1-5:7"), set("A:1-3").union(&set("A:tag:1-5:7")));
        assert!(set("").is_empty());
        assert_eq!(format!("{}:1", A.to_ascii_uppercase()).parse::<GtidSet>().unwrap(), set("A:1"));
    }

    #[test]
    fn refuses_what_is_no_set() {
        for text in ["A", "A:", "A:0", "A:5-1", "A:x y", "nonsense:1", "A:1-18446744073709551615"] {
            assert!(text.replace('A', A).parse::<GtidSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn intervals_are_taken_in_any_order_and_checked() {
        let intervals = [(7, 9), (1, 5), (5, 6)].map(|(from, to)| (A.to_ascii_uppercase(), from, to));
        assert_eq!(GtidSet::of_intervals(intervals), Some(set("A:1-9")));
        for (uuid, from, to) in [("x", 1, 1), (A, 0, 1), (A, 2, 1), (A, 1, u64::MAX)] {
            assert_eq!(GtidSet::of_intervals([(uuid.to_owned(), from, to)]), None, "{uuid}:{from}-{to}");
        }
    }

    #[test]
    fn a_tag_is_an_origin_of_its_own() {
        assert!(!set("A:1-9").contains(&set("A:tag:1")));
        assert_eq!(set("A:1-3:tag:1-5").subtract(&set("A:1-9")), set("A:tag:1-5"));
    }

    fn any_set() -> impl Strategy<Value = GtidSet> {
        proptest::collection::vec((0..2usize, 0..2usize, 1..40u64, 0..6u64), 0..8).prop_map(|parts| {
            let mut all = GtidSet::new();
            for (uuid, tag, from, length) in parts {
                all.add(Origin { uuid: [A, B][uuid].into(), tag: ["", "t"][tag].into() }, (from, from + length));
            }
            all
        })
    }

    proptest! {
        #[test]
        fn algebra_of_sets(a in any_set(), b in any_set()) {
            let union = a.union(&b);
            prop_assert!(union.contains(&a) && union.contains(&b));
            prop_assert_eq!(union.count(), a.count() + b.subtract(&a).count());
            prop_assert!(a.subtract(&b).union(&b) == union);
            prop_assert_eq!(a.contains(&b), b.subtract(&a).is_empty());
            prop_assert_eq!(&a.to_string().parse::<GtidSet>().unwrap(), &a);
            for number in 1..50 {
                let one = GtidSet::of_intervals([(A.to_owned(), number, number)]).unwrap();
                prop_assert_eq!(a.includes(A, number), a.contains(&one));
            }
        }
    }
}
