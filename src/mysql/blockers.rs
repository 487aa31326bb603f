//! Who holds a statement up, in words for people, and what kind of holding up it is.

use std::time::Duration;

use super::connect::{Line, Row};
use super::fault::Fault;

/// A session as the process list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// For `KILL`.
    pub id: u64,
    /// Account name; `system user` and `event_scheduler` for the server's own threads.
    pub user: String,
    /// `Query`, `Sleep`, `Binlog Dump GTID`, …
    pub command: String,
    /// What it waits for, as the server words it.
    pub state: String,
    /// Holds a lock that keeps the server from becoming read-only (`GLOBAL` or `COMMIT`: every statement that writes,
    /// `LOCK TABLES … WRITE` and `FLUSH TABLES WITH READ LOCK` until they are undone).
    pub holds: bool,
    /// The beginning of its statement.
    pub statement: String,
    /// For how long it has been doing that, or nothing. Whole seconds, rounded by the server: 2 or more is more than one.
    pub seconds: u64,
}

/// A commit waits for semi-sync.
pub const NO_ACKNOWLEDGEMENT: &str = "no replica acknowledges the commit (semi-sync)";
/// What is said besides where an account statement is among the commits that wait: it holds the server's lock on accounts
/// meanwhile (interleaving 16), so that bringing a replica back does not help.
const NOBODY_LOGS_IN: &str = "an account statement waits for that too and lets nobody log in, a returning replica neither, until commits \
                              need no acknowledgement (degrade.allow_times, which a reload may change) or mysqld is killed";
/// How account statements begin.
const ACCOUNT_STATEMENTS: [&str; 10] = [
    "CREATE USER",
    "ALTER USER",
    "DROP USER",
    "RENAME USER",
    "CREATE ROLE",
    "DROP ROLE",
    "GRANT ",
    "REVOKE ",
    "SET PASSWORD",
    "SET DEFAULT ROLE",
];

/// How a write of ours can hang without the server being at fault.
const EXCUSES: [(&str, &str); 5] = [
    ("Waiting for semi-sync ACK", NO_ACKNOWLEDGEMENT),
    ("Waiting for global read lock", "a global read lock (FLUSH TABLES WITH READ LOCK, a backup)"),
    ("Waiting for commit lock", "a global read lock (FLUSH TABLES WITH READ LOCK, a backup)"),
    ("Waiting for backup lock", "LOCK INSTANCE FOR BACKUP"),
    ("Waiting for table metadata lock", "a lock on the heartbeat table (LOCK TABLES, or DDL on it)"),
];

/// What excuses a session in this state; none where nothing does (a full disk, a hung engine).
#[must_use]
pub fn excuse(state: &str) -> Option<&'static str> {
    EXCUSES.iter().find(|(start, _)| state.starts_with(start)).map(|(_, words)| *words)
}

/// That acknowledgements are missing, in words.
#[must_use]
pub fn without_acknowledgement(sessions: &[Session]) -> String {
    // Behind another commit that waits it shows no more than `waiting for handler commit`.
    match sessions.iter().any(Session::changes_accounts) {
        true => format!("{NO_ACKNOWLEDGEMENT}; {NOBODY_LOGS_IN}"),
        false => NO_ACKNOWLEDGEMENT.to_owned(),
    }
}

impl Session {
    /// Executes an account statement. Its text is for nobody's eyes: it may hold a password.
    fn changes_accounts(&self) -> bool {
        let statement = self.statement.to_ascii_uppercase();
        self.command == "Query" && ACCOUNT_STATEMENTS.iter().any(|beginning| statement.starts_with(beginning))
    }

    /// Waits for a semi-sync acknowledgement.
    #[must_use]
    pub fn waits_for_ack(&self) -> bool {
        self.state.starts_with(EXCUSES[0].0)
    }

    /// A thread of the server itself or one that feeds a replica: never killed, never a blocker.
    #[must_use]
    pub fn is_systems(&self) -> bool {
        matches!(self.user.as_str(), "system user" | "event_scheduler" | "unauthenticated user")
            || matches!(self.command.as_str(), "Daemon" | "Binlog Dump" | "Binlog Dump GTID" | "Register Replica")
    }

    /// Has been holding for more than a second what read-only has to wait for. What it took within this second may be an ordinary
    /// statement, which is over in a moment.
    #[must_use]
    pub fn holds_up(&self) -> bool {
        self.holds && !self.is_systems() && self.seconds >= 2
    }

    fn in_words(&self) -> String {
        let does = match (self.state.as_str(), self.statement.as_str()) {
            ("", "") => "idle in a transaction or with locks".to_owned(),
            (state, "") => state.to_owned(),
            _ if self.changes_accounts() => "an account statement".to_owned(),
            (_, statement) => statement.to_owned(),
        };
        format!("session {} of {}: {does}", self.id, self.user)
    }
}

/// All sessions but the own one. Reads `performance_schema` only, which takes no lock that they could hold.
///
/// # Errors
/// See [`Fault`].
pub async fn sessions(line: &mut Line, limit: Duration) -> Result<Vec<Session>, Fault> {
    let sql = "SELECT p.ID AS id, p.USER AS user, p.COMMAND AS command, p.STATE AS state, \
         p.TIME AS seconds, LEFT(p.INFO, 120) AS statement, \
         t.THREAD_ID IN (SELECT l.OWNER_THREAD_ID FROM performance_schema.metadata_locks l \
         WHERE l.LOCK_STATUS = 'GRANTED' AND l.OBJECT_TYPE IN ('GLOBAL', 'COMMIT')) AS holds \
         FROM performance_schema.processlist p JOIN performance_schema.threads t ON t.PROCESSLIST_ID = p.ID \
         WHERE p.ID <> CONNECTION_ID()";
    Ok(line.rows(sql, limit).await?.iter().map(session).collect())
}

fn session(row: &Row) -> Session {
    Session {
        id: row.number("id").unwrap_or(0),
        user: row.text_or_empty("user"),
        command: row.text_or_empty("command"),
        state: row.text_or_empty("state"),
        holds: row.is_on("holds"),
        seconds: row.number("seconds").unwrap_or(0),
        statement: row.text_or_empty("statement").split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Those that hold what others wait for, and wait for nothing themselves, in words; empty where nobody does.
#[must_use]
pub fn holders_in_words(sessions: &[Session]) -> String {
    let holds =
        |session: &&Session| session.holds && !session.is_systems() && !session.state.starts_with("Waiting for");
    sessions.iter().filter(holds).take(3).map(Session::in_words).collect::<Vec<_>>().join("; ")
}

/// The likely culprits among the sessions, in words; for a message.
#[must_use]
pub fn in_words(sessions: &[Session]) -> String {
    let waits: Vec<_> = sessions.iter().filter(|session| session.waits_for_ack()).collect();
    if !waits.is_empty() {
        return format!("{} commits wait for a semi-sync acknowledgement", waits.len());
    }
    let busy = |session: &&Session| !session.is_systems() && (session.holds || session.command == "Query");
    let names: Vec<_> = sessions.iter().filter(busy).take(5).map(Session::in_words).collect();
    if names.is_empty() { "no session that could be named".into() } else { names.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_no_excuse() {
        assert!(excuse("Waiting for semi-sync ACK from replica").is_some());
        assert!(excuse("Waiting for semi-sync ACK from slave").is_some());
        for state in ["waiting for handler commit", "", "Waiting for disk space", "updating"] {
            assert_eq!(excuse(state), None, "{state}");
        }
    }

    #[test]
    fn an_account_statement_that_waits_is_named_by_its_effect_and_never_by_its_text() {
        let session = |state: &str, statement: &str| Session {
            id: 1,
            user: "root".into(),
            command: "Query".into(),
            state: state.into(),
            holds: true,
            seconds: 0,
            statement: statement.into(),
        };
        let account = session("waiting for handler commit", "create user late IDENTIFIED BY 'secret'");
        let commit = session("Waiting for semi-sync ACK from replica", "INSERT INTO grants VALUES (1)");
        let said = without_acknowledgement(&[commit.clone(), account.clone()]);
        assert!(said.starts_with(NO_ACKNOWLEDGEMENT) && said.contains("log in") && !said.contains("secret"), "{said}");
        assert_eq!(without_acknowledgement(&[commit]), NO_ACKNOWLEDGEMENT);
        assert_eq!(in_words(&[account]), "session 1 of root: an account statement");
    }

    #[test]
    fn threads_of_the_server_are_never_named() {
        let session = |user: &str, command: &str| Session {
            id: 1,
            user: user.into(),
            command: command.into(),
            state: String::new(),
            holds: true,
            statement: "SELECT 1".into(),
            seconds: 0,
        };
        let all = [session("repl", "Binlog Dump GTID"), session("event_scheduler", "Daemon"), session("app", "Sleep")];
        assert_eq!(in_words(&all), "session 1 of app: SELECT 1");
    }

    #[test]
    fn who_holds_for_long_is_told_from_who_writes_just_now() {
        let session = |command: &str, state: &str, seconds| Session {
            id: 7,
            user: "app".into(),
            command: command.into(),
            state: state.into(),
            holds: true,
            statement: String::new(),
            seconds,
        };
        assert!(session("Sleep", "", 2).holds_up() && session("Query", "copy to tmp table", 60).holds_up());
        // 1 is anything between nothing and two seconds.
        assert!(!session("Query", "updating", 1).holds_up() && !session("Binlog Dump GTID", "", 60).holds_up());
        assert!(!Session { holds: false, ..session("Sleep", "", 60) }.holds_up());
        let all = [session("Query", "Waiting for global read lock", 60), session("Sleep", "", 3)];
        assert_eq!(holders_in_words(&all), "session 7 of app: idle in a transaction or with locks");
    }
}
