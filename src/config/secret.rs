//! Secrets: a text that no log, error or `Debug` output shows.

use std::fmt;

/// What stands in place of a secret wherever people read.
pub const MASK: &str = "***";

/// Where a secret came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretOrigin {
    /// `password`, in the file itself.
    Inline,
    /// `password_file`: this file.
    File(String),
    /// `password_env`: this variable.
    Environment(String),
}

/// A password. `Debug` and `Display` print `***`; only [`Secret::reveal`] hands the text out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    origin: SecretOrigin,
}

impl Secret {
    /// Keeps `text` as a secret.
    #[must_use]
    pub fn new(text: impl Into<String>, origin: SecretOrigin) -> Self {
        Self { text: text.into(), origin }
    }

    /// The text itself, for the one place that hands it to a server. Never format it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Where it came from.
    #[must_use]
    pub fn origin(&self) -> &SecretOrigin {
        &self.origin
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formatting_never_shows_the_text() {
        let secret = Secret::new("hunter2", SecretOrigin::Inline);
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
        assert_eq!(secret.reveal(), "hunter2");
    }
}
