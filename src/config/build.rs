//! From checked values to the sections. Nothing can fail here: the table gave every key its kind.

use std::path::PathBuf;
use std::time::Duration;

use super::Config;
use super::address::HostPort;
use super::reader::Values;
use super::secret::Secret;
use super::sections::*;
use super::value::Value;
use crate::core::records::DurabilityMode;

/// Builds the configuration. The reader has found no fault, so every key that is required or has a default is there.
pub(super) fn build(values: Values) -> Config {
    let v = &values;
    Config {
        cluster: v.text("cluster"),
        name: v.text("name"),
        zone: v.text_if("zone"),
        zookeeper: zookeeper(v),
        mysql: mysql(v),
        heartbeat: Heartbeat {
            interval: v.duration("heartbeat.interval"),
            timeout: v.duration("heartbeat.timeout"),
            retries: v.number("heartbeat.retries"),
            retry_interval: v.duration("heartbeat.retry_interval"),
            exit_grace: v.duration("heartbeat.exit_grace"),
            recover_after: v.number("heartbeat.recover_after"),
            schema: v.text("heartbeat.schema"),
        },
        failover: failover(v),
        degrade: Degrade {
            check_period: Some(v.duration("degrade.check_period")).filter(|period| !period.is_zero()),
            allow_times: Some(v.number("degrade.allow_times")).filter(|times| *times > 0),
        },
        fencing: Fencing {
            budget: v.duration("fencing.budget"),
            kill_connections: v.flag("fencing.kill_connections"),
            spare_users: v.texts_if("fencing.spare_users").unwrap_or_default(),
            command: v.command("fencing.command"),
            mysqld_pid_file: v.path_if("fencing.mysqld_pid_file"),
        },
        rejoin: Rejoin {
            policy: match v.text("rejoin.policy").as_str() {
                "clone" => RejoinPolicy::Clone,
                "manual" => RejoinPolicy::Manual,
                _ => RejoinPolicy::Auto,
            },
            rewind: v.flag("rejoin.rewind"),
        },
        hooks: Hooks {
            pre_promote: v.command("hooks.pre_promote"),
            post_promote: v.command("hooks.post_promote"),
            post_demote: v.command("hooks.post_demote"),
            fenced: v.command("hooks.fenced"),
            failover_failed: v.command("hooks.failover_failed"),
            timeout: v.duration("hooks.timeout"),
        },
        http: Http { listen: v.address_if("http.listen") },
        tags: tags(v),
        state_dir: v.text("state_dir").into(),
        run_dir: v.text("run_dir").into(),
        log: Log { level: v.text("log.level").parse().unwrap_or(tracing::Level::INFO) },
        values,
    }
}

fn zookeeper(v: &Values) -> ZooKeeper {
    ZooKeeper {
        hosts: match v.by_path.get("zookeeper.hosts") {
            Some(Value::Addresses(hosts)) => hosts.clone(),
            other => wrong_kind("zookeeper.hosts", other),
        },
        root: v.text("zookeeper.root"),
        session_timeout: v.duration("zookeeper.session_timeout"),
        renew_interval: v.duration("zookeeper.renew_interval"),
        op_timeout: v.duration("zookeeper.op_timeout"),
        auth: v.text_if("zookeeper.auth.user").map(|user| Auth { user, password: v.secret("zookeeper.auth.password") }),
        readers: match v.by_path.get("zookeeper.auth.readers") {
            Some(Value::Texts(digests)) => Readers::Digests(digests.clone()),
            _ => Readers::World,
        },
        tls: tls(v, "zookeeper.tls"),
    }
}

fn mysql(v: &Values) -> Mysql {
    Mysql {
        endpoint: match v.text_if("mysql.host") {
            Some(host) => Endpoint::Tcp(HostPort { host, port: v.number("mysql.port") }),
            None => Endpoint::Socket(v.text("mysql.socket").into()),
        },
        user: v.text("mysql.user"),
        password: v.secret("mysql.password"),
        admin: v.address_if("mysql.admin"),
        tls: tls(v, "mysql.tls"),
        advertise: match v.address_if("mysql.advertise") {
            Some(address) => address,
            None => wrong_kind("mysql.advertise", None),
        },
        replication: Replication {
            user: v.text("mysql.replication.user"),
            password: v.secret("mysql.replication.password"),
            tls: v.flag("mysql.replication.tls"),
        },
        service_unit: v.text_if("mysql.service_unit"),
    }
}

fn failover(v: &Values) -> Failover {
    Failover {
        mode: match v.text("failover.mode").as_str() {
            "manual" => Mode::Manual,
            "observe" => Mode::Observe,
            _ => Mode::Automatic,
        },
        durability: match v.text("failover.durability").as_str() {
            "async" => DurabilityMode::Async,
            _ => DurabilityMode::Lossless,
        },
        sync_replicas: v.number("failover.sync_replicas"),
        priority: v.number("failover.priority"),
        max_lag: v.duration("failover.max_lag"),
        cooldown: v.duration("failover.cooldown"),
        catch_up_timeout: v.duration("failover.catch_up_timeout"),
        failsafe: v.flag("failover.failsafe"),
    }
}

fn tls(v: &Values, section: &str) -> Option<Tls> {
    let file = |name: &str| v.path_if(&format!("{section}.{name}"));
    let tls = Tls { ca_file: file("ca_file"), cert_file: file("cert_file"), key_file: file("key_file") };
    (tls.ca_file.is_some() || tls.cert_file.is_some()).then_some(tls)
}

fn tags(v: &Values) -> Tags {
    let tag = |path: &String| path.strip_prefix("tags.").map(|name| (name.to_owned(), v.text(path)));
    v.by_path.keys().filter_map(tag).collect()
}

/// The table of keys and this file disagree: a mistake in the program that loading any file at all shows.
fn wrong_kind(path: &str, found: Option<&Value>) -> ! {
    unreachable!("the table of keys gives `{path}` another kind: {found:?}")
}

impl Values {
    fn text_if(&self, path: &str) -> Option<String> {
        match self.by_path.get(path) {
            Some(Value::Text(text)) => Some(text.clone()),
            None => None,
            other => wrong_kind(path, other),
        }
    }

    fn text(&self, path: &str) -> String {
        self.text_if(path).unwrap_or_else(|| wrong_kind(path, None))
    }

    fn path_if(&self, path: &str) -> Option<PathBuf> {
        self.text_if(path).map(PathBuf::from)
    }

    fn duration(&self, path: &str) -> Duration {
        match self.by_path.get(path) {
            Some(Value::Duration(length)) => *length,
            other => wrong_kind(path, other),
        }
    }

    /// The table's limits keep every number within the type that a section has for it.
    fn number<T: TryFrom<u64>>(&self, path: &str) -> T {
        let value = self.by_path.get(path);
        match value {
            Some(Value::Integer(number)) => T::try_from(*number).unwrap_or_else(|_| wrong_kind(path, value)),
            other => wrong_kind(path, other),
        }
    }

    fn flag(&self, path: &str) -> bool {
        match self.by_path.get(path) {
            Some(Value::Flag(flag)) => *flag,
            other => wrong_kind(path, other),
        }
    }

    /// None as well for `off`.
    fn address_if(&self, path: &str) -> Option<HostPort> {
        match self.by_path.get(path) {
            Some(Value::Address(address)) => Some(address.clone()),
            None | Some(Value::Text(_)) => None,
            other => wrong_kind(path, other),
        }
    }

    fn texts_if(&self, path: &str) -> Option<Vec<String>> {
        match self.by_path.get(path) {
            Some(Value::Texts(texts)) => Some(texts.clone()),
            None => None,
            other => wrong_kind(path, other),
        }
    }

    fn command(&self, path: &str) -> Option<CommandLine> {
        self.texts_if(path).map(CommandLine)
    }

    /// Whichever of the three forms is there.
    fn secret(&self, path: &str) -> Secret {
        let forms = ["", "_file", "_env"].map(|form| self.by_path.get(&format!("{path}{form}")));
        match forms.into_iter().flatten().next() {
            Some(Value::Secret(secret)) => secret.clone(),
            other => wrong_kind(path, other),
        }
    }
}
