//! Semi-synchronous replication. The source side: on before a server is opened in `lossless`, off on a replica. The replica
//! side: on only at members that are recorded as such, and only while they follow.
//!
//! A replica whose source side is on waits with every transaction it applies for an acknowledgement that never comes
//! (seen on 9.7), and switching it off while commits wait would answer them with an unearned OK (interleaving 10). The
//! replica side takes effect when the IO thread starts: switched off alone, it goes on acknowledging (interleaving 4).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::core::view::IoThread;

use super::blockers;
use super::connect::{Line, Row};
use super::control::{Control, ControlError, Doing, Done, STEP};
use super::fault::{Fault, code};
use super::wording::SemiSync;

/// The longest wait that the server takes: without end for every practical purpose (interleaving 9: its default gives
/// up after 10 s and acknowledges alone).
pub(crate) const FOR_EVER: u32 = u32::MAX;

/// How long an IO thread may take to connect before it is left to itself.
const CONNECTING: Duration = Duration::from_secs(1);
/// Between two looks at it; the server offers no way to wait for it.
const POLL: Duration = Duration::from_millis(5);

/// Says a statement by the new names of the plugin's variables, then by the old ones; the generation that knew them and its
/// answer, none where no plugin is loaded. Asking which plugin it is first would take longer than most of these statements.
async fn by_name(
    line: &mut Line,
    doing: &'static str,
    statement: impl Fn(SemiSync) -> String,
) -> Result<Option<(SemiSync, Vec<Row>)>, ControlError> {
    for generation in [SemiSync::New, SemiSync::Old] {
        match line.rows(&statement(generation), STEP).await {
            Err(Fault::Server { code: code::UNKNOWN_VARIABLE, .. }) => {}
            answer => return answer.doing(doing).map(|rows| Some((generation, rows))),
        }
    }
    Ok(None)
}

/// The generation of the plugin that makes this server acknowledge; none where none is.
pub(crate) async fn replica_side(line: &mut Line) -> Result<Option<SemiSync>, ControlError> {
    let found = by_name(line, "looking for the semi-sync plugin", |generation| {
        format!("SELECT @@global.{}_enabled", generation.replica())
    });
    Ok(found.await?.map(|(generation, _)| generation))
}

fn not_loaded(consequence: &str) -> ControlError {
    ControlError::NotInForce(format!(
        "failover.durability is lossless and the semi-sync plugin is not loaded; include packaging/mysql-ha.cnf in my.cnf and \
         restart mysqld, {consequence}"
    ))
}

/// Lets every commit wait for `count` acknowledgements, without end, before the engine commits it; 0: no commit waits.
pub(crate) async fn await_acknowledgements(line: &mut Line, count: u32) -> Result<Done, ControlError> {
    if count == 0 {
        // Recorded as degraded before: what waits may be answered.
        return switch_source_off(line, "switching semi-sync off").await.map(|()| Done::Done);
    }
    let switched = by_name(line, "switching semi-sync on", |generation| {
        let (prefix, replica) = (generation.source(), generation.replica_word());
        format!(
            "SET GLOBAL {prefix}_timeout={FOR_EVER}, GLOBAL {prefix}_wait_no_{replica}=ON, \
             GLOBAL {prefix}_wait_for_{replica}_count={count}, GLOBAL {prefix}_wait_point=AFTER_SYNC, GLOBAL {prefix}_enabled=ON"
        )
    });
    match switched.await? {
        Some(_) => Ok(Done::Done),
        None => Err(not_loaded("or the server stays read-only")),
    }
}

/// No plugin: off already.
async fn switch_source_off(line: &mut Line, doing: &'static str) -> Result<(), ControlError> {
    by_name(line, doing, |generation| format!("SET GLOBAL {}_enabled=OFF", generation.source())).await.map(drop)
}

/// Switches the source side off on a server that becomes a replica; refused while a commit waits.
pub(crate) async fn stop_waiting(line: &mut Line) -> Result<(), ControlError> {
    let asked = by_name(line, "reading semi-sync", |generation| {
        format!("SELECT @@global.{}_enabled AS enabled", generation.source())
    });
    if !asked.await?.is_some_and(|(_, rows)| rows.first().is_some_and(|row| row.is_on("enabled"))) {
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
    switch_source_off(line, "switching semi-sync off on a replica").await
}

/// Sets the replica side for the next start of the IO thread. Off where no plugin is loaded is as asked.
pub(crate) async fn set_replica(line: &mut Line, on: bool) -> Result<(), ControlError> {
    let value = if on { "ON" } else { "OFF" };
    let set = by_name(line, "switching semi-sync on the replica", |generation| {
        format!("SET GLOBAL {}_enabled={value}", generation.replica())
    });
    match set.await? {
        None if on => Err(not_loaded("or this server acknowledges nothing")),
        _ => Ok(()),
    }
}

/// Off after each restart, whatever the server's own file says: a returning replica must not acknowledge before it is recorded.
pub(crate) async fn persist_replica_off(line: &mut Line) -> Result<(), ControlError> {
    let doing = "persisting semi-sync's replica side as off";
    by_name(line, doing, |generation| format!("SET PERSIST_ONLY {}_enabled=OFF", generation.replica())).await.map(drop)
}

/// See [`crate::core::action::MysqlAction::Acknowledge`].
pub(crate) async fn acknowledge(control: &mut Control, on: bool) -> Result<Done, ControlError> {
    set_replica(&mut control.line, on).await?;
    if control.channel().await?.is_some_and(|channel| channel.io != IoThread::No) {
        control.line.run("STOP REPLICA IO_THREAD", STEP).await.doing("stopping the IO thread")?;
        control.line.run("START REPLICA IO_THREAD", STEP).await.doing("starting the IO thread")?;
        connected_again(control).await?;
    }
    Ok(Done::Done)
}

/// Until the source has let it in, or it is clear that it does not soon: else the next reading shows a replica that does not
/// replicate, and a switch to it would be refused.
async fn connected_again(control: &mut Control) -> Result<(), ControlError> {
    let end = Instant::now() + CONNECTING;
    while Instant::now() < end && control.channel().await?.is_some_and(|channel| channel.io == IoThread::Connecting) {
        sleep(POLL).await;
    }
    Ok(())
}
