//! Our own server: the probes and their judge, and the process behind the socket.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info, warn};

use super::run::{own_target, tcp};
use super::shared::{Shared, now};
use crate::config::Config;
use crate::config::sections::Endpoint;
use crate::core::gtid::GtidSet;
use crate::core::health::{self, Judge, Next, Outcome};
use crate::core::view::{Health, ServerFacts};
use crate::host::process::Mysqld;
use crate::mysql::connect::Target;
use crate::mysql::control::{Control, Settings};
use crate::mysql::facts::Reading;
use crate::mysql::fence::Fence;
use crate::mysql::probe::{Beat, Prober};

/// How often a process is looked for that is not known.
const LOOK: Duration = Duration::from_millis(100);
/// One reading's limit after an action.
const READ: Duration = Duration::from_secs(2);

/// The mysqld process as last found.
pub type Watched = watch::Receiver<Option<Arc<Mysqld>>>;

/// The fence on our own server.
#[must_use]
pub fn fence(config: &Config, mysqld: Watched) -> Fence {
    Fence::new(&own_target(config), config.fencing.spare_users.clone(), mysqld)
}

/// The executor of actions on our own server, and its readings afterwards.
#[derive(Debug)]
pub struct Hands {
    control: Control,
    boot_id: String,
    mysqld: Watched,
}

impl Hands {
    /// The executor.
    #[must_use]
    pub fn new(config: &Config, boot_id: &str, mysqld: Watched) -> Arc<Mutex<Self>> {
        let replication = &config.mysql.replication;
        let settings = Settings {
            schema: config.heartbeat.schema.clone(),
            replication_user: replication.user.clone(),
            replication_password: replication.password.reveal().to_owned(),
            replication_tls: replication.tls,
            spare_users: config.fencing.spare_users.clone(),
        };
        let control = Control::new(own_target(config), settings);
        Arc::new(Mutex::new(Self { control, boot_id: boot_id.to_owned(), mysqld }))
    }

    /// The executor itself.
    pub fn control(&mut self) -> &mut Control {
        &mut self.control
    }

    /// The server as it is now; none where it does not answer (the probes will say so).
    pub async fn facts(&mut self) -> Option<ServerFacts> {
        let incarnation = incarnation(&self.mysqld, &self.boot_id);
        let reading = self.control.read(&incarnation, READ).await;
        match reading {
            Ok(Reading::Facts(facts)) => Some(*facts),
            Ok(Reading::Unsupported(_)) => None,
            Err(fault) => {
                debug!(%fault, "no reading after an action");
                None
            }
        }
    }
}

fn incarnation(mysqld: &Watched, boot_id: &str) -> String {
    mysqld.borrow().as_ref().map_or_else(|| format!("{boot_id}/unknown"), |mysqld| mysqld.incarnation(boot_id))
}

/// Starts the watch on the process.
#[must_use]
pub fn watch_process(config: &Config) -> Watched {
    let (found, watched) = watch::channel(None);
    let place = match (&config.fencing.mysqld_pid_file, &config.mysql.endpoint) {
        (Some(pid_file), _) => Find::PidFile(pid_file.clone()),
        (None, Endpoint::Socket(socket)) => Find::Socket(socket.clone()),
        (None, Endpoint::Tcp(_)) => {
            warn!(
                "mysqld is reached over TCP: its process is not known, an exit is noticed by probes alone (fencing.mysqld_pid_file)"
            );
            return watched;
        }
    };
    tokio::spawn(find_again_and_again(place, found));
    watched
}

enum Find {
    Socket(PathBuf),
    PidFile(PathBuf),
}

async fn find_again_and_again(place: Find, found: watch::Sender<Option<Arc<Mysqld>>>) {
    let mut complained = false;
    loop {
        let looked = match &place {
            Find::Socket(socket) => Mysqld::behind(socket),
            Find::PidFile(path) => Mysqld::by_pid_file(path),
        };
        match looked {
            Ok(mysqld) => {
                complained = false;
                info!(event = "mysqld_found", pid = mysqld.pid(), "watches the mysqld process");
                let mysqld = Arc::new(mysqld);
                found.send_replace(Some(mysqld.clone()));
                // The old one stays published: its exit is what the others look at, until there is another.
                mysqld.exited().await;
                warn!(event = "mysqld_exited", pid = mysqld.pid(), "mysqld has exited");
            }
            Err(error) if !complained => {
                complained = true;
                info!(%error, "the mysqld process is not found yet");
            }
            Err(_) => {}
        }
        sleep(LOOK).await;
    }
}

/// The probe loop.
pub struct Watcher {
    prober: Prober,
    judge: Judge,
    config: Config,
    shared: Shared,
    mysqld: Watched,
    watermarks: watch::Sender<GtidSet>,
}

impl Watcher {
    /// Probes with these settings; `watermarks` takes what is certainly acknowledged.
    #[must_use]
    pub fn new(config: &Config, shared: &Shared, mysqld: Watched, watermarks: watch::Sender<GtidSet>) -> Self {
        let target = own_target(config);
        let admin = config
            .mysql
            .admin
            .as_ref()
            .map(|address| Target::new(tcp(address), &config.mysql.user, config.mysql.password.reveal()));
        let judge = Judge::new(health::Config {
            retries: config.heartbeat.retries,
            recover_after: config.heartbeat.recover_after,
            exit_grace: config.heartbeat.exit_grace,
        });
        let prober = Prober::new(target, admin, config.heartbeat.schema.clone());
        Self { prober, judge, config: config.clone(), shared: shared.clone(), mysqld, watermarks }
    }

    /// Runs until the program ends.
    pub async fn run(mut self) {
        let mut decisions = self.shared.decision.clone();
        let mut writes = false;
        loop {
            let due = Instant::now() + self.pause();
            self.once().await;
            loop {
                let exit = self.mysqld.borrow().clone();
                let wake = self.judge.wake_at().map(|at| at.until(now()));
                tokio::select! {
                    // The next probe is due.
                    () = sleep_until(due) => break,
                    // The process exits: known at once, not at the next probe.
                    () = exits(exit), if !self.known_exited() => self.judged(Outcome::Exited),
                    // `exit_grace` has passed.
                    () = sleep(wake.unwrap_or(Duration::MAX)), if wake.is_some() => {
                        self.judge.tick(now());
                        self.publish();
                    }
                    // Another process is there: look at it at once.
                    Ok(()) = self.mysqld.changed() => {
                        self.judged(Outcome::NewProcess);
                        break;
                    }
                    // The role changed between writing and reading the heartbeat.
                    Ok(()) = decisions.changed() => {
                        let write = decisions.borrow_and_update().as_ref().is_some_and(|decision| decision.heartbeat_write);
                        if write != std::mem::replace(&mut writes, write) && write {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn pause(&self) -> Duration {
        match self.judge.next() {
            Next::Interval => self.config.heartbeat.interval,
            Next::Retry => self.config.heartbeat.retry_interval,
        }
    }

    fn known_exited(&self) -> bool {
        matches!(self.judge.process(), crate::core::view::Process::Exited { .. })
    }

    /// One try; the exit of the process ends the waiting for it.
    async fn once(&mut self) {
        let own = self.shared.own.borrow().clone();
        let decision = self.shared.decision.borrow().clone();
        let beat = decision
            .filter(|decision| decision.heartbeat_write)
            .map(|decision| Beat { name: own.name.clone(), epoch: decision.epoch });
        let incarnation = incarnation(&self.mysqld, &own.boot_id);
        let exit = self.mysqld.borrow().clone();
        let known_exited = self.known_exited();
        let began = now();
        let tried = tokio::select! {
            tried = self.prober.probe(beat.as_ref(), &incarnation, self.config.heartbeat.timeout) => tried,
            // A process that has exited answers nothing more.
            () = exits(exit), if !known_exited => {
                self.judged(Outcome::Exited);
                return;
            }
        };
        self.shared.tally.probes.observe(now().since(began));
        if let Some(heartbeat) = &tried.heartbeat {
            self.watermarks.send_replace(heartbeat.executed.clone());
        }
        // The guard may have fenced it while we were frozen or cut off: without this a read-only of ours would count as set by
        // hand, and nobody would open the server again.
        let word = self.shared.guards_word(tried.facts.as_ref().map(|(facts, _)| facts)).await;
        self.shared.server.change(|server| {
            server.unacknowledged = tried.unacknowledged;
            if tried.heartbeat.is_some() {
                server.heartbeat = tried.heartbeat;
            }
            if let Some((facts, asked)) = tried.facts {
                server.take_reading(facts, asked, word.as_ref(), now());
            }
            if tried.unsupported.is_some() {
                server.unsupported = tried.unsupported;
            }
        });
        self.judged(tried.outcome);
    }

    fn judged(&mut self, outcome: Outcome) {
        let before = self.judge.health().clone();
        self.judge.observe(outcome, now());
        self.judge.tick(now());
        let after = self.judge.health().clone();
        if std::mem::discriminant(&before) != std::mem::discriminant(&after) {
            match &after {
                Health::Healthy => info!(event = "healthy", "the server answers"),
                Health::Unknown => {}
                Health::Blocked { by } => warn!(event = "blocked", %by, "a write does not finish; the server lives"),
                Health::Unreachable { why } => warn!(event = "unreachable", %why, "the server does not let us in"),
                Health::Failed { why, .. } => warn!(event = "failed", %why, "the server has failed"),
            }
        }
        self.publish();
    }

    fn publish(&self) {
        let (health, process) = (self.judge.health().clone(), self.judge.process());
        self.shared.server.change(|server| {
            server.health = health;
            server.process = process;
        });
    }
}

/// When a known process has exited; never for an unknown one.
async fn exits(mysqld: Option<Arc<Mysqld>>) {
    match mysqld {
        Some(mysqld) => mysqld.exited().await,
        None => std::future::pending().await,
    }
}
