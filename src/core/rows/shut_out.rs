//! A member of S whose agent is gone confirms nothing: it is shut out by the replication account that it alone has.
//!
//! Where its host is dead it will never confirm that it acknowledges nothing, and where it is only cut off, or frozen, it may
//! acknowledge the next commit. Left in S, its vote is needed to promote anybody. The primary can make certain by itself: lock every
//! account by which that member may connect, then end its connections, then see them gone. After that nothing that it sends is
//! an acknowledgement, also when it thaws. Interleavings, and the rule against each:
//!
//! | interleaving | rule |
//! | --- | --- |
//! | the account is locked: the connection that stands goes on acknowledging; the connection is ended: it comes back (6) | lock, then end, then look until none is left; then a heartbeat; only then the record without it |
//! | the connection that acknowledges uses another account than the one that is locked | by which users a member may connect is recorded first and used then ([`learn`], `covered`), by a transaction that checks the version of `agents/<member>` it was read from, as with intents (18). And a member that the server still lists as connected is not removed |
//! | others connect by the same account: commits would lose their acknowledgements, or our own agent its server | an account of its own or none ([`own_accounts`]); shared, the member stays in S, and that is said |
//! | the primary dies between locking and recording: the account stays locked, and nobody knows by whom | recorded first that this primary locks ([`Durability::shut_out`]); it is kept through changes of roles, since a lock is in no binary log: each primary has its own, and lifts it when it is the primary again |
//! | the role passes on: the member, locked at the old primary, is pointed at the new one's server and acknowledges there (found by simulation) | being shut out holds for one term. Whoever claims the next one counts such a member in S again, from before it opens ([`crate::core::changes::claimed`]), unless its agent is back and says that it acknowledges nothing; then it shuts it out itself |
//! | what an earlier term locked is relied on, and was unlocked meanwhile (by hand, by a rebuilt server) | done anew in each term, and by each process: only what this process did, and has not begun to undo ([`crate::core::view::Server::accounts`]), counts |
//! | what was acknowledged by the member alone is in no other member's count (5) | a heartbeat sent *after* the connections were gone is acknowledged by the others; its watermark is the floor |
//! | the member's agent comes back meanwhile | the ordinary way: taken back if it follows, asked to confirm if not; then let in |
//! | the member is let in and acknowledges without being in S | let in only where it counts in S, or where its own agent says that it acknowledges nothing: it does so again only once it is recorded |
//! | letting in and removing cross: decided upon one record, done under another | both are ours. The removal names the version of `topology` in which the member is retiring, and under that one nobody lets it in; one lane does both actions, and on the server one lock holds back what a dead process of ours had sent |
//! | the account statement waits for an acknowledgement and holds up every login (16) | it is not in the binary log |
//! | agents are stopped on purpose while a pause is in force | nobody is shut out then |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::durability::{able, acknowledged_since, primary, record, writing};
use super::incident;
use crate::core::action::{MysqlAction, MysqlKind, Op, Path, Purpose};
use crate::core::case::Case;
use crate::core::consent::paused_lease;
use crate::core::memory::{Memory, ShuttingOut};
use crate::core::outcome::Outcome;
use crate::core::reason::Reason;
use crate::core::records::{AgentRecord, Durability, DurabilityMode, Role, Topology};
use crate::core::time::Moment;
use crate::core::view::{AccountChange, Seen};

/// How long shutting out rests where it has failed: as a rule a privilege is missing, and other actions have their own rests.
const AGAIN: Duration = Duration::from_secs(60);
/// The same of letting in: commits may wait for who is back.
const IN_AGAIN: Duration = Duration::from_secs(15);

/// By which users a server may connect to its source: that of its file and that of its channel. None: not known at this moment.
/// None inside: its agent is of a version that does not tell, nor obey what is recorded.
pub(in crate::core) fn told(agent: &AgentRecord) -> Option<Option<BTreeSet<String>>> {
    let Some(of_file) = &agent.replication_user else { return Some(None) };
    let server = agent.server.as_ref()?;
    let of_channel = server.source.as_ref().map(|source| source.user.clone());
    let users: Option<BTreeSet<String>> = [Some(of_file.clone())].into_iter().chain(of_channel).collect();
    Some(users.filter(|users| !users.contains("")))
}

/// The replica's part: an entry, where there is one, covers both users by which this server may connect.
pub(super) fn covered(case: &Case<'_>, durability: &Durability) -> bool {
    let Some(entry) = durability.accounts.get(case.me()) else { return true };
    let channel = case.facts().and_then(|facts| facts.channel.as_ref());
    entry.contains(&case.view.own.replication_user) && channel.is_none_or(|channel| entry.contains(&channel.user))
}

/// Records by which accounts a member of S connects, as soon as its agent tells otherwise: it acknowledges nothing meanwhile.
pub fn learn(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let (name, version, users) = durability.sync.iter().find_map(|name| {
        let agent = case.view.ensemble.agents.get(name)?;
        let users = told(&agent.record)?;
        (durability.accounts.get(name) != users.as_ref()).then_some((name, agent.version, users))
    })?;
    let mut next = durability.clone();
    let text = match users {
        Some(users) => {
            let text = format!("{name} replicates as {}: recorded", in_words(&users));
            next.accounts.insert(name.clone(), users);
            text
        }
        None => {
            next.accounts.remove(name);
            format!("{name} does not tell by which account it replicates: recorded")
        }
    };
    let checks = vec![Op::Check(Path::Agent(name.clone()), version)];
    Some(record(topology, next, checks, text))
}

fn in_words<'a>(users: impl IntoIterator<Item = &'a String>) -> String {
    users.into_iter().map(|user| format!("'{user}'")).collect::<Vec<_>>().join(", ")
}

/// The users by which this member may connect and nobody else does.
///
/// # Errors
/// Why it cannot be shut out, in words.
pub fn own_accounts<'a>(
    topology: &'a Topology,
    agents: &BTreeMap<String, Seen<AgentRecord>>,
    name: &str,
) -> Result<&'a BTreeSet<String>, String> {
    let durability = &topology.durability;
    let users = durability.accounts.get(name).ok_or("by which account it replicates was never recorded")?;
    let told = |of: &str| agents.get(of).and_then(|agent| told(&agent.record)).flatten();
    let others: BTreeSet<&String> = topology.members.keys().chain(agents.keys()).filter(|of| *of != name).collect();
    let mut sharing = Vec::new();
    for other in others {
        let known: BTreeSet<String> =
            durability.accounts.get(other).cloned().into_iter().chain(told(other)).flatten().collect();
        let of_file = agents.get(other).and_then(|agent| agent.record.replication_user.as_ref());
        if durability.sync.contains(other) && known.is_empty() && of_file.is_none() {
            return Err(format!("by which account {other} replicates is not known"));
        }
        if known.iter().chain(of_file).any(|user| users.contains(user)) {
            sharing.push(other.as_str());
        }
    }
    if sharing.is_empty() {
        return Ok(users);
    }
    Err(format!("its replication account {} is also that of {}", in_words(users), sharing.join(", ")))
}

/// A retiring member whose agent has been gone for longer than T, with accounts of its own, and without which enough others
/// acknowledge.
fn gone<'a>(
    case: &Case<'a>,
    memory: &mut Memory,
    topology: &'a Topology,
) -> Option<(&'a String, &'a BTreeSet<String>)> {
    let (_, granted) = case.connected()?;
    let durability = &topology.durability;
    let agents = &case.view.ensemble.agents;
    for name in durability.sync.iter().filter(|name| !agents.contains_key(*name)) {
        memory.absent.entry(name.clone()).or_insert(case.now);
    }
    memory.absent.retain(|name, _| durability.sync.contains(name) && !agents.contains_key(name));
    if durability.degraded || paused_lease(case) || case.view.ensemble.pause.here().is_some() {
        return None;
    }
    let long = |name: &&String| memory.absent.get(*name).is_some_and(|since| case.now.since(*since) > granted);
    let enough_without =
        |name: &&String| durability.is_enough(able(case, durability).filter(|able| able != name).count());
    let mut retiring = durability.retiring.iter().filter(long).filter(enough_without);
    retiring.find_map(|name| Some((name, own_accounts(topology, agents, name).ok()?)))
}

fn rested(case: &Case<'_>, rest: Duration) -> bool {
    let ours = |kind| matches!(kind, MysqlKind::ShutOut | MysqlKind::LetIn);
    let failure = case.view.server.failure.as_ref().filter(|failure| ours(failure.kind));
    failure.is_none_or(|failure| case.now.since(failure.at) > rest)
}

/// Recorded as about to be done, then done, then a heartbeat that the others acknowledge, then S without it.
pub fn shut_out(case: &Case<'_>, memory: &mut Memory) -> Option<Outcome> {
    let topology = primary(case)?;
    let durability = &topology.record.durability;
    let Some((name, users)) = gone(case, memory, &topology.record) else {
        memory.shutting_out = None;
        return None;
    };
    if !durability.is_locked_at(name, case.me()) {
        let mut next = durability.clone();
        next.shut_out.entry(name.clone()).or_default().insert(case.me().to_owned());
        let text = format!("{name} is to be shut out: recorded before its account is locked");
        return Some(record(topology, next, Vec::new(), text));
    }
    let epoch = topology.record.epoch;
    let begun = memory.shutting_out.take().filter(|begun| begun.member == *name && begun.epoch == epoch);
    let asked = begun.map_or(case.now, |begun| begun.asked);
    memory.shutting_out = Some(ShuttingOut { member: name.clone(), epoch, asked });
    let action = MysqlAction::ShutOut { member: name.clone(), users: users.clone() };
    let of_this_term = |change: &&AccountChange| change.action == action && change.begun >= asked;
    if let Some(change) = case.view.server.accounts.as_ref().filter(of_this_term) {
        return without(case, memory, topology, name, users, change.ended);
    }
    let text =
        format!("the agent of {name} is gone: locks its account {} here and ends its connections", in_words(users));
    rested(case, AGAIN).then(|| Outcome::wait(Role::Primary, Reason::ShutOut, text).mysql(action))
}

/// Shut out since then: S without it, once the others have acknowledged a heartbeat.
fn without(
    case: &Case<'_>,
    memory: &mut Memory,
    topology: &Seen<Topology>,
    name: &str,
    users: &BTreeSet<String>,
    since: Moment,
) -> Option<Outcome> {
    let durability = &topology.record.durability;
    let (facts, read) = case.view.server.facts.as_ref()?;
    let uuid = &topology.record.members.get(name)?.server_uuid;
    // It is connected all the same: by an account that somebody gave it by hand, and that is not recorded.
    if facts.replicas.iter().any(|connected| connected.eq_ignore_ascii_case(uuid)) {
        memory.shutting_out = memory.shutting_out.take().filter(|_| case.now.since(since) < AGAIN);
        return None;
    }
    let watermark = acknowledged_since(case, since)?;
    // It counts only while commits have been waiting all along (interleaving 9).
    if *read <= since || !facts.semi_sync.waits_for(durability.k()) {
        return None;
    }
    let mut next = durability.clone();
    next.sync.retain(|member| member != name);
    next.retiring.retain(|member| member != name);
    // Its accounts stay: the next primary has to shut it out as well.
    next.floor = watermark.clone();
    let text = format!(
        "{name} was shut out of the sync set: its agent is gone, and its replication account {} is locked on {}, so that it can \
         acknowledge nothing; it is let in again by itself when its agent is back",
        in_words(users),
        case.me()
    );
    let note = incident(case, Reason::ShutOut, name, text.clone());
    Some(record(topology, next, Vec::new(), text).write(Purpose::Incident, vec![note]))
}

/// Whether a member that was shut out may connect again: it counts in S, or acknowledges nothing by its own agent's word.
fn may_connect(case: &Case<'_>, topology: &Topology, name: &str) -> bool {
    let durability = &topology.durability;
    if !topology.members.contains_key(name) {
        return true; // it has left the cluster, which proved as much
    }
    let Some(agent) = case.agent(name) else { return false };
    let silent = agent.server.as_ref().is_some_and(|server| server.acknowledges == Some(false));
    match durability.mode {
        DurabilityMode::Async => true, // nobody is waited for
        DurabilityMode::Lossless if durability.sync.iter().any(|member| member == name) => durability.counts_on(name),
        DurabilityMode::Lossless => silent,
    }
}

/// Unlocks what was locked here for a member that is back, in this term or in an earlier one. Commits may be waiting for it, so it
/// comes right after opening (before that the server takes no account statement).
pub fn let_in(case: &Case<'_>, _: &mut Memory) -> Option<Outcome> {
    let topology = writing(case)?;
    let durability = &topology.record.durability;
    let by_us = |(_, by): &(&String, &BTreeSet<String>)| by.contains(case.me());
    let mut shut_out = durability.shut_out.iter().filter(by_us).map(|(name, _)| name);
    let name = shut_out.find(|name| may_connect(case, &topology.record, name))?;
    let action = MysqlAction::LetIn { member: name.clone() };
    if case.view.server.accounts.as_ref().is_none_or(|change| change.action != action) {
        let text = format!("{name} is back: unlocks its account here");
        return rested(case, IN_AGAIN).then(|| Outcome::wait(Role::Primary, Reason::Primary, text).mysql(action));
    }
    let mut next = durability.clone();
    next.shut_out.entry(name.clone()).or_default().remove(case.me());
    next.shut_out.retain(|_, by| !by.is_empty());
    Some(record(topology, next, Vec::new(), format!("{name} is let in again")))
}

/// What is to be said of the members that are shut out, or cannot be, in words; for the primary's own report.
#[must_use]
pub fn note(case: &Case<'_>) -> Option<String> {
    let topology = writing(case)?;
    let failure = case.view.server.failure.as_ref();
    let failed = failure.filter(|failure| matches!(failure.kind, MysqlKind::ShutOut | MysqlKind::LetIn));
    let what = words(&topology.record, &case.view.ensemble.agents);
    let all: Vec<String> = what
        .into_iter()
        .map(|(name, text)| format!("{name} {text}"))
        .chain(failed.map(|failure| format!("the last try to change its account failed: {}", failure.why)))
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// The same for `status`: by member.
#[must_use]
pub fn words(topology: &Topology, agents: &BTreeMap<String, Seen<AgentRecord>>) -> BTreeMap<String, String> {
    let durability = &topology.durability;
    // Locked by an earlier primary alone, and back: it follows the present one as if nothing were.
    let at_primary = |by: &BTreeSet<String>| topology.primary.as_ref().is_some_and(|primary| by.contains(primary));
    let out = |(name, by): &(&String, &BTreeSet<String>)| {
        !durability.sync.contains(*name) && (at_primary(by) || !agents.contains_key(*name))
    };
    let locked = durability.shut_out.iter().filter(out).map(|(name, by)| {
        let by = by.iter().cloned().collect::<Vec<_>>().join(", ");
        let text = format!(
            "was shut out of the sync set while its agent was gone (its replication account is locked on {by}): it receives nothing \
             from there until its agent is back, and is let in by itself then"
        );
        (name.clone(), text)
    });
    let absent = |name: &&String| durability.mode == DurabilityMode::Lossless && !agents.contains_key(*name);
    let kept = durability.retiring.iter().filter(absent).filter_map(|name| {
        let why = own_accounts(topology, agents, name).err()?;
        let text = format!(
            "cannot be shut out and stays in the sync set: {why}. Should the primary be lost before its agent is back, its vote may be \
             missing for a promotion; give each host a replication account of its own (mysql.replication.user)"
        );
        Some((name.clone(), text))
    });
    locked.chain(kept).collect()
}
