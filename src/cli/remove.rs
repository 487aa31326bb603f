//! `remove NAME`: a host that is gone for good is no longer counted on.
//!
//! A member of S may acknowledge as long as nobody has made certain that it cannot, so it can be removed only after it has left S by
//! its own agent's word. One that was shut out by its account is locked at one server alone: the next primary counts it in S again
//! until it has shut it out itself ([`crate::core::rows::shut_out`]), for which it has to stay recorded. With that record gone a
//! host that thaws after all, chained to the next primary, would acknowledge without being counted on. So it is refused; nothing waits
//! for such a member.

use super::exit::{Exit, refused};
use super::session;
use crate::config::Config;
use crate::core::action::{Op, Path, Purpose, Write};
use crate::core::records::{DurabilityMode, Topology};
use crate::core::rows::shut_out::own_accounts;
use crate::core::view::{Ensemble, Seen};
use crate::zookeeper::writer::Outcome;

/// Removes; the answer for people and the exit code.
pub async fn remove(config: &Config, name: &str) -> (Exit, String) {
    let tree = match session::open(config).await {
        Ok(tree) => tree,
        Err(end) => return end,
    };
    for _ in 0..5 {
        let ensemble = tree.now();
        let Some(topology) = ensemble.topology.here() else {
            return refused("there is no topology that could be read: see 'status'");
        };
        if let Err(why) = may_go(topology, &ensemble, name) {
            return refused(why);
        }
        let write = Write { purpose: Purpose::Members, ops: removal(topology, &ensemble, name) };
        match tree.writer.commit(&write).await {
            Outcome::Done { .. } => return (Exit::Done, format!("{name} is no member any more\n")),
            Outcome::Unknown { why } => {
                return (Exit::Unknown, format!("no answer from ZooKeeper ({why}): see 'status', and remove again\n"));
            }
            // Somebody wrote in between: look again.
            Outcome::Rejected { .. } | Outcome::NotDone { .. } => drop(tree.viewer.refresh_all().await),
        }
    }
    (Exit::No, "nothing was changed: topology kept changing; try again\n".to_owned())
}

/// Whether nobody counts on this member, or would soon.
fn may_go(topology: &Seen<Topology>, ensemble: &Ensemble, name: &str) -> Result<(), String> {
    let record = &topology.record;
    if !record.members.contains_key(name) {
        let all: Vec<&str> = record.members.keys().map(String::as_str).collect();
        return Err(format!("{name} is no member; members are {}", all.join(", ")));
    }
    if ensemble.agents.contains_key(name) {
        return Err(format!("the agent of {name} runs: 'leave' on that host takes it out in good order"));
    }
    let roles_rest = record.primary.is_some() && record.handover.is_none() && ensemble.master.here().is_some();
    if !roles_rest {
        return Err("no server takes writes at this moment, and its vote may be needed: see 'status'".to_owned());
    }
    if record.primary.as_deref() == Some(name) || record.last_writer.as_deref() == Some(name) {
        return Err(format!("{name} is the primary"));
    }
    let durability = &record.durability;
    let counts = durability.sync.iter().any(|member| member == name);
    if durability.mode == DurabilityMode::Async || (!counts && !durability.shut_out.contains_key(name)) {
        return Ok(());
    }
    if !counts {
        return Err(format!(
            "{name} was shut out of the sync set by its account: that stays recorded, since the next primary has to shut it out as well. \
             Nothing waits for it; another server can take its place by joining under its name"
        ));
    }
    Err(match own_accounts(record, &ensemble.agents, name) {
        Ok(_) => format!(
            "{name} counts in the sync set; the primary shuts it out once its agent has been gone for longer than the session timeout and \
             enough others acknowledge, and nothing waits for it then"
        ),
        Err(why) => format!(
            "{name} counts in the sync set and cannot be shut out ({why}): bring it back and 'leave' there, or give each host a \
             replication account of its own (mysql.replication.user)"
        ),
    })
}

fn removal(topology: &Seen<Topology>, ensemble: &Ensemble, name: &str) -> Vec<Op> {
    let mut next = topology.record.clone();
    next.members.remove(name);
    // Nobody is to unlock its account any more, should this cluster be `lossless` again.
    next.durability.shut_out.remove(name);
    next.durability.forget(name);
    let mut ops = vec![Op::set_topology(next, topology.version)];
    ops.extend(ensemble.master.here().map(|master| Op::Check(Path::Master, master.version)));
    ops
}
