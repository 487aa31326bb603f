//! What the probes say of a server: a pure state machine from outcomes of single tries to a [`Health`].
//!
//! | what a try showed | effect |
//! | --- | --- |
//! | success | healthy; a failed server only after `recover_after` in a row |
//! | failure while the process lives | failed after `retries` further failures in a row |
//! | blocked (the server lives, the write waits for something that is not its fault) | reported, no failure |
//! | refused (password, all connections taken) | reported, no failure |
//! | the process has exited | failed at once, or after `exit_grace` if none is back |
//! | another process answers | counts as an answer that is neither a success nor a failure |
//!
//! A server that was never seen is treated like one that was: it fails only after its retries, so that an agent
//! that starts before mysqld does not call it dead at the first refused connection.

use std::time::Duration;

use super::time::Moment;
use super::view::{Health, Process};

/// The part of `heartbeat.*` that judges. The tries' own limits belong to the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// `heartbeat.retries`: further tries before failures count.
    pub retries: u32,
    /// `heartbeat.recover_after`: successes in a row before a failed server is healthy again.
    pub recover_after: u32,
    /// `heartbeat.exit_grace`: how long an exited mysqld may take to be back.
    pub exit_grace: Duration,
}

/// What one try, or the watch on the process, showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The probe's statement came to its end.
    Success,
    /// It did not, and nothing excuses it.
    Failure {
        /// What happened, in words.
        why: String,
    },
    /// The server lives; the write waits for something that is not its fault.
    Blocked {
        /// For what, in words.
        by: String,
    },
    /// The server lives and does not let us in.
    Refused {
        /// Why, in words.
        why: String,
    },
    /// The process that we watched has exited.
    Exited,
    /// A process was found behind the socket that we had not seen before.
    NewProcess,
}

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// At the next regular probe (`heartbeat.interval`).
    Interval,
    /// Within the same probe (`heartbeat.retry_interval`).
    Retry,
}

/// The judge of one server's probes.
#[derive(Debug, Clone)]
pub struct Judge {
    config: Config,
    health: Health,
    process: Process,
    /// Failures in a row, and when the first of them came.
    failures: u32,
    failing_since: Option<Moment>,
    /// Successes in a row since it failed.
    successes: u32,
}

impl Judge {
    /// A judge that has seen nothing yet ([`Health::Unknown`]).
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config,
            health: Health::Unknown,
            process: Process::Unknown,
            failures: 0,
            failing_since: None,
            successes: 0,
        }
    }

    /// Other limits from now on (a reload); what was counted stays.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
    }

    /// The present verdict.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// What is known of the process.
    #[must_use]
    pub fn process(&self) -> Process {
        self.process
    }

    /// Takes in what was seen at `now`.
    pub fn observe(&mut self, outcome: Outcome, now: Moment) {
        match outcome {
            Outcome::Success => self.succeeded(),
            Outcome::Failure { why } => self.failed(why, now),
            Outcome::Blocked { by } => self.excused(Health::Blocked { by }),
            Outcome::Refused { why } => self.excused(Health::Unreachable { why }),
            Outcome::Exited => self.exited(now),
            Outcome::NewProcess => self.process = Process::Alive,
        }
    }

    /// Lets time pass: an exited process whose grace is over has failed.
    pub fn tick(&mut self, now: Moment) {
        if let Process::Exited { at } = self.process
            && now.since(at) >= self.config.exit_grace
        {
            self.fail(at, "mysqld has exited".into());
        }
    }

    /// When [`Judge::tick`] has something to do.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        match self.process {
            Process::Exited { at } if !self.is_failed() => Some(at + self.config.exit_grace),
            _ => None,
        }
    }

    /// When the next try is due. A retry is due while failures are being counted; a server that has failed, or whose
    /// process is gone, is looked at in the regular interval.
    #[must_use]
    pub fn next(&self) -> Next {
        let counting = self.failures > 0 && !self.is_failed() && !self.is_gone();
        if counting { Next::Retry } else { Next::Interval }
    }

    fn is_failed(&self) -> bool {
        matches!(self.health, Health::Failed { .. })
    }

    fn is_gone(&self) -> bool {
        matches!(self.process, Process::Exited { .. })
    }

    fn succeeded(&mut self) {
        self.answered();
        self.successes = self.successes.saturating_add(1);
        if !self.is_failed() || self.successes >= self.config.recover_after {
            self.health = Health::Healthy;
        }
    }

    /// An answer that is no success. A failed server stays failed: it is back only after `recover_after` successes.
    fn excused(&mut self, health: Health) {
        self.answered();
        self.successes = 0;
        if !self.is_failed() {
            self.health = health;
        }
    }

    /// Whoever answers is alive, also where the watch on the process has not found the new one yet.
    fn answered(&mut self) {
        self.failures = 0;
        self.failing_since = None;
        if self.is_gone() {
            self.process = Process::Alive;
        }
    }

    fn failed(&mut self, why: String, now: Moment) {
        self.successes = 0;
        if self.is_gone() {
            // Nobody is there to answer; the grace decides, not the retries, or a grace longer than the retries
            // would be worthless.
            self.tick(now);
            return;
        }
        let since = *self.failing_since.get_or_insert(now);
        self.failures = self.failures.saturating_add(1);
        if self.failures > self.config.retries {
            self.fail(since, why);
        }
    }

    fn exited(&mut self, now: Moment) {
        self.successes = 0;
        if !self.is_gone() {
            self.process = Process::Exited { at: now };
        }
        self.tick(now);
    }

    /// `since` is kept from the first failure on; the reason is always the latest one.
    fn fail(&mut self, since: Moment, why: String) {
        let since = match self.health {
            Health::Failed { since: first, .. } => first,
            _ => since,
        };
        self.health = Health::Failed { since, why };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Config = Config { retries: 3, recover_after: 3, exit_grace: Duration::ZERO };

    fn at(seconds: u64) -> Moment {
        Moment(seconds * 1_000_000_000)
    }

    fn failure() -> Outcome {
        Outcome::Failure { why: "no answer".into() }
    }

    fn healthy(config: Config) -> Judge {
        let mut judge = Judge::new(config);
        judge.observe(Outcome::NewProcess, at(0));
        judge.observe(Outcome::Success, at(0));
        assert_eq!(judge.health(), &Health::Healthy);
        judge
    }

    #[test]
    fn fails_after_its_retries_and_not_before() {
        let mut judge = healthy(CONFIG);
        for second in 1..=3 {
            judge.observe(failure(), at(second));
            assert_eq!((judge.health(), judge.next()), (&Health::Healthy, Next::Retry));
        }
        judge.observe(failure(), at(4));
        assert_eq!(judge.health(), &Health::Failed { since: at(1), why: "no answer".into() });
        assert_eq!(judge.next(), Next::Interval);
    }

    #[test]
    fn a_success_between_clears_the_failures() {
        let mut judge = healthy(CONFIG);
        for second in 1..20 {
            judge.observe(if second % 4 == 0 { Outcome::Success } else { failure() }, at(second));
            assert_eq!(judge.health(), &Health::Healthy);
        }
    }

    #[test]
    fn recovers_after_successes_in_a_row() {
        let mut judge = healthy(CONFIG);
        judge.observe(Outcome::Exited, at(1));
        judge.observe(Outcome::NewProcess, at(2));
        let not_enough = [Outcome::Success, Outcome::Success, failure(), Outcome::Success, Outcome::Success];
        for outcome in not_enough {
            judge.observe(outcome, at(3));
            assert!(matches!(judge.health(), Health::Failed { .. }));
        }
        judge.observe(Outcome::Success, at(4));
        assert_eq!(judge.health(), &Health::Healthy);
    }

    #[test]
    fn an_exited_process_needs_no_second_opinion() {
        let mut judge = healthy(CONFIG);
        judge.observe(Outcome::Exited, at(7));
        assert_eq!(judge.health(), &Health::Failed { since: at(7), why: "mysqld has exited".into() });
        assert_eq!(judge.process(), Process::Exited { at: at(7) });
    }

    #[test]
    fn the_grace_of_an_exited_process_is_not_cut_short_by_failing_tries() {
        let mut judge = healthy(Config { exit_grace: Duration::from_secs(10), ..CONFIG });
        judge.observe(Outcome::Exited, at(1));
        for second in 2..11 {
            judge.observe(failure(), at(second));
            assert_eq!((judge.health(), judge.next()), (&Health::Healthy, Next::Interval));
        }
        assert_eq!(judge.wake_at(), Some(at(11)));
        judge.tick(at(11));
        assert_eq!(judge.health(), &Health::Failed { since: at(1), why: "mysqld has exited".into() });
        assert_eq!(judge.wake_at(), None);
    }

    #[test]
    fn back_within_the_grace_is_no_failure() {
        let mut judge = healthy(Config { exit_grace: Duration::from_secs(10), ..CONFIG });
        judge.observe(Outcome::Exited, at(1));
        judge.observe(Outcome::NewProcess, at(4));
        judge.tick(at(60));
        assert_eq!((judge.health(), judge.process()), (&Health::Healthy, Process::Alive));
    }

    #[test]
    fn blocked_and_refused_are_reported_and_never_fail() {
        let mut judge = healthy(CONFIG);
        for second in 1..100 {
            judge.observe(Outcome::Blocked { by: "a backup".into() }, at(second));
        }
        assert_eq!(judge.health(), &Health::Blocked { by: "a backup".into() });
        judge.observe(Outcome::Refused { why: "wrong password".into() }, at(100));
        assert_eq!(judge.health(), &Health::Unreachable { why: "wrong password".into() });
        judge.observe(Outcome::Success, at(101));
        assert_eq!(judge.health(), &Health::Healthy);
    }

    #[test]
    fn a_failed_server_that_refuses_is_still_failed() {
        let mut judge = healthy(CONFIG);
        judge.observe(Outcome::Exited, at(1));
        judge.observe(Outcome::Refused { why: "all connections taken".into() }, at(2));
        assert!(matches!(judge.health(), Health::Failed { .. }));
        assert_eq!(judge.process(), Process::Alive);
    }

    #[test]
    fn a_server_never_seen_fails_after_its_retries_too() {
        let mut judge = Judge::new(CONFIG);
        for second in 1..=3 {
            judge.observe(failure(), at(second));
            assert_eq!(judge.health(), &Health::Unknown);
        }
        judge.observe(failure(), at(4));
        assert!(matches!(judge.health(), Health::Failed { .. }));
    }
}
