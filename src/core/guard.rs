//! What the guard does, given the lease file, the marker and its server. The interleavings behind the rows stand in
//! the module `guard`, which observes and executes.
//!
//! The guard knows less than the agent (no ZooKeeper, no roles) and so decides less: whether the server under its care
//! may take writes at this moment. It never opens a server, and where it knows nothing it touches nothing, with one
//! exception (G7): a lease of this boot that has ended is proof that this server *was* open.

use std::time::Duration;

use super::fenced::{Told, Word, WordState};
use super::fencing::time_for;
use super::reason::Reason;
use super::time::Moment;

/// The lease as the file said it last, of this boot of the host. Content of another boot counts as no file: its moments mean
/// nothing here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// When the server must be read-only; none: no lease is held.
    pub until: Option<Moment>,
    /// Until when fencing is paused.
    pub paused: Option<Moment>,
    /// The agent process that wrote it.
    pub instance: String,
}

/// Names one ended lease, for [`Told::proven`]. A renewal is another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseId {
    /// Its end.
    pub until: Moment,
    /// Its agent.
    pub instance: String,
}

/// The marker in `state_dir`: whether this server is under our care.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marker {
    /// None, of another cluster, or never adopted.
    Absent,
    /// It could not be read (a disk that fails or hangs) and never was by this process.
    Unknown,
    /// The `server_uuid` of the server under our care.
    Of(String),
}

/// What the server said just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `super_read_only` is on.
    ReadOnly {
        /// `@@server_uuid`.
        uuid: String,
    },
    /// `super_read_only` is off. That it is offline is not enough: administrators still write.
    Writable {
        /// `@@server_uuid`.
        uuid: String,
    },
    /// No such process: it has exited, or nobody listens.
    Down,
    /// No answer, or a refusal, in words.
    Silent(String),
}

/// All that one step may look at.
#[derive(Debug, Clone)]
pub struct Sight {
    /// The lease; none: no file of this boot was ever seen.
    pub lease: Option<Lease>,
    /// The marker.
    pub marker: Marker,
    /// The server, asked in this very step; none: not asked yet.
    pub answer: Option<Answer>,
    /// `failover.mode: observe`: nothing is ever touched.
    pub observe: bool,
    /// `fencing.budget`.
    pub budget: Duration,
}

/// What a step remembers for the next.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Memory {
    /// The last `server_uuid` that was told.
    pub uuid: Option<String>,
    /// Whether the last answer was [`Answer::Down`]; none before the first.
    pub down: Option<bool>,
    /// Whether there was a word before the fence that is under way.
    pub earlier: bool,
    /// What the next guard and the agent are told: which ended lease is proven closed, and of the last fence.
    pub told: Told,
}

/// How a fence of the guard ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The server was read-only or dead before.
    NothingToDo,
    /// It is read-only or dead.
    Closed,
    /// Given up: a lease holds again. What was closed by then the agent opens.
    Withdrawn,
    /// Neither is certain.
    Failed,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing before this moment (look at the file again before, all the same); none: nothing.
    Rest(Option<Moment>),
    /// Ask the server and step again with the answer.
    Ask,
    /// Make the server read-only.
    Fence {
        /// How long it may take.
        within: Duration,
        /// The lease whose end it is; none: the server was found writable without one.
        lease: Option<LeaseId>,
    },
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The row that decided; stable.
    pub row: &'static str,
    /// What it says, for the log.
    pub says: &'static str,
    /// What is to be done.
    pub action: Action,
}

impl Memory {
    /// A fence begins that has ended `by` then, one way or another. To be told before its first statement.
    pub fn fence_begins(&mut self, reason: Reason, by: Moment) {
        self.earlier = self.told.word.is_some();
        self.told.word = Some(Word { reason, state: WordState::UnderWay(by) });
    }

    /// How it ended, at `now`; `lease`: whose end it was.
    pub fn fence_ended(&mut self, ended: Ended, lease: Option<LeaseId>, now: Moment) {
        if matches!(ended, Ended::NothingToDo | Ended::Closed) {
            self.prove(lease);
        }
        match ended {
            // Somebody else's read-only, unless a fence of ours stands from before (of a guard that died in it, of a try that
            // failed).
            Ended::NothingToDo if !self.earlier => self.told.word = None,
            Ended::NothingToDo | Ended::Closed | Ended::Withdrawn => {
                if let Some(word) = &mut self.told.word {
                    word.state = WordState::Returned(now);
                }
            }
            Ended::Failed => {}
        }
    }

    fn prove(&mut self, lease: Option<LeaseId>) {
        if lease.is_some() {
            self.told.proven = lease;
        }
    }

    fn note(&mut self, answer: &Answer, ended: Option<&LeaseId>, now: Moment) {
        self.down = Some(*answer == Answer::Down);
        match answer {
            Answer::ReadOnly { uuid } => {
                self.uuid = Some(uuid.clone());
                self.prove(ended.cloned());
                // A guard that died in its fence left this: the question sees a statement that waits, and there is none.
                if let Some(word) = &mut self.told.word
                    && matches!(word.state, WordState::UnderWay(_))
                {
                    word.state = WordState::Returned(now);
                }
            }
            Answer::Writable { uuid } => {
                self.uuid = Some(uuid.clone());
                self.told.word = None;
            }
            Answer::Down => self.prove(ended.cloned()),
            Answer::Silent(_) => {}
        }
    }
}

/// The rows, from top to bottom; the first that fits decides.
pub fn step(memory: &mut Memory, sight: &Sight, now: Moment) -> Verdict {
    let verdict = |row, says, action| Verdict { row, says, action };
    let until = sight.lease.as_ref().and_then(|lease| lease.until);
    let ended =
        sight.lease.as_ref().zip(until).map(|(lease, until)| LeaseId { until, instance: lease.instance.clone() });
    if let Some(answer) = &sight.answer {
        // While the lease holds an answer proves nothing of the time after it.
        let over = until.is_none_or(|until| now >= until - sight.budget);
        memory.note(answer, ended.as_ref().filter(|_| over), now);
    }
    if sight.observe {
        return verdict("G1", "failover.mode is observe: nothing is touched", Action::Rest(None));
    }
    if let Some(start) = until.map(|until| until - sight.budget).filter(|start| now < *start) {
        return verdict("G2", "the lease holds", Action::Rest(Some(start)));
    }
    // The one place where a pause decides. It is the primary's agent that writes it, once the pause is part of its
    // lease record (interleaving 12 of the design): until that agent is back, or by its end, no other races.
    if sight.lease.as_ref().and_then(|lease| lease.paused).is_some_and(|paused| now < paused) {
        return verdict("G3", "paused: nothing is fenced", Action::Rest(None));
    }
    match (&sight.marker, &memory.uuid) {
        (Marker::Absent, _) => {
            return verdict("G4", "this server is not under our care: it is left alone", Action::Rest(None));
        }
        // Another server has the socket: asked on, since the right one may come back.
        (Marker::Of(ours), Some(uuid)) if ours != uuid => {
            let action = if sight.answer.is_some() { Action::Rest(None) } else { Action::Ask };
            return verdict("G5", "another server than the one under our care: it is left alone", action);
        }
        _ => {}
    }
    let unproven = ended.filter(|ended| memory.told.proven.as_ref() != Some(ended));
    let fence = |lease| Action::Fence { within: time_for(sight.budget, until, now), lease };
    match (&sight.answer, unproven) {
        // The ladder asks first by itself; a question of ours would only cost time.
        (None, Some(lease)) if memory.down == Some(false) => {
            verdict("G6", "the lease has ended and was not renewed", fence(Some(lease)))
        }
        (None, _) => verdict("G0", "no lease: asks the server", Action::Ask),
        // It was open under that lease, and nobody can say that it is not any more.
        (Some(Answer::Silent(_)), Some(lease)) => {
            verdict("G7", "the lease has ended and the server does not answer", fence(Some(lease)))
        }
        (Some(Answer::Silent(_)), None) => {
            verdict("G8", "the server does not answer, and was not seen writable without a lease", Action::Rest(None))
        }
        // The marker may be unreadable: then only a lease says that this server is ours.
        (Some(Answer::Writable { .. }), None) if sight.marker == Marker::Unknown && until.is_none() => {
            verdict("G9", "it is not known whether this server is under our care", Action::Rest(None))
        }
        (Some(Answer::Writable { .. }), lease) => {
            verdict("G10", "the server takes writes without a lease that holds", fence(lease))
        }
        (Some(Answer::ReadOnly { .. }), _) => {
            verdict("G11", "no lease, and the server is read-only", Action::Rest(None))
        }
        (Some(Answer::Down), _) => verdict("G12", "no lease, and the server is down", Action::Rest(None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "uuid-1";
    const BUDGET: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn lease(until: Option<u64>) -> Lease {
        Lease { until: until.map(at), paused: None, instance: "agent".into() }
    }

    fn sight(lease: Option<Lease>, answer: Option<Answer>) -> Sight {
        Sight { lease, marker: Marker::Of(OURS.into()), answer, observe: false, budget: BUDGET }
    }

    fn writable() -> Option<Answer> {
        Some(Answer::Writable { uuid: OURS.into() })
    }

    fn read_only() -> Option<Answer> {
        Some(Answer::ReadOnly { uuid: OURS.into() })
    }

    /// A guard that has seen its server answer.
    fn acquainted() -> Memory {
        Memory { uuid: Some(OURS.into()), down: Some(false), ..Memory::default() }
    }

    fn fenced(memory: &mut Memory, ended: Ended, now: u64) -> Option<WordState> {
        memory.fence_begins(Reason::LeaseLost, at(now + 1));
        memory.fence_ended(ended, None, at(now));
        memory.told.word.as_ref().map(|word| word.state)
    }

    fn row(memory: &mut Memory, sight: &Sight, now: u64) -> &'static str {
        step(memory, sight, at(now)).row
    }

    fn fences(memory: &mut Memory, sight: &Sight, now: u64) -> bool {
        matches!(step(memory, sight, at(now)).action, Action::Fence { .. })
    }

    #[test]
    fn never_before_the_budget_begins_and_always_from_then_on() {
        let mut memory = acquainted();
        let sight = sight(Some(lease(Some(10))), None);
        let before = step(&mut memory, &sight, Moment(at(9).0 - 1));
        assert_eq!((before.row, before.action), ("G2", Action::Rest(Some(at(9)))));
        let then = step(&mut memory, &sight, at(9));
        let id = LeaseId { until: at(10), instance: "agent".into() };
        assert_eq!((then.row, then.action), ("G6", Action::Fence { within: BUDGET, lease: Some(id) }));
    }

    #[test]
    fn a_renewal_is_another_lease() {
        let mut memory = acquainted();
        let ended = step(&mut memory, &sight(Some(lease(Some(10))), read_only()), at(9));
        assert_eq!(ended.row, "G11");
        assert_eq!(row(&mut memory, &sight(Some(lease(Some(10))), None), 11), "G0", "proven: asked, not fenced");
        assert_eq!(row(&mut memory, &sight(Some(lease(Some(20))), None), 11), "G2");
        assert_eq!(row(&mut memory, &sight(Some(lease(Some(20))), None), 19), "G6");
    }

    #[test]
    fn read_only_seen_under_the_lease_proves_nothing_of_the_time_after() {
        let mut memory = Memory::default();
        assert_eq!(row(&mut memory, &sight(Some(lease(Some(10))), read_only()), 5), "G2");
        assert_eq!(row(&mut memory, &sight(Some(lease(Some(10))), None), 9), "G6");
    }

    /// Interleaving 14: whoever reopens it after the deadline is answered each time.
    #[test]
    fn interleaving_14_a_reopened_server_is_fenced_again_and_again() {
        let mut memory = acquainted();
        let lease = Some(lease(Some(10)));
        assert!(fences(&mut memory, &sight(lease.clone(), None), 9));
        memory.fence_ended(Ended::Closed, Some(LeaseId { until: at(10), instance: "agent".into() }), at(9));
        for now in [11, 20, 3000] {
            assert_eq!(row(&mut memory, &sight(lease.clone(), None), now), "G0");
            assert!(fences(&mut memory, &sight(lease.clone(), writable()), now));
            assert_eq!(row(&mut memory, &sight(lease.clone(), read_only()), now), "G11");
        }
    }

    #[test]
    fn without_a_lease_only_an_answer_counts() {
        for lease in [None, Some(lease(None))] {
            let mut memory = acquainted();
            assert_eq!(row(&mut memory, &sight(lease.clone(), None), 5), "G0");
            assert!(fences(&mut memory, &sight(lease.clone(), writable()), 5));
            assert_eq!(row(&mut memory, &sight(lease.clone(), read_only()), 5), "G11");
            assert_eq!(row(&mut memory, &sight(lease.clone(), Some(Answer::Down)), 5), "G12");
            // A replica that hangs, or that refuses a rotten password, is nobody's business here.
            let silent = Some(Answer::Silent("no answer".into()));
            assert_eq!(row(&mut memory, &sight(lease, silent), 5), "G8");
        }
    }

    #[test]
    fn silence_after_a_lease_is_fenced_unless_it_was_proven_closed() {
        let silent = Some(Answer::Silent("no answer".into()));
        let mut memory = Memory::default();
        let lease = Some(lease(Some(10)));
        assert_eq!(row(&mut memory, &sight(lease.clone(), None), 20), "G0", "a guard that has just started asks first");
        assert_eq!(row(&mut memory, &sight(lease.clone(), silent.clone()), 20), "G7");
        assert_eq!(row(&mut memory, &sight(lease.clone(), Some(Answer::Down)), 20), "G12");
        assert_eq!(row(&mut memory, &sight(lease, silent), 20), "G8", "a dead one that starts is read-only");
    }

    #[test]
    fn a_server_that_is_not_ours_is_never_touched() {
        for lease in [None, Some(lease(None)), Some(lease(Some(10)))] {
            for answer in [None, writable(), Some(Answer::Silent(String::new()))] {
                let absent = Sight { marker: Marker::Absent, ..sight(lease.clone(), answer.clone()) };
                assert!(!fences(&mut acquainted(), &absent, 20), "no marker");
                let observe = Sight { observe: true, ..sight(lease.clone(), answer.clone()) };
                assert!(!fences(&mut acquainted(), &observe, 20), "observe");
                let mut stranger = Memory { uuid: Some("another".into()), ..acquainted() };
                let answer = answer.map(|answer| match answer {
                    Answer::Writable { .. } => Answer::Writable { uuid: "another".into() },
                    other => other,
                });
                assert!(!fences(&mut stranger, &sight(lease.clone(), answer), 20), "another server_uuid");
            }
        }
        let mut memory = Memory { uuid: Some("another".into()), ..acquainted() };
        assert!(fences(&mut memory, &sight(None, writable()), 20), "ours came back");
    }

    #[test]
    fn a_marker_that_cannot_be_read_leaves_the_lease_to_speak() {
        let unknown = |lease, answer| Sight { marker: Marker::Unknown, ..sight(lease, answer) };
        assert_eq!(row(&mut acquainted(), &unknown(None, writable()), 20), "G9");
        assert!(fences(&mut acquainted(), &unknown(Some(lease(Some(10))), writable()), 20));
    }

    #[test]
    fn nothing_is_fenced_while_paused() {
        let paused = |until| Some(Lease { paused: Some(at(until)), ..lease(Some(10)) });
        assert_eq!(row(&mut acquainted(), &sight(paused(30), writable()), 29), "G3");
        assert!(fences(&mut acquainted(), &sight(paused(30), writable()), 30));
    }

    #[test]
    fn a_fence_is_told_until_the_server_takes_writes_again() {
        for ended in [Ended::Closed, Ended::Withdrawn] {
            let mut memory = acquainted();
            assert_eq!(fenced(&mut memory, ended, 5), Some(WordState::Returned(at(5))));
            // The agent has the lease and has not opened yet.
            step(&mut memory, &sight(Some(lease(Some(30))), read_only()), at(6));
            assert!(memory.told.word.is_some());
            step(&mut memory, &sight(Some(lease(Some(30))), writable()), at(7));
            assert_eq!(memory.told.word, None);
        }
    }

    /// Interleaving 6 of `core::fenced`: what the operator has closed stays his.
    #[test]
    fn read_only_of_somebody_else_is_not_told_as_ours() {
        let mut memory = acquainted();
        assert_eq!(fenced(&mut memory, Ended::NothingToDo, 5), None);
        assert_eq!(fenced(&mut memory, Ended::Closed, 6), Some(WordState::Returned(at(6))));
        assert_eq!(fenced(&mut memory, Ended::NothingToDo, 7), Some(WordState::Returned(at(7))), "ours from before");
    }

    /// Interleaving 5 of `core::fenced`.
    #[test]
    fn a_fence_that_was_cut_short_is_told_as_returned_once_it_is_seen() {
        let mut memory = acquainted();
        assert_eq!(fenced(&mut memory, Ended::Failed, 5), Some(WordState::UnderWay(at(6))));
        step(&mut memory, &sight(Some(lease(Some(4))), read_only()), at(8));
        assert_eq!(memory.told.word.map(|word| word.state), Some(WordState::Returned(at(8))));
    }
}
