//! What a server has shown to hold: where it holds less later, its data lives anew (interleaving 7).
//!
//! A server that acknowledges is counted on for what it has received. What it has received only grows, within one life of its host
//! (what the kernel was given outlives mysqld), unless somebody replaces its data: a clone (one that fails half way leaves nothing at
//! all), an older backup, `RESET BINARY LOGS AND GTIDS`. Then its vote says that it has less than it has acknowledged, and the last
//! writer does not have what it wrote. Seen by chaos on real servers: a replica whose copy was broken off voted with an
//! empty set, as a member of S that had kept all.
//!
//! So the agent remembers all that it has ever read, over restarts too, and a reading that lacks any of it begins another life: the
//! votes of that life count once the primary has seen the server caught up ([`super::rows::durability::count_anew`]).
//!
//! What is not noticed: what was received in the last seconds before agent *and* server ended, if the server comes back with all but
//! that; and a server whose `state_dir` was lost together with its data.

use super::gtid::GtidSet;
use super::time::Moment;
use super::view::ServerFacts;

/// All that a server has shown to hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Holdings {
    /// Whose: `server_uuid`.
    uuid: String,
    most: GtidSet,
    /// When that was taken in last by this process.
    taken: Option<Moment>,
    /// How often it has held less than before.
    losses: u64,
}

impl Holdings {
    /// Takes in a reading that was asked for at `asked` and notes the losses in it, which name its life ([`ServerFacts::life`]). What is missing that was there before.
    pub fn take(&mut self, facts: &mut ServerFacts, asked: Moment, now: Moment) -> Option<GtidSet> {
        let received = facts.received();
        let missing = self.most.subtract(&received);
        let another = !self.uuid.is_empty() && self.uuid != facts.server_uuid;
        // Two readings that overlap in time may come in the wrong order: only one that was begun after the last had been taken in
        // must hold all of it.
        let comparable = self.taken.is_none_or(|taken| asked > taken);
        let lost = another || (comparable && !missing.is_empty());
        self.most = if lost { received } else { self.most.union(&received) };
        self.losses += u64::from(lost);
        self.taken = Some(now);
        self.uuid.clone_from(&facts.server_uuid);
        facts.losses = self.losses;
        lost.then_some(missing)
    }

    /// How often it has held less than before.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses
    }

    /// For the next process; none where nothing is known.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        (!self.uuid.is_empty()).then(|| format!("{} {} {}", self.losses, self.uuid, self.most))
    }

    /// What an earlier process has noted; nothing where it makes no sense, as after a full disk.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut words = text.splitn(3, ' ');
        let known = || Some((words.next()?.parse().ok()?, words.next()?.to_owned(), words.next()?.parse().ok()?));
        let Some((losses, uuid, most)) = { known }() else { return Self::default() };
        Self { uuid, most, taken: None, losses }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(last: u64) -> ServerFacts {
        let executed = if last == 0 { GtidSet::new() } else { format!("{UUID}:1-{last}").parse().unwrap() };
        ServerFacts { server_uuid: UUID.into(), executed, incarnation: "boot/7/9".into(), ..ServerFacts::default() }
    }

    const UUID: &str = "11111111-1111-1111-1111-111111111111";

    /// The life after these readings, each begun after the one before was taken in.
    fn life(holdings: &mut Holdings, readings: &[u64]) -> String {
        let mut life = String::new();
        for last in readings {
            let at = holdings.taken.map_or(1, |taken| taken.0 + 1);
            let mut facts = facts(*last);
            holdings.take(&mut facts, Moment(at), Moment(at));
            life = facts.life();
        }
        life
    }

    #[test]
    fn interleaving_07_who_holds_less_than_before_lives_anew() {
        let mut holdings = Holdings::default();
        assert_eq!(life(&mut holdings, &[5, 9, 9]), "boot");
        assert_eq!(life(&mut holdings, &[0, 3]), "boot+1", "a copy that was broken off");
        assert_eq!(life(&mut holdings, &[9, 12]), "boot+1", "it has caught up: the life stays");
        assert_eq!(life(&mut holdings, &[11]), "boot+2", "an older backup");
    }

    #[test]
    fn the_next_process_knows_what_was_held() {
        let mut before = Holdings::default();
        life(&mut before, &[9, 0, 7]);
        let mut after = Holdings::of(&before.text().unwrap());
        assert_eq!(life(&mut after, &[8]), "boot+1");
        let mut after = Holdings::of(&before.text().unwrap());
        assert_eq!(life(&mut after, &[6]), "boot+2");
        for text in ["", "1", "x y z", "1 uuid no-set"] {
            assert_eq!(Holdings::of(text), Holdings::default(), "{text}");
        }
        assert_eq!(Holdings::default().text(), None);
    }

    #[test]
    fn readings_that_overlap_are_not_compared() {
        let mut holdings = Holdings::default();
        holdings.take(&mut facts(9), Moment(5), Moment(8));
        assert_eq!(holdings.take(&mut facts(8), Moment(6), Moment(9)), None, "begun before the other was taken in");
        assert!(holdings.take(&mut facts(8), Moment(10), Moment(11)).is_some());
    }

    #[test]
    fn another_server_behind_the_same_socket_lives_anew() {
        let mut holdings = Holdings::default();
        life(&mut holdings, &[3]);
        let mut other = ServerFacts { server_uuid: UUID.replace('1', "2"), ..facts(9) };
        assert!(holdings.take(&mut other, Moment(9), Moment(9)).is_some());
        assert_eq!(other.life(), "boot+1");
    }
}
