//! A file's first event, the format description.

use std::io::Read;

use super::event::{Event, Events, Fault, HEADER, Next, kind};

/// `LOG_EVENT_BINLOG_IN_USE_F`: set while the file is written, cleared when it is closed, and by a start that recovers from it.
pub const IN_USE: u16 = 1;
/// Version of the format, version of the server, when, length of a header.
const FIXED: usize = 2 + 50 + 4 + 1;
/// `binlog_checksum=CRC32`.
const CRC32: u8 = 1;

/// What a file says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The version of the server that wrote it.
    pub version: (u16, u16, u16),
    /// Nobody has closed it.
    pub in_use: bool,
    /// Where the first event ends.
    pub end: u64,
}

/// Reads it.
///
/// # Errors
/// Not a binary log of MySQL with checksums, or none that is whole.
pub fn read(file: impl Read, length: u64) -> Result<Head, Fault> {
    of(&mut Events::open(file, length)?)
}

/// The same, and the events behind it are left to be read.
pub(super) fn of(events: &mut Events<impl Read>) -> Result<Head, Fault> {
    match events.read_next() {
        Ok(Next::Event(event)) if event.kind == kind::FORMAT_DESCRIPTION => described(&event),
        // It has a checksum also where the other events have none (`binlog_checksum=NONE`).
        Err(Fault::Checksum { .. }) => Err(Fault::Malformed { at: 4, why: "the format description is broken" }),
        Err(fault) => Err(fault),
        Ok(_) => Err(Fault::Malformed { at: 4, why: "no format description" }),
    }
}

fn described(event: &Event) -> Result<Head, Fault> {
    let malformed = |why| Fault::Malformed { at: event.at, why };
    let body = &event.body;
    if body.len() <= FIXED || body[..2] != [4, 0] || usize::from(body[FIXED - 1]) != HEADER {
        return Err(malformed("not version 4 of the binary log"));
    }
    let text = String::from_utf8_lossy(&body[2..52]);
    let text = text.trim_end_matches('\0');
    if text.to_ascii_lowercase().contains("mariadb") {
        return Err(malformed("written by MariaDB"));
    }
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let mut next = || numbers.next().and_then(Result::ok);
    let version = (next(), next(), next());
    let (Some(major), Some(minor), Some(patch)) = version else { return Err(malformed("no version of a server")) };
    // The last byte: which checksums the events have. The event itself has one in any case.
    match body.last() {
        Some(&CRC32) => {
            Ok(Head { version: (major, minor, patch), in_use: event.flags & IN_USE != 0, end: event.end() })
        }
        _ => Err(Fault::NoChecksums),
    }
}
