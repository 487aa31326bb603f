//! An ensemble that stands still although all its members are up and follow a leader.
//!
//! ZooKeeper 3.8 can end up so when its leader was cut off for less than it takes to step down: the followers connect to it anew, the
//! acknowledgement of a proposal that it had outstanding counts as that of their joining (see ZOOKEEPER-4685), and from then on
//! nothing is committed any more. Sessions live, reads are answered, no write is. It is nothing that an agent could mend: an
//! operator restarts the leader, and so does the chaos. How often is among the figures.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, Host};

/// Several session timeouts: with agents that renew leases or ask for sessions something is committed all the time.
const STILL: Duration = Duration::from_secs(10);

/// The leader, where nothing has been committed for a while.
pub(crate) async fn stands_still(cluster: &Cluster) -> Option<Arc<Host>> {
    let (leader, before) = last_applied(cluster).await?;
    tokio::time::sleep(STILL).await;
    let (same, after) = last_applied(cluster).await?;
    (leader.name == same.name && before == after).then_some(leader)
}

/// The leader and the last transaction that it has applied, where every member serves.
async fn last_applied(cluster: &Cluster) -> Option<(Arc<Host>, String)> {
    let mut found = None;
    for host in &cluster.hosts {
        let answer = cluster.four_letters(&host.name, "srvr").await.ok()?;
        let of = |what: &str| answer.lines().find_map(|line| line.strip_prefix(what)).map(str::to_owned);
        if of("Mode: ")? == "leader" {
            found = Some((Arc::clone(host), of("Zxid: ")?));
        }
    }
    found
}
