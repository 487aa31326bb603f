//! What systemd is told (`sd_notify(3)`): ready, the status line, the watchdog's food; and what it tells us: to stop.
//!
//! All of it comes from the decision loop and from nowhere else: a loop that hangs must starve the watchdog, also where
//! every other task goes on. Without systemd nothing happens.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::signal::unix::{SignalKind, signal};

use crate::core::time::Moment;

/// Between two pings. systemd's `WatchdogSec` in the unit is 10 s.
const PING: Duration = Duration::from_secs(1);

/// The connection to systemd of the one process there is.
#[derive(Debug, Default)]
pub struct Notifier {
    pinged: Option<Moment>,
}

impl Notifier {
    /// The loop has turned at `now`. The first turn is also the word that the service is ready: an outage of ZooKeeper or
    /// MySQL must not become a restart loop.
    pub fn turned(&mut self, now: Moment) {
        match self.pinged {
            Some(last) if now.since(last) < PING => return,
            Some(_) => send(&NotifyState::Watchdog),
            None => send(&NotifyState::Ready),
        }
        self.pinged = Some(now);
    }

    /// Role and reason in words, for `systemctl status`.
    pub fn status(&self, text: &str) {
        send(&NotifyState::Status(text));
    }
}

/// The process is about to end in an orderly way.
pub fn stopping() {
    send(&NotifyState::Stopping);
}

/// A socket that is gone is systemd's matter: there is nothing to be done about it here.
fn send(state: &NotifyState<'_>) {
    let _ = sd_notify::notify(std::slice::from_ref(state));
}

/// Ends when systemd or an operator asks for the program's end: SIGTERM or SIGINT.
pub async fn told_to_stop() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
