//! Start-up, the tasks, the orderly stop.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tracing::{error, info, warn};

use super::acquaint::acquaint;
use super::fencer::{Fencer, on_panic};
use super::http;
use super::kept::{keep_holdings, opened_epoch, watch_fence_marker};
use super::lanes::{MysqlLane, ZookeeperLane, write_notes};
use super::last_seen::Noting;
use super::note::{self, Note};
use super::reload::reloads;
use super::renewal::{Renewals, look_for_guard, mirror};
use super::shared::{Busy, Deadline, GuardsFile, Notes, ServerCell, Shared, now};
use super::turn::Turn;
use super::watcher::{self, Hands, Watcher};
use crate::cli::exit::Exit;
use crate::config::sections::{Endpoint, Readers};
use crate::config::{Config, HostPort};
use crate::core::degrade::Policy;
use crate::core::gtid::GtidSet;
use crate::core::holdings::Holdings;
use crate::core::memory::Memory;
use crate::core::records::{Mode, Role};
use crate::core::view::{Held, Own};
use crate::host::clock;
use crate::host::lease_file::{self, LeaseFile};
use crate::host::notify::{self, Notifier};
use crate::host::presence;
use crate::host::state_dir::{StateDir, StateDirError, fence_marker};
use crate::http::tally::Tally;
use crate::mysql::connect::{Place, Target};
use crate::zookeeper::lease_keeper::LeaseKeeper;
use crate::zookeeper::name::Name;
use crate::zookeeper::session::{self, Auth, Link};
use crate::zookeeper::tree::Tree;
use crate::zookeeper::viewer::Viewer;
use crate::zookeeper::writer::Writer;

/// Why the agent ends: an exit code and a text for stderr.
pub type End = (Exit, String);

/// A look at the tree: `leave_behind` for the agent, whose session must outlive a restart.
#[must_use]
pub fn open_tree(config: &Config, leave_behind: bool) -> (Viewer, Writer) {
    let (_, viewer, writer) = open_link(config, leave_behind);
    (viewer, writer)
}

fn open_link(config: &Config, leave_behind: bool) -> (Link, Viewer, Writer) {
    let zookeeper = &config.zookeeper;
    let readers = match &zookeeper.readers {
        Readers::World => session::Readers::World,
        Readers::Digests(digests) => session::Readers::Digest(digests.clone()),
    };
    let auth = zookeeper.auth.as_ref().map(|auth| Auth {
        user: auth.user.clone(),
        password: auth.password.reveal().to_owned(),
        readers: readers.clone(),
    });
    let link = Link::open(
        session::Options {
            hosts: zookeeper.hosts.iter().map(ToString::to_string).collect(),
            session_timeout: zookeeper.session_timeout,
            op_timeout: zookeeper.op_timeout,
            auth,
            leave_behind,
        },
        clock::now,
    );
    let tree = Tree::new(&zookeeper.root, &config.cluster);
    let viewer = Viewer::start(&link, tree.clone(), clock::now);
    let writer = Writer::new(&link, tree);
    (link, viewer, writer)
}

/// The agent's account on its own server.
#[must_use]
pub fn own_target(config: &Config) -> Target {
    let place = match &config.mysql.endpoint {
        Endpoint::Socket(path) => Place::Socket(path.clone()),
        Endpoint::Tcp(address) => tcp(address),
    };
    Target::new(place, &config.mysql.user, config.mysql.password.reveal())
}

/// Where a configured address leads.
pub(super) fn tcp(address: &HostPort) -> Place {
    Place::Tcp { host: address.host.clone(), port: address.port }
}

/// Identity and policy for the core.
///
/// # Errors
/// The host's boot id cannot be read.
pub fn own(config: &Config, instance: &str, managed: bool) -> std::io::Result<Own> {
    let life =
        Life { boot_id: clock::boot_id()?, home: home(&config.state_dir), instance: instance.to_owned(), managed };
    Ok(configured(config, life))
}

/// What of [`Own`] stands in no file and stays as it is while the program runs.
struct Life {
    boot_id: String,
    home: Option<String>,
    instance: String,
    managed: bool,
}

/// The one place where keys become [`Own`], at the start and at a reload alike: a key that a reload applies cannot be forgotten.
fn configured(config: &Config, life: Life) -> Own {
    Own {
        cluster: config.cluster.clone(),
        name: config.name.clone(),
        address: config.mysql.advertise.to_string(),
        zone: config.zone.clone(),
        tags: config.tags.clone(),
        boot_id: life.boot_id,
        home: life.home,
        instance: life.instance,
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        mode: config.failover.mode,
        cooldown: config.failover.cooldown,
        priority: config.failover.priority,
        durability: config.failover.durability,
        sync_replicas: config.failover.sync_replicas,
        max_lag: config.failover.max_lag,
        catch_up_timeout: config.failover.catch_up_timeout,
        renew_interval: config.zookeeper.renew_interval,
        op_timeout: config.zookeeper.op_timeout,
        fencing_budget: config.fencing.budget,
        kill_connections: config.fencing.kill_connections,
        heartbeat_interval: config.heartbeat.interval,
        heartbeat_timeout: config.heartbeat.timeout,
        replication_user: config.mysql.replication.user.clone(),
        failsafe: config.failover.failsafe,
        degrade: Policy {
            period: config.degrade.check_period.unwrap_or(config.heartbeat.interval),
            times: config.degrade.allow_times,
        },
        managed: life.managed,
    }
}

/// The same after a reload. `config`: what is in force then ([`Config::reloaded`]).
fn reconfigured(own: &Own, config: &Config) -> Own {
    let Own { boot_id, home, instance, managed, .. } = own.clone();
    configured(config, Life { boot_id, home, instance, managed })
}

/// The directory itself and not its path, which two agents may write differently.
fn home(state_dir: &std::path::Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(state_dir).ok()?;
    Some(format!("{:x}:{:x}", found.dev(), found.ino()))
}

/// Runs the agent until it is told to stop, refuses, or a part of it fails.
pub async fn run(config: Config, path: &std::path::Path) -> End {
    for key in config.not_yet_in_force() {
        warn!(event = "not_in_force", key, "this key is set and has no effect in this version");
    }
    let panic = on_panic();
    let start = match Start::new(config) {
        Ok(start) => start,
        Err(end) => return end,
    };
    start.go(panic, path).await
}

/// An observer of a primary would let its lease run out and not fence its server.
const OBSERVED_PRIMARY: &str = "this server is the primary under a lease that has not run out, and failover.mode is observe: give \
                                the role to another server first ('mysql-ha-agent promote'); nothing was changed";

/// What a start needs before any task runs.
struct Start {
    config: Config,
    own: Own,
    state_dir: StateDir,
    lease_file: Option<LeaseFile>,
    inherited: Option<Held>,
}

impl Start {
    fn new(config: Config) -> Result<Self, End> {
        let state_dir = StateDir::take(&config.state_dir).map_err(|error| match error {
            StateDirError::InUse { .. } => (Exit::Refused, error.to_string()),
            _ => (Exit::Usage, error.to_string()),
        })?;
        let marker = state_dir.member().unwrap_or_else(|error| {
            warn!(%error, "the marker of this server cannot be read and counts as absent");
            None
        });
        let managed = marker.is_some_and(|marker| marker.adopted && marker.cluster == config.cluster);
        let host = |error: std::io::Error| (Exit::Usage, format!("this host cannot be examined: {error}"));
        let instance = clock::new_instance().map_err(host)?;
        let own = own(&config, &instance, managed).map_err(host)?;
        let path = LeaseFile::path_in(&config.run_dir, &config.cluster, &config.name);
        let inherited = inherited_lease(&path, &own.boot_id);
        if own.mode == Mode::Observe && inherited.is_some() {
            return Err((Exit::Refused, OBSERVED_PRIMARY.to_owned()));
        }
        let lease_file =
            (own.mode != Mode::Observe).then(|| LeaseFile::open(&path, &own.boot_id, &instance)).and_then(|file| {
                file.inspect_err(|error| warn!(%error, "no lease file: a restart of this agent will fence its server"))
                    .ok()
            });
        Ok(Self { config, own, state_dir, lease_file, inherited })
    }

    async fn go(self, panic: super::fencer::PanicFlag, path: &std::path::Path) -> End {
        let Start { config, own, state_dir, lease_file, inherited } = self;
        let (link, viewer, writer) = open_link(&config, true);
        let (own_sender, own_receiver) = watch::channel(Arc::new(own));
        let (decisions, decision) = watch::channel(None);
        let (watermarks, watermark) = watch::channel(GtidSet::new());
        let fence_note = Note::of_fence(&config.state_dir);
        let noted = fence_note.read();
        // An observer leaves nothing behind that a later life in another mode would go by.
        let notes_it = own_receiver.borrow().mode != Mode::Observe;
        let holdings_note = Note::of_holdings(&config.state_dir);
        let holdings = holdings_note.read().map(|text| Holdings::of(&text)).unwrap_or_default();
        let notes = || Notes { fence: note::keep(fence_note), holdings: note::keep(holdings_note) };
        let server = ServerCell::new(noted.as_deref(), holdings, notes_it.then(notes));
        let marker = fence_marker(&config.state_dir);
        // Before any task runs: a restarted agent must not open what was fenced by hand.
        let fenced_by_hand = marker.try_exists().unwrap_or_else(|error| {
            warn!(%error, marker = %marker.display(), "the marker of 'fence' cannot be looked for and counts as absent");
            false
        });
        server.change(|server| server.fenced_by_hand = fenced_by_hand);
        tokio::spawn(keep_holdings(server.clone()));
        tokio::spawn(watch_fence_marker(config.state_dir.clone(), server.clone()));
        let guard_path = presence::guard_path(&config.run_dir, &config.cluster, &config.name);
        let boot_id = own_receiver.borrow().boot_id.clone();
        let guard = GuardsFile::new(guard_path.clone(), &boot_id);
        let tally = Arc::<Tally>::default();
        let shared = Shared { own: own_receiver, server, decision, watermark, guard, tally };
        let name = Arc::new(Name::new(writer.clone(), config.name.clone(), clock::now));
        let instance = shared.own.borrow().instance.clone();
        let keeper = LeaseKeeper::new(writer.clone(), name.clone(), config.name.clone(), instance, clock::now);
        let keeper = Arc::new(keeper);

        let (hurry, hurried) = mpsc::channel(1);
        let (orders, ordered) = mpsc::channel(4);
        let (notes, noted) = mpsc::channel(64);
        let (fatal, mut ended) = mpsc::channel::<End>(4);

        let deadline = Deadline::new(keeper.until());
        let mysqld = watcher::watch_process(&config);
        let fencer = Fencer {
            shared: shared.clone(),
            fence: watcher::fence(&config, mysqld.clone()),
            deadline: deadline.clone(),
            orders: ordered,
            panic,
            last: None,
        };
        let fenced = tokio::spawn(fencer.run());
        let (mirrored, held) = watch::channel(None);
        let (acknowledged, acknowledgements) = watch::channel(None);
        tokio::spawn(mirror(keeper.held(), acknowledgements, lease_file, mirrored));
        let (guards, guard) = watch::channel(None);
        tokio::spawn(look_for_guard(guard_path, guards));
        tokio::spawn(watch_timing(link, config.clone(), fatal.clone()));
        let renewals = Renewals {
            shared: shared.clone(),
            keeper: keeper.clone(),
            name,
            writer: writer.clone(),
            ensemble: viewer.view(),
            session: 0,
            guard,
            hurry: hurried,
            fatal: fatal.clone(),
        };
        let (sights, sight) = watch::channel(None);
        let listen = http::start(&config, &shared, sight, renewals.guard.clone(), &viewer, &writer);
        tokio::spawn(renewals.run());
        if config.failover.mode != Mode::Observe {
            tokio::spawn(acquaint(config.mysql.replication.clone(), config.name.clone(), viewer.view()));
        }
        tokio::spawn(write_notes(writer.clone(), noted));
        if notes_it {
            let (state_dir, mysqld) = (config.state_dir.clone(), mysqld.clone());
            tokio::spawn(Noting { state_dir, shared: shared.clone(), mysqld, ensemble: viewer.view() }.run());
        }
        let hands = Hands::new(&config, &boot_id, mysqld.clone());
        tokio::spawn(Watcher::new(&config, &shared, mysqld, watermarks).run());
        let mysql = MysqlLane { busy: Busy::default(), hands, shared: shared.clone() };
        tokio::spawn(mysql.clone().keep_open());
        let (opened_note, epoch_note) = (Note::of_opening(&config.state_dir), Note::of_epoch(&config.state_dir));
        // What an earlier process noted for this one.
        let remembered = Memory {
            opened_incarnation: opened_note.read(),
            opened_epoch: opened_epoch(&epoch_note, &boot_id, now()),
            ..Memory::default()
        };
        let turn = Turn {
            shared: shared.clone(),
            ensemble: viewer.view(),
            held,
            inherited,
            deadline,
            acknowledged,
            decisions,
            sights,
            zookeeper: ZookeeperLane { busy: Busy::default(), keeper, viewer, refused: Arc::default() },
            mysql,
            notes,
            fence: orders,
            hurry,
            notifier: Notifier::default(),
            remembered,
            opened_note: note::keep(opened_note),
            epoch_note: note::keep(epoch_note),
            state_dir: Arc::new(state_dir),
            marked: false,
        };
        tokio::spawn(async move {
            let refusal = turn.run().await;
            let _ = fatal.send((Exit::Refused, refusal)).await;
        });
        let reload = reload_on_hangup(config, path.to_owned(), own_sender, listen);
        tokio::select! {
            // A part refused to go on.
            Some(end) = ended.recv() => end,
            // A panic was answered with a fence.
            _ = fenced => (Exit::No, "a part of the agent has failed (see the log above); the server was made read-only".to_owned()),
            // systemd or an operator stops us: the lease stays behind, a restart takes it over.
            () = notify::told_to_stop() => {
                shared.server.settle().await;
                stopped(&shared)
            }
            // Never ends.
            () = reload => (Exit::No, "unreachable: reloading ended".to_owned()),
        }
    }
}

/// The lease that our predecessor on this boot left: until its end the server may go on taking writes.
fn inherited_lease(path: &std::path::Path, boot_id: &str) -> Option<Held> {
    let state = match lease_file::read(path) {
        Ok(Some(Ok(state))) => state,
        Ok(None) => return None,
        Ok(Some(Err(error))) => {
            warn!(%error, path = %path.display(), "the lease file is not valid and counts as absent");
            return None;
        }
        Err(error) => {
            warn!(%error, path = %path.display(), "the lease file cannot be read and counts as absent");
            return None;
        }
    };
    let until = state.until.filter(|until| state.boot_id == boot_id && *until > now())?;
    // The epoch is not in the file; the core compares it only where `topology` is known, and by then asks `master`.
    Some(Held { epoch: 0, until, opened: true, inherited: true, proof: Duration::ZERO })
}

/// Checks the inequality of the timing with what the ensemble granted, at the start and after every reconnection.
async fn watch_timing(link: Link, config: Config, fatal: mpsc::Sender<End>) {
    let mut changes = link.changes();
    let mut first = true;
    loop {
        let live = link.live();
        if let Ok(live) = live {
            let granted = live.granted;
            let timing = config.timing(granted);
            match timing.check() {
                Ok(()) => info!(event = "connected", granted_ms = granted.as_millis(), "connected to ZooKeeper"),
                Err(fault) if first => {
                    let text =
                        format!("the ensemble granted a session timeout of {:.1} s: {fault}", granted.as_secs_f64());
                    let _ = fatal.send((Exit::Usage, text)).await;
                    return;
                }
                Err(fault) => {
                    error!(event = "timing", %fault, "the ensemble granted another session timeout than before")
                }
            }
            first = false;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn stopped(shared: &Shared) -> End {
    notify::stopping();
    let role = shared.decision.borrow().as_ref().map_or(Role::Unknown, |decision| decision.outcome.role);
    if role == Role::Primary {
        warn!(
            event = "stopped",
            "the agent of the PRIMARY stops and leaves its lease behind: start it again before the lease ends, or another \
             server takes over (switch first with 'mysql-ha-agent promote')"
        );
    } else {
        info!(event = "stopped", "the agent stops");
    }
    (Exit::Done, String::new())
}

/// Puts into force what SIGHUP has read again.
async fn reload_on_hangup(
    mut config: Config,
    path: std::path::PathBuf,
    own: watch::Sender<Arc<Own>>,
    listen: watch::Sender<Option<String>>,
) {
    let mut reloads = reloads(path);
    while let Some(next) = reloads.recv().await {
        let changes = config.reload_differences(&next);
        info!(event = "reloaded", applied = ?changes.applied, "configuration read again");
        if !changes.needs_restart.is_empty() {
            warn!(event = "needs_restart", keys = ?changes.needs_restart, "these keys take effect at the next start");
        }
        config = config.reloaded(&next);
        own.send_modify(|own| *own = Arc::new(reconfigured(own, &config)));
        http::listen_at(&listen, &config);
    }
    std::future::pending().await
}

/// A moment long past, for tests of the inherited lease.
#[cfg(test)]
const NEVER: crate::core::time::Moment = crate::core::time::Moment(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each with a value that is not its default.
    #[test]
    fn every_key_that_a_reload_applies_reaches_the_decisions() {
        let least = "cluster: orders\nname: db1\nzookeeper: {hosts: ['zk1:2181']}\nmysql: {user: agent, password: a, \
                     advertise: 'db1:3306', replication: {user: repl, password: b}}\n";
        let read = |more: &str| {
            let failover = if more.contains("failover: {") { "" } else { "failover: {durability: lossless}\n" };
            crate::config::parse(&format!("{least}{failover}{more}"), "agent.yaml", &|_| None).unwrap()
        };
        let before = read("");
        let running = own(&before, "instance", true).unwrap();
        for more in [
            "failover: {durability: async}",
            "failover: {durability: lossless, sync_replicas: 2}",
            "failover: {durability: lossless, priority: 7}",
            "failover: {durability: lossless, max_lag: 7s}",
            "failover: {durability: lossless, catch_up_timeout: 7s}",
            "degrade: {check_period: 7s}",
            "degrade: {allow_times: 7}",
            "degrade: {allow_times: 0}",
            "fencing: {kill_connections: false}",
            "tags: {rack: seven}",
        ] {
            let next = read(more);
            let applied = reconfigured(&running, &before.reloaded(&next));
            assert_eq!(before.reload_differences(&next).needs_restart, Vec::<String>::new(), "{more}");
            assert_ne!(applied, running, "{more} is not applied");
            assert_eq!(applied, own(&next, "instance", true).unwrap(), "{more}");
        }
        // What needs a restart stays, also beside something that does not.
        let next = read("failover: {durability: lossless, mode: manual, priority: 7}");
        let applied = reconfigured(&running, &before.reloaded(&next));
        assert_eq!((applied.mode, applied.priority), (running.mode, 7));
    }

    #[test]
    fn a_lease_of_another_boot_or_of_the_past_is_not_inherited() {
        let folder = tempfile::tempdir().unwrap();
        let path = LeaseFile::path_in(folder.path(), "orders", "db1");
        assert_eq!(inherited_lease(&path, "boot"), None);
        let mut file = LeaseFile::open(&path, "boot", "one").unwrap();
        let until = now() + std::time::Duration::from_secs(60);
        file.write(Some(until)).unwrap();
        assert_eq!(inherited_lease(&path, "boot").map(|held| held.until), Some(until));
        assert_eq!(inherited_lease(&path, "another boot"), None);
        file.write(Some(NEVER)).unwrap();
        assert_eq!(inherited_lease(&path, "boot"), None);
        file.write(None).unwrap();
        assert_eq!(inherited_lease(&path, "boot"), None);
    }
}
