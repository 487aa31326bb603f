//! From the start of a fence to "cannot acknowledge a write": never longer than `fencing.budget`, whatever holds it up. The
//! budget is a promise (the lease ends then), so that these are the few tests that measure; each prints what it took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mysql_ha_agent::mysql::connect::{Connection, Target};
use mysql_ha_agent::mysql::fault::Fault;
use mysql_ha_agent::mysql::fence::Fenced;

use crate::fence::{fence_of, hanging, server, session};
use crate::server::{LONG, Server};

/// The default.
const BUDGET: Duration = Duration::from_secs(1);

/// Fences, and checks that nothing can be acknowledged when the budget is over.
async fn fence_within_the_budget(server: &Server, what: &str) -> Instant {
    let mut fence = fence_of(server, true).await;
    let start = Instant::now();
    let report = fence.climb(BUDGET, || true).await;
    let took = start.elapsed();
    println!(
        "{what}: {:.0} ms, last rung {:?} {:?}",
        took.as_secs_f64() * 1000.0,
        report.rung.map(|rung| rung.code()),
        report.trouble
    );
    match &report.fenced {
        Fenced::ReadOnly => {
            let write =
                Connection::open(&server.root(), LONG).await.unwrap().run("INSERT INTO app.x VALUES (-1)", LONG).await;
            assert!(matches!(write, Err(Fault::ReadOnly { .. })), "{write:?}");
        }
        Fenced::Dead => {}
        // A process that has been sent SIGKILL executes nothing of its own any more, also while the kernel still frees its memory.
        Fenced::Failed(why) if why.contains("SIGKILL was sent") => {}
        other => panic!("{what}: {other:?}, {report:?}"),
    }
    assert!(report.harmless.is_some_and(|after| after <= BUDGET), "{what}: {took:?}, {report:?}");
    start
}

#[tokio::test]
async fn tables_locked_by_an_administrator() {
    let server = server().await;
    let _admin = session(&server.root(), &["LOCK TABLES app.x WRITE"]).await;
    fence_within_the_budget(&server, "LOCK TABLES").await;
}

#[tokio::test]
async fn a_global_read_lock() {
    let server = server().await;
    let _admin = session(&server.root(), &["FLUSH TABLES WITH READ LOCK"]).await;
    fence_within_the_budget(&server, "FLUSH TABLES WITH READ LOCK").await;
}

#[tokio::test]
async fn an_alter_that_runs() {
    let server = server().await;
    let rows = "INSERT INTO app.big SELECT n, REPEAT('x', 200) FROM (WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL \
                SELECT n + 1 FROM c WHERE n < 400000) SELECT n FROM c) AS numbers";
    let create = "CREATE TABLE app.big (id INT PRIMARY KEY, t VARCHAR(200))";
    server.root_runs(&[create, "SET GLOBAL cte_max_recursion_depth = 1000000"]).await;
    server.root_runs(&[rows]).await;
    let alter = "ALTER TABLE app.big ADD COLUMN c INT, ALGORITHM=COPY";
    let altering = hanging(&server, &server.root(), alter, "copy to tmp table").await;
    fence_within_the_budget(&server, "ALTER TABLE").await;
    assert!(altering.await.unwrap().is_err(), "the ALTER was done before the fence: it tested nothing");
}

#[tokio::test]
async fn a_commit_that_waits_for_its_acknowledgement() {
    let server = server().await;
    let never = ["SET GLOBAL rpl_semi_sync_source_timeout=1000000000", "SET GLOBAL rpl_semi_sync_source_enabled=ON"];
    server.root_runs(&never).await;
    let commit = hanging(&server, &server.app(), "INSERT INTO app.x VALUES (1)", "Waiting for semi-sync ACK").await;
    fence_within_the_budget(&server, "a commit without acknowledgement").await;
    assert!(commit.await.unwrap().is_err(), "an unacknowledged commit returned success");
}

/// A client that connects, writes, goes, and comes again as fast as it can; `last`: when it was told "OK" last, in ns from
/// `since`.
async fn hammer(target: Target, since: Instant, id: Arc<AtomicU64>, last: Arc<AtomicU64>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut connection) = Connection::open(&target, LONG).await else {
            // A refusal comes at once: two cores are not to be spent on it alone.
            tokio::task::yield_now().await;
            continue;
        };
        let sql = format!("INSERT INTO app.x VALUES ({})", id.fetch_add(1, Ordering::Relaxed));
        if connection.run(&sql, LONG).await.is_ok() {
            last.fetch_max(u64::try_from(since.elapsed().as_nanos()).unwrap(), Ordering::Relaxed);
        }
    }
}

/// 90 applications, and 10 administrators that `offline_mode` does not stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_clients_that_reconnect() {
    let server = server().await;
    let since = Instant::now();
    let (id, last, stop) = (Arc::new(AtomicU64::new(1)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..100)
        .map(|client| {
            let target = if client < 90 { server.app() } else { server.root() };
            tokio::spawn(hammer(target, since, id.clone(), last.clone(), stop.clone()))
        })
        .collect();
    server.until("(SELECT COUNT(*) FROM app.x) > 500").await;
    let start = fence_within_the_budget(&server, "100 clients that reconnect").await;
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let acknowledged = since + Duration::from_nanos(last.load(Ordering::Relaxed));
    println!(
        "  last write acknowledged {:.0} ms after the start",
        acknowledged.saturating_duration_since(start).as_secs_f64() * 1000.0
    );
    assert!(acknowledged <= start + BUDGET);
}
