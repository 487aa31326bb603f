//! The program `mysql-ha-agent guard` beside a real mysqld; the agent is the test, which writes the lease file. Each test is
//! one of the interleavings in `src/guard/mod.rs`. With real agents: `tests/live_cases/guard.rs`.

#![allow(clippy::unwrap_used)] // a test ends by it

#[path = "guard/bench.rs"]
mod bench;
#[allow(dead_code, reason = "shared with the tests of the MySQL module")]
#[path = "mysql_control/server.rs"]
mod server;

use std::time::Duration;

use bench::{BUDGET, Bench, boot_id};
use mysql_ha_agent::core::fenced::WordState;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::time::Moment;
use mysql_ha_agent::host::clock::now;
use mysql_ha_agent::host::lease_file::{FOR_EVER, LeaseFile};
use mysql_ha_agent::host::process::Mysqld;
use mysql_ha_agent::mysql::connect::Connection;

use crate::server::LONG;

/// How exactly [`Bench::closes`] tells when it was: between two of its looks.
const POLL: Duration = Duration::from_millis(500);

/// A lease long enough to do something in, short enough to wait for.
const LEASE: Duration = Duration::from_secs(3);

/// 1 and 2: nothing happens while the lease is renewed; after its last renewal the server is closed between `until − budget` and
/// `until`.
#[tokio::test]
async fn fenced_at_the_end_of_the_lease_and_not_before() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.write(Some(now() + LEASE)).unwrap();
    let guard = bench.guard();
    guard.decides("G2").await;
    for _ in 0..3 {
        bench.server.root_runs(&["DO SLEEP(0.5)"]).await;
        lease.write(Some(now() + LEASE)).unwrap();
    }
    let until = now() + LEASE;
    lease.write(Some(until)).unwrap();
    let (last_open, closed) = bench.closes().await;
    assert!(closed >= until - BUDGET, "closed {:?} before the budget began", (until - BUDGET).since(closed));
    assert!(last_open <= until, "open {:?} after the lease's end", last_open.since(until));
    guard.says("guard has made the server read-only").await;
    let word = bench.word().unwrap();
    assert_eq!(word.reason, Reason::LeaseLost);
    assert!(matches!(word.state, WordState::Returned(at) if at >= closed - POLL && at <= now()), "{word:?}");
}

/// 4: what the guard has closed counts as its own until it sees the server open again; a later read-only is somebody else's.
#[tokio::test]
async fn a_fence_is_told_until_the_server_is_seen_open() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.write(None).unwrap();
    let guard = bench.guard();
    guard.says("event=\"fenced\"").await;
    assert!(bench.word().is_some());
    let until = now() + LEASE;
    lease.write(Some(until)).unwrap();
    bench.server.root_runs(&["SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF, GLOBAL offline_mode=OFF"]).await;
    bench.is_unsaid().await;
    bench.server.root_runs(&["SET GLOBAL super_read_only=ON"]).await;
    guard.decides("G6").await;
    assert_eq!(bench.word(), None, "the operator's read-only is not the guard's");
}

/// 3: a guard that was frozen over the lease's end fences within a second of thawing.
#[tokio::test]
async fn frozen_over_the_end_and_thawed() {
    let bench = Bench::managed().await;
    let until = now() + LEASE;
    bench.lease_file().write(Some(until)).unwrap();
    let guard = bench.guard();
    guard.decides("G2").await;
    guard.signal("STOP");
    bench.server.root_runs(&[&format!("DO SLEEP({})", LEASE.as_secs_f64())]).await;
    assert!(now() > until && bench.is_writable().await, "a frozen guard cannot have fenced");
    let thawed = now();
    guard.signal("CONT");
    let (last_open, _) = bench.closes().await;
    assert!(last_open <= thawed + Duration::from_secs(1), "open {:?} after thawing", last_open.since(thawed));
}

/// 5, interleaving 14 of the design: whoever reopens it is answered again and again.
#[tokio::test]
async fn interleaving_14_reopened_and_fenced_again() {
    let bench = Bench::managed().await;
    bench.lease_file().write(None).unwrap();
    let guard = bench.guard();
    bench.closes().await;
    for _ in 0..3 {
        guard.decides("G11").await;
        guard.forget();
        bench.server.root_runs(&["SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF"]).await;
        bench.closes().await;
        guard.decides("G10").await;
    }
}

/// 5: and a new lease ends that.
#[tokio::test]
async fn a_new_lease_lets_it_be_opened() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.write(None).unwrap();
    let guard = bench.guard();
    bench.closes().await;
    guard.decides("G11").await;
    lease.write(Some(now() + Duration::from_secs(600))).unwrap();
    bench.server.root_runs(&["SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF, GLOBAL offline_mode=OFF"]).await;
    guard.decides("G2").await;
    assert!(bench.is_writable().await);
}

/// 8: no file at all; a file of another boot.
#[tokio::test]
async fn a_managed_server_without_a_lease_of_this_boot_is_fenced() {
    let bench = Bench::managed().await;
    let guard = bench.guard();
    bench.closes().await;
    drop(guard);
    let another = "00000000-0000-0000-0000-000000000000";
    let path = bench.lease_path();
    let mut lease = LeaseFile::open(&path, another, "agent").unwrap();
    lease.write(Some(now() + Duration::from_secs(600))).unwrap();
    bench.server.root_runs(&["SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF"]).await;
    let _guard = bench.guard();
    bench.closes().await;
}

/// 9: a lease that was granted is granted, whatever becomes of the file; and not for longer.
#[tokio::test]
async fn the_file_breaks_and_goes() {
    let bench = Bench::managed().await;
    let until = now() + LEASE;
    bench.lease_file().write(Some(until)).unwrap();
    let guard = bench.guard();
    guard.decides("G2").await;
    std::fs::write(bench.lease_path(), "torn").unwrap();
    guard.says("lease file cannot be read").await;
    std::fs::remove_file(bench.lease_path()).unwrap();
    let (last_open, closed) = bench.closes().await;
    assert!(closed >= until - BUDGET && last_open <= until);
}

/// 11: a new process is found again. This one comes up writable, which a managed server does not.
#[tokio::test]
async fn mysqld_restarts() {
    let mut bench = Bench::managed().await;
    bench.lease_file().write(None).unwrap();
    let guard = bench.guard();
    bench.closes().await;
    bench.server.kill();
    guard.decides("G12").await;
    bench.server.restart().await;
    bench.closes().await;
    guard.decides("G10").await;
}

/// 12: a server that hangs when its lease ends is killed by then; one that hangs without a lease is nobody's business.
#[tokio::test]
async fn a_hanging_server_is_killed_only_after_a_lease() {
    let mut bench = Bench::managed().await;
    let until = now() + LEASE;
    bench.lease_file().write(Some(until)).unwrap();
    let guard = bench.guard();
    guard.decides("G2").await;
    let mysqld = Mysqld::behind(&bench.server.socket()).unwrap();
    bench.server.signal("STOP");
    guard.says("Dead").await;
    assert!(now() >= until - BUDGET && mysqld.has_exited());
    // Dead already: this reaps it, since mysqld takes a zombie for the owner of its socket's lock.
    bench.server.kill();
    // The same guard, and the next one, know that nothing can be open under that lease.
    bench.server.restart().await;
    bench.server.root_runs(&["SET GLOBAL super_read_only=ON"]).await;
    guard.decides("G11").await;
    drop(guard);
    bench.server.signal("STOP");
    let guard = bench.guard();
    guard.decides("G8").await;
    bench.server.signal("CONT");
    guard.decides("G11").await;
    assert_eq!(bench.server.value("@@global.offline_mode").await, "0");
}

/// 13: rotated while the guard holds connections, with a reload, and its old connections killed.
#[tokio::test]
async fn the_password_is_rotated() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.write(Some(now() + Duration::from_secs(600))).unwrap();
    let guard = bench.guard();
    guard.decides("G2").await;
    bench.server.root_runs(&["ALTER USER agent IDENTIFIED BY 'rotated'"]).await;
    bench.configure("rotated");
    guard.signal("HUP");
    guard.says("used from the next connection on").await;
    bench.kill_connections_of("agent").await;
    bench.server.until("(SELECT COUNT(*) FROM performance_schema.processlist WHERE USER = 'agent') = 2").await;
    let until = now() + LEASE;
    lease.write(Some(until)).unwrap();
    let (last_open, _) = bench.closes().await;
    assert!(last_open <= until);
    guard.says("rung=\"super_read_only\"").await;
}

/// 14: no marker; the marker of another server; `observe`.
#[tokio::test]
async fn a_server_that_is_not_under_our_care_is_left_alone() {
    for (uuid, mode, row) in
        [(None, "automatic", "G4"), (Some("another"), "automatic", "G5"), (Some(""), "observe", "G1")]
    {
        let bench = Bench::start().await;
        match uuid {
            Some("") => bench.mark(&bench.server.uuid().await),
            Some(other) => bench.mark(other),
            None => {}
        }
        bench.configure_mode("agent-secret", mode);
        // Nothing that ends: a lease that ended long ago would be the strongest reason to fence.
        bench.lease_file().write(Some(Moment(1))).unwrap();
        let guard = bench.guard();
        guard.decides(row).await;
        assert!(bench.is_writable().await && bench.word().is_none(), "{row}");
        assert_eq!(bench.server.value("@@global.offline_mode").await, "0", "{row}");
    }
}

/// 15: paused, and the pause taken back.
#[tokio::test]
async fn nothing_is_fenced_while_paused() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.set_paused(Some(FOR_EVER));
    lease.write(Some(Moment(1))).unwrap();
    let guard = bench.guard();
    guard.decides("G3").await;
    assert!(bench.is_writable().await);
    lease.set_paused(None);
    lease.write(Some(Moment(1))).unwrap();
    bench.closes().await;
}

/// 16, and interleaving 6 of the design: a replica's semi-sync is left alone, also by a fence; so is a read-only server.
#[tokio::test]
async fn interleaving_06_a_replica_keeps_its_semi_sync() {
    let bench = Bench::managed().await;
    bench.server.root_runs(&["SET GLOBAL rpl_semi_sync_replica_enabled=ON", "SET GLOBAL super_read_only=ON"]).await;
    bench.lease_file().write(None).unwrap();
    let guard = bench.guard();
    guard.decides("G11").await;
    assert_eq!(bench.server.value("@@global.offline_mode").await, "0");
    bench.server.root_runs(&["SET GLOBAL super_read_only=OFF, GLOBAL read_only=OFF"]).await;
    bench.closes().await;
    assert_eq!(bench.server.value("@@global.rpl_semi_sync_replica_enabled").await, "1");
}

/// Interleaving 10 of the design, by the guard: a commit that waits for its acknowledgement never returns success.
#[tokio::test]
async fn interleaving_10_a_waiting_commit_never_returns_ok() {
    let bench = Bench::managed().await;
    let never = ["SET GLOBAL rpl_semi_sync_source_timeout=1000000000", "SET GLOBAL rpl_semi_sync_source_enabled=ON"];
    bench.server.root_runs(&["CREATE TABLE app.x (id INT PRIMARY KEY)"]).await;
    bench.server.root_runs(&never).await;
    bench.lease_file().write(Some(now() + LEASE)).unwrap();
    let guard = bench.guard();
    guard.decides("G2").await;
    let mut client = Connection::open(&bench.server.app(), LONG).await.unwrap();
    assert!(
        client.run("INSERT INTO app.x VALUES (1)", LONG).await.is_err(),
        "an unacknowledged commit returned success"
    );
    guard.says("event=\"fenced\"").await;
}

/// 17: one at a time; and what a killed guard held is free.
#[tokio::test]
async fn a_second_guard_is_refused() {
    let bench = Bench::managed().await;
    bench.lease_file().write(Some(now() + Duration::from_secs(600))).unwrap();
    let first = bench.guard();
    first.decides("G2").await;
    let mut second = bench.guard();
    assert_eq!(second.ends().await, Some(5));
    second.says("another guard of this server runs").await;
    drop(first);
    let third = bench.guard();
    third.decides("G2").await;
    assert!(bench.is_writable().await);
}

/// It sees whether an agent lives by the lock on the lease file; the test holds it like one.
#[tokio::test]
async fn it_says_when_the_agent_comes_and_goes() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.write(Some(now() + Duration::from_secs(600))).unwrap();
    let guard = bench.guard();
    guard.says("an agent writes the lease file").await;
    guard.forget();
    drop(lease);
    guard.says("no agent runs on this host").await;
    assert_eq!(boot_id().len(), 36);
}

/// What it takes at rest and after a fence: less than at its start, of which it gives back what it does not need; and what it
/// has needed since is locked. The figures are printed; those of the release build stand in the README.
#[tokio::test]
async fn resident_memory() {
    let bench = Bench::managed().await;
    let mut lease = bench.lease_file();
    lease.write(Some(now() + Duration::from_secs(600))).unwrap();
    let guard = bench.guard();
    guard.says("event=\"rehearsed\"").await;
    let rest = guard.memory();
    println!("guard at rest: {rest:?} kB");
    assert!(rest.resident < rest.most, "nothing of its start was given back: {rest:?}");
    assert!(rest.locked > rest.resident / 2, "it is not locked: {rest:?}");
    lease.write(None).unwrap();
    bench.closes().await;
    guard.says("event=\"fenced\"").await;
    println!("guard after a fence: {:?} kB", guard.memory());
}
