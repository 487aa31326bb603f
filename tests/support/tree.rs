//! A reader of the cluster's tree in ZooKeeper, by the names of the contract's section 3.

use std::collections::BTreeMap;
use std::time::Duration;

use mysql_ha_agent::host::clock::now;
use mysql_ha_agent::zookeeper::session::{self, Link};
use mysql_ha_agent::zookeeper::viewer::Viewer;
use serde_json::Value;
use tokio::sync::{Mutex, watch};
use zookeeper_client::{Client, Error};

/// How long one call may take before it counts as failed: calls of this client wait without bound for a connection.
const CALL: Duration = Duration::from_secs(2);

/// Reads the tree, with a session of the test's own that is made anew when it was lost.
pub(crate) struct Tree {
    members: String,
    base: String,
    client: Mutex<Option<Client>>,
}

impl Tree {
    /// A reader of the tree below `base`; `members` is a list `host:port,…`. Connects at the first call.
    pub(crate) fn new(members: String, base: String) -> Self {
        Self { members, base, client: Mutex::new(None) }
    }

    /// A node's content; none where there is no such node. An error when ZooKeeper does not answer.
    pub(crate) async fn get(&self, node: &str) -> Result<Option<Value>, String> {
        let client = self.client().await?;
        let path = format!("{}/{node}", self.base);
        match limited(client.get_data(&path)).await {
            Ok((data, _)) => Ok(Some(parse(&path, &data))),
            Err(CallError::Answer(Error::NoNode)) => Ok(None),
            Err(error) => Err(format!("cannot read {path}: {error}")),
        }
    }

    /// Overwrites a node, whatever its version: the one way in which a test meddles with the tree.
    pub(crate) async fn put(&self, node: &str, content: &str) {
        let client = self.client().await.unwrap_or_else(|error| panic!("{error}"));
        let path = format!("{}/{node}", self.base);
        client
            .set_data(&path, content.as_bytes(), None)
            .await
            .unwrap_or_else(|error| panic!("writing {path}: {error}"));
    }

    /// The contents of all children of a node, by name; empty where there is no such node.
    pub(crate) async fn children(&self, node: &str) -> Result<BTreeMap<String, Value>, String> {
        let client = self.client().await?;
        let path = format!("{}/{node}", self.base);
        let names = match limited(client.list_children(&path)).await {
            Ok(names) => names,
            Err(CallError::Answer(Error::NoNode)) => return Ok(BTreeMap::new()),
            Err(error) => return Err(format!("cannot list {path}: {error}")),
        };
        let mut all = BTreeMap::new();
        for name in names {
            // One that vanished since is none.
            if let Some(value) = self.get(&format!("{node}/{name}")).await? {
                all.insert(name, value);
            }
        }
        Ok(all)
    }

    /// Follows `topology` as the product's own programs do, the receiver always holds its newest content: with the crate's own
    /// session a client may find the way back to the ensemble seconds after its leader was lost. Ends when all receivers are dropped.
    pub(crate) fn follow_topology(&self) -> watch::Receiver<Option<Value>> {
        let (root, cluster) = self.base.rsplit_once('/').expect("a cluster stands below a root");
        let options = session::Options {
            hosts: self.members.split(',').map(str::to_owned).collect(),
            session_timeout: Duration::from_secs(10),
            op_timeout: Duration::from_millis(500),
            auth: None,
            leave_behind: false,
        };
        let link = Link::open(options, now);
        let viewer = Viewer::start(&link, mysql_ha_agent::zookeeper::tree::Tree::new(root, cluster), now);
        let (sender, receiver) = watch::channel(None);
        tokio::spawn(async move {
            let mut view = viewer.view();
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    changed = view.changed() => if changed.is_err() { return },
                }
                let topology = view.borrow_and_update().topology.here().map(|versioned| {
                    serde_json::to_value(&versioned.record).expect("what was read as JSON can be written")
                });
                sender.send_if_modified(|now| std::mem::replace(now, topology.clone()) != topology);
            }
        });
        receiver
    }

    /// The session, made anew where there is none or the last one ended.
    pub(crate) async fn client(&self) -> Result<Client, String> {
        let mut slot = self.client.lock().await;
        if let Some(client) = slot.as_ref().filter(|client| !client.state().is_terminated()) {
            return Ok(client.clone());
        }
        let connector = Client::connector()
            .with_session_timeout(Duration::from_secs(10))
            .with_connection_timeout(Duration::from_millis(500));
        let connected = tokio::time::timeout(CALL, connector.connect(&self.members)).await;
        let client = connected
            .map_err(|_| format!("no ZooKeeper member of {} let us in within {CALL:?}", self.members))?
            .map_err(|error| format!("cannot connect to ZooKeeper at {}: {error}", self.members))?;
        Ok(slot.insert(client).clone())
    }
}

/// Content that is no JSON is a fault of the product, but for the nodes that carry none.
fn parse(path: &str, data: &[u8]) -> Value {
    if data.is_empty() {
        return Value::Null;
    }
    serde_json::from_slice(data)
        .unwrap_or_else(|error| panic!("{path} holds no JSON ({error}): {}", String::from_utf8_lossy(data)))
}

enum CallError {
    Answer(Error),
    Silence,
}

impl std::fmt::Display for CallError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Answer(error) => write!(out, "{error}"),
            Self::Silence => write!(out, "no answer within {CALL:?}"),
        }
    }
}

async fn limited<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, CallError> {
    match tokio::time::timeout(CALL, call).await {
        Ok(result) => result.map_err(CallError::Answer),
        Err(_) => Err(CallError::Silence),
    }
}
