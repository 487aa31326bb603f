//! A real HAProxy with the packaged configuration, real servers, and clients that know nothing but its two ports.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mysql_async::prelude::Queryable;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::scene::{LIMIT, Scene, at_rest, cannot, lossless};
use crate::support::{Balancer, Cluster, ClusterOptions, Kind, Span, missing, run, wait_for};

/// Beyond all ids of the scene's own writer.
const FIRST_ID: u64 = 1 << 40;
/// How long a client waits for an answer before it gives its connection up.
const PATIENCE: Duration = Duration::from_secs(10);

/// An answer that a client got: from whom and when.
#[derive(Debug, Clone, Copy)]
struct Answer {
    /// `@@server_id`: the host's number.
    server: u32,
    at: Instant,
}

/// By the id of the row, or the number of the question.
type Answers = Arc<Mutex<BTreeMap<u64, Answer>>>;

fn locked(answers: &Answers) -> MutexGuard<'_, BTreeMap<u64, Answer>> {
    answers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two clients of the balancer: one writes one row after another over a connection that it keeps as long as it works, one
/// reads over a new connection each time.
struct Clients {
    written: Answers,
    read: Answers,
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

impl Clients {
    fn start(balancer: &Arc<Balancer>) -> Self {
        let (stop, stopped) = watch::channel(false);
        let (written, read) = (Answers::default(), Answers::default());
        let tasks = [
            tokio::spawn(write(balancer.clone(), written.clone(), stopped.clone())),
            tokio::spawn(read_on(balancer.clone(), read.clone(), stopped)),
        ];
        Self { written, read, stop, tasks }
    }

    fn newest(answers: &Answers, count: usize) -> Vec<Answer> {
        locked(answers).values().rev().take(count).copied().collect()
    }

    /// Waits until the last 20 writes were all taken by the host of that name.
    async fn write_to(&self, host: &str) {
        wait_for(&format!("writes go to {host}"), LIMIT, async || {
            let newest = Self::newest(&self.written, 20);
            if newest.len() == 20 && newest.iter().all(|answer| answer.server == number(host)) {
                return Ok(());
            }
            Err(format!("{newest:?}"))
        })
        .await;
    }

    /// Waits until the last 40 reads were answered by these hosts alone, and by each of them.
    async fn read_from(&self, hosts: &[&str]) {
        wait_for(&format!("reads are answered by {hosts:?}"), LIMIT, async || {
            let newest = Self::newest(&self.read, 40);
            let by = |host: &&&str| newest.iter().filter(|answer| answer.server == number(host)).count();
            let counts: Vec<usize> = hosts.iter().map(|host| by(&host)).collect();
            if counts.iter().all(|count| *count > 0) && counts.iter().sum::<usize>() == 40 {
                return Ok(());
            }
            Err(format!("{counts:?} of {}", newest.len()))
        })
        .await;
    }

    /// The time from the last write that `old` took to the first of `new`, the answers between `since` and now. Panics where `old`
    /// took one after `new` had.
    fn gap(&self, since: Instant, old: &str, new: &str) -> Duration {
        let answers = locked(&self.written);
        let times = |host: &str| -> Vec<Instant> {
            answers.values().filter(|answer| answer.server == number(host)).map(|answer| answer.at).collect()
        };
        let first = times(new).into_iter().filter(|at| *at > since).min().expect("the new primary has taken a write");
        let last = times(old).into_iter().max().expect("the old primary has taken writes");
        assert!(last < first, "{old} took a write {:?} after {new} had", last - first);
        first - last
    }

    async fn stop(self) -> Vec<u64> {
        self.stop.send_replace(true);
        for task in self.tasks {
            task.await.expect("a client does not panic");
        }
        locked(&self.written).keys().copied().collect()
    }
}

fn number(host: &str) -> u32 {
    host.trim_start_matches("db").parse().expect("hosts are numbered")
}

/// `None` where no answer came in time, or an error.
async fn soon<T>(answer: impl Future<Output = mysql_async::Result<T>>) -> Option<T> {
    tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
}

async fn write(balancer: Arc<Balancer>, written: Answers, stopped: watch::Receiver<bool>) {
    let mut id = FIRST_ID;
    while !*stopped.borrow() {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let Ok(mut conn) = balancer.for_writes().await else { continue };
        let Some(Some(server)) = soon(conn.query_first::<u32, _>("SELECT @@server_id")).await else { continue };
        while !*stopped.borrow() {
            id += 1;
            if soon(conn.query_drop(format!("INSERT INTO app.t (id) VALUES ({id})"))).await.is_none() {
                break;
            }
            locked(&written).insert(id, Answer { server, at: Instant::now() });
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn read_on(balancer: Arc<Balancer>, read: Answers, stopped: watch::Receiver<bool>) {
    let mut count = 0;
    while !*stopped.borrow() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let Ok(mut conn) = balancer.for_reads().await else { continue };
        if let Some(Some(server)) = soon(conn.query_first::<u32, _>("SELECT @@server_id")).await {
            count += 1;
            locked(&read).insert(count, Answer { server, at: Instant::now() });
        }
        let _ = conn.disconnect().await;
    }
}

fn others<'a>(cluster: &'a Cluster, primary: &str) -> Vec<&'a str> {
    cluster.hosts.iter().map(|host| host.name.as_str()).filter(|name| *name != primary).collect()
}

/// The times that hold where a file names none: what an operator of the packaged configuration has.
fn as_shipped() -> ClusterOptions {
    [
        ("zookeeper.session_timeout", "10s"),
        ("zookeeper.renew_interval", "1s"),
        ("zookeeper.op_timeout", "1200ms"),
        ("fencing.budget", "1s"),
        ("heartbeat.interval", "1s"),
        ("heartbeat.timeout", "1s"),
    ]
    .into_iter()
    .fold(lossless(), |options, (key, value)| options.set("*", key, value))
}

/// mysqld killed, host frozen and thawed, planned switch: writes land on the new primary only and none that was acknowledged is
/// lost; reads are answered by replicas, and by none that lags.
#[test]
fn haproxy_leads_writes_to_the_primary_and_reads_to_replicas() {
    run("haproxy", async |stage| {
        if cannot(&stage) {
            return;
        }
        let mut scene = Scene::start(&stage, as_shipped()).await;
        let balancer = Arc::new(Balancer::start(&scene.cluster).await);
        let clients = Clients::start(&balancer);
        clients.write_to("db1").await;
        clients.read_from(&["db2", "db3"]).await;

        // mysqld of the primary is killed.
        let since = Instant::now();
        scene.cluster.host("db1").kill(Kind::Mysqld);
        let second = scene.failed_over_from("db1").await;
        clients.write_to(&second).await;
        eprintln!("mysqld killed: gap {:?}", clients.gap(since, "db1", &second));
        scene.cluster.start_mysqld("db1").await;
        scene.returns("db1", &second).await;

        // The primary's host stands still, and goes on once another has its role.
        let since = Instant::now();
        scene.cluster.freeze_host(&second);
        let third = scene.failed_over_from(&second).await;
        clients.write_to(&third).await;
        let thawed = Instant::now();
        scene.cluster.thaw_host(&second);
        scene.forgive(&second, Span { from: thawed, to: thawed + Duration::from_secs(1) });
        scene.returns(&second, &third).await;
        eprintln!("host frozen: gap {:?}", clients.gap(since, &second, &third));
        // Both have caught up: a planned switch waits for its target.
        clients.read_from(&others(&scene.cluster, &third)).await;

        let target = others(&scene.cluster, &third)[0].to_owned();
        let since = Instant::now();
        scene.cluster.verb(&third, &["promote", &target]).await.expect_code(0);
        clients.write_to(&target).await;
        at_rest(&scene.cluster, &target).await;
        eprintln!("planned switch: gap {:?}", clients.gap(since, &third, &target));
        clients.read_from(&others(&scene.cluster, &target)).await;

        // One replica applies nothing more: it lags, and is read from no more, until it has caught up.
        let replicas = others(&scene.cluster, &target);
        let (lagging, other) = (replicas[0], replicas[1]);
        scene.cluster.host(lagging).execute(&["STOP REPLICA SQL_THREAD"]).await;
        clients.read_from(&[other]).await;
        scene.cluster.host(lagging).execute(&["START REPLICA SQL_THREAD"]).await;
        clients.read_from(&replicas).await;

        let acknowledged = clients.stop().await.into_iter().collect();
        let lost = missing(scene.cluster.host(&target), &acknowledged).await.expect("the primary answers");
        assert!(lost.is_empty(), "{} of {} acknowledged writes are lost: {lost:?}", lost.len(), acknowledged.len());
        scene.end().await;
    });
}
