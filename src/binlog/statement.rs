//! Query events: what the statement is, and whether the engine's own transaction carries it.

/// Thread, time, length of the schema's name, error, length of the variables.
const FIXED: usize = 4 + 4 + 1 + 2 + 2;
/// The status variable `Q_DDL_LOGGED_WITH_XID`.
const DDL_XID: u8 = 17;

/// A query event's body, as far as it matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Query<'a> {
    /// The engine commits it as one transaction, which recovery finds by this number: `Q_DDL_LOGGED_WITH_XID`.
    pub(super) carried: bool,
    /// It ended with an error on the server that wrote it, and may have been done in part.
    pub(super) failed: bool,
    /// The statement.
    pub(super) text: &'a [u8],
}

/// Statements that the engine carries whole, by their first two words; what else carries an Xid is refused.
///
/// `DROP DATABASE` ends tables of other engines, which no engine takes back.
const CARRIED: &[(&str, &[&str])] = &[
    (
        "CREATE",
        &[
            "TABLE",
            "INDEX",
            "UNIQUE",
            "FULLTEXT",
            "SPATIAL",
            "USER",
            "ROLE",
            "VIEW",
            "OR",
            "ALGORITHM",
            "DEFINER",
            "SQL",
            "PROCEDURE",
            "FUNCTION",
            "TRIGGER",
            "EVENT",
            "DATABASE",
            "SCHEMA",
        ],
    ),
    (
        "ALTER",
        &[
            "TABLE",
            "USER",
            "VIEW",
            "ALGORITHM",
            "DEFINER",
            "SQL",
            "PROCEDURE",
            "FUNCTION",
            "EVENT",
            "DATABASE",
            "SCHEMA",
        ],
    ),
    ("DROP", &["TABLE", "INDEX", "USER", "ROLE", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT"]),
    ("RENAME", &["TABLE", "USER"]),
    ("TRUNCATE", &["TABLE"]),
    ("GRANT", &[]),
    ("REVOKE", &[]),
    ("SET", &["PASSWORD", "DEFAULT"]),
];

impl<'a> Query<'a> {
    /// Reads the body; none where it is not understood.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        let schema = usize::from(*body.get(8)?);
        let failed = body.get(9..11)? != [0, 0];
        let variables = usize::from(u16::from_le_bytes(body.get(11..13)?.try_into().ok()?));
        let carried = carried(body.get(FIXED..FIXED + variables)?)?;
        // The schema's name ends with a zero.
        let text = body.get(FIXED + variables + schema + 1..)?;
        Some(Self { carried, failed, text })
    }

    /// The first statement of a transaction that others follow. A table that is made from a query is one.
    pub(super) fn begins(&self) -> bool {
        let words = words(self.text);
        match words.as_deref() {
            Some([first, ..]) if first == "BEGIN" => true,
            Some([first, second]) if first == "XA" => second == "START" || second == "BEGIN",
            _ => self.text.ends_with(b"START TRANSACTION"),
        }
    }

    /// `COMMIT` or `ROLLBACK`: what a transaction without a transactional engine ends with.
    pub(super) fn ends(&self) -> bool {
        // Whole: `ROLLBACK TO` a savepoint ends nothing.
        [&b"COMMIT"[..], b"ROLLBACK"].iter().any(|word| self.text.eq_ignore_ascii_case(word))
    }

    /// Why the engine would not take this definition back; none where it would.
    pub(super) fn refused(&self) -> Option<String> {
        let Some(words) = words(self.text) else { return Some("a statement that is not understood".into()) };
        let name = words.join(" ");
        if self.failed {
            return Some(format!("'{name} …', which ended with an error"));
        }
        if !self.carried {
            return Some(format!("'{name} …', which no engine's transaction carries"));
        }
        let known = CARRIED.iter().any(|(first, seconds)| {
            words.first().is_some_and(|word| word == first)
                && (seconds.is_empty() || words.get(1).is_some_and(|word| seconds.contains(&word.as_str())))
        });
        // It removes or adds a file outside of the engine's transaction. A false alarm costs no more than a refusal.
        let files = ["TABLESPACE", "MYISAM"].into_iter().any(|word| contains(self.text, word));
        (!known || files).then(|| format!("'{name} …', which changes more than the engine takes back"))
    }
}

fn contains(text: &[u8], word: &str) -> bool {
    text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// The first two words in capitals. None: a comment that is executed, or one without an end.
fn words(text: &[u8]) -> Option<Vec<String>> {
    let mut rest = text;
    let mut found = Vec::new();
    while found.len() < 2 {
        rest = without_blanks(rest)?;
        let length = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        if length == 0 {
            break;
        }
        found.push(String::from_utf8_lossy(&rest[..length]).to_ascii_uppercase());
        rest = &rest[length..];
    }
    (!found.is_empty()).then_some(found)
}

/// Blanks and comments are passed over.
fn without_blanks(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        text = text.trim_ascii_start();
        let line = text.starts_with(b"#")
            || (text.starts_with(b"-- ") || text.starts_with(b"--\n") || text.starts_with(b"--\t"));
        if text.starts_with(b"/*!") || text.starts_with(b"/*+") {
            return None;
        } else if text.starts_with(b"/*") {
            let end = text.get(2..)?.windows(2).position(|part| part == b"*/")?;
            text = &text[2 + end + 2..];
        } else if line {
            let end = text.iter().position(|byte| *byte == b'\n')?;
            text = &text[end..];
        } else {
            return Some(text);
        }
    }
}

/// Whether `Q_DDL_LOGGED_WITH_XID` is among the status variables; none where one is not known (`statement_events.cpp`).
fn carried(mut variables: &[u8]) -> Option<bool> {
    let mut carried = false;
    while let Some((&code, rest)) = variables.split_first() {
        let counted = |at: usize| rest.get(at).map(|length| at + 1 + usize::from(*length));
        let length = match code {
            0 | 3 | 10 => 4,
            1 | 9 | DDL_XID => 8,
            4 => 6,
            // The catalogue, once with a zero behind it; the time zone.
            2 => counted(0)? + 1,
            5 | 6 => counted(0)?,
            7 | 8 | 18 => 2,
            // User and host.
            11 => counted(counted(0)?)?,
            12 => schemas(rest)?,
            13 => 3,
            // 21: since 9.x (seen on 9.7.4).
            16 | 19 | 20 | 21 => 1,
            _ => return None,
        };
        carried |= code == DDL_XID;
        variables = rest.get(length..)?;
    }
    Some(carried)
}

/// The length of the list of schemas: how many (254: too many to be listed), then names that end with a zero.
fn schemas(rest: &[u8]) -> Option<usize> {
    let count = *rest.first()?;
    let mut length = 1;
    for _ in 0..if count == 254 { 0 } else { count } {
        length += rest.get(length..)?.iter().position(|byte| *byte == 0)? + 1;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(variables: &[u8], text: &str) -> Vec<u8> {
        let length = u16::try_from(variables.len()).unwrap().to_le_bytes();
        [&[0; 8], &[3][..], &[0, 0], &length, variables, b"app\0", text.as_bytes()].concat()
    }

    /// What a server of 9.7 writes before a definition, shortened: flags, mode, time zone, character sets, schemas, the Xid.
    const WITH_XID: &[u8] = &[
        0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 3, b's', b't', b'd', 4, 8, 0, 8, 0, 8, 0, 12, 1, b'a', 0, DDL_XID,
        7, 0, 0, 0, 0, 0, 0, 0, 20, 0,
    ];

    fn refused(variables: &[u8], text: &str) -> Option<String> {
        Query::read(&query(variables, text)).unwrap().refused()
    }

    #[test]
    fn what_the_engine_carries_may_be_taken_back() {
        for text in [
            "create table t (id int primary key)",
            "/* a comment */ ALTER TABLE t ADD COLUMN n INT",
            "-- a line\nDROP TABLE `t` /* generated by server */",
            "TRUNCATE TABLE t",
            "CREATE USER 'u'@'%' IDENTIFIED WITH 'caching_sha2_password'",
            "GRANT SELECT ON *.* TO u",
            "CREATE DEFINER=`root`@`localhost` PROCEDURE p() SELECT 1",
        ] {
            assert_eq!(refused(WITH_XID, text), None, "{text}");
        }
    }

    #[test]
    fn all_else_is_refused_and_named() {
        for (variables, text, part) in [
            (WITH_XID, "DROP DATABASE d", "DROP DATABASE"),
            (WITH_XID, "drop/**/schema d", "DROP SCHEMA"),
            (WITH_XID, "/*!50003 CREATE TABLE t (id INT) */", "not understood"),
            (WITH_XID, "/* without an end", "not understood"),
            (WITH_XID, "ALTER TABLE t DISCARD TABLESPACE", "more than the engine"),
            (WITH_XID, "CREATE TABLE t (id INT) ENGINE=MyISAM", "more than the engine"),
            (&[], "CREATE TABLE t (id INT) ENGINE=MyISAM", "no engine's"),
            (&[], "FLUSH PRIVILEGES", "no engine's"),
            (WITH_XID, "FLUSH PRIVILEGES", "more than the engine"),
        ] {
            let why = refused(variables, text).unwrap_or_else(|| panic!("{text} is not refused"));
            assert!(why.contains(part), "{text}: {why}");
        }
    }

    #[test]
    fn unknown_variables_and_short_bodies_are_not_understood() {
        assert_eq!(Query::read(&query(&[99, 0], "BEGIN")), None);
        let whole = query(WITH_XID, "DROP TABLE t");
        for length in 0..whole.len() - "DROP TABLE t".len() {
            assert_eq!(Query::read(&whole[..length]), None, "{length}");
        }
    }

    #[test]
    fn begins_and_ends() {
        for text in ["BEGIN", "XA START X'61',X'',1", "CREATE TABLE `t` (\n  `id` int\n) START TRANSACTION"] {
            assert!(Query::read(&query(&[], text)).unwrap().begins(), "{text}");
        }
        let commit = query(&[], "COMMIT");
        let commit = Query::read(&commit).unwrap();
        assert!(commit.ends() && !commit.begins());
    }
}
