//! Taking writes.
//!
//! The last statement carries the lease's end, so that a copy of it that reaches the server late (a frozen agent that
//! thaws, a full socket) leaves the server read-only (interleaving 14). The end is given on the *server's* clock: one
//! reading of it beforehand, extended by what was left of the lease when the answer was here. The true instant of that
//! reading lies before the answer, so the deadline comes out early by at most the round trip, never late; and neither
//! a skewed host nor a wall clock of our own matters.

use crate::core::time::Moment;
use crate::host::clock;

use super::connect::{Line, literal};
use super::control::{Control, ControlError, Doing, Done, STEP};

/// See [`crate::core::action::MysqlAction::Open`].
pub(crate) async fn open(
    control: &mut Control,
    not_after: Moment,
    acknowledgements: u32,
) -> Result<Done, ControlError> {
    end_replication(control).await?;
    if acknowledgements > 0 {
        super::semisync::wait_for_acknowledgements(&mut control.line, acknowledgements).await?;
    }
    // Clients that come in now meet a read-only server for a moment.
    let sql = "SELECT @@global.offline_mode AS offline";
    if control.line.row(sql, STEP).await.doing("reading offline_mode")?.is_on("offline") {
        control.line.run("SET GLOBAL offline_mode=OFF", STEP).await.doing("lifting offline_mode")?;
    }
    clear_read_only(&mut control.line, not_after).await?;
    enable_events(control);
    Ok(Done::Done)
}

/// Ends replication for good. Refused while something received is not executed: `RESET REPLICA ALL` would throw it
/// away.
async fn end_replication(control: &mut Control) -> Result<(), ControlError> {
    if control.channel().await?.is_none() {
        return Ok(());
    }
    // The IO thread first: after it nothing new can arrive between the check and the reset.
    control.stop_io().await?;
    let missing = control.position().await?.unapplied();
    if !missing.is_empty() {
        return Err(ControlError::Unapplied { what: "end replication", missing });
    }
    control.line.run("STOP REPLICA", STEP).await.doing("stopping replication")?;
    control.line.run("RESET REPLICA ALL", STEP).await.doing("ending replication")
}

async fn clear_read_only(line: &mut Line, not_after: Moment) -> Result<(), ControlError> {
    let clock_sql = "SELECT UTC_TIMESTAMP(6) AS now";
    let now = line.row(clock_sql, STEP).await.doing("reading the server's clock")?.text_or_empty("now");
    let left = not_after.until(clock::now());
    if left.is_zero() {
        return Err(ControlError::TooLate);
    }
    let too_late = format!("(SELECT UTC_TIMESTAMP(6) > {} + INTERVAL {} MICROSECOND)", literal(&now), left.as_micros());
    // One statement, evaluated at one instant, sets both or none. It must not be repeated by itself on a lost
    // connection, but may be: whenever it arrives, it asks the clock.
    let sql = format!("SET GLOBAL super_read_only={too_late}, GLOBAL read_only={too_late}");
    line.run(&sql, STEP).await.doing("making the server writable")?;
    let sql = "SELECT @@global.super_read_only OR @@global.read_only AS closed";
    match line.row(sql, STEP).await.doing("reading super_read_only back")?.is_on("closed") {
        true => Err(ControlError::TooLate),
        false => Ok(()),
    }
}

/// Enables the events that replication had disabled here (`DISABLE ON REPLICA` by an origin other than this server).
/// In the background and at best effort: applications wait for the primary, not for its events; and a server that has
/// become read-only meanwhile refuses it.
fn enable_events(control: &Control) {
    let mut line = Line::new(control.line.target().clone());
    tokio::spawn(async move {
        // The definer is named, or the statement would make our account the definer.
        let sql = "SELECT EVENT_SCHEMA AS db, EVENT_NAME AS name, DEFINER AS definer FROM information_schema.EVENTS \
                   WHERE STATUS IN ('SLAVESIDE_DISABLED', 'REPLICA_SIDE_DISABLED') AND ORIGINATOR <> @@server_id";
        let events = match line.rows(sql, STEP).await {
            Ok(events) => events,
            Err(fault) => return tracing::warn!(%fault, "events that replication had disabled were not looked for"),
        };
        for event in events {
            let name = |column: &str| super::connect::identifier(&event.text_or_empty(column));
            let definer = event.text_or_empty("definer");
            let (user, host) = definer.rsplit_once('@').unwrap_or((&definer, "%"));
            let (db, event) = (name("db"), name("name"));
            let sql = format!("ALTER DEFINER={}@{} EVENT {db}.{event} ENABLE", literal(user), literal(host));
            match line.run(&sql, STEP).await {
                Ok(()) => tracing::info!(%db, %event, "event enabled, which replication had disabled here"),
                Err(fault) => tracing::warn!(%db, %event, %fault, "event not enabled; do it by hand"),
            }
        }
    });
}
