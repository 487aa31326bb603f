//! A MySQL server: binary log, relay log, applier, semi-sync as source, read-only, death and return.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::view::{Channel, IoThread, SemiSync, SemiSyncReplica, SemiSyncSource, ServerFacts};

/// Who numbered it, its number, when it was written (milliseconds).
pub(crate) type Tx = (usize, u32, u64);

/// A set of transactions that only grows, and its text form as of its last length.
#[derive(Default)]
pub(crate) struct Set {
    pub(crate) all: BTreeSet<Tx>,
    cached: RefCell<(usize, GtidSet)>,
}

impl Set {
    pub(crate) fn insert(&mut self, tx: Tx) {
        self.all.insert(tx);
    }

    pub(crate) fn gtids(&self) -> GtidSet {
        let mut cached = self.cached.borrow_mut();
        if cached.0 != self.all.len() {
            *cached = (self.all.len(), to_gtids(&self.all));
        }
        cached.1.clone()
    }
}

pub(crate) fn to_gtids(all: &BTreeSet<Tx>) -> GtidSet {
    let mut text = String::new();
    let mut run: Option<(usize, u32, u32)> = None;
    let write = |text: &mut String, (host, from, to): (usize, u32, u32)| {
        text.push_str(&format!("{}:{from}-{to},", uuid(host)));
    };
    for &(host, n, _) in all {
        run = match run {
            Some((h, from, to)) if h == host && n == to + 1 => Some((h, from, n)),
            other => {
                other.into_iter().for_each(|run| write(&mut text, run));
                Some((host, n, n))
            }
        };
    }
    run.into_iter().for_each(|run| write(&mut text, run));
    text.parse().unwrap()
}

pub(crate) fn uuid(host: usize) -> String {
    format!("00000000-0000-0000-0000-00000000000{}", host + 1)
}

pub(crate) fn address(host: usize) -> String {
    format!("db{}:3306", host + 1)
}

pub(crate) struct Replication {
    pub(crate) source: usize,
    pub(crate) io: bool,
    pub(crate) sql: bool,
    pub(crate) connected: bool,
    /// Started as one that acknowledges.
    pub(crate) acknowledges: bool,
    /// How much of the source's log has been asked for.
    pub(crate) position: usize,
    /// The life of the source that has let it in: the connection stands, also while either is frozen or cut off for a while.
    pub(crate) let_in: Option<u32>,
    /// By which account.
    pub(crate) user: String,
}

/// A commit that waits for its acknowledgement, and whether somebody still waits for its answer.
pub(crate) struct Waiting {
    pub(crate) tx: Tx,
    pub(crate) at: usize,
    pub(crate) client: bool,
    /// Who has acknowledged it.
    by: BTreeSet<usize>,
}

pub(crate) struct Mysqld {
    pub(crate) id: usize,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(crate) life: u32,
    pub(crate) super_read_only: bool,
    pub(crate) offline: bool,
    /// A `SET GLOBAL super_read_only=ON` waits for commits and keeps new ones waiting.
    pub(crate) closing: bool,
    pub(crate) log: Vec<Tx>,
    pub(crate) executed: Set,
    pub(crate) retrieved: Set,
    pub(crate) relay: VecDeque<Tx>,
    pub(crate) channel: Option<Replication>,
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) acknowledgements: u32,
    /// Semi-sync's replica side: set, and as the IO thread that runs was started.
    pub(crate) replica_enabled: bool,
    /// The replication account that its agent's file names.
    pub(crate) user: String,
    /// Accounts that are locked here, and for whom.
    pub(crate) locked: BTreeMap<String, String>,
    next: u32,
    pub(crate) slow: bool,
    /// The applier stands still.
    pub(crate) stalled: bool,
    pub(crate) newest: Option<u64>,
}

impl Mysqld {
    pub(crate) fn new(id: usize, acknowledgements: u32, user: String) -> Self {
        let channel = (id > 0).then_some(Replication {
            source: 0,
            io: true,
            sql: true,
            connected: true,
            acknowledges: acknowledgements > 0,
            position: 0,
            let_in: Some(1),
            user: user.clone(),
        });
        Self {
            id,
            up: true,
            frozen: false,
            life: 1,
            super_read_only: id > 0,
            offline: false,
            closing: false,
            log: vec![],
            executed: Set::default(),
            retrieved: Set::default(),
            relay: VecDeque::new(),
            channel,
            waiting: vec![],
            acknowledgements: if id == 0 { acknowledgements } else { 0 },
            replica_enabled: id > 0 && acknowledgements > 0,
            user,
            locked: BTreeMap::new(),
            next: 0,
            slow: false,
            stalled: false,
            newest: None,
        }
    }

    pub(crate) fn answers(&self) -> bool {
        self.up && !self.frozen
    }

    /// Clients can write at this instant.
    pub(crate) fn accepts(&self) -> bool {
        self.answers() && !self.super_read_only && !self.offline && !self.closing
    }

    /// Clients that wait are cut without an answer before anything can let their commits return.
    pub(crate) fn go_offline(&mut self) {
        self.offline = true;
        self.waiting.iter_mut().for_each(|waiting| waiting.client = false);
    }

    /// A commit: its transaction, and whether it is acknowledged at once.
    pub(crate) fn commit(&mut self, now: u64, client: bool) -> Option<(Tx, bool)> {
        if !self.accepts() {
            return None;
        }
        self.next += 1;
        let tx = (self.id, self.next, now);
        self.log.push(tx);
        if self.acknowledgements > 0 {
            self.waiting.push(Waiting { tx, at: self.log.len() - 1, client, by: BTreeSet::new() });
            return Some((tx, false));
        }
        self.execute(tx);
        Some((tx, true))
    }

    fn execute(&mut self, tx: Tx) {
        self.executed.insert(tx);
        self.newest = self.newest.max(Some(tx.2));
    }

    /// A replica has received the log up to and with `position`: earlier commits are acknowledged with it.
    pub(crate) fn acknowledged(&mut self, by: usize, position: usize) -> Vec<Tx> {
        for waiting in self.waiting.iter_mut().filter(|waiting| waiting.at <= position) {
            waiting.by.insert(by);
        }
        self.answer()
    }

    /// Commits wait for so many acknowledgements from now on; what has them is answered.
    pub(crate) fn wait_for(&mut self, acknowledgements: u32) -> Vec<Tx> {
        self.acknowledgements = acknowledgements;
        self.answer()
    }

    fn answer(&mut self) -> Vec<Tx> {
        let enough = usize::try_from(self.acknowledgements).unwrap();
        let (done, waiting): (Vec<Waiting>, Vec<Waiting>) =
            std::mem::take(&mut self.waiting).into_iter().partition(|waiting| waiting.by.len() >= enough);
        self.waiting = waiting;
        done.iter().for_each(|done| self.execute(done.tx));
        done.into_iter().filter(|done| done.client).map(|done| done.tx).collect()
    }

    pub(crate) fn has_received(&self, tx: Tx) -> bool {
        self.executed.all.contains(&tx) || self.retrieved.all.contains(&tx)
    }

    pub(crate) fn receive(&mut self, tx: Tx) {
        self.retrieved.insert(tx);
        self.relay.push_back(tx);
    }

    /// One step of the applier.
    pub(crate) fn apply(&mut self) {
        if !self.answers() || !self.channel.as_ref().is_some_and(|channel| channel.sql) {
            return;
        }
        if let Some(tx) = self.relay.pop_front()
            && !self.executed.all.contains(&tx)
        {
            self.log.push(tx);
            self.execute(tx);
        }
    }

    pub(crate) fn kill(&mut self) {
        self.up = false;
        self.frozen = false;
        self.waiting.clear();
    }

    /// The host lost its power: of what was received and not applied only so much had come to the disk. What was applied stands in
    /// the binary log, which is synced.
    pub(crate) fn lose_unsynced(&mut self, kept: usize) {
        let lost = self.relay.split_off(kept.min(self.relay.len()));
        let retrieved = self.retrieved.all.iter().filter(|tx| !lost.contains(tx)).copied().collect();
        self.retrieved = Set { all: retrieved, ..Set::default() };
        if let Some(channel) = &mut self.channel {
            channel.position = 0; // what is missing is asked for anew
        }
    }

    /// Recovery commits what stands in the binary log; the server comes up read-only, replication stopped.
    pub(crate) fn start(&mut self) {
        self.up = true;
        self.life += 1;
        self.super_read_only = true;
        self.offline = false;
        self.closing = false;
        self.acknowledgements = 0;
        // Never persisted: a returning replica must not acknowledge before it is recorded.
        self.replica_enabled = false;
        for tx in self.log.clone() {
            self.execute(tx);
        }
        if let Some(channel) = &mut self.channel {
            (channel.io, channel.sql, channel.connected, channel.let_in) = (false, false, false, None);
        }
    }

    pub(crate) fn received(&self) -> GtidSet {
        match self.channel {
            Some(_) => self.executed.gtids().union(&self.retrieved.gtids()),
            None => self.executed.gtids(),
        }
    }

    pub(crate) fn point_at(&mut self, source: usize, user: &str) {
        let position = match &self.channel {
            Some(channel) if channel.source == source => channel.position,
            _ => 0,
        };
        let acknowledges = self.replica_enabled;
        self.channel = Some(Replication {
            source,
            io: true,
            sql: true,
            connected: false,
            acknowledges,
            position,
            let_in: None,
            user: user.to_owned(),
        });
    }

    pub(crate) fn facts(&self, boot: u32, now: u64) -> ServerFacts {
        let io = |channel: &Replication| match (channel.io, channel.connected) {
            (true, true) => IoThread::Yes,
            (true, false) => IoThread::Connecting,
            _ => IoThread::No,
        };
        ServerFacts {
            server_uuid: uuid(self.id),
            server_id: 1,
            version: "9.7.0".into(),
            losses: 0,
            // The variable reads ON while the statement still waits for commits.
            read_only: self.super_read_only || self.closing,
            super_read_only: self.super_read_only || self.closing,
            offline_mode: self.offline,
            persisted_read_only: true,
            executed: self.executed.gtids(),
            channel: self.channel.as_ref().map(|channel| Channel {
                source: address(channel.source),
                user: channel.user.clone(),
                source_uuid: uuid(channel.source),
                io: io(channel),
                sql_running: channel.sql,
                retrieved: self.retrieved.gtids(),
                auto_position: true,
                io_error: String::new(),
                sql_error: String::new(),
            }),
            replicas: vec![],
            incarnation: format!("boot{boot}/{}", self.life),
            relay_log_recovery: false,
            synced_commits: true,
            files: None,
            heartbeat_age: self.newest.map(|newest| Duration::from_millis(now.saturating_sub(newest))),
            heartbeat_table: true,
            semi_sync: SemiSync {
                source: Some(SemiSyncSource {
                    on: self.acknowledgements > 0,
                    count: self.acknowledgements.max(1),
                    strict: true,
                }),
                replica: Some(SemiSyncReplica {
                    enabled: self.replica_enabled,
                    active: self.channel.as_ref().is_some_and(|channel| channel.connected && channel.acknowledges),
                }),
            },
        }
    }
}
