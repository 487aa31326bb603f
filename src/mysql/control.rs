//! Executes the actions that decisions ask for, one at a time, on connections of its own.
//!
//! Every action can be repeated after dying at any point: it looks at what is there, changes what differs, and reads
//! back what it changed. An error therefore never needs undoing; the next step sees the server as it is and asks
//! again, or for something else.

use std::time::Duration;

use tokio::time::Instant;

use crate::core::action::MysqlAction;
use crate::core::gtid::GtidSet;
use crate::core::view::{Channel, IoThread};

use super::connect::{BadAddress, Line, Target, identifier, literal};
use super::fault::{Fault, code};
use super::{accounts, binlog, blockers, close, facts, follow, open};

/// The limit of a statement that has no limit of its own. None of them waits for clients; the slowest (starting and
/// stopping replication) take some 10 ms on a server at ease.
pub(crate) const STEP: Duration = Duration::from_secs(5);

/// How long the applier's own progress is waited for before its state is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// What an action needs to know besides its own fields.
#[derive(Clone)]
pub struct Settings {
    /// `heartbeat.schema`.
    pub schema: String,
    /// `mysql.replication.user`.
    pub replication_user: String,
    /// `mysql.replication.password`.
    pub replication_password: String,
    /// `mysql.replication.tls`.
    pub replication_tls: bool,
    /// `fencing.spare_users`.
    pub spare_users: Vec<String>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Settings(schema {}, replication as {}, password hidden)", self.schema, self.replication_user)
    }
}

/// What an action came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// As asked, and read back.
    Done,
    /// Read-only, as asked.
    Closed {
        /// All that this server will ever have executed as the primary.
        executed: GtidSet,
    },
    /// Within its limit, only so far; ask again.
    NotYet {
        /// What is still missing.
        missing: GtidSet,
    },
    /// `Follow` changed nothing: this server holds what the primary does not.
    Diverged {
        /// These transactions.
        extra: GtidSet,
    },
}

/// Why an action failed. Nothing needs undoing.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// A statement failed.
    #[error("{doing}: {fault}")]
    Fault {
        /// What was being done.
        doing: &'static str,
        /// How it failed.
        #[source]
        fault: Fault,
    },
    /// The address is no address.
    #[error(transparent)]
    Address(#[from] BadAddress),
    /// Another server answers at that address.
    #[error(
        "{address} is server {found}, not {expected}; nothing was done there. Is mysql.advertise right on every host?"
    )]
    WrongServer {
        /// The address.
        address: String,
        /// Who was meant.
        expected: String,
        /// Who answered.
        found: String,
    },
    /// The lease was over when the server got the statement: it is still read-only.
    #[error("the lease ended before the server could be opened; it stays read-only")]
    TooLate,
    /// Something received is not executed, and the action would throw it away.
    #[error("refused to {what}: received and not executed yet: {missing}; let the applier finish, or mend its error")]
    Unapplied {
        /// What was refused.
        what: &'static str,
        /// What would have been lost.
        missing: GtidSet,
    },
    /// The server did not become read-only in time; it is as writable as before.
    #[error("the server did not become read-only within {} ms and takes writes again; in the way: {blockers}", limit.as_millis())]
    NotClosed {
        /// The limit.
        limit: Duration,
        /// Who is in the way.
        blockers: String,
    },
    /// Somebody would keep the server from becoming read-only, and all writes from finishing meanwhile: not even tried.
    #[error("read-only would have to wait for {blockers}")]
    HeldUp {
        /// Who is in the way.
        blockers: String,
    },
    /// A replication thread stopped with an error.
    #[error("replication: {0}; see SHOW REPLICA STATUS")]
    Replication(String),
    /// A change was made without an error and did not come about.
    #[error("{0}")]
    NotInForce(String),
}

impl ControlError {
    /// Whether anything may have been changed, or held up, before it failed.
    #[must_use]
    pub fn touched(&self) -> bool {
        !matches!(self, Self::HeldUp { .. })
    }
}

/// Says what was being done when a statement failed.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, ControlError>;
}

impl<T> Doing<T> for Result<T, Fault> {
    fn doing(self, doing: &'static str) -> Result<T, ControlError> {
        self.map_err(|fault| ControlError::Fault { doing, fault })
    }
}

/// Executes actions on our own server (and, where an action says so, on another one).
#[derive(Debug)]
pub struct Control {
    pub(crate) line: Line,
    /// Ends statements of `line` that take too long.
    pub(crate) killer: Line,
    pub(crate) settings: Settings,
    reader: facts::Reader,
    /// Markers committed so far: each has a row of its own, as one before may still hold its lock.
    markers: u32,
}

/// Executed and received, read in the order that misses nothing (see [`facts`]).
#[derive(Debug, Clone)]
pub(crate) struct Position {
    pub(crate) channel: Option<Channel>,
    pub(crate) executed: GtidSet,
}

impl Position {
    /// Received and not executed.
    pub(crate) fn unapplied(&self) -> GtidSet {
        self.channel.as_ref().map(|channel| channel.retrieved.subtract(&self.executed)).unwrap_or_default()
    }

    pub(crate) fn received(&self) -> GtidSet {
        self.channel.as_ref().map_or_else(|| self.executed.clone(), |channel| self.executed.union(&channel.retrieved))
    }
}

impl Control {
    /// Opens nothing yet.
    #[must_use]
    pub fn new(target: Target, settings: Settings) -> Self {
        let reader = facts::Reader::new(&settings.schema);
        Self { line: Line::new(target.clone()), killer: Line::new(target), settings, reader, markers: 0 }
    }

    /// Other settings from now on (a reload).
    pub fn configure(&mut self, target: Target, settings: Settings) {
        self.line.retarget(target.clone());
        self.killer.retarget(target);
        self.reader = facts::Reader::new(&settings.schema);
        self.settings = settings;
    }

    /// Opens its connections, so that the first action does not wait for them; tells whether they are open.
    pub async fn warm(&mut self, limit: Duration) -> bool {
        self.line.rows("SELECT 1", limit).await.is_ok() && self.killer.rows("SELECT 1", limit).await.is_ok()
    }

    /// One complete reading on this connection: what an action changed is read back where it was changed.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn read(&mut self, incarnation: &str, limit: Duration) -> Result<facts::Reading, Fault> {
        self.reader.read(self.line.open(limit).await?, incarnation, limit).await
    }

    /// Executes one action.
    ///
    /// # Errors
    /// See [`ControlError`].
    pub async fn execute(&mut self, action: &MysqlAction) -> Result<Done, ControlError> {
        match action {
            MysqlAction::StopIo => {
                // First: whoever starts it again after us starts one that acknowledges nothing (interleaving 4).
                super::semisync::set_replica(&mut self.line, false).await?;
                self.stop_io().await
            }
            MysqlAction::StartApplier => self.start_applier().await,
            MysqlAction::WaitApplied { set, limit } => self.wait_applied(set, *limit).await,
            MysqlAction::Fetch { from, set, limit } => follow::fetch(self, from, set, *limit).await,
            MysqlAction::Follow { address, server_uuid, acknowledge } => {
                follow::follow(self, address, server_uuid, &GtidSet::new(), *acknowledge).await
            }
            MysqlAction::FollowTarget { address, server_uuid, final_set, acknowledge } => {
                follow::follow(self, address, server_uuid, final_set, *acknowledge).await
            }
            MysqlAction::Acknowledge { on } => super::semisync::acknowledge(self, *on).await,
            MysqlAction::AwaitAcknowledgements { count } => {
                super::semisync::await_acknowledgements(&mut self.line, *count).await
            }
            MysqlAction::CommitMarker => self.commit_marker().await,
            MysqlAction::ForgetSource => open::forget_source(self).await,
            MysqlAction::Open { not_after, acknowledgements } => open::open(self, *not_after, *acknowledgements).await,
            MysqlAction::Close { limit } => close::close(self, *limit).await,
            MysqlAction::FenceRemote { address, server_uuid, limit, acknowledged } => {
                close::fence_remote(self, address, server_uuid, *limit, *acknowledged).await
            }
            MysqlAction::Reach { address, limit } => self.reach(address, *limit).await,
            MysqlAction::FlushBinaryLog => {
                binlog::begin_new_file(&mut self.line, binlog::WHILE_THERE_IS_TIME).await.map(|()| Done::Done)
            }
            MysqlAction::PersistReadOnly => self.persist_read_only().await,
            MysqlAction::CreateHeartbeatTable => self.create_heartbeat_table().await,
            MysqlAction::EndClientConnections => self.end_client_connections().await,
            MysqlAction::ShutOut { member, users } => accounts::shut_out(self, member, users).await,
            MysqlAction::LetIn { member } => accounts::let_in(self, member).await,
        }
    }

    /// Whether a host accepts connections there. A login is not tried: one that hangs would say nothing.
    async fn reach(&mut self, address: &str, limit: Duration) -> Result<Done, ControlError> {
        let at = self.line.target().at(address)?.place().to_string();
        let fault = match tokio::time::timeout(limit, tokio::net::TcpStream::connect(address)).await {
            Ok(Ok(_)) => return Ok(Done::Done),
            Ok(Err(error)) => Fault::Refused { at, why: error.to_string() },
            Err(_) => Fault::Timeout { at, after: limit },
        };
        Err(fault).doing("looking whether the primary's host answers")
    }

    pub(crate) async fn channel(&mut self) -> Result<Option<Channel>, ControlError> {
        let rows = self.line.rows("SHOW REPLICA STATUS", STEP).await.doing("reading the replication status")?;
        let at = self.line.target().place().to_string();
        let default = rows.iter().find(|row| row.text_or_empty("Channel_Name").is_empty());
        default.map(|row| facts::channel(row, &at)).transpose().doing("reading the replication status")
    }

    pub(crate) async fn position(&mut self) -> Result<Position, ControlError> {
        // The channel first: see the module `facts`.
        let channel = self.channel().await?;
        let row =
            self.line.row("SELECT @@global.gtid_executed AS executed", STEP).await.doing("reading gtid_executed")?;
        let executed = facts::set(&row.text_or_empty("executed"), "").doing("reading gtid_executed")?;
        Ok(Position { channel, executed })
    }

    /// Stops the IO thread and reads back that it has stopped. No channel: nothing to stop.
    pub(crate) async fn stop_io(&mut self) -> Result<Done, ControlError> {
        match self.channel().await? {
            None => return Ok(Done::Done),
            // Already stopped, yet a START that somebody sent just before would still be under way: STOP waits for it.
            Some(_) => self.line.run("STOP REPLICA IO_THREAD", STEP).await.doing("stopping the IO thread")?,
        }
        match self.channel().await?.map(|channel| channel.io) {
            None | Some(IoThread::No) => Ok(Done::Done),
            Some(_) => Err(runs_again()),
        }
    }

    /// Stops the IO thread of a channel that is there, and reads the position that nothing can add to any more.
    pub(crate) async fn stop_receiving(&mut self) -> Result<Position, ControlError> {
        // Also where it is stopped: a START that somebody sent just before would still be under way, and STOP waits for it.
        self.line.run("STOP REPLICA IO_THREAD", STEP).await.doing("stopping the IO thread")?;
        let position = self.position().await?;
        if position.channel.as_ref().is_some_and(|channel| channel.io != IoThread::No) {
            return Err(runs_again());
        }
        Ok(position)
    }

    pub(crate) async fn start_applier(&mut self) -> Result<Done, ControlError> {
        match self.channel().await? {
            None => return Ok(Done::Done),
            Some(channel) if channel.sql_running => return Ok(Done::Done),
            Some(_) => self.line.run("START REPLICA SQL_THREAD", STEP).await.doing("starting the applier")?,
        }
        match self.channel().await? {
            Some(channel) if !channel.sql_running => Err(ControlError::Replication(applier_error(&channel))),
            _ => Ok(Done::Done),
        }
    }

    /// Waits in slices: the server's own wait would go on to its end over an applier that has stopped.
    async fn wait_applied(&mut self, set: &GtidSet, limit: Duration) -> Result<Done, ControlError> {
        let deadline = Instant::now() + limit;
        loop {
            let slice = LOOK.min(deadline.saturating_duration_since(Instant::now()));
            let sql = format!(
                "SELECT WAIT_FOR_EXECUTED_GTID_SET({}, {}) AS timed_out",
                literal(&set.to_string()),
                slice.as_secs_f64().max(0.001)
            );
            let row = self.line.row(&sql, slice + STEP).await.doing("waiting for the applier")?;
            if row.number("timed_out") == Some(0) {
                return Ok(Done::Done);
            }
            let position = self.position().await?;
            let missing = set.subtract(&position.executed);
            if missing.is_empty() {
                return Ok(Done::Done);
            }
            if let Some(channel) = position.channel.filter(|channel| !channel.sql_running) {
                return Err(ControlError::Replication(applier_error(&channel)));
            }
            if Instant::now() >= deadline {
                return Ok(Done::NotYet { missing });
            }
        }
    }

    async fn persist_read_only(&mut self) -> Result<Done, ControlError> {
        if self.is_persisted().await? {
            return Ok(Done::Done);
        }
        let sql = "SET PERSIST_ONLY super_read_only=ON, PERSIST_ONLY read_only=ON, PERSIST_ONLY skip_replica_start=ON";
        self.reader.forget();
        self.line.run(sql, STEP).await.doing("persisting super_read_only and skip_replica_start")?;
        super::semisync::persist_replica_off(&mut self.line).await?;
        if self.is_persisted().await? {
            return Ok(Done::Done);
        }
        Err(ControlError::NotInForce(
            "super_read_only and skip_replica_start were persisted and are not in performance_schema.persisted_variables; \
             is persisted_globals_load off?"
                .into(),
        ))
    }

    async fn is_persisted(&mut self) -> Result<bool, ControlError> {
        // Semi-sync's replica side, where it is loaded: one of its two names, off.
        let sql = "SELECT @@global.persisted_globals_load AND (SELECT COUNT(*) = 3 \
                   FROM performance_schema.persisted_variables WHERE VARIABLE_VALUE IN ('ON', '1') \
                   AND VARIABLE_NAME IN ('super_read_only', 'read_only', 'skip_replica_start')) \
                   AND (SELECT COUNT(*) FROM performance_schema.persisted_variables WHERE VARIABLE_VALUE IN ('OFF', '0') \
                   AND VARIABLE_NAME IN ('rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled')) \
                   = (SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE' \
                   AND PLUGIN_NAME IN ('rpl_semi_sync_replica', 'rpl_semi_sync_slave')) AS persisted";
        Ok(self.line.row(sql, STEP).await.doing("reading persisted variables")?.is_on("persisted"))
    }

    /// The two tables of the probes: `heartbeat`, one replicated row per server, and `local`, whose single row each
    /// server writes unlogged to tell a hung engine from a missing acknowledgement.
    async fn create_heartbeat_table(&mut self) -> Result<Done, ControlError> {
        let schema = identifier(&self.settings.schema);
        // `IF NOT EXISTS` is logged even where nothing is created: look first, or each restart costs a transaction.
        let missing = |error: &Fault| matches!(error.code(), Some(code::NO_SUCH_DATABASE | code::NO_SUCH_TABLE));
        let look = format!("SELECT 1 FROM {schema}.heartbeat, {schema}.local LIMIT 0");
        match self.line.rows(&look, STEP).await {
            Ok(_) => return Ok(Done::Done),
            Err(fault) if missing(&fault) => {}
            other => drop(other.doing("looking for the heartbeat table")?),
        }
        for sql in [
            format!("CREATE DATABASE IF NOT EXISTS {schema}"),
            format!(
                "CREATE TABLE IF NOT EXISTS {schema}.heartbeat (server_uuid CHAR(36) CHARACTER SET ascii NOT NULL PRIMARY KEY, \
                 name VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL, epoch BIGINT UNSIGNED NOT NULL, \
                 sequence BIGINT UNSIGNED NOT NULL, written_at TIMESTAMP(6) NOT NULL COMMENT 'UTC clock of the server') \
                 ENGINE=InnoDB"
            ),
            format!(
                "CREATE TABLE IF NOT EXISTS {schema}.local (id TINYINT NOT NULL PRIMARY KEY, \
                 written_at TIMESTAMP(6) NOT NULL) ENGINE=InnoDB COMMENT 'written unlogged by every server for itself'"
            ),
        ] {
            self.line.run(&sql, STEP).await.doing("creating the heartbeat table")?;
        }
        Ok(Done::Done)
    }

    /// Sends a commit and waits for nothing: it may wait for its acknowledgement as long as the others do.
    async fn commit_marker(&mut self) -> Result<Done, ControlError> {
        const ROWS: u32 = 8;
        self.markers = self.markers.wrapping_add(1);
        let sql = format!(
            "REPLACE INTO {}.heartbeat (server_uuid, name, epoch, sequence, written_at) \
             VALUES ('marker-{}', 'marker', 0, {}, UTC_TIMESTAMP(6))",
            identifier(&self.settings.schema),
            self.markers % ROWS,
            self.markers
        );
        let mut line = Line::patient(self.line.target().clone());
        line.open(STEP).await.doing("connecting for a marker")?;
        tokio::spawn(async move { line.run(&sql, Duration::from_secs(24 * 3600)).await });
        Ok(Done::Done)
    }

    /// Ends sessions that could not write any more and would keep applications from finding the new primary.
    async fn end_client_connections(&mut self) -> Result<Done, ControlError> {
        let own = self.line.target().user().to_owned();
        for session in blockers::sessions(&mut self.line, STEP).await.doing("reading the process list")? {
            let spared = session.user == own || self.settings.spare_users.contains(&session.user);
            if spared || session.is_systems() {
                continue;
            }
            match self.line.run(&format!("KILL {}", session.id), STEP).await {
                Err(Fault::Server { code: code::NO_SUCH_THREAD, .. }) => {}
                other => other.doing("ending client connections")?,
            }
        }
        Ok(Done::Done)
    }
}

fn runs_again() -> ControlError {
    ControlError::NotInForce(
        "the IO thread was stopped and runs again; somebody else starts it (an operator, another tool)".into(),
    )
}

pub(crate) fn applier_error(channel: &Channel) -> String {
    if channel.sql_error.is_empty() { "the applier is not running".into() } else { channel.sql_error.clone() }
}
