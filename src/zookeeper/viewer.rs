//! Keeps the core's picture of the ensemble up to date, and publishes it.
//!
//! After every connection everything is read, because events may have been lost in between (ZOOKEEPER-4698); then a
//! recursive watch says which node has changed, and that one is read again. Reads are sent at once and answered in
//! their order (one session, one connection), so one queue of expected answers is all there is to keep: what stands
//! in the queue's front is older than what stands behind it, and nothing older ever overwrites something newer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::Clock;
use super::contents;
use super::reads::{Answered, Reads};
use super::session::{Link, Live, State};
use super::tree::Tree;
use crate::core::action::Path;
use crate::core::view::Ensemble;

/// A handle to the view; cheap to clone. The view is kept up as long as one lives.
#[derive(Debug, Clone)]
pub struct Viewer {
    view: watch::Receiver<Arc<Ensemble>>,
    commands: mpsc::UnboundedSender<Command>,
}

/// The view could not be brought up to date: there is no connection, or it broke meanwhile. It will be read as a
/// whole once there is one ([`Ensemble::complete`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("ZooKeeper could not be read: the view is not up to date until it is connected again")]
pub struct NotRead;

#[derive(Debug)]
struct Command {
    /// None: everything.
    paths: Option<Vec<Path>>,
    reply: oneshot::Sender<()>,
}

impl Viewer {
    /// Starts to follow `tree`, on the present tokio runtime.
    #[must_use]
    pub fn start(link: &Link, tree: Tree, clock: Clock) -> Viewer {
        let (publish, view) = watch::channel(Arc::default());
        let (commands, orders) = mpsc::unbounded_channel();
        let limit = link.options().op_timeout;
        let task = Task { link: link.changes(), tree, clock, limit, ensemble: Ensemble::default(), publish, orders };
        tokio::spawn(task.run());
        Viewer { view, commands }
    }

    /// The view and its changes.
    #[must_use]
    pub fn view(&self) -> watch::Receiver<Arc<Ensemble>> {
        self.view.clone()
    }

    /// Reads `paths` again and returns when the view contains what stands there now. After a write of our own that
    /// was answered, the view then contains at least that write.
    ///
    /// # Errors
    /// [`NotRead`].
    pub async fn refresh(&self, paths: Vec<Path>) -> Result<(), NotRead> {
        self.order(Some(paths)).await
    }

    /// Reads everything again, as the leader knows it (`sync` first): after a write whose answer was lost.
    ///
    /// # Errors
    /// [`NotRead`].
    pub async fn refresh_all(&self) -> Result<(), NotRead> {
        self.order(None).await
    }

    async fn order(&self, paths: Option<Vec<Path>>) -> Result<(), NotRead> {
        let (reply, done) = oneshot::channel();
        self.commands.send(Command { paths, reply }).map_err(|_| NotRead)?;
        // No limit of its own: each read has one, and whatever ends the reading drops the other end.
        done.await.map_err(|_| NotRead)
    }
}

/// The task behind a [`Viewer`].
struct Task {
    link: watch::Receiver<State>,
    tree: Tree,
    clock: Clock,
    limit: Duration,
    ensemble: Ensemble,
    publish: watch::Sender<Arc<Ensemble>>,
    orders: mpsc::UnboundedReceiver<Command>,
}

/// Why following came to an end.
enum Ended {
    /// The connection is another one now, or gone.
    LinkChanged,
    /// A call failed although the connection stands.
    Failed(String),
    /// Nobody is interested any more.
    Over,
}

impl Task {
    async fn run(mut self) {
        loop {
            let state = self.link.borrow_and_update().clone();
            self.ensemble.session = state.session();
            self.incomplete();
            let mut ended = match state {
                State::Up(live) => self.follow(&live).await,
                State::Down { .. } => self.wait(None).await,
            };
            if let Ended::Failed(why) = ended {
                warn!(why, "ZooKeeper could not be read; everything will be read again");
                self.incomplete();
                ended = self.wait(Some(self.limit / 4)).await;
            }
            if matches!(ended, Ended::Over) {
                return;
            }
        }
    }

    /// The contents stay: they are what was seen last, and the moments of first sight are in them.
    fn incomplete(&mut self) {
        self.ensemble.complete = false;
        self.publish();
    }

    fn publish(&self) {
        self.publish.send_replace(Arc::new(self.ensemble.clone()));
    }

    /// Waits for another connection, at the most `limit`. Orders are refused meanwhile: their reply is dropped.
    async fn wait(&mut self, limit: Option<Duration>) -> Ended {
        let pause = async {
            match limit {
                Some(limit) => sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(pause);
        loop {
            tokio::select! {
                changed = self.link.changed() => return if changed.is_ok() { Ended::LinkChanged } else { Ended::Over },
                () = &mut pause => return Ended::LinkChanged,
                order = self.orders.recv() => if order.is_none() { return Ended::Over },
            }
        }
    }

    /// Reads everything, then what changes, over one connection.
    async fn follow(&mut self, live: &Live) -> Ended {
        let tree = self.tree.clone();
        // The request is on its way before the first read, so that no change can fall between the two.
        let watching = live.watch(tree.base());
        let mut reads = Reads::new(&live.client, &tree, self.limit);
        reads.everything(None);
        let mut events = match timeout(self.limit, watching).await {
            Ok(Ok(events)) => events,
            Ok(Err(error)) => return Ended::Failed(format!("watching {}: {error}", tree.base())),
            Err(_) => return Ended::Failed(format!("watching {}: no answer in time", tree.base())),
        };
        loop {
            // Events before answers and orders: the events of an own write are there before its answer is, so that a
            // deletion in it is queued ahead of the reads that the order after it asks for.
            tokio::select! {
                biased;
                changed = self.link.changed() => return if changed.is_ok() { Ended::LinkChanged } else { Ended::Over },
                event = events.changed() => if !reads.event(&event) {
                    // The session is over, and the watcher must not be asked again; the link will have the next one.
                    return self.wait(None).await;
                },
                answered = reads.next() => match answered {
                    Ok(answered) => self.answered(&mut reads, answered),
                    Err(why) => return Ended::Failed(why),
                },
                order = self.orders.recv() => match order {
                    Some(Command { paths: Some(paths), reply }) => reads.some(paths, reply),
                    Some(Command { paths: None, reply }) => reads.everything(Some(reply)),
                    None => return Ended::Over,
                },
            }
        }
    }

    fn answered(&mut self, reads: &mut Reads<'_>, answered: Answered) {
        match answered {
            Answered::Nodes(nodes) => {
                for (path, answer) in nodes {
                    contents::apply(&mut self.ensemble, &self.tree, &path, &answer, (self.clock)());
                }
                // While the whole is being read, nobody may act on a part of it.
                if self.ensemble.complete {
                    self.publish();
                }
            }
            Answered::Agents(names) => {
                self.ensemble.agents.retain(|name, _| names.contains(name));
                names.into_iter().for_each(|name| reads.node(Path::Agent(name)));
            }
            Answered::Locks(sequences, reply) => {
                self.ensemble.locks.retain(|sequence, _| sequences.contains(sequence));
                sequences.into_iter().for_each(|sequence| reads.node(Path::Lock(sequence)));
                reads.end(true, reply);
            }
            Answered::End { whole, reply } => {
                self.ensemble.complete |= whole;
                self.publish();
                if let Some(reply) = reply {
                    // Whoever gave the order may have given up.
                    let _ = reply.send(());
                }
            }
            Answered::Synced => {}
        }
    }
}
