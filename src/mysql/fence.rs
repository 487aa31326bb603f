//! The fence: makes our server read-only within a budget, whatever it takes. Which rung comes when, and why, stands in
//! [`crate::core::fencing`]; here the rungs are climbed.
//!
//! It has two connections of its own that are kept open ([`Fence::keep_open`]): a new one takes 25 ms, and a server
//! with waiting commits may let nobody in (interleaving 16). One carries the read-only statement and may hang with it,
//! the other looks, kills, and reads back.
//!
//! Nothing here switches semi-sync off: that would answer waiting commits with an unearned OK (interleaving 10).

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::core::fencing::{Rung, Step, ladder};
use crate::host::process::Mysqld;

use super::blockers::{self, Session};
use super::connect::{Line, Target, literal};
use super::fault::{Fault, code};

/// How often the connections are used while there is nothing to fence, and how long one use may take.
pub const KEEP_OPEN: Duration = Duration::from_millis(500);
/// A shorter limit than this would close connections of a server that is merely busy.
const SHORTEST_USE: Duration = Duration::from_millis(50);
/// Between two rounds of killing: others keep coming, above all accounts that `offline_mode` does not stop.
const ROUND: Duration = Duration::from_millis(20);
/// One statement's limit when a fence is given up.
const TAKE_BACK: Duration = Duration::from_millis(200);
/// Before a failed statement is said again (nobody listens, or its lock wait ended).
const AGAIN: Duration = Duration::from_millis(5);
const READ_ONLY: &str = "SET GLOBAL super_read_only = ON";
/// The variable reads ON from the moment the statement begins, also while it waits for commits (seen on 9.7). So what another
/// has begun (the agent beside the guard, an agent that hung in the midst of it) is not taken for done.
const CLOSED: &str = "SELECT @@server_uuid AS uuid, IF(@@global.super_read_only, NOT EXISTS (SELECT 1 \
    FROM performance_schema.processlist WHERE COMMAND = 'Query' AND INFO LIKE 'SET GLOBAL super_read_only%'), 0) AS closed";

/// What became of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fenced {
    /// Alive, and `super_read_only` was read back.
    ReadOnly,
    /// The process was seen to have exited.
    Dead,
    /// Neither is certain. **The server may take writes.**
    Failed(String),
    /// Given up half way, because a lease holds again. The server is as it was, or read-only.
    Withdrawn,
}

/// How a fence ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What became of the server.
    pub fenced: Fenced,
    /// The last rung that was needed; none where the server was read-only or dead before.
    pub rung: Option<Rung>,
    /// How long after the start nothing could be acknowledged any more: read-only in force, or SIGKILL sent (whoever has it
    /// executes nothing of his own, also while the kernel still takes him apart). None where that is not certain.
    pub harmless: Option<Duration>,
    /// What held it up, for the log; empty where nothing did.
    pub trouble: Vec<String>,
}

/// The limit of one of so many uses of the connections while there is nothing to fence, `left` being the time before there may
/// be: all together leave some of it, since a server that hangs must not hold the fence up. None: too little is left.
#[must_use]
pub fn limit_of_use(left: Duration, uses: u32) -> Option<Duration> {
    Some(KEEP_OPEN.min(left / (uses + 1))).filter(|limit| *limit >= SHORTEST_USE)
}

/// The ladder, with its connections.
#[derive(Debug)]
pub struct Fence {
    user: String,
    spare_users: Vec<String>,
    /// Carries the read-only statement.
    closer: Line,
    /// Looks, kills, reads back.
    pub(super) hand: Line,
    /// The process as the watch on it knows it.
    pub(super) mysqld: watch::Receiver<Option<Arc<Mysqld>>>,
}

impl Fence {
    /// Opens nothing yet. `spare_users`: accounts whose sessions are ended only where they hold read-only up. `mysqld`:
    /// the process to kill if nothing else helps; none while it is not known.
    #[must_use]
    pub fn new(target: &Target, spare_users: Vec<String>, mysqld: watch::Receiver<Option<Arc<Mysqld>>>) -> Self {
        let line = || Line::new(target.clone());
        Self { user: target.user().to_owned(), spare_users, closer: line(), hand: line(), mysqld }
    }

    /// Opens what is not open and sees that both answer. To be called regularly while there is nothing to fence.
    ///
    /// # Errors
    /// See [`Fault`]: the fence would have to connect first.
    pub async fn keep_open(&mut self, limit: Duration) -> Result<(), Fault> {
        self.closer.run("DO 1", limit).await?;
        self.hand.run("DO 1", limit).await
    }

    /// Walks the way of a fence without touching anything: the questions, the sessions, a `KILL` of one that cannot be. So that all
    /// it needs is in memory before a fence needs it ([`crate::host::memory`]).
    ///
    /// # Errors
    /// See [`Fault`]: to be tried again.
    pub async fn rehearse(&mut self, limit: Duration) -> Result<(), Fault> {
        self.look(limit).await?;
        self.closer.run("DO 0", limit).await?;
        let all = blockers::sessions(&mut self.hand, limit).await?;
        let _ = blockers::in_words(&all);
        match self.hand.run("KILL 0", limit).await {
            Ok(()) | Err(Fault::Server { .. }) => {}
            Err(fault) => return Err(fault),
        }
        let _ = self.process_lives();
        Ok(())
    }

    /// Logs in with another target from the next connection on (a reload). Those that are open are proven to work and stay.
    pub fn retarget(&mut self, target: &Target) {
        target.user().clone_into(&mut self.user);
        self.closer.retarget_next(target.clone());
        self.hand.retarget_next(target.clone());
    }

    /// Whether the server is read-only, and its `server_uuid`.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn look(&mut self, limit: Duration) -> Result<(bool, String), Fault> {
        let row = self.hand.row(CLOSED, limit).await?;
        Ok((row.is_on("closed"), row.text_or_empty("uuid")))
    }

    /// Whether the process is known and has not exited.
    #[must_use]
    pub fn process_lives(&self) -> bool {
        self.mysqld.borrow().as_ref().is_some_and(|mysqld| !mysqld.has_exited())
    }

    /// Makes the server read-only, or dead. Takes `budget` at the most; `needed` is asked
    /// again before sessions or the process are killed: a lease may have been renewed meanwhile, and its holder may have
    /// opened the server again, so that what is killed would be rightful commits.
    pub async fn climb(&mut self, budget: Duration, needed: impl Fn() -> bool) -> Report {
        // Held for the whole climb: a new process that the watch finds meanwhile is another life, with
        // super_read_only persisted, and not the one this fence is for.
        let mysqld = self.mysqld.borrow().clone();
        let mysqld = mysqld.as_deref();
        let start = Instant::now();
        let mut report =
            Report { fenced: Fenced::Failed(String::new()), rung: None, harmless: None, trouble: Vec::new() };
        if mysqld.is_some_and(Mysqld::has_exited) {
            return Report { fenced: Fenced::Dead, harmless: Some(Duration::ZERO), ..report };
        }
        let steps = ladder(budget, mysqld.is_some());
        let end = |rung| start + ends(&steps, rung);
        if self.look(ends(&steps, Rung::ReadOnly) / 2).await.is_ok_and(|(closed, _)| closed) {
            return Report { fenced: Fenced::ReadOnly, harmless: Some(start.elapsed()), ..report };
        }
        let ends = [end(Rung::ReadOnly), end(Rung::Offline), end(Rung::KillSessions)];
        if self.close(ends, mysqld, &needed, &mut report).await {
            // Someone may have undone it since; only that it answers "OFF" counts as such.
            if self.reads_on(end(Rung::KillSessions)).await.unwrap_or(true) {
                report.fenced = Fenced::ReadOnly;
                report.harmless = Some(start.elapsed());
                return report;
            }
            report.trouble.push("super_read_only was ON and is OFF again".into());
        }
        if !needed() {
            self.take_back(&mut report).await;
            return report;
        }
        report.fenced = match mysqld {
            Some(mysqld) => end_process(mysqld, start, budget, &mut report).await,
            None => Fenced::Failed(format!(
                "not read-only within {} ms, and the process to kill is not known (set fencing.mysqld_pid_file); {}",
                budget.as_millis(),
                report.trouble.last().map_or("nothing answered", String::as_str)
            )),
        };
        report
    }

    /// Ends the read-only statement that may still wait: it would close the server behind the back of whoever opened it.
    async fn take_back(&mut self, report: &mut Report) {
        report.fenced = Fenced::Withdrawn;
        let sql = format!(
            "SELECT ID AS id FROM performance_schema.processlist WHERE USER = {} AND INFO = {}",
            literal(&self.user),
            literal(READ_ONLY)
        );
        let waiting = match self.hand.rows(&sql, TAKE_BACK).await {
            Ok(rows) => rows,
            Err(fault) => return note(report, format!("the read-only statement could not be ended: {fault}")),
        };
        for id in waiting.iter().filter_map(|row| row.number("id")) {
            if let Err(fault) = self.hand.run(&format!("KILL {id}"), TAKE_BACK).await {
                note(report, format!("KILL {id}: {fault}"));
            }
        }
    }

    /// The first three rungs. The read-only statement goes on waiting while clients are cut and sessions killed: it stops
    /// new writes meanwhile. `ends`: of each.
    pub(super) async fn close(
        &mut self,
        ends: [Instant; 3],
        mysqld: Option<&Mysqld>,
        needed: &impl Fn() -> bool,
        report: &mut Report,
    ) -> bool {
        let [settled, cut, end] = ends;
        report.rung = Some(Rung::ReadOnly);
        let Self { user, spare_users, closer, hand, .. } = self;
        let mut closing = std::pin::pin!(say_until(closer, READ_ONLY, end));
        let closed = wait(&mut closing, settled, mysqld).await;
        // Also where it is read-only already: clients have to go, and to look for the new primary.
        if closed != Some(false) {
            go_offline(hand, Instant::now() + (cut - settled), report).await;
        }
        if let Some(closed) = closed {
            return closed;
        }
        report.rung = Some(Rung::Offline);
        if let Some(closed) = wait(&mut closing, cut, mysqld).await {
            return closed;
        }
        report.rung = Some(Rung::KillSessions);
        loop {
            if !needed() {
                return false;
            }
            let round = timeout_at(end, kill_blockers(hand, user, spare_users, end, report)).await;
            let until = (Instant::now() + ROUND).min(end);
            if let Some(closed) = wait(&mut closing, until, mysqld).await {
                return closed;
            }
            if round.is_err() || Instant::now() >= end {
                return false;
            }
        }
    }

    /// After our own statement has returned: another that still waits has nothing to wait for. None: no answer by `end`.
    async fn reads_on(&mut self, end: Instant) -> Option<bool> {
        let left = end.saturating_duration_since(Instant::now());
        let row = self.hand.row("SELECT @@global.super_read_only AS closed", left).await;
        row.ok().map(|row| row.is_on("closed"))
    }
}

/// Waiting clients lose their connection before anything can make their commits return.
async fn go_offline(hand: &mut Line, end: Instant, report: &mut Report) {
    let left = end.saturating_duration_since(Instant::now());
    if let Err(fault) = hand.run("SET GLOBAL offline_mode = ON", left).await {
        report.trouble.push(format!("offline_mode: {fault}"));
    }
}

/// When a rung ends. Only the last rung can be missing, and is not asked for.
pub(super) fn ends(steps: &[Step], rung: Rung) -> Duration {
    steps.iter().find(|step| step.rung == rung).map_or(Duration::ZERO, |step| step.ends)
}

/// What the statement came to, by `until`. A process that exits meanwhile ends the waiting: nothing will come.
async fn wait(
    closing: &mut Pin<&mut impl Future<Output = bool>>,
    until: Instant,
    mysqld: Option<&Mysqld>,
) -> Option<bool> {
    let gone = async {
        match mysqld {
            Some(mysqld) => mysqld.exited().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        closed = closing.as_mut() => Some(closed),
        () = gone => Some(false),
        () = tokio::time::sleep_until(until) => None,
    }
}

/// Says a statement, again and again, until it has succeeded (true) or `end` has come.
async fn say_until(line: &mut Line, sql: &str, end: Instant) -> bool {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        if line.run(sql, left).await.is_ok() {
            return true;
        }
        sleep(AGAIN.min(left)).await;
    }
}

/// Third rung, one round.
async fn kill_blockers(hand: &mut Line, user: &str, spare: &[String], end: Instant, report: &mut Report) {
    let left = end.saturating_duration_since(Instant::now());
    let all = match blockers::sessions(hand, left).await {
        Ok(all) => all,
        Err(fault) => {
            note(report, format!("sessions: {fault}"));
            return;
        }
    };
    note(report, blockers::in_words(&all));
    for session in all.iter().filter(|session| is_to_go(session, user, spare)) {
        match hand.run(&format!("KILL {}", session.id), left).await {
            Ok(()) | Err(Fault::Server { code: code::NO_SUCH_THREAD, .. }) => {}
            Err(fault) => note(report, format!("KILL {}: {fault}", session.id)),
        }
    }
}

/// Everybody who is not the server itself, and those who are spared only where they hold read-only up. Our own heartbeat
/// may be among those: its commit waits for an acknowledgement like any other.
fn is_to_go(session: &Session, user: &str, spare: &[String]) -> bool {
    let spared = session.user == user || spare.contains(&session.user);
    let closes = session.user == user && session.statement.starts_with(READ_ONLY);
    !session.is_systems() && !closes && (session.holds || !spared)
}

fn note(report: &mut Report, text: String) {
    if report.trouble.last() != Some(&text) {
        report.trouble.push(text);
    }
}

/// Last rung. That the signal was sent is not that the process is dead; so this waits until it is seen.
pub(super) async fn end_process(mysqld: &Mysqld, start: Instant, budget: Duration, report: &mut Report) -> Fenced {
    if mysqld.has_exited() {
        report.harmless = Some(start.elapsed());
        return Fenced::Dead;
    }
    report.rung = Some(Rung::KillProcess);
    if let Err(error) = mysqld.kill() {
        return Fenced::Failed(error.to_string());
    }
    report.harmless = Some(start.elapsed());
    match timeout_at(start + budget, mysqld.exited()).await {
        Ok(()) => Fenced::Dead,
        Err(_) => Fenced::Failed(format!("SIGKILL was sent to mysqld (pid {}), which is not dead yet", mysqld.pid())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(user: &str, holds: bool, statement: &str) -> Session {
        Session {
            id: 1,
            user: user.into(),
            command: "Query".into(),
            state: String::new(),
            holds,
            statement: statement.into(),
            seconds: 0,
        }
    }

    #[test]
    fn all_uses_together_leave_time_before_a_fence() {
        let ms = Duration::from_millis;
        assert_eq!(limit_of_use(Duration::MAX, 2), Some(KEEP_OPEN));
        assert_eq!(limit_of_use(ms(600), 2), Some(ms(200)));
        assert_eq!(limit_of_use(ms(199), 3), None);
    }

    #[test]
    fn who_is_spared_goes_only_when_in_the_way() {
        let spare = ["backup".to_owned()];
        let goes = |user: &str, holds, statement: &str| is_to_go(&session(user, holds, statement), "agent", &spare);
        assert!(goes("app", false, "SELECT 1"));
        assert!(!goes("backup", false, "SELECT 1") && goes("backup", true, "SELECT 1"));
        assert!(!goes("agent", false, "SELECT 1") && goes("agent", true, "REPLACE INTO heartbeat"));
        assert!(!goes("agent", true, READ_ONLY));
        assert!(!goes("system user", true, ""));
    }
}
