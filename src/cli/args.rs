//! The command line as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config::{DEFAULT_PATH, duration};

/// A failover agent for MySQL: one writer, nothing acknowledged lost.
#[derive(Debug, Parser)]
#[command(name = "mysql-ha-agent", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done or healthy; 1 the answer is no; 2 usage or configuration; 3 ZooKeeper cannot \
    be reached; 4 MySQL cannot be reached; 5 refused by a safety rule, nothing touched; 6 outcome unknown."
)]
pub struct Cli {
    /// The configuration file.
    #[arg(long, global = true, value_name = "PATH", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// The agent itself, as a systemd service beside one mysqld.
    Run,
    /// Fence this host's server when the agent's lease runs out, whatever became of the agent.
    Guard,
    /// Examine configuration, MySQL, ZooKeeper, replication, privileges and timing, with a mend for every fault.
    Check(CheckArgs),
    /// Switch the primary role to another server, or undo everything.
    Promote(PromoteArgs),
    /// The cluster at a glance: who is primary, and why.
    Status(StatusArgs),
    /// Past role changes with their phases and durations.
    History(HistoryArgs),
    /// No automatic role change until `resume`.
    Pause(PauseArgs),
    /// End a pause.
    Resume,
    /// Before this host goes down: switch away if its server is the primary.
    Handover,
    /// Bring this host's server back as a replica.
    Rejoin(RejoinArgs),
    /// First start of a cluster that nothing replicates in yet: this host's server becomes the primary.
    Bootstrap,
    /// Make this host's server read-only now and give its lease up.
    Fence,
    /// Let a fenced server take part again.
    Unfence,
    /// Before each start of mysqld: take back commits that nobody can have seen.
    Prestart(PrestartArgs),
    /// Count no longer on a host that is gone for good.
    Remove(RemoveArgs),
    /// Take this host out of the product's care.
    Leave,
    /// The router for applications.
    Route,
    /// The configuration in force.
    #[command(subcommand)]
    Config(ConfigVerb),
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// One line and the exit codes of a Nagios plugin: 0 ok, 1 warning, 2 critical, 3 unknown.
    #[arg(long, visible_alias = "brief")]
    pub nagios: bool,
}

/// `promote`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// The server that becomes the primary; without it the best candidate.
    pub name: Option<String>,
    /// Print the plan with every candidate; change nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// After a disaster: promote although acknowledged writes may be lost.
    #[arg(long)]
    pub allow_data_loss: bool,
    /// In a rolling upgrade: the target may be of a newer version.
    #[arg(long)]
    pub allow_newer: bool,
    /// Past this everything is undone.
    #[arg(long, default_value = "30s", value_parser = length)]
    pub timeout: Duration,
}

/// `status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Keep it on the screen and up to date.
    #[arg(long)]
    pub watch: bool,
}

/// `history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// How many, newest last.
    #[arg(long, default_value_t = 20)]
    pub last: usize,
}

/// `pause`.
#[derive(Debug, Args)]
pub struct PauseArgs {
    /// Ends by itself after this long.
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    pub length: Option<Duration>,
    /// Shown in `status`.
    #[arg(long)]
    pub reason: Option<String>,
}

/// `rejoin`.
#[derive(Debug, Args)]
pub struct RejoinArgs {
    /// Rebuild it from a healthy replica: everything on this server is replaced.
    #[arg(long)]
    pub clone: bool,
}

/// `prestart`.
#[derive(Debug, Args)]
pub struct PrestartArgs {
    /// Say what would be taken back; change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// `remove`.
#[derive(Debug, Args)]
pub struct RemoveArgs {
    /// The host that is gone.
    pub name: String,
}

/// `config`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum ConfigVerb {
    /// Print it with defaults, secrets masked.
    Show,
}

fn length(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|fault| format!("{}: {}", fault.what, fault.mend))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_timeout_needs_a_unit() {
        let fault = Cli::try_parse_from(["mysql-ha-agent", "promote", "--timeout", "30"]).unwrap_err().to_string();
        assert!(fault.contains("has no unit"), "{fault}");
    }
}
