//! Where log records go: the journal with their fields when systemd started us, stderr otherwise.
//!
//! The journal logger speaks `log`; flattening `tracing` into it would lose the fields, so a layer hands it records
//! with key-values itself.

use std::fmt::Write as _;

use log::kv::{Key, Value, VisitSource};
use systemd_journal_logger::{JournalLog, connected_to_journal};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Starts logging at this level. Called once.
pub fn start(level: LevelFilter, cluster: &str, name: &str) {
    let journal = if connected_to_journal() { JournalLog::new().ok() } else { None };
    match journal {
        Some(journal) => {
            let journal = journal.with_extra_fields([("CLUSTER", cluster), ("NAME", name)]);
            tracing_subscriber::registry().with(Journal(journal).with_filter(level)).init();
        }
        None => {
            let ansi = std::io::IsTerminal::is_terminal(&std::io::stderr());
            let layer =
                tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi).with_target(false);
            tracing_subscriber::registry().with(layer.with_filter(level)).init();
        }
    }
}

struct Journal(JournalLog);

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let level = match *event.metadata().level() {
            Level::ERROR => log::Level::Error,
            Level::WARN => log::Level::Warn,
            Level::INFO => log::Level::Info,
            Level::DEBUG => log::Level::Debug,
            Level::TRACE => log::Level::Trace,
        };
        let text = fields.text();
        let mut builder = log::Record::builder();
        builder.level(level).target(event.metadata().target()).key_values(&fields);
        // A journal that is gone must not take the agent with it.
        let _ = self.0.journal_send(&builder.args(format_args!("{text}")).build());
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    pairs: Vec<(&'static str, String)>,
}

impl Fields {
    /// The message with its fields behind it: `journalctl` shows the message alone by default.
    fn text(&self) -> String {
        let mut text = self.message.clone();
        for (name, value) in &self.pairs {
            let _ = write!(text, " {name}={value}");
        }
        text
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message = value.to_owned();
        } else {
            self.pairs.push((field.name(), value.to_owned()));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl log::kv::Source for Fields {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), log::kv::Error> {
        self.pairs
            .iter()
            .try_for_each(|(name, value)| visitor.visit_pair(Key::from_str(name), Value::from(value.as_str())))
    }
}
