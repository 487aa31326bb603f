//! Waiting for conditions, and the check that nothing acknowledged was lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::host::Host;
use super::writer::Written;

/// Waits until `condition` gives a value, asking again and again; panics with what it said last when `limit` passes. The
/// limit says when a test gives up, not how fast something has to be.
pub(crate) async fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let since = Instant::now();
    loop {
        match condition().await {
            Ok(value) => return value,
            Err(seen) => assert!(since.elapsed() < limit, "waited {limit:?} in vain until: {what}. Seen last: {seen}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Panics when a write that was acknowledged to the client is not on the server that now takes writes, or does not arrive on
/// one that follows it.
pub(crate) async fn assert_nothing_lost(cluster: &Cluster, written: &Written) {
    let acknowledged = written.acknowledged_ids();
    let primary = cluster.writable_host().await;
    let missing = missing(&primary, &acknowledged).await.unwrap_or_else(|failure| panic!("{failure}"));
    assert!(
        missing.is_empty(),
        "{} of {} acknowledged writes are not on the primary {}: {:?}",
        missing.len(),
        acknowledged.len(),
        primary.name,
        written.describe(&missing)
    );
    for replica in cluster.replicas_of(&primary.name).await {
        let what = format!("every acknowledged write is on the replica {}", replica.name);
        wait_for(&what, Duration::from_secs(30), async || {
            let missing = self::missing(&replica, &acknowledged).await?;
            if missing.is_empty() { Ok(()) } else { Err(format!("{} are missing", missing.len())) }
        })
        .await;
    }
}

/// Waits until the agent of the primary has committed its next heartbeat: the one after that is half a second away. A
/// commit that waits for its acknowledgement when its server dies may come back as a transaction of that server's own.
pub(crate) async fn next_heartbeat(host: &Host) {
    const SEQUENCE: &str = "SELECT MAX(sequence) FROM mysql_ha.heartbeat WHERE server_uuid = @@server_uuid";
    let before: Option<u64> = host.value(SEQUENCE).await;
    wait_for(&format!("a heartbeat is committed on {}", host.name), Duration::from_secs(30), async || {
        match host.try_query::<(Option<u64>,)>(SEQUENCE).await?.first() {
            Some((now,)) if *now > before => Ok(()),
            _ => Err(format!("still {before:?}")),
        }
    })
    .await;
}

/// Which of the ids the server does not have.
pub(crate) async fn missing(host: &Host, ids: &BTreeSet<u64>) -> Result<BTreeSet<u64>, String> {
    let present: BTreeSet<u64> =
        host.try_query::<(u64,)>("SELECT id FROM app.t").await?.into_iter().map(|row| row.0).collect();
    Ok(ids.difference(&present).copied().collect())
}
