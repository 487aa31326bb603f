//! Connections: one statement at a time, each with a limit.
//!
//! Two rules that the client crate does not keep for us:
//! - a connection whose statement timed out is closed and never used again: it would answer the next statement with
//!   the rows of the old one;
//! - closing it leaves the statement running on the server. Where that matters, [`Connection::run_or_kill`] ends it
//!   through another connection and waits for what became of it.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder};
use tokio::time::timeout;

use super::fault::{Fault, code};

/// How long a statement that was killed may take to say so.
const KILL_GRACE: Duration = Duration::from_millis(200);

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A unix socket.
    Socket(PathBuf),
    /// TCP.
    Tcp {
        /// Host name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// A text that is no `host:port`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no address; write host:port, and an IPv6 address in brackets")]
pub struct BadAddress(String);

impl Place {
    /// Reads `host:port` or `[address]:port`.
    ///
    /// # Errors
    /// [`BadAddress`].
    pub fn tcp(address: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(address.to_owned());
        let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(bad)?;
        if host.is_empty() { Err(bad()) } else { Ok(Self::Tcp { host: host.to_owned(), port }) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// A server and the account to use on it. Its `Debug` hides the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    place: Place,
    user: String,
    password: String,
}

impl Target {
    /// A server and the account.
    #[must_use]
    pub fn new(place: Place, user: &str, password: &str) -> Self {
        Self { place, user: user.to_owned(), password: password.to_owned() }
    }

    /// The same account on the server at `address` (`host:port`).
    ///
    /// # Errors
    /// [`BadAddress`].
    pub fn at(&self, address: &str) -> Result<Self, BadAddress> {
        Ok(Self { place: Place::tcp(address)?, ..self.clone() })
    }

    /// Where it listens.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The account's name.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Its password.
    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    fn opts(&self, lock_wait: u64) -> Opts {
        let opts = OptsBuilder::default()
            .user(Some(self.user.clone()))
            .pass(Some(self.password.clone()))
            // Otherwise a connection to another host would be swapped for one to a local socket of the same name.
            .prefer_socket(false)
            // Given, so that the client does not spend a round trip on asking for them.
            .max_allowed_packet(Some(64 << 20))
            .wait_timeout(Some(1 << 24))
            .stmt_cache_size(Some(0))
            .setup(vec![session(lock_wait)]);
        match &self.place {
            Place::Socket(path) => opts.socket(Some(path.to_string_lossy())),
            Place::Tcp { host, port } => opts.ip_or_hostname(host.clone()).tcp_port(*port).tcp_nodelay(true),
        }
        .into()
    }
}

/// What every session of ours has, whatever the server's defaults are.
fn session(lock_wait: u64) -> String {
    format!(
        "SET SESSION autocommit=1, sql_mode='', time_zone='+00:00', max_execution_time=0, wait_timeout=16777216, \
         innodb_lock_wait_timeout=1, lock_wait_timeout={lock_wait}"
    )
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({} as {}, password hidden)", self.place, self.user)
    }
}

/// A row by column names. Values are text, as `SHOW` statements and plain queries give them.
#[derive(Debug)]
pub struct Row(mysql_async::Row);

impl Row {
    /// The column as text; none for NULL or no such column.
    #[must_use]
    pub fn text(&self, column: &str) -> Option<String> {
        self.value(column)
    }

    /// The first column as text: for statements whose column names carry data (`SHOW GRANTS`).
    #[must_use]
    pub fn first_text(&self) -> Option<String> {
        self.0.get_opt(0).and_then(Result::ok)
    }

    /// The column as text, empty for NULL or no such column.
    #[must_use]
    pub fn text_or_empty(&self, column: &str) -> String {
        self.text(column).unwrap_or_default()
    }

    /// The column as a number; none for NULL, no such column, or no number.
    #[must_use]
    pub fn number(&self, column: &str) -> Option<u64> {
        self.value(column)
    }

    /// The column as a switch: `1`, `ON` or `Yes`.
    #[must_use]
    pub fn is_on(&self, column: &str) -> bool {
        self.text(column).is_some_and(|text| matches!(text.to_ascii_uppercase().as_str(), "1" | "ON" | "YES"))
    }

    fn value<T: FromValue>(&self, column: &str) -> Option<T> {
        self.0.get_opt(column).and_then(Result::ok)
    }
}

/// An open connection.
pub struct Connection {
    /// None once a statement broke it.
    conn: Option<Conn>,
    at: String,
    id: u32,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Connection({}, id {}, usable: {})", self.at, self.id, self.usable())
    }
}

impl Connection {
    /// Connects, logs in and sets the session up, within `limit` all together.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn open(target: &Target, limit: Duration) -> Result<Self, Fault> {
        Self::open_waiting(target, limit, 1).await
    }

    /// Like [`Connection::open`], for statements that may wait longer for metadata locks (in seconds).
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn open_waiting(target: &Target, limit: Duration, lock_wait: u64) -> Result<Self, Fault> {
        let at = target.place.to_string();
        match timeout(limit, Conn::new(target.opts(lock_wait))).await {
            Ok(Ok(conn)) => Ok(Self { id: conn.id(), conn: Some(conn), at }),
            Ok(Err(error)) => Err(Fault::of(error, &at, true)),
            Err(_) => Err(Fault::Timeout { at, after: limit }),
        }
    }

    /// The server's number for it, for `KILL`.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Where it leads.
    #[must_use]
    pub fn at(&self) -> &str {
        &self.at
    }

    /// Whether statements can be sent. Says nothing of the server.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.conn.is_some()
    }

    /// Executes a statement without result.
    ///
    /// # Errors
    /// See [`Fault`]; after [`Fault::breaks`] the connection is closed.
    pub async fn run(&mut self, sql: &str, limit: Duration) -> Result<(), Fault> {
        self.rows(sql, limit).await.map(drop)
    }

    /// Executes a query and returns all its rows.
    ///
    /// # Errors
    /// See [`Fault`]; after [`Fault::breaks`] the connection is closed.
    pub async fn rows(&mut self, sql: &str, limit: Duration) -> Result<Vec<Row>, Fault> {
        let Some(mut conn) = self.conn.take() else {
            return Err(Fault::Lost { at: self.at.clone(), why: "closed after an earlier failure".into() });
        };
        // The connection is put back only after an answer. Whoever drops this future half way (a limit, a select)
        // leaves a closed connection behind and not one with an answer still to come.
        match timeout(limit, conn.query::<mysql_async::Row, _>(sql)).await {
            Ok(Ok(rows)) => {
                self.conn = Some(conn);
                Ok(rows.into_iter().map(Row).collect())
            }
            Ok(Err(error)) => {
                let fault = Fault::of(error, &self.at, false);
                if !fault.breaks() {
                    self.conn = Some(conn);
                }
                Err(fault)
            }
            Err(_) => Err(Fault::Timeout { at: self.at.clone(), after: limit }),
        }
    }

    /// The first row; an error where there is none.
    ///
    /// # Errors
    /// See [`Fault`]; after [`Fault::breaks`] the connection is closed.
    pub async fn row(&mut self, sql: &str, limit: Duration) -> Result<Row, Fault> {
        first(self.rows(sql, limit).await?, &self.at)
    }

    /// Executes a statement; when it takes longer than `limit`, ends it on the server through `killer` and waits for
    /// what became of it. So `Ok` and [`Fault::Timeout`] are certain: it took effect, or it did not.
    ///
    /// # Errors
    /// [`Fault::Timeout`]: ended without effect. [`Fault::Lost`]: not known.
    pub async fn run_or_kill(&mut self, sql: &str, limit: Duration, killer: &mut Line) -> Result<(), Fault> {
        let (at, id) = (self.at.clone(), self.id);
        let interrupted = |fault: Fault| match fault {
            Fault::Server { at, code: code::INTERRUPTED | code::LOCK_WAIT_TIMEOUT, .. } => {
                Fault::Timeout { at, after: limit }
            }
            other => other,
        };
        let statement = self.run(sql, limit + KILL_GRACE * 2);
        tokio::pin!(statement);
        if let Ok(early) = timeout(limit, &mut statement).await {
            return early.map_err(interrupted);
        }
        // An error here is no news: the statement's own end tells.
        let _ = killer.run(&format!("KILL QUERY {id}"), KILL_GRACE).await;
        match timeout(KILL_GRACE, statement).await {
            Ok(end) => end.map_err(interrupted),
            // Given up half way, which closes the connection.
            Err(_) => Err(Fault::Lost { at, why: "a statement that cannot be ended".into() }),
        }
    }
}

/// A connection of its own to one server, opened when first used and again when it was lost.
#[derive(Debug)]
pub struct Line {
    target: Target,
    /// `lock_wait_timeout` of its sessions, in seconds.
    lock_wait: u64,
    connection: Option<Connection>,
}

impl Line {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { target, lock_wait: 1, connection: None }
    }

    /// For a statement that is to wait for metadata locks as long as it takes: it then shows what it waits for, where
    /// others would have got an error that does not say.
    #[must_use]
    pub fn patient(target: Target) -> Self {
        // The longest that the server takes: a year.
        Self { target, lock_wait: 31_536_000, connection: None }
    }

    /// Where it leads.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Another target from now on (a reload).
    pub fn retarget(&mut self, target: Target) {
        if self.target != target {
            *self = Self { target, lock_wait: self.lock_wait, connection: None };
        }
    }

    /// Another target from the next connection on; one that is open goes on being used.
    pub fn retarget_next(&mut self, target: Target) {
        self.target = target;
    }

    /// The open connection, opened within `limit` where there is none.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn open(&mut self, limit: Duration) -> Result<&mut Connection, Fault> {
        match self.connection.take().filter(Connection::usable) {
            Some(connection) => Ok(self.connection.insert(connection)),
            None => {
                let opened = Connection::open_waiting(&self.target, limit, self.lock_wait).await?;
                Ok(self.connection.insert(opened))
            }
        }
    }

    /// The number of the open connection; none where there is none.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.connection.as_ref().filter(|connection| connection.usable()).map(Connection::id)
    }

    /// Takes the connection out, to be used elsewhere. The next use opens another one.
    pub fn take(&mut self) -> Option<Connection> {
        self.connection.take().filter(Connection::usable)
    }

    /// Gives a connection back.
    pub fn put(&mut self, connection: Connection) {
        self.connection = Some(connection).filter(Connection::usable);
    }

    /// Executes a statement that may be repeated: a connection that turns out to have been lost earlier is opened
    /// anew once, since a killed idle connection says nothing of the server.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn run(&mut self, sql: &str, limit: Duration) -> Result<(), Fault> {
        self.rows(sql, limit).await.map(drop)
    }

    /// Rows of a query that may be repeated; a lost connection is opened anew once.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn rows(&mut self, sql: &str, limit: Duration) -> Result<Vec<Row>, Fault> {
        let was_open = self.id().is_some();
        match self.open(limit).await?.rows(sql, limit).await {
            Err(Fault::Lost { .. }) if was_open => self.open(limit).await?.rows(sql, limit).await,
            other => other,
        }
    }

    /// The first row of a query that may be repeated; an error where there is none.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn row(&mut self, sql: &str, limit: Duration) -> Result<Row, Fault> {
        first(self.rows(sql, limit).await?, &self.target.place.to_string())
    }
}

fn first(rows: Vec<Row>, at: &str) -> Result<Row, Fault> {
    rows.into_iter().next().ok_or_else(|| Fault::Lost { at: at.to_owned(), why: "an empty answer".into() })
}

/// Waits for `work` at the most until `limit`; for statements of several round trips that share one limit.
pub(crate) async fn within<T>(
    limit: Duration,
    at: &str,
    work: impl Future<Output = Result<T, Fault>>,
) -> Result<T, Fault> {
    timeout(limit, work).await.unwrap_or_else(|_| Err(Fault::Timeout { at: at.to_owned(), after: limit }))
}

/// A text as an SQL string literal. The sessions' `sql_mode` is empty, so that backslashes escape.
pub(crate) fn literal(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('\'');
    for character in text.chars() {
        match character {
            '\'' | '\\' => quoted.extend(['\\', character]),
            '\0' => quoted.push_str("\\0"),
            _ => quoted.push(character),
        }
    }
    quoted.push('\'');
    quoted
}

/// A name as a quoted identifier.
pub(crate) fn identifier(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_does_not_show() {
        let target = Target::new(Place::tcp("db1:3306").unwrap(), "agent", "se\"cret");
        assert!(!format!("{target:?} {:?}", Line::new(target.clone())).contains("cret"));
    }

    #[test]
    fn addresses_are_read_and_printed_alike() {
        for text in ["db1:3306", "10.0.0.1:1", "[fe80::1]:3306"] {
            assert_eq!(Place::tcp(text).unwrap().to_string(), text);
        }
        for text in ["db1", "db1:", ":3306", "db1:0", "db1:70000"] {
            assert!(Place::tcp(text).is_err(), "{text}");
        }
    }

    #[test]
    fn quotes_cannot_be_left() {
        assert_eq!(literal(r"a'b\"), r"'a\'b\\'");
        assert_eq!(identifier("a`b"), "`a``b`");
    }
}
