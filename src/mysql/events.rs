//! Scheduled events on a promoted server: replication had disabled them, now they are to run here.
//!
//! `ALTER EVENT` makes whoever says it the definer, and keeps the session's `sql_mode`, time zone and character sets with
//! the event. All of these are set to what the event had, or enabling it would change what it does and with whose
//! rights. Naming another definer needs `SET_ANY_DEFINER` (before 8.2: `SET_USER_ID`).

use super::connect::{Connection, Row, Target, identifier, literal};
use super::control::STEP;
use super::fault::Fault;

/// `SLAVESIDE_DISABLED` in older versions, `REPLICA_SIDE_DISABLED` in newer ones. One that this server made itself and
/// somebody disabled in this way is not replication's doing.
const DISABLED: &str = "SELECT EVENT_SCHEMA AS db, EVENT_NAME AS name, DEFINER AS definer, SQL_MODE AS mode, \
     TIME_ZONE AS zone, CHARACTER_SET_CLIENT AS client, COLLATION_CONNECTION AS collation \
     FROM information_schema.EVENTS WHERE STATUS IN ('SLAVESIDE_DISABLED', 'REPLICA_SIDE_DISABLED') \
     AND ORIGINATOR <> @@server_id";

/// Enables them at best effort, and says in the log which ones are left to do by hand. A server that has become
/// read-only meanwhile refuses it. On a connection of its own, which ends with it: its session is spoiled.
pub(super) async fn enable(target: Target) {
    let mut connection = match Connection::open(&target, STEP).await {
        Ok(connection) => connection,
        Err(fault) => return tracing::warn!(%fault, "events that replication had disabled were not looked for"),
    };
    let events = match connection.rows(DISABLED, STEP).await {
        Ok(events) => events,
        Err(fault) => return tracing::warn!(%fault, "events that replication had disabled were not looked for"),
    };
    for row in &events {
        let (db, event) = (row.text_or_empty("db"), row.text_or_empty("name"));
        match enable_one(&mut connection, row).await {
            Ok(()) => tracing::info!(%db, %event, "event enabled, which replication had disabled here"),
            Err(fault) => tracing::warn!(
                %db, %event, %fault,
                "event not enabled; do it by hand (ALTER DEFINER=… EVENT … ENABLE), and grant the agent SET_ANY_DEFINER"
            ),
        }
    }
}

async fn enable_one(connection: &mut Connection, row: &Row) -> Result<(), Fault> {
    let text = |column| row.text_or_empty(column);
    let session = format!(
        "SET SESSION time_zone = {}, character_set_client = {}, collation_connection = {}, sql_mode = {}",
        literal(&text("zone")),
        literal(&text("client")),
        literal(&text("collation")),
        literal(&text("mode")),
    );
    let alter = format!(
        "ALTER DEFINER = {} EVENT {}.{} ENABLE",
        account(&text("definer")),
        identifier(&text("db")),
        identifier(&text("name"))
    );
    connection.run(&session, STEP).await?;
    let altered = connection.run(&alter, STEP).await;
    // The literals for the next event count on backslashes escaping.
    connection.run("SET SESSION sql_mode = ''", STEP).await?;
    altered
}

/// `user@host` as the server prints it, as a quoted account. The user may hold an `@`, the host never does. In identifier
/// quotes, since the event's own `sql_mode` may take backslashes literally.
fn account(definer: &str) -> String {
    let (user, host) = definer.rsplit_once('@').unwrap_or((definer, "%"));
    format!("{}@{}", identifier(user), identifier(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definers_are_parted_at_the_last_at_sign() {
        assert_eq!(account("a@b@%"), "`a@b`@`%`");
        assert_eq!(account("root@localhost"), "`root`@`localhost`");
    }
}
