//! The lists that people read and nobody decides by: `history` and `incidents`. Both are bounded.

use tracing::warn;
use zookeeper_client::Error;

use super::session::{CallError, Live};
use super::tree::{HISTORY, INCIDENTS, Tree, decode};
use super::writer::Writer;
use crate::core::records::{HistoryRecord, Incident};

/// How many role changes are kept.
pub const KEPT_HISTORY: usize = 500;

/// How many incidents are kept.
pub const KEPT_INCIDENTS: usize = 200;

/// At the most so many nodes go in one call of [`Writer::prune`]: a flood of incidents must not become one of
/// deletions.
const PRUNED_AT_ONCE: usize = 100;

impl Writer {
    /// Removes the oldest incidents and role changes beyond [`KEPT_INCIDENTS`] and [`KEPT_HISTORY`], some at a time,
    /// and returns how many. Any number of agents may do so at the same time.
    ///
    /// # Errors
    /// In words. Nothing depends on it; the next call goes on.
    pub async fn prune(&self) -> Result<usize, String> {
        let live = self.link.live()?;
        let mut removed = 0;
        for (directory, kept) in [(INCIDENTS, KEPT_INCIDENTS), (HISTORY, KEPT_HISTORY)] {
            let names = listed(&live, &self.tree, directory).await?;
            let excess = names.len().saturating_sub(kept).min(PRUNED_AT_ONCE);
            let deletions: Vec<_> =
                names[..excess].iter().map(|(_, node)| (node, live.client.delete(node, None))).collect();
            for (node, deletion) in deletions {
                match live.limited(deletion).await {
                    Ok(()) => removed += 1,
                    // Another agent was faster.
                    Err(CallError::Zookeeper(Error::NoNode)) => {}
                    Err(error) => return Err(format!("removing {node}: {error}")),
                }
            }
        }
        Ok(removed)
    }

    /// The newest `count` role changes, oldest first. Records that cannot be read are left out and logged.
    ///
    /// # Errors
    /// ZooKeeper could not be read; in words.
    pub async fn history(&self, count: usize) -> Result<Vec<HistoryRecord>, String> {
        self.newest(HISTORY, count).await
    }

    /// The newest `count` incidents, oldest first. Records that cannot be read are left out and logged.
    ///
    /// # Errors
    /// ZooKeeper could not be read; in words.
    pub async fn incidents(&self, count: usize) -> Result<Vec<Incident>, String> {
        self.newest(INCIDENTS, count).await
    }

    async fn newest<T: serde::de::DeserializeOwned>(&self, directory: &str, count: usize) -> Result<Vec<T>, String> {
        let live = self.link.live()?;
        let names = listed(&live, &self.tree, directory).await?;
        let newest = &names[names.len().saturating_sub(count)..];
        let readings: Vec<_> = newest.iter().map(|(_, node)| (node, live.client.get_data(node))).collect();
        let mut records = Vec::with_capacity(readings.len());
        for (node, reading) in readings {
            match live.limited(reading).await {
                Ok((bytes, _)) => match decode(&bytes) {
                    Ok(record) => records.push(record),
                    Err(why) => warn!(node, why, "left out"),
                },
                // Removed since it was listed.
                Err(CallError::Zookeeper(Error::NoNode)) => {}
                Err(error) => return Err(format!("reading {node}: {error}")),
            }
        }
        Ok(records)
    }
}

/// The numbered nodes in `directory` with their paths, oldest first. By number, not by name: epochs are not padded.
async fn listed(live: &Live, tree: &Tree, directory: &str) -> Result<Vec<(u64, String)>, String> {
    let parent = tree.directory(directory);
    let names = match live.limited(live.client.get_children(&parent)).await {
        Ok((names, _)) => names,
        Err(CallError::Zookeeper(Error::NoNode)) => Vec::new(),
        Err(error) => return Err(format!("listing {parent}: {error}")),
    };
    let numbered = |name: &String| {
        let number = name.rsplit('-').next()?.parse().ok()?;
        Some((number, format!("{parent}/{name}")))
    };
    let mut nodes: Vec<(u64, String)> = names.iter().filter_map(numbered).collect();
    nodes.sort();
    Ok(nodes)
}
