//! One client of the crate, connected to one member, on a runtime of its own, so that it can be ended at any moment.
//!
//! Left to itself the crate reconnects by trying the members one after another: a dead one costs it `op_timeout` in each
//! round, and between two rounds it pauses, from 100 ms for each member up to several seconds. Where the ensemble's
//! leader dies every agent loses its connection at once, and the slowest to come back makes the failover wait
//! (measured: 600 ms, and 4.3 s in all). So the session is resumed by a new client as soon as some member lets us in
//! ([`accepting`] asks all at once). The old client has to be *ended* before: it would resume the session too, and ZooKeeper
//! then declares it moved under the new client's feet. The crate has no way to end one that is connecting; its runtime has.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zookeeper_client::{Client, Connector, Error};

/// Members that accept within this time of the first are chosen from.
const TOGETHER: Duration = Duration::from_millis(5);
/// How long a member that accepted a connection and then said nothing comes last.
const SILENT_FOR: Duration = Duration::from_secs(30);

/// The client and what it runs on.
#[derive(Debug)]
pub(super) struct Engine {
    runtime: Option<Runtime>,
    pub(super) client: Client,
}

/// Ended as soon as it is dropped: a client that never connected.
struct Starting(Option<Runtime>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Why a member could not be used.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// It let us in and said nothing within the limit.
    Silent,
    /// What the crate says.
    Client(Error),
    /// What the system says.
    System(std::io::Error),
}

impl Engine {
    /// Connects to `member`, within `limit`.
    ///
    /// # Errors
    /// See [`NotStarted`].
    pub(super) async fn start(connector: Connector, member: &str, limit: Duration) -> Result<Self, NotStarted> {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("zookeeper").enable_all().build();
        let mut starting = Starting(Some(runtime.map_err(NotStarted::System)?));
        let Some(runtime) = &starting.0 else { unreachable!("just made") };
        let member = member.to_owned();
        let connecting = runtime.spawn(async move { connector.with_fail_eagerly().connect(&member).await });
        match timeout(limit, connecting).await {
            Ok(Ok(Ok(client))) => Ok(Self { runtime: starting.0.take(), client }),
            Ok(Ok(Err(error))) => Err(NotStarted::Client(error)),
            Ok(Err(ended)) => Err(NotStarted::System(std::io::Error::other(ended))),
            Err(_) => Err(NotStarted::Silent),
        }
    }

    /// Lets go of the client, and with it of the session where it is not detached; what the client runs on stays until the
    /// program ends.
    pub(super) fn release(mut self) {
        std::mem::forget(self.runtime.take());
    }

    /// Ends the client where it stands; the session stays. Nobody may be waiting for its watches any more: the crate
    /// panics there.
    pub(super) fn end(mut self) {
        drop(Starting(self.runtime.take()));
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Not ended: the program ends, and with it somebody who may still wait for a watch.
        std::mem::forget(self.runtime.take());
    }
}

/// Which members have been silent lately.
#[derive(Debug, Default)]
pub(super) struct Silent(HashMap<String, Instant>);

impl Silent {
    pub(super) fn note(&mut self, member: &str) {
        self.0.insert(member.to_owned(), Instant::now());
    }

    fn is(&self, member: &str) -> bool {
        self.0.get(member).is_some_and(|at| at.elapsed() < SILENT_FOR)
    }
}

/// Asks all members at once and gives those that accept a connection, the quickest first and the ones lately silent last;
/// none where nobody accepts within `limit`. Names that do not resolve are passed over.
pub(super) async fn accepting(members: &[String], silent: &Silent, limit: Duration) -> Vec<String> {
    let mut trying = JoinSet::new();
    for member in members.iter().cloned() {
        trying.spawn(async move {
            let accepted = timeout(limit, TcpStream::connect(member.as_str())).await.is_ok_and(|it| it.is_ok());
            accepted.then_some(member)
        });
    }
    let mut accepted = Vec::new();
    let mut wait = limit;
    while let Ok(Some(answer)) = timeout(wait, trying.join_next()).await {
        if let Ok(Some(member)) = answer {
            accepted.push(member);
            wait = TOGETHER;
        }
    }
    accepted.sort_by_key(|member| silent.is(member));
    accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_accepts_comes_and_who_was_silent_comes_last() {
        let listen = async || tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (one, other, gone) = (listen().await, listen().await, listen().await);
        let name = |it: &tokio::net::TcpListener| it.local_addr().unwrap().to_string();
        let members = [name(&gone), name(&one), name(&other), "no.such.name.invalid:2181".to_owned()];
        drop(gone);
        let mut silent = Silent::default();
        for mute in [&one, &other] {
            silent = Silent::default();
            silent.note(&name(mute));
            let found = accepting(&members, &silent, Duration::from_secs(5)).await;
            assert_eq!(found.last(), Some(&name(mute)), "{found:?}");
            assert_eq!(found.len(), 2);
        }
        assert!(accepting(&members[..1], &silent, Duration::from_secs(5)).await.is_empty());
    }
}
