//! The source side of semi-synchronous replication: on before a server is opened in `lossless`, off on a replica.
//!
//! A replica whose source side is on waits with every transaction it applies for an acknowledgement that never comes
//! (seen on 9.7), and switching it off while commits wait would answer them with an unearned OK (interleaving 10).

use super::blockers;
use super::connect::Line;
use super::control::{ControlError, Doing, STEP};
use super::wording::SemiSync;

/// The longest wait that the server takes: without end for every practical purpose (interleaving 9: its default gives
/// up after 10 s and acknowledges alone).
const FOR_EVER: u32 = u32::MAX;

/// The generation of plugins whose source side is loaded; none where none is.
async fn loaded(line: &mut Line) -> Result<Option<SemiSync>, ControlError> {
    let sql = "SELECT PLUGIN_NAME AS name FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE' \
               AND PLUGIN_NAME IN ('rpl_semi_sync_source', 'rpl_semi_sync_master')";
    let rows = line.rows(sql, STEP).await.doing("looking for the semi-sync plugin")?;
    Ok(rows.first().and_then(|row| row.text("name")).map(|name| match name.as_str() {
        "rpl_semi_sync_source" => SemiSync::New,
        _ => SemiSync::Old,
    }))
}

/// Lets every commit wait for `count` acknowledgements, without end, before the engine commits it.
pub(crate) async fn wait_for_acknowledgements(line: &mut Line, count: u32) -> Result<(), ControlError> {
    let Some(generation) = loaded(line).await? else {
        return Err(ControlError::NotInForce(
            "failover.durability is lossless and the semi-sync plugin is not loaded; include packaging/mysql-ha.cnf in \
             my.cnf and restart mysqld, or the server stays read-only"
                .into(),
        ));
    };
    let (prefix, replica) = match generation {
        SemiSync::New => (generation.source(), "replica"),
        SemiSync::Old => (generation.source(), "slave"),
    };
    let sql = format!(
        "SET GLOBAL {prefix}_timeout={FOR_EVER}, GLOBAL {prefix}_wait_no_{replica}=ON, \
         GLOBAL {prefix}_wait_for_{replica}_count={count}, GLOBAL {prefix}_wait_point=AFTER_SYNC, GLOBAL {prefix}_enabled=ON"
    );
    line.run(&sql, STEP).await.doing("switching semi-sync on")
}

/// Switches the source side off on a server that becomes a replica; refused while a commit waits.
pub(crate) async fn stop_waiting(line: &mut Line) -> Result<(), ControlError> {
    let Some(generation) = loaded(line).await? else { return Ok(()) };
    let variable = format!("{}_enabled", generation.source());
    let row = line.row(&format!("SELECT @@global.{variable} AS enabled"), STEP).await.doing("reading semi-sync")?;
    if !row.is_on("enabled") {
        return Ok(());
    }
    let sessions = blockers::sessions(line, STEP).await.doing("looking for waiting commits")?;
    if sessions.iter().any(blockers::Session::waits_for_ack) {
        return Err(ControlError::NotInForce(
            "commits still wait for an acknowledgement that cannot come any more; restart mysqld (kill -9: an orderly \
             shutdown would answer them with an OK)"
                .into(),
        ));
    }
    line.run(&format!("SET GLOBAL {variable}=OFF"), STEP).await.doing("switching semi-sync off on a replica")
}
