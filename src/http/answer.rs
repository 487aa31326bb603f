//! One pure function from a request, what is known, and now to the answer.

use serde::Serialize;

use super::metrics;
use super::query;
use super::tally::Tally;
use crate::core::records::HistoryRecord;
use crate::core::serving::{Question, Sight, Verdict, Wish};
use crate::core::status::{Ages, status};
use crate::core::time::Moment;
use crate::core::view::Server;

/// The methods there are: nothing over HTTP changes anything.
pub const METHODS: &str = "GET, HEAD, OPTIONS";

/// All that an answer may go by.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The decision loop's last turn; none before the first.
    pub sight: Option<&'a Sight>,
    /// Our server as it is known now.
    pub server: &'a Server,
    /// The newest role changes, the newest last; none while they have not been read.
    pub history: Option<&'a [HistoryRecord]>,
    /// Whether a guard runs here; none while not looked for.
    pub guard: Option<bool>,
    /// What was counted.
    pub tally: &'a Tally,
    /// How old is what hosts have written.
    pub ages: &'a Ages,
    /// Now.
    pub now: Moment,
}

impl<'a> Known<'a> {
    /// None before the first turn.
    #[must_use]
    pub fn question(&self) -> Option<Question<'a>> {
        Some(Question { sight: self.sight?, server: self.server, now: self.now })
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The media type of the body.
    pub media_type: &'static str,
    /// The body, as for GET.
    pub body: String,
    /// The body is sent, and not only its length.
    pub with_body: bool,
    /// [`METHODS`] are to be named.
    pub allow: bool,
}

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Answer {
    /// A line for whoever asked.
    #[must_use]
    pub fn line(status: u16, text: impl AsRef<str>) -> Self {
        let body = format!("{}\n", text.as_ref().trim_end());
        Self { status, media_type: TEXT, body, with_body: true, allow: false }
    }

    fn json(status: u16, value: &impl Serialize) -> Self {
        match serde_json::to_string_pretty(value) {
            Ok(body) => Self { media_type: JSON, ..Self::line(status, body) },
            Err(error) => Self::line(500, format!("the answer cannot be written as JSON: {error}")),
        }
    }

    fn error(status: u16, why: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error": why }))
    }
}

/// The answer to a request.
#[must_use]
pub fn answer(method: &str, target: &str, known: &Known<'_>) -> Answer {
    let with_body = match method {
        "GET" => true,
        "HEAD" | "OPTIONS" => false,
        _ => {
            let text = "nothing over HTTP changes anything: only GET, HEAD and OPTIONS are understood";
            return Answer { allow: true, ..Answer::line(405, text) };
        }
    };
    Answer { with_body, allow: method == "OPTIONS", ..page(target, known) }
}

const NOT_YET: &str = "the agent starts and has not seen anything yet";
const NO_ZOOKEEPER: &str = "ZooKeeper cannot be used at this moment";

fn page(target: &str, known: &Known<'_>) -> Answer {
    let (path, asked) = query::split(target);
    match path {
        "/" | "/primary" | "/read-write" => verdict(known, |question| question.takes_writes()),
        "/replica" => reader(known, asked, |question, wish| question.replicates(wish)),
        "/read-only" => reader(known, asked, |question, wish| question.can_be_read(wish)),
        "/health" => verdict(known, |question| question.answers()),
        "/liveness" => verdict(known, |question| question.lives()),
        "/readiness" => verdict(known, |question| question.knows_its_role()),
        "/status" => cluster(known),
        "/topology" => topology(known),
        "/history" => match known.history {
            Some(history) => Answer::json(200, &history),
            None => Answer::error(503, "the history has not been read from ZooKeeper yet"),
        },
        "/metrics" => Answer { media_type: metrics::MEDIA_TYPE, ..Answer::line(200, metrics::text(known)) },
        _ => Answer::line(
            404,
            "no such path: there are / /primary /read-write /replica /read-only /health /liveness /readiness /status \
             /topology /history /metrics",
        ),
    }
}

/// 200 or 503, and why.
fn verdict(known: &Known<'_>, of: impl Fn(&Question<'_>) -> Verdict) -> Answer {
    match known.question().map_or_else(|| Err(NOT_YET.to_owned()), |question| of(&question)) {
        Ok(text) => Answer::line(200, text),
        Err(why) => Answer::line(503, why),
    }
}

/// The same for what a reader asks; a query that cannot be meant is its fault.
fn reader(known: &Known<'_>, asked: &str, of: impl Fn(&Question<'_>, &Wish) -> Verdict) -> Answer {
    match query::wish(asked) {
        Ok(wish) => verdict(known, |question| of(question, &wish)),
        Err(fault) => Answer::line(400, fault),
    }
}

/// The same JSON as `status --json`. Without ZooKeeper it is what was seen last, and says so: 503.
fn cluster(known: &Known<'_>) -> Answer {
    let Some(Sight { view, .. }) = known.sight else { return Answer::error(503, NOT_YET) };
    let mut now =
        status(&view.own.cluster, &view.ensemble, known.ages).with_newest(known.history.and_then(<[_]>::last));
    if view.ensemble.complete {
        return Answer::json(200, &now);
    }
    now.problems.insert(0, format!("{NO_ZOOKEEPER}: what follows is what was seen last"));
    now.healthy = false;
    Answer::json(503, &now)
}

/// `topology` as it stands in ZooKeeper. What was seen before an outage is no answer: clients would go by it.
fn topology(known: &Known<'_>) -> Answer {
    let Some(Sight { view, .. }) = known.sight else { return Answer::error(503, NOT_YET) };
    match view.ensemble.topology.record() {
        _ if !view.ensemble.complete => Answer::error(503, NO_ZOOKEEPER),
        Some(topology) => Answer::json(200, topology),
        None => Answer::error(503, "there is no topology that can be read: see 'mysql-ha-agent status'"),
    }
}
