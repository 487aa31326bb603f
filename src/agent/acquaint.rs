//! Makes this server's replication account known to every server that it may have to follow.
//!
//! The first login of an account on a server is a full `caching_sha2_password` exchange (60 to 180 ms on a busy machine,
//! 9.7); all later ones are answered from the server's memory, until it restarts. The first write on a new primary waits
//! for the acknowledgement of a replica, and so for that replica's login: without this the first switch to each server is
//! the slow one. As a by-product a replication account that a server would refuse is reported before it is needed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use crate::config::sections::Replication;
use crate::core::view::Ensemble;
use crate::mysql::connect::{Connection, Place, Target};
use crate::mysql::fault::Fault;

/// How often at the least: a server that restarted unseen has forgotten the account.
const AGAIN: Duration = Duration::from_secs(30);
/// How long roles must have rested: a change of roles has better uses for the processors.
const REST: Duration = Duration::from_secs(1);
/// One login's limit.
const LOGIN: Duration = Duration::from_secs(2);

/// Logs in to the other members with this server's replication account, now and then and after each change of
/// `topology`. Runs until the program ends.
pub async fn acquaint(replication: Replication, name: String, mut ensemble: watch::Receiver<Arc<Ensemble>>) {
    if replication.tls {
        // The account may demand TLS, which this client does not speak yet.
        return;
    }
    let mut refused = BTreeSet::new();
    let mut seen = None;
    loop {
        let changed = ensemble.wait_for(|ensemble| ensemble.topology.here().map(|topology| topology.version) != seen);
        // The time's end is as good a reason as a change.
        let _ = timeout(AGAIN, changed).await;
        sleep(REST).await;
        let view = ensemble.borrow().clone();
        let Some(topology) = view.topology.here() else { continue };
        seen = Some(topology.version);
        if topology.record.primary.is_none() {
            continue;
        }
        for (other, member) in topology.record.members.iter().filter(|(other, _)| **other != name) {
            match login(&member.address, &replication).await {
                Ok(()) => drop(refused.remove(other)),
                Err(fault @ Fault::RefusedPassword { .. }) => {
                    if refused.insert(other.clone()) {
                        warn!(event = "replication_account", server = %other, %fault,
                            "this server could not replicate from {other}: its replication account is refused there");
                    }
                }
                Err(fault) => debug!(%fault, "the replication account was not tried"),
            }
        }
    }
}

async fn login(address: &str, replication: &Replication) -> Result<(), Fault> {
    let Ok(place) = Place::tcp(address) else { return Ok(()) };
    let target = Target::new(place, &replication.user, replication.password.reveal());
    Connection::open(&target, LOGIN).await.map(drop)
}
