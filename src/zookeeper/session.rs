//! One session with the ensemble, kept alive for ever: when it ends, the next one is opened.
//!
//! Each connection is a client of its own (`super::engine`), which resumes the session of the one before. This module
//! opens a new session when the old one has expired, and tells everyone else which session there is and since when it is
//! connected. Nobody else holds on to a client: whoever calls ZooKeeper asks for the present [`Live`] first.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use zookeeper_client::{
    AddWatchMode, Client, Connector, Error, PersistentWatcher, SessionInfo, SessionState, Stat, WatchedEvent,
};

use super::Clock;
use super::engine::{Engine, NotStarted, Silent, accepting};
use crate::core::time::Moment;
use crate::core::view::Session;

/// Between two rounds through the members. An ensemble that elects its leader closes every connection at once.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The same once nobody has let us in for this long.
const PATIENT_PAUSE: Duration = Duration::from_millis(500);
const IMPATIENT_FOR: Duration = Duration::from_secs(10);
/// How long a verb's session may take to be closed.
const CLOSING: Duration = Duration::from_millis(200);

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
    /// To be held by whoever waits for watches of this client; gone once the client is to be ended.
    watched: Weak<()>,
}

/// Everything that changes below a node. Its client is not ended while this lives (the crate would panic here).
pub(super) struct Events {
    // Dropped in this order.
    watcher: PersistentWatcher,
    _watched: Arc<()>,
}

impl Events {
    /// The next event. Not to be asked again after one that says that the session is over.
    pub(super) async fn changed(&mut self) -> WatchedEvent {
        self.watcher.changed().await
    }
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
    options: Arc<Options>,
}

impl Link {
    /// Starts to connect, on the present tokio runtime, and returns at once.
    #[must_use]
    pub fn open(options: Options, clock: Clock) -> Link {
        let (sender, state) = watch::channel(State::Down { since: clock(), why: "not connected yet".to_owned() });
        let options = Arc::new(options);
        let keeper =
            Keeper { options: options.clone(), clock, state: sender, silent: Silent::default(), alone_since: None };
        tokio::spawn(keeper.run());
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

    /// Follows everything below `node`. The request is sent when this is called, not when it is awaited.
    pub(super) fn watch<'a>(&'a self, node: &'a str) -> impl Future<Output = Result<Events, Error>> + Send + 'a {
        let held = self.watched.upgrade();
        let watching = held.is_some().then(|| self.client.watch(node, AddWatchMode::PersistentRecursive));
        async move {
            let (Some(_watched), Some(watching)) = (held, watching) else { return Err(Error::ConnectionLoss) };
            watching.await.map(|watcher| Events { watcher, _watched })
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
    options: Arc<Options>,
    clock: Clock,
    state: watch::Sender<State>,
    silent: Silent,
    /// Nobody has let us in since then.
    alone_since: Option<Instant>,
}

/// What became of a connection.
enum Ended {
    /// The session lives, as far as is known.
    Disconnected,
    /// The session is over.
    Over(String),
}

impl Keeper {
    async fn run(mut self) {
        let mut session: Option<SessionInfo> = None;
        loop {
            let nobody_listens = self.state.clone();
            let found = tokio::select! {
                found = self.reach(session.clone()) => found,
                () = nobody_listens.closed() => return,
            };
            match found {
                Ok(engine) => {
                    self.alone_since = None;
                    session = Some(engine.client.session().clone());
                    match self.follow(engine).await {
                        Some(Ended::Disconnected) => {}
                        Some(Ended::Over(why)) => {
                            session = None;
                            self.down(why);
                        }
                        None => return,
                    }
                }
                Err(Error::SessionExpired | Error::SessionMoved) => {
                    session = None;
                    self.down("session expired".to_owned());
                }
                Err(error) => {
                    let since = *self.alone_since.get_or_insert_with(Instant::now);
                    let impatient = since.elapsed() < IMPATIENT_FOR;
                    // A break of tenths of a second needs no explanation, which takes its time.
                    if !impatient || session.is_none() {
                        let why = self.explain(&error).await;
                        self.down(why);
                    }
                    sleep(if impatient { RETRY_PAUSE } else { PATIENT_PAUSE }).await;
                }
            }
        }
    }

    /// A client connected to some member, in this session or a new one.
    async fn reach(&mut self, session: Option<SessionInfo>) -> Result<Engine, Error> {
        let limit = self.options.op_timeout;
        let mut last = Error::Timeout;
        for member in accepting(&self.options.hosts, &self.silent, limit).await {
            match Engine::start(self.connector(session.clone()), &member, limit).await {
                Ok(engine) => return Ok(engine),
                Err(NotStarted::Silent) => self.silent.note(&member),
                Err(NotStarted::Client(error @ (Error::SessionExpired | Error::SessionMoved))) => return Err(error),
                // Closed at once: this member does not serve.
                Err(NotStarted::Client(Error::NoHosts | Error::ConnectionLoss)) => {}
                Err(NotStarted::Client(error)) => last = error,
                Err(NotStarted::System(error)) => last = Error::UnexpectedError(error.to_string()),
            }
        }
        Err(last)
    }

    fn connector(&self, session: Option<SessionInfo>) -> Connector {
        let options = &self.options;
        let mut connector = Client::connector()
            .with_session_timeout(options.session_timeout)
            // The crate's own rule gives a silent member up after 0.4 T only; a powered-off ZooKeeper host would cost
            // a healthy primary its lease.
            .with_connection_timeout(options.op_timeout);
        if let Some(auth) = &options.auth {
            connector = connector.with_auth("digest", format!("{}:{}", auth.user, auth.password).as_bytes());
        }
        if let Some(session) = session {
            connector = connector.with_session(session);
        }
        if options.leave_behind { connector.with_detached() } else { connector }
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

    /// Publishes what becomes of one connection, until it is over; none where nobody is interested any more.
    async fn follow(&self, engine: Engine) -> Option<Ended> {
        let mut watched = Arc::new(());
        self.up(&engine.client, &watched);
        let mut states = engine.client.state_watcher();
        let mut state = states.state();
        let ended = loop {
            match state {
                SessionState::SyncConnected => {}
                SessionState::AuthFailed => break Ended::Over(AUTH_FAILED.to_owned()),
                SessionState::Expired | SessionState::Closed => break Ended::Over(format!("session {state}")),
                // Read-only members were not asked for, and one could not serve a single decision.
                SessionState::Disconnected | SessionState::ConnectedReadOnly => break Ended::Disconnected,
            }
            state = tokio::select! {
                state = states.changed() => state,
                () = self.state.closed() => {
                    self.close(engine).await;
                    return None;
                }
            };
        };
        self.down("disconnected".to_owned());
        // Whoever waits for a watch is woken by the new state and lets go of it; after that nobody can begin to.
        while let Err(held) = Arc::try_unwrap(watched) {
            watched = held;
            sleep(Duration::from_millis(1)).await;
        }
        engine.end();
        Some(ended)
    }

    /// The last handle is gone. A verb's session ends with it; an agent's is left behind.
    async fn close(&self, engine: Engine) {
        let mut states = engine.client.state_watcher();
        self.state.send_replace(State::Down { since: (self.clock)(), why: "closed".to_owned() });
        let closing =
            async { while !matches!(states.changed().await, SessionState::Closed | SessionState::Expired) {} };
        engine.release();
        if !self.options.leave_behind {
            let _ = timeout(CLOSING, closing).await;
        }
    }

    fn up(&self, client: &Client, watched: &Arc<()>) {
        let live = Live {
            client: client.clone(),
            since: (self.clock)(),
            granted: client.session_timeout(),
            id: client.session_id().0,
            limit: self.options.op_timeout,
            watched: Arc::downgrade(watched),
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
