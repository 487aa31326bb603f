//! `prestart` on the files of real servers: commits in flight, SIGKILL, the cut, the next start. The cluster is made up here, the set of the
//! new primary is what the server had before; the whole way, with ZooKeeper and a promotion, is a live test.

use std::path::PathBuf;
use std::time::Duration;

use mysql_ha_agent::binlog::event::Fault;
use mysql_ha_agent::binlog::tail;
use mysql_ha_agent::cli::rewind::{Done, Keep, Scene, find};
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::rewind::{LastSeen, Leave, Tail, Wrote};
use mysql_ha_agent::core::view::Ensemble;
use mysql_ha_agent::host::{datadir, rewind};
use mysql_ha_agent::mysql::connect::Connection;
use mysql_ha_agent::mysql::facts::{Reader, Reading};

use crate::control::executed;
use crate::fence::{server, session};
use crate::probe::no_acknowledgement;
use crate::server::{LONG, Server};

/// A server whose commits wait without end, with its note and what it had before.
struct Bed {
    server: Server,
    state_dir: tempfile::TempDir,
    before: GtidSet,
}

impl Bed {
    /// `statements` are committed and acknowledged before.
    async fn with(statements: &[&str]) -> Self {
        Self::of(server().await, statements).await
    }

    async fn of(server: Server, statements: &[&str]) -> Self {
        server.root_runs(&["INSERT INTO app.x VALUES (1)"]).await;
        server.root_runs(statements).await;
        let bed = Self { before: executed(&server).await, server, state_dir: tempfile::tempdir().unwrap() };
        no_acknowledgement(&bed.server).await;
        bed.note(Some(true)).await;
        bed
    }

    /// As the agent notes it. `lossless`: what `topology` said when it was the primary; none: it was not.
    async fn note(&self, lossless: Option<bool>) {
        let mut connection = Connection::open(&self.server.agent(), LONG).await.unwrap();
        let Reading::Facts(facts) = Reader::new("mysql_ha").read(&mut connection, "life", LONG).await.unwrap() else {
            panic!("a server that is not for us")
        };
        let files = facts.files.clone().expect("its variables name its files");
        let seen = LastSeen {
            cluster: "c".into(),
            server_uuid: facts.server_uuid.clone(),
            life: datadir::file_id(files.temporary.as_ref()).expect("the temporary tablespace"),
            files,
            synced: facts.synced_commits,
            wrote: lossless.map(|lossless| Wrote {
                epoch: 1,
                lossless,
                waited: facts.semi_sync.waits_for_any().is_some(),
            }),
            strangers: Vec::new(),
        };
        rewind::note_last_seen(self.state_dir.path(), &seen).unwrap();
    }

    /// Commits `statements`, each in a session of its own; all of them wait.
    async fn in_flight(&self, statements: &[&'static str]) {
        for statement in statements {
            self.waits(&[], statement).await;
        }
    }

    /// The last one of a session's statements waits.
    async fn waits(&self, before: &[&str], statement: &'static str) {
        let waiting = self.written();
        let mut session = session(&self.server.root(), before).await;
        let hangs = tokio::spawn(async move { session.run(statement, LONG * 10).await });
        self.until_written(waiting.saturating_add(1)).await;
        assert!(!hangs.is_finished(), "{statement}: {:?}", hangs.await);
    }

    /// Until so many stand in the file behind what was there before. No state of a session tells that, and with an account statement
    /// among them nobody could ask.
    async fn until_written(&self, count: usize) {
        let waiting = async {
            while self.written() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LONG, waiting)
            .await
            .unwrap_or_else(|_| panic!("never {count} in the file: {:?}", self.scan()));
    }

    /// How many stand there; more than anybody waits for where the file is one that is not understood.
    fn scan(&self) -> Result<Tail, Fault> {
        let data = self.server.data();
        let file = datadir::newest_binary_log(&data.join("binlog.index"), &data).unwrap();
        let bytes = std::fs::read(file).unwrap();
        tail::read(&bytes[..], bytes.len() as u64, &self.before, || false)
    }

    fn written(&self) -> usize {
        match self.scan() {
            Ok(tail) => tail.transactions.len(),
            Err(Fault::Checksum { .. }) => 0,
            Err(_) => usize::MAX,
        }
    }

    fn scene(&self) -> Result<Scene, Leave> {
        find(self.state_dir.path())
    }

    fn newest(&self) -> PathBuf {
        self.scene().unwrap().file
    }

    /// Dead, it is looked at as `prestart` does; the new primary has what this server had before.
    fn prestart(&self, dry_run: bool) -> Result<Done, Leave> {
        let scene = self.scene()?;
        let decided = scene.examine(self.state_dir.path(), "c").and_then(|open| {
            let keep = Keep { state_dir: self.state_dir.path(), at: "now", dry_run };
            scene.take_back(&open, &self.before, &Ensemble::default(), keep, &|| false)
        });
        if !dry_run {
            scene.note_start(self.state_dir.path()).unwrap();
        }
        decided
    }

    /// SIGKILL, and nothing is taken back, for the reason of this row.
    fn left(&mut self, row: &str, part: &str) {
        self.server.kill();
        let length = std::fs::metadata(self.newest()).unwrap().len();
        let leave = self.prestart(false).expect_err("it was cut");
        assert!(leave.row == row && leave.why.contains(part), "{leave:?}");
        assert_eq!(std::fs::metadata(self.newest()).unwrap().len(), length);
    }

    /// SIGKILL, so many are taken back, and the server comes up with nothing but what it had before.
    async fn taken_back(&mut self, count: usize) -> Done {
        self.server.kill();
        let would = self.prestart(true).unwrap();
        let length = std::fs::metadata(self.newest()).unwrap().len();
        let done = self.prestart(false).unwrap();
        assert_eq!((&would.cut, would.copy, done.cut.count), (&done.cut, None, count));
        assert!(done.cut.at < length);
        self.server.restart().await;
        assert_eq!(executed(&self.server).await, self.before, "{}", self.server.log());
        done
    }

    async fn rows(&self) -> String {
        self.server.value("(SELECT GROUP_CONCAT(id ORDER BY id) FROM app.x)").await
    }
}

const THREE: [&str; 3] =
    ["INSERT INTO app.x VALUES (11)", "INSERT INTO app.x VALUES (12)", "INSERT INTO app.x VALUES (13)"];

/// Without the verb the same death gives three rows that nobody else has.
#[tokio::test]
async fn interleaving_11_a_start_commits_what_was_in_flight() {
    let mut bed = Bed::with(&[]).await;
    bed.in_flight(&THREE).await;
    bed.server.kill();
    bed.server.restart().await;
    assert_eq!(bed.rows().await, "1,11,12,13");
    assert_eq!(executed(&bed.server).await.subtract(&bed.before).count(), 3);
}

#[tokio::test]
async fn interleaving_11_three_inserts_in_flight_are_taken_back() {
    let mut bed = Bed::with(&[]).await;
    bed.in_flight(&THREE).await;
    let done = bed.taken_back(3).await;
    assert_eq!(bed.rows().await, "1");
    assert_eq!(done.cut.gtids.count(), 3);
    // The numbers are free again, and mean something else now.
    bed.server.root_runs(&["INSERT INTO app.x VALUES (21)"]).await;
    assert!(done.cut.gtids.contains(&executed(&bed.server).await.subtract(&bed.before)));
    // A server reads the copy as a file of its own.
    let copy = done.copy.unwrap();
    let mut reader = server().await;
    reader.terminate().await;
    std::fs::copy(&copy, reader.data().join("binlog.000001")).unwrap();
    std::fs::write(reader.data().join("binlog.index"), "./binlog.000001\n").unwrap();
    reader.restart().await;
    let mut root = Connection::open(&reader.root(), LONG).await.unwrap();
    let events = root.rows("SHOW BINLOG EVENTS IN 'binlog.000001'", LONG).await.unwrap();
    let commits = events.iter().filter(|event| event.text_or_empty("Event_type") == "Xid").count();
    assert_eq!(commits, 3, "{events:?}");
    // A second death finds nothing to take back.
    bed.before = executed(&bed.server).await;
    no_acknowledgement(&bed.server).await;
    bed.note(Some(true)).await;
    bed.left("T3", "has everything");
}

/// Many at once, so that groups are committed together, and the file ends within another one.
#[tokio::test]
async fn interleaving_11_many_waiters_and_a_torn_end() {
    let mut bed = Bed::with(&[]).await;
    bed.in_flight(&["INSERT INTO app.x VALUES (10)"]).await;
    for id in 0..24 {
        let mut session = session(&bed.server.root(), &[]).await;
        tokio::spawn(async move { session.run(&format!("INSERT INTO app.x VALUES ({})", 100 + id), LONG * 10).await });
    }
    bed.until_written(25).await;
    bed.server.kill();
    let file = bed.newest();
    let whole = std::fs::read(&file).unwrap();
    // Half of one more transaction: what a host's crash can leave.
    let tail = tail::read(&whole[..], whole.len() as u64, &bed.before, || false).unwrap();
    let last = usize::try_from(tail.transactions[24].at).unwrap();
    std::fs::write(&file, &whole[..(last + whole.len()) / 2]).unwrap();
    let done = bed.prestart(false).unwrap();
    assert_eq!(done.cut.count, 24);
    bed.server.restart().await;
    assert_eq!((executed(&bed.server).await, bed.rows().await), (bed.before.clone(), "1".to_owned()));
}

/// Definitions that the engine carries; each can be made again afterwards, as replication will.
#[tokio::test]
async fn interleaving_11_definitions_are_taken_back() {
    for statement in [
        "CREATE TABLE app.made (id INT PRIMARY KEY)",
        "CREATE TABLE app.made AS SELECT id FROM app.x",
        "ALTER TABLE app.x ADD COLUMN n INT",
        "CREATE INDEX i ON app.x (id)",
        "DROP TABLE app.x",
        "TRUNCATE TABLE app.x",
        "RENAME TABLE app.x TO app.y",
        "CREATE USER u IDENTIFIED BY 'password-of-u'",
        "GRANT SELECT ON app.* TO app",
        "CREATE DATABASE d",
        "ALTER DATABASE app CHARACTER SET latin1",
        "CREATE VIEW app.v AS SELECT id FROM app.x",
        "CREATE PROCEDURE app.p() SELECT 1",
    ] {
        let mut bed = Bed::with(&[]).await;
        bed.in_flight(&[statement]).await;
        bed.taken_back(1).await;
        assert_eq!(bed.rows().await, "1", "{statement}");
        bed.server.root_runs(&[statement]).await;
    }
}

/// What leaves traces outside of the engine's transaction.
#[tokio::test]
async fn interleaving_11_other_definitions_and_engines_are_left() {
    for (before, statement) in [
        ("CREATE DATABASE d", "DROP DATABASE d"),
        ("DO 1", "CREATE TABLE app.m (id INT) ENGINE=MyISAM"),
        ("CREATE TABLE app.m (id INT) ENGINE=MyISAM", "DROP TABLE app.m"),
        ("CREATE TABLE app.m (id INT) ENGINE=MyISAM", "INSERT INTO app.m VALUES (1)"),
        ("CREATE TABLE app.m (id INT) ENGINE=MyISAM", "ALTER TABLE app.m ENGINE=InnoDB"),
        ("DO 1", "FLUSH PRIVILEGES"),
        ("DO 1", "ALTER TABLE app.x DISCARD TABLESPACE"),
    ] {
        let mut bed = Bed::with(&[before]).await;
        bed.in_flight(&[statement]).await;
        bed.left("T6", "the engine would not take it back");
    }
}

#[tokio::test]
async fn interleaving_11_xa_prepare_is_taken_back_and_xa_commit_is_left() {
    let branch = ["XA START 'a'", "INSERT INTO app.x VALUES (11)", "XA END 'a'"];
    for last in ["XA PREPARE 'a'", "XA COMMIT 'a' ONE PHASE"] {
        let mut bed = Bed::with(&[]).await;
        bed.waits(&branch, last).await;
        bed.taken_back(1).await;
        assert_eq!(bed.rows().await, "1", "{last}");
        let mut root = session(&bed.server.root(), &[]).await;
        assert!(root.rows("XA RECOVER", LONG).await.unwrap().is_empty(), "{last}: the engine keeps it");
    }
    let server = server().await;
    session(&server.root(), &branch).await.run("XA PREPARE 'a'", LONG).await.unwrap();
    let mut bed = Bed::of(server, &[]).await;
    bed.in_flight(&["XA COMMIT 'a'"]).await;
    bed.left("T6", "XA COMMIT");
}

#[tokio::test]
async fn interleaving_11_compressed_transactions_are_left() {
    let mut bed = Bed::with(&["SET GLOBAL binlog_transaction_compression=ON"]).await;
    bed.in_flight(&["INSERT INTO app.x VALUES (11)"]).await;
    bed.left("T6", "binlog_transaction_compression");
}

#[tokio::test]
async fn interleaving_11_gtids_with_a_tag_are_left() {
    let mut bed = Bed::with(&[]).await;
    bed.waits(&["SET gtid_next='AUTOMATIC:tag'"], "INSERT INTO app.x VALUES (11)").await;
    bed.left("T1", "GTID with a tag");
    // Also where they stand in earlier files alone.
    bed.server.restart().await;
    bed.before = executed(&bed.server).await;
    no_acknowledgement(&bed.server).await;
    bed.note(Some(true)).await;
    bed.in_flight(&["INSERT INTO app.x VALUES (12)"]).await;
    bed.left("T1", "earlier files");
}

#[tokio::test]
async fn interleaving_11_without_checksums_nothing_is_taken_back() {
    let mut bed = Bed::with(&["SET GLOBAL binlog_checksum=NONE"]).await;
    bed.in_flight(&THREE).await;
    bed.left("T1", "checksum");
}

/// In the new file stands what is in flight; a rotation that waits for it leaves the old one as it was.
#[tokio::test]
async fn interleaving_11_a_file_just_begun_and_one_about_to_be_closed() {
    let mut bed = Bed::with(&["FLUSH LOCAL BINARY LOGS"]).await;
    bed.in_flight(&THREE).await;
    let mut rotates = session(&bed.server.root(), &[]).await;
    tokio::spawn(async move { rotates.run("FLUSH LOCAL BINARY LOGS", LONG * 10).await });
    bed.server.until("EXISTS (SELECT 1 FROM performance_schema.processlist WHERE INFO LIKE 'FLUSH LOCAL%')").await;
    bed.taken_back(3).await;
    assert_eq!(bed.rows().await, "1");
}

#[tokio::test]
async fn interleaving_11_unsynced_degraded_or_not_waiting_is_left() {
    let mut bed = Bed::with(&["SET GLOBAL sync_binlog=0"]).await;
    bed.in_flight(&THREE).await;
    bed.left("L11", "sync_binlog");
    let mut bed = Bed::with(&[]).await;
    bed.in_flight(&THREE).await;
    bed.note(Some(false)).await;
    bed.left("L10", "degraded");
    let mut bed = Bed::with(&[]).await;
    bed.in_flight(&THREE).await;
    bed.note(None).await;
    bed.left("L7", "took no writes");
    let mut bed = Bed::with(&["SET GLOBAL rpl_semi_sync_source_wait_point=AFTER_COMMIT"]).await;
    bed.in_flight(&THREE).await;
    bed.left("L10", "semi-sync");
}

/// A running server, a frozen one and one that has just been told to end.
#[tokio::test]
async fn interleaving_11_a_mysqld_that_runs_is_left() {
    let mut bed = Bed::with(&[]).await;
    for signal in ["CONT", "STOP"] {
        bed.server.signal(signal);
        let leave = bed.prestart(false).unwrap_err();
        assert!(leave.row == "L3" && leave.why.contains("mysqld runs"), "{leave:?}");
    }
    bed.server.signal("CONT");
    bed.server.terminate().await;
    let leave = bed.prestart(false).unwrap_err();
    assert!(leave.row == "L6", "{leave:?}");
}

/// While it works, a start of mysqld waits.
#[tokio::test]
async fn interleaving_11_mysqld_waits_for_prestart() {
    let mut bed = Bed::with(&[]).await;
    bed.server.kill();
    let scene = bed.scene().unwrap();
    bed.server.begin_start();
    let waits = async {
        while !bed.server.log().contains("Unable to lock") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, waits).await.unwrap_or_else(|_| panic!("it did not wait:\n{}", bed.server.log()));
    drop(scene);
    bed.server.kill();
}

/// A start that dies while it recovers may have committed, with or without `prestart` ahead of it. The engine has made its temporary
/// tablespace anew by then, or this fails.
#[tokio::test]
async fn interleaving_11_after_a_start_that_died_nothing_is_taken_back() {
    for ahead in [false, true] {
        let mut bed = Bed::with(&[]).await;
        bed.in_flight(&THREE).await;
        bed.server.kill();
        if ahead {
            bed.scene().unwrap().note_start(bed.state_dir.path()).unwrap();
        }
        let file = bed.newest();
        bed.server.begin_start();
        let recovering = async {
            while !bed.server.log().contains("Starting XA crash recovery") {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, recovering).await.unwrap_or_else(|_| panic!("no recovery:\n{}", bed.server.log()));
        bed.server.kill();
        if bed.newest() != file {
            panic!("it was not killed early enough:\n{}", bed.server.log());
        }
        let leave = bed.prestart(false).unwrap_err();
        // Where recovery came to its end the flag is cleared.
        let expected = if ahead { ["L8", "L6"] } else { ["L9", "L6"] };
        assert!(expected.contains(&leave.row), "{leave:?}");
    }
}

/// What the engine has committed is in its own table of executed GTIDs: a cut that should not have been shows after the start, and
/// the agent names it.
#[tokio::test]
async fn interleaving_11_a_committed_transaction_without_its_event_is_found_again() {
    let mut bed = Bed::with(&[]).await;
    bed.in_flight(&THREE).await;
    // As an orderly end does: it answers them, and dies before it has closed the file.
    bed.server.root_runs(&["SET GLOBAL rpl_semi_sync_source_enabled=OFF"]).await;
    bed.server.until("(SELECT COUNT(*) FROM app.x) = 4").await;
    // Else the engine has it in memory alone, and takes it back.
    bed.server.root_runs(&["FLUSH NO_WRITE_TO_BINLOG ENGINE LOGS"]).await;
    bed.taken_back_all_the_same().await;
    let extra = executed(&bed.server).await.subtract(&bed.before);
    assert_eq!((extra.count(), bed.rows().await.as_str()), (3, "1,11,12,13"), "{extra}");
}

impl Bed {
    /// With the agent's note of a moment ago.
    async fn taken_back_all_the_same(&mut self) {
        self.server.kill();
        assert_eq!(self.prestart(false).unwrap().cut.count, 3);
        self.server.restart().await;
    }
}
