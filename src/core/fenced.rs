//! Whether our server's read-only is ours: what the agent itself knows, and what the guard beside it says.
//!
//! [`Server::fenced`] carries two rules. A read-only primary that we fenced is opened again, one that was set read-only by hand is
//! left alone (interleaving 13 of the design). And it is the proof that the fence has *returned*: the variable reads ON from
//! the moment the statement begins, also while it waits for commits that may still end (interleavings 2 and 4). So it
//! must not be set too early, nor stay on a server that takes writes.
//!
//! The truth is in memory and changes in one place, under the lock of the view ([`Server::take_reading`] and the ends of fences and
//! actions). Files only tell the next process, or the neighbour; nobody waits for them. The guard says what it did in a
//! file of its own ([`Told`]), which nobody else writes: a [`Word`] with a moment, so that an old one can be told from a new one.
//!
//! # The interleavings, and the rule against each
//!
//! 1. **The agent reads the guard's word; its own `Open` (or `Follow`) returns; then it uses what it has read.** The word would
//!    make the open server count as fenced. → A word counts only if it is younger than the beginning of the last action that
//!    lifted a fence ([`Server::lifted`]), compared when it is used and not when it is read.
//! 2. **The word stands there still when somebody sets an open server read-only by hand** (the guard takes it back only at its next
//!    look, a dead one never). → Nor does a word count that is older than a reading which showed the server writable.
//! 3. **A reading shows a server writable that counts as fenced** (opened by hand; a predecessor died between opening it and noting
//!    that). → It is fenced no more; the next read-only needs a proof of its own.
//! 4. **The guard's fence is under way**: the variable reads ON, and commits may still end. Taken as fenced, a vote or a handover could
//!    lack them; taken as set by hand, `topology` would lose its primary for a moment. → Before its fence the guard says until
//!    when it will take; a read-only reading waits for the end of that.
//! 5. **The guard is killed in the middle of a fence.** → Its word is void at the moment it named. The next guard asks the server
//!    with a query that sees a waiting statement, and then says that the fence has returned.
//! 6. **The server was read-only before the guard's fence** (by hand, by its agent). → The guard did nothing, and says nothing.
//! 7. **An older reading arrives after a fence or an action** that has put its result into the view. → It changes nothing.
//! 8. **A reading that was asked for before a fence returned is used after it.** It lacks the commits that the fence waited for; handed
//!    over, or voted with, they would be lost (found by simulation). → [`Server::fenced_at`] says from when on a reading has
//!    them ([`super::case::Case::read_since_fence`]); that such a reading still shows the server writable changes nothing.
//! 9. **A fence is given up half way, or dies half way** (a lease that holds again; a guard or an agent that is killed): the server may
//!    be read-only, and nobody says that the fence has returned. Taken as set by hand it would stay closed for ever (found by
//!    simulation). → [`Server::fence_begun`] stands until the server is opened or seen to take writes.
//! 10. **An `Open` returns after a fence that overtook it.** → It lifts only what was there before it began.
//! 11. **The agent's own note reaches the disk late, or in the wrong order.** → It is handed over under the same lock that changes
//!     the truth, one writer takes the last; a process that dies before it was written has left a server that its
//!     successor reads first (3), or one that an operator has to open.

use super::guard::LeaseId;
use super::reason::Reason;
use super::time::Moment;
use super::view::{Enabling, Server, ServerFacts};

/// What the guard says of its last fence, until it sees the server take writes again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Why it fenced.
    pub reason: Reason,
    /// How far it is.
    pub state: WordState,
}

/// How far the guard's fence is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordState {
    /// Begun; it will have ended by then.
    UnderWay(Moment),
    /// It had returned by then, or was given up: no statement of it waits any more.
    Returned(Moment),
}

/// What a word means for a read-only server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Nothing,
    /// Why, and since when.
    Fenced(Reason, Moment),
    /// Only its end will tell.
    Wait,
}

impl Word {
    fn means(&self, lifted: Option<Moment>, now: Moment) -> Meaning {
        match self.state {
            WordState::Returned(at) if lifted.is_none_or(|lifted| lifted < at) => Meaning::Fenced(self.reason, at),
            WordState::UnderWay(until) if now < until => Meaning::Wait,
            _ => Meaning::Nothing,
        }
    }
}

impl Server {
    /// A reading of the server that was asked for at `asked`, with the guard's word as read after that.
    pub fn take_reading(&mut self, mut facts: ServerFacts, asked: Moment, word: Option<&Word>, now: Moment) {
        if matches!(self.enabling, Enabling::Returned(at) if asked >= at) {
            self.enabling = Enabling::No;
        }
        self.unsupported = None;
        if self.facts.as_ref().is_some_and(|(_, at)| *at >= asked) {
            return; // interleaving 7
        }
        self.holdings.take(&mut facts, asked, now);
        if facts.super_read_only {
            if self.fenced.is_none() {
                match word.map_or(Meaning::Nothing, |word| word.means(self.lifted, now)) {
                    Meaning::Nothing => {}
                    Meaning::Fenced(reason, at) => self.fence_returned(reason, at),
                    Meaning::Wait => {
                        self.fence_begun = Some(now); // interleaving 9
                        return; // interleaving 4
                    }
                }
            }
        } else if self.fenced.is_some() && Some(asked) < self.fenced_at {
            (facts.read_only, facts.super_read_only) = (true, true); // interleaving 8
        } else {
            self.lifted = self.lifted.max(Some(asked)); // interleaving 2
            self.fenced = None; // interleaving 3
            self.fence_begun = self.fence_begun.filter(|begun| *begun >= asked); // interleaving 9
        }
        self.facts = Some((facts, asked));
    }

    /// A fence of ours begins, or the closing for a planned switch: its first rungs are ours, also where it turns out not to be
    /// needed.
    pub fn fence_begins(&mut self, now: Moment) {
        self.fence_for = self.fence_begun.and(self.fence_for);
        self.fence_begun = Some(now);
    }

    /// The same with what has led to it.
    pub fn fence_begins_for(&mut self, reason: Reason, now: Moment) {
        self.fence_begins(now);
        self.fence_for = Some(reason);
    }

    /// What has led to the end of a mysqld that is not running any more: a fence of ours whose last rung it was, else itself.
    #[must_use]
    pub fn exit_cause(&self) -> Reason {
        match self.fence_begun.and(self.fence_for) {
            _ if self.fenced_by_hand => Reason::FencedByHand,
            Some(reason) => reason,
            None => Reason::MysqlDown,
        }
    }

    /// A fence has returned by then: the server is read-only, or dead.
    pub fn fence_returned(&mut self, reason: Reason, at: Moment) {
        self.fenced = Some(reason);
        self.fenced_at = self.fenced_at.max(Some(at));
        // Not the moment of the reading: what was executed since is not in it.
        if let Some((facts, _)) = &mut self.facts {
            (facts.super_read_only, facts.read_only) = (true, true);
        }
    }

    /// The closing for a planned switch has returned. No [`Server::fenced_at`]: its own answer holds the set as it was then.
    pub fn closed_for_switch(&mut self) {
        (self.fenced, self.fence_begun) = (Some(Reason::Switchover), None);
    }

    /// An action that began then has made the server writable, or a replica: no fence from before counts.
    pub fn lift_fence(&mut self, begun: Moment) {
        self.lifted = self.lifted.max(Some(begun)); // interleaving 1
        if self.fenced_at.is_none_or(|at| at <= begun) {
            (self.fenced, self.fence_begun) = (None, None); // interleaving 10
        }
    }
}

/// All that the guard's file says: to the next guard, and to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Told {
    /// The ended lease after which the server was seen read-only or dead.
    pub proven: Option<LeaseId>,
    /// Its last fence.
    pub word: Option<Word>,
}

impl Told {
    /// As it stands in the file, which the boot id leads: a moment means nothing in another boot.
    #[must_use]
    pub fn text(&self, boot_id: &str) -> String {
        let mut text = boot_id.to_owned();
        if let Some(proven) = &self.proven {
            text.push_str(&format!(" proven {} {}", proven.until.0, proven.instance));
        }
        if let Some(word) = &self.word {
            let (state, at) = match word.state {
                WordState::UnderWay(until) => ("fencing", until),
                WordState::Returned(at) => ("fenced", at),
            };
            text.push_str(&format!(" {state} {} {}", at.0, word.reason.code()));
        }
        text
    }

    /// What a file says; nothing where it is of another boot or makes no sense.
    #[must_use]
    pub fn of(text: &str, boot_id: &str) -> Self {
        let mut words = text.split(' ');
        let mut told = Self::default();
        if words.next() != Some(boot_id) {
            return told;
        }
        while let (Some(what), Some(at), Some(name)) = (words.next(), words.next(), words.next()) {
            let Ok(at) = at.parse().map(Moment) else { return told };
            let word = |state| Some(Word { reason: Reason::from_code(name), state });
            match what {
                "proven" => told.proven = Some(LeaseId { until: at, instance: name.to_owned() }),
                "fencing" => told.word = word(WordState::UnderWay(at)),
                "fenced" => told.word = word(WordState::Returned(at)),
                _ => return told,
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(super_read_only: bool) -> ServerFacts {
        ServerFacts { super_read_only, read_only: super_read_only, ..ServerFacts::default() }
    }

    fn word(state: WordState) -> Word {
        Word { reason: Reason::LeaseLost, state }
    }

    /// A server as read at `read`.
    fn server(super_read_only: bool, read: u64) -> Server {
        let mut server = Server::default();
        server.take_reading(facts(super_read_only), Moment(read), None, Moment(read));
        server
    }

    fn fenced_after(mut server: Server, asked: u64, state: WordState) -> Option<Reason> {
        server.take_reading(facts(true), Moment(asked), Some(&word(state)), Moment(asked + 1));
        server.fenced
    }

    #[test]
    fn a_fence_of_the_guard_is_ours() {
        assert_eq!(fenced_after(server(false, 5), 10, WordState::Returned(Moment(9))), Some(Reason::LeaseLost));
        assert_eq!(fenced_after(Server::default(), 10, WordState::Returned(Moment(9))), Some(Reason::LeaseLost));
    }

    #[test]
    fn fences_1_a_word_read_before_an_opening_counts_no_more_after_it() {
        let mut opened = server(true, 5);
        opened.lift_fence(Moment(10));
        assert_eq!(fenced_after(opened, 20, WordState::Returned(Moment(9))), None);
    }

    #[test]
    fn a_fence_that_returned_after_an_opening_had_begun_counts() {
        let mut opened = server(true, 5);
        opened.lift_fence(Moment(10));
        assert_eq!(fenced_after(opened, 20, WordState::Returned(Moment(11))), Some(Reason::LeaseLost));
    }

    #[test]
    fn fences_2_a_word_that_still_stands_says_nothing_of_a_later_hand() {
        assert_eq!(fenced_after(server(false, 10), 20, WordState::Returned(Moment(9))), None);
    }

    #[test]
    fn fences_3_a_server_that_takes_writes_is_not_fenced() {
        let mut server = Server { fenced: Some(Reason::Switchover), ..Server::default() };
        server.take_reading(facts(false), Moment(5), None, Moment(5));
        assert_eq!(server.fenced, None);
        server.take_reading(facts(true), Moment(6), None, Moment(6));
        assert_eq!(server.fenced, None, "the next read-only needs its own proof");
    }

    #[test]
    fn fences_4_a_fence_under_way_is_neither_proof_nor_somebodys_hand() {
        let mut server = server(false, 5);
        let under_way = word(WordState::UnderWay(Moment(100)));
        server.take_reading(facts(true), Moment(20), Some(&under_way), Moment(21));
        assert_eq!(server.fenced, None);
        assert!(server.facts.as_ref().is_some_and(|(facts, _)| !facts.super_read_only), "the reading has to wait");
    }

    #[test]
    fn fences_5_a_fence_that_never_ended_counts_as_none_after_its_time() {
        let mut server = server(false, 5);
        let under_way = word(WordState::UnderWay(Moment(100)));
        server.take_reading(facts(true), Moment(120), Some(&under_way), Moment(121));
        assert_eq!(server.fenced, None);
        assert!(server.facts.as_ref().is_some_and(|(facts, _)| facts.super_read_only));
    }

    #[test]
    fn a_mysqld_that_a_fence_has_ended_was_not_lost_by_itself() {
        let mut server = server(false, 5);
        assert_eq!(server.exit_cause(), Reason::MysqlDown);
        server.fence_begins_for(Reason::MysqlSilent, Moment(6));
        assert_eq!(server.exit_cause(), Reason::MysqlSilent);
        // Not needed after all, and seen to take writes; then a closing for a switch, in which it dies.
        server.take_reading(facts(false), Moment(7), None, Moment(7));
        assert_eq!(server.exit_cause(), Reason::MysqlDown);
        server.fence_begins(Moment(8));
        assert_eq!(server.exit_cause(), Reason::MysqlDown);
        server.fenced_by_hand = true;
        assert_eq!(server.exit_cause(), Reason::FencedByHand);
    }

    #[test]
    fn fences_7_an_older_reading_changes_nothing() {
        let mut server = server(true, 10);
        server.fenced = Some(Reason::Switchover);
        let before = server.clone();
        server.take_reading(facts(false), Moment(9), None, Moment(11));
        assert_eq!(server, before);
    }

    #[test]
    fn what_the_guard_tells_is_understood() {
        let proven = Some(LeaseId { until: Moment(7), instance: "agent".into() });
        for state in [WordState::UnderWay(Moment(8)), WordState::Returned(Moment(9))] {
            for told in [
                Told::default(),
                Told { proven: proven.clone(), word: None },
                Told { proven: None, word: Some(word(state)) },
                Told { proven: proven.clone(), word: Some(word(state)) },
            ] {
                let text = told.text("boot");
                assert_eq!(Told::of(&text, "boot"), told, "{text}");
                assert_eq!(Told::of(&text, "another"), Told::default());
            }
        }
        for text in ["", "boot", "boot proven x agent", "boot fenced 7", "boot what 7 agent"] {
            assert_eq!(Told::of(text, "boot"), Told::default(), "{text}");
        }
    }
}
