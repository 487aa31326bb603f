//! The race: who leads, who has received what, and whether the votes are enough.
//!
//! Locks are `election/lock-<sequence>`, each carrying its owner's vote. The lowest sequence *that can lead* leads:
//! frozen, under the present version of `topology`, priority above 0. Every agent computes the same from the same
//! locks; the transaction that claims `master` checks each lock that was counted, so a leader that was wrong about
//! them fails instead of winning.

use std::collections::BTreeSet;

use super::gtid::GtidSet;
use super::records::{Durability, DurabilityMode, Vote};
use super::view::Seen;

/// A counted lock.
pub type Lock<'a> = (i64, &'a Seen<Vote>);

/// The locks that count under this version of `topology`, lowest sequence first; of a candidate's several locks the
/// highest (a candidate that went to the end of the queue).
#[must_use]
pub fn counted<'a>(locks: impl DoubleEndedIterator<Item = Lock<'a>>, topology_version: i32) -> Vec<Lock<'a>> {
    let mut seen = BTreeSet::new();
    let mut counted: Vec<Lock<'a>> = locks
        .rev()
        // A vote of an earlier version may have been followed by acknowledgements (interleaving 3).
        .filter(|(_, lock)| lock.record.frozen && lock.record.topology_version == topology_version)
        .filter(|(_, lock)| seen.insert(lock.record.name.clone()))
        .collect();
    counted.reverse();
    counted
}

/// Who leads.
#[must_use]
pub fn leader<'a>(counted: &[Lock<'a>]) -> Option<Lock<'a>> {
    counted.iter().find(|(_, lock)| lock.record.priority > 0).copied()
}

/// All that the candidates have received together.
#[must_use]
pub fn received(counted: &[Lock<'_>]) -> GtidSet {
    counted.iter().fold(GtidSet::new(), |all, (_, lock)| all.union(&lock.record.received))
}

/// The candidate (not `me`) that has most of `missing`.
#[must_use]
pub fn best_source<'a>(counted: &[Lock<'a>], me: &str, missing: &GtidSet) -> Option<Lock<'a>> {
    let lacks = |lock: &Lock<'_>| missing.subtract(&lock.1.record.received).count();
    counted
        .iter()
        .filter(|(_, lock)| lock.record.name != me)
        .filter(|lock| lacks(lock) < missing.count())
        .min_by_key(|lock| lacks(lock))
        .copied()
}

/// What is missing for a promotion without loss, in words; none where the votes are enough.
///
/// A commit waited for k acknowledgements of members of S, so at least k of them hold it; of any
/// |S| − k + 1 members one does. A frozen one can acknowledge nothing more, so the union of so many frozen
/// received sets holds every acknowledged commit. The last writer with its data holds all it ever acknowledged and
/// needs nobody else (interleaving 13). Neither is so in a life in which a server may hold less than it has acknowledged: such
/// a vote is fetched from, and does not count (interleaving 7).
#[must_use]
pub fn quorum_missing(counted: &[Lock<'_>], durability: &Durability, last_writer: Option<&str>) -> Option<String> {
    if durability.mode == DurabilityMode::Async {
        return None;
    }
    let vote = |name: &str| counted.iter().find(|(_, lock)| lock.record.name == name).map(|(_, lock)| &lock.record);
    let counts = |name: &str| vote(name).is_some_and(|vote| durability.kept_all(name, &vote.incarnation));
    if last_writer.is_some_and(counts) {
        return None;
    }
    if durability.degraded || durability.sync.is_empty() {
        return Some(
            "acknowledged writes may be on the last primary alone (degraded, or no replica acknowledges)".to_owned(),
        );
    }
    let needed = durability.votes_needed();
    let have = durability.sync.iter().filter(|name| counts(name)).count();
    if have >= needed {
        return None;
    }
    let mut text = format!("{have} of {needed} votes of {}", durability.sync.join(", "));
    let absent: Vec<&str> = durability.sync.iter().map(String::as_str).filter(|name| vote(name).is_none()).collect();
    if !absent.is_empty() {
        text.push_str(&format!(", missing: {}", absent.join(", ")));
    }
    text.push_str(&not_counted(counted, durability, last_writer).unwrap_or_default());
    Some(text)
}

/// Whose votes do not count for the life they are from, why, and what helps.
fn not_counted(counted: &[Lock<'_>], durability: &Durability, last_writer: Option<&str>) -> Option<String> {
    let asked = |name: &String| durability.sync.contains(name) || last_writer == Some(name);
    let all: Vec<&str> = counted
        .iter()
        .map(|(_, lock)| &lock.record)
        .filter(|vote| asked(&vote.name) && !durability.kept_all(&vote.name, &vote.incarnation))
        .map(|vote| vote.name.as_str())
        .collect();
    if all.is_empty() {
        return None;
    }
    let helps = match last_writer {
        Some(name) if !all.contains(&name) => format!("bring the last primary, {name}, back; if it is lost for good"),
        _ => "at the last".to_owned(),
    };
    Some(format!(
        "; not counted: {} (its host was restarted or its data was replaced, and it may have lost what it had acknowledged): {helps}, 'promote NAME \
         --allow-data-loss'",
        all.join(", ")
    ))
}

/// How many candidates are likely ahead of us: by what was last published, received set first, then priority, then
/// name. Each place costs a short delay, so that the best replica usually comes first and nothing has to be fetched.
#[must_use]
pub fn rank(me: &Standing<'_>, others: &[Standing<'_>]) -> u32 {
    let ahead = others.iter().filter(|other| other.is_ahead_of(me)).count();
    u32::try_from(ahead).unwrap_or(u32::MAX)
}

/// A replica as the others know it before the race.
#[derive(Debug, Clone)]
pub struct Standing<'a> {
    /// Its agent's name.
    pub name: &'a str,
    /// `failover.priority`.
    pub priority: u32,
    /// Executed and retrieved.
    pub received: GtidSet,
}

impl Standing<'_> {
    fn is_ahead_of(&self, other: &Standing<'_>) -> bool {
        let key = |s: &Standing<'_>| (s.priority > 0, s.received.count(), s.priority);
        key(self).cmp(&key(other)).then_with(|| other.name.cmp(self.name)).is_gt()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::core::time::Moment;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn vote(name: &str, received: u64, version: i32) -> Seen<Vote> {
        let record = Vote {
            name: name.into(),
            received: format!("{A}:1-{received}").parse().unwrap(),
            priority: 100,
            topology_version: version,
            incarnation: "life".into(),
            frozen: true,
            frozen_ms: 0,
        };
        Seen { record, version: 0, owner: 1, created: 1, first_seen: Moment(0) }
    }

    fn lossless(sync: &[&str], k: u32) -> Durability {
        Durability {
            mode: DurabilityMode::Lossless,
            degraded: false,
            sync: sync.iter().map(|name| (*name).to_owned()).collect(),
            sync_replicas: k,
            retiring: Vec::new(),
            accounts: Default::default(),
            shut_out: Default::default(),
            floor: GtidSet::new(),
            incarnations: BTreeMap::new(),
        }
    }

    #[test]
    fn stale_and_unfrozen_votes_do_not_count() {
        let mut melted = vote("c", 9, 4);
        melted.record.frozen = false;
        let all = [vote("a", 9, 3), vote("b", 9, 4), melted];
        let locks: Vec<Lock<'_>> = all.iter().enumerate().map(|(at, lock)| (at as i64, lock)).collect();
        let counted = counted(locks.into_iter(), 4);
        assert_eq!(counted.iter().map(|(_, l)| l.record.name.as_str()).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_requeued_candidate_stands_at_its_last_lock_and_priority_zero_never_leads() {
        let mut never = vote("z", 9, 4);
        never.record.priority = 0;
        let all = [vote("a", 5, 4), never, vote("b", 7, 4), vote("a", 5, 4)];
        let locks: Vec<Lock<'_>> = all.iter().enumerate().map(|(at, lock)| (at as i64, lock)).collect();
        let counted = counted(locks.into_iter(), 4);
        assert_eq!(leader(&counted).unwrap().1.record.name, "b");
        assert_eq!(received(&counted).count(), 9);
        let missing: GtidSet = format!("{A}:6-9").parse().unwrap();
        assert_eq!(best_source(&counted, "a", &missing).unwrap().1.record.name, "z");
    }

    #[test]
    fn quorum_is_all_but_k_minus_one_of_s() {
        let all = [vote("b", 5, 4), vote("c", 7, 4)];
        let locks: Vec<Lock<'_>> = all.iter().enumerate().map(|(at, lock)| (at as i64, lock)).collect();
        assert_eq!(quorum_missing(&locks, &lossless(&["b", "c"], 1), Some("a")), None);
        assert!(quorum_missing(&locks[..1], &lossless(&["b", "c"], 1), Some("a")).is_some());
        assert_eq!(quorum_missing(&locks[..1], &lossless(&["b", "c"], 2), Some("a")), None);
        assert_eq!(
            quorum_missing(&locks[..1], &lossless(&["c", "d"], 1), Some("b")),
            None,
            "the last writer alone is enough"
        );
        let mut degraded = lossless(&["b", "c"], 1);
        degraded.degraded = true;
        assert!(quorum_missing(&locks, &degraded, Some("a")).is_some());
    }

    #[test]
    fn interleaving_07_a_vote_from_another_life_does_not_count() {
        let all = [vote("b", 5, 4), vote("c", 7, 4)];
        let locks: Vec<Lock<'_>> = all.iter().enumerate().map(|(at, lock)| (at as i64, lock)).collect();
        let in_lives = |lives: &[(&str, &str)]| {
            let incarnations = lives.iter().map(|(name, life)| ((*name).to_owned(), (*life).to_owned())).collect();
            Durability { incarnations, ..lossless(&["b", "c"], 1) }
        };
        assert_eq!(quorum_missing(&locks, &in_lives(&[("b", "life"), ("c", "life")]), Some("a")), None);
        let missing = quorum_missing(&locks, &in_lives(&[("b", "life"), ("c", "earlier")]), Some("a")).unwrap();
        for part in ["1 of 2", "not counted: c (", "bring the last primary, a, back", "--allow-data-loss"] {
            assert!(missing.contains(part), "{missing}");
        }
        assert!(!missing.contains("missing"), "it is there: {missing}");
        assert_eq!(received(&locks).count(), 7, "fetched from all the same");
        assert_eq!(
            quorum_missing(&locks, &in_lives(&[("c", "earlier")]), Some("b")),
            None,
            "the last writer needs nobody"
        );
        let unsynced = in_lives(&[("c", "earlier"), ("b", "earlier")]);
        assert!(quorum_missing(&locks, &unsynced, Some("b")).is_some(), "unless it may have lost commits");
        let two = Durability { sync_replicas: 2, ..in_lives(&[("c", "earlier")]) };
        assert_eq!(quorum_missing(&locks, &two, Some("a")), None, "one vote of two is enough, and b's counts");
    }

    #[test]
    fn rank_orders_by_received_then_priority_then_name() {
        let standing = |name, priority, n| Standing { name, priority, received: format!("{A}:1-{n}").parse().unwrap() };
        let me = standing("b", 100, 5);
        assert_eq!(
            rank(&me, &[standing("a", 100, 5), standing("c", 200, 5), standing("d", 1, 6), standing("e", 0, 9)]),
            3
        );
        assert_eq!(rank(&me, &[standing("c", 100, 5)]), 0);
    }
}
