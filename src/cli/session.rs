//! A verb's short look at ZooKeeper: a session of its own that ends with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::exit::Exit;
use crate::config::Config;
use crate::core::action::{Op, Purpose, Write};
use crate::core::status::Ages;
use crate::core::time::Moment;
use crate::core::view::Ensemble;
use crate::host::clock;
use crate::host::lease_file::{self, LeaseFile, LeaseState};
use crate::zookeeper::viewer::Viewer;
use crate::zookeeper::writer::{Outcome, Writer};

/// A connected look at the cluster's tree.
pub struct Tree {
    /// Follows the tree.
    pub viewer: Viewer,
    /// Writes to it.
    pub writer: Writer,
    view: watch::Receiver<Arc<Ensemble>>,
}

/// Connects and reads everything, or says why not (exit code 3).
///
/// # Errors
/// The exit code and the text for stderr.
pub async fn open(config: &Config) -> Result<Tree, (Exit, String)> {
    let (viewer, writer) = crate::agent::run::open_tree(config, false);
    let mut view = viewer.view();
    let limit = config.zookeeper.op_timeout * 3 + Duration::from_secs(2);
    let complete = timeout(limit, view.wait_for(|ensemble| ensemble.complete)).await.is_ok_and(|found| found.is_ok());
    if !complete {
        let hosts: Vec<String> = config.zookeeper.hosts.iter().map(ToString::to_string).collect();
        let text = format!(
            "ZooKeeper cannot be reached at {} within {:.1} s: is it running, and do zookeeper.hosts and a firewall let this host in?",
            hosts.join(", "),
            limit.as_secs_f64()
        );
        return Err((Exit::ZooKeeperUnreachable, text));
    }
    Ok(Tree { viewer, writer, view })
}

/// How long this host's server may take writes from now on, by its agent's lease file: all that can be known without
/// ZooKeeper. None where it may take none.
#[must_use]
pub fn may_write_for(config: &Config) -> Option<Duration> {
    let path = LeaseFile::path_in(&config.run_dir, &config.cluster, &config.name);
    let state = lease_file::read(&path).ok().flatten().and_then(Result::ok)?;
    left(&state, &clock::boot_id().ok()?, clock::now())
}

/// A moment of another boot means nothing in this one.
fn left(state: &LeaseState, boot_id: &str, now: Moment) -> Option<Duration> {
    let until = state.until.filter(|until| state.boot_id == boot_id && *until > now)?;
    Some(until.until(now))
}

/// The same for people.
#[must_use]
pub fn in_words(left: Option<Duration>) -> String {
    match left {
        Some(left) => format!(
            "this host's server may take writes for {:.1} s more; with failover.failsafe each heartbeat that replicas acknowledge moves \
             that on",
            left.as_secs_f64()
        ),
        None => "this host's server may take no writes, by its agent's lease file".to_owned(),
    }
}

impl Tree {
    /// The tree as last seen.
    #[must_use]
    pub fn now(&self) -> Arc<Ensemble> {
        self.view.borrow().clone()
    }

    /// Waits for the next change; at rest the ages in it still grow, so a second is the longest.
    pub async fn changed(&mut self) {
        let _ = timeout(Duration::from_secs(1), self.view.changed()).await;
        self.view.mark_unchanged();
    }

    /// Waits until `found` gives something, at most `limit`.
    pub async fn wait<T>(&mut self, limit: Duration, mut found: impl FnMut(&Ensemble) -> Option<T>) -> Option<T> {
        timeout(limit, async {
            loop {
                if let Some(result) = found(&self.view.borrow_and_update()) {
                    return Some(result);
                }
                if self.view.changed().await.is_err() {
                    return None;
                }
            }
        })
        .await
        .ok()
        .flatten()
    }

    /// One write.
    pub async fn write(&self, op: Op) -> Outcome {
        self.writer.commit(&Write { purpose: Purpose::Progress, ops: vec![op] }).await
    }
}

/// How old is what hosts have written, as of now.
#[must_use]
pub fn ages(config: &Config) -> Ages {
    clock::ages(config.zookeeper.renew_interval, config.zookeeper.op_timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_of_this_boot_that_has_not_ended_lets_the_server_write() {
        let now = Moment(5_000_000_000);
        let state = |boot_id: &str, until| {
            let boot_id = boot_id.to_owned();
            LeaseState { sequence: 1, until, paused: None, pid: 1, boot_id, instance: "i".into() }
        };
        let in_two = Some(now + Duration::from_secs(2));
        assert_eq!(left(&state("b", in_two), "b", now), Some(Duration::from_secs(2)));
        for none in [state("another", in_two), state("b", Some(now)), state("b", None)] {
            assert_eq!(left(&none, "b", now), None, "{none:?}");
        }
    }
}
