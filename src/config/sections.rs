//! The validated configuration: one struct for each section of the file, in plain types.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::address::HostPort;
use super::secret::Secret;
use crate::core::records::DurabilityMode;
pub use crate::core::records::Mode;

/// `zookeeper.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct ZooKeeper {
    /// Members of the ensemble, at least one, none twice.
    pub hosts: Vec<HostPort>,
    /// Parent of all clusters; `/` or without a slash at its end.
    pub root: String,
    /// T as asked for. All arithmetic uses what the ensemble granted.
    pub session_timeout: Duration,
    /// Between two renewals of the lease.
    pub renew_interval: Duration,
    /// One call's limit; also when a silent connection is given up for another member.
    pub op_timeout: Duration,
    /// Digest authentication, where a user is given.
    pub auth: Option<Auth>,
    /// Who may read `topology` and `history`.
    pub readers: Readers,
    /// TLS, where any of its files is given.
    pub tls: Option<Tls>,
}

/// `zookeeper.auth.user` and its password.
#[derive(Debug, Clone, PartialEq)]
pub struct Auth {
    /// The digest user.
    pub user: String,
    /// Its password.
    pub password: Secret,
}

/// `zookeeper.auth.readers`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readers {
    /// Everybody.
    World,
    /// These digest identities, `user:base64`.
    Digests(Vec<String>),
}

/// `zookeeper.tls.*` and `mysql.tls.*`. Absolute paths; whether the files are there is not checked here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Authority that signed the other side's certificate; none: the system's.
    pub ca_file: Option<PathBuf>,
    /// Own certificate; given together with `key_file` or not at all.
    pub cert_file: Option<PathBuf>,
    /// Own key.
    pub key_file: Option<PathBuf>,
}

/// `mysql.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mysql {
    /// How the agent reaches its own server.
    pub endpoint: Endpoint,
    /// The agent's account, the same on all servers.
    pub user: String,
    /// Its password.
    pub password: Secret,
    /// The server's `admin_address`, for when its connections are exhausted.
    pub admin: Option<HostPort>,
    /// TLS for TCP connections, where any of its files is given.
    pub tls: Option<Tls>,
    /// Where replicas and clients reach this server.
    pub advertise: HostPort,
    /// The account with which this server replicates.
    pub replication: Replication,
    /// mysqld's systemd unit, for restarts that a repair needs.
    pub service_unit: Option<String>,
}

/// How the agent reaches its own server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// `mysql.socket`, or the one that was found. The process behind it can be watched.
    Socket(PathBuf),
    /// `mysql.host` and `mysql.port`.
    Tcp(HostPort),
}

/// `mysql.replication.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct Replication {
    /// The account.
    pub user: String,
    /// Its password, of at most 32 characters.
    pub password: Secret,
    /// Replicas connect with TLS; without it with the source's public key.
    pub tls: bool,
}

/// `heartbeat.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Between two probes.
    pub interval: Duration,
    /// One probe's limit.
    pub timeout: Duration,
    /// Further tries, while the process lives, before a probe counts as failed.
    pub retries: u32,
    /// Between those tries.
    pub retry_interval: Duration,
    /// How long a mysqld that has exited may take to be back.
    pub exit_grace: Duration,
    /// Successes in a row before a failed server counts as healthy, at least 1.
    pub recover_after: u32,
    /// Where the `heartbeat` table lives; needs no quoting in statements.
    pub schema: String,
}

/// `failover.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failover {
    /// What is done without being told.
    pub mode: Mode,
    /// What the file proposes; in force is what stands in `topology`.
    pub durability: DurabilityMode,
    /// Acknowledgements a commit waits for in `lossless`, at least 1.
    pub sync_replicas: u32,
    /// Among equally advanced replicas the highest wins; 0: never promoted.
    pub priority: u32,
    /// `async`: a replica further behind is not promoted automatically.
    pub max_lag: Duration,
    /// No second automatic failover within it.
    pub cooldown: Duration,
    /// For applying what was received.
    pub catch_up_timeout: Duration,
    /// Stay writable while the whole ensemble is lost and the replicas acknowledge.
    pub failsafe: bool,
}

/// `degrade.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Degrade {
    /// Between two self-checks of the acknowledgement path; none: off (`0` in the file).
    pub check_period: Option<Duration>,
    /// Failures in a row before `lossless` degrades, and successes before it is restored; none: never (`0`).
    pub allow_times: Option<u32>,
}

/// A program with its arguments, run without a shell. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine(pub Vec<String>);

/// `fencing.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fencing {
    /// Time kept before the lease's end for making the server read-only.
    pub budget: Duration,
    /// End client connections when the server becomes read-only.
    pub kill_connections: bool,
    /// Accounts whose connections are left alone as long as they do not block.
    pub spare_users: Vec<String>,
    /// Tried instead of the kill.
    pub command: Option<CommandLine>,
    /// Where the process cannot be found through the socket.
    pub mysqld_pid_file: Option<PathBuf>,
}

/// `rejoin.policy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RejoinPolicy {
    /// Follow the new primary if nothing extra is held.
    Auto,
    /// Rebuild a server with extra or missing transactions from a healthy replica.
    Clone,
    /// Leave it to the operator.
    Manual,
}

/// `rejoin.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejoin {
    /// What a returning server does.
    pub policy: RejoinPolicy,
    /// Whether `prestart` may take back commits that were in flight.
    pub rewind: bool,
}

/// `hooks.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hooks {
    /// Before a promotion; failing refuses it.
    pub pre_promote: Option<CommandLine>,
    /// After a promotion.
    pub post_promote: Option<CommandLine>,
    /// After a primary has become a replica.
    pub post_demote: Option<CommandLine>,
    /// After the server was fenced.
    pub fenced: Option<CommandLine>,
    /// When no candidate could be promoted.
    pub failover_failed: Option<CommandLine>,
    /// One hook's limit.
    pub timeout: Duration,
}

/// `http.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Where to listen; none: `off`.
    pub listen: Option<HostPort>,
}

/// `log.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The least severity that is logged.
    pub level: tracing::Level,
}

/// `tags.*` by name.
pub type Tags = BTreeMap<String, String>;
