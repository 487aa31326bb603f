//! `leave`: this host's server leaves the product's care.
//!
//! A replica, in the order of the design (removing from S), so that at no moment a server that can acknowledge is not counted
//! on: its agent is stopped (the lock on `state_dir` proves it) → semi-sync off here and the IO thread ended, both read back →
//! two further heartbeats of the primary, acknowledged by others, so that what was acknowledged here alone is with them too →
//! one transaction takes it out of `topology` (members, S; the floor is what the primary had executed by then, so that whoever
//! lacks any of it is refused), at the version that was read and under the same `master`. If the heartbeats do not come, everything is undone.
//! Last what we have persisted, and our files.
//!
//! The heartbeat's schema stays on a replica: dropped there, it would be a transaction of its own. The last server, which is the
//! primary, drops it, and the whole tree in ZooKeeper goes.

use std::fs;
use std::time::Duration;

use super::exit::{Exit, refused};
use super::session::{self, Tree};
use crate::agent::run::own_target;
use crate::config::Config;
use crate::core::action::{Op, Path, Purpose, Write};
use crate::core::gtid::GtidSet;
use crate::core::records::{DurabilityMode, Member, Topology};
use crate::core::view::{Ensemble, Seen};
use crate::host::lease_file::LeaseFile;
use crate::host::state_dir::{StateDir, StateDirError};
use crate::mysql::accounts;
use crate::mysql::connect::Line;
use crate::mysql::leave;
use crate::zookeeper::writer::Outcome;

/// One look's limit.
const LIMIT: Duration = Duration::from_secs(5);

type End = (Exit, String);

fn mysql(error: impl std::fmt::Display) -> End {
    (Exit::MysqlUnreachable, format!("{error}\n"))
}

/// Leaves; the answer for people and the exit code.
pub async fn leave(config: &Config) -> (Exit, String) {
    match left(config).await {
        Ok(text) => (Exit::Done, text),
        Err(end) => end,
    }
}

async fn left(config: &Config) -> Result<String, End> {
    let state_dir = StateDir::take(&config.state_dir).map_err(|error| match error {
        StateDirError::InUse { .. } => refused(format!(
            "{error}. For leaving: systemctl disable --now mysql-ha-agent (and its guard) on this host, then again"
        )),
        _ => (Exit::Usage, format!("{error}\n")),
    })?;
    let mut tree = session::open(config).await?;
    let mut line = Line::new(own_target(config));
    let uuid = leave::server_uuid(&mut line).await.map_err(mysql)?;
    let ensemble = tree.now();
    let member = ensemble.topology.record().and_then(|topology| topology.members.get(&config.name));
    let text = match member.filter(|member| member.server_uuid == uuid) {
        Some(_) => member_leaves(config, &mut tree, &mut line).await?,
        None => "it is no member of the cluster".to_owned(),
    };
    leave::forget_persisted(&mut line).await.map_err(mysql)?;
    // A read-only server takes no account statement: that is left to whoever makes it writable.
    let locked = accounts::locked_for_members(&mut line, LIMIT).await.unwrap_or_default();
    let locked: Vec<String> = locked.into_iter().map(|(account, _)| account).collect();
    if !locked.is_empty() {
        eprintln!(
            "locked here by the agent, while it was the primary, and left so: {} (ALTER USER … ACCOUNT UNLOCK)",
            locked.join(", ")
        );
    }
    remove_files(config, state_dir);
    Ok(format!(
        "{text}; nothing of the agent's is persisted in MySQL any more. What is in force stays until the server's restart (read_only, \
         replication as it runs): say in my.cnf what it is to be\n"
    ))
}

async fn member_leaves(config: &Config, tree: &mut Tree, line: &mut Line) -> Result<String, End> {
    let ensemble = tree.now();
    let Some(topology) = ensemble.topology.here() else { return Err(refused("topology cannot be read")) };
    let record = &topology.record;
    if record.members.len() == 1 {
        leave::forget_primary(line, &config.heartbeat.schema).await.map_err(mysql)?;
        tree.writer
            .remove_tree()
            .await
            .map_err(|why| (Exit::No, format!("the tree in ZooKeeper is left in part: {why}; again\n")))?;
        return Ok("the last server has left: the cluster's tree in ZooKeeper is gone".to_owned());
    }
    let primary = may_leave(config, record, &ensemble).map_err(refused)?;
    let before = leave::stop_acknowledging(line).await.map_err(mysql)?;
    let removed = remove(config, tree, primary).await;
    // Also where it stays: it goes on receiving, and acknowledging as it did.
    leave::receive_again(line, before, removed.is_err()).await.map_err(mysql)?;
    if removed.is_err()
        && let Ok(target) = own_target(config).at(&primary.address)
        && let Err(error) = leave::mark(&mut Line::new(target), &config.heartbeat.schema).await
    {
        eprintln!("{error}; commits that wait on the primary go on with its next one");
    }
    removed?;
    Ok(format!(
        "{} is no member any more; its server goes on replicating as it did, without acknowledging",
        config.name
    ))
}

/// Whether this member can leave, and the primary that the rest goes by.
fn may_leave<'a>(config: &Config, topology: &'a Topology, ensemble: &Ensemble) -> Result<&'a Member, String> {
    let me = &config.name;
    let name = topology.primary.as_ref().ok_or("no server takes writes at this moment: see 'status'")?;
    if name == me || topology.last_writer.as_ref() == Some(me) {
        return Err("this host's server is the primary: 'promote' another first".to_owned());
    }
    if topology.handover.is_some() || ensemble.master.record().is_none_or(|master| master.name != *name) {
        return Err("a role changes at this moment: try again".to_owned());
    }
    let durability = &topology.durability;
    let others = durability.sync.iter().filter(|other| *other != me).count();
    if durability.mode == DurabilityMode::Lossless && !durability.degraded && !durability.is_enough(others) {
        return Err(format!(
            "{others} replicas that acknowledge would be left, and every commit waits for {} acknowledgements (failover.sync_replicas): commits \
             would hang; add a replica first",
            durability.k()
        ));
    }
    topology.members.get(name).ok_or_else(|| "the primary is not recorded".to_owned())
}

/// Waits for what was acknowledged here alone to be elsewhere, then takes this host out of `topology`.
async fn remove(config: &Config, tree: &mut Tree, primary: &Member) -> Result<(), End> {
    let target = own_target(config).at(&primary.address).map_err(mysql)?;
    let mut there = Line::new(target);
    if leave::server_uuid(&mut there).await.map_err(mysql)? != primary.server_uuid {
        return Err((Exit::No, format!("undone: another server answers at {}\n", primary.address)));
    }
    let limit = config.heartbeat.interval * 4 + Duration::from_secs(10);
    let settled = leave::settled_set(&mut there, &config.heartbeat.schema, limit).await.map_err(mysql)?;
    let Some(floor) = settled else {
        let text = "undone: without this server no commit of the primary was acknowledged in time; see that the other replicas \
                    follow and acknowledge ('check' there)\n";
        return Err((Exit::No, text.to_owned()));
    };
    for _ in 0..5 {
        let ensemble = tree.now();
        let Some(topology) = ensemble.topology.here() else { break };
        let same = ensemble.master.record().is_some_and(|master| master.server_uuid == primary.server_uuid);
        if !same || topology.record.primary.is_none() {
            return Err((Exit::No, "undone: the role has changed meanwhile; try again\n".to_owned()));
        }
        let write = Write { purpose: Purpose::Members, ops: removal(config, topology, &ensemble, &floor) };
        match tree.writer.commit(&write).await {
            // The agent that was stopped just now may have shown itself after we looked: the primary then records this host again.
            Outcome::Done { .. } => {
                let _ = tree.viewer.refresh_all().await;
                if is_gone(&tree.now(), &config.name) {
                    return Ok(());
                }
            }
            Outcome::Unknown { why } => {
                return Err((
                    Exit::Unknown,
                    format!("no answer from ZooKeeper ({why}): see 'status', and leave again\n"),
                ));
            }
            // Somebody wrote in between: look again.
            Outcome::Rejected { .. } | Outcome::NotDone { .. } => drop(tree.viewer.refresh_all().await),
        }
    }
    Err((Exit::No, "undone: topology kept changing; try again\n".to_owned()))
}

/// Neither a member nor somebody whom the primary would make one.
fn is_gone(ensemble: &Ensemble, name: &str) -> bool {
    let member = ensemble.topology.here().is_none_or(|topology| topology.record.members.contains_key(name));
    !member && !ensemble.agents.contains_key(name)
}

fn removal(config: &Config, topology: &Seen<Topology>, ensemble: &Ensemble, floor: &GtidSet) -> Vec<Op> {
    let mut next = topology.record.clone();
    next.members.remove(&config.name);
    next.durability.forget(&config.name);
    // What is locked on this server is no business of the cluster any more.
    next.durability.shut_out.retain(|_, by| {
        by.remove(&config.name);
        !by.is_empty()
    });
    next.durability.floor = next.durability.floor.union(floor);
    let mut ops = vec![Op::set_topology(next, topology.version)];
    // Of the agent that was stopped just now: as long as it stands, the primary would record this host again.
    ops.extend(
        ensemble.agents.get(&config.name).map(|agent| Op::Delete(Path::Agent(config.name.clone()), agent.version)),
    );
    ops.extend(ensemble.master.here().map(|master| Op::Check(Path::Master, master.version)));
    ops
}

/// Best effort: a file that stays hurts nobody who starts no agent here.
fn remove_files(config: &Config, state_dir: StateDir) {
    let lease = LeaseFile::path_in(&config.run_dir, &config.cluster, &config.name);
    let notes =
        ["member.json", "fenced", "opened", "epoch", "holdings", "fenced_by_hand", "server.json", "started_on", "lock"];
    for path in notes.iter().map(|name| state_dir.path().join(name)).chain([lease]) {
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            eprintln!("{} cannot be removed: {error}", path.display());
        }
    }
}
