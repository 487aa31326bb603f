//! The end of a cluster: its whole tree goes.

use zookeeper_client::Error;

use super::session::{CallError, Live};
use super::writer::Writer;

impl Writer {
    /// Deletes `<root>/<cluster>` with everything below it, leaves first. Can be repeated.
    ///
    /// # Errors
    /// In words; part of the tree may be gone.
    pub async fn remove_tree(&self) -> Result<(), String> {
        let live = self.link.live()?;
        let mut nodes = vec![self.tree.base().to_owned()];
        let mut at = 0;
        while at < nodes.len() {
            let parent = nodes[at].clone();
            nodes.extend(children(&live, &parent).await?.into_iter().map(|name| format!("{parent}/{name}")));
            at += 1;
        }
        for node in nodes.iter().rev() {
            match live.limited(live.client.delete(node, None)).await {
                Ok(()) | Err(CallError::Zookeeper(Error::NoNode)) => {}
                Err(error) => return Err(format!("removing {node}: {error}")),
            }
        }
        Ok(())
    }
}

async fn children(live: &Live, parent: &str) -> Result<Vec<String>, String> {
    match live.limited(live.client.get_children(parent)).await {
        Ok((names, _)) => Ok(names),
        Err(CallError::Zookeeper(Error::NoNode)) => Ok(Vec::new()),
        Err(error) => Err(format!("listing {parent}: {error}")),
    }
}
