//! The configuration: `agent.yaml` as typed → a [`Config`] that can work, or all its faults at once.
//!
//! What lives here: the table of keys ([`keys`]), the reading of the file by that table, the rules between keys, and
//! what an operator sees of it (faults, `config show`, what a reload changes). What may not: any use of the values.
//! Nothing here connects, and the only files opened are `agent.yaml` and those that hold a secret.
//!
//! | step | module |
//! | --- | --- |
//! | text → tree with duplicates and lines | `document` |
//! | tree → values by the table of keys, defaults filled in | `reader`, `value`, `rule`, [`keys`] |
//! | rules between keys, what is found out | `between` |
//! | values → sections | `build`, [`sections`] |

mod address;
mod between;
mod build;
mod document;
mod fault;
pub mod keys;
mod reader;
mod rule;
mod secret;
pub mod sections;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use address::{AddressFault, HostPort};
pub use fault::{Fault, Faults};
pub use secret::{Secret, SecretOrigin};

use crate::core::timing::{self, Timing};
use document::{Document, Node};
use keys::{Fallback, KEYS, Key, OnReload};
use reader::{Reader, Values};
use sections::{Degrade, Failover, Fencing, Heartbeat, Hooks, Http, Log, Mysql, Rejoin, Tags, ZooKeeper};
use value::Value;

/// Where the file is looked for without `--config`.
pub const DEFAULT_PATH: &str = "/etc/mysql-ha-agent/agent.yaml";

/// A configuration that can work. Its fields mirror the file; see `agent.yaml.example`.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The replica set's name.
    pub cluster: String,
    /// This agent's name, unique within the cluster.
    pub name: String,
    /// Room or data centre.
    pub zone: Option<String>,
    /// `zookeeper.*`
    pub zookeeper: ZooKeeper,
    /// `mysql.*`
    pub mysql: Mysql,
    /// `heartbeat.*`
    pub heartbeat: Heartbeat,
    /// `failover.*`
    pub failover: Failover,
    /// `degrade.*`
    pub degrade: Degrade,
    /// `fencing.*`
    pub fencing: Fencing,
    /// `rejoin.*`
    pub rejoin: Rejoin,
    /// `hooks.*`
    pub hooks: Hooks,
    /// `http.*`
    pub http: Http,
    /// `tags.*`
    pub tags: Tags,
    /// What must outlive a restart.
    pub state_dir: PathBuf,
    /// The lease file shared with the guard.
    pub run_dir: PathBuf,
    /// `log.*`
    pub log: Log,
    /// The same once more by key, for what goes by the table of keys.
    values: Values,
}

/// Reads the file at `path`.
///
/// # Errors
/// All its [`Faults`], or that it cannot be read. Exit code 2; on a reload, the old configuration stays in force.
pub fn load(path: &Path) -> Result<Config, Faults> {
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, &file, &|name| std::env::var(name).ok()),
        Err(e) => {
            let fault = Fault {
                line: None,
                key: String::new(),
                what: format!("cannot be read: {e}"),
                mend: "create it from agent.yaml.example, make it readable, or name another with --config".into(),
            };
            Err(Faults::new(&file, vec![fault]))
        }
    }
}

/// Reads `text`, which faults name as `file_name`; `env` looks environment variables up.
///
/// Files that hold a secret are opened, and the host's name and MySQL's usual sockets looked at where the text leaves
/// them open; nothing else outside the text matters.
///
/// # Errors
/// All its [`Faults`].
pub fn parse(text: &str, file_name: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Config, Faults> {
    let document = Document::parse(text).map_err(|(line, what)| {
        let what = format!("is no valid YAML: {what}");
        let mend = "look at that line and the one above: indentation by spaces, a missing colon or quote".into();
        Faults::new(file_name, vec![Fault { line, key: String::new(), what, mend }])
    })?;
    if matches!(document.root, Node::Null) {
        let what = "is empty: no key is set".into();
        let mend = "copy agent.yaml.example there and edit it; the README has the smallest file that works".into();
        return Err(Faults::new(file_name, vec![Fault { line: None, key: String::new(), what, mend }]));
    }
    if !matches!(document.root, Node::Map(_)) {
        let what = format!("holds {}, not keys", document.root.kind());
        let mend = "write keys and values as in agent.yaml.example".into();
        return Err(Faults::new(file_name, vec![Fault { line: Some(1), key: String::new(), what, mend }]));
    }
    let mut reader = Reader::read(&document, env);
    between::check(&mut reader);
    let Reader { values, faults, .. } = reader;
    if faults.is_empty() { Ok(build::build(values)) } else { Err(Faults::new(file_name, faults)) }
}

/// What a reload would do, by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Keys whose change takes effect.
    pub applied: Vec<String>,
    /// Keys whose change is left alone until a restart.
    pub needs_restart: Vec<String>,
}

impl Config {
    /// The terms of a lease, with T as `granted` by the ensemble (or `zookeeper.session_timeout` before that).
    #[must_use]
    pub fn timing(&self, granted: Duration) -> Timing {
        Timing {
            session_timeout: granted,
            renew_interval: self.zookeeper.renew_interval,
            op_timeout: self.zookeeper.op_timeout,
            fencing_budget: self.fencing.budget,
        }
    }

    /// P, with T as `granted`: how long an acknowledged heartbeat lets a primary write that has lost ZooKeeper. None where none
    /// fits.
    #[must_use]
    pub fn proof_length(&self, granted: Duration) -> Option<Duration> {
        timing::proof_length(granted, self.heartbeat.interval, self.heartbeat.timeout, self.fencing.budget)
    }

    /// Everything in force as YAML, defaults included. A secret in the file is shown as `***`; one from elsewhere as
    /// the file or variable it came from.
    #[must_use]
    pub fn masked_yaml(&self) -> String {
        serde_yaml::to_string(&self.masked()).unwrap_or_else(|e| format!("# cannot be shown: {e}\n"))
    }

    /// The same as a tree, for `--json`.
    #[must_use]
    pub fn masked(&self) -> impl serde::Serialize + use<> {
        let mut root = serde_yaml::Mapping::new();
        for key in KEYS {
            let is_tag = key.path == keys::TAGS;
            let named = self.values.by_path.iter().filter(|(path, _)| match path.strip_prefix("tags.") {
                Some(_) => is_tag,
                None => path.as_str() == key.path,
            });
            for (path, value) in named {
                // A tag's name may hold dots.
                let parts: Vec<&str> = match path.strip_prefix("tags.") {
                    Some(tag) => vec!["tags", tag],
                    None => path.split('.').collect(),
                };
                insert(&mut root, &parts, value.written());
            }
        }
        root
    }

    /// Which keys differ in `new`, and what a reload does with each.
    #[must_use]
    pub fn reload_differences(&self, new: &Config) -> Differences {
        let mut differences = Differences::default();
        let all = self.values.by_path.keys().chain(new.values.by_path.keys());
        for path in all.collect::<BTreeSet<_>>() {
            let Some(key) = keys::find(path) else { continue };
            let left_open = |config: &Config| config.values.found_out.contains(key.path);
            let same = self.values.by_path.get(path) == new.values.by_path.get(path);
            if same || (left_open(self) && left_open(new)) {
                continue;
            }
            match key.on_reload {
                OnReload::Applied => differences.applied.push(path.clone()),
                OnReload::NeedsRestart => differences.needs_restart.push(path.clone()),
            }
        }
        differences
    }

    /// What is in force after a reload of `new`: its values where a reload applies them, else the present ones.
    #[must_use]
    pub fn reloaded(&self, new: &Config) -> Config {
        let applied = |path: &str| keys::find(path).is_some_and(|key| key.on_reload == OnReload::Applied);
        let mut values = self.values.clone();
        values.by_path.retain(|path, _| !applied(path));
        let theirs = new.values.by_path.iter().filter(|(path, _)| applied(path));
        values.by_path.extend(theirs.map(|(path, value)| (path.clone(), value.clone())));
        build::build(values)
    }

    /// Keys that are set to something other than their default although this version does not act on them yet
    /// ([`keys::NOT_YET_IN_FORCE`]). `run` and `check` warn of each.
    #[must_use]
    pub fn not_yet_in_force(&self) -> Vec<&'static str> {
        keys::NOT_YET_IN_FORCE
            .iter()
            .copied()
            .filter(|path| {
                let value = self.values.by_path.get(*path);
                value.is_some() && value != keys::find(path).and_then(default_value).as_ref()
            })
            .collect()
    }
}

/// A key's default as a value, read in the way a typed one is; none where there is no fixed one.
fn default_value(key: &Key) -> Option<Value> {
    let Fallback::Is(text) = key.default else { return None };
    let document = Document::parse(text).ok()?;
    key.kind.read(&document.root, &|_| None).ok()
}

/// Puts `value` at a path of nested maps.
fn insert(map: &mut serde_yaml::Mapping, path: &[&str], value: serde_yaml::Value) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        map.insert((*first).into(), value);
        return;
    }
    let below = map.entry((*first).into()).or_insert_with(|| serde_yaml::Mapping::new().into());
    if let serde_yaml::Value::Mapping(below) = below {
        insert(below, rest, value);
    }
}
