//! Makes the server read-only: by order of the decision loop, or by itself when the lease's end is near.
//!
//! This task waits for nobody: it reads the deadline from atomics that the renewals and, with the failsafe, acknowledged heartbeats
//! write, and its connection is its own and stays open. It is also where every panic of the program ends ([`on_panic`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use tracing::{debug, error, info, warn};

use super::http::HTTP_THREAD;
use super::shared::{Deadline, Shared, now};
use crate::core::fencing::{Rung, time_for};
use crate::core::reason::Reason;
use crate::core::records::Mode;
use crate::core::time::Moment;
use crate::http::tally::NO_RUNG;
use crate::mysql::fence::{Fence, Fenced, KEEP_OPEN, limit_of_use};

/// The longest sleep between two looks at the deadline. A renewal only moves it away, without waking us; a lease just taken
/// is seen this much later, long before its end (the sum of [`crate::core::timing`] leaves more than that).
const LOOK: Duration = Duration::from_millis(250);
/// How long after a fence the deadline rests, so that a lease that stays lost is not fenced for again at once.
const REST: Duration = Duration::from_millis(500);

/// Set by the panic hook.
#[derive(Debug, Clone, Default)]
pub struct PanicFlag {
    raised: Arc<AtomicBool>,
    wake: Arc<Notify>,
}

/// From now on a panic in any thread but the one for HTTP raises the flag, after the usual message.
#[must_use]
pub fn on_panic() -> PanicFlag {
    let flag = PanicFlag::default();
    let raise = flag.clone();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        // It watches over nothing: a fault in an answer to a stranger must not make the server read-only.
        if std::thread::current().name() == Some(HTTP_THREAD) {
            return;
        }
        raise.raised.store(true, Ordering::Release);
        raise.wake.notify_one();
    }));
    flag
}

/// The fencing task.
#[derive(Debug)]
pub struct Fencer {
    /// What the tasks share.
    pub shared: Shared,
    /// The connection and the ladder.
    pub fence: Fence,
    /// Until when the server may take writes.
    pub deadline: Deadline,
    /// Orders of the decision loop.
    pub orders: mpsc::Receiver<Reason>,
    /// Raised by a panic.
    pub panic: PanicFlag,
    /// When the last fence ended.
    pub last: Option<Moment>,
}

impl Fencer {
    /// Runs until a panic has been answered with a fence.
    pub async fn run(mut self) {
        loop {
            let Self { shared, fence, deadline, last, orders, panic } = &mut self;
            let reason = tokio::select! {
                // A panic anywhere: whatever the lease says, nobody watches over this server any more.
                () = panic.wake.notified() => Reason::Fenced,
                // The decision loop saw a server that must not take writes.
                Some(reason) = orders.recv() => reason,
                // The lease's end is near and nobody renewed it.
                () = lease_ends(shared, deadline, *last) => Reason::LeaseLost,
                // At rest. Dropped half way by any of the others: on a server that hangs they would wait for it.
                () = keep_open(shared, fence, deadline) => continue,
            };
            self.fence_now(reason).await;
            if self.panic.raised.load(Ordering::Acquire) {
                self.shared.server.settle().await;
                error!(
                    event = "panic",
                    "a part of the agent has failed; the server was made read-only (unless only observed), the agent ends"
                );
                return;
            }
            while self.orders.try_recv().is_ok() {}
        }
    }

    async fn fence_now(&mut self, reason: Reason) {
        if self.shared.own.borrow().mode == Mode::Observe {
            warn!(event = "fencing", %reason, "would make the server read-only, but failover.mode is observe");
            return;
        }
        let started = now();
        let until = self.deadline.get();
        let budget = time_for(self.shared.own.borrow().fencing_budget, until, started);
        warn!(event = "fencing", %reason, "makes the server read-only");
        // Its first rungs are ours, also where it turns out not to be needed.
        self.shared.server.change(|server| server.fence_begins_for(reason, started));
        // By itself, for the lease's end: needed until the lease is renewed. By order: whatever the lease says.
        let deadline = self.deadline.clone();
        let needed = || reason != Reason::LeaseLost || deadline.get() <= until;
        let report = self.fence.climb(budget, needed).await;
        let rung = report.rung.map_or(NO_RUNG, Rung::code);
        if !report.trouble.is_empty() {
            warn!(rung, trouble = report.trouble.join("; "), "read-only did not come at once");
        }
        self.last = Some(now());
        let ms = now().since(started).as_secs_f64() * 1000.0;
        match &report.fenced {
            Fenced::ReadOnly => info!(event = "fenced", %reason, ms, rung, "the server is read-only"),
            Fenced::Dead => {
                warn!(event = "fenced", %reason, ms, "mysqld did not become read-only in time and was killed")
            }
            Fenced::Failed(why) => {
                error!(event = "fence_failed", %reason, ms, %why, "the server could not be made read-only")
            }
            Fenced::Withdrawn => info!(event = "fence_withdrawn", %reason, ms, "the lease was renewed: fences no more"),
        }
        if matches!(report.fenced, Fenced::ReadOnly | Fenced::Dead) {
            self.shared.tally.fences.add(rung);
            self.shared.server.change(|server| server.fence_returned(reason, now()));
        }
    }
}

/// Uses the fence's connections once, after a while: they stay open, since a new one takes longer than a fence.
async fn keep_open(shared: &Shared, fence: &mut Fence, deadline: &Deadline) {
    sleep(KEEP_OPEN).await;
    // One for each connection.
    if let Some(limit) = limit_of_use(time_before_fence(shared, deadline), 2)
        && let Err(fault) = fence.keep_open(limit).await
    {
        debug!(%fault, "the fence's connections are not open");
    }
}

/// How long until the lease's end makes us fence; without a lease for ever.
fn time_before_fence(shared: &Shared, deadline: &Deadline) -> Duration {
    match deadline.get() {
        None => Duration::MAX,
        Some(until) => (until - shared.own.borrow().fencing_budget).until(now()),
    }
}

/// Ends when the server takes writes and the lease is about to end.
async fn lease_ends(shared: &Shared, deadline: &Deadline, last: Option<Moment>) {
    loop {
        let start = deadline.get().map(|until| until - shared.own.borrow().fencing_budget);
        let rested = last.is_none_or(|last| now().since(last) > REST);
        let writable = shared.server.writable();
        // A deadline that was taken away is the decision loop's business: it knows who has the role now.
        if start.is_some_and(|start| now() >= start) && rested && writable {
            return;
        }
        let wait = start.map_or(LOOK, |start| start.until(now()));
        sleep(wait.clamp(Duration::from_millis(1), LOOK)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_fences_unless_it_came_in_an_answer_over_http() {
        let flag = on_panic();
        let panics = |name: &str| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(|| panic!("on purpose"));
            assert!(thread.expect("a thread can be started").join().is_err());
        };
        panics(HTTP_THREAD);
        assert!(!flag.raised.load(Ordering::Acquire));
        panics("another");
        assert!(flag.raised.load(Ordering::Acquire));
    }
}
