//! One complete reading of a server. Changes nothing.
//!
//! **Order.** The channel (with what was retrieved) is read before `gtid_executed`. A transaction is in `retrieved`
//! from its complete arrival on; it leaves again only after having been executed (a purge of the relay logs, seen by a
//! restarted server). So whatever had arrived before the first read is in the first read, or in the second. The other
//! way round, one that was applied and purged between the two reads would be in neither, and *received* would miss an
//! acknowledged write. A transaction that arrives between the reads may be missed, which is no harm: it arrived after
//! the reading began, and who needs a final set stops the IO thread first.

use std::time::{Duration, Instant};

use crate::core::gtid::GtidSet;
use crate::core::rewind::ServerFiles;
use crate::core::view::{Channel, IoThread, SemiSync, SemiSyncReplica, SemiSyncSource, ServerFacts};

use super::connect::{Connection, Line, Row, identifier};
use super::fault::{Fault, code};
use super::wording::{Flavor, SemiSync as Generation};

/// A reading: the facts, or why the server cannot be managed.
#[derive(Debug, Clone, PartialEq)]
pub enum Reading {
    /// A server for us.
    Facts(Box<ServerFacts>),
    /// Not for us; the text says why and what to do.
    Unsupported(String),
}

/// What can be read at once, in one row.
const GLOBALS: &str = "SELECT @@global.gtid_executed AS executed, @@server_uuid AS server_uuid, @@server_id AS server_id, \
     @@version AS version, @@version_comment AS comment, @@global.read_only AS read_only, \
     @@global.super_read_only AS super_read_only, @@global.offline_mode AS offline_mode, @@global.gtid_mode AS gtid_mode, \
     @@global.log_bin AS log_bin, @@global.log_replica_updates AS log_replica_updates";

/// What the server has to gather first: together some 5 ms of processor time (9.7, `SHOW PROFILES`), all the rest 0.3 ms.
const SETTINGS: &str = "SELECT @@global.relay_log_recovery AS relay_log_recovery, \
     @@global.sync_binlog = 1 AND @@global.innodb_flush_log_at_trx_commit = 1 AS synced, \
     @@global.datadir AS datadir, @@global.log_bin_index AS log_index, @@global.innodb_data_home_dir AS data_home, \
     @@global.innodb_data_file_path AS data_path, @@global.innodb_temp_data_file_path AS temp_path, \
     (SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE <> 'OFFLINE' \
      AND MEMBER_ID <> '') AS group_members, \
     (SELECT COUNT(*) FROM performance_schema.persisted_variables WHERE VARIABLE_VALUE IN ('ON', '1') \
      AND VARIABLE_NAME IN ('super_read_only', 'skip_replica_start')) AS persisted, \
     (SELECT COUNT(*) FROM performance_schema.variables_info WHERE VARIABLE_NAME = 'super_read_only' \
      AND VARIABLE_SOURCE = 'COMMAND_LINE') AS command_line, \
     (SELECT COUNT(*) FROM performance_schema.persisted_variables WHERE VARIABLE_VALUE IN ('OFF', '0') \
      AND VARIABLE_NAME IN ('rpl_semi_sync_replica_enabled', 'rpl_semi_sync_slave_enabled')) \
      = (SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE' \
         AND PLUGIN_NAME IN ('rpl_semi_sync_replica', 'rpl_semi_sync_slave')) AS quiet, \
     (SELECT GROUP_CONCAT(PLUGIN_NAME) FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE' \
      AND PLUGIN_NAME LIKE 'rpl_semi_sync_%') AS semi_sync";

/// How long the settings of one life of a server may be believed. They change by hand alone; what we change ourselves is
/// followed by [`Reader::forget`].
const SETTINGS_AGE: Duration = Duration::from_secs(10);

/// Reads one server again and again.
#[derive(Debug)]
pub struct Reader {
    schema: String,
    settings: Option<Settings>,
}

#[derive(Debug, Clone)]
struct Settings {
    incarnation: String,
    read: Instant,
    persisted_read_only: bool,
    group_member: bool,
    relay_log_recovery: bool,
    synced_commits: bool,
    files: Option<ServerFiles>,
    source_side: Option<Generation>,
    replica_side: Option<Generation>,
}

/// One complete reading for a verb, which knows nothing of the life of mysqld.
///
/// # Errors
/// See [`Fault`].
pub async fn once(line: &mut Line, schema: &str, limit: Duration) -> Result<Reading, Fault> {
    Reader::new(schema).read(line.open(limit).await?, "", limit).await
}

impl Reader {
    /// `schema`: `heartbeat.schema`.
    #[must_use]
    pub fn new(schema: &str) -> Self {
        Self { schema: schema.to_owned(), settings: None }
    }

    /// The settings have been changed: the next reading reads them too.
    pub fn forget(&mut self) {
        self.settings = None;
    }

    /// Semi-sync alone, as it is now; none where it could not be read, or its plugins' names are not known yet.
    pub(crate) async fn semi_sync(&self, connection: &mut Connection, limit: Duration) -> Option<SemiSync> {
        semi_sync(connection, self.settings.as_ref()?, limit).await.ok()
    }

    /// Reads the server, all statements together within `limit`. `incarnation`: the life of mysqld as the host knows it.
    ///
    /// # Errors
    /// See [`Fault`].
    pub async fn read(
        &mut self,
        connection: &mut Connection,
        incarnation: &str,
        limit: Duration,
    ) -> Result<Reading, Fault> {
        let at = connection.at().to_owned();
        super::connect::within(limit, &at, self.read_all(connection, incarnation, limit)).await
    }

    async fn read_all(
        &mut self,
        connection: &mut Connection,
        incarnation: &str,
        limit: Duration,
    ) -> Result<Reading, Fault> {
        let status = match connection.rows("SHOW REPLICA STATUS", limit).await {
            Ok(status) => status,
            // Servers before 8.0.22 do not know the statement; the globals tell what they are.
            Err(Fault::Server { .. }) => Vec::new(),
            Err(fault) => return Err(fault),
        };
        let globals = match connection.row(GLOBALS, limit).await {
            Ok(row) => row,
            Err(fault @ Fault::Server { .. }) => return foreign(connection, fault, limit).await,
            Err(fault) => return Err(fault),
        };
        let mut settings = match self.settings.clone().filter(|settings| settings.holds(incarnation)) {
            Some(settings) => settings,
            None => read_settings(connection, incarnation, limit).await?,
        };
        let (channel, others) = channels(&status, connection.at())?;
        if let Some(why) = flavor(&globals, settings.group_member, others).unsupported() {
            return Ok(Reading::Unsupported(why));
        }
        let replicas = connection.rows("SHOW REPLICAS", limit).await?;
        let semi_sync = match semi_sync(connection, &settings, limit).await {
            // A plugin that was there is not any more.
            Err(Fault::Server { code: code::UNKNOWN_VARIABLE, .. }) => {
                settings = read_settings(connection, incarnation, limit).await?;
                semi_sync(connection, &settings, limit).await?
            }
            answer => answer?,
        };
        let beat = heartbeat(connection, &self.schema, limit).await?;
        let facts = ServerFacts {
            server_uuid: globals.text_or_empty("server_uuid"),
            server_id: globals.number("server_id").and_then(|id| u32::try_from(id).ok()).unwrap_or(0),
            version: globals.text_or_empty("version"),
            losses: 0,
            read_only: globals.is_on("read_only"),
            super_read_only: globals.is_on("super_read_only"),
            offline_mode: globals.is_on("offline_mode"),
            persisted_read_only: settings.persisted_read_only,
            executed: set(&globals.text_or_empty("executed"), connection.at())?,
            channel,
            replicas: replicas
                .iter()
                .filter_map(|row| row.text("Replica_UUID"))
                .filter(|uuid| !uuid.is_empty())
                .collect(),
            incarnation: incarnation.to_owned(),
            relay_log_recovery: settings.relay_log_recovery,
            synced_commits: settings.synced_commits,
            files: settings.files.clone(),
            heartbeat_age: beat.and_then(|beat| beat.age),
            heartbeat_table: beat.is_some(),
            semi_sync,
        };
        self.settings = Some(settings);
        Ok(Reading::Facts(Box::new(facts)))
    }
}

impl Settings {
    fn holds(&self, incarnation: &str) -> bool {
        // Not persisted: somebody is about to change that.
        self.persisted_read_only && self.incarnation == incarnation && self.read.elapsed() < SETTINGS_AGE
    }
}

/// Semi-sync by the names that its plugins go by: 0.5 ms in all (9.7, `SHOW PROFILES`), where looking the variables up in
/// performance_schema takes 1.2 ms at every reading.
async fn semi_sync(connection: &mut Connection, settings: &Settings, limit: Duration) -> Result<SemiSync, Fault> {
    let (source, replica) = (settings.source_side, settings.replica_side);
    let columns: Vec<String> = source.map(source_columns).into_iter().chain(replica.map(replica_columns)).collect();
    if columns.is_empty() {
        return Ok(SemiSync::default());
    }
    // Both states in one look at the status: the server gathers all of it each time.
    let state = |prefix: Option<&str>| {
        let name = prefix.map_or_else(|| "NULL".to_owned(), |prefix| format!("'{prefix}_status'"));
        format!("MAX(IF(VARIABLE_NAME = {name}, VARIABLE_VALUE, NULL))")
    };
    let sql = format!(
        "SELECT source_status, replica_status, {} FROM (SELECT {} AS source_status, {} AS replica_status \
         FROM performance_schema.global_status WHERE VARIABLE_NAME LIKE 'Rpl_semi_sync_%_status') AS states",
        columns.join(", "),
        state(source.map(Generation::source)),
        state(replica.map(Generation::replica)),
    );
    let row = connection.row(&sql, limit).await?;
    Ok(SemiSync {
        source: source.map(|_| SemiSyncSource {
            on: row.is_on("source_enabled") && row.is_on("source_status"),
            count: row.number("count").and_then(|count| u32::try_from(count).ok()).unwrap_or(u32::MAX),
            strict: row.number("timeout").is_some_and(|timeout| timeout >= u64::from(super::semisync::FOR_EVER))
                && row.is_on("wait_no_replica")
                && row.text_or_empty("wait_point") == "AFTER_SYNC",
        }),
        replica: replica
            .map(|_| SemiSyncReplica { enabled: row.is_on("replica_enabled"), active: row.is_on("replica_status") }),
    })
}

fn source_columns(generation: Generation) -> String {
    let (prefix, replica) = (generation.source(), generation.replica_word());
    format!(
        "@@global.{prefix}_enabled AS source_enabled, @@global.{prefix}_wait_for_{replica}_count AS count, \
         @@global.{prefix}_timeout AS timeout, @@global.{prefix}_wait_no_{replica} AS wait_no_replica, \
         @@global.{prefix}_wait_point AS wait_point"
    )
}

fn replica_columns(generation: Generation) -> String {
    format!("@@global.{}_enabled AS replica_enabled", generation.replica())
}

async fn read_settings(connection: &mut Connection, incarnation: &str, limit: Duration) -> Result<Settings, Fault> {
    let row = connection.row(SETTINGS, limit).await?;
    let number = |column| row.number(column).unwrap_or(0);
    let plugins = row.text_or_empty("semi_sync");
    let loaded = |name: fn(Generation) -> &'static str| {
        let is_loaded = |generation: &Generation| plugins.split(',').any(|plugin| plugin == name(*generation));
        [Generation::New, Generation::Old].into_iter().find(is_loaded)
    };
    Ok(Settings {
        incarnation: incarnation.to_owned(),
        read: Instant::now(),
        persisted_read_only: number("persisted") == 2 && number("command_line") == 0 && number("quiet") == 1,
        group_member: number("group_members") > 0,
        relay_log_recovery: row.is_on("relay_log_recovery"),
        synced_commits: row.is_on("synced"),
        files: files(&row),
        source_side: loaded(Generation::source),
        replica_side: loaded(Generation::replica),
    })
}

fn files(row: &Row) -> Option<ServerFiles> {
    let text = |column| row.text_or_empty(column);
    let home = row.text("data_home");
    ServerFiles::of(&text("datadir"), &text("log_index"), home.as_deref(), &text("data_path"), &text("temp_path"))
}

/// A server that does not know the globals: old or MariaDB where it says so, else the error stands.
async fn foreign(connection: &mut Connection, fault: Fault, limit: Duration) -> Result<Reading, Fault> {
    let row = connection.row("SELECT @@version AS version, @@version_comment AS comment", limit).await?;
    // All else good, so that only version and brand are judged.
    let flavor = Flavor {
        version: row.text_or_empty("version"),
        comment: row.text_or_empty("comment"),
        gtid_mode: "ON".into(),
        log_bin: true,
        log_replica_updates: true,
        ..Flavor::default()
    };
    flavor.unsupported().map(Reading::Unsupported).ok_or(fault)
}

fn flavor(globals: &Row, group_member: bool, channels: Vec<String>) -> Flavor {
    Flavor {
        version: globals.text_or_empty("version"),
        comment: globals.text_or_empty("comment"),
        gtid_mode: globals.text_or_empty("gtid_mode"),
        log_bin: globals.is_on("log_bin"),
        log_replica_updates: globals.is_on("log_replica_updates"),
        group_member,
        channels,
    }
}

/// The default channel, and the names of all others but those of group replication (which counts by membership).
fn channels(status: &[Row], at: &str) -> Result<(Option<Channel>, Vec<String>), Fault> {
    let (mut default, mut others) = (None, Vec::new());
    for row in status {
        match row.text_or_empty("Channel_Name") {
            name if name.is_empty() => default = Some(channel(row, at)?),
            name if name.starts_with("group_replication_") => {}
            name => others.push(name),
        }
    }
    Ok((default, others))
}

/// A row of `SHOW REPLICA STATUS`.
pub(crate) fn channel(row: &Row, at: &str) -> Result<Channel, Fault> {
    Ok(Channel {
        source: format!("{}:{}", row.text_or_empty("Source_Host"), row.text_or_empty("Source_Port")),
        user: row.text_or_empty("Source_User"),
        source_uuid: row.text_or_empty("Source_UUID"),
        io: match row.text_or_empty("Replica_IO_Running").as_str() {
            "Yes" => IoThread::Yes,
            "No" => IoThread::No,
            _ => IoThread::Connecting,
        },
        sql_running: row.text_or_empty("Replica_SQL_Running") == "Yes",
        retrieved: set(&row.text_or_empty("Retrieved_Gtid_Set"), at)?,
        auto_position: row.is_on("Auto_Position"),
        io_error: row.text_or_empty("Last_IO_Error"),
        sql_error: row.text_or_empty("Last_SQL_Error"),
    })
}

/// A GTID set as the server printed it.
pub(crate) fn set(text: &str, at: &str) -> Result<GtidSet, Fault> {
    text.parse().map_err(|error| Fault::Lost { at: at.to_owned(), why: format!("unreadable answer: {error}") })
}

/// The heartbeat table is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Beat {
    /// Age of its newest row; none where it is empty.
    age: Option<Duration>,
}

/// The newest heartbeat of any server. None: no table. `written_at` is UTC by both clocks' leave: a source's clock
/// that runs ahead makes it younger, never negative.
async fn heartbeat(connection: &mut Connection, schema: &str, limit: Duration) -> Result<Option<Beat>, Fault> {
    let sql = format!(
        "SELECT GREATEST(TIMESTAMPDIFF(MICROSECOND, MAX(written_at), UTC_TIMESTAMP(6)), 0) AS age FROM {}.heartbeat",
        identifier(schema)
    );
    match connection.row(&sql, limit).await {
        Ok(row) => Ok(Some(Beat { age: row.number("age").map(Duration::from_micros) })),
        Err(Fault::Server { code: code::NO_SUCH_DATABASE | code::NO_SUCH_TABLE, .. }) => Ok(None),
        Err(fault) => Err(fault),
    }
}
