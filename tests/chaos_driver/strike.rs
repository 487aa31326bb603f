//! Carries a fault out, and takes it back.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rustix::process::Signal;

use super::plan::{Fault, Place, What};
use crate::support::{Cluster, Host, Kind, Span, Way};

/// How long after a thaw a host may still take writes (contract, promise 1).
const THAWED: Duration = Duration::from_secs(1);
/// Between the end of a service and its next start.
const RESTART: Duration = Duration::from_millis(500);

/// What the faults of a round share: what is held down, and what is forgiven.
#[derive(Default)]
pub(crate) struct Struck {
    /// Processes that nothing may start, and how many faults want it so.
    down: Mutex<BTreeMap<(String, usize), u32>>,
    /// The cuts that are in force. One that ends takes all of its host's with it, so the rest is
    /// made anew.
    cuts: Mutex<Vec<Cut>>,
    /// Where and when a server may seem writable beside another, and why.
    forgiven: Mutex<Vec<(String, Span, Why)>>,
    /// How the planned switches ended, by exit code.
    pub(crate) switches: Mutex<Vec<i32>>,
}

/// A cut: host, what, and the other end.
type Cut = (String, What, String);

/// Why two writable servers are no broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// A host that stood still has a second to fence itself.
    Thawed,
    /// Its agent was gone, and no guard stood by: what the guard is for.
    NoGuard,
}

fn open<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Struck {
    fn hold(&self, host: &Host, kind: Kind) {
        *open(&self.down).entry((host.name.clone(), kind as usize)).or_default() += 1;
    }

    fn release(&self, host: &Host, kind: Kind) {
        if let Some(count) = open(&self.down).get_mut(&(host.name.clone(), kind as usize)) {
            *count = count.saturating_sub(1);
        }
    }

    fn is_held(&self, host: &Host, kind: Kind) -> bool {
        open(&self.down).get(&(host.name.clone(), kind as usize)).is_some_and(|count| *count > 0)
    }

    fn forgive(&self, host: &Host, from: Instant, to: Instant, why: Why) {
        open(&self.forgiven).push((host.name.clone(), Span { from, to }, why));
    }

    /// Does something while the host's agent is stopped.
    pub(crate) async fn without_agent<T>(&self, host: &Host, work: impl Future<Output = T>) -> T {
        self.hold(host, Kind::Agent);
        host.kill(Kind::Agent);
        let done = work.await;
        self.release(host, Kind::Agent);
        done
    }

    /// What is forgiven in this round.
    pub(crate) fn take_forgiven(&self) -> Vec<(String, Span, Why)> {
        std::mem::take(&mut open(&self.forgiven))
    }
}

/// systemd on every host: starts again what has ended and is not held down. Never ends.
pub(crate) async fn supervise(cluster: &Cluster, struck: &Struck) {
    let mut ended: BTreeMap<(String, usize), Instant> = BTreeMap::new();
    loop {
        for host in &cluster.hosts {
            for kind in Kind::ALL.into_iter().filter(|kind| host.was_started(*kind)) {
                let key = (host.name.clone(), kind as usize);
                if host.is_running(kind) || struck.is_held(host, kind) {
                    ended.remove(&key);
                } else if ended.entry(key).or_insert_with(Instant::now).elapsed() >= RESTART {
                    host.start_if_ended(kind);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A fault at its place.
pub(crate) struct Strike<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) struck: &'a Struck,
    pub(crate) host: &'a Arc<Host>,
    pub(crate) fault: &'a Fault,
}

/// The host that a fault strikes now.
pub(crate) async fn host_of(cluster: &Cluster, place: Place) -> &Arc<Host> {
    let name = match place {
        Place::Host(number) => format!("db{number}"),
        Place::Primary => {
            let topology = cluster.tree.get("topology").await.ok().flatten().unwrap_or_default();
            let name = topology["primary"].as_str().or(topology["last_writer"].as_str());
            name.unwrap_or("db1").to_owned()
        }
    };
    cluster.host(&name)
}

impl Strike<'_> {
    /// Does it, waits for its length, and takes it back.
    pub(crate) async fn run(&self) {
        let length = self.fault.length;
        match self.fault.what {
            What::Kill(kind) => self.down(&[kind], Signal::KILL).await,
            What::Stop(kind) => self.down(&[kind], Signal::TERM).await,
            What::KillHost => {
                let cut = self.cut(What::CutHost);
                self.down(&Kind::ALL, Signal::KILL).await;
                self.end(&cut);
            }
            What::Freeze(kind) => self.freeze(&[kind], None).await,
            What::FreezeHost => {
                let cut = self.cut(What::CutHost);
                self.freeze(&Kind::ALL, Some(&cut)).await;
            }
            What::FreezeEnsemble => {
                let signal = |signal| {
                    self.cluster.hosts.iter().for_each(|host| host.signal_if_running(Kind::Zookeeper, signal));
                };
                signal(Signal::STOP);
                tokio::time::sleep(length).await;
                signal(Signal::CONT);
            }
            What::ReadLock => self.lock("FLUSH TABLES WITH READ LOCK").await,
            What::InstanceLock => self.lock("LOCK INSTANCE FOR BACKUP").await,
            What::KillConnections => self.kill_connections().await,
            What::Promote => self.promote().await,
            What::CutHost
            | What::CutZookeeper
            | What::CutZookeeperOneWay(_)
            | What::CutMysql
            | What::CutMysqlOneWay(_)
            | What::CutMysqlAll => {
                let cut = self.cut(self.fault.what);
                tokio::time::sleep(length).await;
                self.end(&cut);
            }
        }
    }

    /// Ends processes and keeps them down; whoever supervises starts them again afterwards.
    async fn down(&self, kinds: &[Kind], signal: Signal) {
        let from = Instant::now();
        for kind in kinds {
            self.struck.hold(self.host, *kind);
            self.host.signal_if_running(*kind, signal);
        }
        tokio::time::sleep(self.fault.length).await;
        for kind in kinds {
            self.struck.release(self.host, *kind);
        }
        if kinds.contains(&Kind::Agent) {
            self.without_guard(from);
        }
    }

    async fn freeze(&self, kinds: &[Kind], cut: Option<&Cut>) {
        let from = Instant::now();
        let signal = |signal| kinds.iter().for_each(|kind| self.host.signal_if_running(*kind, signal));
        signal(Signal::STOP);
        tokio::time::sleep(self.fault.length).await;
        let thawed = Instant::now();
        if let Some(cut) = cut {
            // The cable first, as in `Cluster::thaw_host`.
            self.end(cut);
            self.struck.forgive(self.host, thawed, thawed + THAWED, Why::Thawed);
        }
        signal(Signal::CONT);
        if kinds == [Kind::Agent] {
            self.without_guard(from);
        }
    }

    /// Until a second after its agent may have been back.
    fn without_guard(&self, from: Instant) {
        if !self.host.was_started(Kind::Guard) {
            self.struck.forgive(self.host, from, Instant::now() + RESTART + THAWED, Why::NoGuard);
        }
    }

    fn cut(&self, what: What) -> Cut {
        let cut = (self.host.name.clone(), what, self.peer());
        open(&self.struck.cuts).push(cut.clone());
        self.make(&cut);
        cut
    }

    fn make(&self, (name, what, peer): &Cut) {
        match what {
            What::CutHost => self.cluster.cut_host(name),
            What::CutZookeeper => self.cluster.cut_zookeeper(name),
            What::CutZookeeperOneWay(way) => self.cluster.cut_zookeeper_one_way(name, *way),
            What::CutMysqlOneWay(way) => self.cluster.cut_mysql(name, peer, &[*way]),
            What::CutMysql => self.cluster.cut_mysql(name, peer, &Way::BOTH),
            _ => {
                for other in self.cluster.hosts.iter().filter(|other| other.name != *name) {
                    self.cluster.cut_mysql(name, &other.name, &Way::BOTH);
                }
            }
        }
    }

    fn end(&self, cut: &Cut) {
        let mut cuts = open(&self.struck.cuts);
        if let Some(at) = cuts.iter().position(|other| other == cut) {
            cuts.remove(at);
        }
        self.cluster.heal(&cut.0);
        cuts.iter().filter(|other| other.0 == cut.0).for_each(|other| self.make(other));
    }

    /// The other end of a partial partition.
    fn peer(&self) -> String {
        let hosts = &self.cluster.hosts;
        let own = hosts.iter().position(|host| host.name == self.host.name).unwrap_or_default();
        hosts[(own + usize::from(self.fault.peer)) % hosts.len()].name.clone()
    }

    /// Holds a lock, where the server lets us.
    async fn lock(&self, statement: &str) {
        let Ok(mut conn) = self.host.connect(false).await else { return };
        let lock = async {
            let _ = conn.query_drop(statement).await;
            // The lock lasts as long as its connection.
            std::future::pending::<()>().await;
        };
        let _ = tokio::time::timeout(self.fault.length, lock).await;
    }

    async fn kill_connections(&self) {
        let until = Instant::now() + self.fault.length;
        while Instant::now() < until {
            let theirs = "SELECT ID FROM performance_schema.processlist WHERE USER = 'agent'";
            let kill = async {
                let mut conn: Conn = self.host.connect(false).await.ok()?;
                for id in conn.query::<u64, _>(theirs).await.ok()? {
                    let _ = conn.query_drop(format!("KILL {id}")).await;
                }
                conn.disconnect().await.ok()
            };
            let _ = tokio::time::timeout(Duration::from_secs(1), kill).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }

    async fn promote(&self) {
        let end = self.cluster.verb(&self.host.name, &["promote", "--timeout", "5s"]).await;
        // 2 is a fault of ours: the command line is right, and so is the file.
        assert_ne!(end.code, 2, "promote: {end:?}");
        open(&self.struck.switches).push(end.code);
    }
}
