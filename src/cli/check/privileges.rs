//! The agent's account: what it may do, and what does not work without the rest.

use super::{LIMIT, Report, Verdict};
use crate::config::Config;
use crate::mysql::connect::Line;
use crate::mysql::grants::{self, Grants};

/// A privilege on `*.*`, and what does not work without it.
struct Need {
    /// Any of these is enough: the name has changed, or another one covers it.
    one_of: &'static [&'static str],
    /// [`Verdict::Fail`] for what the promises need.
    otherwise: Verdict,
    without: &'static str,
}

const fn must(one_of: &'static [&'static str], without: &'static str) -> Need {
    Need { one_of, otherwise: Verdict::Fail, without }
}

const fn should(one_of: &'static [&'static str], without: &'static str) -> Need {
    Need { one_of, otherwise: Verdict::Warn, without }
}

/// What packaging/grants.sql grants on `*.*`, but for shutting members out ([`shutting_out`]).
const GLOBAL: &[Need] = &[
    must(&["RELOAD"], "replication cannot be ended on a new primary: nobody can be promoted"),
    must(&["PROCESS"], "a commit that waits for its acknowledgement cannot be told from a dead server"),
    must(&["REPLICATION CLIENT"], "the state of replication cannot be read"),
    must(&["REPLICATION SLAVE"], "the connected replicas cannot be read"),
    must(&["REPLICATION_SLAVE_ADMIN"], "replication can be neither stopped nor started nor pointed elsewhere"),
    must(&["SYSTEM_VARIABLES_ADMIN"], "the server can be made neither read-only nor writable"),
    must(
        &["PERSIST_RO_VARIABLES_ADMIN"],
        "skip_replica_start cannot be persisted: a restarted replica replicates by itself",
    ),
    must(
        &["CONNECTION_ADMIN"],
        "sessions in the way of read-only cannot be ended, and offline_mode cuts the agent off",
    ),
    must(
        &["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN"],
        "a full disk cannot be told from a missing acknowledgement",
    ),
    should(
        &["SYSTEM_USER"],
        "a session of an account that has it (root, a backup) cannot be ended: a fence that it holds up kills mysqld",
    ),
    should(&["EVENT"], "events that replication had disabled stay disabled on a new primary"),
    // SET_USER_ID before 8.2.
    should(&["SET_ANY_DEFINER", "SET_USER_ID"], "events of other definers stay disabled on a new primary"),
    should(&["SHUTDOWN"], "a server that is rebuilt by CLONE cannot be restarted (once `rejoin` is in force)"),
    should(&["BACKUP_ADMIN"], "this server can be no donor of a CLONE (once `rejoin` is in force)"),
    should(&["CLONE_ADMIN"], "this server cannot be rebuilt by CLONE (once `rejoin` is in force)"),
];

/// The same on `heartbeat.schema`.
const ON_HEARTBEAT: &[(&str, Verdict, &str)] = &[
    ("SELECT", Verdict::Fail, "the heartbeat cannot be read: lag is unknown"),
    ("INSERT", Verdict::Fail, "the heartbeat cannot be written"),
    ("UPDATE", Verdict::Warn, "a later version may not write the heartbeat"),
    ("DELETE", Verdict::Fail, "the heartbeat cannot be written"),
    ("CREATE", Verdict::Fail, "the heartbeat's table cannot be made"),
    ("ALTER", Verdict::Warn, "an upgrade cannot change the heartbeat's table"),
    ("DROP", Verdict::Warn, "`leave` cannot drop it"),
];

/// What is missing, in words, and how bad that is.
fn missing(grants: &Grants, schema: &str) -> (Verdict, Vec<String>) {
    let of_performance = ("SELECT", Verdict::Fail, "what is in the way of read-only cannot be read");
    let global = GLOBAL
        .iter()
        .filter(|need| !need.one_of.iter().any(|name| grants.has(name)))
        .map(|need| (need.otherwise, format!("{}: {}", need.one_of.join(" or "), need.without)));
    let on = |schema: &str, (name, verdict, without): (&str, Verdict, &str)| {
        (!grants.has_on(schema, name)).then(|| (verdict, format!("{name} ON {schema}.*: {without}")))
    };
    let local = ON_HEARTBEAT.iter().filter_map(|need| on(schema, *need));
    let mut all: Vec<(Verdict, String)> = global.chain(local).chain(on("performance_schema", of_performance)).collect();
    all.sort_by_key(|(verdict, _)| std::cmp::Reverse(*verdict));
    let worst = all.first().map_or(Verdict::Pass, |(verdict, _)| *verdict);
    (worst, all.into_iter().map(|(_, words)| words).collect())
}

pub(super) async fn privileges(config: &Config, line: &mut Line, report: &mut Report) {
    const MEND: &str = "run packaging/grants.sql on the primary";
    let grants = match grants::of_session(line, LIMIT).await {
        Ok(grants) => grants,
        Err(fault) => return report.must("privileges", false, fault.to_string(), MEND),
    };
    let (verdict, missing) = missing(&grants, &config.heartbeat.schema);
    let found = match missing.is_empty() {
        true => "the agent's account has what it needs, by itself and by its active roles".to_owned(),
        false => format!("missing: {}", missing.join("; ")),
    };
    report.add("privileges", missing.is_empty(), verdict, found, MEND);
    shutting_out(&grants, report);
}

/// What it takes to shut a member out by its account. Without it all works as before, and such a member stays in S.
fn shutting_out(grants: &Grants, report: &mut Report) {
    let mut missing: Vec<&str> =
        ["CREATE USER", "SYSTEM_USER", "CONNECTION_ADMIN"].into_iter().filter(|name| !grants.has(name)).collect();
    if !grants.has("SYSTEM_VARIABLES_ADMIN") && !grants.has("SESSION_VARIABLES_ADMIN") {
        missing.push("SESSION_VARIABLES_ADMIN");
    }
    if !grants.reads("mysql", "user", &["User", "Host", "account_locked"]) {
        missing.push("SELECT (User, Host, account_locked) ON mysql.user");
    }
    let found = if missing.is_empty() {
        "a replica whose agent is gone can be shut out by its own account".to_owned()
    } else {
        format!("a replica whose agent is gone cannot be shut out: missing: {}", missing.join(", "))
    };
    report.should(
        "shut-out-privileges",
        missing.is_empty(),
        found,
        "run packaging/grants.sql on the primary; without it such a replica stays in the sync set, and its vote may be missing for \
         a promotion",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<String> {
        vec![
            "GRANT RELOAD, SHUTDOWN, PROCESS, REPLICATION SLAVE, REPLICATION CLIENT, EVENT ON *.* TO `a`@`%`"
                .to_owned(),
            "GRANT BACKUP_ADMIN,CLONE_ADMIN,CONNECTION_ADMIN,PERSIST_RO_VARIABLES_ADMIN,REPLICATION_SLAVE_ADMIN,\
             SET_USER_ID,SYSTEM_USER,SYSTEM_VARIABLES_ADMIN ON *.* TO `a`@`%`"
                .to_owned(),
            "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER ON `ha`.* TO `a`@`%`".to_owned(),
            "GRANT SELECT ON `performance_schema`.* TO `a`@`%`".to_owned(),
        ]
    }

    #[test]
    fn safety_fails_and_the_rest_warns() {
        assert_eq!(missing(&Grants::of(all()), "ha"), (Verdict::Pass, vec![]));
        let without =
            |name: &str| missing(&Grants::of(all().into_iter().map(|line| line.replace(name, "USAGE"))), "ha");
        for (name, verdict) in [("EVENT", Verdict::Warn), ("SYSTEM_USER", Verdict::Warn), ("PROCESS", Verdict::Fail)] {
            let (found, words) = without(name);
            assert!(found == verdict && words.len() == 1 && words[0].starts_with(name), "{name}: {words:?}");
        }
        let (verdict, words) = without("SYSTEM_VARIABLES_ADMIN");
        assert_eq!((verdict, words.len()), (Verdict::Fail, 2), "{words:?}");
        let (verdict, words) = missing(&Grants::of(all()), "elsewhere");
        assert!(verdict == Verdict::Fail && words[0].starts_with("SELECT ON elsewhere.*"), "{words:?}");
    }
}
