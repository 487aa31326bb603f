//! Pointing replication somewhere: `Follow` the primary, `Fetch` from another candidate.
//!
//! `CHANGE REPLICATION SOURCE` with both threads stopped empties the relay log, also for a mere retry setting, and
//! with it what may be the last copy of an acknowledged write. With the applier running and only the IO thread
//! stopped the relay log is kept (interleaving 15). So: never where nothing changes, and never with both threads
//! stopped while something received is not executed.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::core::gtid::GtidSet;

use super::connect::{Connection, Line, Place, Row, Target, literal};
use super::control::{Control, ControlError, Doing, Done, STEP, applier_error};
use super::facts;
use super::fault::Fault;

/// Attempts of the IO thread, one a second: 100 days. Its default gives up after 10 in 9.x.
const RETRY_COUNT: u32 = 8_640_000;

/// Between two looks at what the IO thread has received; the server offers no way to wait for it.
const POLL: Duration = Duration::from_millis(5);

/// How long a transaction may be on its way through the primary's commit while we have received it already.
const IN_COMMIT: f64 = 1.0;

/// See [`crate::core::action::MysqlAction::Follow`] and `FollowTarget`: nothing is followed where something is held here that
/// the other lacks; `promised` counts as being there.
pub(crate) async fn follow(
    control: &mut Control,
    address: &str,
    server_uuid: &str,
    promised: &GtidSet,
    acknowledge: bool,
) -> Result<Done, ControlError> {
    // Read-only before anything else, also where it turns out to have diverged; and its set cannot grow any more.
    close_for_following(control).await?;
    // Own set first: what the primary executes between the two reads must not look like missing there.
    let position = control.position().await?;
    let mut own = position.received().subtract(promised);
    let settled = own.is_empty() && !promised.is_empty();
    if position.channel.as_ref().is_some_and(|channel| channel.source_uuid == server_uuid) {
        // Received from this very primary and in its commit still: a transaction is sent before it is in
        // gtid_executed, and while an acknowledgement is missing it is not for long. It is no divergence.
        own = own.subtract(&all_of(server_uuid)?);
    }
    // In a planned switch nothing needs comparing: a login, on the server that is to become the primary at this moment, is
    // spared. That the right server answers is seen once the IO thread is connected (`Channel::source_uuid`).
    if !settled {
        let primary = connect_to(control, address, server_uuid, STEP).await?;
        let extra = extra_here(primary, address, &own).await?;
        if !extra.is_empty() {
            return Ok(Done::Diverged { extra });
        }
    }
    super::semisync::stop_waiting(&mut control.line).await?;
    repoint(control, address, &own_account(control)).await?;
    super::semisync::set_replica(&mut control.line, acknowledge).await?;
    control.line.run("START REPLICA", STEP).await.doing("starting replication")?;
    match control.channel().await? {
        Some(channel) if !channel.sql_running => Err(ControlError::Replication(applier_error(&channel))),
        Some(_) => Ok(Done::Done),
        None => Err(ControlError::NotInForce("the replication channel just made is gone; somebody reset it".into())),
    }
}

/// Every untagged transaction that `server_uuid` can have numbered.
fn all_of(server_uuid: &str) -> Result<GtidSet, ControlError> {
    // The largest number of a GTID is 2^63 - 2.
    facts::set(&format!("{server_uuid}:1-{}", i64::MAX - 1), server_uuid).doing("reading the primary's UUID")
}

/// What of `own` the primary has not executed.
async fn extra_here(mut primary: Connection, address: &str, own: &GtidSet) -> Result<GtidSet, ControlError> {
    if own.is_empty() {
        return Ok(GtidSet::new());
    }
    let sql = "SELECT @@global.gtid_executed AS executed";
    let executed =
        |row: Row| facts::set(&row.text_or_empty("executed"), address).doing("reading the primary's gtid_executed");
    let extra = own.subtract(&executed(primary.row(sql, STEP).await.doing("reading the primary's gtid_executed")?)?);
    if extra.is_empty() {
        return Ok(extra);
    }
    // Others may have passed a transaction on to us that is in the primary's commit at this moment.
    let wait = format!("SELECT WAIT_FOR_EXECUTED_GTID_SET({}, {IN_COMMIT})", literal(&extra.to_string()));
    primary.rows(&wait, STEP).await.doing("waiting for the primary's commits")?;
    let row = primary.row(sql, STEP).await.doing("reading the primary's gtid_executed")?;
    Ok(own.subtract(&executed(row)?))
}

/// A connection to another server of the cluster, proven to be the one that is meant.
pub(crate) async fn connect_to(
    control: &Control,
    address: &str,
    server_uuid: &str,
    limit: Duration,
) -> Result<Connection, ControlError> {
    let target = control.line.target().at(address)?;
    let mut connection = Connection::open(&target, limit).await.doing("connecting to another server of the cluster")?;
    let row = connection.row("SELECT @@server_uuid AS uuid", limit).await.doing("asking for server_uuid")?;
    let found = row.text_or_empty("uuid");
    if found.eq_ignore_ascii_case(server_uuid) {
        return Ok(connection);
    }
    Err(ControlError::WrongServer { address: address.to_owned(), expected: server_uuid.to_owned(), found })
}

/// A returning server becomes read-only before clients are let in again.
async fn close_for_following(control: &mut Control) -> Result<(), ControlError> {
    let sql = "SELECT @@global.super_read_only AS closed, @@global.offline_mode AS offline";
    let row = control.line.row(sql, STEP).await.doing("reading super_read_only")?;
    if !row.is_on("closed") {
        super::close::close(control, STEP).await?;
    }
    if row.is_on("offline") {
        control.line.run("SET GLOBAL offline_mode=OFF", STEP).await.doing("lifting offline_mode")?;
    }
    Ok(())
}

/// By whom a channel connects.
struct Account {
    user: String,
    password: String,
}

/// The account that our file names.
fn own_account(control: &Control) -> Account {
    let settings = &control.settings;
    Account { user: settings.replication_user.clone(), password: settings.replication_password.clone() }
}

/// On the server to fetch from our account may be locked: it was the primary and has shut us out, and being read-only it can let
/// nobody in. The agents' own account, which is the same everywhere, may read there too. Nothing is acknowledged by it: semi-sync
/// is off in a race, and whoever follows a primary does so by the account of its file.
async fn account_for_fetching(control: &Control, from: &str) -> Result<Account, ControlError> {
    let own = own_account(control);
    let agents = control.line.target();
    // MySQL takes no longer one for replication. With TLS it cannot be tried: this client does not speak it yet.
    if control.settings.replication_tls || agents.password().len() > 32 {
        return Ok(own);
    }
    match Connection::open(&Target::new(Place::tcp(from)?, &own.user, &own.password), STEP).await {
        Err(Fault::RefusedPassword { .. }) => {
            Ok(Account { user: agents.user().to_owned(), password: agents.password().to_owned() })
        }
        // Whatever else is wrong, replication will say.
        _ => Ok(own),
    }
}

/// Points the channel at `address` with the IO thread stopped; changes nothing where it points there already.
async fn repoint(control: &mut Control, address: &str, account: &Account) -> Result<(), ControlError> {
    let Place::Tcp { host, port } = Place::tcp(address)? else { return Ok(()) };
    let rows = control.line.rows("SHOW REPLICA STATUS", STEP).await.doing("reading the replication status")?;
    let present = rows.iter().find(|row| row.text_or_empty("Channel_Name").is_empty());
    if present.is_some_and(|row| points_there(row, &host, port, control, account)) {
        return Ok(());
    }
    if present.is_some_and(|row| another_account(row, &host, port, control)) {
        try_account(control, address).await?;
    }
    let by_position = present.is_some_and(|row| !row.is_on("Auto_Position"));
    if present.is_some() {
        let missing = control.stop_receiving().await?.unapplied();
        keep_relay_logs(control, by_position, missing).await?;
    }
    if !control.settings.replication_tls && present.is_some_and(|row| row.is_on("Source_SSL_Allowed")) {
        // By somebody's will or by the default of 9.x, which the server does not tell apart.
        tracing::info!(
            event = "replication_tls",
            source = address,
            "replication was allowed TLS and is now set up without, as mysql.replication.tls is false"
        );
    }
    let sql = change_source(control, account, &host, port, present.is_none() || by_position);
    control.line.run(&sql, STEP).await.doing("pointing replication at another source")
}

/// Whether nothing would change. A refused password counts as a change: the one in the file may be new, and the
/// server does not show the one it has.
fn points_there(row: &Row, host: &str, port: u16, control: &Control, account: &Account) -> bool {
    let settings = &control.settings;
    let tls = |column| row.is_on(column);
    row.text_or_empty("Source_Host") == host
        && row.number("Source_Port") == Some(port.into())
        && row.text_or_empty("Source_User") == account.user
        && row.is_on("Auto_Position")
        && row.number("Connect_Retry") == Some(1)
        && row.number("Source_Retry_Count") == Some(RETRY_COUNT.into())
        && if settings.replication_tls { tls("Source_SSL_Allowed") } else { tls("Get_Source_public_key") }
        && row.number("Last_IO_Errno") != Some(1045)
}

/// Sees to it that `CHANGE REPLICATION SOURCE` throws nothing away; the IO thread has stopped, `missing` is what was
/// received and not executed then.
async fn keep_relay_logs(control: &mut Control, by_position: bool, missing: GtidSet) -> Result<(), ControlError> {
    const WHAT: &str = "point replication at another source";
    if by_position {
        // Switching to auto-position needs both threads stopped, and so everything executed.
        if !missing.is_empty() {
            return Err(ControlError::Unapplied { what: WHAT, missing });
        }
        return control.line.run("STOP REPLICA", STEP).await.doing("stopping replication");
    }
    if missing.is_empty() {
        return Ok(());
    }
    control.start_applier().await.map(|_| ()).map_err(|_| ControlError::Unapplied { what: WHAT, missing })
}

/// Whether it replicates from there, by another account than the file names.
fn another_account(row: &Row, host: &str, port: u16, control: &Control) -> bool {
    row.text_or_empty("Source_Host") == host
        && row.number("Source_Port") == Some(port.into())
        && row.text_or_empty("Replica_IO_Running") == "Yes"
        && row.text_or_empty("Source_User") != control.settings.replication_user
}

/// What replicates is not given up for an account that is not let in. With TLS it is not tried: this client does not speak it yet.
async fn try_account(control: &Control, address: &str) -> Result<(), ControlError> {
    let settings = &control.settings;
    if settings.replication_tls {
        return Ok(());
    }
    let target = Target::new(Place::tcp(address)?, &settings.replication_user, &settings.replication_password);
    let tried = Connection::open(&target, STEP).await;
    tried.map(drop).doing("trying the account that mysql.replication names; replication goes on by the present one")
}

fn change_source(control: &Control, account: &Account, host: &str, port: u16, auto_position: bool) -> String {
    let settings = &control.settings;
    // SOURCE_AUTO_POSITION is refused while the applier runs, even where it changes nothing.
    let auto_position = if auto_position { ", SOURCE_AUTO_POSITION=1" } else { "" };
    // Said in so many words, since the default differs: off in 8.x, on where possible in 9.x. There the IO thread also reads the
    // machine's certificates at each connection, which the first write on a new primary waits for (seen on 9.7: 20 ms and
    // more between the source's greeting and the client's first word of TLS).
    let transport = if settings.replication_tls { "SOURCE_SSL=1" } else { "SOURCE_SSL=0, GET_SOURCE_PUBLIC_KEY=1" };
    format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST={}, SOURCE_PORT={port}, SOURCE_USER={}, SOURCE_PASSWORD={}, \
         {transport}, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT={RETRY_COUNT}, SOURCE_HEARTBEAT_PERIOD=1{auto_position}",
        literal(host),
        literal(&account.user),
        literal(&account.password),
    )
}

/// See [`crate::core::action::MysqlAction::Fetch`]. The IO thread is stopped at the end, whatever happened.
pub(crate) async fn fetch(
    control: &mut Control,
    from: &str,
    set: &GtidSet,
    limit: Duration,
) -> Result<Done, ControlError> {
    if control.position().await?.received().contains(set) {
        return control.stop_io().await;
    }
    let outcome = receive(control, from, set, limit).await;
    control.stop_io().await?;
    outcome
}

async fn receive(control: &mut Control, from: &str, set: &GtidSet, limit: Duration) -> Result<Done, ControlError> {
    let deadline = Instant::now() + limit;
    let account = account_for_fetching(control, from).await?;
    repoint(control, from, &account).await?;
    control.line.run("START REPLICA", STEP).await.doing("starting replication")?;
    loop {
        let position = control.position().await?;
        let missing = set.subtract(&position.received());
        if missing.is_empty() {
            return Ok(Done::Done);
        }
        if Instant::now() >= deadline {
            return match position.channel.map(|channel| channel.io_error).filter(|error| !error.is_empty()) {
                Some(error) => Err(ControlError::Replication(error)),
                None => Ok(Done::NotYet { missing }),
            };
        }
        sleep(POLL).await;
    }
}

/// A killer for statements on another server.
pub(crate) fn killer_for(control: &Control, address: &str) -> Result<Line, ControlError> {
    Ok(Line::new(control.line.target().at(address)?))
}
