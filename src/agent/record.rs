//! What is published of our server in `agents/<name>`.

use std::time::Duration;

use crate::core::outcome::Decision;
use crate::core::reason::Reason;
use crate::core::records::{AgentRecord, Role, ServerRecord, SourceRecord};
use crate::core::time::{Moment, Wall};
use crate::core::view::{Channel, Enabling, Health, IoThread, Own, Process, Server, ServerFacts};

/// The record of this moment.
#[must_use]
pub fn agent_record(own: &Own, server: &Server, decision: Option<&Decision>, wall: Wall, now: Moment) -> AgentRecord {
    let outcome = decision.map(|decision| &decision.outcome);
    AgentRecord {
        name: own.name.clone(),
        address: own.address.clone(),
        boot_id: own.boot_id.clone(),
        home: own.home.clone(),
        instance: own.instance.clone(),
        agent_version: own.agent_version.clone(),
        at: wall,
        zone: own.zone.clone(),
        priority: own.priority,
        mode: own.mode,
        fenced_by_hand: server.fenced_by_hand,
        tags: own.tags.clone(),
        role: outcome.map_or(Role::Unknown, |outcome| outcome.role),
        row: decision.map_or_else(String::new, |decision| decision.row.to_owned()),
        reason: outcome.map_or(Reason::Starting, |outcome| outcome.reason),
        detail: outcome.map_or_else(String::new, |outcome| outcome.detail.clone()),
        proposes: Some(own.terms()),
        replication_user: Some(own.replication_user.clone()).filter(|user| !user.is_empty()),
        guard: None,
        server: server.facts.as_ref().map(|(facts, at)| {
            let intends = decision.is_some_and(|decision| decision.may_acknowledge);
            server_record(server, facts, now.since(*at), intends)
        }),
    }
}

fn server_record(server: &Server, facts: &ServerFacts, age: Duration, intends: bool) -> ServerRecord {
    let exited = matches!(server.process, Process::Exited { .. });
    let healthy = matches!(server.health, Health::Healthy | Health::Blocked { .. });
    ServerRecord {
        server_uuid: facts.server_uuid.clone(),
        server_id: facts.server_id,
        version: facts.version.clone(),
        healthy,
        // What was writable when it was last seen counts as writable until something else is known.
        writable: facts.writable() && !exited,
        executed: facts.executed.clone(),
        retrieved: facts.channel.as_ref().map(|channel| channel.retrieved.clone()).unwrap_or_default(),
        source: facts.channel.as_ref().map(source_record),
        lag_ms: lag(facts, age),
        replicas: facts.replicas.clone(),
        blocked: match &server.health {
            Health::Blocked { by } => Some(by.clone()),
            Health::Unreachable { why } | Health::Failed { why, .. } => Some(why.clone()),
            Health::Healthy | Health::Unknown => None,
        },
        // A server that has exited comes back with replication stopped (`skip_replica_start`).
        acknowledges: Some(
            !exited && (intends || server.enabling != Enabling::No || facts.semi_sync.may_acknowledge()),
        ),
        acknowledging: !exited && facts.semi_sync.replica.is_some_and(|replica| replica.active),
        errant: server.errant.clone(),
        incarnation: Some(facts.life()),
    }
}

/// Only a replica lags; what is unknown stays out instead of reading as zero.
fn lag(facts: &ServerFacts, age: Duration) -> Option<u64> {
    facts.channel.as_ref()?;
    u64::try_from((facts.heartbeat_age? + age).as_millis()).ok()
}

fn source_record(channel: &Channel) -> SourceRecord {
    let error = [&channel.sql_error, &channel.io_error].into_iter().find(|error| !error.is_empty()).cloned();
    SourceRecord {
        address: channel.source.clone(),
        user: Some(channel.user.clone()),
        server_uuid: Some(channel.source_uuid.clone()).filter(|uuid| !uuid.is_empty()),
        io_running: channel.io == IoThread::Yes,
        sql_running: channel.sql_running,
        error,
    }
}
