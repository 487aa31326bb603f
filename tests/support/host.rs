//! One host: its processes, its folder, its SQL.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mysql_async::prelude::FromRow;
use rustix::process::Signal;

use super::network::Namespace;
use super::process::{Bond, Process, command};
use super::sql;

/// What runs on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The host's member of the ensemble.
    Zookeeper,
    /// The MySQL server.
    Mysqld,
    /// `mysql-ha-agent run`.
    Agent,
    /// `mysql-ha-agent guard`.
    Guard,
}

impl Kind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Zookeeper, Self::Mysqld, Self::Agent, Self::Guard];

    /// The name of the log in the host's folder.
    pub(crate) fn log(self) -> &'static str {
        ["zookeeper.log", "mysqld.log", "agent.log", "guard.log"][self as usize]
    }
}

/// The data directory's name in the host's folder.
pub(super) const DATA: &str = "mysql";

/// How a process is started: program and arguments.
pub(super) type Launch = (PathBuf, Vec<String>);

/// One host. Everything is by pid: a process that has ended is never signalled.
pub(crate) struct Host {
    /// Its name: db1, db2, ….
    pub(crate) name: String,
    /// Where its servers listen.
    pub(crate) address: Ipv4Addr,
    pub(super) folder: PathBuf,
    pub(super) socket: PathBuf,
    pub(super) bond: Bond,
    /// None with loopback addresses.
    pub(super) namespace: Option<Namespace>,
    /// By [`Kind`].
    pub(super) launches: [Launch; 4],
    pub(super) processes: Mutex<[Option<Process>; 4]>,
}

impl Host {
    fn processes(&self) -> MutexGuard<'_, [Option<Process>; 4]> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process that is not running.
    pub(crate) fn start(&self, kind: Kind) {
        let slot = &mut self.processes()[kind as usize];
        let running = slot.as_mut().is_some_and(Process::is_running);
        assert!(!running, "{kind:?} on {} is to be started, but runs already", self.name);
        let (program, arguments) = &self.launches[kind as usize];
        let namespace = self.namespace.as_ref().map(Namespace::pid);
        *slot = Some(Process::start(self.bond, namespace, program, arguments, &self.log(kind)));
    }

    /// SIGKILL, and waits until it is gone. Nothing happens when it does not run.
    pub(crate) fn kill(&self, kind: Kind) {
        if let Some(process) = &mut self.processes()[kind as usize] {
            process.kill();
        }
    }

    /// SIGTERM, and waits for the end.
    pub(crate) async fn stop(&self, kind: Kind) -> ExitStatus {
        let process = self.processes()[kind as usize].take();
        let mut process = process.unwrap_or_else(|| panic!("{kind:?} on {} was never started", self.name));
        process.terminate(&format!("{kind:?} on {}", self.name), Duration::from_secs(30)).await
    }

    /// Freezes it: it keeps its connections and answers nothing.
    pub(crate) fn pause(&self, kind: Kind) {
        self.signal(kind, Signal::STOP);
    }

    /// Lets a frozen one go on.
    pub(crate) fn resume(&self, kind: Kind) {
        self.signal(kind, Signal::CONT);
    }

    /// Sends any other signal to a running process.
    pub(crate) fn signal(&self, kind: Kind, signal: Signal) {
        assert!(self.is_running(kind), "{kind:?} on {} does not run", self.name);
        if let Some(process) = &mut self.processes()[kind as usize] {
            process.signal(signal);
        }
    }

    /// Sends a signal if it runs: for faults that may meet a process which another fault has ended.
    pub(crate) fn signal_if_running(&self, kind: Kind, signal: Signal) {
        if let Some(process) = &mut self.processes()[kind as usize] {
            process.signal(signal);
        }
    }

    /// Starts it unless it runs: what systemd does for a service that has ended.
    pub(crate) fn start_if_ended(&self, kind: Kind) {
        if !self.is_running(kind) {
            self.start(kind);
        }
    }

    /// Whether it was ever started here.
    pub(crate) fn was_started(&self, kind: Kind) -> bool {
        self.processes()[kind as usize].is_some()
    }

    /// Whether it was started and has not ended.
    pub(crate) fn is_running(&self, kind: Kind) -> bool {
        self.processes()[kind as usize].as_mut().is_some_and(Process::is_running)
    }

    /// How it ended by itself, if it has.
    pub(crate) fn exit_status(&self, kind: Kind) -> Option<ExitStatus> {
        self.processes()[kind as usize].as_mut().and_then(Process::exit_status)
    }

    /// The pid of a process that was started.
    pub(crate) fn pid(&self, kind: Kind) -> Option<u32> {
        self.processes()[kind as usize].as_ref().map(Process::pid)
    }

    /// Freezes everything that runs here, as when its virtual machine stands still.
    pub(crate) fn pause_all(&self) {
        self.processes().iter_mut().flatten().for_each(|process| process.signal(Signal::STOP));
    }

    /// Lets everything go on.
    pub(crate) fn resume_all(&self) {
        self.processes().iter_mut().flatten().for_each(|process| process.signal(Signal::CONT));
    }

    /// Kills everything that runs here at one stroke: first all signals, then the waiting.
    pub(crate) fn kill_all(&self) {
        let mut processes = self.processes();
        for process in processes.iter_mut().flatten() {
            process.signal(Signal::KILL);
        }
        for process in processes.iter_mut().flatten() {
            process.kill();
        }
    }

    /// Runs a short command as on the host, which sees the host's own disks; panics when it fails.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        match &self.namespace {
            Some(namespace) => namespace.run(words),
            None => command(words),
        }
    }

    /// Where mysqld keeps its data (to be read through [`Host::run`]).
    pub(crate) fn data_directory(&self) -> PathBuf {
        self.folder.join(DATA)
    }

    /// Where the output of a process goes.
    pub(crate) fn log(&self, kind: Kind) -> PathBuf {
        self.folder.join(kind.log())
    }

    /// The configuration file of the agent.
    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("agent.yaml")
    }

    /// Changes a key of its agent's configuration, for its next start.
    pub(crate) fn configure(&self, key: &str, value: impl Into<serde_json::Value>) {
        super::options::change(&self.config(), key, value.into());
    }

    /// Changes a key of its agent's configuration and lets the running agent read it again.
    pub(crate) fn reload_with(&self, key: &str, value: impl Into<serde_json::Value>) {
        self.configure(key, value);
        self.signal(Kind::Agent, Signal::HUP);
    }

    /// The server's Unix socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Rows of a statement as root, or why there are none.
    pub(crate) async fn try_query<T: FromRow + Send + 'static>(&self, statement: &str) -> Result<Vec<T>, sql::Failure> {
        sql::query(&self.socket, statement).await.map_err(|failure| format!("{}: {failure}", self.name))
    }

    /// Rows of a statement as root; panics when it fails.
    pub(crate) async fn query<T: FromRow + Send + 'static>(&self, statement: &str) -> Vec<T> {
        self.try_query(statement).await.unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// The one value of a statement as root; panics when it fails or has none.
    pub(crate) async fn value<T: mysql_async::prelude::FromValue + Send + 'static>(&self, statement: &str) -> T {
        let rows: Vec<(T,)> = self.query(statement).await;
        rows.into_iter().next().unwrap_or_else(|| panic!("{}: `{statement}` has no row", self.name)).0
    }

    /// Statements as root, one connection for all.
    pub(crate) async fn execute(&self, statements: &[&str]) {
        use mysql_async::prelude::Queryable;
        let mut conn =
            sql::connect_root(&self.socket).await.unwrap_or_else(|failure| panic!("{}: {failure}", self.name));
        for statement in statements {
            conn.query_drop(*statement).await.unwrap_or_else(|error| panic!("{}: `{statement}`: {error}", self.name));
        }
        let _ = conn.disconnect().await;
    }

    /// A connection as root, or as a client over TCP. An error when the server does not let it in.
    pub(crate) async fn connect(&self, client: bool) -> Result<mysql_async::Conn, sql::Failure> {
        if client { sql::connect_app(self.address).await } else { sql::connect_root(&self.socket).await }
    }

    /// A connection as root on which this statement has been executed, for what lasts as long as its session (locks).
    pub(crate) async fn hold(&self, statement: &str) -> mysql_async::Conn {
        use mysql_async::prelude::Queryable;
        let mut conn =
            sql::connect_root(&self.socket).await.unwrap_or_else(|failure| panic!("{}: {failure}", self.name));
        conn.query_drop(statement).await.unwrap_or_else(|error| panic!("{}: `{statement}`: {error}", self.name));
        conn
    }

    /// Whether clients may write: neither read-only nor offline. An error when the server does not answer.
    pub(crate) async fn is_writable(&self) -> Result<bool, sql::Failure> {
        let rows: Vec<(bool,)> = self.try_query("SELECT NOT @@global.read_only AND NOT @@global.offline_mode").await?;
        Ok(rows.first().is_some_and(|row| row.0))
    }

    /// The last lines of a log, for a failure's report.
    pub(crate) fn log_tail(&self, kind: Kind, lines: usize) -> String {
        let text = std::fs::read(self.log(kind)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
}
