//! The YAML document as a tree that keeps what serde's own types lose: duplicate keys and where everything stands.
//!
//! The YAML crate keeps the places of its events to itself, except in errors. So a place is found by reading the
//! document again and failing on purpose where it is wanted ([`Document::line_of`]). That costs one parse a fault and
//! needs no second, home-made reading of YAML that might disagree with the first.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A value of the document.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// `~`, `null` or nothing at all after the colon.
    Null,
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Integer(i128),
    /// Another number.
    Float(f64),
    /// Anything else that is neither list nor map.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file and with its duplicates.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// What kind of value this is, for messages; shows nothing of its content.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Node::Null => "nothing",
            Node::Flag(_) => "true or false",
            Node::Integer(_) | Node::Float(_) => "a number",
            Node::Text(_) => "text",
            Node::List(_) => "a list",
            Node::Map(_) => "a group of keys",
        }
    }
}

/// A way through the tree: the index of an entry in its map, or of an item in its list, level by level.
pub(super) type Address = Vec<usize>;

/// A parsed document with its text.
pub(super) struct Document<'t> {
    text: &'t str,
    pub(super) root: Node,
}

impl<'t> Document<'t> {
    /// Parses; the error is the parser's message and, where known, the line.
    pub(super) fn parse(text: &'t str) -> Result<Self, (Option<usize>, String)> {
        match serde_yaml::from_str::<Node>(text) {
            Ok(root) => Ok(Self { text, root }),
            Err(e) => Err((e.location().map(|l| l.line()), e.to_string())),
        }
    }

    /// The line, from 1, of the key or list item at `address`.
    pub(super) fn line_of(&self, address: &[usize]) -> Option<usize> {
        let probe = Probe(address).deserialize(serde_yaml::Deserializer::from_str(self.text));
        probe.err().and_then(|e| e.location()).map(|l| l.line())
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value without a tag")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    /// A text without any value: empty, or comments alone.
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Flag(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Integer(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::Integer(value))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        Ok(Node::Integer(i128::try_from(value).unwrap_or(i128::MAX)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<Node>()? {
            let key = match key {
                Node::Text(text) => text,
                Node::Integer(number) => number.to_string(),
                Node::Flag(flag) => flag.to_string(),
                other => return Err(de::Error::custom(format!("a key must be text, this one is {}", other.kind()))),
            };
            map.push((key, entries.next_value()?));
        }
        Ok(Node::Map(map))
    }
}

/// Reads up to an address and fails there, so that the error carries the place.
struct Probe<'a>(&'a [usize]);

impl<'de> DeserializeSeed<'de> for Probe<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// With an address left, goes on into a map or list. Without, the default methods of the trait fail for whatever
/// value there is, which is the purpose.
impl<'de> Visitor<'de> for Probe<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("to fail here")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((index, rest)) = self.0.split_first() else { return Err(de::Error::custom("here")) };
        for _ in 0..*index {
            items.next_element::<IgnoredAny>()?;
        }
        items.next_element_seed(Probe(rest)).map(drop)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((index, rest)) = self.0.split_first() else { return Err(de::Error::custom("here")) };
        for _ in 0..*index {
            entries.next_entry::<IgnoredAny, IgnoredAny>()?;
        }
        if rest.is_empty() {
            // The key's line, not its value's: a section's value begins a line later, and a missing one nowhere.
            return entries.next_key_seed(Probe(rest)).map(drop);
        }
        entries.next_key::<IgnoredAny>()?;
        entries.next_value_seed(Probe(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Finds the address of a dotted path, numbers for list items; the last of duplicates.
    fn address(root: &Node, path: &str) -> Address {
        let mut node = root;
        let mut address = Vec::new();
        for step in path.split('.') {
            let index = match node {
                Node::Map(map) => map.iter().rposition(|(key, _)| key == step).expect(step),
                Node::List(_) => step.parse().unwrap(),
                other => panic!("{other:?} has no {step}"),
            };
            node = match node {
                Node::Map(map) => &map[index].1,
                Node::List(list) => &list[index],
                _ => unreachable!(),
            };
            address.push(index);
        }
        address
    }

    #[test]
    fn places_are_found_whatever_surrounds_them() {
        let text = "# a comment: with a colon\n\
                    a: 1\n\
                    \n\
                    \"b\":   # quoted key\n\
                    \x20 c: [x, {d: y},\n\
                    \x20     z]\n\
                    \x20 'e': |\n\
                    \x20   f: not a key\n\
                    \x20   g: nor this\n\
                    \x20 h:\n\
                    \x20   - one\n\
                    \x20   # between\n\
                    \x20   - two: 2\n\
                    \x20     three: 3\n\
                    empty:\n\
                    a: 2\n\
                    last: {p: 1,\n\
                    \x20 q: 2}\n";
        let document = Document::parse(text).unwrap();
        for (path, line) in [
            ("b", 4),
            ("b.c", 5),
            ("b.c.0", 5),
            ("b.c.1.d", 5),
            ("b.c.2", 6),
            ("b.e", 7),
            ("b.h", 10),
            ("b.h.0", 11),
            ("b.h.1", 13),
            ("b.h.1.three", 14),
            ("empty", 15),
            ("a", 16),
            ("last.p", 17),
            ("last.q", 18),
        ] {
            assert_eq!(document.line_of(&address(&document.root, path)), Some(line), "{path}");
        }
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let (line, message) = Document::parse("a: 1\nb: [1, 2\nc: 3\n").map(|d| d.root).unwrap_err();
        assert!(line.is_some_and(|l| l >= 2), "{line:?} {message}");
    }
}
