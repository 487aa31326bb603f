//! What `prestart` may take back: commits that were in flight when mysqld died (interleaving 11).
//!
//! With semi-sync's AFTER_SYNC wait point a commit that waits for its acknowledgement stands in the newest binary log file and is only
//! *prepared* in the engine. A start commits what it finds in that file; where the file ends before a transaction, the engine takes the
//! prepared one back. Cutting is thus right for a transaction that nobody was told of and that the engine has not committed, and wrong
//! for every other. Why each condition is there stands at its row; without all of them nothing is cut.
//!
//! **Missing on the new primary means acknowledged by nobody.** Each epoch since ours began with all that had been acknowledged
//! ([`Topology::kept_since`]), and acknowledgements come in the order of the file. The set is read from the new primary's server *after*
//! `topology` has named it: transactions of our server's UUID reach it by replication alone, all it had received is executed before it
//! opens, and it replicates from nobody afterwards. So a set read then cannot lack one that it gets later; one read before could, and
//! would cut a transaction that the cluster has.
//!
//! **The numbers are used again.** Our server numbers its next transactions from the first free one. A server that had received one of those
//! taken back would then pass the new one over and differ for ever. So every other member has to be seen following the new primary, without
//! any of them (C6, T8), and no replica outside the cluster may have been connected (L12).
//!
//! What the engine had committed all the same (an end that answered the waiting commits, then a kill) is in its own table of executed
//! GTIDs: after the start the agent finds it beyond the new primary's set, and the server stays out as diverged.

use serde::{Deserialize, Serialize};

use super::gtid::GtidSet;
use super::records::{MemberState, Topology};
use super::view::{Ensemble, Node, Seen};

/// `state_dir/server.json`: what the agent has noted of its server while it ran, since nobody can be asked once it is dead.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSeen {
    /// `cluster`.
    pub cluster: String,
    /// `@@server_uuid`.
    pub server_uuid: String,
    /// Its files.
    pub files: ServerFiles,
    /// The engine's temporary tablespace, which each start makes anew before it looks at the binary log: names this life.
    pub life: FileId,
    /// `sync_binlog` and `innodb_flush_log_at_trx_commit` are 1.
    pub synced: bool,
    /// When it took writes last in this life; none where it has not.
    pub wrote: Option<Wrote>,
    /// UUIDs of replicas that are no members, connected when it was read last.
    pub strangers: Vec<String>,
}

/// Where a server keeps its files, all absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ServerFiles {
    /// `@@datadir`; relative names in the index count from here.
    pub datadir: String,
    /// `@@log_bin_index`.
    pub index: String,
    /// The first file of `innodb_data_file_path`, which a running server keeps locked.
    pub system: String,
    /// The file of `innodb_temp_data_file_path`.
    pub temporary: String,
}

/// A file that is this one and no other of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId {
    /// The inode.
    pub inode: u64,
    /// When it was made, by the file system. Unit: nanoseconds since 1970.
    pub born: u64,
}

/// The role of primary as a life of a server had it last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wrote {
    /// In this epoch.
    pub epoch: u64,
    /// `topology` said `lossless`, not degraded.
    pub lossless: bool,
    /// Each commit waited for acknowledgements without end, before the engine committed it, when it was read last.
    pub waited: bool,
}

impl ServerFiles {
    /// From the server's variables. None: they do not name one file each (raw devices, for example).
    #[must_use]
    pub fn of(datadir: &str, index: &str, data_home: Option<&str>, data_path: &str, temp_path: &str) -> Option<Self> {
        let below = |folder: &str, name: &str| {
            if name.starts_with('/') { name.to_owned() } else { format!("{}/{name}", folder.trim_end_matches('/')) }
        };
        let home =
            data_home.filter(|home| !home.is_empty()).map_or_else(|| datadir.to_owned(), |home| below(datadir, home));
        // `name:size[:autoextend[:max:size]]`, several of them divided by semicolons.
        let first = |path: &str| {
            let name = path.split(';').next()?.split(':').next()?.trim();
            (!name.is_empty()).then(|| below(&home, name))
        };
        let known = datadir.starts_with('/') && !index.is_empty() && !data_path.contains("raw");
        let files = Self {
            datadir: datadir.to_owned(),
            index: below(datadir, index),
            system: first(data_path)?,
            temporary: first(temp_path)?,
        };
        known.then_some(files)
    }
}

/// The newest binary log file, from where the new primary has not everything any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tail {
    /// All that stands in earlier files.
    pub previous: GtidSet,
    /// Where the first transaction of the file stands, or would.
    pub head: u64,
    /// The whole transactions from the first one that the new primary lacks, in the order of the file.
    pub transactions: Vec<Transaction>,
    /// Where the last whole transaction ends: behind it nothing, or one that was not written to its end.
    pub whole: u64,
    /// The file's length.
    pub length: u64,
}

/// A transaction in the tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Where it begins.
    pub at: u64,
    /// UUID, tag (or none) and number, as MySQL writes a GTID.
    pub gtid: GtidSet,
    /// The new primary lacks it.
    pub missing: bool,
    /// How it ends.
    pub ending: Ending,
}

/// How a transaction ends, and so whether the engine takes it back when it is not found in the binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// An XID: the commit of a transactional engine.
    Xid,
    /// `XA PREPARE`, or an XA transaction of one phase.
    XaPrepare,
    /// A definition that the engine's own transaction carries.
    Definition,
    /// Anything else, in words.
    Other(String),
}

/// The first version whose engine takes back an `XA PREPARE` that is not in the binary log.
const XA_SINCE: (u16, u16, u16) = (8, 0, 30);

/// Nothing is changed, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leave {
    /// The row of this module that decided.
    pub row: &'static str,
    /// What that means.
    pub kind: Kind,
    /// In words.
    pub why: String,
}

/// What it means that nothing is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There is nothing to take back.
    Nothing,
    /// There may be, and it cannot be shown to be safe.
    Refused,
    /// ZooKeeper cannot be asked.
    ZooKeeper,
    /// The new primary's server cannot be asked.
    Mysql,
}

impl Leave {
    /// There is nothing to take back.
    #[must_use]
    pub fn nothing(row: &'static str, why: impl Into<String>) -> Self {
        Self { row, kind: Kind::Nothing, why: why.into() }
    }

    /// It cannot be shown to be safe.
    #[must_use]
    pub fn refused(row: &'static str, why: impl Into<String>) -> Self {
        Self { row, kind: Kind::Refused, why: why.into() }
    }
}

/// What stands on this host, with mysqld stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site<'a> {
    /// The agent's note.
    pub seen: &'a LastSeen,
    /// `cluster` of the file.
    pub cluster: &'a str,
    /// `server-uuid` in the data directory's `auto.cnf`.
    pub server_uuid: Option<&'a str>,
    /// The temporary tablespace as it is now.
    pub life: Option<FileId>,
    /// The newest binary log file's name.
    pub file: &'a str,
    /// Nobody has closed it: `LOG_EVENT_BINLOG_IN_USE_F`.
    pub in_use: bool,
    /// The file on which `prestart` let mysqld start last.
    pub started_on: Option<&'a str>,
}

/// What this host alone tells against it; in the order of the rows. With it, as what it took writes last.
///
/// # Errors
/// The first row that says no.
pub fn on_this_host(site: &Site<'_>) -> Result<Wrote, Leave> {
    let seen = site.seen;
    if seen.cluster != site.cluster || site.server_uuid != Some(&seen.server_uuid) {
        let text = format!(
            "the agent has noted server {} of cluster '{}', and the data directory {} is of another",
            seen.server_uuid, seen.cluster, seen.files.datadir
        );
        return Err(Leave::refused("L4", text));
    }
    // After an orderly end, after a start that got as far as clearing the flag, and after a full disk at the next file (which closes
    // this one first): what stands here is committed, or about to be by whoever answered it.
    if !site.in_use {
        return Err(Leave::nothing(
            "L6",
            format!("{} was closed: no commit was in flight when mysqld ended", site.file),
        ));
    }
    let Some(wrote) = seen.wrote else {
        return Err(Leave::nothing(
            "L7",
            "as far as its agent has noted, this server took no writes of its own in its last life",
        ));
    };
    // A start that died while it recovered leaves the flag as it was, and may have committed what it found here.
    if site.started_on == Some(site.file) {
        return Err(Leave::refused(
            "L8",
            format!("a start on {} has been tried before: it may have committed what stands there", site.file),
        ));
    }
    // The same for a start that nobody told us of. Also where the agent has not seen this life: then its note says nothing of it.
    if site.life != Some(seen.life) {
        let text = format!(
            "{} is not the one that the agent has seen: mysqld was started since, or its last life without an agent",
            seen.files.temporary
        );
        return Err(Leave::refused("L9", text));
    }
    if !wrote.lossless || !wrote.waited {
        let text = "commits did not wait for acknowledgements at the end (not lossless, degraded, or semi-sync off): they may have been answered";
        return Err(Leave::refused("L10", text));
    }
    // Without syncing, what is on the disk after a crash of the host is no prefix of what was acknowledged.
    if !seen.synced {
        return Err(Leave::refused("L11", "sync_binlog or innodb_flush_log_at_trx_commit was not 1"));
    }
    if !seen.strangers.is_empty() {
        let text = format!(
            "replicas that are no members of the cluster were connected and may have received them: {}",
            seen.strangers.join(", ")
        );
        return Err(Leave::refused("L12", text));
    }
    Ok(wrote)
}

/// What the cluster says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Roles {
    /// Another server took over, and all is known that has to be.
    Settled(NewPrimary),
    /// Not yet, but it may come by itself: with what it is to be answered when it does not come in time.
    Unsettled(Leave),
    /// It will not come.
    Never(Leave),
}

/// The server that took over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPrimary {
    /// Its agent's name.
    pub name: String,
    /// Where it is asked.
    pub address: String,
    /// Its server.
    pub server_uuid: String,
}

/// Whether the role can move by itself: `automatic`, and no `heartbeat.exit_grace` within which mysqld is expected back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MayMove(pub bool);

/// What the cluster says of us, who took writes last as `wrote`.
#[must_use]
pub fn roles(ensemble: &Ensemble, me: &str, seen: &LastSeen, wrote: &Wrote, may_move: MayMove) -> Roles {
    let topology = match &ensemble.topology {
        Node::Here(topology) => topology,
        _ => return Roles::Never(Leave::refused("C2", "there is no topology that can be read")),
    };
    let record = &topology.record;
    if record.members.get(me).is_none_or(|member| member.server_uuid != seen.server_uuid) {
        return Roles::Never(Leave::refused(
            "C2",
            format!("topology has no member {me} with the server {}", seen.server_uuid),
        ));
    }
    let other = record.primary.as_deref().filter(|primary| *primary != me);
    if record.epoch <= wrote.epoch {
        // Nobody else has been promoted, and may never be: then what stands here is the truth.
        let leave = Leave::nothing(
            "C3",
            "no other server has taken over: the commits in flight stay, this server has the newest data",
        );
        let paused = ensemble.lease.record().is_some_and(|lease| lease.paused.is_some());
        return if may_move.0 && !paused { Roles::Unsettled(leave) } else { Roles::Never(leave) };
    }
    if record.forced.is_some_and(|forced| forced > wrote.epoch)
        || record.kept_since.is_none_or(|since| since > wrote.epoch)
    {
        let text = format!(
            "an epoch after {} was forced, or began without proof that it has all that was acknowledged: some of these may be such",
            wrote.epoch
        );
        return Roles::Never(Leave::refused("C4", text));
    }
    let Some((name, member)) = other.and_then(|other| record.members.get_key_value(other)) else {
        return Roles::Unsettled(Leave::refused("C5", "no server takes writes yet"));
    };
    let holds =
        |master: &Seen<super::records::Master>| master.record.name == *name && master.record.epoch == record.epoch;
    if member.state != MemberState::ReadWrite || !ensemble.master.here().is_some_and(holds) || record.handover.is_some()
    {
        return Roles::Unsettled(Leave::refused(
            "C5",
            format!("{name} is named as the primary and does not hold the role"),
        ));
    }
    if let Some(unknown) = unknown_member(ensemble, record, me, name, &member.server_uuid) {
        let text = format!(
            "{unknown} is not seen to follow {name}: its server may have received them, and their numbers would be used again"
        );
        return Roles::Unsettled(Leave::refused("C6", text));
    }
    Roles::Settled(NewPrimary {
        name: name.clone(),
        address: member.address.clone(),
        server_uuid: member.server_uuid.clone(),
    })
}

/// A member of which it is not known what it has received. One that follows the new primary has executed all that it had received before,
/// and receives from nobody else.
fn unknown_member(ensemble: &Ensemble, topology: &Topology, me: &str, primary: &str, uuid: &str) -> Option<String> {
    let known = |name: &String, server_uuid: &String| {
        let server = ensemble.agents.get(name).and_then(|agent| agent.record.server.as_ref());
        server.is_some_and(|server| {
            let source = server.source.as_ref().and_then(|source| source.server_uuid.as_deref());
            server.server_uuid == *server_uuid && source == Some(uuid)
        })
    };
    let others = topology.members.iter().filter(|(name, _)| *name != me && *name != primary);
    others.filter(|(name, member)| !known(name, &member.server_uuid)).map(|(name, _)| name.clone()).next()
}

/// Where the file is to be cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file's length afterwards.
    pub at: u64,
    /// What stands ahead of the file's first transaction ends here.
    pub head: u64,
    /// Where the last whole transaction ends: what a copy has to hold.
    pub whole: u64,
    /// What is taken back.
    pub gtids: GtidSet,
    /// How many transactions.
    pub count: usize,
}

/// What is to be cut. `executed`: the new primary's, read after it was named. `version`: the server's that wrote the file.
///
/// # Errors
/// The first row that says no.
pub fn cut(
    tail: &Tail,
    seen: &LastSeen,
    executed: &GtidSet,
    ensemble: &Ensemble,
    version: (u16, u16, u16),
) -> Result<Cut, Leave> {
    let committed = tail.previous.subtract(executed);
    if !committed.is_empty() {
        // The next file is begun only when everything in the one before is committed.
        return Err(Leave::refused(
            "T2",
            format!("the new primary lacks {committed}, which stand in an earlier file and are committed"),
        ));
    }
    let Some(first) = tail.transactions.first() else {
        return Err(Leave::nothing("T3", "the new primary has everything that stands here"));
    };
    for transaction in &tail.transactions {
        let gtid = &transaction.gtid;
        // Acknowledgements come in the file's order: one behind a missing one that the new primary has did not come from this file.
        if !transaction.missing {
            return Err(Leave::refused(
                "T4",
                format!("the new primary has {gtid} and lacks {}, which stands before it", first.gtid),
            ));
        }
        // What a replica applies it commits without waiting.
        if !gtid.of_others(&seen.server_uuid).is_empty() {
            return Err(Leave::refused(
                "T5",
                format!("the new primary lacks {gtid}, which this server has applied and committed"),
            ));
        }
        match &transaction.ending {
            Ending::Xid | Ending::Definition => {}
            Ending::XaPrepare if version >= XA_SINCE => {}
            Ending::XaPrepare => {
                let (a, b, c) = version;
                return Err(Leave::refused(
                    "T7",
                    format!("{gtid} is an XA PREPARE, which MySQL {a}.{b}.{c} would keep"),
                ));
            }
            Ending::Other(what) => {
                return Err(Leave::refused("T6", format!("{gtid} is {what}: the engine would not take it back")));
            }
        }
    }
    let gtids = tail.transactions.iter().fold(GtidSet::new(), |all, transaction| all.union(&transaction.gtid));
    let received = |server: &super::records::ServerRecord| !gtids.subtract(&server.received()).eq(&gtids);
    let holder = ensemble.agents.values().find(|agent| {
        let server = agent.record.server.as_ref();
        server.is_some_and(|server| server.server_uuid != seen.server_uuid && received(server))
    });
    if let Some(holder) = holder {
        return Err(Leave::refused("T8", format!("{} has received some of {gtids}", holder.record.name)));
    }
    let cut = Cut { at: first.at, head: tail.head, whole: tail.whole, count: tail.transactions.len(), gtids };
    // In release builds too: whatever is cut is missing on the new primary, ours, and the end of the file.
    assert!(cut.gtids.subtract(executed) == cut.gtids, "would cut what the new primary has");
    assert!(cut.head <= cut.at && cut.at < cut.whole && cut.whole <= tail.length, "would cut beyond the file");
    assert!(u64::try_from(cut.count) == Ok(cut.gtids.count()), "a GTID stands twice in the file");
    Ok(cut)
}
