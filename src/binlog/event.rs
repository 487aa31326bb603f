//! Events one by one. Layout: MySQL's source, `libs/mysql/binlog/event`; all numbers little-endian.

use std::io::{self, Read};

use crc32fast::Hasher;

/// How a file begins.
pub const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
/// How an encrypted one begins.
const ENCRYPTED: [u8; 4] = [0xfd, b'b', b'i', b'n'];
/// The common header: when, type, server, length, end, flags.
pub const HEADER: usize = 19;
/// The checksum behind each event.
pub const CHECKSUM: usize = 4;
/// Of an event's body so much is kept; what is longer is read for its checksum alone.
pub const KEPT: usize = 1 << 20;

/// Event types that matter here.
pub mod kind {
    /// A statement, `BEGIN`, `COMMIT` or a definition.
    pub const QUERY: u8 = 2;
    /// The file was closed in an orderly way.
    pub const STOP: u8 = 3;
    /// The file was closed for the next one.
    pub const ROTATE: u8 = 4;
    /// The first event.
    pub const FORMAT_DESCRIPTION: u8 = 15;
    /// The commit of a transactional engine.
    pub const XID: u8 = 16;
    /// The GTID that a transaction begins with.
    pub const GTID: u8 = 33;
    /// The same without a number (`gtid_mode` was not ON).
    pub const ANONYMOUS_GTID: u8 = 34;
    /// What stands in earlier files.
    pub const PREVIOUS_GTIDS: u8 = 35;
    /// `XA PREPARE`.
    pub const XA_PREPARE: u8 = 38;
    /// A compressed transaction.
    pub const TRANSACTION_PAYLOAD: u8 = 40;
    /// A GTID with a tag, since 8.3.
    pub const GTID_TAGGED: u8 = 42;
    /// What stands between a transaction's beginning and its end: values for the next statement, the statement as text, tables, rows
    /// (two generations, whole and in part).
    pub const WITHIN: [u8; 12] = [5, 13, 14, 19, 23, 24, 25, 29, 30, 31, 32, 39];
}

/// A file that is not understood.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The file system says no.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Another kind of file.
    #[error("it is no binary log file")]
    NoBinaryLog,
    /// `binlog_encryption`.
    #[error("it is encrypted (binlog_encryption)")]
    Encrypted,
    /// `binlog_checksum=NONE`.
    #[error("it has no checksums (binlog_checksum)")]
    NoChecksums,
    /// A checksum that is wrong.
    #[error("the checksum of the event at {at} is wrong")]
    Checksum {
        /// Where the event begins.
        at: u64,
    },
    /// A length or an order that cannot be.
    #[error("the event at {at} cannot stand there: {why}")]
    Malformed {
        /// Where the event begins.
        at: u64,
        /// What is wrong.
        why: &'static str,
    },
    /// A type that this program does not know.
    #[error("the event at {at} is of type {kind}, which is not understood")]
    Unknown {
        /// Where the event begins.
        at: u64,
        /// Its type.
        kind: u8,
    },
    /// More than is kept in memory.
    #[error("more than {0} transactions would be taken back")]
    TooMany(usize),
    /// The time is over.
    #[error("it is too long to be read in time")]
    Late,
}

/// An event that stands whole in the file, with a right checksum.
#[derive(Debug)]
pub struct Event {
    /// Where it begins.
    pub at: u64,
    /// Its type.
    pub kind: u8,
    /// Its whole length.
    pub length: u64,
    /// The flags of its header.
    pub flags: u16,
    /// Its body without the checksum; of a long one the first [`KEPT`] bytes.
    pub body: Vec<u8>,
    /// The body is longer.
    pub long: bool,
}

impl Event {
    /// Where the next one begins.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.at + self.length
    }
}

/// What stands at a place.
#[derive(Debug)]
pub enum Next {
    /// A whole event.
    Event(Event),
    /// An event that the file's end cuts short.
    Torn,
    /// The file's end.
    End,
}

/// Reads a file from its beginning; `length` is what counts as its end.
pub struct Events<R> {
    file: R,
    at: u64,
    length: u64,
}

impl<R: Read> Events<R> {
    /// Begins with the magic.
    ///
    /// # Errors
    /// Another kind of file.
    pub fn open(mut file: R, length: u64) -> Result<Self, Fault> {
        let mut magic = [0; MAGIC.len()];
        if length < MAGIC.len() as u64 {
            return Err(Fault::NoBinaryLog);
        }
        file.read_exact(&mut magic)?;
        match magic {
            MAGIC => Ok(Self { file, at: MAGIC.len() as u64, length }),
            ENCRYPTED => Err(Fault::Encrypted),
            _ => Err(Fault::NoBinaryLog),
        }
    }

    /// The next event.
    ///
    /// # Errors
    /// A header that cannot be, or a wrong checksum. An event that ends behind the file's end is [`Next::Torn`].
    pub fn read_next(&mut self) -> Result<Next, Fault> {
        let (at, left) = (self.at, self.length - self.at);
        if left == 0 {
            return Ok(Next::End);
        }
        if left < HEADER as u64 {
            return Ok(Next::Torn);
        }
        let malformed = |why| Fault::Malformed { at, why };
        let mut header = [0; HEADER];
        self.file.read_exact(&mut header)?;
        let length = u64::from(number32(&header, 9));
        if length < (HEADER + CHECKSUM) as u64 {
            return Err(malformed("it is shorter than its header"));
        }
        // The low half of it: a file can be longer than 4 GiB. A torn event has it too, so that garbage is not taken for one.
        if number32(&header, 13) != u32::try_from((at + length) & u64::from(u32::MAX)).unwrap_or(0) {
            return Err(malformed("it is not where its header says"));
        }
        if length > left {
            return Ok(Next::Torn);
        }
        let (kind, flags) = (header[4], u16::from_le_bytes([header[17], header[18]]));
        let mut hasher = Hasher::new();
        // The flag is cleared in place when the file is closed, so the checksum counts it as cleared.
        if kind == kind::FORMAT_DESCRIPTION {
            header[17] &= !1;
        }
        hasher.update(&header);
        let (body, long) = self.body(length - (HEADER + CHECKSUM) as u64, &mut hasher)?;
        let mut checksum = [0; CHECKSUM];
        self.file.read_exact(&mut checksum)?;
        if u32::from_le_bytes(checksum) != hasher.finalize() {
            return Err(Fault::Checksum { at });
        }
        self.at += length;
        Ok(Next::Event(Event { at, kind, length, flags, body, long }))
    }

    /// Reads so many bytes, and keeps the first of them.
    fn body(&mut self, length: u64, hasher: &mut Hasher) -> Result<(Vec<u8>, bool), Fault> {
        let mut kept = vec![0; usize::try_from(length).unwrap_or(KEPT).min(KEPT)];
        self.file.read_exact(&mut kept)?;
        hasher.update(&kept);
        let mut left = length - kept.len() as u64;
        let mut chunk = vec![0; if left > 0 { 1 << 16 } else { 0 }];
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(chunk.len()).min(chunk.len());
            self.file.read_exact(&mut chunk[..part])?;
            hasher.update(&chunk[..part]);
            left -= part as u64;
        }
        Ok((kept, length > KEPT as u64))
    }
}

fn number32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|part| part.try_into().ok()).map_or(0, u32::from_le_bytes)
}
