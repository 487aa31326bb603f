//! The metrics: names, values, and what `promtool` thinks of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use mysql_ha_agent::agent::count::RoleChanges;
use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::prospects::Prospect;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{DurabilityMode, HistoryRecord, Mode, Phases, Progress};
use mysql_ha_agent::core::time::Wall;
use mysql_ha_agent::core::view::{Node, Session};
use mysql_ha_agent::http::tally::Tally;

use crate::world::{NOW, World, gtids, primary, replica, request, seen, unadopted, vacant};
use crate::{Asked, tool};

/// Contract, section 4, word by word.
const NAMES: [&str; 20] = [
    "role",
    "phase_code",
    "epoch",
    "lease_remaining_seconds",
    "lease_renewal_seconds",
    "zookeeper_connected",
    "probe_age_seconds",
    "probe_seconds",
    "replication_lag_seconds",
    "failovers_total",
    "switchovers_total",
    "fences_total",
    "last_failover_timestamp_seconds",
    "failover_ready",
    "sync_replicas_connected",
    "guard_up",
    "degraded",
    "errant_transactions",
    "paused",
    "build_info",
];

fn page(agent: &Asked) -> String {
    let answer = agent.ask("GET", "/metrics");
    assert_eq!((answer.status, answer.media_type), (200, "text/plain; version=0.0.4; charset=utf-8"));
    answer.body
}

/// Samples by name with labels, without the prefix.
fn samples(agent: &Asked) -> BTreeMap<String, f64> {
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ')?;
        Some((name.strip_prefix("mysql_ha_")?.to_owned(), value.parse().unwrap()))
    };
    page(agent).lines().filter(|line| !line.starts_with('#')).map(|line| sample(line).unwrap()).collect()
}

/// The families that a page declares.
pub(crate) fn families(page: &str) -> BTreeSet<String> {
    page.lines().filter_map(|line| Some(line.strip_prefix("# TYPE mysql_ha_")?.split(' ').next()?.to_owned())).collect()
}

fn failover(at: &str) -> HistoryRecord {
    HistoryRecord {
        epoch: 7,
        at: Wall(at.to_owned()),
        cause: Reason::MysqlDown,
        from: Some("db2".into()),
        to: "db1".into(),
        phases: Phases::default(),
        received: gtids(9),
        executed: gtids(9),
        lost: GtidSet::new(),
    }
}

/// A primary and a replica that know everything.
pub(crate) fn full() -> [String; 2] {
    [primary(), replica()].map(|world| {
        let mut agent = Asked::of(world);
        agent.history = Some(vec![failover("2026-11-30T10:00:00.250Z")]);
        agent.tally.renewals.observe(Duration::from_millis(3));
        agent.tally.probes.observe(Duration::from_millis(2));
        page(&agent)
    })
}

#[test]
fn every_metric_of_the_contract_is_there_and_no_other() {
    let found: BTreeSet<String> = full().iter().flat_map(|page| families(page)).collect();
    assert_eq!(found, NAMES.iter().map(|name| (*name).to_owned()).collect());
}

#[test]
fn promtool_finds_nothing_wrong() {
    let mut empty = Asked::of(primary());
    empty.sight = None;
    for page in full().into_iter().chain([page(&empty)]) {
        let mut promtool = Command::new(tool("promtool"))
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
        let output = promtool.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        assert!(output.status.success() && said.trim().is_empty(), "{said}\n{page}");
    }
}

#[test]
fn values_of_a_primary() {
    let mut agent = Asked::of(primary());
    agent.now = NOW + Duration::from_secs(2);
    agent.history = Some(vec![failover("2026-11-30T10:00:00.250Z")]);
    agent.tally.failovers.add(Reason::MysqlDown.code());
    agent.tally.fences.add("kill_process");
    let found = samples(&agent);
    for (name, expected) in [
        ("role{role=\"primary\"}", 1.0),
        ("role{role=\"replica\"}", 0.0),
        ("epoch", 7.0),
        ("lease_remaining_seconds", 7.0),
        ("probe_age_seconds", 2.0),
        ("zookeeper_connected", 1.0),
        ("sync_replicas_connected", 2.0),
        ("failover_ready{reason=\"ready\"}", 1.0),
        ("degraded", 0.0),
        ("paused", 0.0),
        ("guard_up", 1.0),
        ("errant_transactions", 0.0),
        ("failovers_total{reason=\"mysql_down\"}", 1.0),
        ("failovers_total{reason=\"agent_lost\"}", 0.0),
        ("fences_total{rung=\"kill_process\"}", 1.0),
        ("switchovers_total{result=\"undone\"}", 0.0),
        ("last_failover_timestamp_seconds", 1_796_032_800.25),
    ] {
        assert_eq!(found.get(name), Some(&expected), "{name}");
    }
    assert!(!found.contains_key("replication_lag_seconds"), "a primary does not lag");
}

#[test]
fn what_is_not_known_is_absent() {
    let mut agent = Asked::of(replica().with(|world| world.facts().heartbeat_age = None));
    agent.guard = None;
    let found = samples(&agent);
    for name in [
        "replication_lag_seconds",
        "lease_remaining_seconds",
        "guard_up",
        "sync_replicas_connected",
        "last_failover_timestamp_seconds",
    ] {
        assert!(!found.contains_key(name), "{name}");
    }
    agent.server.facts.as_mut().unwrap().0.heartbeat_age = Some(Duration::from_millis(750));
    agent.server.errant = gtids(3);
    let found = samples(&agent);
    assert_eq!((found["replication_lag_seconds"], found["errant_transactions"]), (0.75, 3.0));
    let nothing = samples(&Asked::of(unadopted("db1")));
    assert!(!nothing.contains_key("epoch") && !nothing.contains_key("degraded"));
}

/// A lease that has ended is not negative, and one that lives for ever can be written down.
#[test]
fn the_end_of_the_lease() {
    let mut agent = Asked::of(primary());
    agent.now = NOW + Duration::from_secs(60);
    assert_eq!(samples(&agent)["lease_remaining_seconds"], 0.0);
}

#[test]
fn would_a_failover_succeed() {
    let durability = |world: &mut World, mode| world.topology().durability.mode = mode;
    let mode = |world: &mut World, mode| {
        for name in ["db2", "db3"] {
            world.view.ensemble.agents.get_mut(name).unwrap().record.mode = mode;
        }
    };
    let gone = |world: &mut World, name: &str| drop(world.view.ensemble.agents.remove(name));
    for (what, world, expected) in [
        ("all is well", primary(), Prospect::Ready),
        ("a replica says the same", replica(), Prospect::Ready),
        ("not connected", primary().with(|w| w.view.ensemble.session = Session::default()), Prospect::NoZookeeper),
        ("not adopted", unadopted("db1"), Prospect::NotAdopted),
        ("no primary", vacant(), Prospect::NoPrimary),
        ("paused", primary().with(|w| w.lease().paused = Some("op".into())), Prospect::Paused),
        ("degraded", primary().with(|w| w.topology().durability.degraded = true), Prospect::Degraded),
        ("nobody in S", primary().with(|w| w.topology().durability.sync.clear()), Prospect::Degraded),
        ("one of S is gone", primary().with(|w| gone(w, "db3")), Prospect::NoQuorum),
        (
            "one of S is gone, two acknowledge",
            primary().with(|w| {
                gone(w, "db3");
                w.topology().durability.sync_replicas = 2;
            }),
            Prospect::Ready,
        ),
        (
            "one of S lives anew",
            primary().with(|w| w.agent("db3").incarnation = Some("anew".into())),
            Prospect::NoQuorum,
        ),
        (
            "all are gone",
            primary().with(|w| {
                gone(w, "db2");
                gone(w, "db3");
            }),
            Prospect::NoCandidate,
        ),
        ("nobody is told to", primary().with(|w| mode(w, Mode::Manual)), Prospect::NotAutomatic),
        (
            "async, one is gone",
            primary().with(|w| {
                durability(w, DurabilityMode::Async);
                gone(w, "db3");
            }),
            Prospect::Ready,
        ),
        (
            "async, all lag",
            primary().with(|w| {
                durability(w, DurabilityMode::Async);
                w.agent("db2").lag_ms = Some(30_001);
                w.agent("db3").lag_ms = None;
            }),
            Prospect::TooFarBehind,
        ),
        (
            "unreadable",
            primary().with(|w| w.view.ensemble.topology = Node::Unreadable { why: String::new(), version: 1 }),
            Prospect::NotAdopted,
        ),
    ] {
        let found = samples(&Asked::of(world));
        let name = format!("failover_ready{{reason=\"{}\"}}", expected.code());
        let value = if expected == Prospect::Ready { 1.0 } else { 0.0 };
        assert_eq!(found.get(&name), Some(&value), "{what}: {found:?}");
    }
    let mut agent = Asked::of(primary());
    agent.sight.as_mut().unwrap().cooldown = Some(NOW + Duration::from_secs(1));
    assert_eq!(samples(&agent).get("failover_ready{reason=\"cooldown\"}"), Some(&0.0));
    agent.now = NOW + Duration::from_secs(1);
    assert_eq!(samples(&agent).get("failover_ready{reason=\"ready\"}"), Some(&1.0));
}

/// Each role change counts once, at the agent where it ended; what had been before the agent started does not.
#[test]
fn role_changes_count_once() {
    let asked = |progress| {
        move |world: &mut World| {
            world.view.ensemble.switchover = Node::Here(seen(request(progress), 0, Duration::ZERO));
        }
    };
    let began = |epoch, reason| {
        move |world: &mut World| {
            world.topology().epoch = epoch;
            world.topology().reason = reason;
        }
    };
    let (tally, mut changes) = (Tally::default(), RoleChanges::default());
    for world in [
        // Refused before this agent started.
        primary().with(asked(Progress::Refused)),
        primary().with(asked(Progress::Refused)),
        primary().with(asked(Progress::Undone)),
        primary().with(asked(Progress::Undone)),
        vacant().with(began(8, Reason::MysqlDown)),
        primary().with(began(8, Reason::MysqlDown)),
        primary().with(began(8, Reason::MysqlDown)),
        primary().with(began(9, Reason::Switchover)),
        // Another's promotion is another's to count.
        primary().with(began(10, Reason::AgentLost)).with(|world| world.topology().primary = Some("db2".into())),
    ] {
        let mut view = world.view;
        view.own.name = "db1".into();
        changes.note(&view, &tally);
    }
    let (switches, failovers) = (tally.switchovers.read(), tally.failovers.read());
    assert_eq!((switches["refused"], switches["undone"], switches["done"]), (0, 1, 1));
    assert_eq!((failovers["mysql_down"], failovers["agent_lost"]), (1, 0));
}
