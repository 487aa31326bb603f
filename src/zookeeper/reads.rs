//! The queue of reads that are on their way.

use std::collections::VecDeque;
use std::future::{Future, pending, ready};
use std::pin::Pin;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};
use zookeeper_client::{Client, Error, EventType, MultiReadResult, Stat, WatchedEvent};

use super::contents::Answer;
use super::tree::{AGENTS, ELECTION, Tree};
use crate::core::action::Path;

/// Reads that were sent over one connection, in the order of their answers.
pub(super) struct Reads<'a> {
    client: &'a Client,
    tree: &'a Tree,
    limit: Duration,
    queue: VecDeque<Expected<'a>>,
}

struct Expected<'a> {
    answer: Pin<Box<dyn Future<Output = Result<Answered, Error>> + Send + 'a>>,
    by: Instant,
}

/// The front of the queue, answered.
#[derive(Debug)]
pub(super) enum Answered {
    Nodes(Vec<(Path, Answer)>),
    Agents(Vec<String>),
    /// The locks, and whom to tell when they are read.
    Locks(Vec<i64>, Option<oneshot::Sender<()>>),
    Synced,
    /// All that was asked for ahead of this is answered.
    End {
        whole: bool,
        reply: Option<oneshot::Sender<()>>,
    },
}

/// What one transaction changes together and decisions look at together: read in one request, or a claim would be seen
/// by halves (the new `topology` without its `master` looks like a primary that was lost).
const ROLES: [Path; 4] = [Path::Topology, Path::Master, Path::Lease, Path::Switchover];

impl<'a> Reads<'a> {
    pub(super) fn new(client: &'a Client, tree: &'a Tree, limit: Duration) -> Self {
        Reads { client, tree, limit, queue: VecDeque::new() }
    }

    fn expect(&mut self, answer: impl Future<Output = Result<Answered, Error>> + Send + 'a) {
        self.queue.push_back(Expected { answer: Box::pin(answer), by: Instant::now() + self.limit });
    }

    /// Reads one node, and with one of [`ROLES`] all of them. The crate sends the request when it is made, not when its
    /// answer is waited for.
    pub(super) fn node(&mut self, path: Path) {
        if ROLES.contains(&path) {
            return self.roles();
        }
        let reading = self.client.get_data(&self.tree.node(&path));
        self.expect(async move { Ok(Answered::Nodes(vec![(path, answer(reading.await)?)])) });
    }

    fn roles(&mut self) {
        let mut together = self.client.new_multi_reader();
        let added = ROLES.iter().try_for_each(|path| together.add_get_data(&self.tree.node(path)));
        let reading = together.commit();
        self.expect(async move {
            added?;
            let one = |result| match result {
                MultiReadResult::Data { data, stat } => answer(Ok((data, stat))),
                MultiReadResult::Error { err } => answer(Err(err)),
                _ => Err(Error::UnexpectedError("no data in the answer to a read".to_owned())),
            };
            let answers: Result<Vec<Answer>, Error> = reading.await?.into_iter().map(one).collect();
            Ok(Answered::Nodes(ROLES.into_iter().zip(answers?).collect()))
        });
    }

    /// Reads all that the view holds, as the leader knows it now: [`Answered::Locks`] must be followed up by
    /// [`Reads::end`] with its reply.
    pub(super) fn everything(&mut self, reply: Option<oneshot::Sender<()>>) {
        let syncing = self.client.sync(self.tree.base());
        self.expect(async move { syncing.await.map(|()| Answered::Synced) });
        self.roles();
        self.node(Path::Pause);
        let agents = self.names(AGENTS);
        self.expect(async move { agents.await.map(Answered::Agents) });
        let (locks, tree) = (self.names(ELECTION), self.tree);
        self.expect(async move {
            let names = locks.await?;
            let sequence = |name: &String| match tree.path(&format!("{}/{name}", tree.directory(ELECTION))) {
                Some(Path::Lock(sequence)) => Some(sequence),
                _ => None,
            };
            Ok(Answered::Locks(names.iter().filter_map(sequence).collect(), reply))
        });
    }

    fn names(&self, directory: &str) -> impl Future<Output = Result<Vec<String>, Error>> + Send + use<> {
        let reading = self.client.get_children(&self.tree.directory(directory));
        async move {
            match reading.await {
                Ok((names, _)) => Ok(names),
                // A reader of `topology` alone (zookeeper.auth.readers) sees no more than that, and needs no more. An
                // agent with a wrong password finds `master` and `lease` unreadable, and stops at that.
                Err(Error::NoNode | Error::NoAuth) => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        }
    }

    /// Reads `paths`, then answers `reply`.
    pub(super) fn some(&mut self, paths: Vec<Path>, reply: oneshot::Sender<()>) {
        if paths.iter().any(|path| ROLES.contains(path)) {
            self.roles();
        }
        for path in paths.into_iter().filter(|path| !ROLES.contains(path)) {
            self.node(path);
        }
        self.end(false, Some(reply));
    }

    /// Marks the end of what was asked for so far.
    pub(super) fn end(&mut self, whole: bool, reply: Option<oneshot::Sender<()>>) {
        self.expect(ready(Ok(Answered::End { whole, reply })));
    }

    /// Reads what `event` says has changed. False: the session is over.
    pub(super) fn event(&mut self, event: &WatchedEvent) -> bool {
        if event.event_type == EventType::Session {
            return !event.session_state.is_terminated();
        }
        if let Some(path) = self.tree.path(&event.path) {
            if event.event_type == EventType::NodeDeleted && !ROLES.contains(&path) {
                // The event says it all: no need for another round trip. In the queue and
                // not at once, for an answer from before the deletion may be waiting there.
                self.expect(ready(Ok(Answered::Nodes(vec![(path, Answer::Absent)]))));
            } else {
                self.node(path);
            }
        }
        true
    }

    /// The next answer, when it is there; waits for ever while nothing is expected. May be cancelled.
    pub(super) async fn next(&mut self) -> Result<Answered, String> {
        let Some(front) = self.queue.front_mut() else { return pending().await };
        let answered = match timeout_at(front.by, &mut front.answer).await {
            Ok(answered) => answered.map_err(|error| error.to_string()),
            Err(_) => Err(format!("no answer within {} ms (zookeeper.op_timeout)", self.limit.as_millis())),
        };
        self.queue.pop_front();
        answered
    }
}

fn answer(read: Result<(Vec<u8>, Stat), Error>) -> Result<Answer, Error> {
    match read {
        Ok((bytes, stat)) => Ok(Answer::Here(bytes, stat)),
        Err(Error::NoNode) => Ok(Answer::Absent),
        Err(Error::NoAuth) => Ok(Answer::Denied),
        Err(error) => Err(error),
    }
}
