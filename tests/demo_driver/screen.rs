//! What the demo prints: lines that stay, and on a terminal a table below them that is drawn again and again.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Where the demo prints. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Screen(Arc<Inner>);

struct Inner {
    started: Instant,
    terminal: bool,
    table: Mutex<Table>,
}

/// The table at the bottom of a terminal.
#[derive(Default)]
struct Table {
    lines: Vec<String>,
    /// How many of them stand on the screen now.
    drawn: usize,
}

impl Table {
    /// What removes it from the screen.
    fn erase(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            lines => format!("\x1b[{lines}F\x1b[J"),
        }
    }

    /// What puts it there. Without line wrapping: a line of two rows would throw the count off.
    fn put(&mut self) -> String {
        self.drawn = self.lines.len();
        match self.drawn {
            0 => String::new(),
            _ => format!("\x1b[?7l{}\n\x1b[?7h", self.lines.join("\n")),
        }
    }
}

impl Screen {
    /// `terminal`: whether a table can be drawn.
    pub(crate) fn new(terminal: bool) -> Self {
        Self(Arc::new(Inner { started: Instant::now(), terminal, table: Mutex::default() }))
    }

    /// Whether there is a live table.
    pub(crate) fn is_terminal(&self) -> bool {
        self.0.terminal
    }

    /// Something has happened: a line with the time since the start.
    pub(crate) fn say(&self, text: &str) {
        self.print(&format!("{:6.1} s  {text}\n", self.0.started.elapsed().as_secs_f64()));
    }

    /// Text of whole lines that stays.
    pub(crate) fn print(&self, text: &str) {
        let mut table = self.table();
        let (erase, put) = (table.erase(), table.put());
        emit(&format!("{erase}{text}{put}"));
    }

    /// Replaces the table.
    pub(crate) fn draw(&self, lines: Vec<String>) {
        if !self.0.terminal {
            return;
        }
        let mut table = self.table();
        let mut text = table.erase();
        table.lines = lines;
        let _ = write!(text, "{}", table.put());
        emit(&text);
    }

    /// Leaves the table on the screen as it is, and forgets it.
    pub(crate) fn leave_table(&self) {
        *self.table() = Table::default();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes at one stroke, so that a terminal never shows half a table. That nobody reads any more is no reason to stop
/// before everything has been ended in good order.
fn emit(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
