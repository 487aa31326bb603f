//! Were ever two servers writable at once? A probe that never raises a false alarm.
//!
//! Every 10 ms it asks each server, over a connection kept open through the socket, whether it takes writes and how many
//! SET statements it has executed so far. An answer "yes" says only that the server was writable at *some* instant between
//! asking and answering. What is certain follows from two answers in a row over one connection: when both say
//! "yes" and no SET was executed between them (nothing else changes these variables, and a restart would have cut
//! the connection), then the server was writable *throughout*, from the first answer's arrival to the second question's
//! sending. Such stretches are joined to **spans**. Two servers were certainly writable at one instant when
//! - a span of one meets a span of the other, or
//! - an answer "yes" of one was asked for and arrived within a span of the other.
//!
//! What this cannot see: an overlap shorter than about two rounds (20 ms), and one during which SETs are executed all the
//! while on both. "Writable" means neither `read_only` (which `super_read_only` implies) nor `offline_mode`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::cluster::Cluster;
use super::host::Host;
use super::sql::connect_root;

const ROUND: Duration = Duration::from_millis(10);
/// A server that takes longer for an answer is frozen or gone.
const PATIENCE: Duration = Duration::from_millis(250);
const QUESTION: &str = "SELECT NOT @@global.read_only AND NOT @@global.offline_mode, \
    (SELECT COUNT_STAR FROM performance_schema.events_statements_summary_global_by_event_name \
     WHERE EVENT_NAME = 'statement/sql/set_option')";

/// One answer.
#[derive(Clone, Copy, Debug)]
struct Sample {
    asked: Instant,
    answered: Instant,
    writable: bool,
    /// SET statements executed up to now.
    sets: u64,
    /// Counts the connections: an answer over another one follows from nothing before.
    connection: u32,
}

/// A stretch of time, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Its first instant.
    pub(crate) from: Instant,
    /// Its last instant.
    pub(crate) to: Instant,
}

impl Span {
    fn contains(self, other: Self) -> bool {
        self.from <= other.from && other.to <= self.to
    }

    fn common(self, other: Self) -> Option<Self> {
        let both = Self { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from <= both.to).then_some(both)
    }
}

/// A running probe of all servers of a cluster.
pub(crate) struct ReadOnlyProbe {
    started: Instant,
    stop: watch::Sender<bool>,
    tasks: JoinSet<(String, Vec<Sample>)>,
}

impl ReadOnlyProbe {
    /// Starts probing.
    pub(crate) fn start(cluster: &Cluster) -> Self {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for host in &cluster.hosts {
            tasks.spawn(probe(Arc::clone(host), stopped.clone()));
        }
        Self { started: Instant::now(), stop, tasks }
    }

    /// Ends it and gives what was seen.
    pub(crate) async fn stop(mut self) -> Probed {
        self.stop.send_replace(true);
        let mut samples = BTreeMap::new();
        while let Some(result) = self.tasks.join_next().await {
            let (host, its) = result.expect("a probe does not panic");
            samples.insert(host, its);
        }
        Probed { started: self.started, samples }
    }
}

async fn probe(host: Arc<Host>, stopped: watch::Receiver<bool>) -> (String, Vec<Sample>) {
    let mut samples = Vec::new();
    let mut conn: Option<Conn> = None;
    let mut connection = 0;
    let mut rounds = tokio::time::interval(ROUND);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !*stopped.borrow() {
        rounds.tick().await;
        let mut open = match conn.take() {
            Some(open) => open,
            None => match tokio::time::timeout(PATIENCE, connect_root(host.socket())).await {
                Ok(Ok(open)) => open,
                _ => continue,
            },
        };
        let asked = Instant::now();
        match tokio::time::timeout(PATIENCE, open.query_first::<(bool, u64), _>(QUESTION)).await {
            Ok(Ok(Some((writable, sets)))) => {
                samples.push(Sample { asked, answered: Instant::now(), writable, sets, connection });
                conn = Some(open);
            }
            // Dropped: a later answer over it would be taken for that to a later question.
            _ => connection += 1,
        }
    }
    (host.name.clone(), samples)
}

/// What a probe has seen.
pub(crate) struct Probed {
    started: Instant,
    samples: BTreeMap<String, Vec<Sample>>,
}

impl Probed {
    /// The stretches in which the host's server was certainly writable throughout.
    pub(crate) fn writable_spans(&self, host: &str) -> Vec<Span> {
        self.samples.get(host).map(|samples| spans(samples)).unwrap_or_default()
    }

    /// How many answers the host's server gave. A verdict over none is worth nothing.
    pub(crate) fn answers(&self, host: &str) -> usize {
        self.samples.get(host).map_or(0, Vec::len)
    }

    /// The last instant at which the host's server was certainly still writable, before `limit`.
    pub(crate) fn last_writable_before(&self, host: &str, limit: Instant) -> Option<Instant> {
        let before = self.writable_spans(host).into_iter().filter(|span| span.from <= limit);
        before.map(|span| span.to.min(limit)).max()
    }

    /// The first overlap of two servers that were certainly writable at one instant: both names, and when.
    pub(crate) fn overlap(&self) -> Option<(String, String, Span)> {
        self.overlaps().into_iter().min_by_key(|(_, _, span)| span.from)
    }

    /// All of them; one stretch may be shown by several proofs.
    pub(crate) fn overlaps(&self) -> Vec<(String, String, Span)> {
        let mut all = Vec::new();
        for one in self.samples.keys() {
            let spans = self.writable_spans(one);
            for (other, samples) in self.samples.iter().filter(|(other, _)| *other != one) {
                let windows = samples.iter().filter(|s| s.writable).map(|s| Span { from: s.asked, to: s.answered });
                let within = windows.filter(|window| spans.iter().any(|span| span.contains(*window)));
                all.extend(within.chain(self.met(one, other)).map(|span| (one.clone(), other.clone(), span)));
            }
        }
        all
    }

    /// The stretches throughout which both were writable.
    fn met(&self, one: &str, other: &str) -> Vec<Span> {
        let (spans, others) = (self.writable_spans(one), self.writable_spans(other));
        spans.iter().flat_map(|span| others.iter().filter_map(|its| span.common(*its))).collect()
    }

    /// For how long two servers were certainly writable at once, stretch by stretch joined. A single answer within another's
    /// stretch proves an instant, which has no length: it counts among the overlaps alone.
    pub(crate) fn overlapping(&self) -> Duration {
        let names = || self.samples.keys();
        let pairs = names().flat_map(|one| names().filter(move |other| *other > one).map(move |other| (one, other)));
        let mut spans: Vec<Span> = pairs.flat_map(|(one, other)| self.met(one, other)).collect();
        spans.sort_by_key(|span| span.from);
        let (mut total, mut until) = (Duration::ZERO, self.started);
        for span in spans {
            total += span.to.saturating_duration_since(span.from.max(until));
            until = until.max(span.to);
        }
        total
    }

    /// The same without what `host` answered within `span`: the one second that a thawed host has to fence itself.
    pub(crate) fn without(mut self, host: &str, span: Span) -> Self {
        if let Some(samples) = self.samples.get_mut(host) {
            samples.retain(|sample| sample.answered < span.from || sample.asked > span.to);
        }
        self
    }

    /// Panics when two servers were certainly writable at one instant, or when hardly anything was seen.
    pub(crate) fn assert_one_writer(&self) {
        let all: usize = self.samples.values().map(Vec::len).sum();
        assert!(all > 0, "the probe had no answer from any server: it proves nothing");
        if let Some((one, other, when)) = self.overlap() {
            let (from, to) = (when.from.duration_since(self.started), when.to.duration_since(self.started));
            panic!("{one} and {other} were both writable from {from:?} to {to:?} after the probe's start");
        }
    }
}

/// Joins what two answers in a row prove.
fn spans(samples: &[Sample]) -> Vec<Span> {
    let mut all: Vec<Span> = Vec::new();
    // Whether the last span ends at the question of the sample before.
    let mut joined = false;
    for pair in samples.windows(2) {
        let [before, after] = pair else { continue };
        let throughout =
            before.writable && after.writable && before.sets == after.sets && before.connection == after.connection;
        match all.last_mut() {
            Some(last) if throughout && joined => last.to = after.asked,
            _ if throughout => all.push(Span { from: before.answered, to: after.asked }),
            _ => {}
        }
        joined = throughout;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(base: Instant, asked: u64, writable: bool, sets: u64) -> Sample {
        let at = |ms| base + Duration::from_millis(ms);
        Sample { asked: at(asked), answered: at(asked + 2), writable, sets, connection: 0 }
    }

    fn probed(base: Instant, one: Vec<Sample>, other: Vec<Sample>) -> Probed {
        Probed { started: base, samples: BTreeMap::from([("a".into(), one), ("b".into(), other)]) }
    }

    #[test]
    fn two_writers_are_seen() {
        let base = Instant::now();
        let yes = |asked| sample(base, asked, true, 1);
        assert!(probed(base, vec![yes(0), yes(10)], vec![yes(5)]).overlap().is_some(), "within a span");
        let meet = probed(base, vec![yes(0), yes(10), yes(20)], vec![yes(9), yes(19)]);
        assert!(meet.overlap().is_some(), "spans meet");
        // From the later of the first answers to the earlier of the last questions.
        assert_eq!(meet.overlapping(), Duration::from_millis(8));
    }

    #[test]
    fn a_change_of_hands_is_no_alarm() {
        let base = Instant::now();
        let yes = |asked| sample(base, asked, true, 1);
        let no = |asked| sample(base, asked, false, 2);
        assert_eq!(probed(base, vec![yes(0), yes(10), no(20)], vec![no(11), yes(21), yes(31)]).overlap(), None);
        // Both answers may have been given one after the other, although the windows overlap.
        assert_eq!(probed(base, vec![yes(10), no(20)], vec![no(1), yes(11)]).overlap(), None);
        // Between the two answers of "a" it was switched off and on again, and "b" had its turn.
        let again = vec![yes(0), sample(base, 10, true, 3)];
        assert_eq!(probed(base, again, vec![yes(5)]).overlap(), None);
    }

    #[test]
    fn a_restart_breaks_a_span() {
        let base = Instant::now();
        let restarted = Sample { connection: 1, ..sample(base, 10, true, 1) };
        assert_eq!(spans(&[sample(base, 0, true, 1), restarted]), []);
    }
}
