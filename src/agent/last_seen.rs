//! What `prestart` has to know of our server once it is dead, noted while it lives ([`crate::core::rewind::LastSeen`]).
//!
//! A task of its own, which waits for the disk and holds nobody up. What it notes may be older than the truth by as much as the disk
//! took; which is why the note alone permits nothing: that an epoch was undegraded and unforced is told by `topology`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tracing::warn;

use super::shared::Shared;
use super::watcher::Watched;
use crate::core::records::{DurabilityMode, Role, Topology};
use crate::core::rewind::{FileId, LastSeen, Wrote};
use crate::core::view::{Ensemble, ServerFacts};
use crate::host::process::Mysqld;
use crate::host::{datadir, rewind};

/// Keeps the note up to date.
pub struct Noting {
    /// `state_dir`.
    pub state_dir: PathBuf,
    /// Our server, who we are, the decision.
    pub shared: Shared,
    /// The process, whose life the note is of.
    pub mysqld: Watched,
    /// ZooKeeper as last seen.
    pub ensemble: watch::Receiver<Arc<Ensemble>>,
}

impl Noting {
    /// Runs until the program ends.
    pub async fn run(self) {
        let state_dir = self.state_dir.clone();
        let mut noted = spawn_blocking(move || rewind::last_seen(&state_dir).unwrap_or(None)).await.unwrap_or(None);
        let mut changes = self.shared.server.changes();
        // A look at the disk for each reading would be a tenth of what the agent needs at rest.
        let mut known: Option<(String, FileId)> = None;
        while changes.changed().await.is_ok() {
            let facts = changes.borrow_and_update().facts.as_ref().map(|(facts, _)| facts.clone());
            let Some(mysqld) = self.mysqld.borrow().clone() else { continue };
            let own = self.shared.own.borrow().clone();
            let Some(facts) = facts.filter(|facts| facts.incarnation == mysqld.incarnation(&own.boot_id)) else {
                continue;
            };
            if known.as_ref().is_none_or(|(incarnation, _)| *incarnation != facts.incarnation) {
                known = life(&facts, mysqld).await.map(|life| (facts.incarnation.clone(), life));
            }
            let Some((_, life)) = &known else { continue };
            let topology = self.ensemble.borrow().topology.record().cloned();
            let primary =
                self.shared.decision.borrow().as_ref().is_some_and(|decision| decision.outcome.role == Role::Primary);
            let seen = last_seen(&own.name, &own.cluster, &facts, *life, topology.as_ref(), primary, noted.as_ref());
            let Some(seen) = seen.filter(|seen| noted.as_ref() != Some(seen)) else { continue };
            let (state_dir, written) = (self.state_dir.clone(), seen.clone());
            match spawn_blocking(move || rewind::note_last_seen(&state_dir, &written)).await {
                Ok(Ok(())) => noted = Some(seen),
                Ok(Err(error)) => {
                    warn!(%error, "this server cannot be noted: 'prestart' would leave commits in flight as they are")
                }
                Err(_) => {}
            }
        }
    }
}

/// The engine's temporary tablespace of this life. Looked at first, then at whether the process still lives: what is there after its end
/// may be of a later one.
async fn life(facts: &ServerFacts, mysqld: Arc<Mysqld>) -> Option<FileId> {
    let path = facts.files.as_ref()?.temporary.clone();
    let looked = spawn_blocking(move || datadir::file_id(Path::new(&path))).await.ok().flatten();
    looked.filter(|_| !mysqld.has_exited())
}

/// The note of this moment. `primary`: the agent has that role. `noted`: what the note says now; of an earlier life it counts for nothing.
fn last_seen(
    me: &str,
    cluster: &str,
    facts: &ServerFacts,
    life: FileId,
    topology: Option<&Topology>,
    primary: bool,
    noted: Option<&LastSeen>,
) -> Option<LastSeen> {
    let waited = facts.semi_sync.waits_for_any().is_some();
    let before = noted.filter(|noted| noted.life == life && noted.server_uuid == facts.server_uuid);
    let writes = topology.filter(|topology| primary && topology.primary.as_deref() == Some(me));
    let wrote = match writes {
        Some(topology) => {
            let durability = &topology.durability;
            let lossless = durability.mode == DurabilityMode::Lossless && !durability.degraded;
            Some(Wrote { epoch: topology.epoch, lossless, waited })
        }
        // Semi-sync off: whoever waited has been answered.
        None => before.and_then(|before| before.wrote).map(|wrote| Wrote { waited: wrote.waited && waited, ..wrote }),
    };
    let member = |uuid: &String| {
        topology.is_some_and(|topology| topology.members.values().any(|member| member.server_uuid == *uuid))
    };
    Some(LastSeen {
        cluster: cluster.to_owned(),
        server_uuid: facts.server_uuid.clone(),
        files: facts.files.clone()?,
        life,
        synced: facts.synced_commits,
        wrote,
        strangers: facts.replicas.iter().filter(|uuid| !member(uuid)).cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::rewind::ServerFiles;
    use crate::core::view::{SemiSync, SemiSyncSource};

    fn facts(waits: bool) -> ServerFacts {
        let source = SemiSyncSource { on: waits, count: 1, strict: true };
        ServerFacts {
            server_uuid: "u".into(),
            files: Some(ServerFiles::default()),
            semi_sync: SemiSync { source: Some(source), replica: None },
            ..ServerFacts::default()
        }
    }

    const LIFE: FileId = FileId { inode: 1, born: 1 };

    fn noted(wrote: Option<Wrote>) -> LastSeen {
        LastSeen { wrote, ..last_seen("db1", "c", &facts(true), LIFE, None, false, None).unwrap() }
    }

    const WROTE: Wrote = Wrote { epoch: 7, lossless: true, waited: true };

    #[test]
    fn what_it_wrote_as_the_primary_stays_for_the_rest_of_its_life() {
        let before = noted(Some(WROTE));
        let after = |waits, life| last_seen("db1", "c", &facts(waits), life, None, false, Some(&before)).unwrap().wrote;
        assert_eq!(after(true, LIFE), Some(WROTE));
        // Made a replica: who waited has been answered, and nothing makes that undone.
        assert_eq!(after(false, LIFE), Some(Wrote { waited: false, ..WROTE }));
        assert_eq!(after(true, FileId { born: 2, ..LIFE }), None);
    }

    #[test]
    fn replicas_that_no_topology_knows_are_strangers() {
        let facts = ServerFacts { replicas: vec!["r".into()], ..facts(true) };
        assert_eq!(last_seen("db1", "c", &facts, LIFE, None, false, None).unwrap().strangers, ["r"]);
    }
}
