//! The heartbeat: single tries on our own server, and what each showed.
//!
//! A primary writes its row of `<schema>.heartbeat`, a replica only reads the server. The write waits for the semi-sync
//! acknowledgement and for backup locks like any commit, so one that hangs says nothing of the server by itself: it is
//! left waiting (one at a time, never a second), and the server is judged by other means meanwhile.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::blockers::{self, excuse};
use super::connect::{Line, Target, identifier, literal};
use super::facts::{self, Reading};
use super::fault::Fault;
use crate::core::gtid::GtidSet;
use crate::core::health::Outcome;
use crate::core::time::Moment;
use crate::core::view::ServerFacts;
use crate::host::clock;

/// How long a heartbeat write may wait for its acknowledgement: until it comes or its connection is killed.
const WAIT_FOR_ACK: Duration = Duration::from_secs(365 * 24 * 3600);

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
    /// Executed, read before a heartbeat was sent that has been acknowledged by now (interleaving 17).
    pub watermark: Option<GtidSet>,
}

/// Probes our own server on connections of its own.
#[derive(Debug)]
pub struct Prober {
    target: Target,
    admin: Option<Target>,
    schema: String,
    reader: Line,
    side: Line,
    writer: Option<Line>,
    pending: Option<Pending>,
    sequence: u64,
}

/// A heartbeat on its way.
#[derive(Debug)]
struct Pending {
    task: JoinHandle<(Line, Result<(), Fault>)>,
    before: GtidSet,
}

impl Prober {
    /// Opens nothing yet. `admin`: the server's `admin_address`, tried when it has no connection left.
    #[must_use]
    pub fn new(target: Target, admin: Option<Target>, schema: String) -> Self {
        let line = || Line::new(target.clone());
        let (reader, side, writer) = (line(), line(), Some(line()));
        Self { target, admin, schema, reader, side, writer, pending: None, sequence: 0 }
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
                return Try { outcome: Outcome::Success, facts: None, unsupported: Some(why), watermark: None };
            }
            Err(fault) => return Try { outcome: outcome_of(&fault), facts: None, unsupported: None, watermark: None },
        };
        let (outcome, watermark) = self.write(beat, &facts, limit).await;
        Try { outcome, facts: Some((facts, asked)), unsupported: None, watermark }
    }

    async fn read(&mut self, incarnation: &str, limit: Duration) -> Result<Reading, Fault> {
        let was_open = self.reader.id().is_some();
        let first = match self.reader.open(limit).await {
            Ok(connection) => facts::read(connection, &self.schema, incarnation, limit).await,
            Err(fault) => Err(fault),
        };
        match first {
            // A killed idle connection says nothing of the server: opened again at once (seed condition a2).
            Err(Fault::Lost { .. }) if was_open => {
                let connection = self.reader.open(limit).await?;
                facts::read(connection, &self.schema, incarnation, limit).await
            }
            other => other,
        }
    }

    /// Writes the heartbeat, or looks after the one that is still on its way.
    async fn write(&mut self, beat: Option<&Beat>, facts: &ServerFacts, limit: Duration) -> (Outcome, Option<GtidSet>) {
        if self.pending.is_none() {
            match beat.filter(|_| facts.heartbeat_table && facts.writable()) {
                Some(beat) => self.send(beat, facts),
                None => return (Outcome::Success, None),
            }
        }
        let Some(mut pending) = self.pending.take() else { return (Outcome::Success, None) };
        match timeout(limit, &mut pending.task).await {
            Ok(Ok((line, Ok(())))) => {
                self.writer = Some(line);
                (Outcome::Success, Some(pending.before))
            }
            Ok(Ok((line, Err(fault)))) => {
                self.writer = Some(line);
                (after_write(&fault), None)
            }
            Ok(Err(_)) => (Outcome::Failure { why: "the heartbeat's task has ended".to_owned() }, None),
            Err(_) => {
                self.pending = Some(pending);
                (self.why_it_waits(facts, limit).await, None)
            }
        }
    }

    fn send(&mut self, beat: &Beat, facts: &ServerFacts) {
        self.sequence += 1;
        let sql = format!(
            "REPLACE INTO {}.heartbeat (server_uuid, name, epoch, sequence, written_at) VALUES ({}, {}, {}, {}, UTC_TIMESTAMP(6))",
            identifier(&self.schema),
            literal(&facts.server_uuid),
            literal(&beat.name),
            beat.epoch,
            self.sequence
        );
        let mut line = self.writer.take().unwrap_or_else(|| Line::new(self.target.clone()));
        let task = tokio::spawn(async move {
            let result = line.run(&sql, WAIT_FOR_ACK).await;
            (line, result)
        });
        self.pending = Some(Pending { task, before: facts.executed.clone() });
    }

    /// The write hangs and the server answers reads: whose fault is it?
    async fn why_it_waits(&mut self, facts: &ServerFacts, limit: Duration) -> Outcome {
        let sessions = match blockers::sessions(&mut self.side, limit).await {
            Ok(sessions) => sessions,
            Err(fault) => return outcome_of(&fault),
        };
        let ours = format!("REPLACE INTO {}.heartbeat", identifier(&self.schema));
        let state =
            sessions.iter().find(|session| session.statement.starts_with(&ours)).map(|session| session.state.as_str());
        if let Some(by) = state.and_then(excuse) {
            return Outcome::Blocked { by: by.to_owned() };
        }
        // No excuse by its state: a write that is not logged needs no replica and no binary log, only the engine.
        let local = format!(
            "REPLACE INTO {}.local_write (server_uuid, written_at) VALUES ({}, UTC_TIMESTAMP(6))",
            identifier(&self.schema),
            literal(&facts.server_uuid)
        );
        let written = async {
            self.side.run("SET SESSION sql_log_bin=0", limit).await?;
            self.side.run(&local, limit).await
        };
        match written.await {
            Ok(()) => Outcome::Blocked { by: format!("a write waits ({})", state.unwrap_or("no state shown")) },
            Err(fault) => Outcome::Failure { why: format!("writes hang: {fault}") },
        }
    }
}

/// A read that failed.
fn outcome_of(fault: &Fault) -> Outcome {
    match fault {
        // The server lives and does not let us in: reported, no reason to switch (seed condition a2).
        Fault::RefusedPassword { .. } | Fault::TooManyConnections { .. } => Outcome::Refused { why: fault.to_string() },
        _ => Outcome::Failure { why: fault.to_string() },
    }
}

/// A heartbeat write that came back with an error.
fn after_write(fault: &Fault) -> Outcome {
    match fault {
        // Became read-only meanwhile: the facts say so, and decisions are made by them.
        Fault::ReadOnly { .. } => Outcome::Success,
        // Its connection was killed: the next probe opens another one.
        Fault::Lost { .. } => Outcome::Success,
        Fault::RefusedPassword { .. } | Fault::TooManyConnections { .. } => Outcome::Refused { why: fault.to_string() },
        _ => Outcome::Failure { why: format!("the heartbeat cannot be written: {fault}") },
    }
}
