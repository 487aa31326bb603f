//! Walks the document by the table of keys and collects every fault on the way.
//!
//! Serde would stop at the first fault, and an operator at 3 a.m. would mend the file line by line.

use std::collections::{BTreeMap, BTreeSet};

use super::document::{Address, Document, Node};
use super::fault::Fault;
use super::keys::{self, Fallback, KEYS};
use super::rule;
use super::value::{Environment, Objection, Value};

/// Every key that has a value, by path; what holds by default included.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Values {
    pub(super) by_path: BTreeMap<String, Value>,
    /// Keys of [`Fallback::FoundOut`] that the file leaves open. What is found may differ from one load to the next
    /// (a socket is there while mysqld runs), which must not look like a change of the file.
    pub(super) found_out: BTreeSet<&'static str>,
}

/// The state of one reading.
pub(super) struct Reader<'d> {
    document: &'d Document<'d>,
    env: Environment<'d>,
    /// Where the keys and sections stand that the file has.
    places: BTreeMap<String, Address>,
    pub(super) values: Values,
    pub(super) faults: Vec<Fault>,
}

impl<'d> Reader<'d> {
    /// Reads the whole document and fills in the defaults.
    pub(super) fn read(document: &'d Document<'d>, env: Environment<'d>) -> Self {
        let mut reader = Self { document, env, places: BTreeMap::new(), values: Values::default(), faults: Vec::new() };
        // Anything else is an empty file; `parse` has refused the rest.
        if let Node::Map(entries) = &document.root {
            reader.section("", entries, &[]);
        }
        for key in KEYS {
            reader.fill_in(key);
        }
        reader
    }

    /// Whether the file names this key, rightly or wrongly.
    pub(super) fn names(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    /// A fault of a key that is there, or of one that is missing: then at the line of the section it belongs in.
    pub(super) fn fault(&mut self, path: &str, what: impl Into<String>, mend: impl Into<String>) {
        let mut place = path;
        while !self.places.contains_key(place) {
            match place.rsplit_once('.') {
                Some((section, _)) => place = section,
                None => break,
            }
        }
        let line = self.places.get(place).and_then(|address| self.document.line_of(address)).unwrap_or(1);
        self.faults.push(Fault { line: Some(line), key: path.into(), what: what.into(), mend: mend.into() });
    }

    fn fault_at(&mut self, address: &[usize], key: &str, what: String, mend: String) {
        self.faults.push(Fault { line: self.document.line_of(address), key: key.to_owned(), what, mend });
    }

    /// Reads one level: `prefix` is empty or ends with a dot.
    fn section(&mut self, prefix: &str, entries: &[(String, Node)], above: &[usize]) {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (index, (name, node)) in entries.iter().enumerate() {
            let path = format!("{prefix}{name}");
            let address = [above, &[index]].concat();
            if let Some(first) = seen.insert(name, index) {
                // YAML leaves open which one counts; so does no reader of the file agree with the next.
                let line = self.document.line_of(&[above, &[first]].concat()).unwrap_or(1);
                self.fault_at(
                    &address,
                    &path,
                    format!("is there already in line {line}"),
                    "remove one of the two".into(),
                );
                continue;
            }
            if name.contains('.') && prefix != "tags." {
                // `a.b: 1` is a key with a dot in its name, not `b` below `a`; it would look known by its path.
                self.fault_at(&address, &path, "is no known key".into(), did_you_mean(prefix, name));
            } else if is_section(&path) {
                self.places.insert(path.clone(), address.clone());
                match node {
                    Node::Map(entries) => self.section(&format!("{path}."), entries, &address),
                    // All its keys are commented out.
                    Node::Null => {}
                    other => {
                        let mend =
                            format!("write its keys below it, indented: {}", known(&format!("{path}.")).join(", "));
                        self.fault_at(&address, &path, format!("is {}, not a group of keys", other.kind()), mend);
                    }
                }
            } else if prefix == "tags." || (keys::find(&path).is_some() && path != keys::TAGS) {
                self.value(path, node, address);
            } else {
                self.fault_at(&address, &path, "is no known key".into(), did_you_mean(prefix, name));
            }
        }
    }

    fn value(&mut self, path: String, node: &Node, address: Address) {
        if let Some(tag) = path.strip_prefix("tags.")
            && let Err((what, mend)) = rule::tag(tag)
        {
            self.fault_at(&address, &path, what, mend);
            return;
        }
        let Some(key) = keys::find(&path) else { return };
        self.places.insert(path.clone(), address.clone());
        match key.kind.read(node, self.env) {
            Ok(value) => {
                self.values.by_path.insert(path, value);
            }
            Err(objections) => {
                for Objection { item, what, mend } in objections {
                    let place: Address = address.iter().copied().chain(item).collect();
                    self.fault_at(&place, &path, what, mend);
                }
            }
        }
    }

    /// Gives a key the file does not name its default, by the same way a typed value takes.
    fn fill_in(&mut self, key: &'static keys::Key) {
        if self.names(key.path) {
            return;
        }
        match key.default {
            Fallback::Required => self.fault(key.path, "is missing", format!("add it: {}", key.meaning)),
            Fallback::FoundOut(_) => {
                self.values.found_out.insert(key.path);
            }
            Fallback::Is(_) => {
                if let Some(value) = super::default_value(key) {
                    self.values.by_path.insert(key.path.to_owned(), value);
                }
            }
            Fallback::Unset => {}
        }
    }
}

fn is_section(path: &str) -> bool {
    KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The names that may stand below `prefix`, in the order of the table.
fn known(prefix: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for key in KEYS {
        if let Some(name) = key.path.strip_prefix(prefix).and_then(|rest| rest.split('.').next())
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

/// The mend for an unknown key: the near one here, the same one elsewhere, or all there are.
fn did_you_mean(prefix: &str, name: &str) -> String {
    let path = format!("{prefix}{name}");
    if name.contains('.') && (keys::find(&path).is_some() || is_section(&path)) {
        return format!("write it nested, the parts of `{path}` below each other and indented");
    }
    let plain = name.to_lowercase().replace(['-', ' '], "_");
    let distance = |candidate: &str| strsim::damerau_levenshtein(&plain, candidate);
    let near = |candidate: &str| distance(candidate) <= (candidate.len() / 3).clamp(1, 3);
    let siblings = known(prefix);
    if let Some(sibling) = siblings.iter().filter(|s| near(s)).min_by_key(|s| distance(s)) {
        return format!("did you mean `{prefix}{sibling}`?");
    }
    let elsewhere = KEYS.iter().find(|key| key.path.rsplit('.').next() == Some(plain.as_str()));
    match elsewhere {
        Some(key) => format!("did you mean `{}`?", key.path),
        None => format!("remove it; known here are {}", siblings.join(", ")),
    }
}
