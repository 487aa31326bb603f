//! The configuration file: as typed → validated, all faults at once.
//!
//! | module | does |
//! | --- | --- |
//! | [`keys`] | the table of keys: names, defaults, limits, meaning |
//! | `document` | YAML as a tree that keeps duplicates and lines |
//! | `reader`, `value`, `rule`, `between` | from typed to checked: each key by its kind, then rules between keys |
//! | [`sections`], `build` | the validated configuration in plain types |
//! | [`secret`], [`address`], [`duration`] | the types of values |
//! | [`fault`] | what is wrong, with file, line, key and mend |
//!
//! What may not live here: anything that connects to something. That a value can work on this host is `check`'s matter.

pub mod address;
mod between;
mod build;
mod document;
pub mod duration;
pub mod fault;
pub mod keys;
mod reader;
mod rule;
pub mod secret;
pub mod sections;
#[cfg(test)]
mod tests;
mod value;

use std::path::{Path, PathBuf};

use document::{Document, Node};
pub use fault::{Fault, Faults};
use keys::{Default, KEYS, Key, NOT_YET_IN_FORCE, OnReload};
use reader::{Reader, Values};
use sections::{Degrade, Failover, Fencing, Heartbeat, Hooks, Http, Log, Mysql, Rejoin, Tags, ZooKeeper};
use value::{Environment, Value};

/// The default path of the file.
pub const DEFAULT_PATH: &str = "/etc/mysql-ha-agent/agent.yaml";

/// The configuration in force, by the sections of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `cluster`.
    pub cluster: String,
    /// `name`.
    pub name: String,
    /// `zone`.
    pub zone: Option<String>,
    /// `zookeeper.*`.
    pub zookeeper: ZooKeeper,
    /// `mysql.*`.
    pub mysql: Mysql,
    /// `heartbeat.*`.
    pub heartbeat: Heartbeat,
    /// `failover.*`.
    pub failover: Failover,
    /// `degrade.*`.
    pub degrade: Degrade,
    /// `fencing.*`.
    pub fencing: Fencing,
    /// `rejoin.*`.
    pub rejoin: Rejoin,
    /// `hooks.*`.
    pub hooks: Hooks,
    /// `http.*`.
    pub http: Http,
    /// `tags.*`.
    pub tags: Tags,
    /// `state_dir`.
    pub state_dir: PathBuf,
    /// `run_dir`.
    pub run_dir: PathBuf,
    /// `log.*`.
    pub log: Log,
    /// What the sections were built from.
    values: Values,
}

/// What a reload changes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Differences {
    /// Keys that take effect.
    pub applied: Vec<String>,
    /// Keys that are left as they were until a restart.
    pub needs_restart: Vec<String>,
}

/// Reads and checks the file.
///
/// # Errors
/// Every fault of it, or that it cannot be read.
pub fn load(path: &Path) -> Result<Config, Faults> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| {
        let mend = "name the file with --config, or copy agent.yaml.example there and edit it".to_owned();
        Faults::new(
            &file,
            vec![Fault { line: None, key: String::new(), what: format!("cannot be read: {error}"), mend }],
        )
    })?;
    parse(&text, &file, &|name| std::env::var(name).ok())
}

/// Checks a text; `file` names it in faults, `env` gives the environment.
///
/// # Errors
/// Every fault of it.
pub fn parse(text: &str, file: &str, env: Environment<'_>) -> Result<Config, Faults> {
    let document = Document::parse(text).map_err(|(line, what)| {
        let mend = "mend the YAML; agent.yaml.example shows the form".to_owned();
        Faults::new(file, vec![Fault { line, key: String::new(), what: format!("is no valid YAML: {what}"), mend }])
    })?;
    let mut reader = Reader::read(&document, env);
    between::check(&mut reader);
    if reader.faults.is_empty() { Ok(build::build(reader.values)) } else { Err(Faults::new(file, reader.faults)) }
}

/// A key's default as a value, by the same way a typed one takes.
fn default_value(key: &Key) -> Option<Value> {
    let Default::Is(text) = key.default else { return None };
    let node: Node = serde_yaml::from_str(text).ok()?;
    key.kind.read(&node, &|_| None).ok()
}

impl Config {
    /// The configuration in force as YAML, defaults included and secrets masked.
    #[must_use]
    pub fn masked_yaml(&self) -> String {
        let mut root = serde_yaml::Mapping::new();
        for (path, value) in &self.values.by_path {
            let mut place = &mut root;
            let mut names = path.split('.').peekable();
            while let Some(name) = names.next() {
                if names.peek().is_none() {
                    place.insert(name.into(), value.written());
                    break;
                }
                let next = place.entry(name.into()).or_insert_with(|| serde_yaml::Mapping::new().into());
                match next.as_mapping_mut() {
                    Some(mapping) => place = mapping,
                    None => break, // a key cannot be a section as well: the table of keys says so
                }
            }
        }
        serde_yaml::to_string(&root).unwrap_or_default()
    }

    /// Keys set to something other than their default that this version does not act on.
    #[must_use]
    pub fn not_yet_in_force(&self) -> Vec<&'static str> {
        let set = |path: &&&str| {
            let value = self.values.by_path.get(**path);
            let default = KEYS.iter().find(|key| key.path == **path).and_then(default_value);
            value.is_some() && value != default.as_ref()
        };
        NOT_YET_IN_FORCE.iter().filter(set).copied().collect()
    }

    /// What taking `new` in place of this one changes.
    #[must_use]
    pub fn reload_differences(&self, new: &Config) -> Differences {
        let mut differences = Differences::default();
        let mut paths: Vec<&String> = self.values.by_path.keys().chain(new.values.by_path.keys()).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            let found = self.values.found_out.contains(path.as_str()) && new.values.found_out.contains(path.as_str());
            if found || self.values.by_path.get(path) == new.values.by_path.get(path) {
                continue;
            }
            let applied = keys::find(path).is_some_and(|key| key.on_reload == OnReload::Applied);
            let list = if applied { &mut differences.applied } else { &mut differences.needs_restart };
            list.push(path.clone());
        }
        differences
    }
}
