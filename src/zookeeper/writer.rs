//! Transactions: the core's [`Write`] as one call, and what became of it.

use std::fmt;

use tracing::{debug, warn};
use zookeeper_client::{
    Acl, Acls, AuthId, CreateMode, Error, MultiWriteError, MultiWriteResult, MultiWriter, Permission,
};

use super::session::{CallError, Link, Live, Options, Readers};
use super::tree::{HISTORY, Tree, encode};
use crate::core::action::{Op, Path, Write};

/// What became of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All of it took effect.
    Done {
        /// Nodes created, sequential locks with their sequence (incidents are left out: nobody reads them by path).
        /// A lock that was created by a write that had to be read back is missing here: look into the view.
        created: Vec<Path>,
        /// The versions that the nodes written have now.
        versions: Vec<(Path, i32)>,
    },
    /// The server refused one operation, and so nothing took effect.
    Rejected {
        /// The operation's place in [`Write::ops`].
        op: usize,
        /// Its node.
        path: Path,
        /// Why.
        why: Refusal,
    },
    /// It may have taken effect, or may yet: read back (`Viewer::refresh_all`) before anything else.
    Unknown {
        /// Why, in words.
        why: String,
    },
    /// Certainly nothing took effect, for a reason that lies not in the tree: never sent, or read back as not done.
    NotDone {
        /// Why, in words.
        why: String,
    },
}

impl Outcome {
    /// The version that `path` has after this write, where it wrote it.
    #[must_use]
    pub fn version(&self, path: &Path) -> Option<i32> {
        match self {
            Outcome::Done { versions, .. } => versions.iter().find(|(at, _)| at == path).map(|(_, version)| *version),
            _ => None,
        }
    }

    /// What to read again so that the view contains `write`.
    #[must_use]
    pub fn touched(&self, write: &Write) -> Vec<Path> {
        let created = match self {
            Outcome::Done { created, .. } => created.as_slice(),
            _ => &[],
        };
        let named = write.ops.iter().map(path_of).filter(|path| !matches!(path, Path::NewLock | Path::NewIncident));
        let mut paths: Vec<Path> = named.chain(created).cloned().collect();
        paths.sort();
        paths.dedup();
        paths
    }
}

/// The server's answer to an operation that it refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No such node (or no parent to create it in).
    NoNode,
    /// It has another version: somebody else wrote in between.
    BadVersion,
    /// It is there already.
    NodeExists,
    /// Not allowed: `zookeeper.auth` is missing or another user's.
    NoAuth,
    /// Anything else; the log has it.
    Other,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNode => "no such node",
            Self::BadVersion => "somebody else wrote in between",
            Self::NodeExists => "it exists already",
            Self::NoAuth => "not allowed: check zookeeper.auth and the node's ACL",
            Self::Other => "refused by the server",
        })
    }
}

/// Writes to one cluster's tree; cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    pub(super) link: Link,
    pub(super) tree: Tree,
    access: std::sync::Arc<Access>,
}

impl Writer {
    /// A writer over `link`.
    #[must_use]
    pub fn new(link: &Link, tree: Tree) -> Self {
        Writer { link: link.clone(), access: Access::new(link.options()).into(), tree }
    }

    /// Creates `<root>/<cluster>` and the directories below, where they are missing. An observer needs
    /// them too: it publishes its own node.
    ///
    /// # Errors
    /// One could not be created; which and why, in words.
    pub async fn prepare(&self) -> Result<(), String> {
        let live = self.link.live()?;
        let nodes = self.tree.parents();
        // All are sent before the first answer is awaited; a session's calls are executed in their order.
        let calls: Vec<_> = nodes
            .iter()
            .map(|node| {
                let acls = self.access.of_directory(node, &self.tree);
                live.client.create(node, b"", &CreateMode::Persistent.with_acls(acls))
            })
            .collect();
        for (node, call) in nodes.iter().zip(calls) {
            match live.limited(call).await {
                Ok(_) | Err(CallError::Zookeeper(Error::NodeExists)) => {}
                Err(CallError::Zookeeper(Error::NoAuth)) => {
                    return Err(format!("creating {node}: not allowed: check zookeeper.auth and the parent's ACL"));
                }
                Err(error) => return Err(format!("creating {node}: {error}")),
            }
        }
        Ok(())
    }

    /// Executes `write`: all of it or nothing.
    pub async fn commit(&self, write: &Write) -> Outcome {
        let outcome = match self.link.live() {
            Ok(live) => self.transact(&live, &write.ops).await,
            // Not queued for later: by then the decision behind it may be wrong.
            Err(why) => Outcome::NotDone { why },
        };
        debug!(purpose = ?write.purpose, ?outcome, "wrote");
        outcome
    }

    /// Executes `ops` in the session of `live`.
    pub(super) async fn transact(&self, live: &Live, ops: &[Op]) -> Outcome {
        // A transaction also for a single operation: one way to do it, and one way to read the answer.
        let mut transaction = live.client.new_multi_writer();
        for op in ops {
            if let Err(error) = self.add(&mut transaction, op) {
                return Outcome::NotDone { why: format!("{}: {error}", self.tree.node(path_of(op))) };
            }
        }
        match live.limited(async { Ok(transaction.commit().await) }).await {
            Ok(Ok(results)) => self.done(ops, &results),
            Ok(Err(MultiWriteError::OperationFailed { index, source })) => self.rejected(ops, index, &source),
            Ok(Err(MultiWriteError::RequestFailed { source })) => Outcome::Unknown { why: source.to_string() },
            Err(silent) => Outcome::Unknown { why: silent.to_string() },
        }
    }

    fn add(&self, transaction: &mut MultiWriter<'_>, op: &Op) -> Result<(), Error> {
        let node = self.tree.node(path_of(op));
        match op {
            Op::Check(_, version) => transaction.add_check_version(&node, *version),
            Op::Set(_, record, version) => transaction.add_set_data(&node, &encode(record), Some(*version)),
            Op::Delete(_, version) => transaction.add_delete(&node, Some(*version)),
            Op::Create(path, record) => {
                let options = mode(path).with_acls(self.access.of(path));
                transaction.add_create(&node, &encode(record), &options)
            }
        }
    }

    fn done(&self, ops: &[Op], results: &[MultiWriteResult]) -> Outcome {
        let (mut created, mut versions) = (Vec::new(), Vec::new());
        for (op, result) in ops.iter().zip(results) {
            match (op, result) {
                // The Stat is not looked at: within a transaction 3.8 leaves it invalid (ZOOKEEPER-4026).
                (Op::Create(..), MultiWriteResult::Create { path, .. }) => {
                    if let Some(path) = self.tree.path(path) {
                        versions.push((path.clone(), 0));
                        created.push(path);
                    }
                }
                (Op::Set(path, ..), MultiWriteResult::SetData { stat }) => versions.push((path.clone(), stat.version)),
                _ => {}
            }
        }
        Outcome::Done { created, versions }
    }

    fn rejected(&self, ops: &[Op], index: usize, error: &Error) -> Outcome {
        let Some(op) = ops.get(index) else {
            return Outcome::Unknown { why: format!("an answer to an operation that was not sent: {error}") };
        };
        let path = path_of(op).clone();
        let why = match error {
            Error::NoNode => Refusal::NoNode,
            Error::BadVersion => Refusal::BadVersion,
            Error::NodeExists => Refusal::NodeExists,
            Error::NoAuth => Refusal::NoAuth,
            error => {
                warn!(node = self.tree.node(&path), %error, "a write was refused");
                Refusal::Other
            }
        };
        Outcome::Rejected { op: index, path, why }
    }
}

/// The node an operation is about.
pub(super) fn path_of(op: &Op) -> &Path {
    match op {
        Op::Check(path, _) | Op::Create(path, _) | Op::Set(path, ..) | Op::Delete(path, _) => path,
    }
}

fn mode(path: &Path) -> CreateMode {
    match path {
        Path::Master | Path::Agent(_) | Path::Lock(_) => CreateMode::Ephemeral,
        Path::NewLock => CreateMode::EphemeralSequential,
        Path::NewIncident => CreateMode::PersistentSequential,
        Path::Topology | Path::Lease | Path::History(_) | Path::Switchover | Path::Pause => CreateMode::Persistent,
    }
}

/// Who may do what: everyone everything, or with `zookeeper.auth` the agents everything and its `readers` read
/// `topology` and `history`.
#[derive(Debug)]
struct Access {
    /// None: open to all.
    published: Option<Vec<Acl>>,
}

impl Access {
    fn new(options: &Options) -> Self {
        let published = options.auth.as_ref().map(|auth| {
            let readers = match &auth.readers {
                Readers::World => vec![AuthId::anyone()],
                Readers::Digest(users) => users.iter().map(|user| AuthId::new("digest", user)).collect(),
            };
            let own = Acl::new(Permission::ALL, AuthId::authed());
            std::iter::once(own).chain(readers.into_iter().map(|id| Acl::new(Permission::READ, id))).collect()
        });
        Access { published }
    }

    fn published(&self) -> Acls<'_> {
        self.published.as_deref().map_or(Acls::anyone_all(), Acls::new)
    }

    fn private(&self) -> Acls<'static> {
        if self.published.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    fn of(&self, path: &Path) -> Acls<'_> {
        if matches!(path, Path::Topology | Path::History(_)) { self.published() } else { self.private() }
    }

    fn of_directory(&self, node: &str, tree: &Tree) -> Acls<'_> {
        // The way down to `topology` and the list of epochs can be read; what agents tell each other cannot.
        let way_down = tree.base().starts_with(node);
        if way_down || node == tree.directory(HISTORY) { self.published() } else { self.private() }
    }
}
