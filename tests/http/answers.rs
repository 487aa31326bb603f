//! Status codes, role by role; and that no answer outlives what it rests on.

use std::time::Duration;

use mysql_ha_agent::core::gtid::GtidSet;
use mysql_ha_agent::core::reason::Reason;
use mysql_ha_agent::core::records::{Mode, Role};
use mysql_ha_agent::core::view::{Health, IoThread, Node, Process};

use crate::Asked;
use crate::world::{NOW, World, asked, beat_at, gtids, primary, promoted, replica, switch, unadopted, vacant, voted};

const SECOND: Duration = Duration::from_secs(1);

/// The paths that answer by 200 or 503, in the order of the table's digits.
const PATHS: [&str; 8] =
    ["/", "/primary", "/read-write", "/replica", "/read-only", "/health", "/liveness", "/readiness"];

/// One line for each situation: a digit for each of [`PATHS`], 1 for 200 and 0 for 503.
fn situations() -> Vec<(&'static str, World, &'static str)> {
    vec![
        ("the primary", primary(), "11101111"),
        ("a replica", replica(), "00011111"),
        ("promoted, not opened yet", promoted(), "00000111"),
        ("nobody takes writes: a replica waits", vacant(), "00011111"),
        ("the race: reads go on", voted(), "00011111"),
        ("not adopted, writable", unadopted("db1"), "00000110"),
        ("not adopted, read-only", unadopted("db2"), "00000110"),
        ("a primary that closes for a switch", closing(), "00000111"),
        ("a primary whose write waits", primary().with(|w| w.view.server.health = blocked()), "11101111"),
        ("a primary that was made read-only by hand", primary().with(|w| w.facts().super_read_only = true), "00000111"),
        ("a primary whose mysqld has exited", primary().with(exited), "00000011"),
        ("a primary whose mysqld has failed", primary().with(failed), "00000011"),
        ("a primary that does not let the agent in", primary().with(refused), "11101011"),
        ("a primary without a lease", primary().with(|w| w.view.held = None), "00000111"),
        ("a primary whose lease has not opened", primary().with(|w| w.held().opened = false), "00000111"),
        ("a primary whose lease has run out", primary().with(|w| w.held().until = NOW), "00000111"),
        ("a primary of an earlier epoch", primary().with(|w| w.topology().epoch = 8), "00000111"),
        ("the primary, observed", primary().with(|w| w.view.own.mode = Mode::Observe), "00000111"),
        ("without ZooKeeper, under a lease", primary().with(|w| w.view.ensemble.complete = false), "11101111"),
        ("without ZooKeeper, on acknowledgements", failsafe(), "11101111"),
        ("a replica without ZooKeeper", replica().with(|w| w.view.ensemble.complete = false), "00011110"),
        ("a replica whose IO thread stands", replica().with(|w| w.channel().io = IoThread::No), "00011111"),
        ("a replica whose applier stands", replica().with(|w| w.channel().sql_running = false), "00000111"),
        ("a replica with transactions of its own", replica().with(diverged), "00000111"),
        ("a replica that is offline", replica().with(|w| w.facts().offline_mode = true), "00000111"),
        ("a replica whose mysqld has failed", replica().with(failed), "00000011"),
        ("a replica that takes writes", replica().with(|w| w.facts().super_read_only = false), "00000111"),
        ("a server that is no member", replica().with(|w| drop(w.topology().members.remove("db2"))), "00000111"),
        ("a server fenced by hand", replica().with(|w| w.view.server.fenced_by_hand = true), "00011111"),
    ]
}

fn blocked() -> Health {
    Health::Blocked { by: "a backup".into() }
}

fn exited(world: &mut World) {
    failed(world);
    world.view.server.process = Process::Exited { at: NOW };
}

fn failed(world: &mut World) {
    world.view.server.health = Health::Failed { since: NOW, why: "no answer".into() };
}

fn refused(world: &mut World) {
    world.view.server.health = Health::Unreachable { why: "wrong password".into() };
}

fn diverged(world: &mut World) {
    world.view.server.errant = gtids(1);
}

/// A planned switch is becoming read-only: its statement is on its way, and the last reading shows a writable server.
fn closing() -> World {
    asked().with(|world| world.memory.switch = Some(switch(Some(NOW - SECOND / 10))))
}

/// The lease is over; an acknowledged heartbeat lets it write on.
fn failsafe() -> World {
    primary().with(|world| {
        world.view.own.failsafe = true;
        world.view.ensemble.complete = false;
        world.held().until = NOW;
        world.held().proof = SECOND * 5;
        world.view.server.heartbeat = Some(beat_at(NOW - SECOND));
    })
}

#[test]
fn every_path_in_every_role() {
    let mut wrong = Vec::new();
    for (name, world, expected) in situations() {
        let agent = Asked::of(world);
        let found: String = PATHS
            .iter()
            .map(|path| match agent.code(path) {
                200 => '1',
                503 => '0',
                other => panic!("{name}: {path} is {other}"),
            })
            .collect();
        if found != expected {
            let row = agent.sight.as_ref().map(|sight| (sight.decision.row, sight.decision.outcome.role));
            wrong.push(format!("{name}: expected {expected}, found {found} ({row:?})"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Promise 1 in one line: nobody says "write here" in a situation in which the decisions do not let it write.
#[test]
fn nobody_offers_writes_that_the_decisions_do_not_allow() {
    for (name, world, _) in situations() {
        let agent = Asked::of(world);
        let decision = &agent.sight.as_ref().unwrap().decision;
        let offers = agent.code("/primary") == 200;
        assert!(!offers || (decision.heartbeat_write && decision.outcome.role == Role::Primary), "{name}");
    }
}

/// A process that stood still wakes with an old sight in its hands. Nothing of it was renewed meanwhile.
#[test]
fn an_agent_that_thaws_offers_nothing() {
    let mut agent = Asked::of(primary());
    for (after, expected) in [
        (Duration::ZERO, 200),
        // The server was read at NOW: fresh for interval + 3 × timeout.
        (SECOND * 4, 200),
        (SECOND * 4 + Duration::from_millis(1), 503),
        (SECOND * 3600, 503),
    ] {
        agent.now = NOW + after;
        assert_eq!(agent.code("/primary"), expected, "{after:?} later");
    }
    agent.now = NOW + SECOND * 60;
    for path in PATHS {
        assert_eq!(agent.code(path), 503, "{path}, a minute later");
    }
    let mut replica = Asked::of(replica());
    replica.now = NOW + SECOND * 60;
    for path in PATHS {
        assert_eq!(replica.code(path), 503, "{path} of a replica, a minute later");
    }
}

/// The server may still be read (its own watcher lives) while the lease is not renewed, or the loop hangs.
#[test]
fn the_lease_ends_an_offer_before_the_fence_begins() {
    let mut agent = Asked::of(primary());
    // The lease ends at NOW + 9 s, the budget is 1 s.
    for (after, expected) in [(7999, 200), (8000, 503), (8001, 503), (9500, 503)] {
        agent.now = NOW + Duration::from_millis(after);
        agent.server.facts.as_mut().unwrap().1 = agent.now;
        assert_eq!(agent.code("/primary"), expected, "{after} ms later");
    }
}

/// What the watcher and the fencing task have seen since the last turn counts.
#[test]
fn news_of_the_server_count_before_the_loop_has_turned() {
    for (what, change) in [
        ("a fence has begun", (|agent| agent.server.fence_begins(NOW)) as fn(&mut Asked)),
        ("a fence has returned", |agent| agent.server.fence_returned(Reason::Fenced, NOW)),
        ("mysqld has exited", |agent| agent.server.process = Process::Exited { at: NOW }),
        ("it is read-only", |agent| agent.server.facts.as_mut().unwrap().0.super_read_only = true),
        ("it has failed", |agent| agent.server.health = Health::Failed { since: NOW, why: String::new() }),
    ] {
        let mut agent = Asked::of(primary());
        assert_eq!(agent.code("/primary"), 200);
        change(&mut agent);
        assert_eq!(agent.code("/primary"), 503, "{what}");
    }
}

#[test]
fn lag_and_tags_of_a_replica() {
    let mut agent = Asked::of(replica().with(|world| {
        world.view.own.tags = [("rack".to_owned(), "a b".to_owned()), ("use".to_owned(), "reports".to_owned())].into();
    }));
    // The newest heartbeat was half a second old when it was read, a second ago.
    agent.now = NOW + SECOND;
    for (query, expected) in [
        ("", 200),
        ("?lag=1500ms", 200),
        ("?lag=1499ms", 503),
        ("?lag=0", 503),
        ("?tag_rack=a%20b", 200),
        ("?tag_rack=a+b&tag_use=reports&lag=2s", 200),
        ("?tag_rack=c", 503),
        ("?tag_other=a", 503),
        ("?lga=5s", 400),
        ("?lag=5", 400),
        ("?lag", 400),
        ("?tag_rack=%zz", 400),
    ] {
        for path in ["/replica", "/read-only"] {
            assert_eq!(agent.code(&format!("{path}{query}")), expected, "{path}{query}");
        }
    }
    agent.server.facts.as_mut().unwrap().0.heartbeat_age = None;
    assert_eq!(agent.code("/replica"), 200);
    assert_eq!(agent.code("/replica?lag=24h"), 503, "a lag that is not known is not small");
    // A primary does not lag, and has tags all the same.
    let primary = Asked::of(primary());
    assert_eq!(primary.code("/read-only?lag=0"), 200);
    assert_eq!(primary.code("/read-only?tag_rack=a"), 503);
}

#[test]
fn methods_paths_and_what_they_carry() {
    let agent = Asked::of(primary());
    for method in ["POST", "PUT", "DELETE", "PATCH", "TRACE", "CONNECT", "BREW", "get", ""] {
        for path in ["/primary", "/no", "/metrics"] {
            let answer = agent.ask(method, path);
            assert_eq!((answer.status, answer.allow), (405, true), "{method} {path}");
        }
    }
    for path in PATHS.into_iter().chain(["/status", "/topology", "/history", "/metrics", "/no"]) {
        let get = agent.ask("GET", path);
        for method in ["HEAD", "OPTIONS"] {
            let other = agent.ask(method, path);
            assert_eq!((other.status, &other.body), (get.status, &get.body), "{method} {path}");
            assert!(get.with_body && !other.with_body);
        }
    }
    for path in ["/no", "/primary/", "//", "/Primary", "/primary%00", "", "*", "primary"] {
        assert_eq!(agent.code(path), 404, "{path}");
    }
    assert_eq!(agent.code("http://db1:8008/primary"), 200, "an absolute target");
}

#[test]
fn the_json_of_the_cluster() {
    let mut agent = Asked::of(replica());
    let json = |agent: &Asked, path: &str| {
        let answer = agent.ask("GET", path);
        assert_eq!(answer.media_type, "application/json");
        (answer.status, serde_json::from_str::<serde_json::Value>(&answer.body).unwrap())
    };
    let (code, status) = json(&agent, "/status");
    assert_eq!((code, &status["primary"], &status["healthy"]), (200, &"db1".into(), &true.into()));
    assert_eq!(status["members"].as_array().unwrap().len(), 3);
    let (code, topology) = json(&agent, "/topology");
    assert_eq!((code, &topology["epoch"], &topology["members"]["db2"]["state"]), (200, &7.into(), &"READ".into()));
    assert_eq!(json(&agent, "/history"), (200, serde_json::json!([])));

    // An outage: people see what was seen last and that it is old; clients get no topology to go by.
    agent.sight.as_mut().unwrap().view.ensemble.complete = false;
    let (code, status) = json(&agent, "/status");
    assert_eq!((code, &status["healthy"]), (503, &false.into()));
    assert!(status["problems"][0].as_str().unwrap().contains("ZooKeeper"), "{status}");
    assert_eq!(json(&agent, "/topology").0, 503);

    agent.sight.as_mut().unwrap().view.ensemble.complete = true;
    agent.sight.as_mut().unwrap().view.ensemble.topology = Node::Absent;
    agent.history = None;
    assert_eq!((json(&agent, "/topology").0, json(&agent, "/history").0), (503, 503));
}

#[test]
fn before_the_first_turn_nothing_is_promised() {
    let mut agent = Asked::of(primary());
    agent.sight = None;
    for path in PATHS.into_iter().chain(["/status", "/topology"]) {
        assert_eq!(agent.code(path), 503, "{path}");
    }
    assert_eq!(agent.code("/metrics"), 200);
    assert_eq!(agent.server.errant, GtidSet::new());
}
