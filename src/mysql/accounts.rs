//! Shutting a member out by its replication account, and letting it in again.
//!
//! An account that is locked goes on acknowledging by the connection that stands, and one whose connection was ended alone comes
//! back (interleaving 6). So: lock, end, look, until none is left.
//!
//! Nothing of it is in the binary log (`sql_log_bin=0`). An account statement that waits for its acknowledgement holds up every
//! login, and with it the acknowledgement (interleaving 16); and a lock is a matter of this server alone: another primary is asked
//! by its own agent. It takes a session of its own, so that no other statement of ours is left out of the binary log with it.
//!
//! Each account that is locked gets an attribute with the member's name, and only such are unlocked: one that an operator has
//! locked stays so.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::connect::{Connection, Line, Row, literal};
use super::control::{Control, ControlError, Doing, Done, STEP};
use super::fault::{Fault, code};

/// The lock on the server that both actions take. One that a dead process of ours has sent may be under way still: unlocking must
/// not end after the next locking has been read back.
const MUTEX: &str = "mysql_ha_agent.accounts";
/// How long it is waited for. Unit: seconds.
const MUTEX_WAIT: u32 = 2;

/// How long connections may take to end.
const ENDING: Duration = Duration::from_secs(4);
/// How long somebody may take to log in who had begun to when the accounts were locked.
const LOGIN: Duration = Duration::from_millis(500);
/// Between two looks; the server offers no way to wait for it.
const POLL: Duration = Duration::from_millis(5);

/// Accounts that are locked for a member.
const MARKED: &str = "SELECT USER AS user, HOST AS host, ATTRIBUTE->>'$.mysql_ha_agent.shut_out' AS member \
                      FROM information_schema.USER_ATTRIBUTES \
                      WHERE ATTRIBUTE->>'$.mysql_ha_agent.shut_out' IS NOT NULL";

/// An account as the server has it.
struct Account {
    /// Quoted, for statements.
    name: String,
    user: String,
    locked: bool,
}

/// A session whose statements are in no binary log, holding the lock. It ends with the session, so nothing has to be undone.
async fn session(control: &Control) -> Result<Connection, ControlError> {
    const DOING: &str = "beginning to change accounts";
    let mut session = Connection::open(control.line.target(), STEP).await.doing(DOING)?;
    let sql = format!("SELECT GET_LOCK({}, {MUTEX_WAIT}) AS got", literal(MUTEX));
    if !session.row(&sql, STEP).await.doing(DOING)?.is_on("got") {
        return Err(ControlError::NotInForce("an earlier change of accounts is under way on this server".into()));
    }
    session.run("SET SESSION sql_log_bin=0", STEP).await.doing(DOING)?;
    Ok(session)
}

/// See [`crate::core::action::MysqlAction::ShutOut`].
pub(crate) async fn shut_out(
    control: &mut Control,
    member: &str,
    users: &BTreeSet<String>,
) -> Result<Done, ControlError> {
    if users.contains(control.line.target().user()) {
        return Err(ControlError::NotInForce(format!(
            "{member} replicates by the agents' own account (mysql.user), which cannot be locked; give it another one"
        )));
    }
    let mut session = session(control).await?;
    for account in accounts(&mut session, users).await?.iter().filter(|account| !account.locked) {
        let sql = format!("ALTER USER {} ACCOUNT LOCK ATTRIBUTE {}", account.name, literal(&mark(Some(member))));
        session.run(&sql, STEP).await.doing("locking a replication account")?;
    }
    all_locked(&mut session, users).await?;
    end_connections(&mut session, users).await?;
    // After the look: nobody can have come in since.
    all_locked(&mut session, users).await?;
    Ok(Done::Done)
}

/// See [`crate::core::action::MysqlAction::LetIn`].
pub(crate) async fn let_in(control: &mut Control, member: &str) -> Result<Done, ControlError> {
    const DOING: &str = "unlocking a replication account";
    let mut session = session(control).await?;
    let locked = marked(&session.rows(MARKED, STEP).await.doing(DOING)?);
    for (name, _) in locked.into_iter().filter(|(_, of)| of == member) {
        let sql = format!("ALTER USER {name} ACCOUNT UNLOCK ATTRIBUTE {}", literal(&mark(None)));
        session.run(&sql, STEP).await.doing(DOING)?;
    }
    Ok(Done::Done)
}

/// Accounts of this server that are locked for a member: each in SQL's words, and the member.
///
/// # Errors
/// See [`Fault`].
pub async fn locked_for_members(line: &mut Line, limit: Duration) -> Result<Vec<(String, String)>, Fault> {
    Ok(marked(&line.rows(MARKED, limit).await?))
}

/// Each account of [`MARKED`] in SQL's words, and the member.
fn marked(rows: &[Row]) -> Vec<(String, String)> {
    let name = |row: &Row| account_name(&row.text_or_empty("user"), &row.text_or_empty("host"));
    rows.iter().map(|row| (name(row), row.text_or_empty("member"))).collect()
}

/// What is merged into an account's attribute; null takes it out again.
fn mark(member: Option<&str>) -> String {
    match member {
        // The name as JSON: quotes and backslashes cannot stand in an agent's name.
        Some(member) => format!("{{\"mysql_ha_agent\": {{\"shut_out\": \"{}\"}}}}", member.replace(['"', '\\'], "")),
        None => "{\"mysql_ha_agent\": null}".to_owned(),
    }
}

fn account_name(user: &str, host: &str) -> String {
    format!("{}@{}", literal(user), literal(host))
}

/// All accounts of these users, whatever hosts they are for; each user has one at least.
async fn accounts(session: &mut Connection, users: &BTreeSet<String>) -> Result<Vec<Account>, ControlError> {
    let sql = format!(
        "SELECT User AS user, Host AS host, account_locked = 'Y' AS locked FROM mysql.user WHERE User IN ({})",
        list(users)
    );
    let rows = session.rows(&sql, STEP).await.doing("looking at the replication accounts")?;
    let account = |row: &Row| {
        let user = row.text_or_empty("user");
        Account { name: account_name(&user, &row.text_or_empty("host")), user, locked: row.is_on("locked") }
    };
    let all: Vec<Account> = rows.iter().map(account).collect();
    match users.iter().find(|user| !all.iter().any(|account| account.user == **user)) {
        // Let in as somebody else (an anonymous account, a proxy): nothing to lock.
        Some(missing) => {
            Err(ControlError::NotInForce(format!("there is no account '{missing}' here that could be locked")))
        }
        None => Ok(all),
    }
}

async fn all_locked(session: &mut Connection, users: &BTreeSet<String>) -> Result<(), ControlError> {
    match accounts(session, users).await?.into_iter().find(|account| !account.locked) {
        Some(open) => Err(ControlError::NotInForce(format!("{} was locked and is not", open.name))),
        None => Ok(()),
    }
}

fn list(users: &BTreeSet<String>) -> String {
    users.iter().map(|user| literal(user)).collect::<Vec<_>>().join(", ")
}

/// Ends every connection of these users, again and again, until a look shows none. Whoever was logging in when the accounts were
/// locked may have passed that check without being known by a name yet: waited for a moment, then ended as well.
async fn end_connections(session: &mut Connection, users: &BTreeSet<String>) -> Result<(), ControlError> {
    const DOING: &str = "ending the connections of a replication account";
    let sql = format!(
        "SELECT ID AS id, USER IN ({}) AS theirs FROM performance_schema.processlist \
         WHERE ID <> CONNECTION_ID() AND (USER IN ({0}) OR USER IS NULL OR USER = 'unauthenticated user')",
        list(users)
    );
    let began = Instant::now();
    let mut entering: Option<BTreeSet<u64>> = None;
    loop {
        let rows = session.rows(&sql, STEP).await.doing(DOING)?;
        let ids = |theirs: bool| {
            rows.iter().filter(move |row| row.is_on("theirs") == theirs).filter_map(|row| row.number("id"))
        };
        let nameless: BTreeSet<u64> = ids(false).collect();
        let entered = entering.get_or_insert_with(|| nameless.clone());
        entered.retain(|id| nameless.contains(id));
        let overdue = entered.iter().copied().filter(|_| began.elapsed() >= LOGIN);
        let ending: Vec<u64> = ids(true).chain(overdue).collect();
        if ending.is_empty() && entered.is_empty() {
            return Ok(());
        }
        if began.elapsed() >= ENDING {
            return Err(ControlError::NotInForce(format!("{} connections do not end", ending.len())));
        }
        for id in ending {
            match session.run(&format!("KILL {id}"), STEP).await {
                Err(Fault::Server { code: code::NO_SUCH_THREAD, .. }) => {}
                other => other.doing(DOING)?,
            }
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(account_name("re'pl", "10.0.0.%"), r"'re\'pl'@'10.0.0.%'");
        assert_eq!(list(&["a".to_owned(), r"b\".to_owned()].into()), r"'a', 'b\\'");
        assert_eq!(mark(Some("db3")), r#"{"mysql_ha_agent": {"shut_out": "db3"}}"#);
    }
}
