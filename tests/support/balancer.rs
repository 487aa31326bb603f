//! A real HAProxy in front of a cluster, with the configuration that is packaged: only addresses and ports are other ones.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use super::cluster::Cluster;
use super::network::MYSQL_PORT;
use super::process::Process;
use super::sql;
use super::stage::repository;

/// Where it takes writes.
const WRITES: u16 = 3307;
/// Where it takes reads.
const READS: u16 = 3308;

/// A running HAProxy. Ends when dropped.
pub(crate) struct Balancer {
    process: Process,
    address: Ipv4Addr,
    log: PathBuf,
}

impl Balancer {
    /// Starts it where the test lives, beside no server.
    pub(crate) async fn start(cluster: &Cluster) -> Self {
        let network = cluster.stage.network();
        // The first cluster of a test: no test has two and a balancer.
        let address = network.own_address(0);
        let packaged = repository().join("packaging/haproxy.cfg");
        let mut text = std::fs::read_to_string(&packaged).expect("it is packaged");
        for (from, host) in ["10.0.0.11:3306", "10.0.0.12:3306", "10.0.0.13:3306"].iter().zip(&cluster.hosts) {
            assert!(text.contains(from), "{} names no {from}", packaged.display());
            text = text.replace(from, &format!("{}:{MYSQL_PORT}", host.address));
        }
        for port in [WRITES, READS] {
            text = text.replace(&format!("bind :{port}"), &format!("bind {address}:{port}"));
        }
        let folder = cluster.stage.folder();
        let (file, log) = (folder.join("haproxy.cfg"), folder.join("haproxy.log"));
        let logged = format!("global\n    log stderr format raw local0\n\n{text}")
            .replace("    mode tcp\n", "    mode tcp\n    log global\n");
        std::fs::write(&file, logged).expect("the configuration can be written");
        let arguments = ["-db", "-f", &file.display().to_string()].map(String::from);
        let program = cluster.stage.servers("bin/haproxy");
        let process = Process::start(cluster.stage.bond(), network.hub(), &program, &arguments, &log);
        Self { process, address, log }
    }

    /// A client's connection to whoever takes writes. None where HAProxy has nobody.
    pub(crate) async fn for_writes(&self) -> Result<mysql_async::Conn, sql::Failure> {
        sql::connect_app_at(self.address, WRITES).await
    }

    /// A client's connection to a replica.
    pub(crate) async fn for_reads(&self) -> Result<mysql_async::Conn, sql::Failure> {
        sql::connect_app_at(self.address, READS).await
    }

    /// What it has said, for a failure's report.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("\n---- {}\n{}", self.log.display(), self.log());
        }
        self.process.kill();
    }
}
