//! One session with the ensemble, kept alive for ever: when it ends, the next one is opened.
//!
//! The client crate reconnects by itself while the session lives; this module opens a new session when it has
//! expired, and tells everyone else which session there is and since when it is connected. Nobody else holds on to a
//! client: whoever calls ZooKeeper asks for the present [`Live`] first.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use zookeeper_client::{Client, Error, SessionState, Stat};

use super::Clock;
use crate::core::time::Moment;
use crate::core::view::Session;

/// Between two attempts to open a session, where the first failed at once (no name resolves, say).
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// How to reach the ensemble.
#[derive(Debug, Clone)]
pub struct Options {
    /// `zookeeper.hosts`, each `host:port`. One that does not resolve is passed over at every attempt by the client
    /// crate, and tried again at the next: a name that is missing while the agent starts is not missing for ever.
    pub hosts: Vec<String>,
    /// `zookeeper.session_timeout`; what the ensemble grants stands in [`Live::granted`].
    pub session_timeout: Duration,
    /// `zookeeper.op_timeout`: one call's limit, and how long a silent member keeps its connection.
    pub op_timeout: Duration,
    /// `zookeeper.auth`.
    pub auth: Option<Auth>,
    /// Leave the session and its ephemeral nodes behind when the program stops: the agent's restart must find its
    /// lease as it was. Verbs end theirs.
    pub leave_behind: bool,
}

/// `zookeeper.auth`: digest authentication. Nodes are then writable by this user alone.
#[derive(Clone)]
pub struct Auth {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
    /// Who may read `topology` and `history`.
    pub readers: Readers,
}

/// `zookeeper.auth.readers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readers {
    /// Everyone.
    World,
    /// These, each in ZooKeeper's digest form `user:base64(sha1(user:password))`.
    Digest(Vec<String>),
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auth").field("user", &self.user).field("readers", &self.readers).finish_non_exhaustive()
    }
}

/// A connected session.
#[derive(Debug, Clone)]
pub struct Live {
    pub(super) client: Client,
    /// Since when without a break.
    pub since: Moment,
    /// T, as the ensemble granted it.
    pub granted: Duration,
    /// The session's id: the owner of our ephemeral nodes.
    pub id: i64,
    limit: Duration,
}

/// Whether there is a connected session.
#[derive(Debug, Clone)]
pub enum State {
    /// Yes.
    Up(Live),
    /// No.
    Down {
        /// Since when.
        since: Moment,
        /// Why, in words.
        why: String,
    },
}

/// A handle to the session; cheap to clone. The session ends with its last handle (see [`Options::leave_behind`]).
#[derive(Debug, Clone)]
pub struct Link {
    state: watch::Receiver<State>,
    options: std::sync::Arc<Options>,
}

impl Link {
    /// Starts to connect, on the present tokio runtime, and returns at once.
    #[must_use]
    pub fn open(options: Options, clock: Clock) -> Link {
        let (sender, state) = watch::channel(State::Down { since: clock(), why: "not connected yet".to_owned() });
        let options = std::sync::Arc::new(options);
        tokio::spawn(Keeper { options: options.clone(), clock, state: sender }.run());
        Link { state, options }
    }

    /// Every change of [`State`]. A break too short to be seen still counts as a change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<State> {
        self.state.clone()
    }

    /// The connected session.
    ///
    /// # Errors
    /// There is none; why, in words.
    pub fn live(&self) -> Result<Live, String> {
        match &*self.state.borrow() {
            State::Up(live) => Ok(live.clone()),
            State::Down { why, .. } => Err(format!("ZooKeeper ({}): {why}", self.options.hosts.join(","))),
        }
    }

    /// Waits for a connected session.
    ///
    /// # Errors
    /// None came within `limit`; why, in words.
    pub async fn connected(&self, limit: Duration) -> Result<Live, String> {
        let mut state = self.state.clone();
        let up = state.wait_for(|state| matches!(state, State::Up(_)));
        // What counts is what stands there in the end, not how the waiting ended.
        let _ = timeout(limit, up).await.map(|found| found.map(drop));
        self.live()
    }

    /// How the session was asked for.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }
}

impl State {
    /// As the core sees it.
    #[must_use]
    pub fn session(&self) -> Session {
        match self {
            State::Up(live) => Session::Connected { since: live.since, granted: live.granted, id: live.id },
            State::Down { since, .. } => Session::Lost { since: *since },
        }
    }
}

impl Live {
    /// One call with its own limit: the crate queues calls without bound while it is disconnected.
    pub(super) async fn limited<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, CallError> {
        match timeout(self.limit, call).await {
            Ok(answer) => answer.map_err(CallError::Zookeeper),
            Err(_) => Err(CallError::Silent(self.limit)),
        }
    }

    /// The node as the leader knows it: `sync` goes ahead, so that a write whose answer was lost is seen, if it took
    /// effect, also through another member than the one that it was sent to.
    pub(super) async fn read_back(&self, node: &str) -> Result<Option<(Vec<u8>, Stat)>, CallError> {
        // Both are sent before either is awaited; the server answers a session's calls in their order.
        let sync = self.client.sync(node);
        let read = self.client.get_data(node);
        let both = async {
            sync.await?;
            match read.await {
                Ok(found) => Ok(Some(found)),
                Err(Error::NoNode) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.limited(both).await
    }
}

/// Why a call gave no result.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    #[error("{0}")]
    Zookeeper(Error),
    #[error("no answer within {} ms (zookeeper.op_timeout)", .0.as_millis())]
    Silent(Duration),
}

/// The task behind a [`Link`].
struct Keeper {
    options: std::sync::Arc<Options>,
    clock: Clock,
    state: watch::Sender<State>,
}

impl Keeper {
    async fn run(self) {
        let work = async {
            loop {
                match self.connect().await {
                    Ok(client) => self.follow(client).await,
                    Err(why) => {
                        self.down(why);
                        sleep(RETRY_PAUSE).await;
                    }
                }
            }
        };
        tokio::select! {
            () = work => {}
            () = self.state.closed() => {}
        }
    }

    async fn connect(&self) -> Result<Client, String> {
        let options = &self.options;
        let mut connector = Client::connector()
            .with_session_timeout(options.session_timeout)
            // The crate's own rule gives a silent member up after 0.4 T only; a powered-off ZooKeeper host would cost
            // a healthy primary its lease.
            .with_connection_timeout(options.op_timeout);
        if let Some(auth) = &options.auth {
            connector = connector.with_auth("digest", format!("{}:{}", auth.user, auth.password).as_bytes());
        }
        if options.leave_behind {
            connector = connector.with_detached();
        }
        match connector.connect(&options.hosts.join(",")).await {
            Ok(client) => Ok(client),
            Err(error) => Err(self.explain(&error).await),
        }
    }

    async fn explain(&self, error: &Error) -> String {
        match error {
            Error::AuthFailed => AUTH_FAILED.to_owned(),
            Error::Timeout => match self.unresolved().await {
                names if names.is_empty() => {
                    "no member answers: check that ZooKeeper runs and has its quorum, and the network to it".to_owned()
                }
                names => format!("no member answers; these names do not resolve: {}", names.join(", ")),
            },
            error => format!("cannot connect: {error}"),
        }
    }

    async fn unresolved(&self) -> Vec<String> {
        let mut names = Vec::new();
        for host in &self.options.hosts {
            match timeout(self.options.op_timeout, tokio::net::lookup_host(host.as_str())).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => names.push(format!("{host} ({error})")),
                Err(_) => names.push(format!("{host} (the resolver does not answer)")),
            }
        }
        names
    }

    /// Publishes what becomes of one session, until it is over.
    async fn follow(&self, client: Client) {
        let mut states = client.state_watcher();
        let mut state = states.state();
        loop {
            match state {
                SessionState::SyncConnected => self.up(&client),
                SessionState::AuthFailed => {
                    self.down(AUTH_FAILED.to_owned());
                    // The next attempt will most likely fail alike.
                    return sleep(RETRY_PAUSE).await;
                }
                SessionState::Expired | SessionState::Closed => return self.down(format!("session {state}")),
                // Read-only members were not asked for, and one could not serve a single decision.
                SessionState::Disconnected | SessionState::ConnectedReadOnly => self.down("disconnected".to_owned()),
            }
            // Wakes up for every report of the crate, an unchanged one too: connected after connected means that
            // there was a break in between, and watch events may have been lost in it.
            state = states.changed().await;
        }
    }

    fn up(&self, client: &Client) {
        let live = Live {
            client: client.clone(),
            since: (self.clock)(),
            granted: client.session_timeout(),
            id: client.session_id().0,
            limit: self.options.op_timeout,
        };
        info!(session = %client.session_id(), granted_ms = live.granted.as_millis() as u64, "connected to ZooKeeper");
        self.state.send_replace(State::Up(live));
    }

    fn down(&self, why: String) {
        let since = match &*self.state.borrow() {
            State::Up(_) => (self.clock)(),
            State::Down { why: same, .. } if *same == why => return,
            State::Down { since, .. } => *since,
        };
        warn!(why, "no connection to ZooKeeper");
        self.state.send_replace(State::Down { since, why });
    }
}

const AUTH_FAILED: &str = "authentication refused: check zookeeper.auth.user and its password, and what the \
                           servers enforce (enforce.auth.schemes)";
