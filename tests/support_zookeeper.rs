//! A real ZooKeeper for the tests of `src/zookeeper`: one member, on a free loopback port, data in a temporary
//! directory, gone with the value.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use mysql_ha_agent::core::action::{Op, Path, Purpose, Record, Write};
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{AgentRecord, Durability, DurabilityMode, Lease, Master, Role, Topology};
use mysql_ha_agent::core::time::{Moment, Wall};
use mysql_ha_agent::core::view::Ensemble;
use mysql_ha_agent::zookeeper::lease_keeper::LeaseKeeper;
use mysql_ha_agent::zookeeper::name::Name;
use mysql_ha_agent::zookeeper::session::{Auth, Link, Options};
use mysql_ha_agent::zookeeper::tree::Tree;
use mysql_ha_agent::zookeeper::viewer::Viewer;
use mysql_ha_agent::zookeeper::writer::Writer;
use tokio::sync::{Mutex, MutexGuard, watch};
use tokio::time::timeout;

/// A limit for what must happen at some time; nothing is concluded from how long it took.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One server at a time: the machines that run the tests have few cores.
static TURN: Mutex<()> = Mutex::const_new(());

pub(crate) struct Server {
    java: Option<Child>,
    directory: tempfile::TempDir,
    pub(crate) port: u16,
    _turn: MutexGuard<'static, ()>,
}

impl Server {
    pub(crate) async fn start() -> Server {
        let turn = TURN.lock().await;
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let config = format!(
            "tickTime=100\nminSessionTimeout=200\nmaxSessionTimeout=60000\ndataDir={}\nclientPort={port}\n\
             clientPortAddress=127.0.0.1\nadmin.enableServer=false\n",
            data.display()
        );
        std::fs::write(directory.path().join("zoo.cfg"), config).unwrap();
        let mut server = Server { java: None, directory, port, _turn: turn };
        server.up();
        server
    }

    pub(crate) fn up(&mut self) {
        let java = Command::new("java")
            .args(["-Xmx96m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/*"])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.directory.path().join("zoo.cfg"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("java and ZooKeeper must be installed (Debian's package zookeeper)");
        self.java = Some(java);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut java) = self.java.take() {
            let _ = java.kill();
            let _ = java.wait();
        }
    }

    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.java.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            hosts: vec![format!("127.0.0.1:{}", self.port)],
            session_timeout: Duration::from_secs(20),
            op_timeout: Duration::from_secs(1),
            auth: None,
            leave_behind: true,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A way to a server that can be shut: what goes through it is cut then, and nobody is let in.
pub(crate) struct Gate {
    pub(crate) port: u16,
    shut: watch::Sender<bool>,
}

impl Gate {
    pub(crate) async fn to(server: u16) -> Gate {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (shut, is_shut) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut is_shut = is_shut.clone();
                tokio::spawn(async move {
                    let through = async {
                        let mut server = tokio::net::TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    };
                    tokio::select! {
                        biased;
                        _ = is_shut.wait_for(|shut| *shut) => {}
                        () = through => {}
                    }
                });
            }
        });
        Gate { port, shut }
    }

    pub(crate) fn shut(&self) {
        self.shut.send_replace(true);
    }

    pub(crate) fn open(&self) {
        self.shut.send_replace(false);
    }
}

pub(crate) fn clock() -> Moment {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Moment(0) + Duration::from_secs(1000) + START.elapsed()
}

/// What an agent has of this module.
pub(crate) struct Agent {
    pub(crate) name: String,
    pub(crate) writer: Writer,
    pub(crate) viewer: Viewer,
    pub(crate) own: Arc<Name>,
    pub(crate) keeper: LeaseKeeper,
    pub(crate) view: watch::Receiver<Arc<Ensemble>>,
}

impl Agent {
    /// Connected, with a complete view, the directories made; the name is not taken yet.
    pub(crate) async fn new(options: Options, name: &str) -> Agent {
        let tree = Tree::new("/mysql-ha", "orders");
        let link = Link::open(options, clock);
        link.connected(PATIENCE).await.unwrap();
        let writer = Writer::new(&link, tree.clone());
        let viewer = Viewer::start(&link, tree, clock);
        let own = Arc::new(Name::new(writer.clone(), name.to_owned(), clock));
        let keeper = LeaseKeeper::new(writer.clone(), own.clone(), name.to_owned(), "first".to_owned(), clock);
        let view = viewer.view();
        let mut agent = Agent { name: name.to_owned(), writer, viewer, own, keeper, view };
        agent.until(|view| view.complete).await;
        agent
    }

    pub(crate) async fn ready(server: &Server, name: &str) -> Agent {
        let mut agent = Agent::new(server.options(), name).await;
        agent.writer.prepare().await.unwrap();
        agent.own.claim(&record(name, "first"), false, &mut agent.view).await.unwrap();
        agent
    }

    /// Waits until the view is so.
    pub(crate) async fn until(&mut self, mut is_so: impl FnMut(&Arc<Ensemble>) -> bool) -> Arc<Ensemble> {
        let seen = timeout(PATIENCE, self.view.wait_for(|view| is_so(view))).await.map(|view| view.unwrap().clone());
        seen.unwrap_or_else(|_| panic!("{} still sees {:#?}", self.name, self.now()))
    }

    pub(crate) fn now(&self) -> Arc<Ensemble> {
        self.view.borrow().clone()
    }

    /// Everything written so far by anybody, in the view.
    pub(crate) async fn look(&self) -> Arc<Ensemble> {
        self.viewer.refresh_all().await.unwrap();
        self.now()
    }

    pub(crate) fn record(&self) -> AgentRecord {
        record(&self.name, "first")
    }
}

pub(crate) fn write(purpose: Purpose, ops: Vec<Op>) -> Write {
    Write { purpose, ops }
}

pub(crate) fn topology(epoch: u64) -> Record {
    Record::Topology(Box::new(Topology {
        format: Topology::FORMAT,
        cluster: "orders".into(),
        epoch,
        primary: None,
        since: Wall("2026-11-30T10:00:00.123Z".into()),
        reason: Reason::Adopted,
        members: Default::default(),
        last_writer: None,
        durability: Durability {
            mode: DurabilityMode::Async,
            degraded: false,
            sync: vec![],
            sync_replicas: 1,
            retiring: vec![],
            accounts: Default::default(),
            shut_out: Default::default(),
            floor: GtidSet::new(),
            incarnations: Default::default(),
        },
        handover: None,
        forced: None,
        kept_since: None,
        lost: GtidSet::new(),
    }))
}

pub(crate) fn master(name: &str, epoch: u64) -> Record {
    Record::Master(Master {
        name: name.into(),
        epoch,
        address: format!("{name}:3306"),
        server_uuid: "7c2c3a1e-0000-4000-8000-000000000001".into(),
        boot_id: "boot".into(),
        instance: "first".into(),
    })
}

pub(crate) fn lease(name: &str, epoch: u64, sequence: u64) -> Lease {
    Lease {
        name: name.into(),
        epoch,
        sequence,
        ttl_ms: 20_000,
        proof_ms: 0,
        opened: false,
        watermark: GtidSet::new(),
        released: false,
        paused: None,
        sent: None,
    }
}

pub(crate) fn record(name: &str, instance: &str) -> AgentRecord {
    AgentRecord {
        name: name.into(),
        address: format!("{name}:3306"),
        home: None,
        boot_id: "boot".into(),
        instance: instance.into(),
        agent_version: "0".into(),
        at: Wall::default(),
        zone: None,
        priority: 100,
        mode: Default::default(),
        proposes: None,
        replication_user: None,
        fenced_by_hand: false,
        tags: Default::default(),
        role: Role::Unknown,
        row: String::new(),
        reason: Reason::Starting,
        detail: String::new(),
        guard: None,
        server: None,
    }
}

/// The first claim of a cluster.
pub(crate) fn adopt(name: &str) -> Write {
    write(
        Purpose::Adopt,
        vec![
            Op::Create(Path::Topology, topology(1)),
            Op::Create(Path::Master, master(name, 1)),
            Op::Create(Path::Lease, Record::Lease(lease(name, 1, 1))),
        ],
    )
}

/// `name` claims `epoch` on what it sees: the versions are those of its view.
pub(crate) fn claim(name: &str, epoch: u64, seen: &Ensemble) -> Write {
    write(
        Purpose::Claim,
        vec![
            Op::Set(Path::Topology, topology(epoch), seen.topology.here().unwrap().version),
            Op::Create(Path::Master, master(name, epoch)),
            Op::Set(Path::Lease, Record::Lease(lease(name, epoch, 1)), seen.lease.here().unwrap().version),
        ],
    )
}

pub(crate) fn auth() -> Auth {
    Auth { user: "ha".into(), password: "secret".into(), readers: mysql_ha_agent::zookeeper::session::Readers::World }
}
