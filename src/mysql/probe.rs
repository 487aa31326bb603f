//! The heartbeat: single tries on our own server, and what each showed.
//!
//! A primary writes its row of `<schema>.heartbeat`, a replica only reads the server. The write waits for the semi-sync
//! acknowledgement and for backup locks like any commit, so one that hangs says nothing of the server by itself: it is
//! left waiting (one at a time, never a second), and the server is judged by other means meanwhile:
//!
//! | what the process list shows | outcome |
//! | --- | --- |
//! | the heartbeat waits for a lock | blocked |
//! | the heartbeat, *or any commit*, waits for an acknowledgement, and an unlogged write finishes | blocked |
//! | the same, and the unlogged write waits for a lock | blocked |
//! | the same, and the unlogged write does not finish, or fails for want of space | failure |
//! | anything else (the binary log, the disk) | failure |
//!
//! Any commit, since one that waits for its acknowledgement holds up all behind it, and those show no more than
//! `waiting for handler commit`: under load that is what the heartbeat shows.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::blockers::{self, Session, excuse};
use super::connect::{Line, Target, identifier, literal};
use super::facts::{self, Reading};
use super::fault::{Fault, code};
use crate::core::gtid::GtidSet;
use crate::core::health::Outcome;
use crate::core::time::Moment;
use crate::core::view::{Heartbeat, ServerFacts};
use crate::host::clock;

/// How long a write may wait for whatever it waits for: until it comes or its connection is killed.
const WITHOUT_END: Duration = Duration::from_secs(365 * 24 * 3600);
/// What holds a write up that came back for want of a lock.
const ROW_LOCK: &str = "a lock on the heartbeat's row or table";

/// A row of the heartbeat table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beat {
    /// Whose server.
    pub name: String,
    /// The epoch it holds.
    pub epoch: u64,
}

/// What a try showed.
#[derive(Debug, Clone, PartialEq)]
pub struct Try {
    /// For the judge.
    pub outcome: Outcome,
    /// The server as it was read, and when that was asked for.
    pub facts: Option<(ServerFacts, Moment)>,
    /// Not for us, in words.
    pub unsupported: Option<String>,
    /// When the heartbeat was sent that waits for its acknowledgement; none where none does.
    pub unacknowledged: Option<Moment>,
    /// A heartbeat that has come back.
    pub heartbeat: Option<Heartbeat>,
}

/// Probes our own server on connections of its own.
#[derive(Debug)]
pub struct Prober {
    target: Target,
    admin: Option<Target>,
    schema: String,
    reader: Line,
    facts: facts::Reader,
    /// Looks at the process list while a write hangs.
    side: Line,
    heartbeat: Writer,
    /// The heartbeat on its way. What it says of acknowledgements is how many commits waited for when it was sent.
    before: Heartbeat,
    /// Writes unlogged, to tell a hung engine from a missing acknowledgement.
    local: Writer,
    sequence: u64,
}

/// A connection with at most one write on its way, which may outlast a probe.
#[derive(Debug)]
enum Writer {
    Idle(Line),
    Busy(JoinHandle<(Line, Result<(), Fault>)>),
}

impl Writer {
    /// Sends a write unless one is on its way. `unlogged`: keep it out of the binary log; `login`: how long a new
    /// connection may take.
    fn send(self, sql: String, unlogged: bool, login: Duration) -> JoinHandle<(Line, Result<(), Fault>)> {
        let mut line = match self {
            Self::Busy(task) => return task,
            Self::Idle(line) => line,
        };
        tokio::spawn(async move {
            let result = match unlogged {
                true => write_unlogged(&mut line, &sql, login).await,
                false => write_logged(&mut line, &sql, login).await,
            };
            (line, result)
        })
    }

    fn is_busy(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

async fn write_logged(line: &mut Line, sql: &str, login: Duration) -> Result<(), Fault> {
    let was_open = line.id().is_some();
    match line.open(login).await?.run(sql, WITHOUT_END).await {
        // Killed while idle, or while it waited: opened again at once (seed condition a2).
        Err(Fault::Lost { .. }) if was_open => line.open(login).await?.run(sql, WITHOUT_END).await,
        other => other,
    }
}

/// On one connection, never on two: on a second one the write would be logged.
async fn write_unlogged(line: &mut Line, sql: &str, login: Duration) -> Result<(), Fault> {
    let connection = line.open(login).await?;
    connection.run("SET SESSION sql_log_bin=0", login).await?;
    connection.run(sql, WITHOUT_END).await
}

impl Prober {
    /// Opens nothing yet. `admin`: the server's `admin_address`, tried when it has no connection left.
    #[must_use]
    pub fn new(target: Target, admin: Option<Target>, schema: String) -> Self {
        let (reader, side) = (Line::new(target.clone()), Line::new(target.clone()));
        let [heartbeat, local] = [(); 2].map(|()| Writer::Idle(Line::patient(target.clone())));
        let facts = facts::Reader::new(&schema);
        Self {
            target,
            admin,
            schema,
            reader,
            facts,
            side,
            heartbeat,
            before: Heartbeat { sent: Moment(0), executed: GtidSet::new(), epoch: 0, acknowledged_by: None },
            local,
            sequence: 0,
        }
    }

    /// One try within `limit`; with `beat` the heartbeat is written too.
    pub async fn probe(&mut self, beat: Option<&Beat>, incarnation: &str, limit: Duration) -> Try {
        let asked = clock::now();
        let reading = match self.read(incarnation, limit).await {
            Err(Fault::TooManyConnections { .. }) if self.admin.is_some() => {
                self.reader = Line::new(self.admin.clone().unwrap_or_else(|| self.target.clone()));
                self.read(incarnation, limit).await
            }
            other => other,
        };
        let facts = match reading {
            Ok(Reading::Facts(facts)) => *facts,
            Ok(Reading::Unsupported(why)) => {
                return Try {
                    outcome: Outcome::Success,
                    facts: None,
                    unsupported: Some(why),
                    unacknowledged: None,
                    heartbeat: None,
                };
            }
            Err(fault) => {
                return Try {
                    outcome: outcome_of(&fault),
                    facts: None,
                    unsupported: None,
                    unacknowledged: None,
                    heartbeat: None,
                };
            }
        };
        let (outcome, heartbeat) = self.write(beat, &facts, limit).await;
        // A lock of somebody's is no missing acknowledgement.
        let waits = matches!(&outcome, Outcome::Blocked { by } if by.starts_with(blockers::NO_ACKNOWLEDGEMENT));
        let unacknowledged = waits.then_some(self.before.sent);
        Try { unacknowledged, outcome, facts: Some((facts, asked)), unsupported: None, heartbeat }
    }

    async fn read(&mut self, incarnation: &str, limit: Duration) -> Result<Reading, Fault> {
        let was_open = self.reader.id().is_some();
        let first = match self.reader.open(limit).await {
            Ok(connection) => self.facts.read(connection, incarnation, limit).await,
            Err(fault) => Err(fault),
        };
        match first {
            // A killed idle connection says nothing of the server: opened again at once (seed condition a2).
            Err(Fault::Lost { .. }) if was_open => {
                let connection = self.reader.open(limit).await?;
                self.facts.read(connection, incarnation, limit).await
            }
            other => other,
        }
    }

    /// Writes the heartbeat, or looks after the one that is still on its way.
    async fn write(
        &mut self,
        beat: Option<&Beat>,
        facts: &ServerFacts,
        limit: Duration,
    ) -> (Outcome, Option<Heartbeat>) {
        let sql = match beat.filter(|_| facts.heartbeat_table && facts.writable()) {
            _ if self.heartbeat.is_busy() => String::new(),
            Some(beat) => self.heartbeat_sql(beat, facts),
            None => return (Outcome::Success, None),
        };
        if !self.heartbeat.is_busy() {
            self.before = Heartbeat {
                sent: clock::now(),
                executed: facts.executed.clone(),
                epoch: beat.map_or(0, |beat| beat.epoch),
                acknowledged_by: facts.semi_sync.waits_for_any(),
            };
        }
        let mut task = self.take_heartbeat().send(sql, false, limit);
        match timeout(limit, &mut task).await {
            Ok(Ok((line, result))) => {
                self.heartbeat = Writer::Idle(line);
                match result {
                    Ok(()) => {
                        let heartbeat = self.returned(limit).await;
                        self.open_early(limit).await;
                        (Outcome::Success, Some(heartbeat))
                    }
                    Err(fault) => (after_write(&fault), None),
                }
            }
            Ok(Err(_)) => (Outcome::Failure { why: "the heartbeat's task has ended".to_owned() }, None),
            Err(_) => {
                self.heartbeat = Writer::Busy(task);
                (self.why_it_waits(limit).await, None)
            }
        }
    }

    /// It has come back, which alone says nothing: semi-sync may have given up, or may have been switched off, meanwhile.
    async fn returned(&mut self, limit: Duration) -> Heartbeat {
        let mut heartbeat = self.before.clone();
        if heartbeat.acknowledged_by.is_some() {
            let now = match self.reader.open(limit).await {
                Ok(connection) => self.facts.semi_sync(connection, limit).await,
                Err(_) => None,
            };
            let waits = now.and_then(|now| now.waits_for_any());
            heartbeat.acknowledged_by = heartbeat.acknowledged_by.filter(|count| waits == Some(*count));
        }
        heartbeat
    }

    fn take_heartbeat(&mut self) -> Writer {
        std::mem::replace(&mut self.heartbeat, Writer::Idle(Line::patient(self.target.clone())))
    }

    fn heartbeat_sql(&mut self, beat: &Beat, facts: &ServerFacts) -> String {
        self.sequence += 1;
        format!(
            "{} (server_uuid, name, epoch, sequence, written_at) VALUES ({}, {}, {}, {}, UTC_TIMESTAMP(6))",
            self.replace_into("heartbeat"),
            literal(&facts.server_uuid),
            literal(&beat.name),
            beat.epoch,
            self.sequence
        )
    }

    /// The beginning of a write, which also finds it in the process list.
    fn replace_into(&self, table: &str) -> String {
        format!("REPLACE INTO {}.{table}", identifier(&self.schema))
    }

    /// The connections that a hanging write calls for, while logins still work: under waiting commits they may hang
    /// (interleaving 16). Whether it comes off is seen when they are used.
    async fn open_early(&mut self, limit: Duration) {
        let _ = self.side.open(limit).await;
        if let Writer::Idle(line) = &mut self.local {
            let _ = line.open(limit).await;
        }
    }

    /// The heartbeat hangs and the server answers reads: whose fault is it? (See the module's table.)
    async fn why_it_waits(&mut self, limit: Duration) -> Outcome {
        let sessions = match blockers::sessions(&mut self.side, limit).await {
            Ok(sessions) => sessions,
            Err(fault) => return outcome_of(&fault),
        };
        match cause(&sessions, &self.replace_into("heartbeat")) {
            Cause::Lock(by) => Outcome::Blocked { by: with_holders(by, &sessions) },
            Cause::Acknowledgement => self.engine_lives(blockers::without_acknowledgement(&sessions), limit).await,
            Cause::Server(state) => Outcome::Failure { why: format!("a write hangs in the server ({state})") },
        }
    }

    /// An acknowledgement is missing. A write that is not logged needs none, only the engine: where it does not finish
    /// either, the replicas are not to blame.
    async fn engine_lives(&mut self, no_acknowledgement: String, limit: Duration) -> Outcome {
        let replace = self.replace_into("local");
        let sql = format!("{replace} (id, written_at) VALUES (1, UTC_TIMESTAMP(6))");
        let idle = Writer::Idle(Line::patient(self.target.clone()));
        let mut task = std::mem::replace(&mut self.local, idle).send(sql, true, limit);
        match timeout(limit, &mut task).await {
            Ok(Ok((line, result))) => {
                self.local = Writer::Idle(line);
                match result {
                    Err(fault) if is_engines(&fault) => Outcome::Failure { why: format!("writes fail: {fault}") },
                    // Done; or refused, killed, not let in: no word about the engine, and the cause stands.
                    _ => Outcome::Blocked { by: no_acknowledgement },
                }
            }
            Ok(Err(_)) => Outcome::Failure { why: "the local write's task has ended".to_owned() },
            Err(_) => {
                self.local = Writer::Busy(task);
                let sessions = blockers::sessions(&mut self.side, limit).await.unwrap_or_default();
                match cause(&sessions, &replace) {
                    Cause::Lock(by) => Outcome::Blocked { by: with_holders(by, &sessions) },
                    _ => Outcome::Failure { why: "writes hang, also those that need no replica".to_owned() },
                }
            }
        }
    }
}

/// Why a write of ours hangs, by the process list.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// Somebody holds a lock.
    Lock(&'static str),
    /// An acknowledgement is missing, for this write or for one before it.
    Acknowledgement,
    /// Nothing that excuses the server; the state it shows.
    Server(String),
}

fn cause(sessions: &[Session], beginning: &str) -> Cause {
    let waits = sessions.iter().any(Session::waits_for_ack);
    let ours = sessions.iter().find(|session| session.statement.starts_with(beginning));
    let own_excuse = ours.filter(|session| !session.waits_for_ack()).and_then(|session| excuse(&session.state));
    match (own_excuse, waits) {
        (Some(lock), _) => Cause::Lock(lock),
        (None, true) => Cause::Acknowledgement,
        (None, false) => {
            Cause::Server(ours.map_or_else(|| "not in the process list".into(), |ours| ours.state.clone()))
        }
    }
}

/// What a write waits for, with whoever holds it.
fn with_holders(by: &str, sessions: &[Session]) -> String {
    match blockers::holders_in_words(sessions).as_str() {
        "" => by.to_owned(),
        holders => format!("{by}: {holders}"),
    }
}

/// Whether a local write's error speaks against the engine (no space, a damaged file), not against our account, its
/// connection, or a lock.
fn is_engines(fault: &Fault) -> bool {
    matches!(fault, Fault::Server { code, .. } if !fault.is_denied()
        && !matches!(*code, code::NO_SUCH_DATABASE | code::NO_SUCH_TABLE | code::LOCK_WAIT_TIMEOUT | code::DEADLOCK | code::INTERRUPTED))
}

/// A read that failed.
fn outcome_of(fault: &Fault) -> Outcome {
    match fault {
        // The server lives and does not let us in, or not at what we need: reported, no reason to switch (seed
        // condition a2).
        Fault::RefusedPassword { .. } | Fault::TooManyConnections { .. } => Outcome::Refused { why: fault.to_string() },
        _ if fault.is_denied() => Outcome::Refused { why: format!("{fault}; grant what packaging/grants.sql grants") },
        _ => Outcome::Failure { why: fault.to_string() },
    }
}

/// A heartbeat write that came back with an error.
fn after_write(fault: &Fault) -> Outcome {
    match fault {
        // Became read-only meanwhile: the facts say so, and decisions are made by them.
        Fault::ReadOnly { .. } => Outcome::Success,
        // Its connection was killed twice, and the server answers: the next probe opens another one.
        Fault::Lost { .. } => Outcome::Success,
        Fault::Server { code, .. } => match *code {
            // Killed as a query; or the table was dropped since the facts were read, which they will say.
            code::INTERRUPTED | code::NO_SUCH_DATABASE | code::NO_SUCH_TABLE => Outcome::Success,
            code::LOCK_WAIT_TIMEOUT | code::DEADLOCK => Outcome::Blocked { by: ROW_LOCK.to_owned() },
            _ if fault.is_denied() => outcome_of(fault),
            _ => Outcome::Failure { why: format!("the heartbeat cannot be written: {fault}") },
        },
        _ => outcome_of(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "REPLACE INTO `mysql_ha`.heartbeat";

    fn session(statement: &str, state: &str) -> Session {
        Session {
            id: 1,
            user: "agent".into(),
            command: "Query".into(),
            state: state.into(),
            holds: false,
            statement: statement.into(),
            seconds: 0,
        }
    }

    #[test]
    fn a_commit_before_ours_that_waits_for_its_acknowledgement_explains_ours() {
        let all =
            [session("COMMIT", "Waiting for semi-sync ACK from replica"), session(OURS, "waiting for handler commit")];
        assert!(matches!(cause(&all, OURS), Cause::Acknowledgement));
    }

    #[test]
    fn our_own_lock_comes_before_the_acknowledgements_of_others() {
        let all = [
            session("COMMIT", "Waiting for semi-sync ACK from replica"),
            session(OURS, "Waiting for global read lock"),
        ];
        assert!(matches!(cause(&all, OURS), Cause::Lock(_)));
    }

    #[test]
    fn a_lock_that_others_wait_for_excuses_nothing() {
        let all = [session("INSERT", "Waiting for table metadata lock"), session(OURS, "waiting for handler commit")];
        assert_eq!(cause(&all, OURS), Cause::Server("waiting for handler commit".into()));
    }

    #[test]
    fn a_full_disk_speaks_against_the_engine_and_a_missing_privilege_does_not() {
        let server = |code| Fault::Server { at: "s".into(), code, message: "x".into() };
        assert!(is_engines(&server(1114)) && matches!(after_write(&server(1114)), Outcome::Failure { .. }));
        for code in [1142, 1227] {
            assert!(!is_engines(&server(code)) && matches!(after_write(&server(code)), Outcome::Refused { .. }));
        }
    }
}
