//! A mysqld of its own for a test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mysql_ha_agent::mysql::connect::{Connection, Place, Row, Target};

/// For whatever is expected to come; only a broken test waits that long.
pub(crate) const LONG: Duration = Duration::from_secs(30);
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

pub(crate) struct Server {
    folder: tempfile::TempDir,
    child: Child,
    id: u32,
    port: u16,
}

impl Server {
    /// Starts one that takes writes and holds nothing but the template's accounts.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let template = path("MYSQLD_TEMPLATE", "target/servers/data-template");
        let copied =
            Command::new("cp").args(["-a", "--reflink=auto"]).arg(template).arg(folder.path().join("data")).status();
        assert!(copied.unwrap().success(), "no data template: run tests/servers first");
        // Named by us: servers with the same UUID do not replicate from each other, and two that start at the same
        // moment may make the same one.
        let uuid = mysql_ha_agent::host::clock::new_instance().unwrap();
        std::fs::write(folder.path().join("data/auto.cnf"), format!("[auto]\nserver-uuid={uuid}\n")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let child = launch(folder.path(), port, id, &[]);
        let server = Self { folder, child, id, port };
        server.ready().await;
        server
    }

    /// Starts it again after [`Server::kill`].
    pub(crate) async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    /// The same with other options.
    pub(crate) async fn restart_with(&mut self, options: &[&str]) {
        self.child = launch(self.folder.path(), self.port, self.id, options);
        self.ready().await;
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Where it keeps its files.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// What it has logged in all its lives.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log.err")).unwrap()
    }

    /// Starts it again without waiting until it answers, since it will not.
    pub(crate) fn begin_start(&mut self) {
        self.child = launch(self.folder.path(), self.port, self.id, &[]);
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let ended = async {
            loop {
                match self.child.try_wait().unwrap() {
                    Some(status) => return status,
                    None => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        };
        tokio::time::timeout(LONG, ended).await.expect("mysqld did not end")
    }

    /// Tells it to end and sees how it did; one that has ended before says how that was.
    pub(crate) async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.ended().await
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    async fn ready(&self) {
        let trying = async {
            while Connection::open(&self.root(), LONG).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(LONG, trying).await.is_err() {
            panic!("mysqld did not start:\n{}", self.log());
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn agent(&self) -> Target {
        Target::new(Place::Socket(self.socket()), "agent", "agent-secret")
    }

    pub(crate) fn root(&self) -> Target {
        Target::new(Place::Socket(self.socket()), "root", "")
    }

    pub(crate) fn app(&self) -> Target {
        Target::new(Place::Socket(self.socket()), "app", "app-secret")
    }

    /// Statements of root, each to its end.
    pub(crate) async fn root_runs(&self, statements: &[&str]) {
        let mut root = Connection::open(&self.root(), LONG).await.unwrap();
        for sql in statements {
            root.run(sql, LONG).await.unwrap_or_else(|fault| panic!("{sql}: {fault}"));
        }
    }

    pub(crate) async fn row(&self, sql: &str) -> Row {
        Connection::open(&self.root(), LONG).await.unwrap().row(sql, LONG).await.unwrap()
    }

    /// One value as text.
    pub(crate) async fn value(&self, expression: &str) -> String {
        self.row(&format!("SELECT CAST({expression} AS CHAR) AS v")).await.text_or_empty("v")
    }

    pub(crate) async fn uuid(&self) -> String {
        self.value("@@server_uuid").await
    }

    /// Waits for a condition, given as a query for a truth.
    pub(crate) async fn until(&self, condition: &str) {
        let waiting = async {
            while self.value(condition).await != "1" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(LONG, waiting).await.unwrap_or_else(|_| panic!("never: {condition}"));
    }

    /// Replicates from `source` by hand, and everything is applied. It connects again within a second, as the agent's replicas
    /// do: one that a fence cut off would else stay away for a minute if its first try came while the source was still offline.
    pub(crate) async fn replicate_from(&self, source: &Server) {
        let change = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={}, SOURCE_USER='repl', \
             SOURCE_PASSWORD='repl-secret', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1",
            source.port
        );
        self.root_runs(&[&change, "START REPLICA", "SET GLOBAL super_read_only=ON"]).await;
        self.catch_up(source).await;
    }

    pub(crate) async fn catch_up(&self, source: &Server) {
        let executed = source.value("@@global.gtid_executed").await;
        self.until(&format!("WAIT_FOR_EXECUTED_GTID_SET('{executed}', 1) = 0")).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(folder: &Path, port: u16, id: u32, options: &[&str]) -> Child {
    let at = |name: &str| folder.join(name).display().to_string();
    // Dies with the test, however that dies.
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL"])
        .arg(path("MYSQLD", "target/servers/bin/mysqld"))
        .args([format!("--datadir={}", at("data")), format!("--socket={}", at("s"))])
        .args([format!("--log-error={}", at("log.err")), format!("--port={port}"), format!("--server-id={id}")])
        .args(["--bind-address=127.0.0.1", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-bin=binlog"])
        .args(["--relay-log=relay", "--relay-log-recovery=OFF", "--mysqlx=OFF", "--skip-name-resolve"])
        .args(["--innodb-buffer-pool-size=32M", "--event-scheduler=OFF"])
        .arg("--plugin-load-add=rpl_semi_sync_source=semisync_source.so;rpl_semi_sync_replica=semisync_replica.so")
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn path(variable: &str, default: &str) -> PathBuf {
    std::env::var_os(variable)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join(default), |given| PathBuf::from(&given))
}
