//! A client that writes all the while, as an application with a good driver would.
//!
//! It follows `topology` by a watch and keeps a connection open to every member (a new one takes 25 ms). Each worker
//! writes one row after another to the primary that the newest topology names. A write that hangs is left behind as soon as
//! the topology names another primary; its answer, should one still come, counts all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, oneshot, watch};
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::line::{Answer, Line, Order};

/// Where the writer finds the primary.
#[derive(Clone, Debug)]
pub(crate) enum Follow {
    /// `topology` in ZooKeeper.
    Topology,
    /// Always this host: for a cluster without agents.
    Fixed(String),
}

/// What a test may choose about its writer.
#[derive(Clone, Debug)]
pub(crate) struct WriterOptions {
    /// Writes at once, each over connections of its own.
    pub(crate) workers: u32,
    /// Writes per second of all workers together; none: as many as the primary takes.
    pub(crate) rate: Option<u32>,
    /// Where the primary is found.
    pub(crate) follow: Follow,
    /// How long a write waits for its answer before it counts as unknown and its connection is given up.
    pub(crate) timeout: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self { workers: 1, rate: Some(200), follow: Follow::Topology, timeout: Duration::from_secs(20) }
    }
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The server said OK.
    Acknowledged(Instant),
    /// The server refused it (read-only or offline): it is nowhere.
    Failed,
    /// No answer, or none that says for certain: it may be anywhere.
    Unknown,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    /// The host it was sent to.
    pub(crate) host: String,
    /// When it was sent.
    pub(crate) sent: Instant,
    /// What became of it; unknown until an answer comes.
    pub(crate) outcome: Outcome,
}

/// All writes by their ids.
pub(super) type Log = Arc<Mutex<BTreeMap<u64, Write>>>;

/// Locks the log; a panic elsewhere must not hide what was written.
pub(super) fn entries(log: &Log) -> MutexGuard<'_, BTreeMap<u64, Write>> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unique within the process, so that several writers of one test do not meet.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A running writer.
pub(crate) struct Writer {
    log: Log,
    started: Instant,
    gate: Arc<RwLock<()>>,
    stop: watch::Sender<bool>,
    workers: JoinSet<()>,
}

/// While this lives no write is in flight and none is sent.
pub(crate) struct Paused(#[allow(dead_code, reason = "held, not read")] OwnedRwLockWriteGuard<()>);

impl Writer {
    /// Starts writing.
    pub(crate) fn start(cluster: &Cluster, options: WriterOptions) -> Self {
        let log = Log::default();
        let gate = Arc::new(RwLock::new(()));
        let (stop, stopped) = watch::channel(false);
        let topology = match &options.follow {
            Follow::Topology => cluster.tree.follow_topology(),
            // A sender that is gone means that nothing will ever change.
            Follow::Fixed(host) => watch::channel(Some(serde_json::json!({ "primary": host }))).1,
        };
        let mut workers = JoinSet::new();
        for _ in 0..options.workers {
            let lines = cluster.hosts.iter().map(|host| (host.name.clone(), Line::open(host, &log, options.timeout)));
            let worker = Worker {
                lines: lines.collect(),
                log: Arc::clone(&log),
                gate: Arc::clone(&gate),
                topology: topology.clone(),
                stopped: stopped.clone(),
                period: options.rate.map(|rate| Duration::from_secs(1) * options.workers / rate),
            };
            workers.spawn(worker.work());
        }
        Self { log, started: Instant::now(), gate, stop, workers }
    }

    /// Waits until no write is in flight, also none that was left behind, and holds the writer there. What is in flight when
    /// a server dies may come back as a transaction nobody else has; a test that does not want that pauses first.
    pub(crate) async fn pause_between_writes(&self) -> Paused {
        Paused(Arc::clone(&self.gate).write_owned().await)
    }

    /// What was written up to now.
    pub(crate) fn so_far(&self) -> Written {
        Written { writes: entries(&self.log).clone(), started: self.started, ended: Instant::now() }
    }

    /// Waits until `count` more writes are acknowledged.
    pub(crate) async fn wait_for_acknowledged(&self, count: usize) {
        let count_now =
            || entries(&self.log).values().filter(|write| matches!(write.outcome, Outcome::Acknowledged(_))).count();
        let before = count_now();
        super::checks::wait_for(
            &format!("{count} more writes are acknowledged"),
            Duration::from_secs(120),
            async || {
                let more = count_now() - before;
                if more >= count { Ok(()) } else { Err(format!("{more} of them")) }
            },
        )
        .await;
    }

    /// Stops after the writes in flight, and gives all there is.
    pub(crate) async fn stop(mut self) -> Written {
        let ended = Instant::now();
        self.stop.send_replace(true);
        while let Some(worker) = self.workers.join_next().await {
            worker.expect("a worker does not panic");
        }
        Written { ended, ..self.so_far() }
    }
}

struct Worker {
    lines: BTreeMap<String, Line>,
    log: Log,
    gate: Arc<RwLock<()>>,
    topology: watch::Receiver<Option<Value>>,
    stopped: watch::Receiver<bool>,
    /// Between two writes.
    period: Option<Duration>,
}

impl Worker {
    async fn work(mut self) {
        let mut ticks = tokio::time::interval(self.period.unwrap_or(Duration::from_nanos(1)));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !*self.stopped.borrow() {
            if self.period.is_some() {
                ticks.tick().await;
            }
            let open = Arc::clone(&self.gate).read_owned().await;
            if !self.write(open).await {
                self.wait_for_change().await;
            }
        }
    }

    /// One write to the primary of the newest topology. False when it did not come to an OK.
    async fn write(&mut self, open: OwnedRwLockReadGuard<()>) -> bool {
        let primary = self.topology.borrow_and_update().as_ref().and_then(|t| t["primary"].as_str().map(String::from));
        let Some(line) = primary.as_ref().and_then(|primary| self.lines.get(primary)) else { return false };
        let (reply, mut answer) = oneshot::channel();
        if !line.send(Order { id: NEXT_ID.fetch_add(1, Ordering::Relaxed), reply, open }) {
            return false; // Left behind with a hanging write; nothing changed since.
        }
        loop {
            tokio::select! {
                answer = &mut answer => return answer == Ok(Answer::Acknowledged),
                Ok(()) = self.topology.changed() => {
                    // The primary may have become null in between: the hanging write is left behind only for another one.
                    let now = self.topology.borrow().as_ref().and_then(|t| t["primary"].as_str().map(String::from));
                    if now.is_some() && now != primary {
                        return true;
                    }
                }
            }
        }
    }

    /// After a failure: until the topology changes, or a moment (the server may become writable before it is published).
    async fn wait_for_change(&mut self) {
        tokio::select! {
            Ok(()) = self.topology.changed() => self.topology.mark_changed(),
            Ok(()) = self.stopped.changed() => {}
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
}

/// All that a writer has written.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Every write by its id.
    pub(crate) writes: BTreeMap<u64, Write>,
    started: Instant,
    ended: Instant,
}

/// A stretch of time in which no write was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    /// The last acknowledgement before it.
    pub(crate) from: Instant,
    /// The first one after it.
    pub(crate) to: Instant,
}

impl Gap {
    /// Its length.
    pub(crate) fn length(self) -> Duration {
        self.to - self.from
    }
}

impl Written {
    /// The ids of all writes to which a server said OK.
    pub(crate) fn acknowledged_ids(&self) -> BTreeSet<u64> {
        let acknowledged = self.writes.iter().filter(|(_, write)| matches!(write.outcome, Outcome::Acknowledged(_)));
        acknowledged.map(|(id, _)| *id).collect()
    }

    /// How many writes this host's server has acknowledged.
    pub(crate) fn acknowledged_by(&self, host: &str) -> usize {
        let its = self.writes.values().filter(|write| write.host == host);
        its.filter(|write| matches!(write.outcome, Outcome::Acknowledged(_))).count()
    }

    /// How many were acknowledged later than `limit`.
    pub(crate) fn acknowledged_after(&self, limit: Instant) -> usize {
        let late = |write: &&Write| matches!(write.outcome, Outcome::Acknowledged(at) if at > limit);
        self.writes.values().filter(late).count()
    }

    /// How many were acknowledged, refused, and without a certain answer.
    pub(crate) fn counts(&self) -> (usize, usize, usize) {
        let mut counts = (0, 0, 0);
        for write in self.writes.values() {
            match write.outcome {
                Outcome::Acknowledged(_) => counts.0 += 1,
                Outcome::Failed => counts.1 += 1,
                Outcome::Unknown => counts.2 += 1,
            }
        }
        counts
    }

    /// The longest stretch without an acknowledgement from the first one after `since` until the writer was stopped.
    pub(crate) fn longest_gap_since(&self, since: Instant) -> Gap {
        let acknowledged = self.writes.values().filter_map(|write| match write.outcome {
            Outcome::Acknowledged(at) => Some(at),
            _ => None,
        });
        let mut times: Vec<Instant> = acknowledged.filter(|at| *at >= since && *at < self.ended).collect();
        // Until its end: a writer that never came back would else seem to have had no gap at all.
        times.push(self.ended);
        times.sort();
        let gaps = times.windows(2).map(|pair| Gap { from: pair[0], to: pair[1] });
        gaps.max_by_key(|gap| gap.length()).unwrap_or(Gap { from: since.min(self.ended), to: self.ended })
    }

    /// The longest stretch without an acknowledgement since the writer was started.
    pub(crate) fn longest_gap(&self) -> Gap {
        self.longest_gap_since(self.started)
    }

    /// The first few of these writes, for a report.
    pub(super) fn describe(&self, ids: &BTreeSet<u64>) -> Vec<String> {
        let words = ids.iter().filter_map(|id| {
            let write = self.writes.get(id)?;
            let sent = write.sent.saturating_duration_since(self.started);
            Some(format!("id {id} sent to {} at {:.3} s", write.host, sent.as_secs_f64()))
        });
        words.take(10).collect()
    }
}
