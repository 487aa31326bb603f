//! What can go wrong with a statement, sorted by what it says of the server.

use std::io;
use std::time::Duration;

use mysql_async::{DriverError, Error, IoError};

/// Why a connection or a statement failed. Each text says what happened, to which server, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The server lives and does not accept our account.
    #[error(
        "{at}: access denied ({message}); check mysql.user and mysql.password, and that the account is not locked or expired"
    )]
    RefusedPassword {
        /// The server.
        at: String,
        /// Its words.
        message: String,
    },
    /// The server lives and has no connection left for us.
    #[error(
        "{at}: no connection left ({message}); raise max_connections, or configure the server's admin_address as mysql.admin"
    )]
    TooManyConnections {
        /// The server.
        at: String,
        /// Its words.
        message: String,
    },
    /// A write met `read_only`, `super_read_only` or a read-only transaction.
    #[error("{at}: the server is read-only ({message})")]
    ReadOnly {
        /// The server.
        at: String,
        /// Its words.
        message: String,
    },
    /// Any other error that the server reported.
    #[error("{at}: error {code}: {message}")]
    Server {
        /// The server.
        at: String,
        /// MySQL's error number.
        code: u16,
        /// Its words.
        message: String,
    },
    /// The connection broke: killed, or the server is gone. What became of the statement is not known.
    #[error("{at}: connection lost ({why}); the outcome of the statement is not known")]
    Lost {
        /// The server.
        at: String,
        /// What was seen.
        why: String,
    },
    /// No answer in time. What became of the statement is not known.
    #[error("{at}: no answer within {} ms; the server may be overloaded, frozen, or cut off", after.as_millis())]
    Timeout {
        /// The server.
        at: String,
        /// The limit.
        after: Duration,
    },
    /// Nobody listens there.
    #[error("{at}: cannot connect ({why}); is mysqld running, and is the address right?")]
    Refused {
        /// The server.
        at: String,
        /// What the system said.
        why: String,
    },
}

/// Error numbers of MySQL that mean something to us (mysqld_error.h).
pub(crate) mod code {
    pub(crate) const NO_SUCH_DATABASE: u16 = 1049;
    pub(crate) const NO_SUCH_THREAD: u16 = 1094;
    pub(crate) const NO_SUCH_TABLE: u16 = 1146;
    pub(crate) const UNKNOWN_VARIABLE: u16 = 1193;
    pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(crate) const DEADLOCK: u16 = 1213;
    pub(crate) const INTERRUPTED: u16 = 1317;
}

impl Fault {
    /// Sorts an error of the client crate. `connecting`: while the connection was being made.
    pub(crate) fn of(error: Error, at: &str, connecting: bool) -> Self {
        let at = at.to_owned();
        match error {
            Error::Server(error) => Self::of_server(at, error.code, error.message),
            Error::Io(IoError::Io(error)) => Self::of_io(at, &error, connecting),
            Error::Driver(DriverError::ConnectionClosed) => Self::Lost { at, why: "closed by the server".into() },
            other => Self::Lost { at, why: other.to_string() },
        }
    }

    fn of_server(at: String, code: u16, message: String) -> Self {
        match code {
            // Denied, denied without password, host not allowed, must change password, expired, locked.
            1045 | 1698 | 1130 | 1820 | 1862 | 3118 => Self::RefusedPassword { at, message },
            // The server's limit, the account's two limits.
            1040 | 1203 | 1226 => Self::TooManyConnections { at, message },
            // 1290 is said for every option that forbids a statement; only read-only is meant here.
            1290 if message.contains("read-only") || message.contains("read_only") => Self::ReadOnly { at, message },
            1792 | 1836 => Self::ReadOnly { at, message },
            // Shutdown in progress, connection killed, disconnected for inactivity.
            1053 | 1927 | 3169 | 4031 => Self::Lost { at, why: message },
            _ => Self::Server { at, code, message },
        }
    }

    fn of_io(at: String, error: &io::Error, connecting: bool) -> Self {
        let nobody = matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound);
        match connecting && nobody {
            true => Self::Refused { at, why: error.to_string() },
            false => Self::Lost { at, why: error.to_string() },
        }
    }

    /// The server's error number, where it reported one that is not sorted further.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// Whether the account lacks a privilege: for a schema, a table, a column, a statement or a routine.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(self.code(), Some(1044 | 1142 | 1143 | 1227 | 1370))
    }

    /// Whether the connection cannot be used any more.
    #[must_use]
    pub fn breaks(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Timeout { .. } | Self::Refused { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, message: &str) -> Fault {
        Fault::of(
            Error::Server(mysql_async::ServerError { code, message: message.into(), state: "HY000".into() }),
            "db1:3306",
            false,
        )
    }

    #[test]
    fn a_refusal_is_told_from_a_dead_server() {
        assert!(matches!(server(1045, "Access denied"), Fault::RefusedPassword { .. }));
        assert!(matches!(server(1040, "Too many connections"), Fault::TooManyConnections { .. }));
        let io = |kind, connecting| Fault::of(Error::Io(IoError::Io(io::Error::from(kind))), "db1:3306", connecting);
        assert!(matches!(io(io::ErrorKind::ConnectionRefused, true), Fault::Refused { .. }));
        assert!(matches!(io(io::ErrorKind::ConnectionReset, false), Fault::Lost { .. }));
    }

    #[test]
    fn other_options_that_forbid_a_statement_are_not_read_only() {
        let read_only =
            "The MySQL server is running with the --super-read-only option so it cannot execute this statement";
        assert!(matches!(server(1290, read_only), Fault::ReadOnly { .. }));
        let other =
            "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement";
        assert_eq!(server(1290, other).code(), Some(1290));
    }

    #[test]
    fn texts_say_what_to_do() {
        assert!(server(1045, "x").to_string().contains("mysql.password"));
        assert!(server(1040, "x").to_string().contains("mysql.admin"));
    }
}
