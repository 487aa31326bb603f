//! The verbs of the binary under test, run on a host.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use super::cluster::Cluster;
use super::network::Namespace;
use super::stage::repository;

/// What a verb answered.
#[derive(Debug)]
pub(crate) struct VerbOutput {
    /// The exit code; -1 when a signal ended it.
    pub(crate) code: i32,
    /// What it printed as its result.
    pub(crate) stdout: String,
    /// What it complained about.
    pub(crate) stderr: String,
}

impl VerbOutput {
    /// The result as JSON; panics with everything there is when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}) in {self:?}"))
    }

    /// Panics with everything there is unless the exit code is `code`.
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(self.code, code, "unexpected exit code: {self:?}");
        self
    }
}

/// The binary under test: `MYSQL_HA_AGENT` in the environment, else what cargo built for this test or benchmark, else (for
/// an example) the release build.
pub(crate) fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MYSQL_HA_AGENT") {
        return path.into();
    }
    option_env!("CARGO_BIN_EXE_mysql-ha-agent")
        .map_or_else(|| repository().join("target/release/mysql-ha-agent"), PathBuf::from)
}

impl Cluster {
    /// The command line of a verb on a host with that host's configuration file, to be run from outside its namespace.
    pub(crate) fn verb_line(&self, host: &str, words: &[&str]) -> Vec<String> {
        let host = self.host(host);
        let mut line: Vec<String> = Vec::new();
        if let Some(pid) = host.namespace.as_ref().map(Namespace::pid) {
            line.push("nsenter".into());
            line.extend(super::network::enter(pid));
        }
        line.push(binary().display().to_string());
        line.extend(words.iter().map(ToString::to_string));
        line.extend([String::from("--config"), host.config().display().to_string()]);
        line
    }

    /// Runs a verb on a host with that host's configuration file, and waits for its end (at most a minute).
    pub(crate) async fn verb(&self, host: &str, words: &[&str]) -> VerbOutput {
        let line = self.verb_line(host, words);
        let mut command = tokio::process::Command::new(&line[0]);
        command.args(&line[1..]).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("`{}` did not end within a minute", line.join(" ")))
            .unwrap_or_else(|error| panic!("cannot start `{}`: {error}", line.join(" ")));
        VerbOutput {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}
