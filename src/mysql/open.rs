//! Taking writes.
//!
//! What clients wait for is only this: nothing more can be received, everything received is executed, and the variables
//! are set. Ending the applier and forgetting the source (`STOP REPLICA; RESET REPLICA ALL`) take longer than all the
//! rest together, since they write and sync InnoDB tables and delete relay logs; with the IO thread stopped the applier
//! has nothing to apply, so both come afterwards (`forget_source`).
//!
//! The last statement carries the lease's end, so that a copy of it that reaches the server late (a frozen agent that
//! thaws, a full socket) leaves the server read-only (interleaving 14). The end is given on the *server's* clock: one
//! reading of it beforehand, extended by what was left of the lease when the answer was here. The true instant of that
//! reading lies before the answer, so the deadline comes out early by at most the round trip, never late; and neither
//! a skewed host nor a wall clock of our own matters.

use std::time::Duration;

use crate::core::time::Moment;
use crate::host::clock;

use super::connect::{Line, literal};
use super::control::{Control, ControlError, Doing, Done, STEP};
use super::{binlog, events};

/// See [`crate::core::action::MysqlAction::Open`].
pub(crate) async fn open(
    control: &mut Control,
    not_after: Moment,
    acknowledgements: u32,
) -> Result<Done, ControlError> {
    end_receiving(control).await?;
    if acknowledgements > 0 {
        super::semisync::await_acknowledgements(&mut control.line, acknowledgements).await?;
    }
    if let Err(error) = binlog::begin_new_file(&mut control.line, binlog::WHILE_CLIENTS_WAIT).await {
        tracing::debug!(%error, "replicas have to read the present binary log file from its start");
    }
    // Clients that come in now meet a read-only server for a moment.
    let sql = "SELECT @@global.offline_mode AS offline";
    if control.line.row(sql, STEP).await.doing("reading offline_mode")?.is_on("offline") {
        control.line.run("SET GLOBAL offline_mode=OFF", STEP).await.doing("lifting offline_mode")?;
    }
    clear_read_only(&mut control.line, not_after).await?;
    // In the background: applications wait for the primary, not for its events.
    tokio::spawn(events::enable(control.line.target().clone()));
    Ok(Done::Done)
}

/// Ends receiving, proven by reading back. Refused while something received is not executed: the server would take
/// writes, and the applier would add the old primary's behind them.
async fn end_receiving(control: &mut Control) -> Result<(), ControlError> {
    if control.channel().await?.is_none() {
        return Ok(());
    }
    // After it nothing new can arrive between this reading and the opening.
    let position = control.stop_receiving().await?;
    match position.unapplied() {
        missing if missing.is_empty() => Ok(()),
        missing => Err(ControlError::Unapplied { what: "open the server", missing }),
    }
}

/// See [`crate::core::action::MysqlAction::ForgetSource`].
pub(crate) async fn forget_source(control: &mut Control) -> Result<Done, ControlError> {
    // Looked at once more: `RESET REPLICA ALL` throws away what is not executed.
    end_receiving(control).await?;
    if control.channel().await?.is_some() {
        control.line.run("STOP REPLICA", STEP).await.doing("stopping replication")?;
        control.line.run("RESET REPLICA ALL", STEP).await.doing("ending replication")?;
    }
    Ok(Done::Done)
}

async fn clear_read_only(line: &mut Line, not_after: Moment) -> Result<(), ControlError> {
    let clock_sql = "SELECT UTC_TIMESTAMP(6) AS now";
    let now = line.row(clock_sql, STEP).await.doing("reading the server's clock")?.text_or_empty("now");
    let left = not_after.until(clock::now());
    if left.is_zero() {
        return Err(ControlError::TooLate);
    }
    let sql = statement(&now, left);
    line.run(&sql, STEP).await.doing("making the server writable")?;
    let sql = "SELECT @@global.super_read_only OR @@global.read_only AS closed";
    match line.row(sql, STEP).await.doing("reading super_read_only back")?.is_on("closed") {
        true => Err(ControlError::TooLate),
        false => Ok(()),
    }
}

/// The statement that opens, if it reaches the server within `left` of the instant when the server's clock
/// (`UTC_TIMESTAMP(6)`) showed `now`; later it leaves a read-only server as it is.
///
/// One statement, evaluated at one instant, sets both variables or none. It may be repeated, also by itself on a lost
/// connection: whenever it arrives, it asks the clock.
#[must_use]
pub fn statement(now: &str, left: Duration) -> String {
    let too_late = format!("(SELECT UTC_TIMESTAMP(6) > {} + INTERVAL {} MICROSECOND)", literal(now), left.as_micros());
    format!("SET GLOBAL super_read_only={too_late}, GLOBAL read_only={too_late}")
}
