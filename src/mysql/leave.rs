//! A server leaves the product's care: what we have persisted or switched is taken back, and before a replica is no longer
//! counted on it is made certain that it acknowledges nothing (design section 2, removing from S).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connect::{Line, identifier};
use super::control::{ControlError, Doing, STEP};
use super::facts;
use super::semisync;
use super::wording::SemiSync;
use crate::core::gtid::GtidSet;

/// Between two looks at the primary's heartbeat.
const POLL: Duration = Duration::from_millis(100);

/// What a replica was before it stopped acknowledging, to be put back.
#[derive(Debug, Clone, Copy)]
pub struct Before {
    receiving: bool,
    acknowledging: Option<SemiSync>,
}

/// `@@server_uuid`.
///
/// # Errors
/// See [`ControlError`].
pub async fn server_uuid(line: &mut Line) -> Result<String, ControlError> {
    let row = line.row("SELECT @@server_uuid AS uuid", STEP).await.doing("asking for server_uuid")?;
    Ok(row.text_or_empty("uuid"))
}

/// Switches the replica's side of semi-sync off and ends the IO thread, which would go on acknowledging (interleaving 4);
/// both are read back.
///
/// # Errors
/// See [`ControlError`]; whatever had been done by then is harmless, and done again by the next try.
pub async fn stop_acknowledging(line: &mut Line) -> Result<Before, ControlError> {
    let generation = semisync::replica_side(line).await?;
    let acknowledging = match generation {
        Some(generation) if is_on(line, &format!("{}_enabled", generation.replica())).await? => Some(generation),
        _ => None,
    };
    let receiving = io_state(line).await?.is_some_and(|state| state != "No");
    if let Some(generation) = generation {
        let variable = format!("{}_enabled", generation.replica());
        line.run(&format!("SET GLOBAL {variable}=OFF"), STEP).await.doing("switching acknowledgements off")?;
        reset_persisted(line, &variable).await?;
    }
    if io_state(line).await?.is_some() {
        line.run("STOP REPLICA IO_THREAD", STEP).await.doing("stopping the IO thread")?;
    }
    let off = match generation {
        Some(generation) => !is_on(line, &format!("{}_enabled", generation.replica())).await?,
        None => true,
    };
    if !off || io_state(line).await?.is_some_and(|state| state != "No") {
        return Err(ControlError::NotInForce(
            "acknowledgements were switched off and are on again; somebody else does it".into(),
        ));
    }
    Ok(Before { receiving, acknowledging })
}

/// Lets it receive again, and acknowledge too where it did and `acknowledge` says so.
///
/// # Errors
/// See [`ControlError`].
pub async fn receive_again(line: &mut Line, before: Before, acknowledge: bool) -> Result<(), ControlError> {
    if let Some(generation) = before.acknowledging.filter(|_| acknowledge) {
        let sql = format!("SET GLOBAL {}_enabled=ON", generation.replica());
        line.run(&sql, STEP).await.doing("switching acknowledgements on again")?;
    }
    if before.receiving {
        line.run("START REPLICA IO_THREAD", STEP).await.doing("starting the IO thread")?;
    }
    Ok(())
}

/// A transaction of no consequence on the primary. What a replica had received before it acknowledges again it never
/// acknowledges by itself, only together with what comes after it (interleaving 16): commits that wait for it alone would wait for ever.
///
/// # Errors
/// See [`ControlError`].
pub async fn mark(primary: &mut Line, schema: &str) -> Result<(), ControlError> {
    // Logged though it creates nothing.
    let sql = format!("CREATE DATABASE IF NOT EXISTS {}", identifier(schema));
    primary.run(&sql, STEP).await.doing("committing a marker on the primary")
}

/// All that the primary has executed, read after a commit that was begun after this was called and was acknowledged
/// under the usual rule by others; none within `limit`. The agent's heartbeats are those commits; the one on its way when this is called
/// does not count.
///
/// # Errors
/// See [`ControlError`].
pub async fn settled_set(primary: &mut Line, schema: &str, limit: Duration) -> Result<Option<GtidSet>, ControlError> {
    let schema = identifier(schema);
    let sql = format!("SELECT MAX(sequence) AS sequence FROM {schema}.heartbeat WHERE server_uuid = @@server_uuid");
    let deadline = Instant::now() + limit;
    let mut first = None;
    loop {
        let row = primary.row(&sql, STEP).await.doing("reading the primary's heartbeat")?;
        match (first, row.number("sequence")) {
            (None, now) => first = now,
            // A restarted agent counts anew.
            (Some(then), Some(now)) if now < then => first = Some(now),
            (Some(then), Some(now)) if now >= then + 2 => break,
            _ => {}
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(POLL).await;
    }
    let sql = "SELECT @@global.gtid_executed AS executed";
    let row = primary.row(sql, STEP).await.doing("reading the primary's gtid_executed")?;
    facts::set(&row.text_or_empty("executed"), "the primary").doing("reading the primary's gtid_executed").map(Some)
}

/// Takes back what the agent has persisted. What is in force now stays: a read-only server stays read-only until its restart.
///
/// # Errors
/// See [`ControlError`].
pub async fn forget_persisted(line: &mut Line) -> Result<(), ControlError> {
    // Of semi-sync's two names one is known here, or none.
    let semi_sync = ["rpl_semi_sync_replica_enabled", "rpl_semi_sync_slave_enabled"];
    for variable in ["super_read_only", "read_only", "skip_replica_start"].into_iter().chain(semi_sync) {
        reset_persisted(line, variable).await?;
    }
    Ok(())
}

/// The last server of a cluster: semi-sync off, and the heartbeat's tables gone, with their schema if nothing else is in it.
///
/// # Errors
/// See [`ControlError`].
pub async fn forget_primary(line: &mut Line, schema: &str) -> Result<(), ControlError> {
    semisync::stop_waiting(line).await?;
    if is_on(line, "super_read_only").await? {
        return Err(ControlError::NotInForce(format!(
            "the server is read-only, so the schema {schema} stays; make it writable and drop it, or leave again"
        )));
    }
    let name = identifier(schema);
    for table in ["heartbeat", "local"] {
        let sql = format!("DROP TABLE IF EXISTS {name}.{table}");
        line.run(&sql, STEP).await.doing("dropping the heartbeat's tables")?;
    }
    let literal = super::connect::literal(schema);
    let sql = format!("SELECT COUNT(*) AS others FROM information_schema.TABLES WHERE TABLE_SCHEMA = {literal}");
    if line.row(&sql, STEP).await.doing("looking into the heartbeat's schema")?.number("others") == Some(0) {
        line.run(&format!("DROP DATABASE IF EXISTS {name}"), STEP).await.doing("dropping the heartbeat's schema")?;
    }
    Ok(())
}

async fn reset_persisted(line: &mut Line, variable: &str) -> Result<(), ControlError> {
    line.run(&format!("RESET PERSIST IF EXISTS {variable}"), STEP).await.doing("taking back what was persisted")
}

async fn is_on(line: &mut Line, variable: &str) -> Result<bool, ControlError> {
    let row = line.row(&format!("SELECT @@global.{variable} AS value"), STEP).await.doing("reading a variable")?;
    Ok(row.is_on("value"))
}

/// `Replica_IO_Running`; none without a channel.
async fn io_state(line: &mut Line) -> Result<Option<String>, ControlError> {
    let rows = line.rows("SHOW REPLICA STATUS", STEP).await.doing("reading the replication status")?;
    let default = rows.iter().find(|row| row.text_or_empty("Channel_Name").is_empty());
    Ok(default.map(|row| row.text_or_empty("Replica_IO_Running")))
}
