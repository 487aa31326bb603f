//! What another server has executed, asked once.

use std::time::Duration;

use super::connect::{Connection, Target, within};
use super::facts::set;
use super::fault::Fault;
use crate::core::gtid::GtidSet;

/// A server's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executed {
    /// `@@server_uuid`.
    pub server_uuid: String,
    /// `@@super_read_only`.
    pub read_only: bool,
    /// `@@gtid_executed`.
    pub executed: GtidSet,
}

/// Asks, all together within `limit`.
///
/// # Errors
/// See [`Fault`].
pub async fn read(target: &Target, limit: Duration) -> Result<Executed, Fault> {
    let at = target.place().to_string();
    let asked = async {
        let mut connection = Connection::open(target, limit).await?;
        let sql = "SELECT @@server_uuid AS server_uuid, @@global.super_read_only AS read_only, @@global.gtid_executed AS executed";
        let row = connection.row(sql, limit).await?;
        Ok(Executed {
            server_uuid: row.text_or_empty("server_uuid"),
            read_only: row.is_on("read_only"),
            executed: set(&row.text_or_empty("executed"), &at)?,
        })
    };
    within(limit, &at, asked).await
}
