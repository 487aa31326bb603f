//! `/metrics`: the Prometheus text format, version 0.0.4.
//!
//! Written here and not by a library: what there is writes OpenMetrics, whose `info` and `stateset` types `promtool check metrics`
//! refuses. A value that is not known is left out, never made up.

use std::fmt::Write;

use super::answer::Known;
use super::tally::{BOUNDS, Counts, Histogram, Tally};
use crate::core::consent;
use crate::core::phase::phase_code;
use crate::core::prospects;
use crate::core::records::{HistoryRecord, Role};
use crate::core::serving::Question;
use crate::core::view::Session;

/// The media type.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Text in the making.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP mysql_ha_{name} {help}\n# TYPE mysql_ha_{name} {kind}\n");
    }

    /// `labels` with their braces, or empty.
    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.0, "mysql_ha_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.head(name, "gauge", help);
            self.sample(name, "", value);
        }
    }

    fn counts(&mut self, name: &str, label: &str, help: &str, counts: &Counts) {
        self.head(name, "counter", help);
        for (value, count) in counts.read() {
            self.sample(name, &format!("{{{label}=\"{value}\"}}"), count as f64);
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let (counts, sum) = histogram.read();
        let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(&counts) {
            self.sample(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), *count as f64);
        }
        self.sample(&format!("{name}_sum"), "", sum);
        self.sample(&format!("{name}_count"), "", counts.last().map_or(0.0, |count| *count as f64));
    }
}

/// The whole page.
#[must_use]
pub fn text(known: &Known<'_>) -> String {
    let mut page = Page::default();
    page.head("build_info", "gauge", "The program; always 1.");
    page.sample("build_info", &format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0);
    page.gauge("guard_up", "Whether a guard runs beside the agent.", known.guard.map(flag));
    if let Some(question) = known.question() {
        of_this_server(&mut page, &question);
        of_the_cluster(&mut page, &question);
    }
    let last = known.history.and_then(last_failover);
    page.gauge(
        "last_failover_timestamp_seconds",
        "When the last failover of the cluster had ended, in Unix time.",
        last,
    );
    counted(&mut page, known.tally);
    page.0
}

fn flag(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

fn of_this_server(page: &mut Page, question: &Question<'_>) {
    let Question { sight, server, now } = *question;
    let outcome = &sight.decision.outcome;
    page.head("role", "gauge", "1 for the role that the agent takes its server for.");
    for role in [Role::Primary, Role::Replica, Role::Unknown] {
        page.sample("role", &format!("{{role=\"{role}\"}}"), flag(role == outcome.role));
    }
    let phase = f64::from(phase_code(outcome.reason));
    page.gauge("phase_code", "The reason of the last decision, by its number in the README.", Some(phase));
    let lease = sight.view.held.as_ref().map(|held| held.until.until(now).as_secs_f64());
    page.gauge("lease_remaining_seconds", "Until the lease of this server ends; absent without one.", lease);
    let ensemble = &sight.view.ensemble;
    let connected = matches!(ensemble.session, Session::Connected { .. }) && ensemble.complete;
    page.gauge("zookeeper_connected", "Whether ZooKeeper can be used.", Some(flag(connected)));
    let age = server.facts.as_ref().map(|(_, asked)| now.since(*asked).as_secs_f64());
    page.gauge("probe_age_seconds", "Since the last complete reading of the server was asked for.", age);
    let lag = question.lag().map(|lag| lag.as_secs_f64());
    page.gauge(
        "replication_lag_seconds",
        "Age of the newest heartbeat that the replica has applied; absent when unknown.",
        lag,
    );
    let errant = server.facts.as_ref().map(|_| server.errant.count() as f64);
    page.gauge("errant_transactions", "Transactions here that the primary does not have.", errant);
}

fn of_the_cluster(page: &mut Page, question: &Question<'_>) {
    let case = question.case();
    let topology = case.topology().map(|seen| &seen.record);
    page.gauge(
        "epoch",
        "The epoch; grows by one with every promotion.",
        topology.map(|topology| topology.epoch as f64),
    );
    let degraded = topology.map(|topology| flag(topology.durability.degraded));
    page.gauge("degraded", "Whether writes are acknowledged without a replica.", degraded);
    page.gauge("paused", "Whether a pause is in force.", Some(flag(consent::paused_lease(&case))));
    let acknowledging = prospects::acknowledging(&case).map(|count| count as f64);
    page.gauge(
        "sync_replicas_connected",
        "Replicas that acknowledge to this primary at this moment; absent elsewhere.",
        acknowledging,
    );
    let cooling = question.sight.cooldown.is_some_and(|until| question.now < until);
    let prospect = prospects::failover(&case, cooling);
    page.head("failover_ready", "gauge", "Whether a failover would succeed now, and why not.");
    let ready = flag(prospect == prospects::Prospect::Ready);
    page.sample("failover_ready", &format!("{{reason=\"{}\"}}", prospect.code()), ready);
}

fn counted(page: &mut Page, tally: &Tally) {
    page.histogram(
        "lease_renewal_seconds",
        "From sending a renewal of the lease to its acknowledgement.",
        &tally.renewals,
    );
    page.histogram("probe_seconds", "One probe of the server, whatever it showed.", &tally.probes);
    page.counts(
        "failovers_total",
        "reason",
        "Promotions of this server that were no planned switch.",
        &tally.failovers,
    );
    let help = "Planned switches: done counts where the role went to, refused and undone where it stayed.";
    page.counts("switchovers_total", "result", help, &tally.switchovers);
    page.counts("fences_total", "rung", "Fences of this server by its agent, by the last rung needed.", &tally.fences);
}

fn last_failover(history: &[HistoryRecord]) -> Option<f64> {
    let last = history.iter().rev().find(|record| record.cause.is_failover())?;
    let at: jiff::Timestamp = last.at.0.parse().ok()?;
    Some(at.as_millisecond() as f64 / 1000.0)
}
