//! What the session's account may do: its own grants and those of its active roles alike.
//!
//! `information_schema.USER_PRIVILEGES` shows direct grants alone (seen on 9.7: an account that has everything by its default
//! role reads as one that has nothing), so the `GRANT` statements of `SHOW GRANTS … USING` are read instead. They are
//! the server's own text, one privilege list and one level each, since 8.0 without a change in form.

use std::collections::BTreeSet;
use std::time::Duration;

use super::connect::{Line, Row};
use super::fault::Fault;

/// Where a privilege holds.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    /// `*.*`.
    Global,
    /// A schema, as a pattern of `LIKE`.
    Schema(String),
    /// A table (or a routine) of a schema.
    Table(String, String),
}

/// Some privileges on one level.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    privileges: BTreeSet<String>,
    level: Level,
}

/// All that a session may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grants(Vec<Grant>);

/// Reads what the sessions of this account may do, with the roles that are active in them.
///
/// # Errors
/// See [`Fault`].
pub async fn of_session(line: &mut Line, limit: Duration) -> Result<Grants, Fault> {
    let sql = match active_roles(line, limit).await? {
        None => "SHOW GRANTS FOR CURRENT_USER()".to_owned(),
        Some(roles) => format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}"),
    };
    let rows = line.rows(&sql, limit).await?;
    Ok(Grants::of(rows.iter().filter_map(Row::first_text)))
}

/// The roles that are active in the session, quoted by the server itself, as account names are written; none where none is.
///
/// # Errors
/// See [`Fault`].
pub async fn active_roles(line: &mut Line, limit: Duration) -> Result<Option<String>, Fault> {
    let roles = line.row("SELECT CURRENT_ROLE() AS roles", limit).await?.text_or_empty("roles");
    Ok(Some(roles).filter(|roles| !matches!(roles.as_str(), "NONE" | "")))
}

impl Grants {
    /// The statements of `SHOW GRANTS`. What is no grant of privileges (roles, `PROXY`, partial revokes) is passed over.
    #[must_use]
    pub fn of(statements: impl IntoIterator<Item = String>) -> Self {
        Self(statements.into_iter().filter_map(|statement| grant(&statement)).collect())
    }

    /// Whether `privilege` is granted on `*.*`.
    #[must_use]
    pub fn has(&self, privilege: &str) -> bool {
        self.0.iter().any(|grant| grant.level == Level::Global && grant.gives(privilege))
    }

    /// Whether `privilege` is granted on the whole schema: there, or on `*.*`.
    #[must_use]
    pub fn has_on(&self, schema: &str, privilege: &str) -> bool {
        let covers = |level: &Level| matches!(level, Level::Schema(pattern) if is_like(pattern, schema));
        self.has(privilege) || self.0.iter().any(|grant| covers(&grant.level) && grant.gives(privilege))
    }

    /// Whether these columns of a table can be read, by whatever grant.
    #[must_use]
    pub fn reads(&self, schema: &str, table: &str, columns: &[&str]) -> bool {
        let there = |level: &Level| matches!(level, Level::Table(s, t) if s == schema && t == table);
        let by_column = |column: &&str| {
            let of_column = format!("SELECT ({column})");
            self.0.iter().any(|grant| there(&grant.level) && (grant.gives("SELECT") || grant.gives(&of_column)))
        };
        self.has_on(schema, "SELECT") || columns.iter().all(by_column)
    }
}

impl Grant {
    fn gives(&self, privilege: &str) -> bool {
        self.privileges.contains(privilege) || self.privileges.contains("ALL PRIVILEGES")
    }
}

/// ``GRANT SELECT (`a`, `b`), INSERT ON `schema`.`table` TO `user`@`host` …``; none for every other statement.
fn grant(statement: &str) -> Option<Grant> {
    let rest = statement.strip_prefix("GRANT ")?;
    // A role's grant has no level: it names roles, which are quoted, so that no ` ON ` of theirs is taken for one.
    if rest.starts_with('`') || rest.starts_with("PROXY ") {
        return None;
    }
    let (list, rest) = rest.split_once(" ON ")?;
    let rest = ["TABLE ", "PROCEDURE ", "FUNCTION "].iter().find_map(|kind| rest.strip_prefix(kind)).unwrap_or(rest);
    Some(Grant { privileges: privileges(list), level: level(rest)? })
}

/// `A, B,C, SELECT (`x`, `y`)` one by one; a column's privilege as `SELECT (x)`.
fn privileges(list: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut rest = list;
    while !rest.is_empty() {
        let end = rest.find([',', '(']).unwrap_or(rest.len());
        let name = rest[..end].trim();
        rest = &rest[end..];
        if let Some(columns) = rest.strip_prefix('(') {
            let (inside, after) = columns.split_once(')').unwrap_or((columns, ""));
            all.extend(inside.split(',').map(|column| format!("{name} ({})", column.trim().trim_matches('`'))));
            rest = after;
        } else if !name.is_empty() {
            all.insert(name.to_owned());
        }
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    all
}

fn level(text: &str) -> Option<Level> {
    if text.starts_with("*.*") {
        return Some(Level::Global);
    }
    let (schema, rest) = identifier(text)?;
    match rest.strip_prefix('.')? {
        all if all.starts_with('*') => Some(Level::Schema(schema)),
        table => Some(Level::Table(schema, identifier(table)?.0)),
    }
}

/// A quoted name and what comes after it. A backquote in it is doubled.
fn identifier(text: &str) -> Option<(String, &str)> {
    let inside = text.strip_prefix('`')?;
    let mut name = String::new();
    let mut chars = inside.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '`' if inside[at + 1..].starts_with('`') => drop(chars.next()),
            '`' => return Some((name, &inside[at + 1..])),
            _ => {}
        }
        name.push(char);
    }
    None
}

/// MySQL's `LIKE` for the names of schemas in grants: `_`, `%`, and a backslash before what is meant literally.
fn is_like(pattern: &str, name: &str) -> bool {
    let mut chars = pattern.chars();
    let Some(first) = chars.next() else { return name.is_empty() };
    let rest = chars.as_str();
    let mut of_name = name.chars();
    match first {
        '%' => name.char_indices().map(|(at, _)| &name[at..]).chain([""]).any(|end| is_like(rest, end)),
        '_' => of_name.next().is_some() && is_like(rest, of_name.as_str()),
        '\\' if !rest.is_empty() => {
            let mut literal = rest.chars();
            literal.next() == of_name.next() && is_like(literal.as_str(), of_name.as_str())
        }
        char => of_name.next() == Some(char) && is_like(rest, of_name.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 9.7 prints them for an account whose default role has the rest.
    const SHOWN: [&str; 7] = [
        "GRANT RELOAD, PROCESS, REPLICATION SLAVE, REPLICATION CLIENT, CREATE USER, EVENT ON *.* TO `agent`@`%`",
        "GRANT BACKUP_ADMIN,CONNECTION_ADMIN,SYSTEM_USER ON *.* TO `agent`@`%` WITH GRANT OPTION",
        "GRANT SELECT, INSERT, UPDATE ON `mysql\\_ha`.* TO `agent`@`%`",
        "GRANT SELECT ON `performance_schema`.* TO `agent`@`%`",
        "GRANT SELECT (`Host`, `User`, `account_locked`), INSERT ON `mysql`.`user` TO `agent`@`%`",
        "GRANT `mysql ON *.* ha`@`%` TO `agent`@`%`",
        "GRANT PROXY ON ``@`` TO `agent`@`%` WITH GRANT OPTION",
    ];

    fn shown() -> Grants {
        Grants::of(SHOWN.map(str::to_owned))
    }

    #[test]
    fn global_privileges_of_both_kinds_are_read() {
        for name in ["RELOAD", "REPLICATION CLIENT", "CREATE USER", "EVENT", "BACKUP_ADMIN", "SYSTEM_USER"] {
            assert!(shown().has(name), "{name}");
        }
        for name in ["REPLICATION", "SELECT", "SHUTDOWN", "ALL PRIVILEGES", "SYSTEM"] {
            assert!(!shown().has(name), "{name}");
        }
    }

    #[test]
    fn a_schema_is_covered_by_its_pattern_and_by_everything() {
        let grants = shown();
        assert!(grants.has_on("mysql_ha", "UPDATE") && !grants.has_on("mysql_ha", "DROP"));
        assert!(!grants.has_on("mysqlxha", "SELECT"), "an escaped underscore stands for itself");
        assert!(grants.has_on("performance_schema", "SELECT") && grants.has_on("performanceXschema", "SELECT"));
        assert!(!grants.has_on("mysql", "SELECT"), "a table is not its schema");
        let root = Grants::of(["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION".to_owned()]);
        assert!(root.has("CLONE_ADMIN") && root.has_on("any", "DROP") && root.reads("mysql", "user", &["User"]));
    }

    #[test]
    fn columns_are_read_one_by_one_or_with_their_table() {
        let grants = shown();
        assert!(grants.reads("mysql", "user", &["User", "Host", "account_locked"]));
        assert!(!grants.reads("mysql", "user", &["User", "authentication_string"]));
        assert!(!grants.reads("mysql", "db", &["User"]));
        let table = Grants::of(["GRANT SELECT ON `mysql`.`user` TO `a`@`%`".to_owned()]);
        assert!(table.reads("mysql", "user", &["User", "Host"]));
    }

    #[test]
    fn nothing_else_counts_as_a_grant() {
        let odd = [
            "GRANT USAGE ON *.* TO `a`@`%`",
            "GRANT `app`@`%` TO `a`@`%`",
            "REVOKE SELECT ON `mysql`.* FROM `a`@`%`",
            "GRANT EXECUTE ON PROCEDURE `app`.`p` TO `a`@`%`",
            "GRANT SELECT ON `unfinished",
            "",
        ];
        let grants = Grants::of(odd.map(str::to_owned));
        assert!(!grants.has("SELECT") && !grants.has_on("app", "EXECUTE") && !grants.has_on("mysql", "SELECT"));
    }

    #[test]
    fn quoted_names_and_patterns_are_taken_as_the_server_means_them() {
        assert_eq!(identifier("`a``b`.*"), Some(("a`b".to_owned(), ".*")));
        for (pattern, name, fits) in [
            ("my%", "mysql_ha", true),
            ("%ha", "mysql_ha", true),
            ("%", "", true),
            ("my_ql", "mysql", true),
            ("my\\%", "mysql", false),
            ("m", "my", false),
        ] {
            assert_eq!(is_like(pattern, name), fits, "{pattern} {name}");
        }
    }
}
