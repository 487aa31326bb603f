//! A mysqld, a folder with configuration, lease file and marker, and guards started on it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mysql_ha_agent::core::fenced::{Told, Word};
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::host::clock;
use mysql_ha_agent::host::lease_file::LeaseFile;
use mysql_ha_agent::host::presence;
use mysql_ha_agent::host::state_dir::{Member, StateDir};
use mysql_ha_agent::mysql::connect::Connection;

use crate::server::{LONG, Server};

/// `fencing.budget` of these tests.
pub(crate) const BUDGET: Duration = Duration::from_secs(1);

pub(crate) fn boot_id() -> String {
    clock::boot_id().unwrap()
}

pub(crate) struct Bench {
    folder: tempfile::TempDir,
    pub(crate) server: Server,
}

impl Bench {
    /// A writable server that nobody has marked.
    pub(crate) async fn start() -> Self {
        let bench = Self { folder: tempfile::tempdir().unwrap(), server: Server::start().await };
        bench.configure("agent-secret");
        bench
    }

    /// A writable server under our care.
    pub(crate) async fn managed() -> Self {
        let bench = Self::start().await;
        bench.mark(&bench.server.uuid().await);
        bench
    }

    pub(crate) fn mark(&self, server_uuid: &str) {
        let marker = Member { cluster: "c".into(), server_uuid: server_uuid.into(), adopted: true };
        StateDir::take(&self.folder.path().join("state")).unwrap().set_member(&marker).unwrap();
    }

    pub(crate) fn configure(&self, password: &str) {
        self.configure_mode(password, "automatic");
    }

    pub(crate) fn configure_mode(&self, password: &str, mode: &str) {
        let (path, socket) = (self.folder.path().display(), self.server.socket());
        let text = format!(
            "cluster: c\nname: db1\nzookeeper: {{hosts: ['127.0.0.1:1']}}\nfailover: {{durability: async, mode: {mode}}}\n\
             fencing: {{budget: {}ms}}\nstate_dir: {path}/state\nrun_dir: {path}/run\n\
             mysql: {{socket: {}, user: agent, password: {password}, advertise: '127.0.0.1:3306', \
             replication: {{user: repl, password: x}}}}\n",
            BUDGET.as_millis(),
            socket.display()
        );
        std::fs::write(self.folder.path().join("agent.yaml"), text).unwrap();
    }

    pub(crate) fn lease_path(&self) -> PathBuf {
        LeaseFile::path_in(&self.folder.path().join("run"), "c", "db1")
    }

    /// The lease file as an agent of this boot has it.
    pub(crate) fn lease_file(&self) -> LeaseFile {
        LeaseFile::open(&self.lease_path(), &boot_id(), "agent").unwrap()
    }

    /// What the guard says of its last fence, as the agent reads it.
    pub(crate) fn word(&self) -> Option<Word> {
        let path = presence::guard_path(&self.folder.path().join("run"), "c", "db1");
        Told::of(&presence::line(&path)?, &boot_id()).word
    }

    /// Waits until the guard says nothing of a fence any more.
    pub(crate) async fn is_unsaid(&self) {
        let limit = clock::now() + LONG;
        while let Some(word) = self.word() {
            assert!(clock::now() < limit, "waited {LONG:?} in vain for an end of {word:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn is_writable(&self) -> bool {
        self.server.value("@@global.super_read_only").await == "0"
    }

    pub(crate) async fn kill_connections_of(&self, user: &str) {
        let ids = format!("SELECT GROUP_CONCAT(ID) AS ids FROM performance_schema.processlist WHERE USER='{user}'");
        for id in self.server.row(&ids).await.text_or_empty("ids").split(',') {
            self.server.root_runs(&[&format!("KILL {id}")]).await;
        }
    }

    /// Waits until the server is read-only: when it was asked last with the answer "open", and when it answered "closed".
    pub(crate) async fn closes(&self) -> (Moment, Moment) {
        let mut connection = Connection::open(&self.server.root(), LONG).await.unwrap();
        let mut last_open = Moment(0);
        let limit = clock::now() + LONG;
        loop {
            let asked = clock::now();
            let row = connection.row("SELECT @@global.super_read_only AS closed", LONG).await.unwrap();
            if row.is_on("closed") {
                return (last_open, clock::now());
            }
            last_open = asked;
            assert!(asked < limit, "waited {LONG:?} in vain for read-only");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Starts a guard, whose log is a file of its own.
    pub(crate) fn guard(&self) -> Guard {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let log = self.folder.path().join(format!("guard-{}.log", NEXT.fetch_add(1, Ordering::Relaxed)));
        let file = std::fs::File::create(&log).unwrap();
        // Dies with the test, however that dies.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", env!("CARGO_BIN_EXE_mysql-ha-agent"), "guard", "--config"])
            .arg(self.folder.path().join("agent.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap();
        Guard { child, log, read: AtomicUsize::new(0) }
    }
}

/// A guard that runs.
pub(crate) struct Guard {
    child: Child,
    log: PathBuf,
    /// How much of the log is of the past.
    read: AtomicUsize,
}

impl Guard {
    fn log(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap();
        String::from_utf8_lossy(&bytes[self.read.load(Ordering::Relaxed)..]).into_owned()
    }

    /// What was said up to now does not count any more.
    pub(crate) fn forget(&self) {
        self.read.fetch_add(self.log().len(), Ordering::Relaxed);
    }

    /// Waits until the log has `part`.
    pub(crate) async fn says(&self, part: &str) {
        let limit = clock::now() + LONG;
        while !self.log().contains(part) {
            assert!(clock::now() < limit, "waited {LONG:?} in vain for '{part}' in:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until this row has decided.
    pub(crate) async fn decides(&self, row: &str) {
        self.says(&format!("row=\"{row}\"")).await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until it has ended, and gives its exit code.
    pub(crate) async fn ends(&mut self) -> Option<i32> {
        let limit = clock::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(clock::now() < limit, "waited {LONG:?} in vain for its end:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What it takes.
    pub(crate) fn memory(&self) -> Memory {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let value = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().trim_end_matches(" kB").parse().unwrap()
        };
        Memory { resident: value("VmRSS:"), own: value("RssAnon:"), most: value("VmHWM:"), locked: value("VmLck:") }
    }
}

/// In kilobytes.
#[derive(Debug)]
#[allow(dead_code, reason = "printed whole")]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// Of these, no pages of a file: not shared with the agent.
    own: u64,
    /// Resident at the most since its start.
    pub(crate) most: u64,
    /// Locked, in addresses: of those the ones that were touched.
    pub(crate) locked: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- {}\n{}", self.log.display(), std::fs::read_to_string(&self.log).unwrap_or_default());
        }
    }
}
