//! Ctrl-C, SIGTERM and a closed terminal: the demo ends in good order, and takes everything with it.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Asks the demo to end. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Interrupt(watch::Sender<Option<i32>>);

impl Interrupt {
    /// Listens for signals from now on, on a thread of its own: it has to work before the demo's runtime is there.
    pub(crate) fn listen() -> Self {
        let interrupt = Self(watch::channel(None).0);
        let (ours, (ready, listening)) = (interrupt.clone(), std::sync::mpsc::channel());
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime can be built");
            runtime.block_on(async {
                let open = |kind| signal(kind).unwrap_or_else(|error| panic!("cannot listen for signals: {error}"));
                let (mut int, mut term, mut hup) =
                    (open(SignalKind::interrupt()), open(SignalKind::terminate()), open(SignalKind::hangup()));
                let _ = ready.send(());
                loop {
                    // 128 + the signal's number is what a shell reports for a program that was ended by one.
                    let code = tokio::select! {
                        _ = int.recv() => 130,
                        _ = term.recv() => 143,
                        _ = hup.recv() => 129,
                    };
                    ours.raise(code);
                }
            });
        });
        let _ = listening.recv();
        interrupt
    }

    /// Ends the demo with this exit code; the first one counts.
    pub(crate) fn raise(&self, code: i32) {
        self.0.send_if_modified(|now| {
            let first = now.is_none();
            *now = Some(now.unwrap_or(code));
            first
        });
    }

    /// Whether it was asked to end.
    pub(crate) fn is_raised(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until it is asked to end; the exit code.
    pub(crate) async fn raised(&self) -> i32 {
        let mut receiver = self.0.subscribe();
        match receiver.wait_for(Option::is_some).await {
            Ok(code) => (*code).unwrap_or(1),
            // Cannot be: we hold a sender.
            Err(_) => 1,
        }
    }
}
