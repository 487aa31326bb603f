//! The endpoints on real servers: what each host says through role changes, and that no flood of requests delays the agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::scene::{LIMIT, Scene, at_rest, epoch, lossless, nothing_happened, renewed};
use crate::support::{Cluster, ClusterOptions, Host, Kind, Said, ask, open_connection, run, wait_for};

/// A session so long that a busy machine changes no role by itself.
fn patient() -> ClusterOptions {
    lossless().set("*", "zookeeper.session_timeout", "10s").set("*", "zookeeper.op_timeout", "1200ms")
}

/// Waits until every host says what its role is to say.
async fn codes_fit(cluster: &Cluster, primary: &str) {
    for host in &cluster.hosts {
        let leads = host.name == primary;
        let expected = |yes: bool| if yes { 200 } else { 503 };
        for (target, code) in [
            ("/", expected(leads)),
            ("/primary", expected(leads)),
            ("/read-write", expected(leads)),
            ("/replica", expected(!leads)),
            ("/replica?lag=5s", expected(!leads)),
            ("/replica?tag_rack=none", 503),
            ("/replica?lag=five", 400),
            ("/read-only?lag=5s", 200),
            ("/health", 200),
            ("/liveness", 200),
            ("/readiness", 200),
            ("/status", 200),
            ("/topology", 200),
            ("/history", 200),
            ("/metrics", 200),
            ("/elsewhere", 404),
        ] {
            wait_for(&format!("{}{target} is {code}", host.name), LIMIT, async || match ask(host, target).await? {
                said if said.code == code => Ok(()),
                said => Err(format!("{said:?}")),
            })
            .await;
        }
    }
}

/// Asks every host all the while whether it takes writes.
struct Askers {
    stop: tokio::sync::watch::Sender<bool>,
    tasks: Vec<tokio::task::JoinHandle<Vec<Yes>>>,
}

/// A host has said "write here": the question was sent then, the answer was there then.
#[derive(Debug, Clone)]
struct Yes {
    host: String,
    sent: Instant,
    came: Instant,
}

impl Askers {
    fn start(cluster: &Cluster) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let asks = |host: &Arc<Host>| {
            let (host, stopped) = (host.clone(), stopped.clone());
            tokio::spawn(async move {
                let mut all = Vec::new();
                while !*stopped.borrow() {
                    let sent = Instant::now();
                    if ask(&host, "/primary").await.is_ok_and(|said| said.code == 200) {
                        all.push(Yes { host: host.name.clone(), sent, came: Instant::now() });
                    }
                    tokio::time::sleep(Duration::from_millis(25)).await;
                }
                all
            })
        };
        Self { stop, tasks: cluster.hosts.iter().map(asks).collect() }
    }

    /// All that were said, by when they came; whoever has said it once after another said it no more for the one before.
    async fn assert_one_at_a_time(self) -> Vec<String> {
        self.stop.send_replace(true);
        let mut all = Vec::new();
        for task in self.tasks {
            all.extend(task.await.expect("an asker does not panic"));
        }
        all.sort_by_key(|yes| yes.came);
        let mut order: Vec<Yes> = Vec::new();
        for yes in all {
            // A question that was on its way when the other answered may have been answered before.
            let ambiguous = order.last().is_some_and(|last| last.host != yes.host && yes.sent < last.came);
            match order.last_mut() {
                _ if ambiguous => {}
                Some(last) if last.host == yes.host => *last = yes,
                _ => order.push(yes),
            }
        }
        order.into_iter().map(|yes| yes.host).collect()
    }
}

/// Through a planned switch and a failover; the JSON is that of the verbs, and the metrics count what happened.
#[test]
fn http_follows_the_roles() {
    run("http_roles", async |stage| {
        let scene = Scene::start(&stage, patient()).await;
        let cluster = &scene.cluster;
        let askers = Askers::start(cluster);
        codes_fit(cluster, "db1").await;
        cluster.verb("db1", &["promote", "db2"]).await.expect_code(0);
        at_rest(cluster, "db2").await;
        codes_fit(cluster, "db2").await;
        assert!(metrics(cluster, "db2").await.contains("mysql_ha_switchovers_total{result=\"done\"} 1\n"));
        same_as_the_verbs(cluster, "db3").await;

        let paused = scene.writer.pause_between_writes().await;
        cluster.host("db2").kill(Kind::Mysqld);
        drop(paused);
        let primary = scene.failed_over_from("db2").await;
        wait_for("the host of the dead server says so", LIMIT, async || {
            match ask(cluster.host("db2"), "/health").await? {
                said if said.code == 503 => Ok(()),
                said => Err(format!("{said:?}")),
            }
        })
        .await;
        cluster.start_mysqld("db2").await;
        scene.returns("db2", &primary).await;
        codes_fit(cluster, &primary).await;
        let page = metrics(cluster, &primary).await;
        assert!(page.contains("mysql_ha_failovers_total{reason=\"mysql_down\"} 1\n"), "{page}");
        wait_for("the time of the failover is known", LIMIT, async || {
            let page = metrics(cluster, "db2").await;
            if page.contains("\nmysql_ha_last_failover_timestamp_seconds ") { Ok(()) } else { Err(page) }
        })
        .await;
        let order = askers.assert_one_at_a_time().await;
        assert_eq!(order, ["db1", "db2", &primary], "each said it in its time, and never again");

        // A reload ends it, and nothing else.
        cluster.host("db2").reload_with("http.listen", "off");
        wait_for("nobody listens on db2", LIMIT, async || match open_connection(cluster.host("db2")).await {
            Ok(_) => Err("it does".to_owned()),
            Err(_) => Ok(()),
        })
        .await;
        at_rest(cluster, &primary).await;
        scene.end().await;
    });
}

async fn metrics(cluster: &Cluster, host: &str) -> String {
    let said = ask(cluster.host(host), "/metrics").await.expect("the agent answers");
    assert_eq!(said.code, 200);
    said.body
}

async fn same_as_the_verbs(cluster: &Cluster, host: &str) {
    let of_host = cluster.host(host);
    let topology = ask(of_host, "/topology").await.expect("the agent answers").json();
    assert_eq!(Some(topology), cluster.tree.get("topology").await.expect("ZooKeeper answers"));
    wait_for("the history is read again", LIMIT, async || {
        let over_http = ask(of_host, "/history").await?.json();
        let of_verb = cluster.verb(host, &["history", "--json"]).await.expect_code(0).json();
        if over_http == of_verb && of_verb.as_array().is_some_and(|list| !list.is_empty()) {
            return Ok(());
        }
        Err(format!("{over_http} and {of_verb}"))
    })
    .await;
    let status = ask(of_host, "/status").await.expect("the agent answers").json();
    let of_verb = cluster.verb(host, &["status", "--json"]).await.expect_code(0).json();
    let keys = |value: &Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>());
    assert_eq!(keys(&status), keys(&of_verb));
    for key in ["cluster", "epoch", "primary", "healthy", "topology"] {
        assert_eq!(status[key], of_verb[key], "{key}");
    }
}

/// A question that reached a frozen agent is answered when it thaws, by what is true then.
#[test]
fn a_thawed_agent_offers_no_writes() {
    run("http_thawed", async |stage| {
        let scene = Scene::start(&stage, lossless()).await;
        let db1 = scene.cluster.host("db1");
        codes_fit(&scene.cluster, "db1").await;
        db1.pause(Kind::Agent);
        stands_still(db1).await;
        // The kernel takes the connections: they wait for the agent.
        let mut waiting = Vec::new();
        for _ in 0..20 {
            let mut stream = open_connection(db1).await.expect("the kernel accepts");
            stream.write_all(b"GET /primary HTTP/1.1\r\nHost: db1\r\n\r\n").await.expect("the kernel takes it");
            waiting.push(stream);
        }
        let primary = scene.failed_over_from("db1").await;
        for stream in &waiting {
            let read = stream.try_read(&mut [0; 16]);
            assert!(
                read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock),
                "answered while it stood still"
            );
        }
        db1.resume(Kind::Agent);
        for stream in waiting {
            let said = tokio::time::timeout(LIMIT, Said::read(stream)).await.expect("an answer comes");
            assert_eq!(said.expect("it is whole").code, 503, "an old snapshot offered writes");
        }
        scene.returns("db1", &primary).await;
        codes_fit(&scene.cluster, &primary).await;
        scene.end().await;
    });
}

/// SIGSTOP takes effect when the thread that got it runs next, which on a busy machine takes a while; until then the others go on.
async fn stands_still(host: &Host) {
    let pid = host.pid(Kind::Agent).expect("the agent runs");
    wait_for("every thread of the agent stands still", LIMIT, async || {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| error.to_string())?;
        for thread in threads.flatten() {
            let stat = std::fs::read_to_string(thread.path().join("stat")).map_err(|error| error.to_string())?;
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            if state != Some('T') {
                return Err(stat);
            }
        }
        Ok(())
    })
    .await;
}

/// A thousand connections, slow ones, garbage and large bodies: leases are renewed, roles stay, nobody's memory grows without
/// bound, and whoever asks in earnest is answered.
#[test]
fn a_flood_of_requests_delays_nothing() {
    run("http_flood", async |stage| {
        let scene = Scene::start(&stage, patient()).await;
        let before = epoch(&scene.cluster).await;
        let db1 = scene.cluster.host("db1").clone();
        let at_first = resident_kb(&db1);
        let mut idle = Vec::new();
        for _ in 0..1000 {
            idle.push(open_connection(&db1).await.expect("the kernel accepts"));
        }
        assert_eq!(ask(&db1, "/primary").await.expect("it answers beside a thousand").code, 200);
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let floods: Vec<_> = [
            b"GET /primary HT".to_vec(),
            b"\x16\x03\x01garbage\r\n\r\n".to_vec(),
            [b"POST /primary HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n".as_slice(), &[b'x'; 100_000]].concat(),
            [b"GET /".as_slice(), &[b'a'; 100_000]].concat(),
        ]
        .into_iter()
        .map(|bytes| tokio::spawn(flood(db1.clone(), bytes, stopped.clone())))
        .collect();
        let asked_in_earnest = tokio::spawn(in_earnest(db1.clone(), stopped.clone()));
        renewed(&scene.cluster, 40).await;
        let most = resident_kb(&db1);
        stop.send_replace(true);
        for task in floods {
            assert!(task.await.expect("a flood does not panic") > 100, "it was no flood");
        }
        let (answered, unanswered) = asked_in_earnest.await.expect("it does not panic");
        eprintln!(
            "answered {answered}, unanswered {unanswered}; resident {at_first} kB before, {most} kB in the flood"
        );
        assert!(answered > 20, "only {answered} were answered");
        assert_eq!(unanswered, 0, "the flood was heard instead of who asked in earnest");
        assert!(most < at_first + 30_000, "{most} kB resident, {at_first} before");
        drop(idle);
        nothing_happened(scene, before).await;
    });
}

fn resident_kb(host: &Host) -> u64 {
    let pid = host.pid(Kind::Agent).expect("the agent runs");
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("a process has a status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a process has a resident size");
    line.trim().trim_end_matches(" kB").parse().expect("it is a number")
}

/// Opens connections that say this and stay; at the most 200 at once. How many there were.
async fn flood(host: Arc<Host>, bytes: Vec<u8>, stopped: tokio::sync::watch::Receiver<bool>) -> usize {
    let mut open = std::collections::VecDeque::new();
    let mut count = 0;
    while !*stopped.borrow() {
        if let Ok(mut stream) = open_connection(&host).await {
            let _ = tokio::time::timeout(Duration::from_millis(100), stream.write_all(&bytes)).await;
            open.push_back(stream);
            count += 1;
        }
        if open.len() > 200 {
            open.pop_front();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    count
}

async fn in_earnest(host: Arc<Host>, stopped: tokio::sync::watch::Receiver<bool>) -> (usize, usize) {
    let (mut answered, mut unanswered) = (0, 0);
    while !*stopped.borrow() {
        match ask(&host, "/primary").await {
            Ok(Said { code: 200, .. }) => answered += 1,
            other => {
                eprintln!("{other:?}");
                unanswered += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    (answered, unanswered)
}
