//! What a test stands on: its folder, its network, its runtime.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use super::network::Network;
use super::process::{Bond, command};

/// The stage of one test: where its files lie and where its hosts live. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Stage(Arc<Inner>);

struct Inner {
    folder: PathBuf,
    /// Unix sockets have a folder of their own, since the path of one may have no more than 107 bytes.
    sockets: PathBuf,
    network: Network,
    bond: Bond,
    clusters: AtomicU8,
}

/// Runs a test's body on a stage of its own. Its files are removed when the body returns, and kept when it panics (until
/// the same test runs again). `cargo test --test … -- --test-threads=1`: two clusters at once are too much for a
/// small machine.
pub(crate) fn run<T: Send>(name: &str, body: impl AsyncFnOnce(Stage) -> T + Send) -> T {
    run_bound(name, Bond::Bound, body)
}

/// Like [`run`], but all that was started stays, with its files, unless the body panics.
pub(crate) fn run_kept<T: Send>(name: &str, body: impl AsyncFnOnce(Stage) -> T + Send) -> T {
    run_bound(name, Bond::Free, body)
}

fn run_bound<T: Send>(name: &str, bond: Bond, body: impl AsyncFnOnce(Stage) -> T + Send) -> T {
    let perform = move || {
        let stage = Stage::new(name, bond);
        // Before any other thread is started from here: threads inherit the namespace, and sockets are made in that of
        // the thread that makes them.
        stage.network().enter();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(4)
            .enable_all()
            .build()
            .expect("a runtime can be built");
        runtime.block_on(body(stage))
    };
    // A thread of its own, whatever thread the test runner uses: the namespace must not stick to that one.
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, perform);
        thread.expect("one more thread can be started").join()
    })
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Stage {
    fn new(name: &str, bond: Bond) -> Self {
        command(&[&repository().join("tests/servers").display().to_string()]);
        let live = repository().join("target/live");
        sweep(&live, name);
        let folder = live.join(format!("{name}-{}", std::process::id()));
        // Numbered: tests of one program may run side by side.
        static NUMBER: AtomicU8 = AtomicU8::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let sockets = std::env::temp_dir().join(format!("{SOCKETS}{number}-{}", std::process::id()));
        for path in [&folder, &sockets] {
            std::fs::create_dir_all(path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        }
        Self(Arc::new(Inner { folder, sockets, network: Network::new(bond), bond, clusters: AtomicU8::new(0) }))
    }

    /// Where everything of this test lies.
    pub(crate) fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// Where the Unix sockets lie.
    pub(crate) fn sockets(&self) -> &Path {
        &self.0.sockets
    }

    /// Whether hosts can be cut off and packets dropped; with loopback addresses they cannot.
    pub(crate) fn can_partition(&self) -> bool {
        matches!(self.0.network, Network::Namespaces(_))
    }

    pub(super) fn network(&self) -> &Network {
        &self.0.network
    }

    pub(super) fn bond(&self) -> Bond {
        self.0.bond
    }

    pub(super) fn next_cluster(&self) -> u8 {
        self.0.clusters.fetch_add(1, Ordering::Relaxed)
    }

    /// What `tests/servers` made, by its name below `target/servers`.
    pub(super) fn servers(&self, name: &str) -> PathBuf {
        repository().join("target/servers").join(name)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::fs::write(self.folder.join(KEPT), "").unwrap_or_default();
            eprintln!("\nthe files of this test are kept in {}", self.folder.display());
        } else if self.bond == Bond::Free {
            return;
        } else {
            std::fs::remove_dir_all(&self.folder).unwrap_or_default();
        }
        std::fs::remove_dir_all(&self.sockets).unwrap_or_default();
        if let Network::Namespaces(hub) = &mut self.network {
            hub.kill();
        }
    }
}

const SOCKETS: &str = "mysql-ha-live-";
/// Marks the folder of a test that failed.
const KEPT: &str = "FAILED";

/// The repository's top folder.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Removes what runs that are dead left behind (they were killed), and what an earlier failure of this test kept. Their
/// processes and namespaces ended with them.
fn sweep(live: &Path, name: &str) {
    for (folder, prefix) in [(live.to_path_buf(), ""), (std::env::temp_dir(), SOCKETS)] {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            let Some((what, pid)) = file.rsplit_once('-').filter(|_| file.starts_with(prefix)) else { continue };
            let dead = pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
            let kept = what != name && entry.path().join(KEPT).exists();
            if dead && !kept && !entry.path().join(LEFT_RUNNING).exists() {
                std::fs::remove_dir_all(entry.path()).unwrap_or_default();
            }
        }
    }
}

/// Marks a folder whose servers were left running on purpose.
pub(super) const LEFT_RUNNING: &str = "RUNNING";
