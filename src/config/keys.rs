//! The table of keys: the one place that knows their names, defaults, limits and meaning.
//!
//! The reader, the defaults, `config show`, reloading and the check of `agent.yaml.example` all go by this table. A
//! new key is a line here, a field in [`super::sections`], and a line in `agent.yaml.example`.

use super::rule;
use super::value::Kind;

/// What holds where the file does not name a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// Nothing can: the file must name it.
    Required,
    /// Nothing is set.
    Unset,
    /// This, as it would be typed.
    Is(&'static str),
    /// Found out when the file is loaded, in the way the text says.
    FoundOut(&'static str),
}

/// What a reload (SIGHUP) does with a change. Says what the running agent does: whoever lets a reload take over one more
/// key changes its line in [`KEYS`] and its mark in `agent.yaml.example`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReload {
    /// It takes effect.
    Applied,
    /// It is left as it was, and the log says that it needs a restart.
    NeedsRestart,
}

/// A key of the file.
pub struct Key {
    /// Its full path, `zookeeper.session_timeout`; [`TAGS`] stands for all tags.
    pub path: &'static str,
    /// What holds without it.
    pub default: Fallback,
    /// What a reload does with it.
    pub on_reload: OnReload,
    /// What it means, in a few words.
    pub meaning: &'static str,
    pub(super) kind: Kind,
}

/// The path under which [`KEYS`] holds the tags, whose names are free.
pub const TAGS: &str = "tags.<name>";

/// Keys that are read and checked but that this version does not act on yet. The README lists the same ones, and
/// [`super::Config::not_yet_in_force`] names those a file sets. Whoever gives a key effect removes it here.
pub const NOT_YET_IN_FORCE: &[&str] = &[
    "zookeeper.tls.ca_file",
    "zookeeper.tls.cert_file",
    "zookeeper.tls.key_file",
    "mysql.tls.ca_file",
    "mysql.tls.cert_file",
    "mysql.tls.key_file",
    "mysql.service_unit",
    "fencing.command",
    "rejoin.policy",
    "hooks.pre_promote",
    "hooks.post_promote",
    "hooks.post_demote",
    "hooks.fenced",
    "hooks.failover_failed",
    "hooks.timeout",
];

/// The key of a path; every tag has the same one.
#[must_use]
pub fn find(path: &str) -> Option<&'static Key> {
    let path = if path.starts_with("tags.") { TAGS } else { path };
    KEYS.iter().find(|key| key.path == path)
}

const fn key(path: &'static str, kind: Kind, default: Fallback, on_reload: OnReload, meaning: &'static str) -> Key {
    Key { path, default, on_reload, meaning, kind }
}

use Fallback::{FoundOut, Is, Required, Unset};
use Kind::{
    Address, AddressOrOff, Addresses, Choice, Command, Duration, Flag, Integer, Readers, Secret, SecretEnv, SecretFile,
    Text, Texts,
};
use OnReload::{Applied, NeedsRestart};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const FILE: Kind = Text(rule::path);

/// Every key, in the order of the contract.
#[rustfmt::skip] // one key a line: it is a table
pub static KEYS: &[Key] = &[
    key("cluster", Text(rule::cluster), Required, NeedsRestart, "the replica set's name"),
    key("name", Text(rule::name), FoundOut("the host name"), NeedsRestart, "this agent's name, unique within the cluster"),
    key("zone", Text(rule::any), Unset, NeedsRestart, "the room or data centre this host stands in"),

    key("zookeeper.hosts", Addresses, Required, NeedsRestart, "the members of the ensemble"),
    key("zookeeper.root", Text(rule::root), Is("/mysql-ha"), NeedsRestart, "the parent of all clusters"),
    key("zookeeper.session_timeout", Duration(1000, 10 * MINUTE), Is("10s"), NeedsRestart, "T, the length of a lease; asked for, the ensemble may grant another"),
    key("zookeeper.renew_interval", Duration(50, 5 * MINUTE), Is("1s"), NeedsRestart, "between two renewals of the lease"),
    key("zookeeper.op_timeout", Duration(50, 5 * MINUTE), Is("1200ms"), NeedsRestart, "one call's limit, and when a silent member is given up"),
    key("zookeeper.auth.user", Text(rule::any), Unset, NeedsRestart, "user of digest authentication"),
    key("zookeeper.auth.password", Secret, Unset, NeedsRestart, "its password"),
    key("zookeeper.auth.password_file", SecretFile, Unset, NeedsRestart, "a file that holds the password"),
    key("zookeeper.auth.password_env", SecretEnv, Unset, NeedsRestart, "an environment variable that holds the password"),
    key("zookeeper.auth.readers", Readers, Is("world"), NeedsRestart, "who may read topology and history"),
    key("zookeeper.tls.ca_file", FILE, Unset, NeedsRestart, "the authority that signed the members' certificates"),
    key("zookeeper.tls.cert_file", FILE, Unset, NeedsRestart, "the agent's certificate"),
    key("zookeeper.tls.key_file", FILE, Unset, NeedsRestart, "its key"),

    key("mysql.socket", FILE, FoundOut("the first that exists of /run/mysqld/mysqld.sock, /var/lib/mysql/mysql.sock"), NeedsRestart, "the socket of this host's server"),
    key("mysql.host", Text(rule::host), Unset, NeedsRestart, "the server's address, in place of a socket"),
    key("mysql.port", Integer(1, 65535), FoundOut("3306 where mysql.host is given"), NeedsRestart, "the server's port, with mysql.host"),
    key("mysql.user", Text(rule::user), Required, NeedsRestart, "the agent's account, the same on all servers"),
    key("mysql.password", Secret, Unset, NeedsRestart, "its password"),
    key("mysql.password_file", SecretFile, Unset, NeedsRestart, "a file that holds the password"),
    key("mysql.password_env", SecretEnv, Unset, NeedsRestart, "an environment variable that holds the password"),
    key("mysql.admin", Address, Unset, NeedsRestart, "host:port of the server's admin_address"),
    key("mysql.tls.ca_file", FILE, Unset, NeedsRestart, "the authority that signed the servers' certificates"),
    key("mysql.tls.cert_file", FILE, Unset, NeedsRestart, "the agent's certificate"),
    key("mysql.tls.key_file", FILE, Unset, NeedsRestart, "its key"),
    key("mysql.advertise", Address, Required, NeedsRestart, "host:port at which replicas and clients reach this server"),
    key("mysql.replication.user", Text(rule::user), Required, NeedsRestart, "the account with which this server replicates"),
    key("mysql.replication.password", Secret, Unset, NeedsRestart, "its password"),
    key("mysql.replication.password_file", SecretFile, Unset, NeedsRestart, "a file that holds the password"),
    key("mysql.replication.password_env", SecretEnv, Unset, NeedsRestart, "an environment variable that holds the password"),
    key("mysql.replication.tls", Flag, Is("false"), NeedsRestart, "whether replicas connect with TLS"),
    key("mysql.service_unit", Text(rule::unit), Unset, NeedsRestart, "mysqld's systemd unit"),

    key("heartbeat.interval", Duration(50, 5 * MINUTE), Is("1s"), NeedsRestart, "between two probes"),
    key("heartbeat.timeout", Duration(50, 5 * MINUTE), Is("1s"), NeedsRestart, "one probe's limit"),
    key("heartbeat.retries", Integer(0, 100), Is("3"), NeedsRestart, "further tries before a probe counts as failed"),
    key("heartbeat.retry_interval", Duration(0, MINUTE), Is("300ms"), NeedsRestart, "between those tries"),
    key("heartbeat.exit_grace", Duration(0, HOUR), Is("0s"), NeedsRestart, "how long a mysqld that has exited may take to be back"),
    key("heartbeat.recover_after", Integer(1, 1000), Is("3"), NeedsRestart, "successes in a row before a failed server is healthy"),
    key("heartbeat.schema", Text(rule::schema), Is("mysql_ha"), NeedsRestart, "the schema of the heartbeat table"),

    key("failover.mode", Choice(&["automatic", "manual", "observe"]), Is("automatic"), NeedsRestart, "what the agent does by itself"),
    key("failover.durability", Choice(&["lossless", "async"]), Required, Applied, "whether acknowledged writes may be lost: lossless or async"),
    key("failover.sync_replicas", Integer(1, 65535), Is("1"), Applied, "acknowledgements a commit waits for in lossless"),
    key("failover.priority", Integer(0, 10_000), Is("100"), Applied, "among equals the highest wins; 0 is never promoted"),
    key("failover.max_lag", Duration(0, 24 * HOUR), Is("30s"), Applied, "async: an older replica is not promoted automatically"),
    key("failover.cooldown", Duration(0, 24 * HOUR), Is("60s"), NeedsRestart, "no second automatic failover within it"),
    key("failover.catch_up_timeout", Duration(1000, 24 * HOUR), Is("60s"), Applied, "for applying what was received"),
    key("failover.failsafe", Flag, Is("true"), NeedsRestart, "stay writable while the whole ensemble is lost and replicas acknowledge"),

    key("degrade.check_period", Duration(0, HOUR), Is("2s"), Applied, "self-check of the acknowledgement path; 0 is off"),
    key("degrade.allow_times", Integer(0, 1_000_000), Is("10"), Applied, "failures in a row before lossless degrades; 0 is never"),

    key("fencing.budget", Duration(50, 5 * MINUTE), Is("1s"), NeedsRestart, "time kept before the lease's end for making the server read-only"),
    key("fencing.kill_connections", Flag, Is("true"), Applied, "end client connections when the server becomes read-only"),
    key("fencing.spare_users", Texts, Unset, NeedsRestart, "accounts left alone as long as they do not block"),
    key("fencing.command", Command, Unset, NeedsRestart, "tried instead of the kill"),
    key("fencing.mysqld_pid_file", FILE, Unset, NeedsRestart, "where the process cannot be found through the socket"),

    key("rejoin.policy", Choice(&["auto", "clone", "manual"]), Is("auto"), NeedsRestart, "what a returning server does"),
    key("rejoin.rewind", Flag, Is("true"), NeedsRestart, "whether prestart may take back commits that were in flight"),

    key("hooks.pre_promote", Command, Unset, NeedsRestart, "before a promotion; failing refuses it"),
    key("hooks.post_promote", Command, Unset, NeedsRestart, "after a promotion"),
    key("hooks.post_demote", Command, Unset, NeedsRestart, "after a primary has become a replica"),
    key("hooks.fenced", Command, Unset, NeedsRestart, "after the server was fenced"),
    key("hooks.failover_failed", Command, Unset, NeedsRestart, "when no candidate could be promoted"),
    key("hooks.timeout", Duration(100, HOUR), Is("10s"), NeedsRestart, "one hook's limit"),

    key("http.listen", AddressOrOff, Is("127.0.0.1:8008"), Applied, "where load balancers and monitoring ask; off disables"),
    key(TAGS, Text(rule::any), Unset, Applied, "free text, shown in status"),
    key("state_dir", FILE, Is("/var/lib/mysql-ha-agent"), NeedsRestart, "what must outlive a restart"),
    key("run_dir", FILE, Is("/run/mysql-ha-agent"), NeedsRestart, "the lease file shared with the guard"),
    key("log.level", Choice(&["error", "warn", "info", "debug", "trace"]), Is("info"), NeedsRestart, "how much is logged"),
];
