//! `agent.yaml.example` and the table of keys say the same.

use std::collections::BTreeMap;

use super::super::document::{Document, Node};
use super::super::keys::{Fallback, KEYS, OnReload, TAGS, find};
use super::read;

const EXAMPLE: &str = include_str!("../../../agent.yaml.example");

/// Every path with its value; lists and scalars are leaves.
fn leaves(text: &str) -> BTreeMap<String, Node> {
    fn walk(prefix: &str, node: &Node, into: &mut BTreeMap<String, Node>) {
        match node {
            Node::Map(entries) => {
                for (key, value) in entries {
                    let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
                    walk(&path, value, into);
                }
            }
            // A group whose keys are all commented out.
            Node::Null => {}
            leaf => {
                let again = into.insert(prefix.to_owned(), leaf.clone());
                assert!(again.is_none(), "{prefix} stands twice");
            }
        }
    }
    let mut into = BTreeMap::new();
    walk("", &Document::parse(text).unwrap().root, &mut into);
    into
}

/// Takes the mark away from lines of the form `#key:` (and `#|key:` with `others`). Prose has a blank after its `#`.
fn uncommented(others: bool) -> String {
    let mut text = String::new();
    for line in EXAMPLE.lines() {
        let (indent, rest) = line.split_at(line.len() - line.trim_start().len());
        let key = match rest.strip_prefix('#') {
            Some(marked) if marked.starts_with('|') && others => marked.get(1..),
            Some(marked) if marked.starts_with(|c: char| c.is_ascii_lowercase()) => Some(marked),
            _ => None,
        };
        text += &match key {
            Some(key) => format!("{indent}{key}\n"),
            None => format!("{line}\n"),
        };
    }
    text
}

#[test]
fn it_works_as_it_stands_and_with_everything_switched_on() {
    let plain = read(EXAMPLE).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(plain.cluster, "orders");
    // The one secret of the optional part comes from a file that is not there.
    let all = uncommented(false).replace("password_file: /etc/mysql-ha-agent/zookeeper.password", "password_env: SET");
    let all = read(&all).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(all.zookeeper.auth.unwrap().user, "mysql-ha");
    assert_eq!(all.tags["rack"], "12");
}

#[test]
fn every_key_of_the_table_stands_in_it_and_no_other() {
    let mut there: Vec<String> = leaves(&uncommented(true)).into_keys().collect();
    let mut known: Vec<String> = KEYS.iter().map(|key| key.path.replace(TAGS, "tags.rack")).collect();
    there.sort();
    known.sort();
    assert_eq!(there, known);
}

#[test]
fn it_shows_the_defaults_of_the_table() {
    let shown = leaves(EXAMPLE);
    for key in KEYS {
        match key.default {
            Fallback::Is(text) => {
                let default = Document::parse(text).unwrap().root;
                assert_eq!(shown.get(key.path), Some(&default), "{}", key.path);
            }
            Fallback::Required => assert!(shown.contains_key(key.path), "{}", key.path),
            Fallback::Unset | Fallback::FoundOut(_) => {
                let sample_of_a_required_secret = key.path.starts_with("mysql.") && key.path.ends_with(".password");
                assert_eq!(shown.contains_key(key.path), sample_of_a_required_secret, "{}", key.path);
            }
        }
    }
}

/// The comment above a key carries `[reload]` exactly where the table says that one applies it.
#[test]
fn it_says_which_keys_a_reload_applies() {
    let text = uncommented(true);
    let (mut above, mut sections, mut checked) = (String::new(), Vec::<(usize, String)>::new(), 0);
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if trimmed.starts_with('#') {
            above += trimmed;
        } else if let Some((name, value)) = trimmed.split_once(':') {
            sections.retain(|(depth, _)| *depth < indent);
            let names = sections.iter().map(|(_, n)| n.as_str()).chain([name]);
            let path = names.collect::<Vec<_>>().join(".");
            if value.trim().is_empty() {
                sections.push((indent, name.to_owned()));
                continue; // the comment above a group holds for its keys
            }
            let key = find(&path).unwrap_or_else(|| panic!("{path}"));
            assert_eq!(above.contains("[reload]"), key.on_reload == OnReload::Applied, "{path}");
            checked += 1;
        } else {
            above.clear();
        }
    }
    assert_eq!(checked, KEYS.len());
}
