//! A verb's short look at ZooKeeper: a session of its own that ends with it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::exit::Exit;
use crate::config::Config;
use crate::core::action::{Op, Purpose, Write};
use crate::core::view::Ensemble;
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
