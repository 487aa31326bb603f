//! Becoming read-only in an orderly way: within a limit, or not at all.
//!
//! Before it is tried the sessions are looked at: whoever has held a lock for more than a second that read-only has to wait for
//! (`LOCK TABLES`, a read lock, a long statement) would only cost the others their writes for the length of the limit.
//!
//! `SET GLOBAL super_read_only=ON` waits for commits in flight and for sessions with locks, and keeps new writes
//! waiting meanwhile. Ended half way it may have set `read_only` already; whoever goes back to writing has to undo
//! that too, and an outcome that is not known has to be read back.

use std::time::Duration;

use super::connect::Row;
use super::control::{Control, ControlError, Doing, Done, STEP};
use super::fault::Fault;
use super::follow::{connect_to, killer_for};
use super::{blockers, facts};

const READ_ONLY: &str = "SET GLOBAL super_read_only=ON";
const STATE: &str =
    "SELECT @@global.super_read_only AS closed, @@global.read_only AS read_only, @@global.gtid_executed AS executed";

/// See [`crate::core::action::MysqlAction::Close`].
pub(crate) async fn close(control: &mut Control, limit: Duration) -> Result<Done, ControlError> {
    let before = control.line.row(STATE, STEP).await.doing("reading super_read_only")?;
    if before.is_on("closed") {
        return closed(control, &before);
    }
    // The killer is opened before it is needed: 25 ms for a login are too long in the middle of a switch.
    control.killer.open(STEP).await.doing("opening the connection that could end it")?;
    if let Some(blockers) = held_up(control).await {
        return Err(ControlError::HeldUp { blockers });
    }
    let mut connection = match control.line.take() {
        Some(connection) => connection,
        None => super::connect::Connection::open(control.line.target(), STEP).await.doing("connecting")?,
    };
    let outcome = connection.run_or_kill(READ_ONLY, limit, &mut control.killer).await;
    control.line.put(connection);
    match outcome {
        Ok(()) => {}
        Err(Fault::Timeout { .. } | Fault::Lost { .. }) => {
            return settle(control, limit, before.is_on("read_only")).await;
        }
        Err(fault) => return Err(fault).doing("making the server read-only"),
    }
    let after = control.line.row(STATE, STEP).await.doing("reading super_read_only back")?;
    if after.is_on("closed") {
        return closed(control, &after);
    }
    Err(ControlError::NotInForce("super_read_only was set and is off again; somebody else clears it".into()))
}

/// Between two looks at the sessions.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Who would hold read-only up. Locks and sessions are not read at one moment, so whoever was idle for long and is writing just
/// now looks like one that sits on its locks: only who is seen twice does.
async fn held_up(control: &mut Control) -> Option<String> {
    // Without the privilege to look it is tried, as far as its limit goes.
    let mut first = blockers::sessions(&mut control.killer, STEP).await.ok()?;
    first.retain(blockers::Session::holds_up);
    if first.is_empty() {
        return None;
    }
    tokio::time::sleep(LOOK_AGAIN).await;
    let mut again = blockers::sessions(&mut control.killer, STEP).await.ok()?;
    again.retain(|session| session.holds_up() && first.iter().any(|before| before.id == session.id));
    (!again.is_empty()).then(|| blockers::in_words(&again))
}

/// The final set comes in the row that shows the server read-only: the release waits for nothing else.
fn closed(control: &Control, row: &Row) -> Result<Done, ControlError> {
    let at = control.line.target().place().to_string();
    let executed = facts::set(&row.text_or_empty("executed"), &at).doing("reading gtid_executed")?;
    Ok(Done::Closed { executed })
}

/// After the limit: closed after all, or as writable as before.
async fn settle(control: &mut Control, limit: Duration, was_read_only: bool) -> Result<Done, ControlError> {
    let blockers = match blockers::sessions(&mut control.killer, STEP).await {
        Ok(sessions) => blockers::in_words(&sessions),
        Err(fault) => format!("not known ({fault})"),
    };
    let after = control.line.row(STATE, STEP).await.doing("reading super_read_only back")?;
    if after.is_on("closed") {
        return closed(control, &after);
    }
    if after.is_on("read_only") && !was_read_only {
        // Half way: read_only came, super_read_only did not. Turning it off waits for nothing.
        control.line.run("SET GLOBAL read_only=OFF", STEP).await.doing("making the server writable again")?;
    }
    Err(ControlError::NotClosed { limit, blockers })
}

/// See [`crate::core::action::MysqlAction::FenceRemote`].
pub(crate) async fn fence_remote(
    control: &mut Control,
    address: &str,
    server_uuid: &str,
    limit: Duration,
    acknowledged: bool,
) -> Result<Done, ControlError> {
    let work = async {
        let mut connection = connect_to(control, address, server_uuid, limit).await?;
        if acknowledged {
            // While its replicas still acknowledge, commits in flight end by themselves; `offline_mode` would cut those
            // replicas too, and the heartbeat of an agent that is still there would wait for ever and keep read-only from coming.
            let mut killer = killer_for(control, address)?;
            if let Err(fault) = connection.run_or_kill(READ_ONLY, limit / 2, &mut killer).await {
                tracing::debug!(%fault, "read-only did not come by itself on the old primary");
            }
        }
        // Cuts commits that wait for an acknowledgement without an OK; they would hold read-only up for ever. Before all
        // else: under waiting commits a second login may hang (interleaving 16).
        connection.run("SET GLOBAL offline_mode=ON", limit).await.doing("cutting the old primary's clients")?;
        let mut killer = killer_for(control, address)?;
        killer.open(limit).await.doing("connecting to the old primary")?;
        connection.run_or_kill(READ_ONLY, limit, &mut killer).await.doing("making the old primary read-only")
    };
    let late = Fault::Timeout { at: address.to_owned(), after: limit };
    let outcome = tokio::time::timeout(limit, work).await;
    outcome.unwrap_or_else(|_| Err(late).doing("making the old primary read-only")).map(|()| Done::Done)
}
