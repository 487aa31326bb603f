//! SIGHUP: the configuration file is read again.

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing::error;

use crate::config::{self, Config};

/// Each configuration that was read again and can work. Read beside, so that neither a disk that hangs nor a future that is
/// dropped half way loses a signal or holds anybody up. A file that cannot work is reported and changes nothing. Must run
/// within tokio.
#[must_use]
pub fn reloads(path: PathBuf) -> mpsc::Receiver<Config> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        // Without the signal's handler the channel closes: nothing is ever read again.
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            let path = path.clone();
            match tokio::task::spawn_blocking(move || config::load(&path)).await {
                Ok(Ok(next)) => drop(sender.send(next).await),
                Ok(Err(faults)) => error!(event = "reload_failed", "the configuration stays as it was: {faults}"),
                Err(error) => error!(event = "reload_failed", %error, "the configuration stays as it was"),
            }
        }
    });
    receiver
}
