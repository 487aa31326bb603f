//! This host beside the other members: names, UUIDs, accounts, and whether writes finish.

use super::{LIMIT, Report, Verdict};
use crate::agent::run::own_target;
use crate::config::Config;
use crate::core::records::{AgentRecord, DurabilityMode};
use crate::core::view::{Ensemble, ServerFacts};
use crate::mysql::accounts;
use crate::mysql::connect::Line;

const UNIQUE_NAME: &str = "give this host a `name` of its own in its file (without the key it is the host's name): two hosts of one \
     name take each other's place in the cluster";

/// What this host's agent is known by, or would be.
struct Own {
    name: String,
    address: String,
    boot_id: String,
    home: Option<String>,
}

fn own(config: &Config) -> std::io::Result<Own> {
    let own = crate::agent::run::own(config, "check", false)?;
    Ok(Own { name: own.name, address: own.address, boot_id: own.boot_id, home: own.home })
}

/// Registered from this host with the same `state_dir`: containers and namespaces share the boot, and have another directory.
fn is_of_this_host(own: &Own, agent: &AgentRecord) -> bool {
    agent.boot_id == own.boot_id && (agent.home.is_none() || agent.home == own.home)
}

/// Whether `name` is this server's and nobody else's. A file that was copied from another host shows here first.
pub(super) fn name(config: &Config, report: &mut Report, ensemble: &Ensemble, facts: &ServerFacts) {
    let Ok(own) = own(config) else { return };
    match misnamed(&own, ensemble, &facts.server_uuid) {
        None => report.must("name", true, format!("{} is no other server's name", own.name), ""),
        Some((verdict, found, mend)) => report.add("name", false, verdict, found, mend),
    }
}

/// What is wrong with our name, and the mend.
fn misnamed(own: &Own, ensemble: &Ensemble, server_uuid: &str) -> Option<(Verdict, String, String)> {
    let name = &own.name;
    let agents = || ensemble.agents.values().map(|seen| &seen.record);
    let uuid = |agent: &AgentRecord| agent.server.as_ref().map(|server| server.server_uuid.clone());
    let ours = |agent: &&AgentRecord| {
        agent.name != *name && is_of_this_host(own, agent) && uuid(agent).as_deref() == Some(server_uuid)
    };
    if let Some(agent) = agents().find(ours) {
        let found = format!("this host's agent runs as {}, and the file says name: {name}", agent.name);
        let mend = format!("set name: {} again, or restart the agent where the new name is meant", agent.name);
        return Some((Verdict::Fail, found, mend));
    }
    if let Some(agent) = agents().find(|agent| agent.name == *name) {
        let at = &agent.address;
        return match uuid(agent) {
            _ if is_of_this_host(own, agent) && *at == own.address => None,
            Some(other) if other != server_uuid => {
                let found = format!("an agent named {name} runs for another server: {at}, server_uuid {other}");
                Some((Verdict::Fail, found, UNIQUE_NAME.to_owned()))
            }
            _ => {
                let found = format!(
                    "an agent named {name} is registered from elsewhere ({at}): another host, another state_dir, or this host \
                     before its restart"
                );
                Some((
                    Verdict::Warn,
                    found,
                    format!("if it does not go away within the session timeout: {UNIQUE_NAME}"),
                ))
            }
        };
    }
    let member = ensemble.topology.record()?.members.get(name)?;
    (member.server_uuid != server_uuid && member.address != own.address).then(|| {
        let found = format!(
            "the member {name} is another server: {}, server_uuid {}; its agent does not run",
            member.address, member.server_uuid
        );
        (Verdict::Warn, found, format!("unless this host replaces it: {UNIQUE_NAME}"))
    })
}

/// On the primary: whether its heartbeat comes to an end. Where it does not, neither does any client's write.
pub(super) fn writes_finish(report: &mut Report, ensemble: &Ensemble, server_uuid: &str) {
    let Some(blocked) = blocked(ensemble, server_uuid) else { return };
    let found = match &blocked {
        None => "the primary's heartbeat is written".to_owned(),
        Some(by) => format!("this server takes writes, but one does not finish: {by}"),
    };
    let mend = "no acknowledgement: bring a replica back (see degrade.*); a lock: end the session that holds it, or wait for it";
    report.must("writes-finish", blocked.is_none(), found, mend);
}

/// What its agent says of the primary with this UUID; none where it is not the primary, or says nothing.
fn blocked(ensemble: &Ensemble, server_uuid: &str) -> Option<Option<String>> {
    let primary = ensemble.topology.record()?.primary.as_ref()?;
    let server = ensemble.agents.get(primary)?.record.server.as_ref()?;
    // One that is not healthy either does not answer: other rules say so.
    (server.server_uuid == server_uuid && server.healthy).then(|| server.blocked.clone())
}

/// In `lossless` each host had better have a replication account of its own.
pub(super) fn replication_accounts(config: &Config, report: &mut Report, ensemble: &Ensemble) {
    if config.failover.durability != DurabilityMode::Lossless {
        return;
    }
    let ours = &config.mysql.replication.user;
    let others = ensemble.agents.values().map(|seen| &seen.record).filter(|agent| agent.name != config.name);
    let sharing: Vec<&str> =
        others.filter(|agent| agent.replication_user.as_ref() == Some(ours)).map(|agent| agent.name.as_str()).collect();
    let found = match sharing.is_empty() {
        true => format!("'{ours}' is the replication account of no other host"),
        false => format!(
            "'{ours}' is the replication account of {} too: should one of these hosts die, it stays in the sync set, and nobody may be \
             promoted when the primary dies next",
            sharing.join(", ")
        ),
    };
    report.should(
        "own-replication-account",
        sharing.is_empty(),
        found,
        "create an account for each host on the primary (packaging/grants.sql), name it under mysql.replication in that host's \
         file, restart its agent",
    );
}

/// Accounts of this server that are locked for a member although nobody has recorded it: a restored backup, a deleted `topology`.
pub(super) async fn left_locked(config: &Config, report: &mut Report, ensemble: &Ensemble) {
    let Ok(locked) = accounts::locked_for_members(&mut Line::new(own_target(config)), LIMIT).await else { return };
    let recorded = |member: &str| {
        ensemble.topology.record().is_some_and(|topology| topology.durability.is_locked_at(member, &config.name))
    };
    let left: Vec<String> =
        locked.into_iter().filter(|(_, member)| !recorded(member)).map(|(account, _)| account).collect();
    let found = match left.is_empty() {
        true => "no replication account is left locked on this server".to_owned(),
        false => format!("locked on this server for a member, and nobody will unlock it: {}", left.join(", ")),
    };
    report.should(
        "locked-accounts",
        left.is_empty(),
        found,
        "once that host's agent runs, on this server while it is the primary: SET SESSION sql_log_bin=0; ALTER USER … ACCOUNT UNLOCK",
    );
}

/// `server_uuid` and `server_id` within the cluster.
pub(super) fn unique(config: &Config, report: &mut Report, ensemble: &Ensemble, facts: &ServerFacts) {
    let own = own(config);
    let others = || {
        let agents = ensemble.agents.values().map(|seen| &seen.record).filter(|agent| agent.name != config.name);
        // This very server under another name is no copy of it: that is for the rule `name`.
        let another = agents.filter(|agent| !own.as_ref().is_ok_and(|own| is_of_this_host(own, agent)));
        another.filter_map(|agent| Some((agent.name.as_str(), agent.server.as_ref()?)))
    };
    let uuid = others().find(|(_, server)| server.server_uuid == facts.server_uuid).map(|(name, _)| name);
    report.must(
        "unique-server-uuid",
        uuid.is_none(),
        format!("{}{}", facts.server_uuid, uuid.map(|name| format!(" is also {name}'s")).unwrap_or_default()),
        "stop mysqld, remove auto.cnf from the copied data directory, start it",
    );
    let id = others().find(|(_, server)| server.server_id == facts.server_id).map(|(name, _)| name);
    report.must(
        "unique-server-id",
        id.is_none(),
        format!("{}{}", facts.server_id, id.map(|name| format!(" is also {name}'s")).unwrap_or_default()),
        "give each server its own server_id in my.cnf",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::records::ServerRecord;
    use crate::core::time::Moment;
    use crate::core::view::Seen;

    const OURS: &str = "uuid-of-this-server";

    fn own() -> Own {
        let home = Some("home".into());
        Own { name: "db1".into(), address: "10.0.0.1:3306".into(), boot_id: "boot".into(), home }
    }

    /// An agent as `agents/<name>` shows it.
    fn agent(name: &str, address: &str, boot_id: &str, home: &str, uuid: &str) -> AgentRecord {
        let json = serde_json::json!({
            "name": name, "address": address, "boot_id": boot_id, "home": home, "instance": "i", "agent_version": "0",
            "at": "2026-11-30T10:00:00.000Z", "priority": 100, "role": "replica", "row": "F7", "reason": "following", "detail": "",
            "server": {"server_uuid": uuid, "server_id": 1, "version": "9.7.0", "healthy": true, "writable": false,
                       "executed": "", "retrieved": ""},
        });
        serde_json::from_value(json).unwrap()
    }

    fn ensemble(agents: Vec<AgentRecord>) -> Ensemble {
        let seen = |record| Seen { record, version: 0, owner: 1, created: 1, first_seen: Moment(0) };
        Ensemble {
            agents: agents.into_iter().map(|agent| (agent.name.clone(), seen(agent))).collect(),
            ..Ensemble::default()
        }
    }

    fn verdict(agents: Vec<AgentRecord>) -> Option<(Verdict, String)> {
        misnamed(&own(), &ensemble(agents), OURS).map(|(verdict, found, mend)| (verdict, format!("{found}; {mend}")))
    }

    #[test]
    fn our_own_agent_may_have_our_name() {
        assert_eq!(verdict(vec![]), None);
        let all = vec![
            agent("db1", "10.0.0.1:3306", "boot", "home", OURS),
            agent("db2", "10.0.0.2:3306", "boot 2", "home", "another"),
        ];
        assert_eq!(verdict(all), None);
    }

    #[test]
    fn a_copied_file_is_told_from_a_copied_server() {
        // The file of db1, copied to db2, whose own agent still runs.
        let (verdict_of, text) = verdict(vec![
            agent("db1", "10.0.0.1:3306", "boot 1", "home 1", "another"),
            agent("db2", "10.0.0.2:3306", "boot", "home", OURS),
        ])
        .unwrap();
        assert!(verdict_of == Verdict::Fail && text.contains("set name: db2"), "{text}");
        // The same where it does not run.
        let (verdict_of, text) = verdict(vec![agent("db1", "10.0.0.1:3306", "boot 1", "home", "another")]).unwrap();
        assert!(verdict_of == Verdict::Fail && text.contains("`name` of its own"), "{text}");
        // Or the host was restarted just now.
        let (verdict_of, text) = verdict(vec![agent("db1", "10.0.0.1:3306", "boot 0", "home", OURS)]).unwrap();
        assert!(verdict_of == Verdict::Warn && text.contains("before its restart"), "{text}");
    }

    #[test]
    fn a_blocked_heartbeat_is_told_of_the_primary_alone() {
        let mut record = agent("db1", "10.0.0.1:3306", "boot", "home", OURS);
        let mut all = ensemble(vec![record.clone()]);
        assert_eq!(blocked(&all, OURS), None, "not adopted");
        let topology = serde_json::json!({
            "format": 1, "cluster": "c", "epoch": 1, "primary": "db1", "since": "", "reason": "adopted", "members": {},
            "last_writer": "db1", "durability": {"mode": "async", "sync_replicas": 1},
        });
        let of = |record: AgentRecord| {
            let mut all = ensemble(vec![record]);
            let record = serde_json::from_value(topology.clone()).unwrap();
            all.topology =
                crate::core::view::Node::Here(Seen { record, version: 0, owner: 0, created: 1, first_seen: Moment(0) });
            all
        };
        all = of(record.clone());
        assert_eq!(blocked(&all, OURS), Some(None));
        assert_eq!(blocked(&all, "another"), None, "not this server");
        let server: &mut ServerRecord = record.server.as_mut().unwrap();
        server.blocked = Some("a lock".into());
        assert_eq!(blocked(&of(record.clone()), OURS), Some(Some("a lock".into())));
        record.server.as_mut().unwrap().healthy = false;
        assert_eq!(blocked(&of(record), OURS), None, "does not answer: another rule's");
    }
}
