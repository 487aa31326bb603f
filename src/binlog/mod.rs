//! MySQL's binary log files, read from their bytes: what `prestart` has to know of the newest one.
//!
//! | module | does |
//! | --- | --- |
//! | [`event`] | events one by one: header, checksum, the bodies that are asked for |
//! | [`head`] | a file's first event: who wrote it, how, and whether it was closed |
//! | [`tail`] | the transactions from the first one that another server lacks |
//! | `statement` | the query events: what a statement is and whether the engine carries it |
//!
//! What may not live here: writing, decisions ([`crate::core::rewind`]), MySQL's protocol. Everything works on a reader and is tried
//! on files that were cut anywhere and had any bit turned (`tests` here, and on real servers). Whatever is not understood is a
//! [`event::Fault`]: nothing is passed over but an event that the file's end cuts short.
//!
//! Own code, since the client crate's parser (`mysql_common`, feature `binlog`) needs zstd, which is C, takes each event whole into
//! memory however long it is, and does not tell a torn end from a broken file.

pub mod event;
pub mod head;
mod statement;
pub mod tail;
#[cfg(test)]
mod tests;
