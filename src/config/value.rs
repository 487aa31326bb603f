//! From a value as typed to a value that can work, by the kind its key has in the table.

use std::time::Duration;

use super::address::HostPort;
use super::document::Node;
use super::secret::{Secret, SecretOrigin};
use crate::core::duration;

/// A rule that text must keep: what is wrong with it, and the mend.
pub(super) type Rule = fn(&str) -> Result<(), (String, String)>;

/// What a key takes.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A duration from the one to the other, in milliseconds.
    Duration(u64, u64),
    /// A whole number from the one to the other.
    Integer(u64, u64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Text that keeps a rule.
    Text(Rule),
    /// `host:port`.
    Address,
    /// `host:port` or `off`.
    AddressOrOff,
    /// A list of `host:port`, not empty.
    Addresses,
    /// A list of texts.
    Texts,
    /// A program with its arguments, as a list or as text that is split at blanks.
    Command,
    /// `world`, or a list of digest identities.
    Readers,
    /// `password`.
    Secret,
    /// `password_file`.
    SecretFile,
    /// `password_env`.
    SecretEnv,
}

/// A value that can work.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Duration(Duration),
    Integer(u64),
    Flag(bool),
    Text(String),
    Address(HostPort),
    Addresses(Vec<HostPort>),
    Texts(Vec<String>),
    Secret(Secret),
}

/// Why a value cannot work.
#[derive(Debug)]
pub(super) struct Objection {
    /// Which item of a list; none for the value as a whole.
    pub(super) item: Option<usize>,
    pub(super) what: String,
    pub(super) mend: String,
}

fn object<T>(what: impl Into<String>, mend: impl Into<String>) -> Result<T, Vec<Objection>> {
    Err(vec![Objection { item: None, what: what.into(), mend: mend.into() }])
}

/// Looks an environment variable up.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

impl Kind {
    /// Reads `node` as this kind.
    pub(super) fn read(self, node: &Node, env: Environment<'_>) -> Result<Value, Vec<Objection>> {
        match self {
            Kind::Duration(least, most) => read_duration(node, least, most),
            Kind::Integer(least, most) => read_integer(node, least, most),
            Kind::Flag => match node {
                Node::Flag(flag) => Ok(Value::Flag(*flag)),
                other => object(format!("is {}", shown(other)), "write true or false"),
            },
            Kind::Choice(words) => match node {
                Node::Text(text) if words.contains(&text.as_str()) => Ok(Value::Text(text.clone())),
                other => object(format!("is {}", shown(other)), format!("write one of {}", words.join(", "))),
            },
            Kind::Text(rule) => {
                let text = text(node)?;
                rule(text).or_else(|(what, mend)| object(what, mend))?;
                Ok(Value::Text(text.to_owned()))
            }
            Kind::Address => address(node).map(Value::Address),
            Kind::AddressOrOff => match node {
                Node::Text(off) if off == "off" => Ok(Value::Text("off".into())),
                Node::Flag(false) => object("is false", "write off to disable it"),
                other => address(other).map(Value::Address),
            },
            Kind::Addresses => addresses(node),
            Kind::Texts => texts(node).map(Value::Texts),
            Kind::Command => command(node).map(Value::Texts),
            Kind::Readers => readers(node),
            Kind::Secret => match node {
                Node::Text(secret) if !secret.is_empty() => {
                    Ok(Value::Secret(Secret::new(secret.clone(), SecretOrigin::Inline)))
                }
                Node::Text(_) => object("is empty", "write the password, or use the _file or _env form"),
                other => object(format!("is {}, not text", other.kind()), "put it in quotes"),
            },
            Kind::SecretFile => secret_from_file(text(node)?).map(Value::Secret),
            Kind::SecretEnv => secret_from_environment(text(node)?, env).map(Value::Secret),
        }
    }
}

/// A value for messages: scalars as they are, others by kind. Never called for secrets.
fn shown(node: &Node) -> String {
    match node {
        Node::Text(text) => format!("`{text}`"),
        Node::Integer(number) => format!("the number {number}"),
        Node::Float(number) => format!("the number {number}"),
        Node::Flag(flag) => flag.to_string(),
        other => other.kind().to_owned(),
    }
}

fn text(node: &Node) -> Result<&str, Vec<Objection>> {
    match node {
        Node::Text(text) if text.is_empty() => object("is empty", "write a value, or remove the line"),
        Node::Text(text) => Ok(text),
        Node::Null => object("has no value", "write one, or remove the line"),
        other @ (Node::Integer(_) | Node::Float(_) | Node::Flag(_)) => {
            object(format!("is {}, where text is wanted", shown(other)), "put it in quotes")
        }
        other => object(format!("is {}", other.kind()), "write one text"),
    }
}

fn read_duration(node: &Node, least: u64, most: u64) -> Result<Value, Vec<Objection>> {
    let read = match node {
        Node::Text(text) => duration::parse(text),
        Node::Integer(number) => duration::parse(&number.to_string()),
        Node::Float(number) => duration::parse(&number.to_string()),
        other => return object(format!("is {}, no duration", other.kind()), "write it as 500ms, 3s, 2m or 1h"),
    };
    let length = read.or_else(|fault| object(fault.what, fault.mend))?;
    let (least, most) = (Duration::from_millis(least), Duration::from_millis(most));
    if (least..=most).contains(&length) {
        return Ok(Value::Duration(length));
    }
    object(
        format!("is {}", duration::written(length)),
        format!("choose from {} to {}", duration::written(least), duration::written(most)),
    )
}

fn read_integer(node: &Node, least: u64, most: u64) -> Result<Value, Vec<Objection>> {
    if let Node::Integer(number) = node
        && let Some(number) = u64::try_from(*number).ok().filter(|n| (least..=most).contains(n))
    {
        return Ok(Value::Integer(number));
    }
    object(format!("is {}", shown(node)), format!("write a whole number from {least} to {most}, without quotes"))
}

fn address(node: &Node) -> Result<HostPort, Vec<Objection>> {
    let fault = |what: String| object(what, "write host:port, for example db1.example.org:3306 or [::1]:3306");
    match node {
        Node::Text(text) => text.parse().or_else(|e: super::address::AddressFault| fault(e.to_string())),
        other => fault(format!("is {}, no address", other.kind())),
    }
}

/// Every item of a list through `read`, with all objections.
fn items<T>(list: &[Node], read: impl Fn(&Node) -> Result<T, Vec<Objection>>) -> Result<Vec<T>, Vec<Objection>> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (index, node) in list.iter().enumerate() {
        match read(node) {
            Ok(value) => good.push(value),
            Err(objections) => bad.extend(objections.into_iter().map(|o| Objection { item: Some(index), ..o })),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(bad) }
}

fn addresses(node: &Node) -> Result<Value, Vec<Objection>> {
    let Node::List(list) = node else {
        return object(format!("is {}, no list", shown(node)), "write a list: [zk1:2181, zk2:2181, zk3:2181]");
    };
    if list.is_empty() {
        return object("is an empty list", "name at least one host:port");
    }
    let read = items(list, address)?;
    // A member named twice would be tried twice in a row when it is silent, which the timing has no room for.
    for (index, one) in read.iter().enumerate() {
        if read[..index].contains(one) {
            let what = format!("`{one}` is named twice");
            return Err(vec![Objection { item: Some(index), what, mend: "remove one of the two".into() }]);
        }
    }
    Ok(Value::Addresses(read))
}

fn texts(node: &Node) -> Result<Vec<String>, Vec<Objection>> {
    match node {
        Node::List(list) => items(list, |item| text(item).map(str::to_owned)),
        other => object(format!("is {}, no list", shown(other)), "write a list: [one, two]"),
    }
}

fn readers(node: &Node) -> Result<Value, Vec<Objection>> {
    const MEND: &str = "write world, or a list of digest identities as ZooKeeper stores them: [\"user:base64\"]";
    match node {
        Node::Text(world) if world == "world" => Ok(Value::Text("world".into())),
        Node::List(list) if !list.is_empty() => items(list, |item| {
            let identity = text(item)?;
            match identity.split_once(':') {
                Some((user, digest)) if !user.is_empty() && !digest.is_empty() => Ok(identity.to_owned()),
                _ => object(format!("`{identity}` is no digest identity"), MEND),
            }
        })
        .map(Value::Texts),
        other => object(format!("is {}", shown(other)), MEND),
    }
}

/// No shell is involved, so text that counts on one is refused rather than passed on with its quotes.
fn command(node: &Node) -> Result<Vec<String>, Vec<Objection>> {
    let words = match node {
        Node::List(_) => texts(node)?,
        other => {
            let line = text(other)?;
            if line.contains(['\'', '"', '`', '$', '|', '&', ';', '<', '>', '\\', '*']) {
                return object(
                    "counts on a shell, and none is used",
                    "write a list of words: [program, \"an argument\"], or [sh, -c, \"…\"]",
                );
            }
            line.split_whitespace().map(str::to_owned).collect()
        }
    };
    if words.is_empty() {
        return object("names no program", "write one, or remove the line");
    }
    Ok(words)
}

fn secret_from_file(path: &str) -> Result<Secret, Vec<Objection>> {
    let content = std::fs::read_to_string(path).or_else(|e| {
        object(
            format!("`{path}` cannot be read: {e}"),
            "create it, readable by the user that the agent runs as and by nobody else",
        )
    })?;
    let secret = content.strip_suffix('\n').unwrap_or(&content);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() {
        return object(format!("`{path}` is empty"), "write the password into it");
    }
    Ok(Secret::new(secret.to_owned(), SecretOrigin::File(path.to_owned())))
}

fn secret_from_environment(name: &str, env: Environment<'_>) -> Result<Secret, Vec<Objection>> {
    match env(name).filter(|secret| !secret.is_empty()) {
        Some(secret) => Ok(Secret::new(secret, SecretOrigin::Environment(name.to_owned()))),
        None => object(
            format!("the environment variable `{name}` is not set or empty"),
            "set it for the service (systemd: EnvironmentFile=), or use the _file form",
        ),
    }
}

impl Value {
    /// As it would stand in the file; a secret as `***`, or as the file or variable that gave it.
    pub(super) fn written(&self) -> serde_yaml::Value {
        let list = |items: Vec<String>| items.into_iter().map(serde_yaml::Value::from).collect::<Vec<_>>().into();
        match self {
            Value::Duration(length) => duration::written(*length).into(),
            Value::Integer(number) => (*number).into(),
            Value::Flag(flag) => (*flag).into(),
            Value::Text(text) => text.clone().into(),
            Value::Address(address) => address.to_string().into(),
            Value::Addresses(many) => list(many.iter().map(ToString::to_string).collect()),
            Value::Texts(many) => list(many.clone()),
            Value::Secret(secret) => match secret.origin() {
                SecretOrigin::Inline => secret.to_string().into(),
                SecretOrigin::File(origin) | SecretOrigin::Environment(origin) => origin.clone().into(),
            },
        }
    }
}
