//! Where replicas begin to read.
//!
//! A replica that starts to follow names what it has (auto-position), and the server looks for the newest file whose
//! start it knows, and then reads that file from the beginning, passing over what the replica has (seen on 9.7: the first
//! acknowledgement after a switch came later the longer the file was). The first write on a new primary waits for that; a file of
//! `max_binlog_size`, 1 GiB, takes seconds. In a file just begun there is nothing to read.

use super::connect::Line;
use super::control::{ControlError, Doing, STEP};
use super::wording::Version;

/// Bytes that are read faster than a file is begun, for a server that nobody waits for.
pub(crate) const WHILE_THERE_IS_TIME: u64 = 64 << 10;
/// The same where clients wait: beginning a file syncs and may delete expired ones.
pub(crate) const WHILE_CLIENTS_WAIT: u64 = 16 << 20;

/// Begins a new file where the present one is longer than `limit` bytes.
pub(crate) async fn begin_new_file(line: &mut Line, limit: u64) -> Result<(), ControlError> {
    const DOING: &str = "reading the binary log's position";
    let version = line.row("SELECT @@version AS version", STEP).await.doing(DOING)?.text_or_empty("version");
    let statement = Version::parse(&version).unwrap_or(Version::OLDEST).binary_log_status();
    let row = line.row(statement, STEP).await.doing(DOING)?;
    if row.number("Position").is_none_or(|position| position <= limit) {
        return Ok(());
    }
    // LOCAL: neither logged nor replicated.
    line.run("FLUSH LOCAL BINARY LOGS", STEP).await.doing("beginning a new binary log file")
}
