//! What is wrong with a configuration file: all of it at once, each with its place and its mend.

use std::fmt;

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Line in the file, from 1; for a key that is missing, the line of the section it belongs in. None where the
    /// file itself could not be read.
    pub line: Option<usize>,
    /// The key's full path, `failover.durability`; empty where the file as a whole is at fault.
    pub key: String,
    /// What is wrong. Never shows a secret.
    pub what: String,
    /// What to do about it.
    pub mend: String,
}

/// Every fault of one file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The file, as it was named.
    pub file: String,
    /// At least one.
    pub faults: Vec<Fault>,
}

impl Faults {
    pub(super) fn new(file: &str, mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| fault.line);
        Self { file: file.to_owned(), faults }
    }
}

impl Faults {
    /// The first of them as it is displayed.
    #[must_use]
    pub fn first(&self) -> String {
        self.faults.first().map(|fault| self.in_line(fault)).unwrap_or_default()
    }

    /// `agent.yaml:12: failover.durability: what is wrong — what to do`.
    fn in_line(&self, fault: &Fault) -> String {
        let line = fault.line.map(|line| format!(":{line}")).unwrap_or_default();
        let key = if fault.key.is_empty() { String::new() } else { format!(": {}", fault.key) };
        format!("{}{line}{key}: {} — {}", self.file, fault.what, fault.mend)
    }
}

impl fmt::Display for Faults {
    /// One line a fault.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.faults.iter().map(|fault| self.in_line(fault)).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Faults {}
