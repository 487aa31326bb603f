//! The command line as clap reads it: every verb of the contract (section 2) with its options.
//!
//! What lives here: words, types of options, help texts. What may not: anything that acts. clap ends the process with
//! code 2 on a usage error ([`super::exit::Exit::Usage`]) and prints help to stdout.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::config;
use crate::core::duration;

/// A failover agent for MySQL replica sets.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "mysql-ha-agent",
    version,
    propagate_version = true,
    disable_help_subcommand = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// The configuration file
    #[arg(long, global = true, value_name = "PATH", default_value = config::DEFAULT_PATH)]
    pub config: PathBuf,

    /// Print the result as JSON, for scripts
    #[arg(long, global = true)]
    pub json: bool,

    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Stands below the help text.
const EXIT_CODES: &str = "\
Exit codes:
  0  done, or healthy
  1  the answer is no: a check failed, the cluster is unhealthy, or a switch was tried and undone
  2  usage or configuration
  3  ZooKeeper cannot be reached
  4  MySQL cannot be reached
  5  refused by a safety rule, nothing was touched
  6  outcome unknown: look at `status` before you try again

Who is primary, and why:    mysql-ha-agent status
What is wrong on this host: mysql-ha-agent check
Hands off, I am working:    mysql-ha-agent pause --for 1h --reason 'disk swap'";

/// The verbs. Each works on the host it is started on, with that host's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Verb {
    /// Run the agent (what the systemd service starts)
    Run,

    /// Watch over the agent: fence the server when the lease ends unrenewed (a systemd service of its own)
    Guard,

    /// Examine this host: configuration, MySQL, ZooKeeper, replication, privileges, timing. Changes nothing
    Check(CheckArgs),

    /// Make another server the primary: a planned switch, undone if it does not finish in time
    Promote(PromoteArgs),

    /// Show the cluster: who is primary, since when and why, and how every server is doing
    Status(StatusArgs),

    /// Show past role changes with their causes, phases and durations
    History(HistoryArgs),

    /// Stop automatic role changes, and fencing for lost contact to ZooKeeper, until `resume`
    Pause(PauseArgs),

    /// End a pause: automatic role changes are possible again
    Resume,

    /// Before this host goes down: if its server is the primary, switch to the best candidate
    Handover,

    /// Bring this host's server back as a replica
    Rejoin(RejoinArgs),

    /// First start of a cluster that nothing replicates in yet: this host's server becomes the primary
    Bootstrap,

    /// Make this host's server read-only NOW, by force if need be, and give its lease up
    Fence,

    /// Let a server that was fenced by hand take part again
    Unfence,

    /// Before each start of mysqld: take back commits that were in flight when it died and nobody can have seen
    Prestart(PrestartArgs),

    /// Before each stop of mysqld: cut its clients, and end it by force if commits wait that nobody has acknowledged
    Prestop,

    /// Forget a host that is gone for good
    Remove(RemoveArgs),

    /// Take this host out of the product's care and leave nothing behind in MySQL or ZooKeeper
    Leave,

    /// Route applications to the right server
    Route,

    /// Show the configuration
    #[command(subcommand)]
    Config(ConfigVerb),
}

/// `check`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// One line and the exit codes of a Nagios plugin: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN
    #[arg(long, visible_alias = "brief", conflicts_with = "json")]
    pub nagios: bool,
}

/// `promote`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PromoteArgs {
    /// The agent name of the server to promote [default: the best candidate]
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// Print the plan, every candidate with the reason for or against it, and what would be lost. Changes nothing
    #[arg(long)]
    pub dry_run: bool,

    /// After a disaster: promote although acknowledged writes may be lost. Without proof that the old primary is
    /// fenced, a second writer cannot be excluded either
    #[arg(long)]
    pub allow_data_loss: bool,

    /// In a rolling upgrade: promote a server that is newer than some of its replicas
    #[arg(long)]
    pub allow_newer: bool,

    /// Undo the switch if it is not finished by then
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = some_time)]
    pub timeout: Duration,
}

impl PromoteArgs {
    /// What `handover` asks for.
    #[must_use]
    pub fn to_the_best() -> Self {
        let timeout = Duration::from_secs(30);
        Self { name: None, dry_run: false, allow_data_loss: false, allow_newer: false, timeout }
    }
}

/// `status`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StatusArgs {
    /// Keep showing it, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

/// `history`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HistoryArgs {
    /// How many role changes, the newest last
    #[arg(long, value_name = "COUNT", default_value = "20")]
    pub last: NonZeroUsize,
}

/// `pause`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PauseArgs {
    /// End the pause by itself after this long, for example 1h [default: not before `resume`]
    #[arg(long = "for", value_name = "DURATION", value_parser = some_time)]
    pub length: Option<Duration>,

    /// Why, for the colleague who finds the cluster paused
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
}

/// `rejoin`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RejoinArgs {
    /// Throw this server's data away and copy a healthy replica's. Its own transactions are kept in `state_dir`
    #[arg(long)]
    pub clone: bool,
}

/// `prestart`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PrestartArgs {
    /// Show what would be taken back. Changes nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// `remove`
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RemoveArgs {
    /// The agent name of the host
    #[arg(value_name = "NAME")]
    pub name: String,
}

/// `config …`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub enum ConfigVerb {
    /// Print what is in force, defaults included, secrets masked
    Show,
}

impl Verb {
    /// The verb as it is typed, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Verb::Run => "run",
            Verb::Guard => "guard",
            Verb::Check(_) => "check",
            Verb::Promote(_) => "promote",
            Verb::Status(_) => "status",
            Verb::History(_) => "history",
            Verb::Pause(_) => "pause",
            Verb::Resume => "resume",
            Verb::Handover => "handover",
            Verb::Rejoin(_) => "rejoin",
            Verb::Bootstrap => "bootstrap",
            Verb::Fence => "fence",
            Verb::Unfence => "unfence",
            Verb::Prestart(_) => "prestart",
            Verb::Prestop => "prestop",
            Verb::Remove(_) => "remove",
            Verb::Leave => "leave",
            Verb::Route => "route",
            Verb::Config(ConfigVerb::Show) => "config show",
        }
    }
}

/// A duration that is not zero: nothing can finish in no time.
fn some_time(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(length) if length.is_zero() => Err("it must be longer than 0: for example 30s".into()),
        Ok(length) => Ok(length),
        Err(fault) => Err(fault.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("mysql-ha-agent").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_of_the_contract_is_read_and_named() {
        for (line, name) in [
            ("run", "run"),
            ("guard", "guard"),
            ("check", "check"),
            ("check --nagios", "check"),
            ("check --brief", "check"),
            ("check --json", "check"),
            ("history --last 5", "history"),
            ("promote", "promote"),
            ("promote db2 --dry-run --allow-data-loss --allow-newer --timeout 30s", "promote"),
            ("status --watch", "status"),
            ("history", "history"),
            ("pause --for 1h --reason disk", "pause"),
            ("resume", "resume"),
            ("handover", "handover"),
            ("rejoin --clone", "rejoin"),
            ("bootstrap", "bootstrap"),
            ("fence", "fence"),
            ("unfence", "unfence"),
            ("prestart --dry-run", "prestart"),
            ("prestop", "prestop"),
            ("remove db3", "remove"),
            ("leave", "leave"),
            ("route", "route"),
            ("config show", "config show"),
        ] {
            let cli = read(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(cli.verb.name(), name, "{line}");
            assert_eq!(cli.config.to_str(), Some("/etc/mysql-ha-agent/agent.yaml"));
        }
    }

    #[test]
    fn the_global_options_stand_before_and_after_the_verb() {
        for line in
            ["--config /x --json config show", "config --config /x show --json", "config show --json --config /x"]
        {
            let cli = read(line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!((cli.config.to_str(), cli.json), (Some("/x"), true), "{line}");
        }
    }

    #[test]
    fn options_reach_their_fields() {
        let Verb::Promote(promote) = read("promote db2 --timeout 1500ms").unwrap().verb else { panic!() };
        assert_eq!(promote.name.as_deref(), Some("db2"));
        assert_eq!(promote.timeout, Duration::from_millis(1500));
        assert!(!promote.dry_run && !promote.allow_data_loss && !promote.allow_newer);
        let Verb::Promote(promote) = read("promote").unwrap().verb else { panic!() };
        assert_eq!((promote.name, promote.timeout), (None, Duration::from_secs(30)));
        let Verb::Pause(pause) = read("pause --for 1h --reason disk").unwrap().verb else { panic!() };
        assert_eq!((pause.length, pause.reason.as_deref()), (Some(Duration::from_secs(3600)), Some("disk")));
    }

    #[test]
    fn what_cannot_be_meant_is_a_usage_error_with_code_2() {
        for line in [
            "",
            "promotee",
            "promote db2 db3",
            "promote --timeout 30",
            "promote --timeout 0s",
            "pause --for ever",
            "history --last some",
            "history --last 0",
            "check --nagios --json",
            "remove",
            "config",
            "status --dry-run",
        ] {
            let error = read(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
        }
    }

    #[test]
    fn a_duration_without_unit_says_how_to_write_it() {
        let text = read("promote --timeout 30").unwrap_err().to_string();
        assert!(text.contains("30s or 30ms"), "{text}");
    }

    #[test]
    fn help_and_version_are_everywhere() {
        let mut lines = vec![String::new(), "config show ".into()];
        let command = Cli::command();
        lines.extend(command.get_subcommands().map(|verb| format!("{} ", verb.get_name())));
        for line in lines {
            assert_eq!(read(&format!("{line}--help")).unwrap_err().kind(), ErrorKind::DisplayHelp, "{line}");
            assert_eq!(read(&format!("{line}--version")).unwrap_err().kind(), ErrorKind::DisplayVersion, "{line}");
        }
    }
}
