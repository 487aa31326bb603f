//! A running cluster, from nothing to "replication runs and semi-sync acknowledges".

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::checks::wait_for;
use super::host::{DATA, Host, Kind, Launch};
use super::network::{MYSQL_PORT, ZOOKEEPER_PORT};
use super::options::ClusterOptions;
use super::process::Bond;
use super::stage::{LEFT_RUNNING, Stage};
use super::tree::Tree;
use super::verbs::binary;

/// How long a server may take to start, or a replica to connect, on a machine that has other things to do as well.
const START: Duration = Duration::from_secs(60);

/// A running cluster. Ends with all its processes when dropped, unless the stage is to be kept.
pub(crate) struct Cluster {
    /// How it was asked for.
    pub(crate) options: ClusterOptions,
    /// The hosts, db1 first.
    pub(crate) hosts: Vec<Arc<Host>>,
    /// A reader of the tree in ZooKeeper.
    pub(crate) tree: Arc<Tree>,
    pub(super) stage: Stage,
}

impl Cluster {
    /// Starts ZooKeeper and MySQL on every host, replication from db1 and semi-sync, as the options say; no agents.
    pub(crate) async fn start(stage: &Stage, options: ClusterOptions) -> Self {
        let number = stage.next_cluster();
        stage.network().add_bridge(number);
        let ensemble: Vec<Ipv4Addr> = (1..=options.hosts).map(|host| stage.network().address(number, host)).collect();
        let folder = stage.folder().join(&options.name);
        let hosts =
            (1..=options.hosts).map(|host| Arc::new(make_host(stage, &options, number, host, &ensemble, &folder)));
        let members: Vec<String> = ensemble.iter().map(|member| format!("{member}:{ZOOKEEPER_PORT}")).collect();
        let tree = Arc::new(Tree::new(members.join(","), options.node()));
        let cluster = Self { hosts: hosts.collect(), tree, stage: stage.clone(), options };

        for host in &cluster.hosts {
            host.start(Kind::Zookeeper);
        }
        cluster
            .on_each(async |cluster, host| {
                let from = cluster.stage.servers("data-template");
                if let Some(megabytes) = cluster.options.small_disks {
                    cluster.mount_data_disk(&host.name, megabytes);
                }
                tokio::task::block_in_place(|| fill_data_directory(host, &from));
                cluster.start_mysqld(&host.name).await;
            })
            .await;
        cluster.replicate().await;
        cluster.make_own_accounts().await;
        cluster.wait_for_ensemble().await;
        cluster
    }

    /// They reach the others by replication.
    async fn make_own_accounts(&self) {
        for host in self.hosts.iter().filter(|_| self.options.own_accounts) {
            let user = self.options.account(&host.name);
            let create = format!("CREATE USER {user} IDENTIFIED BY 'repl-secret'");
            self.hosts[0].execute(&[&create, &format!("GRANT REPLICATION SLAVE ON *.* TO {user}")]).await;
        }
    }

    /// The host of that name.
    pub(crate) fn host(&self, name: &str) -> &Arc<Host> {
        let found = self.hosts.iter().find(|host| host.name == name);
        found.unwrap_or_else(|| panic!("there is no host {name}"))
    }

    /// Starts the agent of every host.
    pub(crate) fn start_agents(&self) {
        for host in &self.hosts {
            host.start(Kind::Agent);
        }
    }

    /// Starts mysqld on a host and waits until it answers.
    pub(crate) async fn start_mysqld(&self, host: &str) {
        let host = self.host(host);
        host.start(Kind::Mysqld);
        wait_for(&format!("mysqld on {} answers", host.name), START, async || {
            assert!(host.is_running(Kind::Mysqld), "mysqld on {} ended: {}", host.name, host.log_tail(Kind::Mysqld, 5));
            host.try_query::<(u8,)>("SELECT 1").await
        })
        .await;
    }

    /// Semi-sync by hand, the source's side: this server waits without end for one acknowledgement of each commit. Holds
    /// until its next start. For the primary alone: on a replica the applier would wait too, for ever (seen on 9.7), so a test
    /// that makes a primary a replica calls [`Cluster::stop_waiting`].
    pub(crate) async fn wait_for_acknowledgements(&self, host: &str) {
        self.host(host)
            .execute(&[
                "SET GLOBAL rpl_semi_sync_source_timeout = 4294967295",
                "SET GLOBAL rpl_semi_sync_source_wait_no_replica = ON",
                "SET GLOBAL rpl_semi_sync_source_enabled = ON",
            ])
            .await;
    }

    /// Undoes [`Cluster::wait_for_acknowledgements`]. Commits that wait return as if they had been acknowledged.
    pub(crate) async fn stop_waiting(&self, host: &str) {
        self.host(host).execute(&["SET GLOBAL rpl_semi_sync_source_enabled = OFF"]).await;
    }

    /// Semi-sync by hand, the replica's side: from the next start of its IO thread this server acknowledges what it receives.
    /// Holds until the server's next start.
    pub(crate) async fn acknowledge(&self, host: &str) {
        self.host(host).execute(&["SET GLOBAL rpl_semi_sync_replica_enabled = ON"]).await;
    }

    /// Makes `host` replicate from `source` from now on, by hand.
    pub(crate) async fn follow(&self, host: &str, source: &str) {
        let change = format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='{}', SOURCE_PORT={MYSQL_PORT}, SOURCE_USER='repl', \
             SOURCE_PASSWORD='repl-secret', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1",
            self.host(source).address
        );
        self.host(host).execute(&["STOP REPLICA", &change, "START REPLICA"]).await;
    }

    /// Waits until both replication threads of `host` run and its source is `source`.
    pub(crate) async fn wait_for_replica(&self, host: &str, source: &str) {
        let (host, address) = (self.host(host), self.host(source).address.to_string());
        wait_for(&format!("{} replicates from {source}", host.name), START, async || {
            let state = host.try_query::<(String, String, String, String)>(REPLICA_STATE).await?;
            match state.first() {
                Some((from, io, sql, _)) if *from == address && io == "ON" && sql == "ON" => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    /// The hosts that follow `primary` with both threads running.
    pub(crate) async fn replicas_of(&self, primary: &str) -> Vec<Arc<Host>> {
        let address = self.host(primary).address.to_string();
        let mut all = Vec::new();
        for host in self.hosts.iter().filter(|host| host.name != primary && host.is_running(Kind::Mysqld)) {
            let state = host.try_query::<(String, String, String, String)>(REPLICA_STATE).await.unwrap_or_default();
            if state.iter().any(|(from, io, sql, _)| *from == address && io == "ON" && sql == "ON") {
                all.push(Arc::clone(host));
            }
        }
        all
    }

    /// The host whose server takes writes; panics unless there is exactly one.
    pub(crate) async fn writable_host(&self) -> Arc<Host> {
        let mut all = Vec::new();
        for host in &self.hosts {
            if host.is_running(Kind::Mysqld) && host.is_writable().await == Ok(true) {
                all.push(Arc::clone(host));
            }
        }
        let names: Vec<&str> = all.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names.len(), 1, "exactly one server is to be writable, not {names:?}");
        all.remove(0)
    }

    /// Waits until the published topology satisfies `condition`, and returns it.
    pub(crate) async fn wait_for_topology(
        &self,
        what: &str,
        limit: Duration,
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        wait_for(&format!("topology: {what}"), limit, async || match self.tree.get("topology").await? {
            Some(topology) if condition(&topology) => Ok(topology),
            Some(topology) => Err(topology.to_string()),
            None => Err("there is no topology".into()),
        })
        .await
    }

    /// The host whose ZooKeeper member leads the ensemble.
    pub(crate) async fn zookeeper_leader(&self) -> Arc<Host> {
        wait_for("the ensemble has a leader", START, async || {
            let mut seen = Vec::new();
            for host in self.hosts.iter().filter(|host| host.is_running(Kind::Zookeeper)) {
                let answer = self.four_letters(&host.name, "srvr").await.unwrap_or_else(|error| error);
                if answer.contains("Mode: leader") {
                    return Ok(Arc::clone(host));
                }
                seen.push(answer);
            }
            Err(format!("{seen:?}"))
        })
        .await
    }

    /// The hosts whose ZooKeeper members hold a connection from `host`; needs namespaces, where addresses tell.
    pub(crate) async fn members_used_by(&self, host: &str) -> Vec<String> {
        let from = format!("/{}:", self.host(host).address);
        let mut all = Vec::new();
        for member in &self.hosts {
            let answer = self.four_letters(&member.name, "cons").await.unwrap_or_default();
            if answer.lines().any(|line| line.trim().starts_with(&from)) {
                all.push(member.name.clone());
            }
        }
        all
    }

    /// The answer of a ZooKeeper member to a four-letter command.
    pub(crate) async fn four_letters(&self, host: &str, word: &str) -> Result<String, String> {
        let address = (self.host(host).address, ZOOKEEPER_PORT);
        let exchange = async {
            let mut stream = tokio::net::TcpStream::connect(address).await?;
            stream.write_all(word.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        match tokio::time::timeout(Duration::from_secs(1), exchange).await {
            Ok(answer) => answer.map_err(|error| format!("ZooKeeper on {host}: {error}")),
            Err(_) => Err(format!("ZooKeeper on {host}: no answer to {word} within 1 s")),
        }
    }

    async fn wait_for_ensemble(&self) {
        wait_for("every ZooKeeper member serves", START, async || {
            for host in &self.hosts {
                let answer = self.four_letters(&host.name, "srvr").await?;
                if !answer.contains("Mode: ") {
                    return Err(format!("{}: {answer}", host.name));
                }
            }
            Ok(())
        })
        .await;
    }

    /// Sets replication from db1 and semi-sync up by hand; the others take no writes.
    async fn replicate(&self) {
        self.on_each(async |cluster, host| {
            if cluster.options.semi_sync {
                cluster.acknowledge(&host.name).await;
            }
            if cluster.options.replicate && host.name != "db1" {
                host.execute(&["SET GLOBAL super_read_only = ON"]).await;
                cluster.follow(&host.name, "db1").await;
                cluster.wait_for_replica(&host.name, "db1").await;
            }
        })
        .await;
        // Last, so that no commit can wait for a replica that is not there yet.
        if self.options.semi_sync && self.options.replicate {
            self.wait_for_acknowledgements("db1").await;
        }
    }

    /// Does the same on all hosts at once.
    async fn on_each(&self, action: impl AsyncFn(&Self, &Host)) {
        futures_util::future::join_all(self.hosts.iter().map(|host| action(self, host))).await;
    }
}

/// Source, state of the IO thread, state of the applier, last error of either.
const REPLICA_STATE: &str = "SELECT c.HOST, i.SERVICE_STATE, a.SERVICE_STATE, CONCAT(i.LAST_ERROR_MESSAGE, a.LAST_ERROR_MESSAGE) \
     FROM performance_schema.replication_connection_configuration c \
     JOIN performance_schema.replication_connection_status i USING (CHANNEL_NAME) \
     JOIN performance_schema.replication_applier_status_by_coordinator a USING (CHANNEL_NAME)";

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.stage.bond() == Bond::Free && !std::thread::panicking() {
            let pids: Vec<String> = self
                .hosts
                .iter()
                .flat_map(|host| Kind::ALL.map(|kind| host.is_running(kind).then(|| host.pid(kind)).flatten()))
                .flatten()
                .map(|pid| pid.to_string())
                .collect();
            for place in [self.stage.folder(), self.stage.sockets()] {
                std::fs::write(place.join(LEFT_RUNNING), pids.join(" ")).unwrap_or_default();
            }
            return;
        }
        if std::thread::panicking() {
            for host in &self.hosts {
                let tail = host.log_tail(Kind::Agent, 25);
                if !tail.is_empty() {
                    eprintln!("\n---- the end of {}\n{tail}", host.log(Kind::Agent).display());
                }
            }
        }
        for host in &self.hosts {
            host.kill_all();
        }
    }
}

/// Makes the folder, the files and the namespace of a host; starts nothing on it.
fn make_host(
    stage: &Stage,
    options: &ClusterOptions,
    cluster: u8,
    number: u8,
    ensemble: &[Ipv4Addr],
    folder: &Path,
) -> Host {
    let name = format!("db{number}");
    let address = stage.network().address(cluster, number);
    let folder = folder.join(&name);
    let socket = stage.sockets().join(format!("{cluster}-{name}.sock"));
    let write = |file: &str, text: String| {
        let path = folder.join(file);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        path.display().to_string()
    };
    for path in ["zookeeper", "state", "run"] {
        let path = folder.join(path);
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
    }
    write("zookeeper/myid", number.to_string());
    let zoo_cfg = write("zoo.cfg", options.zoo_cfg(ensemble, address, &folder));
    let agent_yaml = write("agent.yaml", options.agent_yaml(&name, ensemble, address, &folder, &socket));
    let verb = |verb: &str| (binary(), vec![verb.into(), "--config".into(), agent_yaml.clone()]);
    Host {
        launches: [
            (stage.servers("bin/zookeeper"), vec![zoo_cfg]),
            mysqld(stage, options, number, address, &folder, &socket),
            verb("run"),
            verb("guard"),
        ],
        processes: Mutex::default(),
        namespace: stage.network().add_host(stage.bond(), cluster, number),
        bond: stage.bond(),
        name,
        address,
        folder,
        socket,
    }
}

/// How mysqld is started. Read-only stands nowhere here: on the command line it would beat what the agent persists.
fn mysqld(
    stage: &Stage,
    options: &ClusterOptions,
    number: u8,
    address: Ipv4Addr,
    folder: &Path,
    socket: &Path,
) -> Launch {
    let mut arguments: Vec<String> = [
        "--log-bin=binlog",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--log-replica-updates=ON",
        "--sync-binlog=1",
        "--innodb-flush-log-at-trx-commit=1",
        // A replica must not throw away after a crash what it has acknowledged.
        "--relay-log=relay",
        "--relay-log-recovery=OFF",
        "--plugin-load-add=rpl_semi_sync_source=semisync_source.so",
        "--plugin-load-add=rpl_semi_sync_replica=semisync_replica.so",
        "--plugin-load-add=clone=mysql_clone.so",
        // Small and quick to start.
        "--innodb-buffer-pool-size=32M",
        "--innodb-redo-log-capacity=8M",
        "--mysqlx=OFF",
        "--skip-name-resolve",
    ]
    .map(String::from)
    .into();
    arguments.extend([
        format!("--datadir={}", folder.join(DATA).display()),
        format!("--socket={}", socket.display()),
        format!("--pid-file={}", folder.join("mysqld.pid").display()),
        format!("--bind-address={address}"),
        format!("--port={MYSQL_PORT}"),
        format!("--server-id={number}"),
        format!("--report-host={address}"),
    ]);
    arguments.extend(options.mysqld.iter().cloned());
    (stage.servers("bin/mysqld"), arguments)
}

/// Copies the data directory and names the server. Left to themselves, servers that make their UUIDs at the same instant on
/// one network interface make the same one (seen on 9.7), and then refuse to replicate from each other.
fn fill_data_directory(host: &Host, template: &Path) {
    let to = host.data_directory();
    let script = format!(
        "mkdir -p '{to}' && cp -a --reflink=auto --sparse=always '{from}/.' '{to}/' && \
         printf '[auto]\\nserver-uuid=%s\\n' \"$(cat /proc/sys/kernel/random/uuid)\" > '{to}/auto.cnf'",
        to = to.display(),
        from = template.display(),
    );
    host.run(&["sh", "-c", &script]);
}
