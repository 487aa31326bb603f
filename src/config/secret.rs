//! A secret that no log line, error or debug output can show.

use std::fmt;

/// A password. `Debug` and `Display` print `***`; the text comes out through [`Secret::reveal`] alone.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    text: String,
    origin: SecretOrigin,
}

/// Which of the three forms gave a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretOrigin {
    /// `password`: stands in the file itself.
    Inline,
    /// `password_file`: the content of that file, without its last line break.
    File(String),
    /// `password_env`: that environment variable.
    Environment(String),
}

impl Secret {
    /// A secret and where it came from.
    #[must_use]
    pub fn new(text: String, origin: SecretOrigin) -> Self {
        Self { text, origin }
    }

    /// The secret itself: for the client libraries only.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Which of the three forms gave it.
    #[must_use]
    pub fn origin(&self) -> &SecretOrigin {
        &self.origin
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_debug_nor_display_shows_it() {
        let secret = Secret::new("hunter2".into(), SecretOrigin::Inline);
        assert_eq!(format!("{secret:?} {secret} {:?}", Some(&secret)), "*** *** Some(***)");
        assert_eq!(secret.reveal(), "hunter2");
    }
}
