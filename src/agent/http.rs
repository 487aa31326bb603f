//! What is said over HTTP: the sources of an answer, and the thread that gives it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, error};

use super::shared::{Shared, now};
use crate::config::Config;
use crate::core::records::HistoryRecord;
use crate::core::serving::Sight;
use crate::core::view::Ensemble;
use crate::host::clock;
use crate::host::limits::raise_open_files;
use crate::http::answer::{Known, answer};
use crate::http::server::{Handler, Limits, serve};
use crate::zookeeper::viewer::Viewer;
use crate::zookeeper::writer::Writer;

/// The thread's name. A panic in it fences nothing ([`super::fencer::on_panic`]).
pub const HTTP_THREAD: &str = "http";
/// How many connections may be open at once; fewer where the process may not open as many files.
const CONNECTIONS: u64 = 1100;
/// For a request to come, and for its answer to be taken.
const TIME: Duration = Duration::from_secs(5);
/// As many role changes as `history` shows.
const HISTORY: usize = 20;
/// When they are read again although nothing seems to have changed.
const READ_AGAIN: Duration = Duration::from_secs(60);

type History = watch::Receiver<Option<Arc<Vec<HistoryRecord>>>>;

/// Starts to answer; what comes back is where the address goes after a reload.
pub fn start(
    config: &Config,
    shared: &Shared,
    sight: watch::Receiver<Option<Arc<Sight>>>,
    guard: watch::Receiver<Option<bool>>,
    viewer: &Viewer,
    writer: &Writer,
) -> watch::Sender<Option<String>> {
    let (keep, history) = watch::channel(None);
    tokio::spawn(keep_history(writer.clone(), viewer.view(), keep));
    let handler = handler(shared.clone(), sight, guard, history);
    let (listen, address) = watch::channel(None);
    listen_at(&listen, config);
    // Half for everything else, which must not find that none is left.
    let most = (raise_open_files(2 * CONNECTIONS) / 2).min(CONNECTIONS);
    let limits = Limits { connections: usize::try_from(most).unwrap_or(1), time: TIME };
    let who = who(&config.cluster, &config.name);
    let thread = std::thread::Builder::new().name(HTTP_THREAD.to_owned()).spawn(move || {
        match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build() {
            Ok(runtime) => runtime.block_on(serve(address, who, limits, handler)),
            Err(error) => error!(event = "http_failed", %error, "HTTP is not answered: no runtime for it"),
        }
    });
    if let Err(error) = thread {
        error!(event = "http_failed", %error, "HTTP is not answered: no thread for it");
    }
    listen
}

/// What stands in the header `Server`.
#[must_use]
pub fn who(cluster: &str, name: &str) -> String {
    format!("mysql-ha-agent/{} ({cluster}/{name})", env!("CARGO_PKG_VERSION"))
}

/// The address in force from now on.
pub fn listen_at(listen: &watch::Sender<Option<String>>, config: &Config) {
    let address = config.http.listen.as_ref().map(ToString::to_string);
    listen.send_if_modified(|before| std::mem::replace(before, address.clone()) != address);
}

/// Takes copies, so that nobody who writes waits for an answer that is being made.
fn handler(
    shared: Shared,
    sight: watch::Receiver<Option<Arc<Sight>>>,
    guard: watch::Receiver<Option<bool>>,
    history: History,
) -> Handler {
    Arc::new(move |method, target| {
        let sight = sight.borrow().clone();
        let history = history.borrow().clone();
        let guard = *guard.borrow();
        let server = shared.server.get();
        let ages = {
            let own = shared.own.borrow();
            clock::ages(own.renew_interval, own.op_timeout)
        };
        let known = Known {
            sight: sight.as_deref(),
            server: &server,
            history: history.as_ref().map(|records| records.as_slice()),
            guard,
            tally: &shared.tally,
            ages: &ages,
            // Last: what was copied before can only be older than this.
            now: now(),
        };
        answer(method, target, &known)
    })
}

/// Keeps the newest role changes at hand: read when an epoch has been opened, and now and then.
async fn keep_history(
    writer: Writer,
    mut ensemble: watch::Receiver<Arc<Ensemble>>,
    keep: watch::Sender<Option<Arc<Vec<HistoryRecord>>>>,
) {
    let opened = |ensemble: &Ensemble| {
        let topology = ensemble.topology.record().filter(|topology| topology.primary.is_some())?;
        Some(topology.epoch)
    };
    loop {
        let epoch = opened(&ensemble.borrow_and_update());
        match writer.history(HISTORY).await {
            Ok(records) => drop(keep.send_replace(Some(Arc::new(records)))),
            Err(why) => debug!(why, "the history could not be read"),
        }
        // The record of a role change is written a moment after the change is seen.
        sleep(Duration::from_secs(1)).await;
        let newest = keep.borrow().as_ref().and_then(|records| records.last().map(|record| record.epoch));
        let behind = keep.borrow().is_none() || (epoch.is_some_and(|epoch| epoch > 1) && newest != epoch);
        let pause = if behind { Duration::from_secs(1) } else { READ_AGAIN };
        let changes = async {
            while opened(&ensemble.borrow_and_update()) == epoch {
                if ensemble.changed().await.is_err() {
                    return std::future::pending().await;
                }
            }
        };
        let _ = timeout(pause, changes).await;
    }
}
